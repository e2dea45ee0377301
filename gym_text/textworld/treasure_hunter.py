"""Treasure Hunter of TextWorld: find the right one of two things in a maze."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Parameters, Range
from gym_text.spec import TextSpec
from gym_text.textworld.env import DROP, EXAMINE, GO, INVENTORY, LOOK, OPEN, PUT, TAKE, UNLOCK, MadeGameEnv

TREASURE_HUNTER_SPEC = TextSpec(
    goal="Find the thing that the goal names in the rooms of a house, and take it. Taking the wrong thing loses the game.",
    fields=GAME_FIELDS,
    actions=(LOOK, INVENTORY, GO, EXAMINE, *TAKE, DROP, *PUT, *OPEN, *UNLOCK),
    encoding="text",
    reward="Taking the right thing raises the score from 0 to 1; nothing else is rewarded.",
)


class TreasureHunterEnv(MadeGameEnv):
    """Find one thing in a maze of rooms and take it: TextWorld's Treasure Hunter, made from a seed.

    ## Description

    Two things lie in a house of 5, 10 or 20 rooms; the goal names one of them, and where it lies. From difficulty 11 on there are
    containers and closed doors; from difficulty 21 on some are locked, and the player has to find the keys. The idea of the game is
    Parisotto and Salakhutdinov's (https://arxiv.org/abs/1702.08360).

    ``level`` is TextWorld's level of difficulty. With 1 to 10 there are 5 rooms and a shortest way of 1 to 5 steps; with 11 to 20,
    10 rooms and 2 to 10 steps; with 21 to 30, 20 rooms and 3 to 20 steps. Published settings, for ``difficulty``:

    * ``balrog``: ``level=30``, the game of BALROG (Paglieri et al. 2024, https://arxiv.org/abs/2411.13543, appendix C). As in
      BALROG, the goal does not describe the way. Unlike in BALROG, some of these games can be solved in 20 steps.

    {spaces}

    ## Rewards

    The change of the score: 1 for the right thing, else 0.

    ## Starting State

    {starting_state}

    With ``level`` 21 or more TextWorld takes 5 to 30 seconds of a core to make a game, and with 30 sometimes longer, as it searches
    for a quest.

    ## Episode End

    Terminated when the right thing is taken (``info["success"]``) or the wrong one (``info["failure"]``); truncated after 50
    steps. At the registered parameters the expert needs 6.

    {last_sections}
    """

    challenge = "tw-treasure_hunter"
    game_spec = TREASURE_HUNTER_SPEC
    most_actions = 40
    most_actions_ever = 100
    parameters: ClassVar[Parameters] = {"level": Range("level", 1, 30, 15, "TextWorld's level of difficulty")}
    presets: ClassVar[Mapping[str, Mapping[str, int | bool]]] = {"balrog": {"level": 30}}
