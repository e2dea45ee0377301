"""TextWorldExpress's games as Gymnasium environments: their base class, and what their specs share.

The engine is Jansen and Côté's TextWorldExpress (https://arxiv.org/abs/2208.01174). The games are in
`house_games` and `puzzle_games`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any, ClassVar, Self

from gym_text.errors import check_bool
from gym_text.index_actions import Actions, game_space
from gym_text.java_games import JavaGameEnv
from gym_text.memory import Memory
from gym_text.parameters import INDEX_ACTIONS, GameWithParameters
from gym_text.spec import Action, Observation
from gym_text.text_env import Expert, Fold, Outcome
from gym_text.textworld_express.engine import ExpressGame, ExpressState, check_installed
from gym_text.textworld_express.modules import Modules
from gym_text.textworld_express.planner import Plan, Planner, PlannerConfig, Situation

_MAX_TEXT = 32768
"""Most characters of a text; the longest, 1,000 commands of Simon Says to be memorised, has about 16,000."""
INSPECT = (Action("look around", "describe the present room"), Action("inventory", "list what you carry"))
PUT = Action("put {thing} in {container}", "put down a thing")
PUT_AWAY = (PUT, Action("open {container}", "open a container"), Action("close {container}", "close a container"))
WALK = (
    Action("open door to {direction}", "open a door"),
    Action("close door to {direction}", "close a door"),
    Action("move {direction}", "walk to the next room"),
)

_TEXTS = {
    "engine": "textworld-express 1.1.0",
    "action_space": f"""\
`Text`: any string is a legal action. The game understands those in ``obs["valid_actions"]``; it answers any other
with "Unknown action", which costs a step and sets ``info["action_was_valid"]`` to False.

{INDEX_ACTIONS} n is the largest number of valid actions that
was measured: {{n}}.""",
    "text": "the game's answer to the last action, unchanged",
    "goal": "the task",
    "starting_state": """\
Seed s plays level ``seeds[s % 1000]`` of the fold: train has the engine's seeds 0 to 999, dev 10000 to 10999, test 20000
to 20999. No level of one fold is a level of another.""",
    "info": """\
`gold_path` is the solution of the engine's gold agent, without the steps that are not valid when it is replayed at reset. If the
replay does not win, the key is left out. With ``expert="replan"`` the expert makes a new plan on a second game whenever the agent
has left the path, and keeps the plan only if it wins when replayed. `gold_steps` is the number of steps in the plan that begins
with `gold_action`.""",
}


class TextWorldExpressEnv(GameWithParameters, JavaGameEnv):
    """Base class of the games. A plan of the engine's expert is used only if it wins when it is replayed.

    Args:
        actions: ``text``: an action is its name. ``index``: an action is its index in ``obs["valid_actions"]``.
        fold: The set of levels.
        expert: The hints in ``info``.
        render_mode: ``ansi``, ``rgb_array`` or None.
        modules: Names of symbolic modules with commas between them, such as calculator; see `modules`. None by default.
        memory: Whether ``text`` also has what was read, and what was done before where place and things carried were the same.
        parameters: The game's parameters.

    Raises:
        UsageError: If an argument is unknown, or its value is not one that the table `parameters` allows.
    """

    texts = _TEXTS
    argument_rows: ClassVar[tuple[str, ...]] = (
        "| `modules` | calculator, sorter, navigator, knowledge; several with commas between | none | symbolic modules to ask |",
        "| `memory` | bool | False | `text` also has what was read, and what was done where `look` and `inventory` were as now |",
    )
    game: ClassVar[str]
    """The engine's name for the game."""
    game_size = 2**20  # at most 0.25 MB were measured
    fixed_parameters: ClassVar[dict[str, int]] = {}
    """The engine's parameters that a user cannot set, as they define the game."""
    planner_config: ClassVar[PlannerConfig] = PlannerConfig()

    def __init__(
        self,
        *,
        actions: Actions = "text",
        fold: Fold = "train",
        expert: Expert = "path",
        render_mode: str | None = None,
        modules: str = "",
        memory: bool = False,
        **parameters: int | bool,
    ) -> None:
        check_installed()
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        values = self.read_parameters(parameters)
        self.game_parameters = {name: int(value) for name, value in self.engine_parameters(values).items()} | self.fixed_parameters
        self._new_modules = functools.partial(Modules, modules)
        self._modules = self._new_modules() if modules else None
        self._memory = Memory() if check_bool("memory", memory) else None
        spec, calls = self.game_spec, 0
        if self._modules:
            spec = dataclasses.replace(spec, actions=(*spec.actions, *self._modules.actions))
            calls = self._modules.most_calls
        self._set_actions(spec, actions, self.index_size(values) + calls)
        self.observation_space = game_space(_MAX_TEXT)
        self._game: ExpressGame | None = None
        self._level = 0
        self._commands: list[str] = []
        self._goal = ""
        self._engine_score = 0.0
        self._new_game = functools.partial(ExpressGame, self.game, self.game_parameters)
        self._planner = Planner(self.planner_config, fold, self._new_game)
        self._planned: Plan | None = None
        self._situation: Situation | None = None  # with expert="replan" only

    # ---------------------------------------------------------------- the game

    @functools.cached_property
    def _levels(self) -> tuple[int, ...]:
        return self._engine().seeds(self._fold)

    def _start(self, seed: int) -> Observation:
        game, self._valid, self._commands = self._engine(), (), []
        state = game.start(seed, self._fold)
        self._level, self._goal = seed, game.task()
        self._engine_score = 0.0
        self._modules, self._memory = self._modules and self._new_modules(), self._memory and Memory()
        if self.expert == "replan":
            self._situation = Situation(seed, self._planned or (), state.look, state.valid_actions)
        return self._observation(state)

    def _play(self, action: Any) -> Outcome:
        command = self._command(action)
        if self._modules and (answered := self._modules.answer(command.strip())):
            return Outcome(answered, 0.0, terminated=False)
        state = self._engine().step(command)
        if self._memory:
            self._memory.note(command)
            if command.startswith("read "):
                self._memory.read = state.observation
        self._commands.append(command)
        was_valid = command.strip() in self._valid  # stripped, as the engine reads it
        reward, self._engine_score = state.score - self._engine_score, state.score
        if self._situation is not None:
            self._situation = self._situation.after(command, state, self.planner_config)
        return Outcome(
            self._observation(state),
            reward,
            terminated=state.success or state.failure or state.score >= 1.0,
            success=state.success,
            failure=state.failure,
            action_was_valid=was_valid,
        )

    def _fork_game(self, twin: Self) -> bool:
        twin._engine().replay(self._level, self._fold, self._commands)
        twin._level, twin._commands, twin._goal = self._level, self._commands.copy(), self._goal
        twin._engine_score, twin._valid = self._engine_score, self._valid
        twin._modules, twin._memory = copy.deepcopy((self._modules, self._memory))
        if twin.expert == "replan":
            twin._situation = self._situation
        return True

    def _engine(self) -> ExpressGame:
        if self._game is None:
            self._game = self._new_game()
        return self._game

    def _observation(self, state: ExpressState) -> Observation:
        obs = self._modules.see(self._of_game(state)) if self._modules else self._of_game(state)
        self._valid = obs["valid_actions"]
        return obs | {"text": self._memory.told(obs["text"], obs["look"] + obs["inventory"])} if self._memory else obs

    def _of_game(self, state: ExpressState) -> Observation:
        return {
            "text": state.observation,
            "goal": self._goal,
            "look": state.look,
            "inventory": state.inventory,
            "valid_actions": state.valid_actions,
        }

    def close(self) -> None:
        """Release the games; the JVM serves other environments and ends with the process."""
        self._game, self._valid = None, ()
        self._planner.close()
        super().close()

    # ---------------------------------------------------------------- the expert

    def _plan(self, seed: int) -> Plan | None:
        game = self._engine()
        self._planned = self._planner.gold_path(game, seed)
        if not self._modules or self._planned is None:
            return self._planned
        state = game.start(seed, self._fold)
        self._goal = game.task()
        modules = self._new_modules()
        modules.see(self._of_game(state))
        return self._with_calls(modules, self._planned, game)

    def _replan(self) -> Plan | None:
        assert self._situation is not None
        plan = self._planner.plan(self._situation)
        if not self._modules:
            return plan
        return self._with_calls(copy.deepcopy(self._modules), plan, self._planner.game_at(self._situation))

    def _with_calls(self, modules: Modules, plan: Plan, game: ExpressGame) -> Plan:
        """Play a plan in a game; return it with the calls of modules that help the expert."""
        return modules.with_calls(plan, lambda action: self._of_game(game.step(action)))
