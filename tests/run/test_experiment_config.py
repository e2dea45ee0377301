"""The file of an experiment: what it may say, and what is said of a mistake."""

import pytest

from gym_text import UsageError
from gym_text_policies import parse_config
from gym_text_policies.run.experiment import as_config
from gym_text_policies.settings.yaml_nodes import read_yaml

FILE = """\
agent:
  backend: scripted
  model: go forward
  temperature: .5
  history: all
environment:
  name: BabyAIText-v0
  kwargs: {task: goto, expert: off}
experiment:
  name: tried
  episodes: 3
  verbose: no
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write_file


def test_a_file_becomes_typed_sections(write):
    config = parse_config(write(FILE))
    assert (config.player.model, config.player.temperature, config.player.history) == ("scripted:go forward", 0.5, "all")
    assert config.environment.kwargs == {"task": "goto", "expert": "off"}  # off is a word
    assert (config.experiment.episodes, config.experiment.verbose, config.experiment.first_seed) == (3, False, 0)
    assert config.experiments == (config,)
    assert str(config.folder) == "experiments/tried"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("temperature: .5", "temprature: .5", "line 4: agent: got an unknown key 'temprature'. Did you mean 'temperature'?"),
        ("temperature: .5", "temperature: hot", "line 4: agent.temperature: expected a number or null; got 'hot'"),
        ("backend: scripted", "api_key: sk-planted", "Keys of providers come from environment variables alone"),
        ("BabyAIText-v0", "BabyAIText-v1", "line 7: environment.name: environment: expected one of"),
        ("task: goto", "tsk: goto", "line 8: environment.kwargs: environment 'BabyAIText-v0': got an unknown option 'tsk'"),
        ("task: goto", "fold: tset", "line 8: environment.kwargs: fold: expected one of 'train', 'dev', 'test'"),
        ("episodes: 3", "episodes: 0", "line 11: experiment.episodes: expected an integer from 1"),
        ("  name: BabyAIText-v0\n", "", "line 6: environment: expected the key 'name'; it is missing"),
    ],
)
def test_a_mistake_names_line_expectation_and_remedy(write, old, new, message):
    path = write(FILE.replace(old, new, 1))
    with pytest.raises(UsageError) as error:
        parse_config(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "sk-planted" not in str(error.value)


@pytest.mark.parametrize("name", ["..", "a/b", "/a"])
def test_no_name_leaves_the_parent(write, name):
    with pytest.raises(UsageError, match=r"line 10: experiment\.name: expected a folder's name without slashes"):
        parse_config(write(FILE.replace("name: tried", f"name: {name}")))


def test_all_mistakes_are_named_at_once(write):
    with pytest.raises(UsageError) as error:
        parse_config(write(FILE.replace("model", "modl").replace("episodes: 3", "episodes: many")))
    assert [line.partition(", ")[2][:7] for line in str(error.value).splitlines()] == ["line 3:", "line 11"]


def test_a_list_anywhere_makes_a_batch(write):
    config = parse_config(write(FILE.replace("model: go forward", "model: [a, b]").replace("episodes: 3", "episodes: [1, 2]")))
    assert [(part.agent.model, part.experiment.episodes) for part in config.experiments] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert [part.label for part in config.experiments][:2] == ["model=a,episodes=1", "model=a,episodes=2"]
    assert config.experiments[0].experiments == (config.experiments[0],)


def test_values_can_be_changed_from_outside(write):
    config = parse_config(write(FILE), {"agent.model": ["x", "y"], "experiment.first_seed": 7})
    assert [part.agent.model for part in config.experiments] == ["x", "y"]
    assert {part.experiment.first_seed for part in config.experiments} == {7}
    with pytest.raises(UsageError, match="unknown key 'sed'"):
        parse_config(write(FILE), {"experiment.sed": 7})


def test_mappings_and_missing_files(tmp_path, write):
    assert as_config({"environment": {"name": "TaxiLLM-v3"}}).environment.full_name.startswith("Taxi-v")
    with pytest.raises(UsageError, match=r"none\.yaml: expected a YAML file"):
        parse_config(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="expected the key 'name'"):
        parse_config(write(""))
    assert read_yaml(write("a: 1e-3\nb: &x {c: 1}\nd: *x")).plain() == {"a": "1e-3", "b": {"c": 1}, "d": {"c": 1}}
    merged = read_yaml(write("a: &a {c: 1, d: 1}\nb: &b {<<: *a, c: 2}\ne: *b")).plain()
    assert merged["b"] == merged["e"] == {"c": 2, "d": 1}
