"""The bridge to verifiers 0.4 (its module ``verifiers.v1``): any environment as a taskset and an environment of verifiers.

Read from top to bottom: `LevelsConfig` has the settings. `Levels` is the taskset; each level is a task. `LevelEnv` plays an episode
as a `Conversation` with the agent ``player``, and `PlayerHarness` asks the model. verifiers finds the
bridge by the name ``gym-text-verifiers``: ``vf-eval gym-text-verifiers --env.taskset.environment CookingWorldText-v0``.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Iterator
from typing import Literal, Self

import httpx
import verifiers.v1 as vf
from pydantic import Field, model_validator
from verifiers.v1.dialects.chat import message_to_wire

from gym_text.registration import SERVED
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.bridges.levels import level_maker, level_row


class LevelsConfig(vf.TasksetConfig):
    """Which levels are played, and how; ``--env.taskset.NAME`` on the command line."""

    environment: str = SERVED
    """A registered id, with keyword arguments after a question mark; ``max_episode_steps`` is the step limit."""
    fold: Literal["train", "dev", "test"] = "train"
    """The split. No level is in two folds."""
    levels: int = Field(100, ge=1)
    """Number of levels. Their seeds are `first_seed`, `first_seed` + 1, ..."""
    first_seed: int = Field(0, ge=0)
    """Seed of the first level."""
    strategy: str = "chat"
    """The prompt template: a strategy that shows no examples, or the path of a ``.jinja`` file. With ``chat`` the conversation is
    that of ``gym-text bench --strategy chat --history all --options own_words=true``. verifiers' ``system_prompt`` replaces the
    template's ``system``."""

    @model_validator(mode="after")
    def _can_be_played(self) -> Self:
        self.game()
        return self

    def game(self) -> Conversation:
        """Return a game in which no episode has begun.

        Raises:
            UsageError: If there is no such environment or strategy, or the environment does not take the arguments or the fold.
        """
        return Conversation(level_maker(self.environment, self.fold), self.strategy)


class LevelData(vf.TaskData):
    """One level, in the form in which traces store it. All episodes of a task, and so of a group, play this level."""

    environment: str
    """The environment's id, with its arguments."""
    fold: str
    """The level's fold."""
    seed: int
    """The level's seed."""


class LevelTask(vf.Task[LevelData]):
    """A level to play. `LevelEnv` records its reward."""


class Levels(vf.Taskset[LevelTask, LevelsConfig]):
    """The levels of one fold of an environment, in the order of their seeds."""

    def load(self) -> Iterator[LevelTask]:
        """Yield a task for each level. This starts no episode."""
        config = self.config
        for seed in range(config.first_seed, config.first_seed + config.levels):
            level = level_row(config.environment, config.fold, seed)
            data = LevelData(name=level["id"], **level)
            yield LevelTask(data, config.task)


class LevelEnvConfig(vf.EnvConfig):
    """The player; ``--env.player.NAME`` on the command line."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The model that plays. The runtime is a subprocess, which needs no cloud and no container; nothing runs in it."""


class LevelEnv(vf.Env[LevelEnvConfig]):
    """One episode of a level. The reward is the score; ``success``, ``score``, ``steps`` and ``unusable`` are metrics."""

    async def run(self, task: LevelTask, agents: vf.Agents) -> None:
        """Play one level to its end, or until the run's own limits stop the player."""
        conversation = self.taskset.config.game()
        try:
            await asyncio.to_thread(conversation.begin, task.data.seed)
            async with agents.player.interaction(task) as interaction:
                trace = interaction.trace
                system, text = conversation.messages()
                opening = [{"role": "system", "content": system}] if system and task.data.system_prompt is None else []
                segment = await interaction.turn([*opening, {"role": "user", "content": text}])
                while not segment.terminated:
                    finish = next((call.finish_reason for call in reversed(trace.calls) if call.error is None), None)
                    text = await asyncio.to_thread(conversation.play, segment.last_reply, finish=finish)
                    if conversation.end is not None:
                        trace.stop(conversation.end)
                        break
                    segment = await interaction.turn(text)
                trace.record_reward("score", conversation.score)
                trace.record_metrics({**conversation.metrics, "score": conversation.score})
        finally:
            await asyncio.to_thread(conversation.close)  # it waits for what is being played


class PlayerHarness(vf.Harness[vf.HarnessConfig]):
    """Sends one request to the model for each turn, from this process; verifiers' own harnesses start a program for each turn.

    ``--env.player.harness.id null`` selects verifiers' own program instead.
    """

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Send the conversation to `endpoint`, which asks the model and records the answer in the trace."""
        system, messages = self.resolve_prompt(data)
        wire = [message_to_wire(message) for message in messages]
        if system is not None:
            wire.insert(0, {"role": "system", "content": system})
        async with httpx.AsyncClient(verify=_certificates(), timeout=None) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": wire},
            )
        return vf.ProgramResult(exit_code=0 if answer.is_success else 1, stdout="", stderr=answer.text)


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()
