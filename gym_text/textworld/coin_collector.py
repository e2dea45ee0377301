"""Coin Collector of TextWorld: find the coin at the end of a chain of rooms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gym_text.errors import UsageError
from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Parameters, Range
from gym_text.spec import TextSpec
from gym_text.textworld.env import DROP, EXAMINE, GO, INVENTORY, LOOK, TAKE, MadeGameEnv

COIN_COLLECTOR_SPEC = TextSpec(
    goal="Search the rooms for the coin, and take it.",
    fields=GAME_FIELDS,
    actions=(LOOK, INVENTORY, GO, EXAMINE, TAKE[0], DROP),
    encoding="text",
    reward="Taking the coin raises the score from 0 to 1; nothing else is rewarded.",
)


class CoinCollectorEnv(MadeGameEnv):
    """Find the coin and take it: TextWorld's Coin Collector, made from a seed.

    ## Description

    The player stands at one end of a chain of rooms, and the coin lies at the other. From difficulty 101 on the chain has dead ends
    (Yuan et al. 2018, https://arxiv.org/abs/1806.11525).

    ``level`` is TextWorld's level of difficulty. With 1 to 100 there are as many rooms as the shortest way has steps; with 101 to
    200 (a way of 1 to 100 steps) twice as many; with 201 to 300 three times as many. TextWorld 1.7 makes at most 100 rooms.
    Published settings, for ``difficulty``:

    * ``balrog``: ``level=120`` with 40 rooms and a way of 20 steps, the game of BALROG (Paglieri et al. 2024,
      https://arxiv.org/abs/2411.13543, appendix C). As in BALROG, the goal does not describe the way.

    {spaces}

    ## Rewards

    The change of the score: 1 for the coin, else 0.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the coin is taken (``info["success"]``); the game cannot be lost; truncated after 50 steps. At the registered
    parameters the expert needs 5.

    {last_sections}
    """

    challenge = "tw-coin_collector"
    game_spec = COIN_COLLECTOR_SPEC
    most_actions = 10
    most_actions_ever = 10
    parameters: ClassVar[Parameters] = {"level": Range("level", 1, 300, 105, "TextWorld's level of difficulty")}
    presets: ClassVar[Mapping[str, Mapping[str, int | bool]]] = {"balrog": {"level": 120}}

    def _settings(self) -> dict[str, int | bool | str]:
        level = int(self.game_parameters["level"])
        rooms = ((level - 1) // 100 + 1) * ((level - 1) % 100 + 1)
        if rooms > 100:
            raise UsageError(f"level: expected at most 100 rooms, as TextWorld 1.7 makes no more; got {level}, which has {rooms}.")
        return super()._settings()
