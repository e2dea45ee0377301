"""`load_policy`: from one string to a policy."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym

from gym_text.errors import UsageError, check_options
from gym_text_policies.backends import Backend
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.local.models import settings_of
from gym_text_policies.policies.baselines import ControllerPolicy, GoldPolicy, RandomPolicy
from gym_text_policies.policies.examples import FewShot, Retrieval, gold_examples
from gym_text_policies.policies.llm import LLMPolicy
from gym_text_policies.policies.searched import load_searched
from gym_text_policies.policy import Policy, text_spec
from gym_text_policies.prompts import Prompt


def load_policy(model: str | Backend, env: gym.Env[Any, Any], *, seed: int = 0, **options: Any) -> Policy:
    """Return a policy for an environment.

    Args:
        model: ``random``, ``gold`` (the environment's expert) or ``controller`` (of a control task). Or a language model:
            ``smollm2`` (the embedded one), ``hf:OWNER/NAME``, a folder (of a model or an adapter), ``adapters/NAME`` (one that
            ships), ``openai:MODEL``, ``ollama:MODEL``, ``tensorzero:FUNCTION``, ``scripted:A|B``, or a `Backend`: see
            `load_backend`. Or the ``policy.json`` of a search.
        env: The environment to play.
        seed: Seed of all that the policy draws at random.
        options: Of a language model; see `LLMPolicy`. For a strategy that shows examples also `shots`, how many (3), and
            `demonstrations`, the number of expert episodes of the train fold to choose them from. An adapter has learnt to be asked
            in one way, which is its default. All others are the backend's: `load_in_4bit`, `base_url`, `timeout`, `cache` …

    Returns:
        The policy; play it in ``policy.wrap(env)``.

    Raises:
        UsageError: If there is no such model, or the options are not its own.
        MissingDependencyError: If the model's package is not installed.
    """
    if model in ("random", "gold", "controller"):
        if options:
            raise UsageError(f"policy {model!r}: expected no options; got {', '.join(sorted(options))}.")
        if model == "controller":
            return ControllerPolicy.of(env)
        return RandomPolicy(text_spec(env), seed=seed) if model == "random" else GoldPolicy(text_spec(env))
    if isinstance(model, str) and model.endswith(".json"):
        check_options(model, options, [])
        return load_searched(model, env)
    if isinstance(model, str):
        options = settings_of(model) | options
    own = [name for name in inspect.signature(LLMPolicy).parameters if name not in ("backend", "spec", "seed")]
    own += ["shots", "demonstrations"]
    backend = load_backend(model, others=own, **{name: value for name, value in options.items() if name not in own})
    settings = {name: value for name, value in options.items() if name in own}
    try:
        return LLMPolicy(backend, text_spec(env), seed=seed, **_with_examples(settings, env))
    except TypeError as error:
        raise UsageError(f"policy {model!r}: {error}. Options: {', '.join(own)}.") from error


def _with_examples(options: dict[str, Any], env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return the options with the examples that the strategy shows."""
    strategy = options.get("strategy", "zero_shot")
    if "examples" in options or not Prompt(strategy).uses_examples:
        return options
    nearest = strategy == "retrieval"
    shots = options.pop("shots", 3)
    demonstrations = gold_examples(env, options.pop("demonstrations", 50 if nearest else shots))
    return options | {"examples": (Retrieval if nearest else FewShot)(shots, demonstrations)}
