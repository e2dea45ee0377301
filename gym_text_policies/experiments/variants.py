"""Policies by name, from a YAML file: each entry is a `PolicyConfig`, and perhaps how many episodes are played of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

from gym_text.errors import UsageError, check_int
from gym_text_policies.experiments.settings import by_new_names, read_value
from gym_text_policies.experiments.trust import Trust
from gym_text_policies.experiments.yaml_files import Node, read_yaml
from gym_text_policies.old_names import old_names
from gym_text_policies.policies.config import SETTINGS, PolicyConfig, mixture


@old_names(seeds="episodes")
@dataclass(frozen=True)
class Variant:
    """A row of a table to be."""

    policy: PolicyConfig
    episodes: int | None = None
    """Episodes of each environment; None is the table's number."""


def read_variants(path: str | Path, trust: Trust | None = None) -> dict[str, Variant]:
    """Read a file of variants.

    Two rows::

        baseline: {model: smollm2, strategy: zero_shot}
        history: {model: smollm2, strategy: zero_shot, history: 16, episodes: 20}

    Keys of a row are the fields of `PolicyConfig`, ``episodes``, and options of the model's backend. Where the expert or chance
    acts beside the model, the name of the row says so.

    Args:
        path: The file.
        trust: What the file may name beside data.

    Raises:
        UsageError: If the file cannot be read, names a key twice, or is no such mapping. Options of backends are checked when a
            policy is made of them.
        MissingDependencyError: If PyYAML is not installed.
    """
    root = read_yaml(path)
    if not isinstance(root.value, dict) or not root.value:
        raise UsageError(f"{path}: expected a mapping such as 'baseline: {{model: smollm2, mode: text}}'; got {root.plain()!r}.")
    checked = (trust or Trust()).checked(root)
    found = {name: _variant(name, node) for name, node in checked.value.items()}
    return {f"{name}{mixture(variant.policy.given)}": variant for name, variant in found.items()}


def _variant(name: str, node: Node) -> Variant:
    node = by_new_names(PolicyConfig, by_new_names(Variant, node))
    settings, place = node.plain(), f"{node.place}{name}"
    if not isinstance(settings, dict):
        raise UsageError(f"{place}: expected options such as {{model: smollm2, mode: text}}; got {settings!r}.")
    model, episodes = settings.pop("model", None), settings.pop("episodes", None)
    if not isinstance(model, str):
        raise UsageError(f"{place}: expected a model, such as 'model: smollm2'; got {model!r}.")
    if "env" in settings:
        raise UsageError(f"{place}: expected options of a policy; got 'env'. Name environments beside the variants.")
    if episodes is not None:
        check_int(f"{place}: episodes", episodes, 0, 1_000_000)
    hints = get_type_hints(PolicyConfig)
    for key in settings.keys() & set(SETTINGS):
        try:
            settings[key] = read_value(settings[key], hints[key])
        except ValueError as error:
            raise UsageError(f"{place}: {key}: expected {error}; got {settings[key]!r}.") from error
    try:
        return Variant(PolicyConfig.of(model, **settings), episodes)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
