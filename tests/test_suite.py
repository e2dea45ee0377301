"""The tests themselves: which file tests which module, and asserts that hold whatever the code does."""

import ast
import itertools
from pathlib import Path

import pytest

from conftest import LONGEST_FIRST

TESTS = Path(__file__).parent
FILES = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")}
ELSEWHERE = {
    "aggrevate": ("training/targets",),
    "chat_format": ("local/rendering",),
    "bench": ("experiments/bench_table", "experiments/players", "report/films"),
    "cli": ("commands/completion", "commands/envs", "commands/parser"),
    "decoding": ("local/grammars",),
    "experiment_config": ("experiments/config",),
    "display": ("gym_text/html",),
    "forms": ("local/linear",),
    "jvm": ("java/signals",),
    "llm": ("backends/base", "backends/scripted", "policies/question"),
    "logprobs": ("providers/checks", "providers/llama_cpp", "providers/llama_cpp_tokenizer", "providers/scoring"),
    "served_thoughts": ("providers/asked",),
    "lunar_lander": ("gym_text/box2d",),
    "models": ("backends/load", "local/contents", "local/loading", "model/saving"),
    "play_missing": ("experiments/series",),
    "policy": ("gym_text_policies/load", "policies/baselines"),
    "policy_config": ("policies/config", "policies/labels"),
    "pooled": ("local/packed",),
    "prefixes": ("local/cached",),
    "progress": ("experiments/pace",),
    "remote": ("providers/ollama", "providers/openai", "providers/tensorzero"),
    "rollouts": ("gym_text_policies/game",),
    "search": ("policies/searched",),
    "sections": ("experiments/settings",),
    "sequences": ("model/layouts",),
    "serve": ("bridges/http_deadline", "bridges/serving"),
    "servers": ("providers/errors",),
    "sft": ("training/trainer",),
    "spec": ("gym_text/schemas", "gym_text/spaces", "gym_text/spec_parts"),
    "store": ("gym_text_policies/run_folders",),
    "text_env": ("gym_text/docstrings", "gym_text/experts", "gym_text/folds", "gym_text/hints"),
    "textarena_two_players": ("gym_text/opponents", "gym_text_policies/opponents", "policies/mixed"),
    "textworld": ("commands/make_games",),
    "textworld_env": (
        *("gym_text/java_games", "textworld_express/env", "textworld_express/map_reader", "textworld_express/pecking_order"),
    ),
    "tokens": ("providers/tokenizers",),
    "transformers": ("local/questions",),
    "inspect_ai": ("data/inspect_logs",),
    "levels": ("bridges/skyrl", "bridges/verl"),
    "trl": ("bridges/trl_rollout", "bridges/trl_vllm"),
    "trust": ("providers/keys",),
    "unusable": ("policies/thinking",),
    "user_folder": ("gym_text_policies/user_cache",),
    "vector": ("gym_text/vectorised",),
    "openenv": ("bridges/mcp_http", "bridges/mcp_tools"),
    "verifiers": ("bridges/conversation",),
}
"""By what follows ``test_`` in a file's name, the modules that are tested there, by their folder and name."""


def modules_with_logic():
    """Return the modules that have a function, as folder and name."""
    for package in ("gym_text", "gym_text_policies"):
        for path in sorted((TESTS.parent / package).rglob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            if path.stem != "__init__" and any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree)):
                yield f"{path.parent.name}/{path.stem}"


def test_each_module_with_logic_has_its_tests_in_the_file_of_its_name_or_its_folder_or_in_one_that_is_named_here():
    listed = [module for modules in ELSEWHERE.values() for module in modules]
    modules = list(modules_with_logic())
    without = [module for module in modules if not FILES & set(module.split("/")) and module not in listed]
    assert len(modules) > 150 and without == [], "give it a test file of its name, or name the file in ELSEWHERE"
    assert [module for module in listed if module not in modules] == [], "they are no more, or have no function"
    assert ELSEWHERE.keys() - FILES == set() and set(LONGEST_FIRST) - FILES == set()


def holds_by_construction(test):
    """Return whether an expression is true whatever the values in it are."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(holds_by_construction(part) for part in test.values)
    if isinstance(test, ast.Compare):
        parts = [ast.dump(part) for part in (test.left, *test.comparators)]
        called = any(isinstance(node, ast.Call) for node in ast.walk(test))  # which may answer otherwise the next time
        return not called and any(left == right for left, right in itertools.pairwise(parts))
    if isinstance(test, ast.Tuple | ast.List | ast.Set):
        return bool(test.elts)
    return isinstance(test, ast.Constant) and bool(test.value)


def asserts(text):
    """Yield the line of each assert and what it asserts."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert):
            yield node.lineno, node.test


def test_no_assert_holds_whatever_the_code_does():
    texts = {path.name: path.read_text("utf-8") for path in TESTS.rglob("*.py")}
    assert [f"{name}:{line}" for name, text in texts.items() for line, test in asserts(text) if holds_by_construction(test)] == []


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        *((text, True) for text in ("assert (a, 'b')", "assert a or True", "assert a == b == b", "assert 'always'")),
        *((text, False) for text in ("assert a or b", "assert draw() == draw()", "assert a == b, 'why'", "assert a[0] < a[1]")),
    ],
)
def test_an_assert_that_cannot_fail_is_recognised(text, holds):
    ((_, test),) = asserts(text)
    assert holds_by_construction(test) is holds
