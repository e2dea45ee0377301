"""What a search in copies of the game says about a decision, as the probabilities that a model learns."""

from __future__ import annotations

from gym_text_policies.records import Decision

LEAST_DIFFERENCE = 1e-6
"""Values of actions that differ by less are equal: sums of the same rewards in another order may differ in their last digits."""


def targets_of(decision: Decision) -> dict[str, float]:
    """Return the target probabilities of a decision's actions, without those of 0; empty if its search has found nothing."""
    values, visits = (decision.values or {}).values(), decision.visits or {}
    if decision.plan:
        return {decision.plan[0]: 1.0}
    if not values or max(values) - min(values) < LEAST_DIFFERENCE:
        return {}
    again = {name: number for name, number in visits.items() if number > 1}
    return {name: number / sum(again.values()) for name, number in again.items()}
