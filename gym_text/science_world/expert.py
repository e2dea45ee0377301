"""The expert of ScienceWorld: the engine's own solution in the environment's words, and a way back to it.

The engine finds a solution only from the beginning of a task. When the agent has left that path, the plan is to walk back to the
place where it left the path, and to play the rest. The plan is kept only if it wins when it is played on a second game. After
many detours the plan wins; after a mistake that cannot be undone it does not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

from gym_text.science_world.engine import ScienceWorldGame

Path = tuple[str, ...]


class Solution(NamedTuple):
    """The expert's way to win a variation."""

    path: Path
    """The names of the environment's actions."""
    is_listed: bool
    """Whether each step is among the valid actions when it is played; that list does not depend on the expert."""


@functools.lru_cache(maxsize=2048)
def solution(task: str, simplifications: str, variation: int) -> Solution | None:
    """Return the engine's solution of a variation in the environment's words, or None if it does not win.

    Three forms of the solution are tried: without its steps that have no effect, such as opening an open door; with these steps;
    and in the engine's own words.
    """
    game = ScienceWorldGame(task, simplifications)
    game.start(variation, with_gold=True)
    gold = game.gold()
    for lean in (True, False):
        renamed = _in_considered_words(game, variation, gold, lean=lean)
        if renamed:
            return renamed
    path = _up_to_the_win(game, variation, gold)
    return Solution(path, False) if path else None


def _in_considered_words(game: ScienceWorldGame, variation: int, gold: Path, *, lean: bool) -> Solution | None:
    """Play a solution in the words of `considered_actions`; return it if it wins.

    Args:
        game: The game to play.
        variation: The level.
        gold: The engine's solution.
        lean: Leave out steps that open an open door or container.
    """
    game.start(variation)
    played: list[str] = []
    is_listed = True
    for action in gold:
        valid = game.considered_actions()
        game_asks = valid[0].isdigit()
        if action.isdigit() and not game_asks:
            continue  # it answers a question that the game did not ask, as our names are unambiguous
        name = game.canonical(action)
        if lean and name.startswith("open ") and name not in valid:
            continue
        state = game.step(name)
        played.append(name)
        is_listed = is_listed and name in valid
        if state.is_over:
            return Solution(tuple(played), is_listed) if state.score >= 1 else None
    return None


def _up_to_the_win(game: ScienceWorldGame, variation: int, actions: Iterable[str]) -> Path | None:
    """Play actions from the beginning; return those up to the win, or None if they do not win."""
    game.start(variation)
    played: list[str] = []
    for action in actions:
        played.append(action)
        state = game.step(action)
        if state.is_over:
            return tuple(played) if state.score >= 1 else None
    return None


def plan_from(twin: ScienceWorldGame, variation: int, played: Path, rest: Path, place: str) -> Path | None:
    """Return a plan that wins after the actions `played`: the way back to `place`, and the rest of the path. None if it fails.

    Args:
        twin: A game of the same task, on which the plan is tried.
        variation: The level.
        played: All actions of the episode.
        rest: The steps of the path that the agent had not played when it left the path.
        place: The place where the agent left the path.
    """
    state = twin.start(variation)
    for action in played:
        state = twin.step(action)
        if state.is_over:
            return None
    plan: list[str] = []
    for action in twin.way_to(place) + rest:
        if action.startswith("go to ") and (open_door := action.replace("go to", "open door to", 1)) in twin.considered_actions():
            plan.append(open_door)  # the door was closed in the meantime
            twin.step(open_door)
        plan.append(action)
        state = twin.step(action)
        if state.is_over:
            return tuple(plan) if state.score >= 1 else None
    return None
