"""Short searches that several test files share."""

from gym_text_policies.search import SearchConfig

CAR = "MountainCarContinuous-v0"


def config(**options):
    """Return the configuration of a short random search that keeps nothing on disk."""
    values = {"folder": "", "num_rollouts": 3, "evaluations": 6, "max_episode_steps": 200, "optimiser": "random"}
    return SearchConfig(**(values | options))


def tried(found):
    """Return the parameters and the returns of each evaluation."""
    return [(evaluation.parameters, evaluation.returns) for evaluation in found.evaluations]
