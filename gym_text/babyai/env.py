"""BabyAI on stock minigrid, in words."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from gym_text.babyai.describe import describe_view
from gym_text.errors import check_choice, import_extra
from gym_text.spaces import FreeText
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import Expert, Fold, Outcome, TextEnv

_logger = logging.getLogger(__name__)
_MAX_TEXT = 4096
"""Bound of a text in characters; 49 cells of at most 60 fit."""
_PLANNING_STEPS = 1_000
"""Subgoals the bot may look at for one action; where it has a plan it looks at a few."""

BABYAI_SPEC = TextSpec(
    goal="Do what the mission says, in a grid of rooms of which you see the part in front of you.",
    fields={
        "text": Field("what you carry and see, each with its place in steps from where you stand"),
        "goal": Field("the mission of this episode"),
    },
    actions=(
        Action("turn left", "turn to the left"),
        Action("turn right", "turn to the right"),
        Action("go forward", "take one step forward, unless something is in the way"),
        Action("pick up", "pick up the object in front of you, if you carry nothing"),
        Action("drop", "put what you carry on the empty cell in front of you"),
        Action("toggle", "open or close the door, or open the box, in front of you"),
    ),
    encoding="discrete",
    reward="1 - 0.9 x steps / limit when the mission is done, else 0.",
)


class BabyAITextEnv(TextEnv):
    """Any BabyAI level of minigrid, with the agent's partial view as sentences.

    ## Description

    A mission in a small grammar of English ("put the red ball next to the green key") is to be done in a grid of one or more
    rooms. Levels and dynamics are minigrid's (https://minigrid.farama.org, Chevalier-Boisvert et al. 2019,
    https://arxiv.org/abs/1810.08272). The agent sees the 7 x 7 cells in front of it, not through walls or closed doors.

    ## Action Space

    `Discrete(6)`: 0 turn left, 1 turn right, 2 go forward, 3 pick up, 4 drop, 5 toggle. An action that has no effect costs
    a step. ``info["action_was_valid"]`` is always True.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | one line each: what is carried, the walls ahead and beside, the objects in view, with their place in steps |
    | `goal` | `Text` | the mission |

    ## Rewards

    1 - 0.9 x steps / limit when the mission is done, else 0.

    ## Starting State

    As the level generates it from the seed.

    ## Episode End

    Terminated when the mission is done (``info["success"]``) or can no longer be (``info["failure"]``: in the
    strict levels, those with Debug in their names, a wrong object was opened or picked up). Truncated at the level's own limit,
    on which the reward depends.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `level` | any minigrid BabyAI id | BabyAI-GoToLocal-v0 | the level |
    | `fold` | None, train, dev, test | None | None passes the seed on unchanged; the folds shift it to 1, 2, 3 million and up |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or minigrid's picture |

    ## Info

    `gold_path` is what minigrid's bot plays on a twin of the episode; it is left out should the bot not win within the limit.
    With ``expert="replan"`` the bot follows the episode itself and advises in every state until it finds no plan.

    ## Version History

    * v0: first version, on minigrid 3.2.0.
    """

    def __init__(
        self,
        *,
        level: str = "BabyAI-GoToLocal-v0",
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        import_extra("minigrid", "babyai")
        check_choice("level", level, sorted(name for name in gym.registry if name.startswith("BabyAI-")))
        _silence_minigrid()
        self.level = level
        self.text_spec = BABYAI_SPEC
        self.action_space = spaces.Discrete(len(BABYAI_SPEC.actions))
        self.observation_space = spaces.Dict({"text": FreeText(_MAX_TEXT), "goal": FreeText(_MAX_TEXT)})
        self._game = self._make_level()
        self._twin: Any = None
        self._bot: _Bot | None = None

    def _make_level(self) -> Any:
        return gym.make(self.level, disable_env_checker=True).unwrapped

    def _start(self, seed: int) -> Observation:
        self._game.reset(seed=seed)
        self._bot = _Bot(self._game) if self.expert == "replan" else None
        return self._observation()

    def _play(self, action: int) -> Outcome:
        _, reward, terminated, truncated, _ = self._game.step(action)
        if self._bot:
            self._bot.last_action = self._game.actions(action)
        success = bool(terminated and reward > 0)
        return Outcome(
            self._observation(),
            float(reward),
            bool(terminated),
            bool(truncated),
            success=success,
            failure=bool(terminated and not success),
        )

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        if self._twin is None:
            self._twin = self._make_level()
        self._twin.reset(seed=seed)
        bot, path = _Bot(self._twin), []
        for _ in range(self._twin.max_steps):
            action = bot.advise()
            if action is None:
                return None
            path.append(BABYAI_SPEC.actions[action].name)
            _, reward, terminated, _, _ = self._twin.step(action)
            if terminated:
                return tuple(path) if reward > 0 else None
        return None

    def _hint(self) -> str | None:
        action = self._bot.advise() if self._bot else None
        return None if action is None else BABYAI_SPEC.actions[action].name

    def _observation(self) -> Observation:
        grid, visible = self._game.gen_obs_grid()
        return {"text": describe_view(grid, visible, self._game.carrying), "goal": self._game.mission}

    def _frame(self) -> np.ndarray:
        return np.asarray(self._game.get_frame())

    def close(self) -> None:
        """Close the level."""
        self._game.close()
        super().close()


class _GaveUpError(Exception):
    """The bot looked at more subgoals than it may."""


class _BoundedStack(list[Any]):
    """The bot's stack of subgoals, which ends an endless loop of planning: the bot reads the top in each round."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        if self.reads > _PLANNING_STEPS:
            raise _GaveUpError
        return super().__getitem__(index)


class _Bot:
    """minigrid's bot on one episode, which says None where it fails.

    It fails by giving up, by an assertion of its own, or by planning for ever; after that it stays silent.
    """

    def __init__(self, game: Any) -> None:
        from minigrid.utils import baby_ai_bot

        make_bot: Any = baby_ai_bot.BabyAIBot

        self.last_action: Any = None
        self._done = game.actions.done
        self._bot: Any = None
        try:
            self._bot = make_bot(game)
            self._bot.stack = _BoundedStack(self._bot.stack)
        except Exception as error:
            self._give_up(error)

    def advise(self) -> int | None:
        """Return the bot's action for the present state of its game, to be asked once a step."""
        if self._bot is None:
            return None
        self._bot.stack.reads = 0
        try:
            action = self._bot.replan(self.last_action)
        except Exception as error:  # bare assertions, index errors and more: none of them is a plan
            self._give_up(error)
            return None
        return None if action == self._done else int(action)

    def _give_up(self, error: Exception) -> None:
        self._bot = None
        _logger.info("minigrid's bot found no plan: %r", error)


def _silence_minigrid() -> None:
    """Send the prints of minigrid's level generator to our log, in the whole process; no other output is touched."""
    from minigrid.envs.babyai.core import roomgrid_level

    def log(*words: object) -> None:
        _logger.debug("minigrid: %s", " ".join(map(str, words)))

    roomgrid_level.print = log  # type: ignore[attr-defined]
