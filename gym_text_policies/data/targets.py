"""What a search in copies of the game says about a decision, as the probabilities that a model learns."""

from __future__ import annotations

from gym_text_policies.records import Decision

LEAST_DIFFERENCE = 1e-6
"""Values of actions that differ by less are equal."""
Targets = dict[str, float]
"""Target probability of each action of a decision; one that is left out has 0. Empty: the model does not read the decision."""


def targets_of(decision: Decision) -> Targets:
    """Return the target probabilities of a decision; empty if its search has found nothing."""
    values, visits = (decision.values or {}).values(), decision.visits or {}
    if decision.plan:
        return {decision.plan[0]: 1.0}
    if not values or max(values) - min(values) < LEAST_DIFFERENCE:
        return {}
    again = {name: number for name, number in visits.items() if number > 1}
    return {name: number / sum(again.values()) for name, number in again.items()}
