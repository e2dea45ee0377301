"""Keys and passwords are kept out of all that is written."""

import contextlib
import json

import gymnasium as gym
import pytest
from provider_server import Fault, ProviderServer, running

from gym_text_policies import EpisodeStore, LLMPolicy, PolicyError, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.files.redaction import hide_keys, without_keys, without_secrets
from gym_text_policies.policy import text_spec

PLANTED = "sk-planted-0123456789"


def test_a_text_that_only_looks_like_an_address_is_kept():
    for text in ("http://[a@b", "see http://a.b/c or write to me@x.y", "://@"):
        assert without_secrets(text).endswith(text.rpartition("@")[2])


def test_secrets_are_not_kept(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", PLANTED)
    data = {"base_url": "https://me:pass@host:80/v1", "extra": {"Authorization": "x y"}, "max_tokens": 5, "note": f"a {PLANTED}"}
    kept = without_secrets(data)
    assert kept == {
        "base_url": "https://host:80/v1",
        "extra": {"Authorization": "(not kept)"},
        "max_tokens": 5,
        "note": "a (not kept)",
    }


@pytest.mark.parametrize(
    "name", [*("KEY_2", "PGPASSWORD", "GITHUB_PAT", "AWS_SECRET_ACCESS_KEY", "openai_api_key", "APP_CREDENTIALS")]
)
def test_values_of_variables_named_like_a_secret_are_hidden(monkeypatch, name):
    monkeypatch.setenv(name, PLANTED)
    assert hide_keys(f"a {PLANTED} b") == "a (not kept) b"


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("SOME_PLACE", PLANTED), ("PWD", "/home/somebody"), ("HF_TOKEN_PATH", "/home/somebody/token"), ("SOME_KEY", "seven__"))],
)
def test_other_values_and_short_ones_are_not(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert hide_keys(f"a {value} b") == f"a {value} b"


def test_of_two_keys_the_longer_one_is_hidden_whole(monkeypatch):
    monkeypatch.setenv("A_KEY", PLANTED)
    monkeypatch.setenv("B_KEY", f"{PLANTED}-and-more")
    assert hide_keys(f"{PLANTED}-and-more {PLANTED}") == "(not kept) (not kept)"


def test_a_record_keeps_the_name_by_which_it_is_found(monkeypatch):
    monkeypatch.setenv("PIN_TOKEN", "12345678")
    record = {"key": "0123456789", "seed": 12345678, "steps": [{"text": "say 12345678", "12345678": ("12345678",)}]}
    hidden = {"text": "say (not kept)", "(not kept)": ["(not kept)"]}
    assert without_keys(record) == {"key": "0123456789", "seed": 12345678, "steps": [hidden]}
    monkeypatch.setenv("ODD_TOKEN", 'a "quoted" \\ one')
    assert without_keys({"key": "k", "text": 'a "quoted" \\ one'}) == {"key": "k", "text": "(not kept)"}


@pytest.fixture
def server(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    with running(ProviderServer()) as server:
        yield server


def test_a_key_that_stands_where_an_error_is_cut_is_hidden_whole(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", PLANTED)
    for before in range(440, 510, 10):
        server.faults.append(Fault(400, "x" * before + PLANTED + "y" * 600))
        backend = load_backend("openai:m", base_url=f"{server.url}/v1", retries=0)
        with contextlib.closing(backend), pytest.raises(PolicyError) as caught:
            backend.answer([Request(({"role": "user", "content": "x"},))])
        assert "sk-pl" not in str(caught.value) and len(str(caught.value)) < 600


def completion(text):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return Fault(200, json.dumps({"choices": [choice]}))


def test_a_key_that_a_server_repeats_is_in_no_record_and_no_cache(server, monkeypatch, tmp_path):
    """Neither the key that it was asked with, whatever its variable is called, nor that of another variable."""

    def make():
        return gym.make("BabyAIText-v0", expert="off", max_episode_steps=2)

    monkeypatch.setenv("MY_ACCESS", PLANTED)
    monkeypatch.setenv("OTHER_TOKEN", "another-secret-77")
    options = {"base_url": f"{server.url}/v1", "key_variable": "MY_ACCESS", "cache": str(tmp_path / "cache"), "retries": 0}
    server.faults += [completion(f"turn left {PLANTED} another-secret-77"), Fault(400, f"no {PLANTED}")]
    backend = load_backend("openai:m", **options)
    with contextlib.closing(backend), EpisodeStore(tmp_path / "run", {}) as store:
        for episode in rollout(make, LLMPolicy(backend, text_spec(make())), range(2), num_envs=1):
            store.append(episode)
    headers = {name.lower(): value for name, value in server.requests[0][1].items()}
    assert headers["authorization"] == f"Bearer {PLANTED}", "the key was in use"
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 3 and sum(b"(not kept)" in data for data in written) >= 2
    assert not any(secret in data for data in written for secret in (PLANTED.encode(), b"another-secret-77"))


def test_a_stored_record_has_no_key_of_the_environment_whoever_wrote_it(monkeypatch, tmp_path):
    def make():
        return gym.make("BabyAIText-v0", expert="off", max_episode_steps=1)

    monkeypatch.setenv("OTHER_TOKEN", "another-secret-77")
    policy = LLMPolicy(load_backend("scripted:turn left another-secret-77"), text_spec(make()))
    (episode,) = rollout(make, policy, [0], num_envs=1)
    with EpisodeStore(tmp_path, {}) as store:
        store.append(episode)
        assert store.has(episode.key)
    assert "another-secret-77" not in (tmp_path / "episodes.jsonl").read_text()
    (stored,) = EpisodeStore(tmp_path).episodes([episode.key])
    assert stored.steps[0].decision.completion == "turn left (not kept)"


def test_a_run_folders_configuration_has_no_key_of_the_environment_and_is_still_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("OTHER_TOKEN", "another-secret-77")
    for _ in range(2):
        with EpisodeStore(tmp_path, {"policy": {"extra": "another-secret-77"}}) as store:
            (store.folder / "made").touch()
    assert "another-secret-77" not in (tmp_path / "config.json").read_text()


def test_a_key_of_characters_that_no_header_takes_is_one_sentence_without_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-gehörig-geheim")
    with pytest.raises(ValueError, match="OPENAI_API_KEY: expected a key of plain characters") as caught:
        load_backend("openai:m")
    assert "geheim" not in str(caught.value)
