"""The tools by which an agent plays a session of OpenEnv's server over MCP: ``begin`` and ``act``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastmcp import Client, FastMCP

from gym_text.spec import TextSpec

_BEGIN = "Begin a game, and return its task, what you perceive, and the possible actions. Equal splits and seeds are equal games."
_ACT = "Take one action of the game by its name, and return what you perceive then, and the possible actions."


def tools_of(
    name: str, spec: TextSpec, begin: Callable[[int | None, str | None], str], act: Callable[[str], str]
) -> Client[object]:
    """Return a client of a server with the two tools.

    Args:
        name: The environment's id.
        spec: The environment's description for players.
        begin: Begins an episode with a seed, of a split, and returns what an agent is told.
        act: Plays an action by its name, and returns what an agent is told.
    """
    server: FastMCP[object] = FastMCP(name, instructions=f"{spec.goal}\n\nThe actions:\n{spec.describe_actions()}")

    async def begin_(seed: int | None = None, split: str | None = None) -> str:
        return await asyncio.to_thread(begin, seed, split)

    async def act_(action: str) -> str:
        return await asyncio.to_thread(act, action)

    server.tool(begin_, name="begin", description=_BEGIN)
    server.tool(act_, name="act", description=_ACT)
    return Client(server)
