"""Fixtures that the tests of both packages share."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from experts import ENV_IDS

from gym_text import MissingDependencyError

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # each worker has one core, so further threads would only wait
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""Waiting threads must not spin: on a busy machine that makes forward passes many times slower. Torch reads it at its import."""

for name in ENV_IDS:
    if "gym_text.textworld." in str(gym.registry[name].entry_point):
        # making a level takes seconds and happens once on a machine; a reset without a seed may play any of the levels
        gym.registry[name].kwargs["num_levels"] = 8

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell starts background jobs with SIGINT ignored. The child processes in the tests of Ctrl-C would inherit that."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Skip a test whose fixtures need Box2D if Box2D is not installed. Not every system has a wheel of Box2D."""
    with _skipping_without_box2d():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that needs Box2D if Box2D is not installed."""
    with _skipping_without_box2d():
        return (yield)


@contextmanager
def _skipping_without_box2d() -> Iterator[None]:
    try:
        yield
    except (MissingDependencyError, gym.error.DependencyNotInstalled) as error:
        if "Box2D" in str(error) and find_spec("Box2D") is None:
            pytest.skip(str(error))
        raise


@pytest.fixture(params=ENV_IDS)
def env_id(request: pytest.FixtureRequest) -> str:
    """Run the test once for each registered environment."""
    return str(request.param)


@pytest.fixture
def make() -> Iterator[Callable[..., gym.Env[Any, Any]]]:
    """Return `gym.make`, whose environments are closed after the test."""
    envs: list[gym.Env[Any, Any]] = []

    def make_and_note(env_id: str, **arguments: Any) -> gym.Env[Any, Any]:
        envs.append(gym.make(env_id, **arguments))
        return envs[-1]

    yield make_and_note
    for env in envs:
        env.close()


@pytest.fixture
def follow_gold_action() -> Callable[..., tuple[list[float], dict[str, Any]]]:
    """Return a function that plays ``gold_action`` until the episode ends or ``info`` has no ``gold_action``."""

    def follow(env: gym.Env[Any, Any], obs: Any, info: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
        spec, rewards, over = env.get_wrapper_attr("text_spec"), [], False
        while not over and "gold_action" in info:
            obs, reward, terminated, truncated, info = env.step(spec.encode(info["gold_action"], obs))
            rewards.append(float(reward))
            over = terminated or truncated
        return rewards, info

    return follow


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """Return a context manager in which no file can grow beyond a number of bytes, as on a full disk."""

    @contextmanager
    def room(size: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return room


@pytest.fixture
def no_addresses_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the addresses of servers, and the keys, that the environment of the tests has."""
    for name in ("OPENAI_BASE_URL", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, because small models are slower with two."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def corridor() -> Iterator[None]:
    """Register the toy environment of training tests, which has no expert."""
    from training_data import Corridor

    gym.register("Corridor-v0", entry_point=Corridor)
    yield
    del gym.registry["Corridor-v0"]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a small Llama with random weights and the first tokens of the embedded model's tokenizer."""
    from small_models import save_tokenizer, small_llama

    folder = tmp_path_factory.mktemp("tiny")
    # with the default range of the weights, 0.02, all tokens have nearly the same probability
    small_llama(save_tokenizer(folder), initializer_range=0.08, max_position_embeddings=2048).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def decision_model(tiny_model: str) -> Any:
    """Return that model as a backend, which the tests of a file share."""
    from gym_text_policies.backends.load import load_backend

    return load_backend(tiny_model)


@pytest.fixture(scope="module")
def decision_url(decision_model: Any) -> Iterator[str]:
    """Yield the address of that model, served as a decision model with the name tiny."""
    from gym_text_policies.bridges.decisions import create_app
    from gym_text_policies.bridges.serving import serving

    with serving(create_app(decision_model, "tiny")) as url:
        yield url


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Return a small language model with random weights, and its tokenizer."""
    from small_models import save_tokenizer, small_llama
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    model = small_llama(save_tokenizer(folder), tie_word_embeddings=True, pad_token_id=2)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def noisy_rows(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return rows of six episodes in which the label is not always the action that was played."""
    from gym_text_policies.data.collect import CollectConfig, collect

    folder = tmp_path_factory.mktemp("noisy") / "data"
    return list(collect(CollectConfig(str(folder), ("BabyAIText-v0?task=goto",), ("6",), noise=0.4)))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a run folder for the report. Its name, a policy's name, an observation and an answer attack the page with HTML."""
    from report_runs import write_run

    return write_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def their_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a module in the current folder that registers an environment, and has a player."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_games.py").write_text(
        "import gymnasium as gym\nfrom gym_text.babyai.env import BabyAITextEnv\n"
        "class Env(BabyAITextEnv):\n    pass\n"
        "def player(obs):\n    return '[Deny]'\n"
        "gym.register('Theirs-v0', Env)\n"
    )
    yield "their_games"
    sys.modules.pop("their_games", None)
    gym.registry.pop("Theirs-v0", None)


@pytest.fixture
def server(monkeypatch):
    """Return a provider that has answered nothing yet; keys and addresses of the environment do not count."""
    for name in ("OPENAI_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "OLLAMA_API_KEY", "TENSORZERO_API_KEY"):
        monkeypatch.setenv(name, "sk-1234567890-very-secret")
    monkeypatch.setattr("gym_text_policies.backends.providers.remote._BACKOFF", 0.01)
    from provider_server import ProviderServer, running

    with running(ProviderServer()) as server:
        yield server


@pytest.fixture
def backend_of():
    """Return a function that makes a backend of a server and a provider, by default without retries."""
    from gym_text_policies.backends.load import load_backend

    with ExitStack() as stack:

        def make(server, provider="openai", /, **options):
            url = f"{server.url}/v1" if provider == "openai" else server.url
            backend = load_backend(f"{provider}:m", **{"base_url": url, "retries": 0} | options)
            return stack.enter_context(closing(backend))

        yield make
