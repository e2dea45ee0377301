"""Trimming: in each state of an episode, the actions from there on that it takes to win.

A player's win has detours: doors that are opened and closed, ways there and back, things that are taken for nothing. Exact copies
of the game (`gym_text.fork`) tell which actions it takes: those without which the episode is not won. So a win teaches, without an
expert, what an expert teaches that plans anew in every state: what leads out of a circle, and nothing of the circle.

From each state, the rest of the episode is played in copies

* without one of its actions, and without those that only this action had made possible, as closing what it opened,
* without what lies between two states that look alike,

until nothing can be left out. What the player has read on the way stays, too: the text of an action that changes nothing, if the
player has there read a word of a later action for the first time. A recipe need not be read to win, but who has not read it cannot
know what to cook. (What is told by numbers alone, as by a thermometer, is not kept.)

An episode that is not won can be finished in copies (`gym_text_policies.data.playouts`), and then teaches as much.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from gym_text.copies import fork
from gym_text.errors import RunError, UsageError
from gym_text.spec import TextSpec
from gym_text.wrappers.forks import look
from gym_text_policies.data.playouts import place_of, way_to_win
from gym_text_policies.policy import check_lists_actions, text_spec
from gym_text_policies.records import Episode

Rest = tuple[str, ...]
"""Names of actions, from a state of an episode to its win."""
BACK = (0, 1, 2, 4, 8)
"""An episode that is not won is finished from its end, or so many steps before."""


def check_trims(env: gym.Env[Any, Any]) -> None:
    """Raise `UsageError` if what is won in an environment cannot be trimmed: there are no exact copies, or no list of actions."""
    check_lists_actions(text_spec(env), "trim")
    try:
        fork(env).close()
    except UsageError as error:
        raise UsageError(f"trim: expected an environment with exact copies. {error}") from error


def trimmed(episode: Episode, make_env: Callable[[], gym.Env[Any, Any]], playouts: int = 0) -> Episode:
    """Return an episode in which the `plan` of each decision has the actions that it takes to win from there.

    A decision from which no win is known stays as it is.

    Args:
        episode: The episode.
        make_env: Makes the same environment, without the policy's wrappers.
        playouts: With how many random playouts for each rise of the score an episode is finished that is not won.

    Raises:
        RunError: If the recorded actions of a win do not win when they are played again.
    """
    steps = list(episode.steps)
    with closing(make_env()) as env:
        number, rest = (len(steps), ()) if episode.outcome == "won" else _finished(env, episode, playouts)
        told: frozenset[str] = frozenset()
        while number:
            number -= 1
            step = steps[number]
            state = _state(env, episode, number, told)
            way = state.play((step.decision.action, *rest))
            if way is None:
                where = f"{episode.environment['id']}, seed {episode.seed}"
                raise RunError(f"trim: {where}: expected a game in which the same actions win again; played again, they do not.")
            rest, told = state.shortest(way, firsts=1).names, state.told
            steps[number] = dataclasses.replace(step, decision=dataclasses.replace(step.decision, plan=rest))
    return dataclasses.replace(episode, steps=tuple(steps))


def by_plan(episode: Episode) -> Episode:
    """Return an episode whose `gold_action` in each state is the first one of the decision's plan, as a label for `rows_of`."""
    steps = (dataclasses.replace(step, gold_action=next(iter(step.decision.plan), None)) for step in episode.steps)
    return dataclasses.replace(episode, steps=tuple(steps))


def _finished(env: gym.Env[Any, Any], episode: Episode, playouts: int) -> tuple[int, Rest]:
    """Return a number of steps of an episode that was not won, and what wins after them; 0 steps if nothing was found."""
    rng = random.Random(episode.seed)
    for back in BACK if playouts else ():
        number = episode.length - back
        if number <= 0 or (back == 0 and episode.outcome != "truncated"):
            continue
        state = _state(env, episode, number, frozenset())
        names = way_to_win(env, state.obs, episode.steps[number - 1].score, playouts, rng)
        way = state.play(names) if names else None
        if way is not None:
            return number, state.shortest(way, firsts=len(way.names)).names
    return 0, ()


@dataclass(frozen=True)
class _Way:
    """Actions that win from a state, and what they show."""

    names: Rest
    shown: tuple[Mapping[str, Any], ...]
    """The observation after each action."""


@dataclass
class _State:
    """A state of an episode."""

    env: gym.Env[Any, Any]
    """The environment in this state. It stays so: only copies of it are played."""
    spec: TextSpec
    obs: Mapping[str, Any]
    read: frozenset[str]
    """The words that the player has read up to here."""
    told: frozenset[str]
    """Texts that a way from here must show."""

    def play(self, names: Rest) -> _Way | None:
        """Play actions in a copy, without those that are not possible; return the way up to the win, or None if they do not win.

        A limit of steps does not end it: a way that takes longer than what is left still says what to do.
        """
        played: list[str] = []
        shown: list[Mapping[str, Any]] = []
        obs, over, won = dict(self.obs), False, False
        with closing(fork(self.env)) as copied:
            for name in names:
                if over:
                    break
                if name in self.spec.names(obs):
                    obs, _, over, _, info = copied.step(self.spec.encode(name, obs))
                    won = bool(info.get("success"))
                    played.append(name)
                    shown.append(obs)
        return _Way(tuple(played), tuple(shown)) if won else None

    def shortest(self, way: _Way, firsts: int) -> _Way:
        """Return a way of which nothing can be left out.

        Args:
            way: A way. Without its first `firsts` actions it is known to be such a way from where these lead.
            firsts: The number of these actions.
        """
        cuts = self._cuts(way, firsts)
        while (cut := next(cuts, None)) is not None:
            start, end = cut
            shorter = self.play(way.names[:start] + way.names[end:])
            if shorter is not None and self._keeps(way, shorter, start, end):
                way = shorter
                cuts = self._cuts(way, firsts=len(way.names))
        return way

    def _cuts(self, way: _Way, firsts: int) -> Iterator[tuple[int, int]]:
        """Yield what may be left out, from an index up to another: each of the first actions, then ways back to where one was."""
        yield from ((start, start + 1) for start in range(firsts))
        places = [place_of(obs) for obs in (self.obs, *way.shown)]
        for start in range(firsts):
            ends = range(len(way.names) - 1, start + 1, -1)
            yield from ((start, end) for end in ends if places[end] == places[start])

    def _keeps(self, way: _Way, shorter: _Way, start: int, end: int) -> bool:
        """Return whether a shorter way tells all that a way from here must tell; learn what that is."""
        if end == start + 1 and shorter.names == way.names[:start] + way.names[end:]:
            before, after = ([look(obs) for obs in shown] for shown in (way.shown[end:], shorter.shown[start:]))
            text = str(way.shown[start]["text"])
            read = self.read.union(*(_words(str(obs["text"])) for obs in way.shown[:start]))
            if before == after and (_words(text) - read) & _words(" ".join(shorter.names[start:])):
                self.told |= {text}
        return self.told <= {str(obs["text"]) for obs in shorter.shown}


def _state(env: gym.Env[Any, Any], episode: Episode, number: int, told: frozenset[str]) -> _State:
    """Return the state of an episode before one of its steps, or after the last one."""
    spec = text_spec(env)
    obs, _ = env.reset(seed=episode.seed)
    read = _words(f"{obs['goal']} {obs['text']}")
    for step in episode.steps[:number]:
        obs, *_ = env.step(spec.encode(step.decision.action, dict(obs)))
        read |= _words(str(obs["text"]))
    return _State(env, spec, obs, read, told)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))
