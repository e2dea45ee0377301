"""Many games of TextWorldExpress as one vector environment: in one process, with one JVM."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from gym_text.errors import StepOrderError, UsageError, check_int
from gym_text.folds import MAX_SEED
from gym_text.hints import warn_of_short_limit
from gym_text.spec import TextSpec
from gym_text.textworld_express.arithmetic import ArithmeticEnv
from gym_text.textworld_express.coin_collector import CoinCollectorEnv
from gym_text.textworld_express.commonsense import CommonsenseEnv
from gym_text.textworld_express.cooking_world import CookingWorldEnv
from gym_text.textworld_express.env import TextWorldExpressEnv
from gym_text.textworld_express.map_reader import MapReaderEnv
from gym_text.textworld_express.pecking_order import PeckingOrderEnv
from gym_text.textworld_express.simon_says import SimonSaysEnv, SimonSaysMemoryEnv
from gym_text.textworld_express.sorting import SortingEnv


class TextWorldExpressVectorEnv(VectorEnv[dict[str, Any], Any, np.ndarray]):
    """A vector environment of `num_envs` games of one kind; ``gym.make_vec(id, num_envs=64)`` makes it.

    It steps `num_envs` single environments one after the other. Observations, rewards and infos are those of the single
    environments, in the form of Gymnasium's `SyncVectorEnv`. An error in the middle of a step ends all episodes: call `reset`
    before the next step.

    `gym.make_vec` refuses ``wrappers`` here, as it cannot reach the single environments. `gym_text.wrappers.vector` has
    `EncodeText` and `History` for vector environments; ``vectorization_mode="sync"`` makes a `SyncVectorEnv` with any wrappers.

    Args:
        env_class: The single environment.
        num_envs: Number of games.
        max_episode_steps: Steps after which an episode is truncated; None for no limit.
        autoreset_mode: When the next episode of a game begins: ``NextStep`` (the next action is ignored and the game reset),
            ``SameStep`` (reset at once; the last observation and info are in ``infos["final_obs"]`` and ``infos["final_info"]``) or
            ``Disabled`` (by ``reset(options={"reset_mask": …})``).
        arguments: Keyword arguments of the single environment.
    """

    def __init__(
        self,
        env_class: type[TextWorldExpressEnv],
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **arguments: Any,
    ) -> None:
        self.num_envs = check_int("num_envs", num_envs, 1, 100_000)
        self.envs = [env_class(**arguments) for _ in range(num_envs)]
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = env_class.metadata | {"autoreset_mode": self.autoreset_mode}
        self.render_mode = self.envs[0].render_mode
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._limit = max_episode_steps
        self._observations: list[dict[str, Any]] = []
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=np.bool_)

    @property
    def text_spec(self) -> TextSpec:
        """The spec of the games."""
        return self.envs[0].text_spec

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode in every game, or in those of ``options["reset_mask"]`` (bool of shape (num_envs,)).

        Args:
            seed: None; an int s, for the seeds s, s + 1, …; or a list with a seed for each game.
            options: ``reset_mask``, or None.
        """
        seeds = self._seeds(seed)
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise UsageError(f"reset_mask: expected {self.num_envs} booleans, at least one of them True; got {mask!r}.")
        if not self._observations and not mask.all():
            raise StepOrderError("reset: expected every game to be reset first; got a reset_mask. Call reset() without it once.")
        self._observations = self._observations or [{} for _ in self.envs]
        infos: list[dict[str, Any]] = [{} for _ in self.envs]
        try:
            for i in map(int, np.flatnonzero(mask)):
                infos[i] = self._reset_one(i, seeds[i], options)
        except BaseException:  # Ctrl-C too: some games have begun a new episode, others have not
            self._observations = []
            raise
        return self._stacked(), self._infos(infos)

    def _seeds(self, seed: Any) -> list[int | None]:
        """Return the seed of each game, all of them checked before any game begins."""
        if seed is None:
            return [None] * self.num_envs
        if np.ndim(seed) == 0:
            first = check_int("seed", seed, 0, MAX_SEED + 1 - self.num_envs)
            return [first + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise UsageError(f"seed: expected {self.num_envs} seeds, one for each game; got {len(seed)}.")
        return [None if s is None else check_int("seed", s, 0, MAX_SEED) for s in seed]

    def step(self, actions: Any) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action in every game.

        Args:
            actions: An action for each game: strings, or indices of shape (num_envs,).

        Returns:
            Observations, rewards (float64), terminations and truncations (bool, each of shape (num_envs,)), and infos.
        """
        if not self._observations:
            raise StepOrderError("step: expected running episodes; there are none. Call reset() first.")
        rows = list(iterate(self.action_space, actions) if isinstance(actions, np.ndarray) else actions)
        if len(rows) != self.num_envs:
            raise UsageError(f"actions: expected {self.num_envs}, one for each game; got {len(rows)}.")
        resting = self._ended if self.autoreset_mode == AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, dtype=np.bool_)
        accepted = [None if rest else env._accepted(row) for env, row, rest in zip(self.envs, rows, resting, strict=True)]
        rewards = np.zeros(self.num_envs)
        terminations, truncations = np.zeros((2, self.num_envs), dtype=np.bool_)
        infos: list[dict[str, Any]] = []
        try:
            for i, (action, rest) in enumerate(zip(accepted, resting, strict=True)):
                if rest:
                    infos.append(self._reset_one(i, None, {}))
                else:
                    rewards[i], terminations[i], truncations[i], info = self._step_one(i, action)
                    infos.append(info)
        except BaseException:  # Ctrl-C too: some games have taken the step, others have not
            self._observations = []
            raise
        self._ended = terminations | truncations
        return self._stacked(), rewards, terminations, truncations, self._infos(infos)

    def _step_one(self, i: int, action: Any) -> tuple[float, bool, bool, dict[str, Any]]:
        """Play an accepted action in game `i`; return its reward, whether it terminated, whether it was truncated, and its info."""
        env = self.envs[i]
        obs, reward, terminated, _, info = env._step(action)
        self._elapsed[i] += 1
        truncated = self._limit is not None and bool(self._elapsed[i] >= self._limit)
        if self.autoreset_mode == AutoresetMode.SAME_STEP and (terminated or truncated):
            info = {"final_obs": obs, "final_info": info} | self._reset_one(i, None, {})
        else:
            self._observations[i] = obs
        return reward, terminated, truncated, info

    def _reset_one(self, i: int, seed: int | None, options: dict[str, Any]) -> dict[str, Any]:
        self._observations[i], info = self.envs[i].reset(seed=seed, options=options)
        self._elapsed[i], self._ended[i] = 0, False
        if self._limit is not None:
            warn_of_short_limit(type(self.envs[i]).__name__, len(info.get("gold_path", ())), self._limit)
        return info

    def _stacked(self) -> dict[str, Any]:
        """Return the observations in the form of `SyncVectorEnv`: a tuple for each key."""
        return {key: tuple(obs[key] for obs in self._observations) for key in self._observations[0]}

    def _infos(self, infos: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the infos in the form of `SyncVectorEnv`: for each key an array, and a mask of the games that have the key."""
        stacked: dict[str, Any] = {}
        # usually all games have these keys; one array for all is faster than a call of `_add_info` for each game
        for key in ("score", "success", "failure", "action_was_valid"):
            if all(key in info for info in infos):
                stacked |= {key: np.array([info.pop(key) for info in infos]), f"_{key}": np.ones(self.num_envs, dtype=np.bool_)}
        for i, info in enumerate(infos):
            if info:
                stacked = self._add_info(stacked, info, i)
        return stacked

    def render(self) -> tuple[Any, ...]:
        """Return what each game renders."""
        return tuple(env.render() for env in self.envs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each single environment."""
        return tuple(getattr(env, name) for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Release the games."""
        self._observations = []
        for env in self.envs:
            env.close()


CookingWorldVectorEnv = partial(TextWorldExpressVectorEnv, CookingWorldEnv)
CommonsenseVectorEnv = partial(TextWorldExpressVectorEnv, CommonsenseEnv)
CoinCollectorVectorEnv = partial(TextWorldExpressVectorEnv, CoinCollectorEnv)
MapReaderVectorEnv = partial(TextWorldExpressVectorEnv, MapReaderEnv)
ArithmeticVectorEnv = partial(TextWorldExpressVectorEnv, ArithmeticEnv)
SortingVectorEnv = partial(TextWorldExpressVectorEnv, SortingEnv)
SimonSaysVectorEnv = partial(TextWorldExpressVectorEnv, SimonSaysEnv)
SimonSaysMemoryVectorEnv = partial(TextWorldExpressVectorEnv, SimonSaysMemoryEnv)
PeckingOrderVectorEnv = partial(TextWorldExpressVectorEnv, PeckingOrderEnv)
