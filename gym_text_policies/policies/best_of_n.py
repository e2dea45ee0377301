"""Best of n: episodes are drawn from the present state on, and the first action of the best one is played.

Each is drawn by the player's probabilities, to its end. Their number follows from `simulations`, the most states in which the
player is asked: the last one is cut there. In a state that two of them reach by the same actions the player is asked once.
"""

from __future__ import annotations

import numpy as np

from gym_text_policies.policies.tree import Asking, Node, Simulator, end_simulation


def best_of_n(root: Node, simulator: Simulator, *, simulations: int, depth: int | None, rng: np.random.Generator) -> Asking:
    """Search from a state: the most that any draw through each of its children was worth is the result.

    Args:
        root: The present state.
        simulator: Plays copies of the game.
        simulations: Most draws, and most states in which the player is asked.
        depth: Most steps of a draw; None: to the end of the episode.
        rng: Draws the actions.
    """
    yield from simulator.ask(root)
    for _ in range(simulations):
        path: list[str] = []
        nodes = [root]
        with simulator.at(path) as (env, node):
            while node.names and (depth is None or len(path) < depth) and (node in simulator.asked or simulator.left(simulations)):
                yield from simulator.ask(node)
                path.append(node.names[rng.choice(len(node.names), p=[node.prior[name] for name in node.names])])
                node = simulator.play(env, node, path[-1])
                nodes.append(node)
        end_simulation(nodes, path, node)
        if node.won or not simulator.left(simulations):
            return
