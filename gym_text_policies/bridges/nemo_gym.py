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
from resources_servers.gymnasium import GymnasiumServer, extract_text

from gym_text.errors import UsageError
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.bridges.levels import game_of

_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}
Reply = tuple[str | None, float, bool, bool, dict[str, Any]]
"""What a step returns: observation or None, reward, terminated, truncated, info."""


class GymTextConfig(BaseResourcesServerConfig):  # type: ignore[misc, unused-ignore]
    """The server's settings, beside NeMo Gym's own."""

    imports: tuple[str, ...] = ()
    """Modules whose environments a row may name beside those that ship."""


@dataclass
class _Session:
    game: Conversation
    request: str | None = None
    """Names the last step; the agent that sends a step again, because no answer came, sends the same name."""
    reply: Reply | None = None
    """What this step returned."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class GymTextServer(GymnasiumServer):
    """Plays levels in which the model answers in words. `gym_text_policies.answers` has the rule for bad answers.

    A step that the agent sends twice is played once: each step has a name, under which its result is kept until the next step, or
    until ``/close``.
    """

    config: GymTextConfig
    ray_enabled = False

    def setup_webserver(self) -> FastAPI:
        """Return the app, with ``/close``: the agent calls it after each episode, whatever ended it."""
        app: FastAPI = super().setup_webserver()
        app.post("/close")(self._close)
        return app

    async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the level of a row, and return the first observation.

        Args:
            metadata: The row's columns.
            session_id: Names the episode.
        """
        await self.close_session(session_id)
        try:
            game, seed = game_of(metadata, imports=self.config.imports)
            await asyncio.to_thread(game.begin, seed)
        except UsageError as error:
            raise HTTPException(422, str(error)) from error
        self.session_state[session_id] = _Session(game)
        return game.messages()[1], {"supports_explicit_close": True, "supports_step_idempotency": True}

    async def step(self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None) -> Reply:
        """Play the action that an answer names; the reward is that of the step.

        Args:
            action: The model's answer.
            metadata: The row's columns, and the name of the step.
            session_id: Names the episode.
        """
        session: _Session | None = self.session_state.get(session_id)
        if session is None:
            raise HTTPException(409, "expected an episode that goes on; this session has none. Begin one by /reset.")
        request = metadata.get("_ng_step_request_id")
        async with session.lock:
            if session.reply is None or request is None or request != session.request:
                session.request, session.reply = request, await self._play(session.game, action)
            return session.reply

    async def _play(self, game: Conversation, action: NeMoGymResponse) -> Reply:
        cut = action.incomplete_details
        finish = _FINISH.get(cut.reason or "") if cut else None
        text = await asyncio.to_thread(game.play, extract_text(action), finish=finish)
        info = {**game.metrics, "end": game.end}
        over = game.end is not None
        return None if over else text, game.reward, over and not game.truncated, game.truncated, info

    async def close_session(self, session_id: str | None) -> None:
        """Close an episode's game, if there is one. The result of its last step is kept until ``/close``."""
        if session := self.session_state.get(session_id):
            await asyncio.to_thread(session.game.close)

    async def _close(self, request: Request) -> dict[str, Any]:
        session_id = request.session.get(SESSION_ID_KEY)
        await self.close_session(session_id)
        self.session_state.pop(session_id, None)
        return {}

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the means of success, steps and unusable answers, which NeMo Gym does not look for in ``info``.

        Args:
            tasks: For each level its episodes.
        """
        infos = [episode["info"] for episodes in tasks for episode in episodes]
        return {f"mean/{name}": fmean(info[name] for info in infos) for name in ("success", "steps", "unusable")} if infos else {}
