"""A provider's test server, and backends of it."""

import contextlib

import pytest
from provider_server import ProviderServer, running

from gym_text_policies.backends.load import load_backend

KEY = "sk-1234567890-very-secret"


@pytest.fixture
def server(monkeypatch):
    """Return a provider that has answered nothing yet; keys and addresses of the environment do not count."""
    for name in ("OPENAI_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "OLLAMA_API_KEY", "TENSORZERO_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setattr("gym_text_policies.backends.providers.remote._BACKOFF", 0.01)
    with running(ProviderServer()) as server:
        yield server


@pytest.fixture
def backend_of():
    """Return a function that makes a backend of a server and a provider, by default without retries."""
    with contextlib.ExitStack() as stack:

        def make(server, provider="openai", /, **options):
            url = f"{server.url}/v1" if provider == "openai" else server.url
            backend = load_backend(f"{provider}:m", **{"base_url": url, "retries": 0} | options)
            return stack.enter_context(contextlib.closing(backend))

        yield make
