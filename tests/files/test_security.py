"""What comes from outside, be it a file, a name, a model or a game, is data: it is never run, and it stays where it belongs."""

import ast
import shutil
from pathlib import Path

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import cli, run_experiment
from gym_text_policies.environments import parse_environment
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import Prompt
from gym_text_policies.run.plan import read_plan

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for package in ("gym_text", "gym_text_policies") for path in (ROOT / package).rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "telnetlib"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen"),
}


def dotted(node):
    """Return the name of what is called, as far as it is a plain one."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def sins(source):
    """Yield what no line of the packages may do."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"imports {name}" for name in names if name.partition(".")[0] in FORBIDDEN_MODULES)
        if not isinstance(node, ast.Call):
            continue
        name, options = dotted(node.func), {keyword.arg: keyword.value for keyword in node.keywords}
        if name in FORBIDDEN_CALLS:
            yield f"calls {name}"
        if "trust_remote_code" in options and not is_constant(options["trust_remote_code"], False):
            yield f"{name} may trust remote code"
        if "shell" in options and not is_constant(options["shell"], False):
            yield f"{name} may use a shell"
        if name == "torch.load" and not is_constant(options.get("weights_only"), True):
            yield "torch.load reads pickles"
        if name == "jinja2.Environment" and not is_constant(options.get("autoescape"), True):
            yield "a template outside the sandbox that does not escape what it shows"


def is_constant(node, value):
    return isinstance(node, ast.Constant) and node.value is value


def test_no_module_unpickles_evaluates_or_runs_what_comes_from_outside():
    found = {str(path.relative_to(ROOT)): list(sins(path.read_text("utf-8"))) for path in SOURCES}
    assert {path: done for path, done in found.items() if done} == {}


def test_yaml_makes_no_objects(tmp_path):
    path = tmp_path / "variants.yaml"
    path.write_text(f"a: {{model: !!python/object/apply:pathlib.Path.touch [{tmp_path / 'made'}]}}")
    with pytest.raises(UsageError, match="expected"):
        read_plan(path)
    assert not (tmp_path / "made").exists()


def test_what_looks_like_a_template_in_a_game_is_text():
    env = gym.make("BabyAIText-v0")
    obs, _ = env.reset(seed=0)
    messages = Prompt("zero_shot").render(text_spec(env), obs | {"text": "{{ 6 * 7 }} {% raw %}"})
    assert "{{ 6 * 7 }} {% raw %}" in messages[-1]["content"]


@pytest.mark.parametrize("name", ["../../outside", "/etc/outside"])
def test_no_name_of_an_environment_or_model_leaves_the_run_folder(tmp_path, capsys, name):
    (tmp_path / "here").mkdir()
    for option in ("--environments", "--models"):
        folder = tmp_path / "here" / "run"
        arguments = f"bench --folder {folder} {option} {name} --episodes 1 --llm-episodes 1 --modes text".split()
        extra = ["--environments", "BabyAIText-v0"] if option == "--models" else []
        assert cli.main([*arguments, *extra]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert {path.name for path in tmp_path.rglob("*")} <= {"here", "run", "config.json", ".lock"}


def test_arguments_in_a_name_are_literals_and_never_code(tmp_path):
    made = tmp_path / "made"
    _, arguments = parse_environment(f"BabyAIText-v0?task=open({str(made)!r},'w')")
    assert arguments == {"task": f"open({str(made)!r},'w')"} and not made.exists()


def test_a_stored_seed_and_a_link_lead_no_run_out_of_its_folder(tmp_path):
    settings = {"episodes": 1, "verbose": False}
    agent, world = {"model": "scripted:go forward"}, {"name": "BabyAIText-v0", "kwargs": {"max_episode_steps": 2}}
    config = {"agent": agent, "environment": world, "experiment": settings}
    folder = run_experiment(config, tmp_path / "theirs" / "run")
    path = folder / "episodes.jsonl"
    path.write_text(path.read_text().replace('"seed": 0,', '"seed": "../../../made",', 1))
    shutil.rmtree(folder / "answers")
    with pytest.raises(UsageError, match="seed: expected"):
        run_experiment(config, folder)
    path.write_text(path.read_text().replace('"../../../made"', "0", 1))
    (folder / "answers").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"answers: expected a folder in .* it is a link out of it"):
        run_experiment(config, folder)
    assert [one.name for one in tmp_path.iterdir()] == ["theirs"]
