"""Policies by name out of a YAML file: a mapping from a row's name to the options of `load_policy`, ``model`` among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym

from gym_text.errors import UsageError, import_extra
from gym_text_policies.load import load_policy
from gym_text_policies.policy import Policy

Variants = dict[str, dict[str, Any]]
"""Name -> options of `load_policy`."""


def read_variants(path: str | Path) -> Variants:
    """Read a file of variants.

    One of two rows::

        baseline: {model: smollm2, strategy: zero_shot}
        history: {model: smollm2, strategy: zero_shot, history: 16}

    Raises:
        UsageError: If it cannot be read, or is no such mapping.
        MissingDependencyError: If PyYAML is not installed.
    """
    yaml = import_extra("yaml", "bench")
    try:
        data = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"variants: expected a YAML file; {path} cannot be read: {' '.join(str(error).split())}.") from error
    return check_variants(data, str(path))


def check_variants(data: Any, source: str = "variants") -> Variants:
    """Return `data` if it is a mapping from names to options.

    Raises:
        UsageError: If it is not; the options themselves are checked when a policy is made of them.
    """
    if not isinstance(data, dict) or not data or not all(isinstance(name, str) for name in data):
        raise UsageError(f"{source}: expected a mapping such as 'baseline: {{model: smollm2, mode: text}}'; got {data!r}.")
    for name, options in data.items():
        if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
            raise UsageError(f"{source}: {name}: expected options such as {{model: smollm2, mode: text}}; got {options!r}.")
        if not isinstance(options.get("model"), str):
            raise UsageError(f"{source}: {name}: expected a model, such as 'model: smollm2'; got {options.get('model')!r}.")
        if "env" in options:
            raise UsageError(f"{source}: {name}: expected options of a policy; got 'env'. Name environments beside the variants.")
    return data


def load_variant(name: str, options: dict[str, Any], env: gym.Env[Any, Any]) -> Policy:
    """Return the policy that a variant's options mean in an environment.

    Raises:
        UsageError: If the options are not those of its model.
    """
    try:
        return load_policy(env=env, **options)
    except UsageError as error:
        raise UsageError(f"variant {name!r}: {error}") from error
