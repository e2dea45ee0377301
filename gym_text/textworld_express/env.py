"""TextWorldExpress's games as Gymnasium environments: their base class, and what their specs share.

The engine is Jansen and Côté's TextWorldExpress (https://arxiv.org/abs/2208.01174). Each game has a file of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from gym_text.errors import UsageError, check_choice, check_options
from gym_text.folds import FOLDS, Fold
from gym_text.hints import Expert
from gym_text.index_actions import Actions, IndexActionsEnv, game_space
from gym_text.java.jvm import games_that_fit
from gym_text.parameters import Parameters, signature_of
from gym_text.spec import Action, Observation, TextSpec
from gym_text.text_env import Outcome
from gym_text.textworld_express.docstrings import docstring_of
from gym_text.textworld_express.engine import Game, State, check_installed
from gym_text.textworld_express.planner import Planner, PlannerConfig, Situation

_MAX_TEXT = 32768
"""Most characters of a text; the longest, 1,000 commands of Simon Says to be memorised, has about 16,000."""

_GAME_SIZE = 2**20
"""Bytes of Java's heap that a game takes; at most 0.25 MB were measured."""
LOOK_AROUND = Action("look around", "describe the present room")
INVENTORY = Action("inventory", "list what you carry")
PUT = Action("put {thing} in {container}", "put down a thing")
CONTAINERS = (Action("open {container}", "open a container"), Action("close {container}", "close a container"))
DOORS = (Action("open door to {direction}", "open a door"), Action("close door to {direction}", "close a door"))
MOVE = Action("move {direction}", "walk to the next room")


class TextWorldExpressEnv(IndexActionsEnv):
    """Base of the games: levels by fold, text in and text out, the engine's expert verified by replay.

    A subclass names the game, its spec, its parameters and how the planner plays it, and has the docstring of the environment.
    Its constructor takes its `parameters` beside the arguments below.

    Args:
        actions: ``text``: an action is its name. ``index``: an action is its place in ``obs["valid_actions"]``.
        fold: The set of levels.
        expert: The hints in ``info``.
        render_mode: ``ansi``, ``rgb_array``, ``human`` or None.
        parameters: The game's parameters.

    Raises:
        UsageError: If an argument is unknown, or its value is not one that the table `parameters` allows.
    """

    game: ClassVar[str]
    game_spec: ClassVar[TextSpec]
    most_actions: ClassVar[int]
    """Most valid actions measured at the registered parameters: the size of the index space there."""
    most_actions_ever: ClassVar[int]
    """Most valid actions measured at any parameters: the size of the index space at all others."""
    parameters: ClassVar[Parameters] = {}
    fixed_parameters: ClassVar[dict[str, int]] = {}
    """The engine's parameters that no user sets: they make the game what it is."""
    planner_config: ClassVar[PlannerConfig] = PlannerConfig()
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Fill in the docstring and the signature from what the games share and the table `parameters`."""
        super().__init_subclass__(**kwargs)
        shared = inspect.signature(TextWorldExpressEnv.__init__).parameters.values()
        cls.__signature__ = signature_of(cls.parameters, [p for p in shared if p.kind is p.KEYWORD_ONLY])
        cls.__doc__ = docstring_of(cls.__doc__ or "", cls.parameters, cls.most_actions, cls.most_actions_ever)

    def __init__(
        self,
        *,
        actions: Actions = "text",
        fold: Fold = "train",
        expert: Expert = "path",
        render_mode: str | None = None,
        **parameters: int | bool,
    ) -> None:
        check_installed()
        check_choice("fold", fold, FOLDS)
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self.game_parameters = self._read_parameters(parameters)
        self._set_actions(self.game_spec, actions, self._most_actions_here())
        self.observation_space = game_space(_MAX_TEXT)
        self._fold: Fold = fold
        self._game: Game | None = None
        self._seeds: tuple[int, ...] = ()
        self._level = 0
        self._goal = ""
        self._engine_score = 0.0
        self._new_game = functools.partial(Game, self.game, self.game_parameters)
        self._planner = Planner(self.planner_config, fold, self._new_game)
        self._planned: tuple[str, ...] | None = None
        self._situation: Situation | None = None  # with expert="replan" only

    def _read_parameters(self, given: Mapping[str, object]) -> dict[str, int]:
        """Return the engine's names and values of all parameters; raise `UsageError` for a wrong name or value."""
        check_options(type(self).__name__, given, inspect.signature(type(self)).parameters)
        own = {p.engine_name: p.check(name, given.get(name, p.default)) for name, p in self.parameters.items()}
        return own | self.fixed_parameters

    def _most_actions_here(self) -> int:
        """Return the size of the index space at this environment's parameters."""
        registered = all(self.game_parameters[p.engine_name] == p.default for p in self.parameters.values())
        return self.most_actions if registered else self.most_actions_ever

    # ---------------------------------------------------------------- the game

    @property
    def most_at_once(self) -> int:
        """How many games Java's heap has room for; one that plans anew has a twin."""
        return games_that_fit(_GAME_SIZE * (2 if self.expert == "replan" else 1))

    @property
    def fold_size(self) -> int:
        """Levels in the engine's fold."""
        return len(self._fold_seeds())

    def _fold_seeds(self) -> tuple[int, ...]:
        if not self._seeds:
            self._seeds = self._engine().seeds(self._fold)
        return self._seeds

    def _level_seed(self, seed: int) -> int:
        seeds = self._fold_seeds()
        return seeds[seed % len(seeds)]

    def _start(self, seed: int) -> Observation:
        game, self._valid = self._engine(), ()
        state = game.start(seed, self._fold)
        self._level, self._goal = seed, game.task()
        self._engine_score = 0.0
        if self.expert == "replan":
            self._situation = self._planner.begin(seed, self._planned or (), state)
        return self._observation(state)

    def _play(self, action: Any) -> Outcome:
        spoken = self._spoken(action)
        state = self._engine().step(spoken)
        was_valid = spoken.strip() in self._valid  # as the engine reads it
        reward, self._engine_score = state.score - self._engine_score, state.score
        if self._situation is not None:
            self._situation = self._planner.after(self._situation, spoken, state)
        return Outcome(
            self._observation(state),
            reward,
            terminated=state.success or state.failure or state.score >= 1.0,
            success=state.success,
            failure=state.failure,
            action_was_valid=was_valid,
        )

    def _engine(self) -> Game:
        if self._game is None:
            self._game = self._new_game()
        return self._game

    def _observation(self, state: State) -> Observation:
        self._valid = state.valid_actions
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

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        self._planned = self._planner.gold_path(self._engine(), seed)
        return self._planned

    def plan_steps(self, action: Any) -> float:
        """Return how many steps a win takes after an action, which is not played; infinite if the expert finds no plan.

        Steps that the expert's plan can win without do not count: it looks into what it passes, and closes what it has opened.

        Raises:
            UsageError: If the environment was not made with ``expert="replan"``.
            StepOrderError: Without a running episode.
            InvalidActionError: As `step`.
        """
        situation = self._running_situation("plan_steps")
        return self._planner.plan_steps(situation, self._spoken(self._checked_action(action)))

    def looks_further(self, action: Any) -> bool:
        """Return whether an action, which is not played, looks in a new place while a thing that the plan needs is unseen.

        Unseen means that no room has shown the thing in this episode. To look in a new place is to enter a room for the first
        time, or to open what was not opened before. The expert knows where things are and may go another way; that is no
        argument against the action.

        Raises:
            UsageError: If the environment was not made with ``expert="replan"``.
            StepOrderError: Without a running episode.
            InvalidActionError: As `step`.
        """
        situation = self._running_situation("looks_further")
        return self._planner.looks_further(situation, self._spoken(self._checked_action(action)))

    def _running_situation(self, caller: str) -> Situation:
        """Return the present situation, or raise the error of a method that needs a running episode with ``expert="replan"``."""
        if self.expert != "replan":
            raise UsageError(f"{caller}: expected an environment made with expert='replan'; this one has {self.expert!r}.")
        self._running_episode(caller)
        assert self._situation is not None
        return self._situation

    def _hint(self) -> str | None:
        assert self._situation is not None
        if not self._situation.plan:
            self._situation = dataclasses.replace(self._situation, plan=self._planner.plan(self._situation))
        return self._situation.plan[0] if self._situation.plan else None

    def _steps_left(self) -> int | None:
        return len(self._situation.plan) if self._situation is not None else super()._steps_left()
