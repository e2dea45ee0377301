"""Language models, and anything else that acts, as policies for Gymnasium environments; one loop, one record.

Importing this package loads nothing: a public name is loaded when it is used first.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gym_text.errors import PolicyError as PolicyError
    from gym_text_policies.backends.scripted import ScriptedBackend as ScriptedBackend
    from gym_text_policies.load import load_policy as load_policy
    from gym_text_policies.policies.llm import LLMPolicy as LLMPolicy
    from gym_text_policies.policies.user_policies import as_policy as as_policy
    from gym_text_policies.policy import Policy as Policy
    from gym_text_policies.records import Decision as Decision
    from gym_text_policies.records import Episode as Episode
    from gym_text_policies.records import Step as Step
    from gym_text_policies.records import Turn as Turn
    from gym_text_policies.rollouts import rollout as rollout
    from gym_text_policies.run.agent import Agent as Agent
    from gym_text_policies.run.experiment import parse_config as parse_config
    from gym_text_policies.run.experiment_folder import run_experiment as run_experiment
    from gym_text_policies.store import EpisodeStore as EpisodeStore

__gym_text_opponents__ = "gym_text_policies.run.opponents:opponents"
"""Who makes a policy of a name that is an opponent's in games for two; see `gym_text.opponents`."""

_MODULES = {
    "gym_text.errors": ("PolicyError",),
    "gym_text_policies.backends.scripted": ("ScriptedBackend",),
    "gym_text_policies.run.agent": ("Agent",),
    "gym_text_policies.run.experiment": ("parse_config",),
    "gym_text_policies.run.experiment_folder": ("run_experiment",),
    "gym_text_policies.load": ("load_policy",),
    "gym_text_policies.policies.llm": ("LLMPolicy",),
    "gym_text_policies.policies.user_policies": ("as_policy",),
    "gym_text_policies.policy": ("Policy",),
    "gym_text_policies.records": ("Decision", "Episode", "Step", "Turn"),
    "gym_text_policies.rollouts": ("rollout",),
    "gym_text_policies.store": ("EpisodeStore",),
}
"""Where the public names are defined. None of them is a module's name here, which an import of that module would set."""
__all__ = sorted(name for names in _MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
