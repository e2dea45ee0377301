"""MCP's streamable HTTP at ``/mcp``, beside OpenEnv's JSON-RPC, for clients of the packages mcp and fastmcp. Extra: ``openenv``.

The package mcp answers the protocol, and counts and ends its sessions. The tools of a session of MCP are those of a session of
OpenEnv, which the first of its calls begins: so OpenEnv's limits on games hold for both.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio
import httpx
from fastapi import FastAPI
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import McpError
from mcp.types import INTERNAL_ERROR, PARSE_ERROR, CallToolResult, ErrorData, TextContent, Tool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from gym_text.spec import TextSpec
from gym_text_policies.bridges.serving import Limits, Message

_OPENENV = "http://127.0.0.1/mcp"
"""Where OpenEnv's JSON-RPC is; the requests do not leave the process."""
_UNKNOWN_SESSION = "Unknown session_id"
"""How OpenEnv's error begins if there is no such session."""


class _Game:
    """The session of OpenEnv behind a session of MCP. OpenEnv ends it if no tool is called for long; the next call begins one."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._id: str | None = None
        self._lock = anyio.Lock()

    async def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a method of OpenEnv's JSON-RPC.

        Raises:
            McpError: If OpenEnv answers with an error, as it does if all its sessions are in use.
        """
        for _ in range(2):
            session = await self._session()
            if (result := await self._post(method, session_id=session, **params)) is not None:
                return result
            if self._id == session:
                self._id = None
        raise McpError(ErrorData(code=INTERNAL_ERROR, message="OpenEnv does not know the session that it has just begun."))

    async def close(self) -> None:
        """End the session, and close its game, unless OpenEnv has done so."""
        session, self._id = self._id, None
        if session is not None:
            await self._post("openenv/session/close", session_id=session)

    async def _session(self) -> str:
        async with self._lock:
            if self._id is None:
                with anyio.CancelScope(shield=True):  # half a session would stay
                    self._id = str((await self._post("openenv/session/create"))["session_id"])
            assert self._id is not None
            return self._id

    async def _post(self, method: str, **params: Any) -> Any:
        """Return the result; None if OpenEnv has no such session, as when it has ended one that was idle."""
        answer = await self._client.post(_OPENENV, json={"jsonrpc": "2.0", "id": 0, "method": method, "params": params})
        reply = answer.raise_for_status().json()
        if "error" not in reply:
            return reply["result"]
        error = ErrorData.model_validate(reply["error"])
        if error.message.startswith(_UNKNOWN_SESSION):
            return None
        raise McpError(error)


def _server_of(name: str, spec: TextSpec, client: httpx.AsyncClient) -> Any:
    """Return MCP's server of an environment; each of its sessions has a `_Game`."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[_Game]:
        game = _Game(client)
        try:
            yield game
        finally:
            with anyio.CancelScope(shield=True):
                await game.close()

    instructions = f"{spec.goal}\n\nThe actions:\n{spec.describe_actions()}"
    server = Server(name, version("gym-text"), instructions, lifespan=lifespan)

    async def list_tools() -> list[Any]:
        tools = (await server.request_context.lifespan_context.ask("tools/list"))["tools"]
        return [Tool(**{key: tool[key] for key in ("name", "description", "inputSchema")}) for tool in tools]

    async def call_tool(tool: str, arguments: dict[str, Any]) -> Any:
        result = await server.request_context.lifespan_context.ask("tools/call", name=tool, arguments=arguments)
        return CallToolResult(content=[TextContent(type="text", text=part["text"]) for part in result["content"]])

    server.list_tools()(list_tools)
    server.call_tool()(call_tool)
    return server


class _Transport:
    """MCP's streamable HTTP as an ASGI application, which serves while `run` does."""

    _manager: Any

    @asynccontextmanager
    async def run(self, server: Any, limits: Limits) -> AsyncIterator[None]:
        self._manager = StreamableHTTPSessionManager(
            server,
            json_response=True,
            session_idle_timeout=limits.idle_seconds,
            max_request_body_size=limits.max_bytes,
            max_sessions=limits.max_sessions,
        )
        async with self._manager.run():
            yield

    async def __call__(self, scope: Message, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        await self._manager.handle_request(scope, receive, send)


class _McpMiddleware:
    """ASGI middleware that gives the requests to ``/mcp`` that speak MCP to MCP's application, and all others to OpenEnv's."""

    def __init__(self, app: Callable[..., Any], mcp: Callable[..., Any]) -> None:
        self._app = app
        self._mcp = mcp

    async def __call__(self, scope: Message, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        """Serve one request. A body that is no JSON gets the status 400."""
        if scope["type"] != "http" or scope["path"].rstrip("/") != "/mcp" or scope["method"] not in ("POST", "DELETE"):
            await self._app(scope, receive, send)  # the status of GET is 405: the server sends nothing by itself
            return
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        if request.method == "POST" and (error := _json_error(body)):
            reply = {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": error}}
            await JSONResponse(reply, 400)(scope, receive, send)
            return
        first: Message | None = {"type": "http.request", "body": body}

        async def again() -> Message:
            nonlocal first
            message, first = first, None
            return message or await receive()

        await (self._mcp if _speaks_mcp(request) else self._app)(scope, again, send)


def _json_error(body: bytes) -> str | None:
    """Return what is wrong with a body that should be JSON."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return f"body: expected a message of JSON-RPC; got no JSON ({str(error)[:80]})."
    return None


def _speaks_mcp(request: Request) -> bool:
    """Whether a client of MCP sent the request: it must accept both kinds of answers, and name the version and the session."""
    headers = request.headers
    named = "mcp-session-id" in headers or "mcp-protocol-version" in headers
    return named or request.method == "DELETE" or "text/event-stream" in headers.get("accept", "")


def add_mcp(app: FastAPI, name: str, spec: TextSpec, limits: Limits) -> None:
    """Let clients of MCP play over ``/mcp`` of OpenEnv's application.

    Args:
        app: OpenEnv's application.
        name: The environment's id.
        spec: The environment's description for players.
        limits: The limits on sessions and their messages.
    """
    transport, openenvs_lifespan = _Transport(), app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[Any]:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app))
        async with openenvs_lifespan(app) as state, client, transport.run(_server_of(name, spec, client), limits):
            yield state

    app.router.lifespan_context = lifespan
    app.add_middleware(_McpMiddleware, mcp=transport)
