"""Language models, and anything else that acts, as policies for Gymnasium environments; one loop, one record.

Importing this package loads no model library.
"""

from gym_text.errors import PolicyError
from gym_text_policies.backends import Answer, Backend, Request, ScriptedBackend
from gym_text_policies.llm import LLMPolicy
from gym_text_policies.load import load_policy
from gym_text_policies.policy import Policy, as_policy
from gym_text_policies.records import Decision, Episode, Step, Turn
from gym_text_policies.rollout import rollout
from gym_text_policies.store import EpisodeStore

__all__ = [
    "Answer",
    "Backend",
    "Decision",
    "Episode",
    "EpisodeStore",
    "LLMPolicy",
    "Policy",
    "PolicyError",
    "Request",
    "ScriptedBackend",
    "Step",
    "Turn",
    "as_policy",
    "load_policy",
    "rollout",
]
