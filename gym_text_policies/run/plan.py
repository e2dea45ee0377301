"""A plan: the rows that a run plays. A row is a policy in an environment, with its levels.

Plans come from a command's options (`PlayerOptions`) or from a YAML file (`read_plan`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, check_int
from gym_text_policies.backends.provider_table import names_for_help
from gym_text_policies.environments import names_environment
from gym_text_policies.policies.config import FIELDS, Mode, PolicyConfig, settings_of
from gym_text_policies.policies.labels import additions, thinking
from gym_text_policies.settings.from_file import build
from gym_text_policies.settings.yaml_nodes import Node, read_yaml

EXPERT = "gold (expert)"
"""Label of the expert's row."""


@dataclass(frozen=True)
class PlanRow:
    """A policy in an environment, and the levels that it plays there."""

    label: str
    """Name of the policy in tables."""
    environment: str
    """Name of the environment, with keyword arguments as in ``BabyAIText-v0?task=goto``."""
    policy: PolicyConfig
    """Who plays."""
    seeds: Sequence[int]
    """Seeds of the episodes: the levels of the fold."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """More keyword arguments of the environment, such as the fold."""

    @property
    def name(self) -> str:
        """Name of the row in messages and beside its progress."""
        return f"{self.environment}, {self.label}"


@dataclass(frozen=True)
class Player(PolicyConfig):
    """Who plays, as an entry of a plan's file says it: a `PolicyConfig`, how many episodes it plays, and where."""

    episodes: int | None = None
    """Episodes of each environment; None is the command's number."""
    environments: tuple[str, ...] = ()
    """Environments in which it plays: ids, or names with keyword arguments, all of which an environment has to have. By default it
    plays in all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes is not None:
            check_int("episodes", self.episodes, 0, 1_000_000)

    @property
    def policy(self) -> PolicyConfig:
        """The policy alone."""
        return PolicyConfig(**{name: getattr(self, name) for name in FIELDS})

    @property
    def added_label(self) -> str:
        """What the name of the row says beside its own name: how the policy looks ahead, and which actions are not its own."""
        return additions(self.settings)


Players = Mapping[str, Sequence[Player]]
"""Label of a row -> who may play it: in each environment the first entry that plays there."""


def player_in(environment: str, entries: Sequence[Player]) -> Player | None:
    """Return who plays a row in an environment; None if nobody does, and the environment has no such row."""
    for entry in entries:
        if not entry.environments or any(names_environment(name, environment) for name in entry.environments):
            return entry
    return None


def check_environments(players: Players, played: Collection[str]) -> None:
    """Raise `UsageError` if a row names an environment that is none of those that are played."""
    for label, entries in players.items():
        for name in (name for entry in entries for name in entry.environments):
            if not any(names_environment(name, environment) for environment in played):
                raise UsageError(
                    f"row {label!r}: expected environments that are played, each by its id or with some of its arguments: "
                    f"{', '.join(played)}; got {name!r}."
                )


@dataclass(frozen=True, kw_only=True)
class PlayerOptions:
    """Who plays, a row for each."""

    models: tuple[str, ...] | None = field(default=None, metadata={"more": names_for_help})
    """Who plays: language models, module:Name (a policy of your own), sb3:FILE (a model of stable-baselines3), the policy.json of a
    search, random, gold. By default smollm2, the embedded model."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the language models, such as mode, think, max_tokens, top_p; and options of their backend: dtype, device,
    base_url, timeout, cache, prices, max_cost …"""
    plan: str = ""
    """A YAML file that names rows, in place of models. Each row has the settings of its policy, such as model and mode. In bench it
    may have its own number of episodes."""
    orders: int = 0
    """Number of orders of the options in which each language model is asked again, about at most 50 states of each row: whether its
    answers depend on the order. By default it is asked once."""
    best_actions: bool = False
    """Whether probabilities are also compared with all actions after which the expert, in copies of the game, needs the fewest
    steps: in at most 50 states of each row, where probabilities are stored and the expert can plan anew."""

    def players(
        self, modes: Sequence[Mode] = (), usual: Sequence[Mode] = ("choose",), temperatures: Sequence[float] = (), **settings: Any
    ) -> dict[str, Sequence[Player]]:
        """Return the rows that the user asks for, one for each mode and each temperature of a language model.

        Without `modes` an adapter has the mode in which it was trained, any other model those of `usual`.
        """
        if self.plan:
            given = [name for name, value in (("options", self.options), ("temperatures", temperatures)) if value]
            if given:
                raise UsageError(
                    f"{given[0]}: expected none together with plan; write each row's settings into the file, as in device: cpu."
                )
            return read_plan(self.plan)
        models = ("smollm2",) if self.models is None else self.models
        rows: dict[str, Sequence[Player]] = {label_of(name): [Player(name)] for name in models if not PolicyConfig(name).asks_model}
        drawn: dict[str, dict[str, Any]] = {f", temperature {number:g}": {"temperature": number} for number in temperatures} or {
            "": {}
        }
        for model in (name for name in models if PolicyConfig(name).asks_model):
            asked = PolicyConfig(model, options=self.options)
            mode_of_model = asked.mode or settings_of(model).get("mode")
            thinks = f", {said}" if (said := thinking(asked.given)) else ""
            for mode in modes or ([mode_of_model] if mode_of_model else usual):
                for suffix, temperature in drawn.items():
                    player = Player(model, mode=mode, options=self.options, **settings, **temperature)
                    rows[f"{model}, {mode}{thinks}{suffix}"] = [player]
        return rows


def label_of(model: str) -> str:
    """Return the label of a row without a language model."""
    return EXPERT if model == "gold" else model


def read_plan(path: str | Path) -> dict[str, Sequence[Player]]:
    """Read the rows of a plan's file, whose keys are the fields of `Player`, and options of the model's backend.

    Two rows::

        baseline: {model: smollm2, strategy: zero_shot}
        history: {model: smollm2, strategy: zero_shot, history: 16, episodes: 20}

    If some actions of a row are the expert's or random, or the row looks ahead, its name says so. A row may be a list of entries:
    in each environment the first one plays whose ``environments`` name it; a last entry without them plays in all others::

        networks:
        - {model: 'sb3:goto.zip', environments: ['BabyAIText-v0?task=goto']}
        - {model: 'sb3:lander.zip', environments: [LunarLanderLLM-v2]}

    Raises:
        UsageError: If the file cannot be read, names a key twice, or is no such mapping. Options of backends are checked when a
            policy is made of them.
        MissingDependencyError: If PyYAML is not installed.
    """
    root = read_yaml(path)
    if not isinstance(root.value, dict) or not root.value:
        raise UsageError(f"{path}: expected a mapping such as 'baseline: {{model: smollm2, mode: text}}'; got {root.plain()!r}.")
    rows: dict[str, Sequence[Player]] = {}
    for name, node in root.value.items():
        entries = [_player(name, entry) for entry in (node.value if isinstance(node.value, list) and node.value else [node])]
        if any(not entry.environments for entry in entries[:-1]):
            raise UsageError(
                f"{node.location}{name}: expected environments in each entry but the last; an entry without them plays everywhere."
            )
        added = sorted({entry.added_label for entry in entries})
        if len(added) > 1:
            raise UsageError(
                f"{node.location}{name}: expected entries that mix and look ahead alike, as the row's name tells; got {added}."
            )
        rows[name + added[0]] = entries
    return rows


def _player(name: str, node: Node) -> Player:
    if not isinstance(node.value, dict):
        raise UsageError(f"{node.location}{name}: expected options such as {{model: smollm2, mode: text}}; got {node.plain()!r}.")
    parts = dict(node.value)
    if not isinstance(model := parts.get("model", Node(None)).value, str):
        raise UsageError(f"{node.location}{name}: expected a model, such as 'model: smollm2'; got {model!r}.")
    known = [entry.name for entry in dataclasses.fields(Player)]
    options = {key: parts.pop(key) for key in list(parts) if key not in known}
    if options:
        section = parts.get("options", Node({}))
        parts["options"] = Node({**section.value, **options}) if isinstance(section.value, dict) else section
    return build(Player, Node(parts, node.location), f"{name}.")
