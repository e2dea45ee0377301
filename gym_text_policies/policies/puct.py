"""PUCT (Silver et al. 2017, https://doi.org/10.1038/nature24270): a tree search that a player's probabilities lead.

Each simulation goes down the tree from the present state. In each state it takes the action with the greatest

    value / range + exploration * prior * sqrt(visits of the state) / (1 + visits of the action)

until it reaches a state that no simulation has reached before. What this leaf is worth counts for all states on the way. The first
simulation reaches the present state itself. The action with the most visits is played.

The player's probabilities in a state are the state's prior. The player is asked for them when a simulation goes on from there: a
leaf to which no simulation returns costs a step of the game, and no call of the model.

The range is the one of the values that were seen below the state, and at least 1, so that a game may count in hundreds. An action
after which the game looks as it did before is tried late: it has probably had no effect.

The game is deterministic and a copy is exact, so a path to a win is a plan: once a simulation has won, its first action is played.
The next search finds the rest of the plan again, since what it does below a state depends on nothing above it.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Literal

from gym_text_policies.policies.tree import Asking, Node, Simulator, end_simulation
from gym_text_policies.records import Decision

Leaf = Literal["score", "rollout"]
LEAVES = ("score", "rollout")

REPEATED = 1.0
"""How much less an action is worth, in ranges, after which the state looks like an earlier one of the episode."""


def puct(
    root: Node, simulator: Simulator, *, simulations: int, exploration: float, depth: int | None, leaf: Leaf = "score"
) -> Asking:
    """Search from a state: the visits and values of its children are the result.

    Args:
        root: The present state.
        simulator: Plays copies of the game.
        simulations: Most simulations, and most states in which the player is asked.
        exploration: How much the prior counts beside the values.
        depth: Most steps that a simulation looks ahead; None: to the end of the episode.
        leaf: What a leaf is worth: its score, or the score of the last state if the player plays on from there (rollout). The
            player then plays the most probable actions, and is asked in each state.
    """
    yield from simulator.ask(root)
    for _ in range(simulations):
        path: list[str] = []
        nodes = [root]
        while (node := nodes[-1]).visits and node.names and (depth is None or len(path) < depth):
            yield from simulator.ask(node)
            path.append(best_action(node, exploration))
            if path[-1] not in node.children:
                with simulator.at(path[:-1]) as (env, _):
                    simulator.play(env, node, path[-1])
            nodes.append(node.children[path[-1]])
        last = nodes[-1]
        if leaf == "rollout" and last.names and not last.visits:
            last = yield from play_on(simulator, path, simulations, depth)
        end_simulation(nodes, path, last)
        if last.won or not simulator.left(simulations):
            return


def play_on(simulator: Simulator, path: list[str], most: int, depth: int | None) -> Generator[Node, Decision, Node]:
    """Play the most probable actions from the state after a path; return the last state, and append the actions to the path.

    Args:
        simulator: Plays copies of the game.
        path: The actions from the present state on.
        most: Most states in which the search may ask the player.
        depth: Most actions in the path; None: any number.
    """
    with simulator.at(path) as (env, node):
        while node.names and (depth is None or len(path) < depth) and (node in simulator.asked or simulator.left(most)):
            yield from simulator.ask(node)
            path.append(max(node.names, key=node.prior.__getitem__))
            node = simulator.play(env, node, path[-1])
    return node


def best_action(node: Node, exploration: float) -> str:
    """Return the action that the next simulation takes in a state.

    An action that was not tried has the value of the state. One that loses is not tried again.
    """
    tried, root_of_visits = node.tried, math.sqrt(node.visits)

    def bound(name: str) -> tuple[bool, float]:
        child, value, visits = tried.get(name), node.worth, 0
        if child:
            value, visits = child.value - REPEATED * node.range * child.repeated, child.visits
        return not (child and child.lost), value / node.range + exploration * node.prior[name] * root_of_visits / (1 + visits)

    return max(node.names, key=bound)
