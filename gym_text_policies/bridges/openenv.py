"""The OpenEnv bridge serves any environment with OpenEnv's server; `GenericEnvClient` of OpenEnv plays. Extra: ``openenv``.

Every connection to ``/ws`` is a session. It has an environment and a thread of its own, which end with the connection. All
environments of a server share one process, and so one Java machine. Actions are names, which `TextSpec.encode` looks up: nothing
that a client sends is run, imported, or used as a path. OpenEnv limits the sessions and answers malformed messages; uvicorn limits
the bytes of a message.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import gymnasium as gym
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from openenv.core import env_server as openenv
from openenv.core.env_server.types import ConcurrencyConfig, EnvironmentMetadata
from pydantic import Field

from gym_text.errors import StepOrderError, UsageError, check_choice, check_int, check_options
from gym_text.folds import FOLD_SIZE, FOLDS, MAX_SEED
from gym_text.spec import TextSpec
from gym_text_policies.answers import reply_in_game
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.bridges.serving import MOST_SESSIONS
from gym_text_policies.files.json_data import plain
from gym_text_policies.policy import text_spec

MOST_TASKS = 1000
"""Most tasks in one answer about a split."""


class TextAction(openenv.Action):
    """One action, by its name."""

    action: str = Field(description="The name of one of the observation's valid_actions, alone or among other words")


class TextObservation(openenv.Observation):
    """What a player perceives after a reset or a step, and how the game took the step."""

    text: str = Field(description="What the player perceives now, ready to read")
    goal: str = Field(description="The task of this episode")
    valid_actions: list[str] = Field(description="Names of the actions that can be chosen now")
    fields: dict[str, Any] = Field(description="The environment's other fields, as records store them; arrays are lists")
    score: float = Field(description="Sum of the rewards of this episode")
    success: bool = Field(description="Whether the task is done")
    failure: bool = Field(description="Whether the task can no longer be done")
    truncated: bool = Field(description="Whether a step limit has ended the episode")
    action_was_valid: bool = Field(description="Whether the game understood the last action; true after a reset")
    error: str = Field(description="Which actions are possible, where the last one could not be used; else empty")


class TextState(openenv.State):
    """The state of a session. `episode_id` and `step_count` are fields of OpenEnv's state."""

    seed: int | None = Field(default=None, description="Seed of the episode; None where the game drew one")
    split: str | None = Field(default=None, description="Split of the episode; None for the environment's own default")
    score: float = Field(default=0.0, description="Sum of the rewards of this episode")
    success: bool = Field(default=False, description="Whether the task is done")
    done: bool = Field(default=False, description="Whether there is no running episode")


class GymTextEnvironment(openenv.Environment):
    """The environment of one session, as OpenEnv's `Environment`. The first reset makes it.

    Args:
        make: Makes the environment of a split; None stands for the environment's own default.
        splits: The splits that can be played.
        name: The environment's id.
        spec: The environment's description for players.
        tasks: Levels in each split; task i is the level of seed i.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, make: Callable[[str | None], gym.Env[Any, Any]], splits: Sequence[str], name: str, spec: TextSpec, tasks: int
    ) -> None:
        super().__init__()
        self._splits, self._name, self._spec, self._tasks = splits, name, spec, tasks
        self._split: str | None = None
        self._game = Conversation(lambda: make(self._split))
        self._state = TextState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **unknown: Any,
    ) -> TextObservation:
        """Begin an episode.

        Args:
            seed: Seed of the episode, 0 or greater. It gives the same episode as without a server. None draws a seed.
            episode_id: Name of the episode in `state`; None makes a name.
            split: Name of a split; None is the environment's own default.
            index: Index of a task of the split, in place of a seed.
            unknown: Other arguments, which raise an error.

        Raises:
            UsageError: If an argument is wrong. The running episode, if there is one, goes on.
        """
        check_options("reset", unknown, ("seed", "episode_id", "split", "index"))
        if split is not None:
            check_choice("split", split, self._splits)
        if index is not None:
            if split is None or seed is not None:
                raise UsageError(f"index: expected a split beside it, and no seed; got split={split!r}, seed={seed!r}.")
            seed = check_int("index", index, 0, self._tasks - 1)
        if seed is not None:
            seed = check_int("seed", seed, 0, MAX_SEED)
        state = TextState(episode_id=episode_id or str(uuid.uuid4()), seed=seed, split=split)
        self._state = TextState()
        if split != self._split:
            self._game.close()
            self._split = split
        self._game.begin(seed)
        self._state = state
        return self._observation(None)

    def step(self, action: TextAction, timeout_s: float | None = None, **unknown: Any) -> TextObservation:
        """Play one action. It is parsed like the answer of a policy, see `parse_action`.

        Words that name no possible action, or several, change nothing and cost no step of the game: the observation is the same,
        `action_was_valid` is false, and `error` says which actions are possible. After `MOST_UNUSABLE` such answers in a row the
        episode is truncated.

        Args:
            action: The action's name, or words that name it.
            timeout_s: Has no effect: a step takes milliseconds and cannot be interrupted.
            unknown: Other arguments, which have no effect.

        Raises:
            StepOrderError: Before `reset`, or after the episode's end.
        """
        if self.state.done:
            what = "this one has ended" if self._state.episode_id else "there is none"
            raise StepOrderError(f"step: expected an episode; {what}. Begin one, over the same connection to /ws.")
        self._state.step_count += 1  # OpenEnv's contract counts calls, usable or not
        usable = self._game.step(action.action)
        return self._observation(self._game.reward, usable=usable)

    def _observation(self, reward: float | None, *, usable: bool = True) -> TextObservation:
        game, state = self._game, self.state
        state.score, state.success = float(game.info.get("score", game.score)), game.success
        return TextObservation(
            text=game.obs["text"],
            goal=game.obs["goal"],
            valid_actions=list(game.spec.names(game.obs)),
            fields={key: plain(value) for key, value in game.obs.items() if key not in ("text", "goal", "valid_actions")},
            reward=reward,
            done=state.done,
            score=state.score,
            success=game.success,
            failure=bool(game.info.get("failure", False)),
            truncated=game.truncated,
            action_was_valid=usable and bool(game.info.get("action_was_valid", True)),
            error="" if usable else reply_in_game(game.spec, game.obs),
        )

    @property
    def state(self) -> TextState:
        """The state of the session."""
        self._state.done = self._game.end is not None
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the environment's id, its goal, and, as the readme, the descriptions of its observation and actions."""
        spec = self._spec
        prose = f"{spec.goal}\n\nObservation:\n{spec.describe_fields()}\n\nActions:\n{spec.describe_actions()}\n\n{spec.reward}"
        return EnvironmentMetadata(
            name=self._name, description=spec.goal, readme_content=prose.strip(), version=version("gym-text")
        )

    def close(self) -> None:
        """Close the environment."""
        self._game.close()

    # ---------------------------------------------------------------- OpenEnv's tasks. Task i of a split is the level of seed i.

    def list_splits(self) -> list[str]:
        """Return the names of the splits: the folds of the environment."""
        return list(self._splits)

    def num_tasks(self, split: str) -> int:
        """Return the number of levels in a split."""
        check_choice("split", split, self._splits)
        return self._tasks

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the first `MOST_TASKS` tasks of a split."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return one task. ``reset(split=…, index=…)`` begins its level."""
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(index)
        return {"id": f"{split}-{index}", "split": split, "index": index, "goal": self._spec.goal}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return the first `MOST_TASKS` tasks of a slice."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))[start:stop][:MOST_TASKS]]


def create_app(
    make: Callable[[str | None], gym.Env[Any, Any]], *, splits: Sequence[str] = FOLDS, max_sessions: int = MOST_SESSIONS
) -> FastAPI:
    """Return OpenEnv's application for an environment.

    Args:
        make: Makes the environment of a split, as in ``lambda split: gym.make("BabyAIText-v0", fold=split)``; None stands for the
            environment's own default. It is called once here, and then for each session. Pass ``expert="off"`` to `gym.make`: no
            client sees the expert's actions, and environments without an expert are faster.
        splits: Names of the splits that `make` takes; empty if it takes none.
        max_sessions: Most sessions at once.
    """
    env = make(None)
    name = env.spec.id if env.spec else type(env.unwrapped).__name__
    tasks = getattr(env.unwrapped, "fold_size", FOLD_SIZE)
    environment = functools.partial(GymTextEnvironment, make, tuple(splits), name, text_spec(env), tasks)
    env.close()
    app: FastAPI = openenv.create_app(
        environment,
        TextAction,
        TextObservation,
        env_name=name,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=max_sessions),
        state_cls=TextState,
        mode="simulation",
    )
    for error in (UsageError, StepOrderError):
        app.add_exception_handler(error, _bad_request)
    return app


async def _bad_request(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 400)
