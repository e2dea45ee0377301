"""`TextEnv`, the base class of text environments: it handles seeds, folds, the expert's hints, errors and pictures."""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import logger

from gym_text.copies import Replayable
from gym_text.episode_state import EXPERTS, Episode, Expert, ExpertPath, Outcome, copied, draw_state
from gym_text.errors import StepOrderError, UsageError, check_choice, check_int
from gym_text.folds import FOLD_SIZE, FOLDS, MAX_SEED, Fold, fold_seed
from gym_text.spaces import checked_action
from gym_text.spec import Observation, TextSpec

__all__ = ["Expert", "Fold", "HasSchemas", "Outcome", "TextEnv"]


class HasSchemas:
    """An environment or wrapper that returns its `text_spec` as JSON schemas."""

    text_spec: TextSpec
    """What a player must know of the environment."""

    def get_observation_schema(self) -> dict[str, Any]:
        """Return a JSON schema of the observation."""
        return self.text_spec.observation_schema()

    def get_action_schema(self) -> dict[str, Any]:
        """Return a JSON schema of an action's name."""
        return self.text_spec.action_schema()

    def get_goal_description(self) -> str:
        """Return what the task is."""
        return self.text_spec.goal


class TextEnv(HasSchemas, Replayable):
    """A Gymnasium environment that a language model can play.

    A subclass sets `text_spec`, `observation_space` and `action_space` in its constructor and implements `_start` and `_play`. With
    an expert it also implements `_plan`, and `_replan` or `_hint`, with a picture `_frame`, and for faster copies
    `_fork_game`. Its other attributes and methods may have any name with an underscore that this class does not use. This class
    guarantees:

    * ``obs`` is a dict with at least ``text`` (what the agent perceives now) and ``goal`` (this episode's task).
    * ``info`` has ``score``, ``success`` and ``failure``, and after a step ``action_was_valid``.
    * Unless the expert is off, ``info`` has ``gold_path`` (at reset: the names of the expert's actions), ``gold_action`` (its next
      action) and, with a whole plan, ``gold_steps`` (the number of steps left in it). A key without a value is left out.
    * `copy.deepcopy` and `pickle` make a new environment with the same arguments, which replays the running episode's actions.
    * `fork` makes a copy for looking ahead: without hints, by the engine's own means where those are faster.
    * Actions have the type of `action_space`; `text_spec` translates them to names and back.

    Args:
        fold: None passes the seed on unchanged; ``train``, ``dev`` and ``test`` shift it into ranges that never meet.
        expert: ``off``: no hints. ``path``: ``gold_path``, and ``gold_action`` while the player follows that path. ``replan``:
            ``gold_action`` also in every other state in which the expert finds a plan.
        render_mode: ``ansi`` for text, ``rgb_array`` for a picture (with ``human`` Gymnasium shows it in a window), or None.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # type: ignore[misc]
    _frame_titles: ClassVar[dict[str, str]] = {}
    """Titles in a picture for those fields of the observation whose key is no good title."""
    _frame_keys: str = ""
    """The keys of the valid actions in `gymnasium.utils.play`, which a picture shows."""

    def __init__(self, *, fold: Fold | None, expert: Expert, render_mode: str | None) -> None:
        if fold is not None:
            check_choice("fold", fold, FOLDS)
        check_choice("expert", expert, EXPERTS)
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.fold = fold
        self.expert = expert
        self.render_mode = render_mode
        self.__episode: Episode | None = None

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

    def _replan(self) -> tuple[str, ...] | None:
        """Return the names of the expert's actions from the present state, or None if it finds no plan."""
        return None

    def _hint(self) -> str | None:
        """Return the name of the expert's action in the present state; by default the next one of a plan that is followed."""
        assert self.__episode is not None
        path = self.__episode.path
        path.rest = path.rest or self._replan() or ()
        return path.rest[0] if path.rest else None

    @property
    def _observed(self) -> Observation:
        """The present observation, without wrappers."""
        if self.__episode is None:
            raise StepOrderError("expected a running episode; there is none. Call reset() first.")
        return self.__episode.observation

    @property
    def _rest(self) -> tuple[str, ...]:
        """The rest of the expert's path or plan; empty if the player has left it."""
        return () if self.__episode is None else self.__episode.path.rest

    def _more_info(self) -> dict[str, Any]:
        """Return the environment's own entries of ``info`` in the present state."""
        return {}

    def _frame(self) -> np.ndarray:
        """Return the picture of the present state, uint8 of shape (height, width, 3): its texts and the valid actions."""
        assert self.__episode is not None
        facts = f"{self.spec.id}     {self._caption()}" if self.spec else self._caption()
        return draw_state(self.__episode, self.text_spec, self._frame_titles, facts, self._frame_keys)

    def _caption(self) -> str:
        """Return the line of facts in a picture: the step, the score, and whether the episode was won or lost."""
        assert self.__episode is not None
        return self.__episode.facts()

    @property
    def most_at_once(self) -> int | None:
        """How many environments of this class fit into this process; None if only the process's memory limits the number."""
        return None

    @property
    def fold_size(self) -> int:
        """Number of levels in the environment's fold; larger seeds play the same levels again."""
        return FOLD_SIZE

    def level_of(self, seed: int) -> int:
        """Return the number of the level that a seed plays. Two seeds of one level play the same game: their results count once."""
        return self._level_seed(seed)

    def _level_seed(self, seed: int) -> int:
        """Return the level's seed for `seed`, shifted into this environment's fold."""
        return fold_seed(self.fold, seed)

    # ---------------------------------------------------------------- the Gymnasium interface

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, and return its first observation and ``info``.

        Args:
            seed: Seed of the episode, 0 or greater; None draws a seed from this environment's generator.
            options: Must be None or empty, as there are no options.
        """
        if options:
            raise UsageError(f"options: expected none (use the environment's keyword arguments); got {options!r}.")
        if seed is not None:
            seed = check_int("seed", seed, 0, MAX_SEED)
        super().reset(seed=seed)
        self.__episode = None  # a failed start must not leave the last episode playable
        level = self._level_seed(int(self.np_random.integers(2**31)) if seed is None else seed)
        episode = self.__begin(level)
        info: dict[str, Any] = {"score": 0.0, "success": False, "failure": False}
        if episode.path.names is not None:
            info["gold_path"] = episode.path.names
        info |= self.__gold_action(episode)
        return copied(episode.observation), info | self._more_info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one action.

        Raises:
            StepOrderError: Before `reset`, or after the episode's end.
            InvalidActionError: If the action is not of the action space's type or range.
        """
        episode = self.__episode
        if episode is None:
            raise StepOrderError("step: expected a running episode; there is none. Call reset() first.")
        if episode.is_over:
            raise StepOrderError("step: expected a running episode; this one has ended. Call reset() for the next.")
        action = checked_action(action, self.action_space, self.text_spec)  # a refused action changes nothing
        try:
            return self.__play(episode, action)
        except BaseException:  # Ctrl-C too: nobody knows whether the game has taken the step
            self.__episode = None
            raise

    def __play(self, episode: Episode, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play a checked action; return the values of `step`."""
        name = self.__name(action, episode.observation) if episode.path.rest or self.render_mode else None
        if self.render_mode == "rgb_array":
            episode.last_action = name or ""
        episode.actions.append(action)
        outcome = episode.outcome = self._play(action)
        episode.path.follow(name)
        episode.observation = copied(outcome.observation)
        episode.score += outcome.reward
        episode.is_over = outcome.terminated or outcome.truncated
        info = {
            "score": episode.score,
            "success": outcome.success,
            "failure": outcome.failure,
            "action_was_valid": outcome.action_was_valid,
        }
        if self.expert != "off" and not episode.is_over:
            info |= self.__gold_action(episode)
        info |= self._more_info()
        return outcome.observation, outcome.reward, outcome.terminated, outcome.truncated, info

    def render(self) -> Any:
        """Return the present state as text (``ansi``) or as a picture (``rgb_array``, uint8 of shape (height, width, 3))."""
        episode = self.__episode
        if episode is None:
            raise StepOrderError("render: expected an episode; there is none. Call reset() first.")
        if self.render_mode is None:
            logger.warn('render() without a render mode gives nothing: pass render_mode="ansi" or "rgb_array" to gym.make.')
            return None
        if self.render_mode == "ansi":
            return f"{episode.observation['goal']}\n\n{episode.observation['text']}"
        return self._frame()

    def close(self) -> None:
        """End the episode and release the game; call `reset` before another step."""
        self.__episode = None
        super().close()

    def fork(self, *, hints: bool = False) -> Self:
        """Return a copy that goes on as this environment would, for looking ahead; this environment stays as it is.

        Played alike, the two agree in observations, rewards, ends, `score`, `success` and `failure`: the copy has all that the
        player has not seen, such as what lies behind a door. The copy gives the expert's hints only if `hints` asks for them. Close
        it after use.
        """
        twin = self._anew()
        twin.expert = self.expert if hints else "off"
        episode = self.__episode
        if episode is not None and not self._fork_game(twin):
            twin._replay_episode(episode.level, tuple(episode.actions))
        elif episode is not None:
            path = copy.copy(episode.path) if hints else ExpertPath(None)
            twin.__episode = dataclasses.replace(episode, path=path, actions=list(episode.actions))
        return twin

    def _fork_game(self, twin: Self) -> bool:
        """Give `twin`, which has the same arguments, a copy of the running game that changes apart from this one.

        If `twin` has an expert that replans, it also gets what this expert knows of the game.

        Returns:
            Whether it did. If not, as by default, `twin` begins the episode's level and plays the episode's actions again.
        """
        return False

    def __begin(self, level: int) -> Episode:
        """Begin the episode of a level."""
        path = ExpertPath(self._plan(level) if self.expert != "off" else None)
        self.__episode = Episode(level, copied(self._start(level)), path)
        return self.__episode

    def _episode_so_far(self) -> tuple[int, Sequence[Any]] | None:
        return None if self.__episode is None else (self.__episode.level, tuple(self.__episode.actions))

    def _replay_episode(self, level: int, actions: Sequence[Any]) -> None:
        episode = self.__begin(level)
        self.__gold_action(episode)  # `reset` calls this, too: the expert may keep the plan that it makes here
        for action in actions:
            self.__play(episode, action)

    def __name(self, action: Any, obs: Observation) -> str | None:
        """Return the action's name, or None for an index beyond the valid actions."""
        if self.text_spec.encoding == "index" and action >= len(obs["valid_actions"]):
            return None
        return self.text_spec.decode(action, obs)

    def __gold_action(self, episode: Episode) -> dict[str, Any]:
        """Return the expert's entries of ``info`` in the present state."""
        name = self._hint() if self.expert == "replan" else next(iter(episode.path.rest), None)
        if name is None or (self.text_spec.encoding == "index" and name not in episode.observation["valid_actions"]):
            return {}
        has_plan = self.expert == "path" or type(self)._hint is TextEnv._hint
        return {"gold_action": name} | ({"gold_steps": len(episode.path.rest)} if has_plan else {})
