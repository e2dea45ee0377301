"""Language models, and anything else that acts, as policies for Gymnasium environments; one loop, one record.

Importing this package loads no model library.
"""

from gym_text.errors import PolicyError
from gym_text.opponents import know_names
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.experiments.agent import Agent
from gym_text_policies.experiments.config import parse_config
from gym_text_policies.experiments.run import run_experiment
from gym_text_policies.load import load_policy
from gym_text_policies.opponents import opponents
from gym_text_policies.policies.llm import LLMPolicy
from gym_text_policies.policy import Policy, as_policy
from gym_text_policies.records import Decision, Episode, Step, Turn
from gym_text_policies.rollout import rollout
from gym_text_policies.store import EpisodeStore

__all__ = [
    "Agent",
    "Decision",
    "Episode",
    "EpisodeStore",
    "LLMPolicy",
    "Policy",
    "PolicyError",
    "ScriptedBackend",
    "Step",
    "Turn",
    "as_policy",
    "load_policy",
    "parse_config",
    "rollout",
    "run_experiment",
]

know_names(opponents)  # so that a policy's name is an opponent in games for two
