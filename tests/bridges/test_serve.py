"""`gym-text serve` and its door, where OpenEnv is not needed; ``tests/libraries/test_openenv.py`` has the rest."""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time

import pytest

from gym_text import UsageError
from gym_text_policies.bridges.serving import EXAMPLES, Limits, message_error, serving
from gym_text_policies.commands.serve import ServeConfig


def test_what_an_error_names_as_an_example_may_pass():
    assert [message_error(text) for kind, text in EXAMPLES.items() if kind != "mcp"] == [None] * 4
    assert message_error(json.dumps({"type": "step", "data": {"action": "say \U0001f600", "metadata": {}}})) is None


@pytest.mark.parametrize(
    "raw", [None, "", "{", "[" * 60_000, "9" * 6_000, "7", '"step"', "[]", "{}", '{"type": {}}', '{"type": "step"}']
)
def test_an_error_says_what_was_expected_and_what_came_in_few_words(raw):
    code, message = message_error(raw)
    assert code in ("INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR")
    assert "expected" in message and "got" in message and len(message) < 400


def test_no_depth_of_nesting_gets_past_the_door_unanswered():
    for depth in range(1, 1200):
        answer = message_error('{"type": "reset", "data": {"seed": ' + "[" * depth + "]" * depth + "}}")
        assert answer is None or "expected" in answer[1]


@pytest.mark.parametrize(
    "wrong", [{"port": 70_000}, {"max_sessions": 0}, {"max_bytes": 10}, {"idle_seconds": 0}, {"idle_seconds": float("nan")}]
)
def test_a_limit_out_of_range_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(UsageError, match=f"{name}: expected"):
        ServeConfig("BabyAIText-v0", **wrong)


def test_the_default_is_this_machine_alone():
    assert (ServeConfig("BabyAIText-v0").host, ServeConfig("BabyAIText-v0").limits) == ("127.0.0.1", Limits())


def test_without_openenv_the_command_says_how_to_install_it():
    script = "import sys; sys.modules['openenv'] = None; from gym_text_policies import cli\n"
    script += "sys.exit(cli.main(['serve', 'BabyAIText-v0']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (1, "gym-text: 'openenv' is not installed. Run: pip install 'gym-text[openenv]'\n")


@contextlib.contextmanager
def open_door(**limits):
    """Serve an application that says how long each body was; yield its port."""
    fastapi = pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    app = fastapi.FastAPI()
    app.state.limits = Limits(**limits)

    @app.post("/length")
    async def length(request: fastapi.Request):
        return len(await request.body())

    with serving(app) as url:
        yield int(url.rpartition(":")[2])


def told(client):
    """Return all that a server sends until it ends the connection."""
    client.settimeout(60)
    return b"".join(iter(lambda: client.recv(4096), b"")).decode()


HEADERS = b"POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n"


@pytest.mark.parametrize("sent", [b"", HEADERS[:30], HEADERS, HEADERS + b"\r\nab"], ids=["nothing", "a line", "headers", "a body"])
def test_a_request_of_which_a_part_comes_is_ended_in_time(sent):
    with open_door(request_seconds=0.5) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(sent)
        answer = told(client)
    assert answer.startswith("HTTP/1.1 408") and "request: expected all of it within 0.5 seconds" in answer


def test_a_request_that_drips_is_ended_in_time_and_others_are_answered_meanwhile():
    with open_door(request_seconds=1) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        other = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with pytest.raises(OSError, match=r"reset|pipe|aborted"):
            for byte in HEADERS * 100:
                slow.sendall(bytes([byte]))
                other.request("POST", "/length", b"abcd")  # one connection serves all of these
                assert other.getresponse().read() == b"4"
                time.sleep(0.05)
        other.close()
