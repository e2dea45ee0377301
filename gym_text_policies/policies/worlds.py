"""Drawn worlds: copies of the game in which what the player has not seen is drawn anew, for a search that knows no more than he."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from gym_text.errors import UsageError
from gym_text_policies.records import Turn


def drawn_worlds(turn: Turn, worlds: int, simulations: int) -> Iterator[tuple[Turn, int]]:
    """Yield the turn in each drawn world, and the number of simulations there.

    Args:
        turn: The present turn; its observation has ``fork``. Its generator draws the worlds.
        worlds: Number of worlds, at most `simulations`.
        simulations: Number of simulations in all worlds together.

    Raises:
        UsageError: If the environment cannot draw anew what the player has not seen.
    """
    if "fork" not in turn.obs:
        raise UsageError("obs: expected the key 'fork'; it is missing. Use policy.wrap(env).")
    for number, rng in enumerate(turn.rng.spawn(worlds)):
        try:
            env = turn.obs["fork"](unseen=rng)
        except UsageError as error:
            raise UsageError(f"worlds: {error} Leave out worlds, and the search is in exact copies.") from error
        fork = dataclasses.replace(turn.obs["fork"], env=env)
        world = dataclasses.replace(turn, obs={**turn.obs, "fork": fork})
        yield world, simulations // worlds + (number < simulations % worlds)
