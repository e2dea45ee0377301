"""What a configuration file may do: it names data as it likes, but no code and no receiver of a key that the user has not named."""

import contextlib
import json
import sys
from unittest import mock

import gymnasium as gym
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from provider_server import ProviderServer, running

from gym_text import UsageError
from gym_text_policies import cli, parse_config, run_experiment
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.own_models import is_own
from gym_text_policies.backends.providers.keys import belongs
from gym_text_policies.backends.providers.remote import RemoteBackend
from gym_text_policies.environments import _value, parse_environment
from gym_text_policies.experiments.settings import read_settings
from gym_text_policies.experiments.trust import Trust, code_in, imports_of
from gym_text_policies.experiments.yaml_files import parse_yaml
from gym_text_policies.opponents import _WITH_MODE
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policies.user_policies import load_own
from gym_text_policies.run.bench import BenchConfig
from gym_text_policies.run.plan import read_plan
from gym_text_policies.search import SearchConfig

KEY = "sk-of-this-user-0123456789"
SECRET = "a-cloud-secret-0123456789"
MODULE = """
import gymnasium as gym
from gym_text.babyai.env import BabyAITextEnv

open("made", "w").close()

class Env(BabyAITextEnv):
    pass

def forward(obs):
    return 2

def draw(obs):
    return "[0]"

gym.register("Theirs-v0", Env, max_episode_steps=3)
"""
RUN = "experiment: {episodes: 1, verbose: false, parent: runs, name: one}\n"
NIM = "TextArenaTwoPlayers-v0?game=Nim-v0"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, with a module that says when it is imported; keys and a secret in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in {"OPENAI_API_KEY": KEY, "OLLAMA_API_KEY": KEY, "TENSORZERO_API_KEY": KEY, "CLOUD_SECRET": SECRET}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "theirs.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("theirs", None)
    gym.registry.pop("Theirs-v0", None)


SEARCH = "evaluations: 1\nnum_rollouts: 1\noptimiser: zero\npictures: false\n"
CODE = {
    "an environment's module": ("run", RUN + "environment: {name: 'theirs:Theirs-v0'}\nagent: {model: random}\n", "theirs"),
    "a policy's module": ("run", RUN + "environment: {name: BabyAIText-v0}\nagent: {model: 'theirs:forward'}\n", "theirs"),
    "a policy's module beside a backend": (
        "run",
        RUN + "environment: {name: BabyAIText-v0}\nagent: {backend: transformers, model: 'theirs:forward'}\n",
        "theirs",
    ),
    "pickled objects": ("run", RUN + "environment: {name: BabyAIText-v0}\nagent: {model: 'sb3:theirs.zip'}\n", "sb3:theirs.zip"),
    "an opponent in a name": (
        "run",
        RUN + f"environment: {{name: '{NIM}&opponent=theirs:draw'}}\nagent: {{model: random}}\n",
        "theirs",
    ),
    "a quoted opponent": (
        "run",
        RUN + f"environment: {{name: \"{NIM}&opponent='theirs:draw , text'\"}}\nagent: {{model: random}}\n",
        "theirs",
    ),
    "an opponent in arguments": (
        "run",
        RUN
        + "environment: {name: TextArenaTwoPlayers-v0, kwargs: {game: Nim-v0, opponent: 'theirs:draw'}}\nagent: {model: random}\n",
        "theirs",
    ),
    "a provider's name in front of an environment": (
        "run",
        RUN + "environment: {name: 'scripted:Theirs-v0'}\nagent: {model: random}\n",
        "scripted",
    ),
    "one of a batch": ("run", RUN + "environment: {name: BabyAIText-v0}\nagent: {model: [random, 'theirs:forward']}\n", "theirs"),
    "a variant": ("bench", "row: {model: 'theirs:forward', episodes: 1}\n", "theirs"),
    "a variant's pickled objects": ("bench", "row: {model: 'sb3:theirs.zip', episodes: 1}\n", "sb3:theirs.zip"),
    "a search's environment": ("search", SEARCH + "environment: 'theirs:Theirs-v0'\n", "theirs"),
    "a gateway's configuration": (
        "run",
        RUN + "environment: {name: BabyAIText-v0}\nagent: {model: 'tensorzero:f', options: {config_file: t.toml}}\n",
        "t.toml",
    ),
}


BENCH = ("bench", "--variants", "file.yaml", "--environments", "BabyAIText-v0?max_episode_steps=2", "--baselines", "none")
COMMANDS = {
    "run": ("run", "file.yaml"),
    "bench": (*BENCH, "--episodes", "1", "--fold", "none", "--folder", "runs/b"),
    "search": ("search", "file.yaml", "--folder", "runs/s"),
}


def command(kind, *more):
    return cli.main([*COMMANDS[kind], *more])


@pytest.mark.parametrize("way", CODE)
def test_a_file_that_names_code_is_refused_before_anything_runs_and_the_error_names_the_option(folder, capsys, way):
    kind, text, name = CODE[way]
    (folder / "scripted.py").write_text(MODULE)
    (folder / "file.yaml").write_text(text)
    assert command(kind) == 2
    told = capsys.readouterr().err
    assert (
        f"runs code of {name}. A file needs permission for that; --import {name} allows it." in told and "file.yaml, line " in told
    )
    assert not (folder / "made").exists() and "theirs" not in sys.modules
    assert command(kind, "--import", "another") == 2
    assert f"--import {name} allows it." in capsys.readouterr().err and not (folder / "made").exists()


@pytest.mark.parametrize(
    "way", ["an environment's module", "a policy's module", "an opponent in arguments", "a variant", "one of a batch"]
)
def test_what_the_command_line_allows_runs(folder, capsys, way):
    kind, text, name = CODE[way]
    (folder / "file.yaml").write_text(text)
    assert command(kind, "--import", "another", "--import", name) == 0, capsys.readouterr().err
    assert (folder / "made").exists()


def test_pickled_objects_are_allowed_by_the_file_as_it_is_named(folder, capsys):
    (folder / "file.yaml").write_text(CODE["pickled objects"][1])
    assert command("run", "--import", "sb3:theirs.zip") == 2
    assert "sb3:theirs.zip: expected a file that stable-baselines3's model.save wrote" in capsys.readouterr().err


def test_names_on_the_command_line_are_the_users_own(folder, capsys):
    (folder / "file.yaml").write_text(RUN + "environment: {name: BabyAIText-v0}\nagent: {model: random}\n")
    words = ["--set", "agent.model=theirs:forward", "environment.name=theirs:Theirs-v0", "environment.kwargs={}"]
    assert cli.main(["run", "file.yaml", *words]) == 0, capsys.readouterr().err
    assert (folder / "made").exists()


def test_a_folder_that_goes_on_is_a_file_too_and_says_what_it_needs(folder, capsys, monkeypatch, caplog):
    (folder / "file.yaml").write_text(CODE["an environment's module"][1])
    assert command("run", "--import", "theirs") == 0
    assert "data:image" in (folder / "runs" / "one" / "report.html").read_text()  # its own report may play it again
    assert cli.main(["run", "runs/one"]) == 2
    assert "experiment.yaml, line" in (told := capsys.readouterr().err) and "--import theirs allows it." in told

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("gym_text_policies.run.experiment_folder._run", stop)
    caplog.set_level("INFO")
    assert command("run", "--import", "theirs") == 130
    assert "gym-text run runs/one --import theirs goes on from here." in caplog.text


def test_in_python_a_file_needs_permission_and_a_mapping_does_not(folder):
    (folder / "file.yaml").write_text(CODE["a policy's module"][1])
    for refused in (lambda: parse_config("file.yaml"), lambda: run_experiment("file.yaml")):
        with pytest.raises(UsageError, match="--import theirs"):
            refused()
    assert not (folder / "made").exists()
    assert parse_config("file.yaml", imports=["theirs"]).player.model == "theirs:forward"
    settings = {"episodes": 1, "verbose": False}
    arguments = {"max_episode_steps": 2}
    mapping = {
        "agent": {"model": "theirs:forward"},
        "environment": {"name": "BabyAIText-v0", "kwargs": arguments},
        "experiment": settings,
    }
    assert run_experiment(mapping, "runs/mine").is_dir() and (folder / "made").exists()
    (folder / "rows.yaml").write_text(CODE["a variant"][1])
    assert BenchConfig(variants="rows.yaml", imports=("theirs",)).rows()
    with pytest.raises(UsageError, match="--import theirs"):
        BenchConfig(variants="rows.yaml", environments=("theirs:Theirs-v0",)).rows()


def test_a_file_cannot_allow_itself_anything(folder):
    (folder / "file.yaml").write_text(SEARCH + "environment: 'theirs:Theirs-v0'\nimports: [theirs]\n")
    with pytest.raises(UsageError, match="--import theirs"):
        read_settings(SearchConfig, "file.yaml")
    (folder / "file.yaml").write_text(SEARCH + "imports: [theirs]\nkey_hosts: {OPENAI_API_KEY: there}\n")
    with pytest.raises(UsageError, match="got an unknown key 'imports'") as error:
        read_settings(SearchConfig, "file.yaml")
    assert "got an unknown key 'key_hosts'" in str(error.value)
    found = read_settings(SearchConfig, parse("x.yaml", SEARCH), {"imports": ("theirs",), "environment": "theirs:Theirs-v0"})
    assert found.imports == ("theirs",) and not {"imports", "key_hosts"} & found.identity().keys()


def parse(name, text):
    with open(name, "w") as file:
        file.write(text)
    return name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("random", []),
        ("openai:gpt-6-luna", []),
        ("scripted:go forward|turn left", []),
        ("hf:OWNER/NAME", []),
        ("http://127.0.0.1:8000/v1", []),
        (r"C:\models\mine", []),
        ("gym_text:CookingWorldText-v0", ["gym_text"]),
        ("a.b:Name.inner", ["a.b"]),
        ("a:x/Maze-v0?opponent=b:Mine,choose&n=3", ["a", "b"]),
        ("sb3:a:b", ["sb3:a:b"]),
        ("[0:1]", []),
    ],
)
def test_what_a_text_lets_run(text, names):
    assert list(code_in(text)) == names


@pytest.mark.parametrize("backend", ["ollama", "scripted", "hf"])
def test_a_model_behind_a_provider_is_no_module(folder, backend):
    text = RUN + f"environment: {{name: BabyAIText-v0}}\nagent: {{backend: {backend}, model: 'mistral:latest'}}\n"
    assert parse_config(parse("file.yaml", text)).player.model == f"{backend}:mistral:latest"


def test_a_folders_name_may_have_a_colon():
    config = {"experiment": {"name": "cooking:two", "parent": "runs:mine"}, "environment": {"name": "BabyAIText-v0"}}
    assert imports_of(config) == ()
    Trust().checked(parse_yaml(json.dumps(config), "file.yaml"))


# ---------------------------------------------------------------- keys

PLAYED = RUN + "environment: {name: BabyAIText-v0, kwargs: {max_episode_steps: 2}}\nagent: {model: 'MODEL', options: OPTIONS}\n"


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """Close the models that commands have made: in the end of a process nobody has to."""
    made = []
    of = RemoteBackend.of.__func__

    def remember(kind, model, options):
        made.append(of(kind, model, options))
        return made[-1]

    monkeypatch.setattr(RemoteBackend, "of", classmethod(remember))
    yield
    for backend in made:
        backend.close()


def asked(folder, model, options, *words):
    """Run the experiment of a file; return its exit status and the authorisations that the server has seen."""
    with running(ProviderServer()) as server:
        options = json.dumps(options).replace("URL", server.url)
        (folder / "file.yaml").write_text(PLAYED.replace("MODEL", model).replace("OPTIONS", options))
        status = cli.main(["run", "file.yaml", *(word.replace("URL", server.url) for word in words)])
    return status, authorisations(server)


def authorisations(server):
    """Return what a server has been given as authorisation."""
    named = [{name.lower(): value for name, value in headers.items()} for _, headers, _ in server.requests]
    return {headers.get("authorization") for headers in named}


@pytest.mark.parametrize(("model", "path"), [("openai:m", "/v1"), ("ollama:m", "")])
def test_a_server_that_only_a_file_names_is_asked_without_a_key(folder, caplog, model, path):
    variable = "OPENAI_API_KEY" if path else "OLLAMA_API_KEY"
    status, seen = asked(folder, model, {"base_url": f"URL{path}"})
    assert (status, seen) == (0, {"Bearer none"})
    assert "no key is sent to 127.0.0.1" in caplog.text and f"--key-hosts {variable}=127.0.0.1" in caplog.text
    stored = (folder / "runs" / "one" / "experiment.yaml").read_text()
    assert "key_variable" not in stored
    assert cli.main(["run", "runs/one"]) == 0  # which needs no server: all is stored


@pytest.mark.parametrize(("model", "path", "variable"), [("openai:m", "/v1", "OPENAI_API_KEY"), ("ollama:m", "", "OLLAMA_API_KEY")])
def test_the_command_line_lets_a_server_have_a_key(folder, model, path, variable):
    words = ("--key-hosts", f"{variable}=127.0.0.1,another.example.org")
    assert asked(folder, model, {"base_url": f"URL{path}"}, *words) == (0, {f"Bearer {KEY}"})
    assert asked(folder, model, {}, "--folder", "runs/two", "--set", f"agent.options.base_url=URL{path}") == (0, {f"Bearer {KEY}"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base_url": "URL/v1", "key_variable": "CLOUD_SECRET"}, ()),
        ({"base_url": "URL/v1", "key_variable": "OPENAI_API_KEY"}, ()),
        ({"base_url": ["https://api.openai.com/v1", "URL/v1"], "key_variable": "OPENAI_API_KEY"}, ()),
        ({"key_variable": "CLOUD_SECRET"}, ()),
        ({"key_variable": "CLOUD_SECRET"}, ("--set", "agent.options.base_url=URL/v1")),
        ({"base_url": "URL/v1"}, ("--set", "agent.options.key_variable=CLOUD_SECRET")),
        ({"base_url": "URL/v1", "key_variable": "CLOUD_SECRET"}, ("--key-hosts", "OPENAI_API_KEY=127.0.0.1")),
        ({"base_url": "https://api.openai.com/v1", "key_variable": "CLOUD_SECRET"}, ()),
    ],
)
def test_a_variable_goes_only_to_a_host_that_belongs_to_it(folder, capsys, options, words):
    status, seen = asked(folder, "openai:m", options, *words)
    assert (status, seen) == (2, set())
    told = capsys.readouterr().err
    assert "and does not go to" in told and "--key-hosts " in told and SECRET not in told and KEY not in told


def test_variants_and_searches_send_no_key_either(folder, capsys):
    with running(ProviderServer(text="p1 = 1, p2 = 1, p3 = 0")) as server:
        address = f"base_url: '{server.url}/v1'"
        (folder / "file.yaml").write_text(f"row: {{model: 'openai:m', mode: text, episodes: 1, {address}}}\n")
        assert command("bench") == 0, capsys.readouterr().err
        (folder / "file.yaml").write_text(f"{SEARCH.replace('zero', 'model')}model: 'openai:m'\noptions: {{{address}}}\n")
        assert command("search") == 0, capsys.readouterr().err
    assert len(server.requests) > 3
    assert authorisations(server) == {"Bearer none"}


def test_a_gateway_that_only_a_file_names_gets_no_key():
    checked = Trust().checked(parse_yaml("{model: 'tensorzero:f', base_url: 'http://127.0.0.1:9'}", "file.yaml"))
    assert checked.plain()["key_variable"] is None


def test_keys_of_known_providers_go_to_their_own_servers(folder):
    own = {
        "model": "openai:m",
        "base_url": "https://generativelanguage.googleapis.com/v1beta/openai",
        "key_variable": "GEMINI_API_KEY",
    }
    assert Trust().checked(parse_yaml(json.dumps(own), "file.yaml")).plain() == own
    assert read_plan(parse("rows.yaml", json.dumps({"row": own})))["row"].policy.options["key_variable"] == "GEMINI_API_KEY"


@pytest.mark.parametrize(
    "address",
    [
        "http://api.openai.com/v1",
        r"https://evil.example\@api.openai.com/v1",
        r"https://api.openai.com\@evil.example/v1",
        "https://api.openai.com@evil.example/v1",
        "https://evil.example#@api.openai.com/v1",
        "https://api.openai.com.evil.example/v1",
        "https://evil.example/api.openai.com",
        "https://api.openai.com\n.evil.example/v1",
        "https://api.openai.com/v1\n",
        5,
        None,
    ],
)
def test_an_address_that_only_looks_like_a_providers_gets_no_key(address):
    assert belongs("OPENAI_API_KEY", "https://API.openai.com:443/v1", {})
    assert not belongs("OPENAI_API_KEY", address, {})


def test_a_callers_own_words_in_python_are_trusted():
    with running(ProviderServer()) as server:
        backend = load_backend("openai:m", base_url=f"{server.url}/v1", key_variable="CLOUD_SECRET", retries=0)
        backend.answer([Request(({"role": "user", "content": "Which action?"},))])
    assert authorisations(server) == {f"Bearer {SECRET}"}


PIECES = ["a", "b.c", "_d", "é", "1", ":", "?", "&", "opponent=", "'", '"', ",choose", " , text", " ", "\n", "/", "-v0", ".json"]
PIECES += ["sb3:", "openai:", "scripted:", "random", "BabyAIText-v0", "\u2118", "\u00b7", "\t", "=", "\\", "|"]


@given(text=st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
@example("a:BabyAIText-v0")
@example("scripted:BabyAIText-v0")
@example("a:b?opponent='b.c:a , text'&n=1")
@settings(max_examples=500, deadline=None)
def test_nothing_is_imported_that_was_not_seen(text):
    imported = []

    def refuse(module):
        imported.append(module)
        raise ImportError(module)

    def play(player):
        if player.startswith("sb3:"):
            imported.append(player)
            return
        with_mode = _WITH_MODE.fullmatch(player)
        for name in filter(None, (player, with_mode and with_mode[1])):
            if is_own(name) and not PolicyConfig(name).asks_model:
                with contextlib.suppress(UsageError):
                    load_own(name, None)

    with mock.patch("gym_text_policies.environments.importlib.import_module", refuse):
        play(text)
        assert set(imported) <= set(code_in(text, "model"))
        imported.clear()
        with contextlib.suppress(UsageError):
            parse_environment(text)
        values = [_value(pair.partition("=")[2]) for pair in text.partition("?")[2].split("&")]
        for value in values:
            if isinstance(value, str):
                play(value)
        assert set(imported) <= set(code_in(text, "name"))
