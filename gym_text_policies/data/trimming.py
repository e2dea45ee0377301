"""Trimming: a won episode without the actions that it did not take.

A player's win has detours: a book that is taken to be read where it lies, doors that are closed again, ways there and back. An
action is left out if the others still win without it, and if the player still reads every word on the way: a recipe need not be
read to win, nor an empty room be seen, but who has not read it cannot know what to do. So nobody but the game is asked, and what is
left is an episode that this player could have played.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from contextlib import closing

from gym_text import TextSpec
from gym_text.errors import RunError
from gym_text_policies.game import Game, MakeEnv
from gym_text_policies.policies.baselines import RandomPolicy
from gym_text_policies.records import Episode, Step

LONGEST = 4
"""Most actions in a row that are left out at once, as where one undoes another."""


def trimmed(episode: Episode, make_env: MakeEnv, spec: TextSpec) -> Episode:
    """Return an episode that is won, played again without the actions that it did not take.

    Args:
        episode: The episode.
        make_env: Makes the same environment, without the policy's wrappers. A win of n actions is played 4 n times at most for each
            part that is left out, and 4 n times more.
        spec: The specification of the environment, which lists its actions.

    Raises:
        RunError: If the recorded actions do not win when they are played again.
    """
    with closing(Game(make_env, RandomPolicy(spec), episode.seed)) as game:
        won = _won(game, episode.steps)
        if won is None:
            where = f"{episode.environment['id']}, seed {episode.seed}"
            raise RunError(f"trim: {where}: expected a game in which the same actions win again; played again, they do not.")
        read, start, in_vain = _words(won), 0, 0
        while in_vain < won.length:
            start %= won.length
            ends = range(min(start + LONGEST, won.length), start, -1)
            shorter = (_won(game, (*won.steps[:start], *won.steps[end:])) for end in ends)
            if kept := next((kept for kept in shorter if kept and read <= _words(kept)), None):
                won, in_vain = kept, 0
            else:
                start, in_vain = start + 1, in_vain + 1
    return dataclasses.replace(episode, steps=won.steps, last_observation=won.last_observation)


def _won(game: Game, steps: Sequence[Step]) -> Episode | None:
    """Play the decisions of some steps from the start; return the episode, or None if they are not all possible or do not win."""
    game.begin("")
    for step in steps:
        if game.turn is None or game.over or step.decision.action not in game.policy.spec.names(dict(game.turn.obs)):
            return None
        if game.step(step.decision):
            return None
    played = game.end(None)
    return played if played.outcome == "won" else None


def _words(episode: Episode) -> set[str]:
    """Return the words that a player reads before it decides."""
    return {word for step in episode.steps for word in re.findall(r"\w+", str(step.observation["text"]).lower())}
