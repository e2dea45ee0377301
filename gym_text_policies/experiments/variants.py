"""Policies by name out of a YAML file: a mapping from a row's name to the options of `load_policy`, ``model`` among them.

A row may also say ``seeds``: how many episodes the benchmark plays of it, where it is not to be ``llm_seeds``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, check_int
from gym_text_policies.experiments.settings import read_yaml

Variants = dict[str, dict[str, Any]]
"""Name -> options of `load_policy`, and perhaps ``seeds``."""


def read_variants(path: str | Path) -> Variants:
    """Read a file of variants.

    One of two rows::

        baseline: {model: smollm2, strategy: zero_shot}
        history: {model: smollm2, strategy: zero_shot, history: 16}

    Raises:
        UsageError: If it cannot be read, names a key twice, or is no such mapping; the options themselves are checked when a
            policy is made of them.
        MissingDependencyError: If PyYAML is not installed.
    """
    root = read_yaml(path)
    if not isinstance(root.value, dict) or not root.value:
        raise UsageError(f"{path}: expected a mapping such as 'baseline: {{model: smollm2, mode: text}}'; got {root.plain()!r}.")
    variants: Variants = {}
    for name, node in root.value.items():
        options, place = node.plain(), f"{node.place}{name}"
        if not isinstance(options, dict):
            raise UsageError(f"{place}: expected options such as {{model: smollm2, mode: text}}; got {options!r}.")
        if not isinstance(options.get("model"), str):
            raise UsageError(f"{place}: expected a model, such as 'model: smollm2'; got {options.get('model')!r}.")
        if "env" in options:
            raise UsageError(f"{place}: expected options of a policy; got 'env'. Name environments beside the variants.")
        check_int(f"{place}: seeds", options.get("seeds", 0), 0, 1_000_000)
        variants[name] = options
    return variants


def policy_options(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a row `load_policy` takes: all but how many episodes are played of it."""
    return {key: value for key, value in row.items() if key != "seeds"}
