"""Bounds of every request, in bytes and in time, and addresses that are none."""

import contextlib
import gzip
import json
import threading
import time

import pytest
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text_policies import PolicyError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.connection import MOST_BYTES, check_url

QUESTION = Request(({"role": "user", "content": "A red ball."},))
PROVIDERS = ["openai", "ollama"]


@pytest.fixture
def ask(monkeypatch):
    """Return a function that gives a provider's answer to a question, after faults of its server."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with running(ProviderServer()) as server:

        def ask(provider, *faults, **options):
            server.faults.extend(faults)
            url = server.url + ("/v1" if provider == "openai" else "")
            with contextlib.closing(load_backend(f"{provider}:m", base_url=url, **({"retries": 0} | options))) as backend:
                return backend.answer([QUESTION])[0]

        ask.server = server
        yield ask


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("drip", ["\n", "X-Wait: a while\r\n"])
def test_a_server_that_drips_does_not_outlast_the_timeout(ask, provider, drip):
    start = time.monotonic()
    with pytest.raises(PolicyError, match=r"no answer within 1\.5 s"):
        ask(provider, Fault(drip=drip), timeout=1.5)
    assert time.monotonic() - start < 30, "the server drips for a minute"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_is_too_long_is_not_read_to_its_end(ask, provider):
    with pytest.raises(PolicyError, match="at most 16,777,216 bytes; the server sends more"):
        ask(provider, Fault(200, " " * (2 * MOST_BYTES)))
    with pytest.raises(PolicyError, match="at most 16,777,216 bytes; the server sends more"):
        ask(provider, Fault(500, " " * (2 * MOST_BYTES)))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", [200, 500])
def test_a_packed_answer_is_not_unpacked(ask, provider, status):
    bomb = gzip.compress(b" " * 10**7)
    with pytest.raises(PolicyError, match="expected an uncompressed answer"):
        ask(provider, Fault(status, bomb, {"Content-Encoding": "gzip"}))
    headers = {name.lower(): value for name, value in ask.server.requests[-1][1].items()}
    assert headers["accept-encoding"] == "identity"


def test_calls_leave_no_threads(ask):
    before = threading.active_count()
    for _ in range(5):
        assert ask("openai").text == "go forward"
    assert threading.active_count() <= before + 1


def test_a_server_at_an_address_of_other_words_is_asked_there(ask):
    with contextlib.closing(load_backend("openai:m", base_url=f"{ask.server.url}/beta/openai", retries=0)) as backend:
        ask.server.faults.append(Fault(404, json.dumps({"detail": "no"})))
        with pytest.raises(PolicyError, match="404"):
            backend.answer([QUESTION])
    assert ask.server.requests[0][0] == "/beta/openai/chat/completions"


@pytest.mark.parametrize("url", [5, {}, b"http://a", "http://[::1", "http://a:b/v1", "http://a:99999", "ftp://a", "http://", ""])
def test_what_is_no_address_is_one_sentence(url):
    with pytest.raises(UsageError, match="base_url: expected an address such as"):
        check_url(url)


def test_no_password_is_shown_of_an_address_that_is_none():
    with pytest.raises(UsageError) as caught:
        check_url("http://me:pass1234@host:port/v1")
    assert "pass1234" not in str(caught.value)
