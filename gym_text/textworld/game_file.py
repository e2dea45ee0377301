"""Any game file that TextWorld has made; without a file, TextWorld's simple game."""

from __future__ import annotations

from pathlib import Path

from gym_text.errors import UsageError, check_choice, check_int
from gym_text.folds import FOLD_SIZE, FOLDS, Fold, fold_seed
from gym_text.hints import Expert
from gym_text.index_actions import GAME_FIELDS, Actions
from gym_text.spec import TextSpec
from gym_text.textworld.cooking import COOKING_SPEC
from gym_text.textworld.env import UNLOCK, TextWorldEnv, textworld_page
from gym_text.textworld.level_files import Levels
from gym_text.textworld.session import check_game_file

GAME_FILE_SPEC = TextSpec(
    goal="Do what the goal of the game says.",
    fields=GAME_FIELDS,
    actions=(*COOKING_SPEC.actions[:-4], *UNLOCK, *COOKING_SPEC.actions[-2:]),
    encoding="text",
    reward="The change of the game's score, which is 1 when everything is done that gives points.",
)
_SIMPLE = Levels("tw-simple", {"rewards": "dense", "goal": "brief", "test": False})
_MOST_ACTIONS = 200


class GameFileEnv(TextWorldEnv):
    """Play any game file that TextWorld has made; without a file, TextWorld's simple game.

    ## Description

    With ``file`` every seed plays the game of that file, and there are no folds. Without ``file`` the game is TextWorld's simple
    game (``tw-make tw-simple --rewards dense --goal brief``): in a house of 6 rooms with locked doors the player has to find some
    food and put it on the stove. The simple game has a level for each seed and three folds, as the other games.

    {spaces}

    ## Rewards

    The change of the score, 0 to 1, which is the share of the game's points.

    ## Starting State

    The game begins as its file says. Without a file, seed s plays level ``s % num_levels`` of the fold; level i of train
    is TextWorld's seed 1,000,000 + i, of dev 2,000,000 + i, of test 3,000,000 + i, made at its first use and kept
    (``GYM_TEXT_GAMES`` names the folder).

    ## Episode End

    Terminated when the game is won (``info["success"]``) or lost (``info["failure"]``); truncated after 100 steps. In the simple
    game the expert needs 8 to 12.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `file` | a path | None | a story file, ``.z8``, with its ``.json`` beside it; None: the simple game |
    | `num_levels` | 1 to 1000000 | 1000 | levels in a fold of the simple game |
    | `actions` | text, index | text | the action space |
    | `fold` | None, train, dev, test | None | the set of levels; None means train; with `file` only None |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array, human | None | text, a picture of texts and valid actions, or that picture in a window |

    ## Info

    {info}

    ## Version History

    * v0: first version, on textworld 1.7.0.
    """

    __doc__ = textworld_page(__doc__, f"{_MOST_ACTIONS}")

    def __init__(
        self,
        *,
        file: str | None = None,
        num_levels: int = 1000,
        actions: Actions = "text",
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        self.file = None if file is None else check_game_file(file)
        if fold is not None:
            check_choice("fold", fold, FOLDS)
            if file is not None:
                raise UsageError(f"fold: expected None, as a file is one level; got {fold!r}.")
        self.levels = None if self.file else _SIMPLE
        self.num_levels = check_int("num_levels", num_levels, 1, FOLD_SIZE)
        super().__init__(GAME_FILE_SPEC, _MOST_ACTIONS, actions=actions, fold=fold, expert=expert, render_mode=render_mode)

    @property
    def fold_size(self) -> int:
        """Levels in a fold: 1 with ``file``, else ``num_levels``."""
        return 1 if self.file else self.num_levels

    def _level_seed(self, seed: int) -> int:
        return 0 if self.file else fold_seed(self.fold or "train", seed % self.num_levels)

    def level_file(self, seed: int) -> Path:
        """Return ``file``, which is the only level; without ``file``, the story file of a level of the simple game."""
        return self.file or super().level_file(seed)
