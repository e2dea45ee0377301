"""Beam search: the most probable sequences of actions from the present state on are played in copies of the game.

In each round the player is asked in all states of the beam. Of all actions in all these states, those whose sequences have the
greatest sum of log-probabilities are played, and the states after them are the next beam. The first action of the sequence with the
best score is played; the more probable action among equals.
"""

from __future__ import annotations

import heapq
import math

from gym_text_policies.policies.tree import Asking, Node, Simulator, end_simulation


def beam(root: Node, simulator: Simulator, *, simulations: int, depth: int | None) -> Asking:
    """Search from a state: what sequences through each of its children are worth is the result.

    Args:
        root: The present state.
        simulator: Plays copies of the game.
        simulations: Most states in which the player is asked.
        depth: Most rounds. The beam has simulations / depth states. None: it has as many states as the root of `simulations`.
    """
    width = max(1, simulations // depth if depth else math.isqrt(simulations))
    states: list[tuple[float, list[str], list[Node]]] = [(0.0, [], [root])]
    rounds = 0
    while states and (depth is None or rounds < depth) and simulator.left(simulations):
        for _, _, nodes in states[: simulator.left(simulations)]:
            yield from simulator.ask(nodes[-1])
        asked = [state for state in states if state[2][-1] in simulator.asked]
        longer = [
            (sum_so_far + math.log(probability), [*path, name], nodes)
            for sum_so_far, path, nodes in asked
            for name, probability in nodes[-1].prior.items()
            if probability
        ]
        for _, path, nodes in states[len(asked) :]:
            end_simulation(nodes, path, nodes[-1])
        states, rounds = [], rounds + 1
        for sum_so_far, path, nodes in heapq.nlargest(width, longer, key=lambda item: item[0]):
            with simulator.at(path[:-1]) as (env, node):
                after = [*nodes, simulator.play(env, node, path[-1])]
            if after[-1].names and not after[-1].won:
                states.append((sum_so_far, path, after))
                continue
            end_simulation(after, path, after[-1])
            if after[-1].won:
                return
    for _, path, nodes in states:
        end_simulation(nodes, path, nodes[-1])
