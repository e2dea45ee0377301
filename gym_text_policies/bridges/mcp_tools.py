"""The tools by which an agent plays a session of OpenEnv's server: ``begin`` and ``act``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError

from gym_text.errors import GymTextError

_BEGIN = "Begin a game, and return its task, what you perceive, and the possible actions. Equal splits and seeds are equal games."
_ACT = "Take one action of the game by its name, and return what you perceive then, and the possible actions."


def tools_of(begin: Callable[[int | None, str | None], str], act: Callable[[str], str]) -> Client[object]:
    """Return a client of a server with the two tools.

    Args:
        begin: Begins an episode with a seed, of a split, and returns what an agent is told.
        act: Plays an action by its name, and returns what an agent is told.
    """
    server: FastMCP[object] = FastMCP()

    async def begin_(seed: int | None = None, split: str | None = None) -> str:
        return await _in_thread(begin, seed, split)

    async def act_(action: str) -> str:
        return await _in_thread(act, action)

    server.tool(begin_, name="begin", description=_BEGIN)
    server.tool(act_, name="act", description=_ACT)
    return Client(server)


async def _in_thread(play: Callable[..., str], *arguments: object) -> str:
    """Return the result of a call. An error in words is for the agent alone; fastmcp logs all others."""
    try:
        return await asyncio.to_thread(play, *arguments)
    except GymTextError as error:
        raise ToolError(str(error), log_level=logging.DEBUG) from error
