"""Sokoban in characters or in words."""

from __future__ import annotations

from functools import cache
from typing import Literal, Self

import numpy as np
from gymnasium import spaces

from gym_text.errors import check_choice
from gym_text.screen import draw_caption
from gym_text.sokoban.describe import SIGNS, around, draw, grid, words
from gym_text.sokoban.expert import solve
from gym_text.sokoban.levels import SIZES, Level, Size, make_level
from gym_text.sokoban.rooms import MOVES
from gym_text.spaces import ActionNames, FreeText
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import Expert, Fold, Outcome, TextEnv

View = Literal["grid", "words"]

_MAX_TEXT = 1024
"""Most characters of a text; the longest, a large room in words, has fewer than 700."""
_GOAL = "Push every box onto a goal. You can push one box at a time, and pull none."
_LEGEND = ", ".join(f"{sign} {meaning}" for sign, meaning in SIGNS.items())
_GOALS = {"grid": f"{_GOAL} In the drawing: {_LEGEND}.", "words": _GOAL}
_TEXTS = {"grid": grid, "words": words}
_MEANINGS = {
    "grid": "a drawing of the room, a character for each cell",
    "words": "where you, the boxes, the goals and the floor are; rows count from the top, columns from the left",
}


@cache
def _spec(view: View) -> TextSpec:
    """Return the spec of an environment with this view."""
    return TextSpec(
        goal=_GOALS[view],
        fields={
            "text": Field(f"{_MEANINGS[view]}; and what lies beside you"),
            "goal": Field("the task"),
            "valid_actions": Field("the moves that change something now, sorted", is_list=True),
        },
        actions=tuple(
            Action(name, f"take one step {name.removeprefix('move ')}; a box there is pushed, if beyond it is neither wall nor box")
            for name in MOVES
        ),
        encoding="discrete",
        reward="The change in the share of boxes on goals: 1 in all when every box is on a goal.",
    )


class SokobanEnv(TextEnv):
    """Sokoban: push every box onto a goal, in rooms that are made from a seed.

    ## Description

    The player walks in a room and pushes boxes, one at a time; it cannot pull. A wrong push cannot always be undone: a box in a
    corner stays there. So the player has to look ahead.

    Rooms and levels are made by reverse play: see `gym_text.sokoban.levels`. No level is that of a collection.

    ## Action Space

    `Discrete(4)`: 0 move up, 1 move down, 2 move left, 3 move right. A move into a wall, or against a box that cannot move, has no
    effect and costs a step; ``info["action_was_valid"]`` is then False.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | the whole state, and in the last line what lies in each direction beside the player |
    | `goal` | `Text` | the task |
    | `valid_actions` | `Sequence(Text)` | a sorted tuple of the moves that change something now |

    With ``view="grid"`` the state is in characters, with spaces between: ``#`` wall, ``-`` floor, ``.`` goal, ``$`` box, ``*`` box
    on a goal, ``@`` player, ``+`` player on a goal. With ``view="words"`` sentences say the same: the row and column of the player,
    of each box and goal, with their steps from the player, and the columns of each row that have floor.

    ## Rewards

    The change in the share of boxes on goals: with two boxes 0.5 for a push onto a goal, and -0.5 for one off a goal. The return is
    the share at the end, which is 1 when the task is done.

    ## Starting State

    No box is on a goal. The seed and the size determine room, goals, boxes and the player's place.

    | size | cells with the walls | boxes | least sum of the boxes' distances to goals, in pushes |
    |---|---|---|---|
    | small | 7 x 7 | 1 | 3 |
    | medium | 8 x 8 | 2 | 6 |
    | large | 10 x 10 | 3 | 10 |

    No level of a fold is a level of another fold, not even turned, mirrored or with the player elsewhere. Within a fold, two
    seeds seldom give the same level: of 1,000 small levels of the test fold, 983 are different.

    ## Episode End

    Terminated when each goal has a box (``info["success"]``), or when it is plain that no moves can do that (``info["failure"]``):
    no assignment brings each box to a goal of its own, each box looked at alone (as for a box in a corner without a goal, or two
    boxes along a wall with one goal); or boxes that block each other for ever, one of them on no goal. A failure is always true.
    Other positions that are lost are not recognised, and go on. Truncated after 120 steps.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `size` | small, medium, large | medium | the size of the room, and the number of boxes |
    | `view` | grid, words | grid | the state in characters or in words |
    | `fold` | None, train, dev, test | None | None keeps the seed; a fold shifts it into a range that begins at 1, 2 or 3 million |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or a picture of the room; for human in a window |

    ## Info

    The expert is a search, A* over pushes (`gym_text.sokoban.expert.solve`). `gold_path` needs as few pushes as possible, with a
    shortest walk before each; its number of moves need not be the least. With ``expert="replan"`` the expert makes a new plan
    whenever the player leaves its plan. It finds one in every position that can still be won; in others `gold_action` is left out.
    It was counted (``benchmarks/results/sokoban.md``): the expert wins all of 1,000 levels of each size, in at most 76 moves at
    the registered size and 108 in large rooms.

    ## Version History

    * v0: first version.
    """

    def __init__(
        self,
        *,
        size: Size = "medium",
        view: View = "grid",
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        check_choice("size", size, SIZES)
        check_choice("view", view, _TEXTS)
        self.size, self.view = size, view
        self.text_spec = _spec(view)
        self.action_space = spaces.Discrete(len(MOVES))
        self.observation_space = spaces.Dict(
            {"text": FreeText(_MAX_TEXT), "goal": FreeText(_MAX_TEXT), "valid_actions": ActionNames()}
        )
        self._level: Level | None = None
        self._boxes = self._player = 0
        self._is_hopeless = False

    def _start(self, seed: int) -> Observation:
        self._level = level = make_level(self.size, seed)
        self._boxes, self._player = level.boxes, level.player
        self._is_hopeless = False
        return self._observation()

    def _play(self, action: int) -> Outcome:
        assert self._level is not None
        room, before = self._level.room, self._share()
        moved = room.moved(self._boxes, self._player, room.steps[action])
        self._boxes, self._player = moved or (self._boxes, self._player)
        success, failure = self._boxes == room.goals, room.is_lost(self._boxes)
        return Outcome(
            self._observation(),
            self._share() - before,
            success or failure,
            success=success,
            failure=failure,
            action_was_valid=moved is not None,
        )

    def _share(self) -> float:
        """Return the share of boxes on goals."""
        assert self._level is not None
        goals = self._level.room.goals
        return (self._boxes & goals).bit_count() / goals.bit_count()

    def _fork_game(self, twin: Self) -> bool:
        twin._level, twin._boxes, twin._player = self._level, self._boxes, self._player
        twin._is_hopeless = self._is_hopeless
        return True

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        level = make_level(self.size, seed)
        return solve(level.room, level.boxes, level.player)

    def _replan(self) -> tuple[str, ...] | None:
        assert self._level is not None
        plan = None if self._is_hopeless else solve(self._level.room, self._boxes, self._player)
        self._is_hopeless = not plan  # a lost position leads to lost ones only
        return plan

    def _observation(self) -> Observation:
        assert self._level is not None
        room, boxes, player = self._level.room, self._boxes, self._player
        valid = tuple(sorted(n for n, s in zip(MOVES, room.steps, strict=True) if room.moved(boxes, player, s)))
        text = f"{_TEXTS[self.view](room, boxes, player)}\n{around(room, boxes, player)}"
        return {"text": text, "goal": _GOALS[self.view], "valid_actions": valid}

    def _frame(self) -> np.ndarray:
        assert self._level is not None
        done = f"{(self._boxes & self._level.room.goals).bit_count()} of {self._boxes.bit_count()} boxes are on goals"
        return draw_caption(draw(self._level.room, self._boxes, self._player), done, self._caption())

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Return keys and their actions, for ``gymnasium.utils.play.play(env, wait_on_player=True)``: w, s, a, d."""
        return {(ord(key),): action for action, key in enumerate("wsad")}
