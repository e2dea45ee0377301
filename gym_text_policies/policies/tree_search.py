"""Two searches in copies of the game, led by a player's probabilities: PUCT, and the best of n drawn episodes; their settings.

PUCT (Silver et al. 2017, https://doi.org/10.1038/nature24270) is a tree search. Each simulation goes down the tree from the present
state. In each state it takes the action with the greatest

    value / range + exploration * prior * sqrt(visits of the state) / (1 + visits of the action)

until it reaches a state that no simulation has reached before. What this leaf's score is worth counts for all states on the way.
The first simulation reaches the present state itself. The action with the most visits is played.

The player's probabilities in a state are the state's prior. The player is asked for them when a simulation goes on from there: a
leaf to which no simulation returns costs a step of the game, and no call of the model.

The range is the one of the values that were seen below the state, and at least 1, so that a game may count in hundreds. An action
after which the game looks as it did before is tried late: it has probably had no effect.

The game is deterministic and a copy is exact, so a path to a win is a plan: once a simulation has won, its first action is played.
The next search finds the rest of the plan again, since what it does below a state depends on nothing above it.

Best of n, the simple search to compare PUCT with, draws whole episodes by the player's probabilities, and plays the first action of
the best one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gym_text_policies.policies.game_tree import Node, Simulator, StatesToAsk, end_simulation
from gym_text_policies.policy import tempered
from gym_text_policies.records import Decision

Method = Literal["puct", "best_of_n"]
METHODS = ("puct", "best_of_n")
OF_PUCT = ("exploration", "worlds")
"""Settings that puct alone takes."""
REPEATED = 1.0
"""How much less an action is worth, in ranges, after which the state looks like an earlier one of the episode."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of a search; see `PolicyConfig`."""

    method: Method
    simulations: int
    exploration: float
    prior_temperature: float
    uniform_share: float
    temperature: float
    worlds: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SearchSettings:
        """Return the settings of a policy's search."""
        names = [field.name for field in dataclasses.fields(cls) if field.name != "method"]
        given: dict[str, Any] = {name: settings.get(name) for name in names}
        return cls(method=settings["lookahead"], **given)

    def prior(self, decision: Decision, names: Sequence[str]) -> dict[str, float]:
        """Return the prior of a state, by the player's decision there."""
        return mixed_prior(decision.probabilities, names, self.prior_temperature, self.uniform_share)

    def chosen(self, names: Sequence[str], votes: Mapping[str, float], prior: Mapping[str, float], rng: np.random.Generator) -> str:
        """Return the action with the most votes, or, at a temperature above 0, one that is drawn by its votes."""
        if self.temperature == 0:
            return max(names, key=lambda name: (votes.get(name, -math.inf), prior[name]))
        counted = [float(votes.get(name, 0)) for name in names]
        weights = tempered(counted if any(counted) else [prior[name] for name in names], self.temperature)
        return names[rng.choice(len(weights), p=weights)]


def mixed_prior(
    probabilities: Mapping[str, float] | None, names: Sequence[str], temperature: float, uniform_share: float
) -> dict[str, float]:
    """Return the prior of a state.

    Args:
        probabilities: The player's probabilities; None: all actions are equally probable.
        names: The valid actions.
        temperature: The probabilities are taken to the power of 1 / temperature, and normalised.
        uniform_share: The share of the prior that is then spread evenly over all actions.
    """
    if probabilities is None:
        return dict.fromkeys(names, 1 / len(names))
    weights = tempered([probabilities[name] for name in names], temperature)
    even = uniform_share / len(names)
    return {name: (1 - uniform_share) * weight + even for name, weight in zip(names, weights.tolist(), strict=True)}


def puct(root: Node, simulator: Simulator, *, simulations: int, exploration: float) -> StatesToAsk:
    """Search from a state: the visits and values of its children are the result.

    Args:
        root: The present state.
        simulator: Plays copies of the game.
        simulations: Most simulations, and most states in which the player is asked.
        exploration: How much the prior counts beside the values.
    """
    yield from simulator.ask(root)
    for _ in range(simulations):
        path: list[str] = []
        nodes = [root]
        while (node := nodes[-1]).visits and node.names:
            yield from simulator.ask(node)
            path.append(best_action(node, exploration))
            if path[-1] not in node.children:
                with simulator.at(path[:-1]) as (env, _):
                    simulator.play(env, node, path[-1])
            nodes.append(node.children[path[-1]])
        end_simulation(nodes, path)
        if nodes[-1].won or len(simulator.asked) >= simulations:
            return


def best_action(node: Node, exploration: float) -> str:
    """Return the action that the next simulation of PUCT takes in a state.

    An action that was not tried has the value of the state. One that loses is not tried again.
    """
    tried, root_of_visits = node.tried, math.sqrt(node.visits)

    def bound(name: str) -> tuple[bool, float]:
        child, value, visits = tried.get(name), node.worth, 0
        if child:
            value, visits = child.value - REPEATED * node.range * child.repeated, child.visits
        return not (child and child.lost), value / node.range + exploration * node.prior[name] * root_of_visits / (1 + visits)

    return max(node.names, key=bound)


def best_of_n(root: Node, simulator: Simulator, *, simulations: int, rng: np.random.Generator) -> StatesToAsk:
    """Search from a state: the most that any draw through each of its children was worth is the result.

    In a state that two draws reach by the same actions the player is asked once. The last draw ends where the player may not be
    asked again.

    Args:
        root: The present state.
        simulator: Plays copies of the game.
        simulations: Most draws, and most states in which the player is asked.
        rng: Draws the actions.
    """
    yield from simulator.ask(root)
    for _ in range(simulations):
        path: list[str] = []
        nodes = [root]
        with simulator.at(path) as (env, node):
            while node.names and (node in simulator.asked or len(simulator.asked) < simulations):
                yield from simulator.ask(node)
                path.append(node.names[rng.choice(len(node.names), p=[node.prior[name] for name in node.names])])
                node = simulator.play(env, node, path[-1])
                nodes.append(node)
        end_simulation(nodes, path)
        if node.won or len(simulator.asked) >= simulations:
            return
