"""The expert of ScienceWorld: the engine's own solution, said as the environment says it, and a way back to it.

The engine finds its solution from a task's beginning alone. Off that path the plan is to walk back to where the path was left and
to go on; it is kept only if it wins when it is played on a twin: many detours allow that, and what is spoilt does not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

from gym_text.science_world.engine import Game

Path = tuple[str, ...]


class Solution(NamedTuple):
    """The expert's way to win a variation."""

    path: Path
    """The names of the environment's actions."""
    is_listed: bool
    """Whether each step is among the valid actions when its turn comes; the list does not depend on the expert."""


@functools.lru_cache(maxsize=2048)
def solution(task: str, simplifications: str, variation: int) -> Solution | None:
    """Return the engine's solution of a variation as the environment says it, or None if none that was tried wins.

    First without what the engine's solution does in vain, such as opening an open door; then with it; then word for word.
    """
    game = Game(task, simplifications)
    game.start(variation, with_gold=True)
    gold = game.gold()
    for lean in (True, False):
        found = _as_said(game, variation, gold, lean=lean)
        if found:
            return found
    path = _up_to_the_win(game, variation, gold)
    return Solution(path, False) if path else None


def _as_said(game: Game, variation: int, gold: Path, *, lean: bool) -> Solution | None:
    """Play a solution by the names of `considered_actions`; return the names if that wins."""
    game.start(variation)
    played: list[str] = []
    is_listed = True
    for action in gold:
        valid = game.considered_actions()
        asked = valid[0].isdigit()
        if action.isdigit() and not asked:
            continue  # its question was not asked: our name says which is meant
        name = game.canonical(action)
        if lean and name.startswith("open ") and name not in valid:
            continue
        state = game.step(name)
        played.append(name)
        is_listed = is_listed and name in valid
        if state.is_over:
            return Solution(tuple(played), is_listed) if state.score >= 1 else None
    return None


def _up_to_the_win(game: Game, variation: int, actions: Iterable[str]) -> Path | None:
    """Play actions from the beginning; return those up to the win, or None if they do not win."""
    game.start(variation)
    played: list[str] = []
    for action in actions:
        played.append(action)
        state = game.step(action)
        if state.is_over:
            return tuple(played) if state.score >= 1 else None
    return None


def plan_from(twin: Game, variation: int, played: Path, rest: Path, place: str) -> Path | None:
    """Return a plan that wins after `played`, or None: the way to `place`, where the path was left, and the path's rest.

    Args:
        twin: A game of the same task, which is played.
        variation: The level.
        played: All actions of the episode.
        rest: What was left of the path when it was left.
        place: Where the agent was then.
    """
    state = twin.start(variation)
    for action in played:
        state = twin.step(action)
        if state.is_over:
            return None
    plan: list[str] = []
    for action in twin.way_to(place) + rest:
        if action.startswith("go to ") and (opened := action.replace("go to", "open door to", 1)) in twin.considered_actions():
            plan.append(opened)  # a door that has been closed since
            twin.step(opened)
        plan.append(action)
        state = twin.step(action)
        if state.is_over:
            return tuple(plan) if state.score >= 1 else None
    return None
