"""Search for a policy's parameters: a language model as the optimiser, beside chance, CMA-ES and a Gaussian process."""

from gym_text_policies.search.config import SearchConfig
from gym_text_policies.search.policy import SearchedPolicy, load_searched
from gym_text_policies.search.records import Evaluation, Proposal
from gym_text_policies.search.run import Found, command, search

__all__ = ["Evaluation", "Found", "Proposal", "SearchConfig", "SearchedPolicy", "command", "load_searched", "search"]
