"""`Game`: an environment and the episode that is played in it. An error of one episode ends that episode, and no other."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from gym_text.errors import (
    BudgetError,
    ClusterError,
    EngineError,
    EpisodeError,
    GymTextError,
    InvalidActionError,
    MissingDependencyError,
    RunError,
    StoreError,
    UsageError,
)
from gym_text.folds import level_of
from gym_text.spec import TextSpec
from gym_text_policies.files.json_data import check_json, checked, plain
from gym_text_policies.files.redaction import hide_keys
from gym_text_policies.policy import Policy, environment_config, episode_key, turn_rngs
from gym_text_policies.records import Decision, Episode, Step, Turn

MakeEnv = Callable[[], gym.Env[Any, Any]]
_logger = logging.getLogger(__name__)
_OF_RUN = (BudgetError, StoreError, ClusterError, RunError, MissingDependencyError, Warning)
"""Errors that end the whole run. A warning is raised as an exception only if the caller asked for that, as tests do."""
_MOST_FRAMES = 20
_MOST_CHARACTERS = 4000
"""Most characters of an error's text."""


def is_of_episode(error: Exception, *, deciding: bool = False) -> bool:
    """Return whether an error ends one episode only, and not the whole run.

    An error ends the run if every other episode would end in it too: a spent budget, a folder that cannot be written, a missing
    package, or a wrong setting that a policy finds while it decides (`deciding`).
    """
    if isinstance(error, EpisodeError | InvalidActionError):
        return True
    return not (isinstance(error, _OF_RUN) or (deciding and isinstance(error, UsageError)))


class Game:
    """An environment, and the episode that is played in it.

    `begin` and `step` return an error that ends the episode. They raise an error that ends the whole run.
    """

    def __init__(self, make_env: MakeEnv, policy: Policy, seed: int) -> None:
        self.seed = seed
        self.turn: Turn | None = None
        """The turn that waits for a decision; None before the start and after the end."""
        self.make_env = make_env
        self.policy = policy
        self._open()
        self._environment = environment_config(self._env)
        self._level: int | None = None
        self._steps: list[Step] = []

    @property
    def most_at_once(self) -> int | None:
        """Most games of this environment that this process has room for; None if there is no limit."""
        most: int | None = getattr(self._env.unwrapped, "most_at_once", None)
        return most

    def _open(self) -> None:
        env = self.make_env()
        self._keys = tuple(env.observation_space.spaces) if isinstance(env.observation_space, gym.spaces.Dict) else ()
        self._env = self.policy.wrap(env)
        self._spec: TextSpec = self._env.get_wrapper_attr("text_spec")
        self._broken = False

    def close(self) -> None:
        """Release the environment."""
        with contextlib.suppress(Exception):  # the episodes are already recorded
            self._env.close()

    @property
    def over(self) -> bool:
        """Whether the last step ended the episode."""
        return bool(self._steps) and (self._steps[-1].terminated or self._steps[-1].truncated)

    def begin(self, name: str) -> Exception | None:
        """Begin the episode of `self.seed`. If the environment raised in the last episode, it is made anew."""
        self._steps, self.turn, self._level = [], None, None
        self._seen: dict[str, Any] = {}
        try:
            if self._broken:
                self.close()
                self._open()
            obs, self._info = self._env.reset(seed=self.seed)
            self._seen, self._level = self._observed(obs, over=False), level_of(self._env, self.seed)
        except Exception as error:
            return self._failed(error)
        self._rngs = turn_rngs(self._environment, self.policy.seed, self.seed)
        self.turn = Turn(obs, self._rngs(0), name)
        return None

    def asked(self) -> Turn:
        """Return the turn that waits for a decision. Its random generator is new: nothing was drawn from it."""
        assert self.turn is not None
        self.turn = replace(self.turn, rng=self._rngs(self.turn.step))
        return self.turn

    def step(self, decision: Decision) -> Exception | None:
        """Play a decision and record the step."""
        assert self.turn is not None
        try:
            action = self._spec.encode(decision.action, dict(self.turn.obs))
            obs, reward, terminated, truncated, info = self._env.step(action)
            step = self._recorded(decision, float(reward), bool(terminated), bool(truncated), info)
            seen = self._observed(obs, over=step.terminated or step.truncated)
        except Exception as error:
            return self._failed(error)
        self._steps.append(step)
        self._seen, self._info = seen, info
        self.turn = self.turn.after(decision, obs)
        return None

    def end(self, error: Exception | None) -> Episode:
        """Return the record of the episode, which has ended."""
        config = self.policy.config
        where = f"step {len(self._steps) + 1}" if self.turn else "at reset"
        location = f"{self._environment['id']}, seed {self.seed}, {where}"
        self.turn = None
        return Episode(
            key=episode_key(self._environment, config, self.seed),
            environment=self._environment,
            policy=config,
            seed=self.seed,
            steps=tuple(self._steps),
            last_observation=self._seen,
            level=self._level,
            error=_sentence(error, location) if error else None,
            traceback=None if error is None or isinstance(error, GymTextError) else _traceback(error),
        )

    def _recorded(self, decision: Decision, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> Step:
        """Return a step. Raise `EngineError` if the step cannot be stored, such as one with a reward of NaN."""
        earlier = self._steps[-1].score if self._steps else 0.0
        step = Step(
            observation=self._seen,
            decision=decision,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            success=None if info.get("success") is None else bool(info["success"]),
            failure=bool(info.get("failure", False)),
            score=float(info.get("score", earlier + reward)),
            action_was_valid=bool(info.get("action_was_valid", True)),
            gold_action=self._info.get("gold_action"),
        )
        try:
            return checked(step)
        except (TypeError, ValueError) as error:
            raise EngineError(f"{error}. The environment has to give it.") from None

    def _observed(self, obs: Any, *, over: bool) -> dict[str, Any]:
        """Return the environment's own keys of an observation, as plain JSON.

        Raises:
            EngineError: If they are not plain JSON, or no action is valid although the episode goes on.
        """
        seen = {key: plain(obs[key]) for key in self._keys} if self._keys else {"observation": plain(obs)}
        try:
            check_json("observation", seen)
        except (TypeError, ValueError) as error:
            raise EngineError(str(error)) from None
        if not over and self._spec.lists_actions and self._keys and not self._spec.names(dict(obs)):
            raise EngineError("valid_actions: expected the name of an action, as the episode is not over; got none.")
        return seen

    def _failed(self, error: Exception) -> Exception:
        """Return an error that ends this episode, and let the environment be made anew. Raise an error that ends the run."""
        if not is_of_episode(error):
            raise error
        self._broken = True
        return error


def _sentence(error: Exception, location: str) -> str:
    """Return an error's type and text. The first line also says where it happened."""
    try:
        text = str(error)
    except Exception:  # `__str__` may be a user's code, too
        text = ""
    first, newline, rest = hide_keys(text)[:_MOST_CHARACTERS].partition("\n")
    return f"{type(error).__name__}{': ' if first else ''}{first} ({location}){newline}{rest}"


def _traceback(error: Exception) -> str:
    """Return the files, lines and functions of a traceback, without code, values and folders, which may be private."""
    frames = traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]
    return "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
