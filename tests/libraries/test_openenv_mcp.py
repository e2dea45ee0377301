"""The served environment for clients of MCP: the official package's and fastmcp's, over streamable HTTP."""

import asyncio
import http.client
import json
import time
from contextlib import asynccontextmanager

import gymnasium as gym
import pytest
import requests
from fastmcp import Client
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from openenv.core.mcp_client import MCPToolClient
from websockets.sync.client import connect

from gym_text_policies.bridges.openenv import create_app
from gym_text_policies.bridges.serving import Limits, serving
from gym_text_policies.commands.serve import app_of
from gym_text_policies.environments import environment_maker

GOTO = "BabyAIText-v0?task=goto"
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
INITIALIZE = {
    **{"jsonrpc": "2.0", "id": 0, "method": "initialize"},
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
BEGIN = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "begin", "arguments": {"seed": 0}}}


@pytest.fixture(scope="module")
def goto():
    with serving(app_of(GOTO)) as url:
        yield url


@pytest.fixture
def closed():
    """The games that were closed, each noted when it is."""
    return []


def noting(closed, limits=None):
    """Return an application whose games note when they are closed."""

    class Noted(gym.Wrapper):
        def close(self):
            closed.append(self)
            super().close()

    app = create_app(lambda split: Noted(environment_maker(GOTO)()), splits=(), limits=limits)
    closed.clear()  # the one that was asked for its words
    return app


def within_a_minute(condition):
    end = time.monotonic() + 60
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    assert met


def post(url, message, **headers):
    body = message if isinstance(message, str | bytes) else json.dumps(message)
    return requests.post(f"{url}/mcp", data=body, headers=HEADERS | headers, timeout=60)


def session_at(url, *messages):
    """Begin a session by hand, send messages, and return the header that names the session."""
    answer = post(url, INITIALIZE)
    assert answer.status_code == 200, answer.text
    named = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
    for message in ({"jsonrpc": "2.0", "method": "notifications/initialized"}, *messages):
        assert post(url, message, **named).status_code in (200, 202)
    return named


@asynccontextmanager
async def official(url):
    """The official package's client, as a function from a tool and its arguments to the text and whether it is an error."""
    async with streamable_http_client(f"{url}/mcp") as (read, write, _), ClientSession(read, write) as session:
        told = await session.initialize()
        assert told.serverInfo.name == "BabyAIText-v0" and "go forward" in told.instructions

        async def call(tool, **arguments):
            result = await session.call_tool(tool, arguments)
            return result.content[0].text, result.isError

        yield call, [tool.name for tool in (await session.list_tools()).tools]


@asynccontextmanager
async def fastmcps(url):
    """The same of fastmcp's client."""
    async with Client(f"{url}/mcp") as client:

        async def call(tool, **arguments):
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return result.content[0].text, result.is_error

        yield call, [tool.name for tool in await client.list_tools()]


@pytest.mark.parametrize("client", [official, fastmcps])
def test_an_agent_wins_with_a_client_of_mcp_and_its_game_is_closed_when_it_leaves(client, closed):
    with environment_maker(GOTO)() as env:
        _, info = env.reset(seed=3)

    async def play(url):
        async with client(url) as (call, tools):
            assert tools == ["begin", "act"]
            told = [await call("begin", seed=3), *[await call("act", action=action) for action in info["gold_path"]]]
            assert closed == []
            return told

    with serving(noting(closed)) as url:
        told = asyncio.run(play(url))
        within_a_minute(lambda: len(closed) == 1)
    assert told[0][0].startswith("Task: go to") and told[0][0].endswith("- toggle") and len(told) > 2
    assert "The game is over: you have done the task. Score: 0." in told[-1][0] and not any(error for _, error in told)


@pytest.mark.parametrize("client", [official, fastmcps])
def test_what_an_agent_does_wrong_is_told_in_words(goto, client):
    async def play():
        async with client(goto) as (call, _):
            early, split = await call("act", action="drop"), await call("begin", seed=3, split="tests")
            await call("begin", seed=3, split="test")
            return early, split, await call("act", action="fly"), await call("act"), await call("sing")

    early, split, fly, nothing, sing = asyncio.run(play())
    assert early == ("step: expected an episode; there is none. Begin one, over the same connection to /ws or /mcp.", True)
    assert split == ("split: expected one of 'train', 'dev', 'test'; got 'tests'. Did you mean 'test'?", True)
    assert fly[0].startswith("That cannot be used") and not fly[1]
    assert nothing[1] and "'action' is a required property" in nothing[0] and sing[1] and "sing" in sing[0]


def test_clients_of_mcp_and_of_openenv_play_their_own_games_at_once(goto):
    async def play():
        async with official(goto) as (one, _), fastmcps(goto) as (two, _), MCPToolClient(base_url=goto) as three:
            assert [tool.name for tool in await three.list_tools()] == ["begin", "act"]
            begun = await asyncio.gather(one("begin", seed=0), two("begin", seed=1), three.call_tool("begin", seed=2))
            left = {"action": "turn left"}
            turned = await asyncio.gather(one("act", **left), two("act", **left), three.call_tool("act", **left))
            return [begun[0][0], begun[1][0], begun[2]], [turned[0][0], turned[1][0], turned[2]]

    for seed, (first, second) in enumerate(zip(*asyncio.run(play()), strict=True)):
        with environment_maker(GOTO)() as env:
            assert env.reset(seed=seed)[0]["text"] in first and env.step(0)[0]["text"] in second


@pytest.mark.parametrize(
    ("message", "headers", "status", "words"),
    [
        (LIST, {"mcp-session-id": "nobody"}, 404, "Session not found"),
        (LIST, {}, 400, "Missing session ID"),
        ("", {}, 400, "expected a message of JSON-RPC"),
        ("{", {"mcp-session-id": "nobody"}, 400, "expected a message of JSON-RPC"),
        ("[" * 60_000, {}, 400, "expected a message of JSON-RPC"),
        ("9" * 6_000, {}, 400, "expected a message of JSON-RPC"),
        ('{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', {"accept": "*/*"}, 400, "expected a message of JSON-RPC"),
        ([LIST], {}, 400, "validation error"),
        ({"method": "initialize"}, {}, 400, "validation error"),
        (INITIALIZE, {"content-type": "text/plain"}, 400, "Content-Type"),
    ],
)
def test_a_request_that_breaks_the_protocol_gets_the_specifications_status(goto, message, headers, status, words):
    answer = post(goto, message, **headers)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    if not isinstance(message, str) and status == 400:  # what was begun for it is gone
        left = answer.headers.get("mcp-session-id", "nobody")
        assert post(goto, LIST, **{"mcp-session-id": left}).status_code == 404


def test_a_connection_outlasts_the_five_seconds_for_which_httpx_keeps_it(goto):
    connection = http.client.HTTPConnection(goto.removeprefix("http://"), timeout=60)
    for pause in (0, 6):
        time.sleep(pause)
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"healthy"}'
    connection.close()


def test_a_session_lives_from_initialize_to_delete(goto):
    named = session_at(goto, LIST)
    assert post(goto, LIST, **named, origin="http://localhost:6274").status_code == 200
    wrong = post(goto, LIST, **named | {"mcp-protocol-version": "1999-01-01"})
    assert wrong.status_code == 400 and "Unsupported protocol version" in wrong.text
    assert requests.get(f"{goto}/mcp", headers=HEADERS | named, timeout=60).status_code == 405
    assert requests.delete(f"{goto}/mcp", timeout=60).status_code == 400
    assert requests.delete(f"{goto}/mcp", headers=named, timeout=60).status_code == 200
    assert post(goto, LIST, **named).status_code == 404


def test_a_version_that_the_server_does_not_know_is_answered_by_one_that_it_knows(goto):
    old = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "1999-01-01"}}
    assert post(goto, old).json()["result"]["protocolVersion"] == "2025-11-25"
    assert post(goto, INITIALIZE).json()["result"]["protocolVersion"] == "2025-06-18"


def test_all_sessions_together_are_limited():
    async def lists(url):
        async with streamable_http_client(f"{url}/mcp") as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            with pytest.raises(McpError, match="1/1 sessions"):
                await session.list_tools()

    with serving(app_of(GOTO, Limits(max_sessions=1))) as url:
        with connect(url.replace("http", "ws") + "/ws") as wire:
            wire.send('{"type": "reset"}')
            wire.recv(timeout=60)
            asyncio.run(lists(url))
        within_a_minute(lambda: post(url, INITIALIZE).status_code == 200)
        refused = post(url, INITIALIZE)
        assert refused.status_code == 503 and "Too many open sessions" in refused.text


def test_a_session_that_is_idle_ends_and_its_game_is_closed(closed):
    with serving(noting(closed, Limits(idle_seconds=1))) as url:
        named = session_at(url, BEGIN)
        assert closed == []
        within_a_minute(lambda: len(closed) == 1)
        assert post(url, LIST, **named).status_code == 404


def test_a_session_that_only_pings_loses_its_game_and_can_begin_another(closed):
    with serving(noting(closed, Limits(max_sessions=1, idle_seconds=2))) as url:
        named, ping = session_at(url, BEGIN), {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        within_a_minute(lambda: post(url, ping, **named).json()["result"] == {} and len(closed) == 1)
        act = {**BEGIN, "params": {"name": "act", "arguments": {"action": "drop"}}}
        lost, again = post(url, act, **named).json()["result"], post(url, BEGIN, **named).json()["result"]
        assert lost["isError"] and "there is none" in lost["content"][0]["text"] and not again["isError"]


def test_a_client_may_leave_after_its_game_was_closed_because_it_only_pinged(closed, caplog):
    with serving(noting(closed, Limits(idle_seconds=2))) as url:
        named, ping = session_at(url, BEGIN), {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        within_a_minute(lambda: post(url, ping, **named).json()["result"] == {} and len(closed) == 1)
        assert requests.delete(f"{url}/mcp", headers=named, timeout=60).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


def test_the_games_of_a_server_that_ends_are_closed(closed):
    with serving(noting(closed)) as url:
        session_at(url, BEGIN)
        assert closed == []
    assert len(closed) == 1
