"""`TextEnv`, the base class of our environments: seeds, folds, the expert's path, errors and pictures in one place."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Self

import gymnasium as gym
import numpy as np
from gymnasium import logger, spaces

from gym_text.errors import InvalidActionError, StepOrderError, UsageError, check_choice, check_int
from gym_text.pictures import Window, draw_page
from gym_text.spec import Observation, TextSpec

Expert = Literal["off", "path", "replan"]
Fold = Literal["train", "dev", "test"]
EXPERTS = ("off", "path", "replan")
FOLDS = ("train", "dev", "test")
MAX_SEED = 2**63 - 1
FOLD_SIZE = 1_000_000
"""Seeds of one fold; the folds begin at 1, 2 and 3 times this number and never meet."""

SHORT_LIMIT = "{}: the expert needs {} steps here, the limit is {}. Pass max_episode_steps={} or more to gym.make."
"""Warning that the expert cannot win within the step limit."""


class Outcome(NamedTuple):
    """What one action did to the game."""

    observation: Observation
    """The observation after the action."""
    reward: float
    """The reward of this step."""
    terminated: bool
    """Whether the game is over."""
    truncated: bool = False
    """Whether a limit of the game's own has ended the episode; Gymnasium's ``TimeLimit`` is added outside."""
    success: bool = False
    """Whether the task is done."""
    failure: bool = False
    """Whether the task can no longer be done."""
    action_was_valid: bool = True
    """Whether the game understood the action."""


class TextEnv(gym.Env[Observation, Any]):
    """A Gymnasium environment that a language model can play.

    A subclass sets `text_spec`, `observation_space` and `action_space` in its constructor and implements `_start`
    and `_play`; `_plan` and `_hint` if it has an expert; `_frame` if it has a picture. All other names with an underscore that are
    not described here are a subclass's own. This class keeps the contract:

    * ``obs`` is a dict with at least ``text`` (what the agent perceives now) and ``goal`` (this episode's task).
    * ``info`` has ``score``, ``success`` and ``failure``; after a step ``action_was_valid``; unless the expert is off,
      ``gold_path`` (at reset: the names of the expert's actions), ``gold_action`` (the name of its next action) and, if the expert
      has a whole plan, ``gold_steps`` (the number of steps left in it). A key without a value is left out.
    * `copy.deepcopy` and `pickle` make the environment anew with the same arguments, and play a running episode's actions again.
    * Actions have the type of `action_space`; `text_spec` translates to and from their names.

    Args:
        fold: None passes the seed on unchanged; ``train``, ``dev`` and ``test`` shift it into ranges that never meet.
        expert: ``off``: no hints. ``path``: ``gold_path``, and ``gold_action`` while the episode is on that path. ``replan``:
            ``gold_action`` also in every other state in which the expert finds a plan.
        render_mode: ``ansi`` for text, ``rgb_array`` for a picture, ``human`` for a window that follows the game, None for none.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 10}  # type: ignore[misc]
    text_spec: TextSpec
    """What a player must know of the environment."""
    _frame_titles: ClassVar[dict[str, str]] = {}
    """Titles of the observation's texts in a picture, where the key says too little."""
    _frame_keys: str = ""
    """Keys that stand for the valid actions in `gymnasium.utils.play`; a picture shows them."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an environment, and keep what it is made with, for its copies."""
        env = super().__new__(cls)
        env.__made_with = args, kwargs
        return env

    def __init__(self, *, fold: Fold | None, expert: Expert, render_mode: str | None) -> None:
        if fold is not None:
            check_choice("fold", fold, FOLDS)
        check_choice("expert", expert, EXPERTS)
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.fold = fold
        self.expert = expert
        self.render_mode = render_mode
        self.__obs: Observation | None = None
        self.__over = False
        self.__score = 0.0
        self.__path: tuple[str, ...] | None = None
        self.__turn = 0
        self.__on_path = False
        self.__taken: str | None = None  # for the picture: the name of the last action, and what it did
        self.__outcome: Outcome | None = None
        self.__window: Window | None = None
        self.__level: int | None = None  # for copies: the level, and what was played in it
        self.__actions: list[Any] = []

    # ---------------------------------------------------------------- for subclasses

    @abstractmethod
    def _start(self, seed: int) -> Observation:
        """Begin the episode of `seed` (already shifted by the fold) and return its first observation."""

    @abstractmethod
    def _play(self, action: Any) -> Outcome:
        """Play one action, which has been checked against `action_space`."""

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        """Return the names of the expert's actions from the start of the episode of `seed`, or None if it has no plan."""
        return None

    def _hint(self) -> str | None:
        """Return the name of the expert's action in the present state, or None if it finds no plan."""
        return None

    def _more_info(self) -> dict[str, Any]:
        """Return the environment's own entries of ``info`` in the present state."""
        return {}

    def _frame(self) -> np.ndarray:
        """Return the picture of the present state, uint8 of shape (height, width, 3): its texts and the valid actions."""
        assert self.__obs is not None
        texts = [key for key, field in self.text_spec.fields.items() if not (field.is_list or field.quantities)]
        if "look" in texts and self.__obs["look"] == self.__obs["text"]:
            texts.remove("text")  # as after a move, or "look around"
        refused = self.__outcome is not None and not self.__outcome.action_was_valid
        return draw_page(
            [(self._frame_titles.get(key, key), self.__obs[key]) for key in sorted(texts, key=lambda key: key != "goal")],
            facts=f"{self.spec.id}     {self._caption()}" if self.spec else self._caption(),
            actions=() if self.__over else self.__obs.get("valid_actions", ()),
            taken=self.__taken,
            refused=refused,
            keys=self._frame_keys,
        )

    def _caption(self) -> str:
        """Return the line of facts of a picture: how far the episode is, its score, and how it ended."""
        parts = [f"step {self.__turn}", f"score {self.__score:.4g}"]
        if self.__outcome is not None and (self.__outcome.success or self.__outcome.failure):
            parts.append("won" if self.__outcome.success else "lost")
        return "     ".join(parts)

    @property
    def step_limit(self) -> int | None:
        """The running episode's limit of steps that is the game's own; None if only Gymnasium's ``TimeLimit`` ends it."""
        return None

    @property
    def most_at_once(self) -> int | None:
        """How many environments of this kind this process has room for; None if nothing but its memory bounds them."""
        return None

    @property
    def fold_size(self) -> int:
        """Levels in the environment's fold; a seed beyond them plays one of them again."""
        return FOLD_SIZE

    def level_of(self, seed: int) -> int:
        """Return the number of the level that a seed plays. Seeds of one level play the same again: they are no new evidence."""
        return self._level_seed(seed)

    def _level_seed(self, seed: int) -> int:
        """Return the level's seed for `seed`, shifted into this environment's fold."""
        return fold_seed(self.fold, seed)

    # ---------------------------------------------------------------- the Gymnasium interface

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed of the episode, 0 or greater; None draws one from this environment's generator.
            options: Must be None or empty: there are no options.

        Returns:
            The first observation and ``info``.
        """
        if options:
            raise UsageError(f"options: expected none (use the environment's keyword arguments); got {options!r}.")
        if seed is not None:
            seed = check_int("seed", seed, 0, MAX_SEED)
        super().reset(seed=seed)
        self.__obs = None  # a failed start must not leave the last episode playable
        level = self._level_seed(int(self.np_random.integers(2**31)) if seed is None else seed)
        self.__path = self._plan(level) if self.expert != "off" else None
        obs = self._start(level)
        self.__begin(level, obs)
        info: dict[str, Any] = {"score": 0.0, "success": False, "failure": False}
        if self.__path is not None:
            info["gold_path"] = self.__path
            self.__warn_of_limit(len(self.__path))
        self.__add_gold_action(info)
        if self.render_mode == "human":
            self.render()
        return obs, info | self._more_info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one action.

        Raises:
            StepOrderError: Before `reset`, or after the episode's end.
            InvalidActionError: If the action is not of the action space's type or range.
        """
        action = self._accepted(action)
        try:
            answer = self._step(action)
        except BaseException:  # Ctrl-C too: the game may have taken the step, or not
            self.__obs = None
            raise
        if self.render_mode == "human":
            self.render()
        return answer

    def _accepted(self, action: Any) -> Any:
        """Return the checked action of the running episode. Nothing has changed if it is refused."""
        self._running_episode("step")
        return self._checked_action(action)

    def _step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play an accepted action, and return what `step` returns."""
        obs = self._running_episode("step")
        if self.__on_path:
            assert self.__path is not None
            self.__on_path = self.__path[self.__turn] == self.__name(action, obs)
        if self.render_mode in ("rgb_array", "human"):
            self.__taken = self.__name(action, obs) or ""
        self.__actions.append(action)
        return self.__answer(self._play(action))

    def __answer(self, outcome: Outcome) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Return what `step` returns after the game has answered."""
        self.__obs = copied(outcome.observation)
        self.__over = outcome.terminated or outcome.truncated
        self.__score += outcome.reward
        self.__turn += 1
        self.__outcome = outcome
        info = {
            "score": self.__score,
            "success": outcome.success,
            "failure": outcome.failure,
            "action_was_valid": outcome.action_was_valid,
        }
        if not self.__over:
            self.__add_gold_action(info)
        return outcome.observation, outcome.reward, outcome.terminated, outcome.truncated, info | self._more_info()

    def render(self) -> Any:
        """Return the present state as text (``ansi``) or as a picture (``rgb_array``, uint8 of shape (height, width, 3)).

        With ``human`` the picture goes into a window, which `reset` and `step` do by themselves, and nothing is returned.
        """
        if self.__obs is None:
            raise StepOrderError("render: expected an episode; there is none. Call reset() first.")
        if self.render_mode is None:
            logger.warn('render() without a render mode gives nothing: pass render_mode="ansi" or "rgb_array" to gym.make.')
            return None
        if self.render_mode == "ansi":
            return f"{self.__obs['goal']}\n\n{self.__obs['text']}"
        if self.render_mode == "rgb_array":
            return self._frame()
        if self.__window is None:
            self.__window = Window(self.spec.id if self.spec else type(self).__name__, self.metadata["render_fps"])
        self.__window.show(self._frame())
        return None

    def close(self) -> None:
        """End the episode, close the window and release the game; call `reset` before another step."""
        self.__obs = None
        if self.__window is not None:
            self.__window.close()
        super().close()

    # ---------------------------------------------------------------- descriptions

    def get_observation_schema(self) -> dict[str, Any]:
        """Return a JSON schema of the observation."""
        return self.text_spec.observation_schema()

    def get_action_schema(self) -> dict[str, Any]:
        """Return a JSON schema of an action's name."""
        return self.text_spec.action_schema()

    def get_goal_description(self) -> str:
        """Return what the task is."""
        return self.text_spec.goal

    # ---------------------------------------------------------------- copies

    def __getstate__(self) -> dict[str, Any]:
        """Return what `copy.deepcopy` and `pickle` keep: the arguments of the constructor, and what was played in this episode.

        A copy is made with the same arguments and plays the episode's actions again. It shares neither the window nor the game.
        """
        return {
            "made_with": self.__made_with,
            "spec": self.spec,
            "random": (self._np_random, self._np_random_seed),
            "level": None if self.__obs is None else self.__level,
            "actions": tuple(self.__actions),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the copy that `__getstate__` describes."""
        args, kwargs = self.__made_with = state["made_with"]
        type(self).__init__(self, *args, **kwargs)
        self.spec = state["spec"]
        if state["level"] is not None:
            self.__path = self._plan(state["level"]) if self.expert != "off" else None
            self.__begin(state["level"], self._start(state["level"]))
            self.__add_gold_action({})
            for action in state["actions"]:
                self._step(action)
        self._np_random, self._np_random_seed = state["random"]

    # ---------------------------------------------------------------- details

    def __begin(self, level: int, obs: Observation) -> None:
        """Note that the episode of a level has begun."""
        self.__obs = copied(obs)
        self.__over, self.__score, self.__turn, self.__on_path = False, 0.0, 0, self.__path is not None
        self.__taken = self.__outcome = None
        self.__level, self.__actions = level, []

    def _running_episode(self, caller: str) -> Observation:
        """Return the observation of the running episode, or raise `StepOrderError`."""
        if self.__obs is None:
            raise StepOrderError(f"{caller}: expected a running episode; there is none. Call reset() first.")
        if self.__over:
            raise StepOrderError(f"{caller}: expected a running episode; this one has ended. Call reset() for the next.")
        return self.__obs

    def _checked_action(self, action: Any) -> Any:
        """Return the action as a str, an int or a float32 array, or raise `InvalidActionError`."""
        space = self.action_space
        if isinstance(space, spaces.Text):
            if isinstance(action, str):
                return str(action)
            expected = "a string"
        elif isinstance(space, spaces.Discrete):
            array = _as_array(action)
            if array is not None and array.ndim == 0 and array.dtype.kind in "iu" and 0 <= int(array) < space.n:
                return int(array)
            if self.text_spec.encoding == "index":
                expected = f"an integer from 0 to {space.n - 1}, a place in obs['valid_actions']"
            else:
                names = ", ".join(f"{i} ({a.name})" for i, a in enumerate(self.text_spec.actions))
                expected = f"an integer: {names}"
        else:
            array = _as_array(action)
            if array is not None and array.dtype.kind in "iuf" and array.shape == space.shape and np.all(abs(array) < 1e30):
                number = array.astype(np.float32)
                if space.contains(number):
                    return number
            expected = f"an array in {space}"
        raise InvalidActionError(
            f"action: expected {expected}; got {action!r} ({type(action).__name__}). "
            "text_spec.encode(name, obs) makes an action of its name."
        )

    def __name(self, action: Any, obs: Observation) -> str | None:
        """Return the action's name, or None for an index beyond the valid actions."""
        if self.text_spec.encoding == "index" and action >= len(obs["valid_actions"]):
            return None
        return self.text_spec.decode(action, obs)

    def __warn_of_limit(self, needed: int) -> None:
        """Warn if the step limit is the registered one and too short for the expert; a limit that the user chose is no mistake."""
        registered = gym.registry[self.spec.id].max_episode_steps if self.spec and self.spec.id in gym.registry else None
        if self.spec is None or registered is None or needed <= registered:
            return
        # Gymnasium does not tell an environment about the TimeLimit around it, but that is among the callers of this reset
        callers, frame = [], inspect.currentframe()
        while frame is not None:
            callers.append(frame.f_locals.get("self"))
            frame = frame.f_back
        if any(isinstance(caller, gym.wrappers.TimeLimit) and caller._max_episode_steps == registered for caller in callers):
            logger.warn(SHORT_LIMIT.format(self.spec.id, needed, registered, needed))

    def __add_gold_action(self, info: dict[str, Any]) -> None:
        hint: str | None = None
        self.__on_path = self.__on_path and self.__path is not None and self.__turn < len(self.__path)
        if self.expert == "replan":
            hint = self._hint()
        elif self.__on_path and self.__path is not None:
            hint = self.__path[self.__turn]
        if hint is not None:
            info["gold_action"] = hint
            if (left := self._steps_left()) is not None:
                info["gold_steps"] = left

    def _steps_left(self) -> int | None:
        """Return the length of the rest of the expert's plan, or None if the expert decides step by step."""
        return len(self.__path) - self.__turn if self.expert == "path" and self.__path is not None else None


def closed_loop_path(twin: TextEnv, seed: int, controller: Callable[[Observation], str], limit: int) -> tuple[str, ...]:
    """Play the episode of `seed` on `twin` by `controller`, at most `limit` steps; return the names of the actions."""
    obs, path = twin._start(seed), []
    for _ in range(limit):
        path.append(controller(obs))
        outcome = twin._play(twin.text_spec.encode(path[-1], obs))
        if outcome.terminated:
            break
        obs = outcome.observation
    return tuple(path)


def has_expert(env: gym.Env[Any, Any]) -> bool:
    """Return whether an environment has an expert, be it off or not."""
    return bool(experts_of(env)) if isinstance(env.unwrapped, TextEnv) else hasattr(env.unwrapped, "expert")


def experts_of(env: gym.Env[Any, Any]) -> tuple[str, ...]:
    """Return which of ``path`` and ``replan`` the expert of one of our environments can do; nothing if it has none."""
    game = type(env.unwrapped)
    ways = (("path", "_plan"), ("replan", "_hint")) if issubclass(game, TextEnv) else ()
    return tuple(way for way, method in ways if getattr(game, method) is not getattr(TextEnv, method))


def check_expert(env: gym.Env[Any, Any], what: str, *, on: bool = True) -> None:
    """Raise `UsageError` if something needs the expert of an environment that has none.

    Args:
        env: The environment.
        what: What needs it, for the message.
        on: Whether this very environment has to have it on.
    """
    name = env.spec.id if env.spec else str(env)
    if not has_expert(env):
        raise UsageError(f"{what}: expected an environment with an expert; {name} has none.")
    if on and getattr(env.unwrapped, "expert", None) == "off":
        raise UsageError(f"{what}: expected an environment with expert='path' or 'replan'; {name} was made with expert='off'.")


def level_of(env: gym.Env[Any, Any], seed: int) -> int | None:
    """Return the number of the level that a seed plays in an environment; None where the environment does not tell."""
    return int(env.get_wrapper_attr("level_of")(seed)) if env.has_wrapper_attr("level_of") else None


def fold_seed(fold: Fold | None, seed: int) -> int:
    """Return `seed` shifted into a fold; without a fold, unchanged."""
    return seed if fold is None else FOLD_SIZE * (1 + FOLDS.index(fold)) + seed % FOLD_SIZE


def copied(obs: Observation) -> Observation:
    """Return a copy of an observation: changing one does not change the other."""
    return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in obs.items()}


def _as_array(action: Any) -> np.ndarray | None:
    """Return an action as an array, or None if it cannot be one."""
    try:
        return np.asarray(action)
    except (ValueError, OverflowError):
        return None
