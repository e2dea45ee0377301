"""Search for a policy's parameters: a language model as the optimiser, beside chance, CMA-ES and a Gaussian process."""

from gym_text_policies.search.evaluations import Evaluation, Found, Proposal
from gym_text_policies.search.run import command, search
from gym_text_policies.search.search_config import SearchConfig

__all__ = ["Evaluation", "Found", "Proposal", "SearchConfig", "command", "search"]
