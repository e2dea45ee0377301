"""Old names of settings: each works in Python, on the command line, in YAML and in stored settings, and says what holds now."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import pytest

from gym_text import UsageError
from gym_text_policies import cli
from gym_text_policies.backends.local.adapters import adapter_folder
from gym_text_policies.commands.options import add_fields, by_fields
from gym_text_policies.commands.parser import Parser
from gym_text_policies.experiments.config import AgentConfig, EnvironmentConfig, RunsConfig, parse_config
from gym_text_policies.experiments.settings import build, by_new_names, members_of, read_settings, settings_of
from gym_text_policies.experiments.variants import VariantSettings, read_variants
from gym_text_policies.experiments.yaml_files import parse_yaml
from gym_text_policies.files.run_folders import RunFolder
from gym_text_policies.old_names import Before, Fixed, gone, old_names, stored_by_new_names, table_of
from gym_text_policies.sections import with_sections
from gym_text_policies.training.dagger import DAggerConfig
from gym_text_policies.training.sft import SFTConfig

COMMANDS = {name: command.load()[0] for name, command in cli.COMMANDS.items()}
SECTIONS = {kind.__name__: kind for kind in (AgentConfig, EnvironmentConfig, RunsConfig, VariantSettings)}
ENTRIES = [
    (name, old)
    for name, kind in (COMMANDS | SECTIONS).items()
    for old, new in table_of(kind).items()
    if not (isinstance(new, Fixed) and new.refused)
]


@old_names(llm_seeds="llm_episodes", four_bit="load_in_4bit")
@gone(max_norm=1.0, push_to=Fixed("", "Use another command."))
@dataclass(frozen=True)
class Base:
    """Settings with old names."""

    llm_episodes: int = 3
    """Episodes."""
    load_in_4bit: bool = False
    """Weights in 4 bits."""


@old_names(run="runs", adapter=Before("model"))
@dataclass(frozen=True)
class Config(Base):
    """A subclass with an old name more."""

    runs: tuple[str, ...] = ()
    """Folders."""
    model: str = "a"
    """Who plays."""


def parsed(config, words):
    """Return the config of a command's words."""
    parser = Parser()
    add_fields(parser, config)
    return config(**by_fields(config, vars(parser.parse_args(words.split()))))


def sample(hint, default=None) -> Any:
    """Return a value of a type that is not the default."""
    member = members_of(hint)[0]
    if get_origin(member) is tuple:
        first = sample(get_args(member)[0])
        return (first, sample(get_args(member)[0], first))
    words = {bool: [True, False], int: [8, 4, 40], float: [0.5, 0.25], str: ["BabyAIText-v0", "CookingWorldText-v0"]}
    values = get_args(member) if get_origin(member) is Literal else words[member]
    return next(value for value in values if value != default)


def words_of(value):
    """Return a value as the command line spells it."""
    return [str(part) for part in (value if isinstance(value, tuple) else (value,))]


def test_python_callers_are_warned_where_they_call():
    with pytest.warns(FutureWarning, match="^Config: llm_seeds is now llm_episodes; the next release removes the old") as said:
        config = Config(llm_seeds=7, runs=("a",))
    assert config == Config(7, runs=("a",)) and said[0].filename == __file__
    with pytest.warns(FutureWarning, match="max_norm can be left out: it is always 1.0 now"):
        assert Base(max_norm=1) == Base()
    with pytest.raises(UsageError, match=r"max_norm: expected 1\.0, which always holds now; got 2\. Leave max_norm out"):
        Base(max_norm=2)
    with pytest.raises(UsageError, match=r"push_to: expected '', which always holds now; got 'x'\. Use another command\."):
        Base(push_to="x")
    with pytest.raises(UsageError, match="llm_seeds: expected llm_episodes alone, which is its name now; got llm_episodes as well"):
        Config(llm_seeds=7, llm_episodes=7)


def test_keywords_of_functions_have_old_names_as_well():
    @old_names(batch="num_envs")
    def play(policy, *, num_envs=1):
        """Play."""
        return policy, num_envs

    assert play.__doc__ == "Play." and play("p", num_envs=3) == ("p", 3)
    with pytest.warns(FutureWarning, match="^play: batch is now num_envs"):
        assert play("p", batch=3) == ("p", 3)


def test_old_options_work_and_are_said_as_the_command_line_spells_them(caplog, capsys):
    assert parsed(Config, "--llm-seeds 7 --four-bit --run a b --max-norm 1") == Config(7, True, ("a", "b"))
    said = [record.message for record in caplog.records]
    assert "--llm-seeds is now --llm-episodes; the next release removes the old name." in said
    assert [line.split()[0] for line in said] == ["--llm-seeds", "--four-bit", "--run", "--max-norm"]
    with pytest.raises(UsageError, match="--llm-seeds: expected --llm-episodes alone"):
        parsed(Config, "--llm-seeds 7 --llm-episodes 7")
    with pytest.raises(UsageError, match=r"--max-norm: expected 1\.0"):
        parsed(Config, "--max-norm 0.5")
    with pytest.raises(UsageError, match=r"--max-norm: expected 1\.0, which always holds now; got 'much'"):
        parsed(Config, "--max-norm much")
    with pytest.raises(SystemExit):
        parsed(Config, "--help")
    assert "seeds" not in capsys.readouterr().out


def test_old_keys_of_a_file_are_said_with_their_line(tmp_path, caplog):
    path = tmp_path / "settings.yaml"
    path.write_text("runs: [a]\nllm_seeds: 7\nmax_norm: 1.0\n")
    assert read_settings(Config, path) == Config(7, runs=("a",))
    assert f"{path}, line 2: llm_seeds is now llm_episodes; the next release removes the old name." in caplog.text
    path.write_text("llm_episodes: 7\nllm_seeds: 7\nmax_norm: 2.0\nrons: 3")
    with pytest.raises(UsageError) as error:
        read_settings(Config, path)
    first, second, third = str(error.value).splitlines()
    assert first == f"{path}, line 2: llm_seeds: expected llm_episodes alone, which is its name now; got llm_episodes as well."
    assert "line 3: max_norm: expected 1.0" in second and "line 4: got an unknown key 'rons'. Did you mean 'runs'?" in third


def test_stored_settings_of_an_earlier_release_are_read(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    stored = {"llm_seeds": 7, "four_bit": True, "max_norm": 1.0}
    (folder / "config.json").write_text(json.dumps(stored))
    assert stored_by_new_names(Config, stored) == {"llm_episodes": 7, "load_in_4bit": True}
    RunFolder(folder, {"llm_episodes": 7, "load_in_4bit": True}, Config).close()
    with pytest.raises(UsageError, match="these keys differ: llm_episodes: stored 7, given 8"):
        RunFolder(folder, {"llm_episodes": 8}, Config)
    (folder / "config.json").write_text(json.dumps(stored | {"max_norm": 0.5}))
    with pytest.raises(UsageError, match=r"these keys differ: max_norm: stored 0\.5, given None"):
        RunFolder(folder, {"llm_episodes": 7}, Config)


@pytest.mark.parametrize(
    ("given", "model"), [({"adapter": "b", "model": "a"}, "b"), ({"adapter": "", "model": "c"}, "c"), ({"adapter": "b"}, "b")]
)
def test_of_two_settings_that_became_one_the_one_that_names_more_counts(given, model, tmp_path):
    with pytest.warns(FutureWarning, match="Config: adapter is now model"):
        assert Config(**given) == Config(model=model)
    (tmp_path / "settings.yaml").write_text(json.dumps(given))
    assert read_settings(Config, tmp_path / "settings.yaml") == Config(model=model)
    assert parsed(Config, " ".join(f"--{name}={value}" for name, value in given.items())) == Config(model=model)
    assert stored_by_new_names(Config, given) == {"model": model}


def test_a_list_under_an_old_key_is_a_batch_and_a_change_may_have_an_old_name(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(RunsConfig, "__old_names__", {"runs": "episodes"}, raising=False)
    path = tmp_path / "e.yaml"
    path.write_text("environment: {name: BabyAIText-v0}\nexperiment:\n  runs: [1, 2]\n")
    assert [one.experiment.episodes for one in parse_config(path).experiments] == [1, 2]
    assert caplog.text.count(f"{path}, line 3: runs is now episodes") == 1
    assert parse_config(path, {"experiment.runs": 5}).experiment.episodes == 5
    monkeypatch.setattr(RunsConfig, "__old_names__", {"runs": Fixed(3)}, raising=False)
    path.write_text("environment: {name: BabyAIText-v0}\nexperiment: {first_seed: 4}")
    assert parse_config(path, {"experiment.runs": 3}).experiment.first_seed == 4


def test_rows_of_a_table_have_old_names(tmp_path, caplog):
    (tmp_path / "v.yaml").write_text("a: {model: random}\nb:\n  model: random\n  seeds: 4")
    assert read_variants(tmp_path / "v.yaml")["b"].episodes == 4
    assert "v.yaml, line 4: seeds is now episodes" in caplog.text


@pytest.mark.parametrize("name, old", ENTRIES)
def test_each_old_name_works_everywhere(name, old, caplog):
    kind, new = (COMMANDS | SECTIONS)[name], table_of((COMMANDS | SECTIONS)[name])[old]
    settings = {setting.name: setting for setting in settings_of(kind)}
    assert old not in settings
    value = new.value if isinstance(new, Fixed) else sample(settings[new].hint, settings[new].default)
    required = {key: setting.hint for key, setting in settings.items() if setting.default is dataclasses.MISSING and key != new}
    others = {key: sample(hint) for key, hint in required.items()}
    given = others if isinstance(new, Fixed) else {**others, new: value}
    config = kind(**with_sections(kind, given))
    with pytest.warns(FutureWarning, match=f": {old} "):
        assert kind(**others, **{old: value}) == config
    node = by_new_names(kind, parse_yaml(json.dumps({**others, old: value}), "file.yaml"))
    assert f"file.yaml, line 1: {old} " in caplog.text
    assert build(kind, node) == config
    if name in COMMANDS and (isinstance(new, Fixed) or settings[new].default is not dataclasses.MISSING):
        option = f"--{'no-' if value is False else ''}{old.replace('_', '-')}"
        words = [word for other in others.values() for word in words_of(other)]
        words += [option, *(() if isinstance(value, bool) else words_of(value))]
        parsed = vars(cli.make_parser([name]).parse_args([name, *words]))
        assert by_fields(kind, {key: word for key, word in parsed.items() if key in {old, *settings}}) == given
        assert f"--{old.replace('_', '-')} " in caplog.text


@pytest.mark.parametrize("kind", [SFTConfig, DAggerConfig])
def test_a_setting_that_has_no_value_any_more_is_refused_with_what_to_use(kind):
    with pytest.raises(UsageError, match=r"rows_per_pass: expected settings of this release, .* got 2\. Set tokens_per_pass"):
        kind(rows_per_pass=2)


def test_an_adapter_that_was_renamed_is_found_by_its_old_name(caplog):
    assert adapter_folder("adapters/cookingworld-ppo") == adapter_folder("adapters/cookingworld-aggrevate")
    assert caplog.messages == ["adapters/cookingworld-ppo is now called adapters/cookingworld-aggrevate."]
