"""Imports point one way, those in functions and under TYPE_CHECKING included."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = {
    "gym_text": (
        ("errors",),
        ("spec", "spec_parts", "spaces", "pictures", "parameters", "user_folder", "java", "box2d", "vectorised", "registration"),
        ("text_env",),
        ("index_actions",),
        (
            *("wrappers", "descriptions", "textworld_express", "science_world", "textworld", "textarena", "babyai"),
            *("lunar_lander", "mountain_car", "mountain_car_vector"),
        ),
        ("",),
    ),
    "gym_text_policies": (
        ("json_data", "files", "user_cache", "digests", "redaction", "drawing", "threads", "streams"),
        ("records",),
        ("policy", "prompts", "environments", "remake", "store"),
        ("folders",),
        ("rollout", "game", "backends"),
        ("policies",),
        ("load",),
        ("engines", "report", "opponents"),
        ("experiments",),
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
