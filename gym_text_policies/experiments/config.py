"""The configuration of an experiment: three sections, as a YAML file has them."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym

from gym_text.errors import UsageError, check_int
from gym_text_policies.experiments.settings import Node, build, from_plain, read_yaml, variants
from gym_text_policies.environments import environment_maker
from gym_text_policies.commands.options import field_docs
from gym_text_policies.prompts import Prompt

Backend = Literal["local", "transformers", "hf", "openai", "ollama", "tensorzero", "scripted"]
_OF_GYMNASIUM = {"TaxiLLM-v3": "Taxi", "BlackjackLLM-v1": "Blackjack"}
"""Ids that gym-llm gives to Gymnasium's environments (https://github.com/rsanchezmo/gym-llm, MIT)."""
FILE = "experiment.yaml"
"""Name of the resolved configuration in a run folder."""


@dataclass(frozen=True)
class AgentConfig:
    """Who plays."""

    backend: Backend | None = None
    """Where the model runs: local (or transformers), hf, openai, ollama, tensorzero, scripted; left out, `model` says it all."""
    model: str = "smollm2"
    """The model's name at that backend; or smollm2, a folder, openai:MODEL …, random, gold, controller."""
    temperature: float = 0.0
    """0 takes the most probable; else answers are drawn."""
    history: int | Literal["all"] = 0
    """Steps before the present one that the model is shown, or all."""
    action_rate: int = 1
    """The model is asked every so many steps."""
    between: str = "repeat"
    """What is played in between: repeat (the last action), no-op (the action that does nothing), or an action's name."""
    strategy: str = "reflection"
    """What is asked: zero_shot, reasoning, reflection, few_shot, retrieval, chat, balrog, or a template's path."""
    mode: Literal["text", "json", "choose"] = "text"
    """How it is answered: in words, as a JSON object, or by a probability for each action."""
    on_invalid: str = "random"
    """What is played when an answer cannot be used: random, retry, play, raise, or an action's name."""
    max_tokens: int | None = None
    """Most tokens of an answer in words; null for the strategy's own."""
    own_words: bool = False
    """Whether the history shows what the model itself said."""
    with_reward: bool = False
    """Whether the prompt says what is rewarded."""
    length_normalised: bool = False
    """In choose, score an action by the mean log-probability of its tokens."""
    shots: int | None = None
    """Examples that few_shot and retrieval show; null for 3."""
    demonstrations: int | None = None
    """Expert episodes that these examples are taken from; null for as many as the strategy needs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the backend: base_url, timeout, retries, cache, prices, max_cost, decide, device …"""

    def __post_init__(self) -> None:
        if not self.model:
            raise UsageError("model: expected a model's name; got ''.")
        if not 0 <= self.temperature <= 100:
            raise UsageError(f"temperature: expected a number from 0 to 100; got {self.temperature!r}.")
        if self.history != "all":
            check_int("history", self.history, 0, 1_000_000)
        check_int("action_rate", self.action_rate, 1, 1_000_000)
        Prompt(self.strategy)

    @property
    def policy(self) -> str:
        """The string that `load_policy` takes."""
        if self.backend in (None, "local", "transformers") or self.model.startswith(f"{self.backend}:"):
            return self.model
        return f"{self.backend}:{self.model}"

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.policy in ("random", "gold", "controller"):
            return self.policy
        every = f", every {self.action_rate} steps" if self.action_rate > 1 else ""
        name = self.policy if len(self.policy) <= 60 else f"{self.policy[:59]}…"
        return f"{name}, {self.strategy}, {self.mode}{every}"


@dataclass(frozen=True)
class EnvironmentConfig:
    """Where it plays."""

    name: str
    """Id of the environment, such as CookingWorldText-v0, or any Gymnasium id that has a description."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment, and max_episode_steps and render_mode (human shows the game as it is played)."""

    def __post_init__(self) -> None:
        for key, arguments in (("name", {}), ("kwargs", self.kwargs)):
            try:
                environment_maker(self.full_name, **arguments)
            except UsageError as error:
                raise UsageError(f"{key}: {error}") from error

    @property
    def full_name(self) -> str:
        """The registered id, with what the name says after a question mark."""
        env_id, mark, query = self.name.partition("?")
        of_gymnasium = _OF_GYMNASIUM.get(env_id)
        if of_gymnasium and env_id not in gym.registry:
            known = [name for name in gym.registry if name.startswith(f"{of_gymnasium}-v")]
            env_id = max(known, key=lambda name: int(name.rpartition("-v")[2]), default=env_id)
        return f"{env_id}{mark}{query}"

    def maker(self, **more: Any) -> functools.partial[gym.Env[Any, Any]]:
        """Return what makes the environment, with `more` in place of keyword arguments of the same names."""
        return environment_maker(self.full_name, **{**self.kwargs, **more})

    def make(self, **more: Any) -> gym.Env[Any, Any]:
        """Make the environment."""
        return self.maker(**more)()


@dataclass(frozen=True)
class RunsConfig:
    """How often, and what is kept."""

    parent: str = "experiments"
    """Folder of all experiments."""
    name: str = ""
    """Name of the run folder; by default the environment's id."""
    use_datetime: bool = False
    """Whether the name ends in date and time. Without, the same command goes on from where it was stopped."""
    seed: int = 0
    """Seed of the first episode, and of what the policy draws; the episodes' seeds follow each other."""
    save_gif: bool = False
    """Whether each episode becomes a GIF: the picture beside reasoning, action and probabilities."""
    gif_fps: int = 10
    """Pictures a second."""
    num_runs: int = 1
    """Number of episodes."""
    verbose: bool = True
    """Whether progress is shown."""
    batch: int = 8
    """Episodes that run at once, asking a model in this process together."""
    max_concurrency: int = 50
    """Requests to a provider that wait at once."""
    retry_errors: bool = False
    """Whether a run that goes on plays episodes again that ended in an error."""

    def __post_init__(self) -> None:
        check_int("seed", self.seed, 0, 2**31 - 1)
        check_int("gif_fps", self.gif_fps, 1, 50)
        for name in ("num_runs", "batch", "max_concurrency"):
            check_int(name, getattr(self, name), 1, 1_000_000)
        if Path(self.name).name != self.name:
            raise UsageError(f"name: expected a folder's name without slashes (its place is `parent`); got {self.name!r}.")


@dataclass(frozen=True)
class ExperimentConfig:
    """One experiment; where a file has lists, the first of a batch."""

    environment: EnvironmentConfig
    agent: AgentConfig = AgentConfig()
    experiment: RunsConfig = RunsConfig()
    label: str = field(default="", metadata={"internal": True})
    """What tells it from the others of its batch."""
    others: tuple[ExperimentConfig, ...] = field(default=(), metadata={"internal": True})
    """The rest of the batch."""
    source: Mapping[str, Any] = field(default_factory=dict, metadata={"internal": True}, repr=False, compare=False)
    """What it was made of, with the lists."""

    @property
    def experiments(self) -> tuple[ExperimentConfig, ...]:
        """All experiments of the batch, this one first."""
        return (dataclasses.replace(self, others=()), *self.others)

    @property
    def folder(self) -> Path:
        """The run folder, of this moment if its name has date and time."""
        stamp = f"_{datetime.now():%Y-%m-%d_%H-%M-%S}" if self.experiment.use_datetime else ""
        return Path(self.experiment.parent) / f"{self.experiment.name or _as_name(self.environment.name)}{stamp}"

    def to_dict(self) -> dict[str, Any]:
        """Return the three sections as plain data."""
        return {name: dataclasses.asdict(getattr(self, name)) for name in ("agent", "environment", "experiment")}


def parse_config(path: str | Path, changes: Mapping[str, Any] | None = None) -> ExperimentConfig:
    """Read the YAML file of an experiment, or of a batch of them.

    Args:
        path: The file, or a run folder.
        changes: Values in place of the file's, by their path: ``{"agent.model": "smollm2"}``.

    Raises:
        UsageError: With file and line of each mistake.
    """
    path = Path(path)
    return _config(read_yaml(path / FILE if path.is_dir() else path), changes or {})


def as_config(config: ExperimentConfig | Mapping[str, Any] | str | Path) -> ExperimentConfig:
    """Return a configuration that is given as such, as nested mappings, or as a file."""
    if isinstance(config, ExperimentConfig):
        return config
    return parse_config(config) if isinstance(config, (str, Path)) else _config(from_plain(config), {})


def explain_keys() -> str:
    """Return all keys of a file with what they mean, a line each."""
    lines = []
    for section, kind in (("agent", AgentConfig), ("environment", EnvironmentConfig), ("experiment", RunsConfig)):
        lines.append(f"{section}:")
        docs = field_docs(kind)
        for entry in dataclasses.fields(kind):
            default = "" if entry.default in (dataclasses.MISSING, None, "") else f" [{_yaml_word(entry.default)}]"
            lines.append(f"  {entry.name + ':':<19}{docs[entry.name]}{default}")
    return "\n".join(lines)


def _config(node: Node, changes: Mapping[str, Any]) -> ExperimentConfig:
    for path, value in changes.items():
        node = _changed(node, path.split("."), from_plain(value))
    configs = []
    for part, chosen in variants(node):
        label = ",".join(f"{path.rpartition('.')[2]}={value}" for path, value in chosen.items())
        configs.append(dataclasses.replace(build(ExperimentConfig, part), label=_as_name(label)))
    if len({config.label for config in configs}) < len(configs):  # long or odd values can give the same name
        configs = [dataclasses.replace(config, label=f"{number:03}-{config.label}") for number, config in enumerate(configs)]
    return dataclasses.replace(configs[0], others=tuple(configs[1:]), source=node.plain())


def _changed(node: Node, path: list[str], value: Node) -> Node:
    if not path:
        return value
    parts = dict(node.value) if isinstance(node.value, dict) else {}
    parts[path[0]] = _changed(parts.get(path[0], Node(None)), path[1:], value)
    return Node(parts, node.place)


def _as_name(text: str) -> str:
    """Return a text as a folder's name."""
    return re.sub(r"[^\w.=,+-]+", "_", text)[:120].strip("._")


def _yaml_word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
