"""What a search knows: the states of the game that it has reached, by the actions that lead there, and copies to play them in."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from gym_text.spec import TextSpec
from gym_text.wrappers.forks import Look, look
from gym_text_policies.records import Decision, Turn

UNFINISHED = 0.9
"""What a point of the game's score is worth in an episode that goes on: it may still be lost."""

StatesToAsk = Generator["Node", Decision, None]
"""A running search. It yields a state in which it has to know what the player would do, and is sent the player's decision."""


@dataclass(eq=False, slots=True)
class Node:
    """A state of the game, and what the present search has found out about it."""

    turn: Turn
    """What the player sees in this state."""
    names: tuple[str, ...]
    """The valid actions; none if the episode is over."""
    score: float
    """The game's score in this state."""
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
        """Greatest difference between what simulations were worth, or 1 if that is greater."""
        return max(1.0, self.most - self.least)

    def visit(self, worth: float) -> None:
        """Count a simulation through this state.

        Args:
            worth: What the state is worth in which the simulation ended.
        """
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

    A score counts in full where the episode has ended. Nine tenths of a score above 0 count while it goes on. Where the task can no
    longer be done, a score above 0 counts nothing: most games leave a loser the points that he had.

    Args:
        score: The game's score.
        over: Whether the game has ended the episode.
        failure: Whether the task can no longer be done.
    """
    if failure:
        return min(score, 0.0)
    return score if over or score < 0 else UNFINISHED * score


def end_simulation(nodes: Sequence[Node], path: Sequence[str]) -> None:
    """Count a simulation in the states that it came through. If it has won, its actions are the plan of the first one.

    Args:
        nodes: The states, the present one first. The simulation ends in the last one.
        path: The actions from the present state to the last state.
    """
    for node in nodes:
        node.visit(nodes[-1].worth)
    if nodes[-1].won:
        nodes[0].plan = tuple(path)


class Simulator:
    """Plays copies of the game from the state of a turn, and counts the steps.

    Args:
        spec: The environment's description for players.
        root: The state to begin in; its observation has ``fork``.
    """

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
            score = float(info.get("score", node.score + float(reward)))
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
