"""A resources server of NeMo Gym 0.7: one level for each row of `gym_text_policies.bridges.levels`.

NeMo Gym's ``gymnasium_agent`` plays it. The row has the system prompt, ``/reset`` returns the first observation, and ``/step``
plays the action that an answer names. The agent's reward is the return.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import Field
from resources_servers.gymnasium import GymnasiumServer, extract_text

from gym_text.errors import UsageError
from gym_text_policies.bridges.conversation import Conversation, finished
from gym_text_policies.bridges.levels import begin

METRICS = ("success", "steps", "unusable")
"""What a step's ``info`` has beside ``end``, and what the run's metrics have the mean of."""
_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}
_NO_EPISODE = "expected an episode that goes on; this session has none, or was idle for too long. Begin one by /reset."
_FULL = (
    "max_sessions: expected {0} episodes at once, at most; all are being played. Set more in the server's configuration, or fewer "
    "for the run by num_samples_in_parallel."
)
_REQUEST = "_ng_step_request_id"
Reply = tuple[str | None, float, bool, bool, dict[str, Any]]
"""What a step returns: observation or None, reward, terminated, truncated, info."""


class GymTextConfig(BaseResourcesServerConfig):  # type: ignore[misc, unused-ignore]
    """The server's settings, beside NeMo Gym's own."""

    imports: tuple[str, ...] = ()
    """Modules whose environments a row may name beside those that ship."""
    max_sessions: int = Field(1024, ge=1)
    """Most episodes at once; one more is refused with the status 503. The agent does not try again, so it is more than the episodes
    that a run plays at once."""
    idle_seconds: float = Field(3600.0, gt=0, allow_inf_nan=False)
    """An episode without a step for so many seconds is ended, because its agent is gone. The model's answer, with the trainer's
    pauses, has to come sooner."""


@dataclass
class _Session:
    game: Conversation | None = None
    """None until it has begun, and after the last step."""
    idle: asyncio.TimerHandle | None = None
    """Ends the episode, unless a step comes before."""
    request: str | None = None
    """Names the last step; the agent that sends a step again, because no answer came, sends the same name."""
    reply: Reply | None = None
    """What this step returned."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def close(self) -> None:
        game, self.game = self.game, None
        if game is not None:
            game.close()

    def rest(self) -> None:
        """Stop the timer."""
        if self.idle is not None:
            self.idle.cancel()


class GymTextServer(GymnasiumServer):
    """Plays levels in which the model answers in words. `gym_text_policies.answers` has the rule for bad answers.

    A step that the agent sends twice is played once: each step has a name, under which its result is kept until the next step, or
    until ``/close``. An episode whose agent sends nothing for ``idle_seconds`` is ended.
    """

    config: GymTextConfig
    ray_enabled = False

    def setup_webserver(self) -> FastAPI:
        """Return the app, with ``/close``: the agent calls it when its own limit of steps ends an episode."""
        app: FastAPI = super().setup_webserver()
        app.post("/close")(self._close)
        return app

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the level of a row, and return the first observation.

        Args:
            metadata: The row's columns.
            session_id: Names the episode.
        """
        await self._end(session_id)
        if len(self.session_state) >= self.config.max_sessions:
            raise HTTPException(503, _FULL.format(self.config.max_sessions))
        self.session_state[session_id] = session = _Session()
        game = await finished(self._begin(session_id, session, metadata), lambda _: self._forget(session_id, session))
        return game.messages()[1], {"supports_explicit_close": True, "supports_step_idempotency": True}

    async def _begin(self, session_id: str | None, session: _Session, metadata: dict[str, Any]) -> Conversation:
        async with session.lock:
            try:
                session.game = game = await asyncio.to_thread(begin, metadata, imports=self.config.imports)
            except UsageError as error:
                raise HTTPException(422, str(error)) from error
            finally:
                if session.game is None:
                    self._forget(session_id, session)
            self._wait(session_id, session)
        return game

    async def step(self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None) -> Reply:
        """Play the action that an answer names; the reward is that of the step.

        Args:
            action: The model's answer.
            metadata: The row's columns, and the name of the step.
            session_id: Names the episode.
        """
        session: _Session | None = self.session_state.get(session_id)
        if session is None:
            raise HTTPException(409, _NO_EPISODE)
        request = metadata.get(_REQUEST)
        async with session.lock:
            if session.reply is not None and session.request is not None and request == session.request:
                return session.reply
            if session.game is None:
                raise HTTPException(409, _NO_EPISODE)
            session.rest()
            try:
                session.request, session.reply = request, await self._play(session.game, action)
            finally:
                self._wait(session_id, session)
            return session.reply

    def _wait(self, session_id: str | None, session: _Session) -> None:
        """Wait for the next step, no longer than ``idle_seconds``."""
        if self.session_state.get(session_id) is session:
            session.idle = asyncio.get_running_loop().call_later(self.config.idle_seconds, self._forget, session_id, session)

    def _forget(self, session_id: str | None, session: _Session) -> None:
        if self.session_state.get(session_id) is session:
            del self.session_state[session_id]
        session.rest()
        session.close()

    async def _play(self, game: Conversation, action: NeMoGymResponse) -> Reply:
        cut = action.incomplete_details
        finish = _FINISH.get(cut.reason or "") if cut else None
        text = await asyncio.to_thread(game.play, extract_text(action), finish=finish)
        info = {**game.metrics, "end": game.end}
        over = game.end is not None
        return None if over else text, game.reward, over and not game.truncated, game.truncated, info

    async def close_session(self, session_id: str | None) -> None:
        """Close an episode's game, if there is one. The result of a last step that has a name is kept until ``/close``."""
        session: _Session | None = self.session_state.get(session_id)
        if session is not None and session.request is None:
            self._forget(session_id, session)
        elif session is not None:
            session.close()

    async def _end(self, session_id: str | None) -> None:
        session: _Session | None = self.session_state.get(session_id)
        if session is not None:
            async with session.lock:
                self._forget(session_id, session)

    async def _close(self, request: Request) -> dict[str, Any]:
        await self._end(request.session.get(SESSION_ID_KEY))
        return {}

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the means of `METRICS`, which NeMo Gym does not look for in ``info``.

        Args:
            tasks: For each level its episodes.
        """
        infos = [episode["info"] for episodes in tasks for episode in episodes]
        return {f"mean/{name}": fmean(info[name] for info in infos) for name in METRICS} if infos else {}
