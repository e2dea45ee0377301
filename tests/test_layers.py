"""Imports point one way, those in functions and under TYPE_CHECKING included."""

import ast
import graphlib
import re
from pathlib import Path

import gymnasium as gym
import pytest

import gym_text  # noqa: F401  registers the environments

ROOT = Path(__file__).parent.parent
LAYERS = {
    "gym_text": (
        ("errors",),
        ("spec", "spaces", "screen", "parameters", "user_folder", "java", "html", "box2d", "registration", "memory"),
        ("folds", "copies"),
        ("mountain_car_vector", "episode_state"),
        ("text_env",),
        ("experts", "index_actions", "opponents"),
        ("java_games",),
        (
            *("wrappers", "descriptions", "textworld_express", "science_world", "textworld", "textarena", "babyai", "sokoban"),
            *("textcraft", "lunar_lander", "mountain_car"),
        ),
        ("",),
    ),
    "gym_text_policies": (
        ("files",),
        ("settings",),
        ("records",),
        ("policy", "prompts", "environments"),
        ("store",),
        ("rollouts", "game", "answers", "backends"),
        ("policies",),
        ("load",),
        ("report",),
        ("run",),
        ("data",),
        ("search", "training"),
        ("bridges",),
        ("commands",),
        ("cli", ""),
    ),
}
"""Modules and folders of each package, the lowest first; "" is what the package itself offers."""


def modules(package):
    """Return the modules of a package, by name, as syntax trees."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


def imported(tree, known):
    """Return the modules among those known that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports have whole names"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known.keys() or {node.module}  # a module, or names out of one
    return found & known.keys()


@pytest.fixture(scope="module")
def graph():
    known = modules("gym_text") | modules("gym_text_policies")
    return {name: imported(tree, known) for name, tree in known.items()}


def layer(module):
    """Return the place of a module among the layers of its package."""
    package, _, rest = module.partition(".")
    part = rest.partition(".")[0]
    return next(place for place, names in enumerate(LAYERS[package]) if part in names)


def test_no_module_imports_itself_by_a_detour(graph):
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError with the circle
    assert len(order) == len(graph) > 100


def test_the_model_in_this_process_lists_its_files_in_an_order_in_which_no_file_imports_a_later_one(graph):
    package = "gym_text_policies.backends.local"
    docstring = ast.get_docstring(modules("gym_text_policies")[package])
    order = [f"{package}.{name}" for name in re.findall(r"^    (\w+) ", docstring, re.MULTILINE)]
    assert sorted(order) == sorted(name for name in graph if name.startswith(f"{package}."))
    assert [(name, later) for n, name in enumerate(order) for later in order[n:] if later in graph[name]] == []


@pytest.mark.parametrize("package", LAYERS)
def test_no_module_imports_one_of_a_layer_above(graph, package):
    upward = [
        f"{name} -> {other}"
        for name, others in graph.items()
        for other in others
        if name.partition(".")[0] == package == other.partition(".")[0] and layer(other) > layer(name)
    ]
    assert upward == []


def test_the_environments_know_nothing_of_policies(graph):
    assert [name for name, others in graph.items() if name.startswith("gym_text.") and any("policies" in o for o in others)] == []


def test_neither_of_two_folders_of_one_layer_needs_the_other_and_is_needed_by_it(graph):
    pairs = {(".".join(name.split(".")[:2]), ".".join(other.split(".")[:2])) for name, others in graph.items() for other in others}
    assert [pair for pair in pairs if pair[0] != pair[1] and pair[::-1] in pairs] == []


def environment_names():
    """Return the names of registered environments without their versions, and of our modules that only some of them need."""
    ids = {spec.id for spec in gym.registry.values()} | {spec.name for spec in gym.registry.values() if len(spec.name) > 5}
    entries = {str(spec.entry_point).partition(":")[0] for spec in gym.registry.values()}
    modules = {entry.split(".")[1] for entry in entries if entry.startswith("gym_text.")}
    return ids, modules


def docs_of(tree):
    """Return the nodes of a module's docstrings and of the strings that stand under fields and constants."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}


def named_environments(tree, ids, modules):
    """Return the strings and names of a module's code that name an environment, or a module of one."""
    docs, found = docs_of(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found += [env_id for env_id in ids if env_id in node.value]
        words = [getattr(node, key, None) for key in ("id", "attr", "arg", "name", "module")]
        for word in filter(None, (word for word in words if isinstance(word, str))):
            parts = word.split(".")
            found += [name for name in modules if name in parts]
    return found


def test_the_policies_know_no_environment_by_its_name():
    ids, modules_of_environments = environment_names()
    assert {"LunarLander", "CookingWorldText-v0"} <= ids and {"lunar_lander", "babyai", "textworld"} <= modules_of_environments
    known = modules("gym_text_policies")
    examples = next(
        node
        for node in known["gym_text_policies.commands.parser"].body
        if isinstance(node, ast.Assign) and node.targets[0].id == "EXAMPLES"
    )
    known["gym_text_policies.commands.parser"].body.remove(examples)
    found = {name: named for name, tree in known.items() if (named := named_environments(tree, ids, modules_of_environments))}
    assert found == {}
