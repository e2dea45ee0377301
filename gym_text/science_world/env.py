"""ScienceWorld: experiments of elementary school in a house with a greenhouse, a foundry and a workshop."""

from __future__ import annotations

import functools
from typing import Any, Literal, Self

from gym_text.errors import UsageError, check_choice
from gym_text.index_actions import Actions, game_space
from gym_text.java_games import JavaGameEnv
from gym_text.science_world.actions import MOST
from gym_text.science_world.engine import ScienceWorldGame, ScienceWorldState, check_installed
from gym_text.science_world.expert import plan_from, solution
from gym_text.science_world.tasks import (
    SIMPLIFICATIONS,
    is_electrical,
    level_number,
    simplifications_of,
    task_and_variation,
    tasks_of,
)
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import Expert, Fold, Outcome

ValidActions = Literal["considered", "all"]

_MAX_TEXT = 32768
"""Most characters of a text."""
_MAX_NAME = 512
"""Most characters of an action, as the name of a container can name its contents."""
_REFUSED = ("No known action matches that input.", "Unknown action.", "ERROR: ")
"""Beginnings of the engine's answers to actions that it does not understand."""

SCIENCE_WORLD_SPEC = TextSpec(
    goal=(
        "Do the experiment or the search that the task describes. Focus on a thing only if the task says so: "
        "to focus on a wrong one, or too early, loses."
    ),
    fields={
        "text": Field("what the game answers to the last action"),
        "goal": Field("the task of this episode"),
        "look": Field("what the present place looks like"),
        "inventory": Field("what you carry"),
        "valid_actions": Field("actions that the game accepts now", is_list=True),
    },
    actions=(
        Action("look around", "describe the present place"),
        Action("inventory", "list what you carry"),
        Action("task", "read the task again"),
        Action("go to {place}", "walk to a place whose door is open"),
        Action("open {thing}", "open a door or a container; close closes it"),
        Action("pick up {thing}", "carry a thing; put down puts it down"),
        Action("focus on {thing}", "tell the game that this is the thing which the task asks for"),
        Action("look at {thing}", "describe a thing; look in describes what is in it"),
        Action("activate {thing}", "turn a device on; deactivate turns it off"),
        Action("use {thing} on {thing}", "use a tool, such as a thermometer, on a thing"),
        Action("move {thing} to {thing}", "put a thing into or onto another"),
        Action("pour {thing} into {thing}", "pour a liquid, or what is in a container; dunk dips a container into a liquid"),
        Action("mix {thing}", "mix what is in a container"),
        Action("connect {end} to {end}", "connect a wire's end to another thing's; disconnect undoes it"),
        Action("eat {thing}", "eat; also read and flush"),
        Action("wait", "let ten moments pass; wait1 is one"),
        Action("{number}", "answer the game's question which of several was meant"),
    ),
    encoding="text",
    reward="Each subgoal raises the score, up to 1; a task that is lost sets it to 0.",
)


class ScienceWorldEnv(JavaGameEnv):
    """Do an experiment of elementary school: ScienceWorld.

    ## Description

    Ten places with some 200 things, a physics of heat, electricity, plants, animals and chemistry, and 30 tasks in 7,207
    variations, by Wang, Jansen, Côté and Ammanabrolu (https://arxiv.org/abs/2203.07540). The engine runs inside this process.
    Unlike with the official client, an episode depends on its task, variation and actions alone: see
    `gym_text.science_world.engine_classes`.

    ## Action Space

    `Text`: any string is a legal action. The game understands those in ``obs["valid_actions"]`` and many more. An action that
    the game does not understand costs a step but no time in the game, and sets ``info["action_was_valid"]`` to False.

    With ``actions="index"``: `Discrete(300)`, the index in ``obs["valid_actions"]``; an index beyond the list is an invalid action.
    ``info["action_mask"]`` (`np.int8`) and `action_masks` (`bool`) say which indices are valid.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | the game's answer to the last action, unchanged |
    | `goal` | `Text` | the task |
    | `look` | `Text` | what the present place looks like |
    | `inventory` | `Text` | what the agent carries |
    | `valid_actions` | `Sequence(Text)` | a sorted tuple, at most 300 |

    `valid_actions` has the possible actions on one thing in reach, on a carried thing and another, and on two other things. While
    the game asks which of several things was meant, the list has the numbers that answer. With ``valid_actions="all"`` it is the
    engine's whole list, some 1,600 actions.

    ## Rewards

    The change of the game's score, which is from 0 to 1. A lost task sets the score to 0.

    ## Starting State

    Seed s plays variation ``variations[s % len]`` of the official fold of the task. The folds have no variation in common; tasks
    have 10 to 1,386 variations, half of them in train. With ``task="all"`` the first 30 seeds play the first variation of each task
    in the order of `gym_text.science_world.tasks.TASKS`, the next ones the second, and so on; a task without more variations is
    left out. The fold test has 1,819 levels then.

    ## Episode End

    Terminated when the task is done (``info["success"]``) or lost (``info["failure"]``, a negative score in the official client);
    truncated after 1000 steps.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `task` | a name or number: ``boil`` or ``1-1``; all | find-living-thing | the task |
    | `simplifications` | names with commas between, or easy | None | what makes the task easier: `gym_text.science_world.tasks` |
    | `valid_actions` | considered, all | considered | the list in the observation |
    | `actions` | text, index | text | the action space |
    | `fold` | train, dev, test | train | the set of variations |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or a picture of texts and valid actions; for human in a window |

    ## Info

    `gold_path` is the engine's own solution in the words of ``obs["valid_actions"]``. The environment plays this path on
    a second game first, and leaves it out if it does not win. The list of valid actions does not depend on the solution, so a step
    may be missing in the list, above all where more than 300 actions are possible. As a text such a step is still possible; with
    ``actions="index"`` it is not, and the path is left out. With ``expert="replan"`` there is a plan after the agent has left the
    path: the way back and the rest of the path. The environment keeps this plan only if it wins on a second game. `gold_steps` is
    the number of steps left in the path or plan.

    ## Version History

    * v0: first version, on scienceworld 1.2.3.
    """

    game_size = 11 * 2**20  # 8.4 to 10.8 MB were measured in five tasks

    def __init__(
        self,
        *,
        task: str = "find-living-thing",
        simplifications: str | None = None,
        valid_actions: ValidActions = "considered",
        actions: Actions = "text",
        fold: Fold = "train",
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        check_installed()
        check_choice("valid_actions", valid_actions, ("considered", "all"))
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self._tasks = tasks_of(task)
        self._task = self._tasks[0]  # of the running episode
        chosen = simplifications.split(",") if simplifications else []
        for name in chosen:
            check_choice("simplifications", name, SIMPLIFICATIONS)
        if "easy" in chosen and len(chosen) > 1:
            raise UsageError(f"simplifications: expected 'easy' alone, or others without it; got {simplifications!r}.")
        electrical = next(filter(is_electrical, self._tasks), None)
        if "noElectricalAction" in chosen and electrical:
            raise UsageError(
                f"simplifications: expected others for {electrical!r}, which needs electricity; got 'noElectricalAction'."
            )
        if valid_actions == "all" and actions == "index":
            raise UsageError("actions: expected 'text' with valid_actions='all', whose list has no bound; got 'index'.")
        self._chosen, self._lists_all = ",".join(chosen), valid_actions == "all"
        self._set_actions(SCIENCE_WORLD_SPEC, actions, MOST)
        self.observation_space = game_space(_MAX_TEXT, _MAX_NAME)
        self._game: ScienceWorldGame | None = None
        self._twin: ScienceWorldGame | None = None
        self._variation = 0
        self._goal = ""
        self._score = 0.0
        self._left: tuple[tuple[str, ...], str] | None = None  # when the agent last left a path or plan: its rest, and the place
        self._played: tuple[str, ...] = ()

    @functools.cached_property
    def _levels(self) -> tuple[int, ...]:
        return self._present_game().variations(self._fold) if len(self._tasks) == 1 else _levels_of_all_tasks(self._fold)

    @property
    def _simplifications(self) -> str:
        return simplifications_of(self._task, self._chosen)

    def _load(self, level: int) -> None:
        """Make the task and the variation of a level the present ones."""
        task, self._variation = task_and_variation(level) if len(self._tasks) > 1 else (self._task, level)
        if task != self._task:
            self._task, self._game, self._twin = task, None, None

    def _start(self, seed: int) -> Observation:
        self._load(seed)
        self._score, self._played, self._left = 0.0, (), None
        game = self._present_game()
        state = game.start(self._variation)
        self._goal = game.goal()
        return self._observation(state)

    def _play(self, action: Any) -> Outcome:
        game, command = self._present_game(), self._command(action)
        if self.expert == "replan" and self._rest and command != self._rest[0]:
            self._left = self._rest, game.place()
        state = game.step(command)
        self._played += (command,)
        lost, won = state.score < 0, state.is_over and state.score >= 1
        score = max(state.score, 0.0)
        reward, self._score = score - self._score, score
        return Outcome(
            self._observation(state),
            reward,
            terminated=state.is_over,
            success=won,
            failure=lost,
            action_was_valid=not state.observation.startswith(_REFUSED),
        )

    def _fork_game(self, twin: Self) -> bool:
        twin._game = self._present_game().fork(self._played)
        twin._task, twin._variation, twin._goal, twin._score = self._task, self._variation, self._goal, self._score
        twin._valid, twin._played, twin._left = self._valid, self._played, self._left
        return True

    def _observation(self, state: ScienceWorldState) -> Observation:
        game = self._present_game()
        self._valid = game.all_actions() if self._lists_all else game.considered_actions()
        return {
            "text": state.observation,
            "goal": self._goal,
            "look": state.look,
            "inventory": state.inventory,
            "valid_actions": self._valid,
        }

    def _present_game(self) -> ScienceWorldGame:
        if self._game is None:
            self._game = ScienceWorldGame(self._task, self._simplifications)
        return self._game

    def close(self) -> None:
        """Release the games; the JVM serves other environments and ends with the process."""
        self._game = self._twin = None
        self._valid = ()
        super().close()

    # ---------------------------------------------------------------- the expert

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        self._load(seed)
        gold = solution(self._task, self._simplifications, self._variation)
        if gold is None or (self._by_index and not gold.is_listed):
            return None  # an index stands for a listed action only
        return gold.path

    def _replan(self) -> tuple[str, ...] | None:
        if self._left is None:
            return None
        self._twin = self._twin or ScienceWorldGame(self._task, self._simplifications)
        return plan_from(self._twin, self._variation, self._played, *self._left)


@functools.cache
def _levels_of_all_tasks(fold: Fold) -> tuple[int, ...]:
    """Return the levels of all tasks in a fold: the first variation of each task, then the second of each, and so on."""
    known = {task: ScienceWorldGame(task, "").variations(fold) for task in tasks_of("all")}
    most = max(map(len, known.values()))
    return tuple(level_number(task, known[task][n]) for n in range(most) for task in known if n < len(known[task]))
