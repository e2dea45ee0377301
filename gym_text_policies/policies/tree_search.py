"""Two searches in copies of the game, led by a player's probabilities: PUCT, and the best of n drawn episodes.

PUCT (Silver et al. 2017, https://doi.org/10.1038/nature24270) is a tree search. Each simulation goes down the tree from the present
state. In each state it takes the action with the greatest

    value / range + exploration * prior * sqrt(visits of the state) / (1 + visits of the action)

until it reaches a state that no simulation has reached before. What this leaf's score is worth counts for all states on the way.
The first simulation reaches the present state itself. The action with the most visits is played.

The player's probabilities in a state are the state's prior. The player is asked for them when a simulation goes on from there: a
leaf to which no simulation returns costs a step of the game, and no call of the model.

The range is the one of the values that were seen below the state, so the search is the same in whatever unit a game counts. An
action after which the game looks as it did before is tried late: it has probably had no effect.

The game is deterministic and a copy is exact, so a path to a win is a plan: once a simulation has won, its first action is played.
The next search finds the rest of the plan again, since what it does below a state depends on nothing above it.

Best of n, the simple search to compare PUCT with, draws whole episodes by the player's probabilities, and plays the first action of
the best one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from gym_text.spec import TextSpec
from gym_text.wrappers.forks import Look, look
from gym_text_policies.policy import tempered
from gym_text_policies.records import Decision, Turn

Method = Literal["puct", "best_of_n"]
METHODS = ("puct", "best_of_n")
OF_PUCT = ("exploration",)
"""Settings that puct alone takes."""
REPEATED = 1.0
"""How much less an action is worth, in ranges, after which the state looks like an earlier one of the episode."""
UNFINISHED = 0.9
"""What a point of the game's score is worth in an episode that goes on: it may still be lost."""

StatesToAsk = Generator["Node", Decision, None]
"""A running search. It yields a state in which it has to know what the player would do, and is sent the player's decision."""
Simulation = Generator["Node", Decision, tuple[list["Node"], list[str]]]
"""One simulation of it. It returns the states that it came through, the present one first, and the actions between them."""


@dataclass(eq=False, slots=True)
class Node:
    """A state of the game, and what the present search has found out about it."""

    turn: Turn
    """What the player sees in this state."""
    names: tuple[str, ...]
    """The valid actions; none if the episode is over."""
    score: float
    """The sum of the episode's rewards up to this state."""
    worth: float
    """What the state is worth by its score alone: see `worth_of`."""
    seen: frozenset[Look] = frozenset()
    """What the states before it looked like."""
    repeated: bool = False
    """Whether it looks like one of them, so that the actions since then may have had no effect."""
    won: bool = False
    """Whether the task is done in this state."""
    lost: bool = False
    """Whether the task can no longer be done."""
    plan: tuple[str, ...] = ()
    """Actions that win from here, if the present search has found some."""
    decision: Decision | None = None
    """What the player would do in this state; None while nobody has asked."""
    prior: Mapping[str, float] = field(default_factory=dict)
    """Probability of each valid action before the search; empty while the player was not asked."""
    children: dict[str, Node] = field(default_factory=dict)
    """The states after those actions that were tried."""
    visits: int = 0
    """Number of simulations of the present search that came through this state."""
    total: float = 0.0
    """Sum of what these simulations were worth."""
    least: float = math.inf
    """The least of what these simulations were worth."""
    most: float = -math.inf
    """The most of what these simulations were worth."""

    @property
    def tried(self) -> dict[str, Node]:
        """The states after those actions that the present search has tried."""
        return {name: child for name, child in self.children.items() if child.visits}

    @property
    def value(self) -> float:
        """Mean worth of the simulations through this state; without any, what its score is worth."""
        return self.total / self.visits if self.visits else self.worth

    @property
    def range(self) -> float:
        """Greatest difference between what simulations were worth; 1 if they were all worth the same."""
        return self.most - self.least or 1.0

    def visit(self, worth: float) -> None:
        """Count a simulation through this state, which ended in a state of this worth."""
        self.visits += 1
        self.total += worth
        self.least, self.most = min(self.least, worth), max(self.most, worth)

    def begin(self) -> None:
        """Forget the visits of an earlier search in this state and all after it. What is known of the states themselves stays."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            node.visits, node.total, node.least, node.most, node.plan = 0, 0.0, math.inf, -math.inf, ()
            nodes += node.children.values()


def worth_of(score: float, *, over: bool, failure: bool) -> float:
    """Return what a state is worth by the game's score alone.

    A score counts in full where the game has ended the episode. Nine tenths of a score above 0 count while it goes on. Where the
    task can no longer be done, a score above 0 counts nothing: most games leave a loser the points that he had.
    """
    if failure:
        return min(score, 0.0)
    return score if over or score < 0 else UNFINISHED * score


class Simulator:
    """Plays copies of the game from the state `root`, whose observation has ``fork``, and counts the steps."""

    def __init__(self, spec: TextSpec, root: Node) -> None:
        self.steps = 0
        """Number of steps in copies so far."""
        self.asked: set[Node] = set()
        """The states in which the search had to know what the player would do."""
        self._spec = spec
        self._root = root

    def ask(self, node: Node) -> StatesToAsk:
        """Ask the player what it would do in a state, unless that is known."""
        self.asked.add(node)
        if not node.prior:
            node.decision = yield node

    @contextlib.contextmanager
    def at(self, path: list[str]) -> Iterator[tuple[gym.Env[Any, Any], Node]]:
        """Give a copy of the game in the state after a path of known actions, and that state."""
        env, node = self._root.turn.obs["fork"](), self._root
        try:
            for name in path:
                self.play(env, node, name)
                node = node.children[name]
            yield env, node
        finally:
            env.close()

    def play(self, env: gym.Env[Any, Any], node: Node, name: str) -> Node:
        """Play an action in a copy of the game that is in the state of a node; return the next state, which becomes its child."""
        obs, reward, terminated, truncated, info = env.step(self._spec.encode(name, dict(node.turn.obs)))
        self.steps += 1
        if name not in node.children:
            decision = dataclasses.replace(node.decision or Decision(name), action=name)
            over, won, lost = bool(terminated or truncated), bool(info.get("success", False)), bool(info.get("failure", False))
            score = node.score + float(reward)
            seen = node.seen | {look(node.turn.obs)}
            node.children[name] = Node(
                turn=node.turn.after(decision, obs),
                names=() if over else self._spec.names(dict(obs)),
                score=score,
                worth=worth_of(score, over=bool(terminated) or won, failure=lost),
                seen=seen,
                repeated=not over and look(obs) in seen,
                won=won,
                lost=lost,
            )
        return node.children[name]


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


def search_from(
    root: Node, simulator: Simulator, method: Method, *, simulations: int, exploration: float, rng: np.random.Generator
) -> StatesToAsk:
    """Search from the present state. The visits and values of its children are the result; of best of n, the most that a draw gave.

    Args:
        root: The present state.
        simulator: Plays copies of the game.
        method: How to search.
        simulations: Most simulations, and most states in which the player is asked.
        exploration: How much the prior counts in PUCT beside the values.
        rng: Draws the actions of best of n.
    """
    yield from simulator.ask(root)
    for _ in range(simulations):
        if method == "puct":
            nodes, path = yield from _tree_simulation(root, simulator, exploration)
        else:
            nodes, path = yield from _drawn_episode(root, simulator, simulations, rng)
        for node in nodes:
            node.visit(nodes[-1].worth)
        if nodes[-1].won:
            root.plan = tuple(path)
        if root.plan or len(simulator.asked) >= simulations:
            return


def _tree_simulation(root: Node, simulator: Simulator, exploration: float) -> Simulation:
    path: list[str] = []
    nodes = [root]
    while (node := nodes[-1]).visits and node.names:
        yield from simulator.ask(node)
        path.append(best_action(node, exploration))
        if path[-1] not in node.children:
            with simulator.at(path[:-1]) as (env, _):
                simulator.play(env, node, path[-1])
        nodes.append(node.children[path[-1]])
    return nodes, path


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


def _drawn_episode(root: Node, simulator: Simulator, simulations: int, rng: np.random.Generator) -> Simulation:
    """Draw actions until the episode ends, or where the player may not be asked again. It is asked once in each state."""
    path: list[str] = []
    nodes = [root]
    with simulator.at(path) as (env, node):
        while node.names and (node in simulator.asked or len(simulator.asked) < simulations):
            yield from simulator.ask(node)
            path.append(node.names[rng.choice(len(node.names), p=[node.prior[name] for name in node.names])])
            node = simulator.play(env, node, path[-1])
            nodes.append(node)
    return nodes, path
