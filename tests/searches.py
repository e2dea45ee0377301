"""Short searches that several test files share."""

from gym_text_policies.search import SearchConfig
from gym_text_policies.search.evaluations import Evaluator

CAR = "MountainCarContinuous-v0"


def config(environment=CAR, max_episode_steps=200, **options):
    """Return the configuration of a short random search without files; 0 steps stand for the environment's own limit."""
    values = {"folder": "", "num_rollouts": 3, "evaluations": 6, "optimiser": "random"}
    limit = f"?max_episode_steps={max_episode_steps}" if max_episode_steps else ""
    return SearchConfig(environment=f"{environment}{limit}", **(values | options))


def evaluator(settings):
    """Return what rolls out the policies of a search."""
    return Evaluator(settings.environment, settings.seeds, bias=settings.bias, bounds=settings.bounds)


def tried(found):
    """Return the parameters and the returns of each evaluation."""
    return [(evaluation.parameters, evaluation.returns) for evaluation in found.evaluations]
