"""Rows of a table from a YAML file: each entry has the settings of a policy, and may have a number of episodes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gym_text.errors import UsageError, check_int
from gym_text_policies.environments import names_environment
from gym_text_policies.experiments.settings import build
from gym_text_policies.experiments.trust import Trust
from gym_text_policies.experiments.yaml_files import Node, read_yaml
from gym_text_policies.policies.config import FIELDS, PolicyConfig
from gym_text_policies.policies.labels import looking_ahead, mixture


@dataclass(frozen=True)
class Variant:
    """The policy of a row of a table, and how many episodes it plays."""

    policy: PolicyConfig
    episodes: int | None = None
    """Episodes of each environment; None is the table's number."""
    environments: tuple[str, ...] = ()
    """The environments that have the row, as in `names_environment`; all have it if this is empty."""
    otherwise: Variant | None = None
    """What plays in the row in other environments."""

    def playing(self, environment: str) -> Variant | None:
        """Return what plays in the row in an environment, such as ``BabyAIText-v0?task=goto``; None if it does not have the row."""
        if not self.environments or any(names_environment(name, environment) for name in self.environments):
            return self
        return self.otherwise and self.otherwise.playing(environment)

    def check_environments(self, label: str, played: Collection[str]) -> None:
        """Raise `UsageError` if the row names an environment that is none of those of the table.

        Args:
            label: The row's name.
            played: The names of the table's environments.
        """
        for name in self.environments:
            if not any(names_environment(name, environment) for environment in played):
                raise UsageError(
                    f"row {label!r}: expected environments that are played, each by its id or with some of its arguments: "
                    f"{', '.join(played)}; got {name!r}."
                )
        if self.otherwise:
            self.otherwise.check_environments(label, played)


@dataclass(frozen=True)
class VariantSettings(PolicyConfig):
    """The keys that a row may have in the file."""

    episodes: int | None = None
    """Episodes of each environment; None is the table's number."""
    environments: tuple[str, ...] = ()
    """Environments that have this row: ids, or names with keyword arguments, all of which an environment has to have. By default
    all have it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes is not None:
            check_int("episodes", self.episodes, 0, 1_000_000)


def read_variants(path: str | Path, trust: Trust | None = None) -> dict[str, Variant]:
    """Read a file of variants.

    Two rows::

        baseline: {model: smollm2, strategy: zero_shot}
        history: {model: smollm2, strategy: zero_shot, history: 16, episodes: 20}

    Keys of a row are the fields of `PolicyConfig`, ``episodes``, ``environments``, and options of the model's backend. If some
    actions of a row are the expert's or random, the row's name gives their probability. If a row looks ahead, its name says so.

    An environment has the row if its id is one of ``environments``, with all arguments that stand there:
    ``BabyAIText-v0?task=goto`` also names ``BabyAIText-v0?max_episode_steps=26&task=goto``. A row may be a list of such entries: in
    each environment the first one plays whose ``environments`` name it. A last entry without ``environments`` plays in all others::

        networks:
        - {model: 'sb3:goto.zip', environments: ['BabyAIText-v0?task=goto']}
        - {model: 'sb3:lander.zip', environments: [LunarLanderLLM-v2]}

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
    variants = {name: _row(name, node, trust or Trust()) for name, node in root.value.items()}
    return {f"{name}{looking_ahead(row.policy.settings)}{mixture(row.policy.given)}": row for name, row in variants.items()}


def _row(name: str, node: Node, trust: Trust) -> Variant:
    """Return an entry, or the first entry of a list, which leads to the next."""
    if not (isinstance(node.value, list) and node.value):
        return _variant(name, node, trust)
    *before, last = (_variant(name, entry, trust) for entry in node.value)
    if any(not entry.environments for entry in before):
        raise UsageError(
            f"{node.location}{name}: expected environments in each entry but the last; an entry without them plays everywhere."
        )
    added = {looking_ahead(entry.policy.settings) + mixture(entry.policy.given) for entry in (*before, last)}
    if len(added) > 1:
        raise UsageError(
            f"{node.location}{name}: expected entries that mix and look ahead alike, as the row's name tells; got {sorted(added)}."
        )
    return functools.reduce(lambda later, entry: dataclasses.replace(entry, otherwise=later), reversed(before), last)


def _variant(name: str, node: Node, trust: Trust) -> Variant:
    if not isinstance(node.value, dict):
        raise UsageError(f"{node.location}{name}: expected options such as {{model: smollm2, mode: text}}; got {node.plain()!r}.")
    parts = dict(trust.checked(node).value)
    if not isinstance(model := parts.get("model", Node(None)).value, str):
        raise UsageError(f"{node.location}{name}: expected a model, such as 'model: smollm2'; got {model!r}.")
    if "env" in parts:
        raise UsageError(f"{node.location}{name}: expected options of a policy; got 'env'. The option environments names them.")
    options = {key: parts.pop(key) for key in list(parts) if key not in (*FIELDS, "episodes", "environments")}
    if options:
        section = parts.get("options", Node({}))
        parts["options"] = Node({**section.value, **options}) if isinstance(section.value, dict) else section
    row = build(VariantSettings, Node(parts, node.location), f"{name}.")
    return Variant(PolicyConfig(**{field: getattr(row, field) for field in FIELDS}), row.episodes, row.environments)
