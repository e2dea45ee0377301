"""BabyAI on stock minigrid, in words."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from gym_text.babyai.describe import SCENERY, describe, look
from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.memory import Memory
from gym_text.screen import draw_caption
from gym_text.spaces import FreeText
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import Expert, Fold, Outcome, TextEnv

if TYPE_CHECKING:
    from gym_text.babyai.expert import Advisor
    from gym_text.babyai.levels import Task

_logger = logging.getLogger(__name__)
_MAX_TEXT = 4096
"""Most characters of a text: 49 cells of at most 60 fit."""
DEFAULT_LEVEL = "BabyAI-GoToLocal-v0"

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
    """BabyAI's levels and the five tasks of its published text form, with the agent's partial view as sentences.

    ## Description

    The agent carries out a mission in a small grammar of English ("put the red ball next to the green key") in a grid of one or
    more rooms. Levels and dynamics are minigrid's (https://minigrid.farama.org, Chevalier-Boisvert et al. 2019,
    https://arxiv.org/abs/1810.08272). The agent sees the 7 x 7 cells in front of it, not through walls or closed doors.

    With ``task`` the environment is one of the five tasks of BabyAI-Text (Carta et al. 2023, https://arxiv.org/abs/2302.02662; the
    BabyAI of BALROG, https://arxiv.org/abs/2411.13543) on stock minigrid. A seed gives the same level as in the publication; texts,
    rewards, limits and ends are also those of the publication. The prompt template ``balrog`` of `gym_text_policies` has the
    structure of BALROG's prompt. If you have the original words, put them into a template file and pass its path as ``strategy``::

        {% block system %}... Your goal is to {{ obs.goal }}. ...{% endblock %}
        {% block user %}{{ obs.text }}{% endblock %}

    ## Action Space

    `Discrete(6)`: 0 turn left, 1 turn right, 2 go forward, 3 pick up, 4 drop, 5 toggle. An action that has no effect costs
    a step. ``info["action_was_valid"]`` is always True.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | one line each: the carried object; walls ahead and beside, and objects in view, with steps to them |
    | `goal` | `Text` | the mission |

    ## Rewards

    1 - 0.9 x steps / limit when the mission is done, else 0.

    ## Starting State

    The level draws rooms, objects, agent and mission from the seed. A task has one room of 6 x 6 cells (`open`: two, with a locked
    door between them) with the objects of the mission and ``num_dists`` others. No mission of a task names a yellow box, a red key,
    a red door, a green ball or a grey door.

    ## Episode End

    Terminated when the mission is done (``info["success"]``) or can no longer be done (``info["failure"]``: the agent has opened
    or picked up a wrong object in a strict level, one with Debug in its name). Truncated at the level's own limit,
    on which the reward depends: 64 steps for goto and pickup, 128 for the other tasks.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `level` | any minigrid BabyAI id | None | the level; without level and task, BabyAI-GoToLocal-v0 |
    | `task` | goto, pickup, open, putnext, pick_up_seq_go_to | None | a task instead of a level |
    | `num_dists` | 0 to 16 | 0 | objects of a task besides those of its mission; beyond 12 a reset can take seconds |
    | `memory` | bool | False | the text ends with what the player did, and how often, where all looked the same |
    | `fold` | None, train, dev, test | None | None keeps the seed; a fold shifts it into a range that begins at 1, 2 or 3 million |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or minigrid's picture above the mission; for human in a window |

    ## Info

    `progression` is 1.0 after a reward greater than 0, else 0.0.

    At reset minigrid's bot plays the episode on a second game, and the names of its actions are `gold_path`; the key is left out if
    the bot does not win within the limit. With ``expert="replan"`` the bot follows the episode itself and gives `gold_action` in
    every state in which it finds a plan. The bot's budget is counted in steps and rounds of planning, so that the same seed gives
    the same advice. The bot wins all of 200 episodes of each task, and all of 20 episodes of each level with these exceptions:

    * KeyInBox: the bot wins none, as it opens no boxes, and the key is in a box.
    * OpenDoorsOrderN2Debug: 7, and OpenDoorsOrderN4Debug: 2. These are the episodes whose mission has one door. A mission with two
      doors cannot be won, as the strict check takes the first door for a wrong second door.
    * GoToImpUnlock: 18. In the other two episodes the key of the locked room lies in that room.
    * SynthS5R2: 19. In such small rooms the bot can spend more steps than the limit on moving things out of the way.

    ``python benchmarks/experts.py --part babyai`` counts the wins of each level (``benchmarks/results/babyai_experts.md``).

    ## Version History

    * v0: first version, on minigrid 3.2.0.
    """

    def __init__(
        self,
        *,
        level: str | None = None,
        task: Task | None = None,
        num_dists: int = 0,
        memory: bool = False,
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        import_extra("minigrid", "babyai")
        _silence_minigrid()
        self._make_game = _game_maker(level, task, num_dists)
        self.text_spec = BABYAI_SPEC
        self.action_space = spaces.Discrete(len(self.text_spec.actions))
        self.observation_space = spaces.Dict({"text": FreeText(_MAX_TEXT), "goal": FreeText(_MAX_TEXT)})
        self._memory = Memory() if memory else None
        self._twin: Any = None
        self._advisor: Advisor | None = None
        self._last_action: int | None = None
        self._rewarded = False

    @cached_property
    def _game(self) -> Any:
        return self._make_game()

    def _start(self, seed: int) -> Observation:
        self._game.reset(seed=seed)
        self._advisor = _advisor(self._game) if self.expert == "replan" else None
        self._last_action, self._rewarded, self._memory = None, False, self._memory and Memory()
        return self._observation()

    def _play(self, action: int) -> Outcome:
        if self._memory:
            self._memory.note(BABYAI_SPEC.actions[action].name)
        _, reward, terminated, truncated, _ = self._game.step(action)
        self._last_action = action
        self._rewarded = self._rewarded or reward > 0
        success = bool(terminated and reward > 0)
        return Outcome(
            self._observation(),
            float(reward),
            bool(terminated),
            bool(truncated),
            success=success,
            failure=bool(terminated and not success),
        )

    def _fork_game(self, twin: Self) -> bool:
        shared: dict[int, Any] = {}  # what no step changes; without it a copy takes three times as long
        for value in (*vars(self._game).values(), *self._game.grid.grid):
            if isinstance(value, spaces.Space | np.random.Generator | EnvSpec) or getattr(value, "type", None) in SCENERY:
                shared[id(value)] = value
        twin._game = copy.deepcopy(self._game, shared)
        if twin.expert == "replan":
            twin._advisor = copy.deepcopy(self._advisor, shared)
        twin._last_action, twin._rewarded, twin._memory = self._last_action, self._rewarded, copy.deepcopy(self._memory)
        return True

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        self._twin = game = self._twin or self._make_game()
        game.reset(seed=seed)
        advisor, action, path = _advisor(game), None, []
        for _ in range(game.max_steps):
            action = advisor.advise(action)
            if action is None:
                return None
            path.append(BABYAI_SPEC.actions[action].name)
            _, reward, terminated, _, _ = game.step(action)
            if terminated:
                return tuple(path) if reward > 0 else None
        return None

    def _hint(self) -> str | None:
        action = self._advisor.advise(self._last_action) if self._advisor else None
        return None if action is None else BABYAI_SPEC.actions[action].name

    def _more_info(self) -> dict[str, Any]:
        return {"progression": float(self._rewarded)}

    def _observation(self) -> Observation:
        text = describe(look(self._game), self._game.carrying)
        return {"text": self._memory.told(text, text) if self._memory else text, "goal": self._game.mission}

    def _frame(self) -> np.ndarray:
        return draw_caption(np.asarray(self._game.get_frame()), self._game.mission, self._caption())

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Return keys and their actions, for ``gymnasium.utils.play.play(env, wait_on_player=True)``.

        The keys are those of minigrid's own manual control: arrows, Tab to pick up, left Shift to drop, Space to toggle.
        """
        pygame = import_extra("pygame", "babyai")
        keys = (pygame.K_LEFT, pygame.K_RIGHT, pygame.K_UP, pygame.K_TAB, pygame.K_LSHIFT, pygame.K_SPACE)
        return {(key,): action for action, key in enumerate(keys)}


def _game_maker(level: str | None, task: Task | None, num_dists: int) -> Callable[[], Any]:
    """Return a function that makes a game of the level or task."""
    from gym_text.babyai.levels import MOST_DISTS, TASKS, TaskLevel

    num_dists = check_int("num_dists", num_dists, 0, MOST_DISTS)
    if task is None:
        if num_dists:
            raise UsageError(f"num_dists: expected 0, as each level has its own number; got {num_dists}. Pass a task with it.")
        level = DEFAULT_LEVEL if level is None else level
        if not (isinstance(level, str) and level.startswith("BabyAI-") and level in gym.registry):
            check_choice("level", level, sorted(name for name in gym.registry if name.startswith("BabyAI-")))
        return partial(_without_pictures, lambda: gym.make(level, disable_env_checker=True).unwrapped)
    check_choice("task", task, TASKS)
    if level is not None:
        raise UsageError(f"level: expected None, as task={task!r} has its own; got {level!r}. Pass one of the two.")
    return partial(_without_pictures, partial(TaskLevel, task, num_dists))


def _without_pictures(make: Callable[[], Any]) -> Any:
    """Make a game of minigrid whose `reset` and `step` do not encode an observation."""
    game = make()
    game.gen_obs = dict
    return game


def _advisor(game: Any) -> Advisor:
    from gym_text.babyai.expert import Advisor

    return Advisor(game)


def _silence_minigrid() -> None:
    """Send the prints of minigrid's level generator to our log, in the whole process; no other output is touched."""
    from minigrid.envs.babyai.core import roomgrid_level

    def log(*words: object) -> None:
        _logger.debug("minigrid: %s", " ".join(map(str, words)))

    roomgrid_level.print = log  # type: ignore[attr-defined]
