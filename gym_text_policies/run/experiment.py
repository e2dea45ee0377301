"""The configuration of an experiment: three sections, as a YAML file has them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import gymnasium as gym

from gym_text.descriptions import gymnasium_id
from gym_text.errors import UsageError, check_choice, check_int
from gym_text_policies.backends.provider_table import prefixes
from gym_text_policies.environments import environment_maker
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.load import resolved
from gym_text_policies.policies.config import DEFAULTS, PolicyConfig
from gym_text_policies.run.play import PlayOptions
from gym_text_policies.settings.fields import settings_of
from gym_text_policies.settings.from_file import build
from gym_text_policies.settings.yaml_nodes import Node, changed, from_plain, read_yaml, variants

_LOCAL = ("local", "transformers")
"""Values of ``backend`` in gym-llm's files for a model in this process. The key ``model`` then says which model it is."""
FILE = "experiment.yaml"
"""Name of the resolved configuration in a run folder."""
_ALIASES = {"num_runs": "episodes", "seed": "first_seed"}
"""Keys of the section ``experiment`` in gym-llm's files, and their names here."""


@dataclass(frozen=True)
class AgentConfig(PolicyConfig):
    """Who plays: a `PolicyConfig` whose model may be given in two parts, as in gym-llm's files."""

    backend: str | None = field(default=None, metadata={"more": lambda: f"One of {', '.join((*_LOCAL, *prefixes()))}."})
    """Where the model runs, for files of gym-llm. It is not needed here: model says it too, as in openai:MODEL."""

    def __post_init__(self) -> None:
        if self.backend is not None:
            check_choice("backend", self.backend, (*_LOCAL, *prefixes()))
        super().__post_init__()
        if without_secrets(self.options) != self.options:
            raise UsageError(
                "options: expected no key and no password; keys come from environment variables alone (OPENAI_API_KEY …)."
            )

    def player(self, seed: int = 0) -> PolicyConfig:
        """Return the agent's policy with a value for every setting; its seed is `seed` if the agent has none. See `resolved`."""
        prefixed = self.backend not in (None, *_LOCAL) and not self.model.startswith(f"{self.backend}:")
        model = f"{self.backend}:{self.model}" if prefixed else self.model
        config = PolicyConfig(model, **self.given, options=self.options).for_any()
        return resolved(config.with_defaults({"seed": seed}))


@dataclass(frozen=True)
class EnvironmentConfig:
    """The environment that is played, and its keyword arguments."""

    name: str
    """Id of the environment, such as CookingWorldText-v0, or any Gymnasium id that has a description."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment, and max_episode_steps and render_mode (human shows the game as it is played)."""

    def __post_init__(self) -> None:
        key = "name"
        try:
            environment_maker(self.full_name)
            key = "kwargs" if self.kwargs else "name"
            self.make(render_mode=None).close()  # a value may be wrong
        except UsageError as error:
            raise UsageError(f"{key}: {error}") from error

    @property
    def full_name(self) -> str:
        """The registered id, with the arguments after the question mark."""
        env_id, mark, query = self.name.partition("?")
        return f"{gymnasium_id(env_id)}{mark}{query}"

    def make(self, **more: Any) -> gym.Env[Any, Any]:
        """Make the environment; `more` replaces keyword arguments of the same names."""
        return environment_maker(self.full_name, **{**self.kwargs, **more})()


@dataclass(frozen=True)
class RunsConfig(PlayOptions):
    """How many episodes are played, where, and what is kept."""

    parent: str = "experiments"
    """Folder of all experiments."""
    name: str = ""
    """Name of the run folder; by default the environment's id."""
    use_datetime: bool = False
    """Whether the name of the run folder ends in date and time. If not, the same command continues a run that was stopped."""
    first_seed: int = 0
    """Seed of the first episode; the next episodes have the next seeds. It also seeds what the policy draws at random, unless the
    agent has a seed."""
    save_gif: bool = False
    """Whether each episode becomes a GIF: the picture beside reasoning, action and probabilities."""
    gif_fps: int = 10
    """Pictures a second."""
    episodes: int = 1
    """Episodes of the environment."""
    verbose: bool = True
    """Whether progress is shown."""

    @staticmethod
    def of_file(nodes: Mapping[str, Node]) -> dict[str, Node]:
        """Return a file's values under our keys in place of gym-llm's. Of both, the later counts; ``--set`` comes last."""
        return {_ALIASES.get(key, key): node for key, node in nodes.items()}

    def __post_init__(self) -> None:
        check_int("gif_fps", self.gif_fps, 1, 50)
        check_int("episodes", self.episodes, 1, 1_000_000)
        if Path(self.name).name != self.name or self.name == "..":
            raise UsageError(f"name: expected a folder's name without slashes, as parent says where it lies; got {self.name!r}.")


@dataclass(frozen=True)
class ExperimentConfig:
    """One experiment. If the file has lists, it is the first of a batch."""

    environment: EnvironmentConfig
    """What is played."""
    agent: AgentConfig = AgentConfig()
    """Who plays."""
    experiment: RunsConfig = RunsConfig()
    """How many episodes are played, where, and what is kept."""
    label: str = field(default="", metadata={"internal": True})
    """Name of the experiment in its batch."""
    others: tuple[ExperimentConfig, ...] = field(default=(), metadata={"internal": True})
    """The other experiments of the batch."""
    source: Mapping[str, Any] = field(default_factory=dict, metadata={"internal": True}, repr=False, compare=False)
    """The file's content, lists included."""

    @property
    def experiments(self) -> tuple[ExperimentConfig, ...]:
        """All experiments of the batch, this one first."""
        return (dataclasses.replace(self, others=()), *self.others)

    @property
    def player(self) -> PolicyConfig:
        """The policy that plays, with a value for every setting."""
        return self.agent.player(self.experiment.first_seed)

    @property
    def folder(self) -> Path:
        """The run folder. With `use_datetime` its name ends in the time at which this property is read."""
        stamp = f"_{datetime.now():%Y-%m-%d_%H-%M-%S}" if self.experiment.use_datetime else ""
        return Path(self.experiment.parent) / f"{self.experiment.name or _as_name(self.environment.name)}{stamp}"

    def to_dict(self) -> dict[str, Any]:
        """Return the three sections as plain data; the agent has a value for every setting."""
        agent = self.player.to_json()
        if options := agent.get("options"):
            agent["options"] = {name: value for name, value in options.items() if name != "key_variable" or value is not None}
        if self.agent.seed is None:
            del agent["seed"]  # it follows `experiment.first_seed`
        return {"agent": agent, **{name: dataclasses.asdict(getattr(self, name)) for name in ("environment", "experiment")}}


def parse_config(path: str | Path, changes: Mapping[str, Any] | None = None) -> ExperimentConfig:
    """Read the YAML file of an experiment, or of a batch of them.

    Args:
        path: The file, or a run folder.
        changes: Values in place of the file's, by their path: ``{"agent.model": "smollm2"}``.

    Raises:
        UsageError: If the file has mistakes; the message names file and line of each.
    """
    path = Path(path)
    return _config(read_yaml(path / FILE if path.is_dir() else path), changes or {})


def as_config(config: ExperimentConfig | Mapping[str, Any] | str | Path) -> ExperimentConfig:
    """Return the experiment of a config, nested mappings, or a file."""
    if isinstance(config, ExperimentConfig):
        return config
    return parse_config(config) if isinstance(config, str | Path) else _config(from_plain(config), {})


def explain_keys() -> str:
    """Return all keys of a file with what they mean, a line each, and the value that holds if a key is left out."""
    lines = []
    for section, kind in (("agent", AgentConfig), ("environment", EnvironmentConfig), ("experiment", RunsConfig)):
        lines.append(f"{section}:")
        for setting in sorted(settings_of(kind), key=lambda setting: setting.name not in ("model", "backend")):
            default = DEFAULTS.given.get(setting.name, setting.default) if kind is AgentConfig else setting.default
            shown = "" if default in (dataclasses.MISSING, None, "", {}) else f" [{str(default).lower()}]"
            lines.append(f"  {setting.name + ':':<19}{setting.doc}{shown}")
    return "\n".join(lines)


def _config(node: Node, changes: Mapping[str, Any]) -> ExperimentConfig:
    for path, value in changes.items():
        node = changed(node, path.split("."), from_plain(value))
    configs = []
    for part, chosen in variants(node):
        label = ",".join(f"{path.rpartition('.')[2]}={value}" for path, value in chosen.items())
        configs.append(dataclasses.replace(build(ExperimentConfig, part), label=_as_name(label)))
    if len({config.label for config in configs}) < len(configs):  # long or odd values can give the same name
        configs = [dataclasses.replace(config, label=f"{number:03}-{config.label}") for number, config in enumerate(configs)]
    return dataclasses.replace(configs[0], others=tuple(configs[1:]), source=node.plain())


def _as_name(text: str) -> str:
    """Return a text as a folder's name."""
    return re.sub(r"[^\w.=,+-]+", "_", text)[:120].strip("._")
