"""A key goes to its provider's own host, or where the environment, the command line or Python says; no file sends it elsewhere."""

import contextlib
import json

import pytest
from provider_server import ProviderServer, running

from gym_text import UsageError
from gym_text_policies import cli
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.keys import without_foreign_keys
from gym_text_policies.backends.providers.remote import RemoteBackend
from gym_text_policies.settings.yaml_nodes import parse_yaml

KEY = "sk-of-this-user-0123456789"
SECRET = "a-cloud-secret-0123456789"
FILE = """
experiment: {episodes: 1, verbose: false, parent: runs, name: one}
environment: {name: BabyAIText-v0, kwargs: {max_episode_steps: 2}}
agent: {model: 'MODEL', options: OPTIONS}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder; keys and a secret in the environment; models that commands have made are closed."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"OPENAI_API_KEY": KEY, "OLLAMA_API_KEY": KEY, "TENSORZERO_API_KEY": KEY, "CLOUD_SECRET": SECRET}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    init = RemoteBackend.__init__
    with contextlib.ExitStack() as stack:

        def closed_later(backend, *given, **options):
            init(backend, *given, **options)
            stack.callback(lambda: backend.close())

        monkeypatch.setattr(RemoteBackend, "__init__", closed_later)
        yield tmp_path


def asked(folder, model, options, *words):
    """Run the experiment of a file; return its exit status and the authorisations that the server has seen."""
    with running(ProviderServer()) as server:
        options = json.dumps(options).replace("URL", server.url)
        (folder / "file.yaml").write_text(FILE.replace("MODEL", model).replace("OPTIONS", options))
        status = cli.main(["run", "file.yaml", *(word.replace("URL", server.url) for word in words)])
    return status, authorisations(server)


def authorisations(server):
    """Return what a server has been given as authorisation."""
    named = [{name.lower(): value for name, value in headers.items()} for _, headers, _ in server.requests]
    return {headers.get("authorization") for headers in named}


@pytest.mark.parametrize(("model", "path"), [("openai:m", "/v1"), ("ollama:m", "")])
def test_a_server_that_only_a_file_names_is_asked_without_a_key(folder, caplog, model, path):
    assert asked(folder, model, {"base_url": f"URL{path}"}) == (0, {"Bearer none"})
    assert "file.yaml, line 4: no key is sent to 127.0.0.1" in caplog.text and "--set or --options" in caplog.text
    words = ("--set", "experiment.name=two", f"agent.options.base_url=URL{path}")
    assert asked(folder, model, {}, *words) == (0, {f"Bearer {KEY}"}), "the command line names the server"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base_url": "URL/v1", "key_variable": "CLOUD_SECRET"}, ()),
        ({"key_variable": "CLOUD_SECRET"}, ("--set", "agent.options.base_url=URL/v1")),
        ({"base_url": "URL/v1"}, ("--set", "agent.options.key_variable=CLOUD_SECRET")),
    ],
)
def test_a_file_cannot_send_a_key_that_does_not_belong_to_the_server(folder, caplog, options, words):
    assert asked(folder, "openai:m", options, *words) == (0, {"Bearer none"})
    assert "no key is sent to 127.0.0.1" in caplog.text and SECRET not in caplog.text


def kept(settings):
    """Return the variable whose key goes along when a file has these settings."""
    checked = without_foreign_keys(parse_yaml(json.dumps(settings), "file.yaml").value)
    return {name: node.plain() for name, node in checked.items()}["options"].get("key_variable", "its own")


@pytest.mark.parametrize(
    ("address", "environment", "variable"),
    [
        ("https://api.openai.com/v1", "", "its own"),
        ("https://API.openai.com:443/v1", "", "its own"),
        ("https://llm.example.org/v1", "https://llm.example.org/v1", "its own"),
        ("http://llm.example.org/v1", "https://llm.example.org/v1", None),
        ("http://api.openai.com/v1", "", None),
        (r"https://evil.example\@api.openai.com/v1", "", None),
        ("https://api.openai.com@evil.example/v1", "", None),
        ("https://evil.example#@api.openai.com/v1", "", None),
        ("https://api.openai.com.evil.example/v1", "", None),
        ("https://evil.example/api.openai.com", "", None),
        ("https://api.openai.com\n.evil.example/v1", "", None),
        (["https://api.openai.com/v1", "http://127.0.0.1:9/v1"], "", None),
        (5, "", None),
    ],
)
def test_an_address_that_only_looks_like_a_providers_gets_no_key(monkeypatch, address, environment, variable):
    monkeypatch.setenv("OPENAI_BASE_URL", environment)
    assert kept({"model": "openai:m", "options": {"base_url": address}}) == variable


def test_each_provider_has_its_own_key_and_host():
    assert kept({"model": "openai:m", "options": {"key_variable": "CLOUD_SECRET"}}) is None
    gemini = {"base_url": "https://generativelanguage.googleapis.com/v1beta/openai", "key_variable": "GEMINI_API_KEY"}
    assert kept({"backend": "openai", "model": "m", "options": gemini}) == "GEMINI_API_KEY"
    assert kept({"model": "tensorzero:f", "options": {"base_url": "http://127.0.0.1:9"}}) is None
    with pytest.raises(UsageError, match=r"^file.yaml, line 1: config_file: expected it on the command line"):
        kept({"model": "tensorzero:f", "options": {"config_file": "t.toml"}})


def test_rows_of_a_table_and_searches_keep_keys_as_well(folder, capsys):
    with running(ProviderServer(text="p1 = 1, p2 = 1, p3 = 0")) as server:
        address = f"base_url: '{server.url}/v1'"
        (folder / "rows.yaml").write_text(f"row: {{model: 'openai:m', mode: text, episodes: 1, {address}}}\n")
        words = ["--environments", "BabyAIText-v0?max_episode_steps=2", "--folder", "runs/b", "--baselines", "none"]
        assert cli.main(["bench", "--plan", "rows.yaml", *words]) == 0, capsys.readouterr().err
        search = f"evaluations: 1\nnum_rollouts: 1\nmodel: 'openai:m'\noptions: {{{address}}}\n"
        (folder / "search.yaml").write_text(search)
        assert cli.main(["search", "search.yaml", "--folder", "runs/s"]) == 0, capsys.readouterr().err
    assert authorisations(server) == {"Bearer none"}


def test_what_a_python_caller_names_gets_the_key():
    with running(ProviderServer()) as server:
        backend = load_backend("openai:m", base_url=f"{server.url}/v1", key_variable="CLOUD_SECRET", retries=0)
        backend.answer([Request(({"role": "user", "content": "Which action?"},))])
    assert authorisations(server) == {f"Bearer {SECRET}"}
