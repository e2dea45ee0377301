"""Train a small network of stable-baselines3 for each world of the panel, from rewards alone, and let them play it as one row.

``python benchmarks/panel_networks.py`` takes about an hour of one core, five minutes of training for each world. It trains on the
fold ``train`` with the panel's step limits. A second run trains only the worlds that have no network in the folder, and refuses a
network that was trained otherwise. The row's result file is ``FOLDER/results/stable-baselines3-small.json``. ``--help`` lists the
options.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from helpers.harness import command, options, run, table, write
from helpers.networks import Numbers, ScoredActions, ScoringPolicy, WordEmbeddings
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from gym_text.errors import UsageError, check_choice
from gym_text.wrappers import EncodeText, History
from gym_text_policies.environments import environment_maker, fold_arguments
from gym_text_policies.files.run_folders import write_atomically, writing
from gym_text_policies.files.safe_files import replacing
from gym_text_policies.run.panel.command import PanelConfig
from gym_text_policies.run.panel.command import run as play
from gym_text_policies.run.panel.worlds import Size, the_panel

ROW = "stable-baselines3"
"""Name of the row."""
HISTORY = 4
"""Steps that the network of a game sees, beside the present."""
LENGTHS = 128, 448
"""Words of a text: in a world whose actions are always the same, and in a game that lists its valid actions."""
NAME_LENGTH = 24
"""Words of an action's name."""
TEXTS = {"n_steps": 64, "batch_size": 128, "n_epochs": 4, "learning_rate": 1e-3, "gamma": 0.97, "ent_coef": 0.01}
"""Options of PPO where the network reads texts."""
NUMBERS = {
    "n_steps": 1024,
    "batch_size": 64,
    "n_epochs": 4,
    "learning_rate": 3e-4,
    "gamma": 0.999,
    "gae_lambda": 0.98,
    "ent_coef": 0.01,
}
"""Options of PPO where it reads numbers: those of rl-baselines3-zoo for LunarLander."""


@dataclass(frozen=True)
class Config:
    """Train a network for each world of the panel."""

    folder: str = "runs/panel_networks"
    """Folder of the networks."""
    only: tuple[str, ...] = ()
    """Worlds; by default all."""
    size: Size = "small"
    """How many levels of each world are played afterwards: small (10), medium (40) or full (200)."""
    seconds: float = 300
    """Processor time of the training of each world."""
    games: int = 8
    """Games at once."""
    seed: int = 0
    """Seed of training."""

    def __post_init__(self) -> None:
        for world in self.only:
            check_choice("only", world, the_panel().worlds)

    @property
    def training(self) -> dict[str, float]:
        """The settings that a network depends on, as they stand in the file beside it."""
        return {name: getattr(self, name) for name in ("seconds", "games", "seed")}


class Budget(BaseCallback):
    """Ends the training after some seconds of the processor, and keeps the mean return of each tenth of them."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.start = seconds, 0.0
        self.returns: list[list[float]] = [[] for _ in range(10)]

    def _on_training_start(self) -> None:
        self.start = time.process_time()

    def _on_step(self) -> bool:
        share = (time.process_time() - self.start) / self.seconds
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.returns[min(9, int(10 * share))] += ended
        return share < 1


def make_env(world: str) -> gym.Env[Any, Any]:
    """Return a world's environment on the fold train, as its network sees it."""
    environment = the_panel().worlds[world].environment
    arguments = fold_arguments(environment, "train", expert="off")
    env = environment_maker(environment, **arguments)()
    if not isinstance(env.action_space, spaces.Text):
        return EncodeText(env, length=LENGTHS[0], names=False)
    env.close()
    env = environment_maker(environment, **arguments, actions="index")()
    return EncodeText(History(env, HISTORY), length=LENGTHS[1], name_length=NAME_LENGTH)


def network(config: Config, world: str) -> PPO | MaskablePPO:
    """Return a network that has learnt nothing yet."""
    games = make_vec_env(lambda: make_env(world), n_envs=config.games, seed=config.seed)
    fields = games.observation_space.keys()  # type: ignore[attr-defined]
    common: dict[str, Any] = {"env": games, "seed": config.seed, "device": "cpu"}
    if "valid_actions" in fields:
        sizes = {"n": int(games.action_space.n), "history": HISTORY, "length": LENGTHS[1]}  # type: ignore[attr-defined]
        scored = {"features_extractor_class": ScoredActions, "features_extractor_kwargs": sizes}
        return MaskablePPO(ScoringPolicy, **common, **TEXTS, policy_kwargs=scored)
    if fields > {"text", "goal"}:
        return PPO("MultiInputPolicy", **common, **NUMBERS, policy_kwargs={"features_extractor_class": Numbers})
    return PPO("MultiInputPolicy", **common, **TEXTS, policy_kwargs={"features_extractor_class": WordEmbeddings})


def is_trained(config: Config, path: Path) -> bool:
    """Return whether the folder has a network, which then has to be trained as the config says.

    Raises:
        UsageError: If it was trained otherwise.
    """
    if not (path.exists() and path.with_suffix(".json").exists()):
        return False
    figures = json.loads(path.with_suffix(".json").read_text("utf-8"))
    if (stored := {name: figures.get(name) for name in config.training}) != config.training:
        raise UsageError(
            f"{path}: expected a network trained with {config.training}; got one trained with {stored}. "
            "Remove it, or name another folder."
        )
    return True


def train(config: Config, world: str, path: Path) -> None:
    """Train a network, and save it with what its training says."""
    model, budget = network(config, world), Budget(config.seconds)
    model.learn(1_000_000_000, callback=budget)
    ended = {"steps": model.num_timesteps, "episodes": sum(map(len, budget.returns))}
    means = [round(fmean(values), 3) if values else None for values in budget.returns]
    with writing(path), replacing(path) as file:
        model.save(file)
    write_atomically(path.with_suffix(".json"), json.dumps({"world": world, **config.training, **ended, "returns": means}) + "\n")
    model.get_env().close()  # type: ignore[union-attr]


def learning_table(learnt: Sequence[Mapping[str, Any]]) -> str:
    """Return a row for each network: the steps and episodes of its training, and the mean returns at its start and its end."""
    columns = ("trained in", "steps", "episodes", "return, first tenth", "last tenth")
    rows = []
    for figures in learnt:
        ends = ("-" if mean is None else f"{round(mean, 2) + 0.0:.2f}" for mean in (figures["returns"][0], figures["returns"][-1]))
        rows.append((figures["world"], *(f"{figures[name]:,}" for name in ("steps", "episodes")), *ends))
    return table(columns, rows)


def main() -> None:
    """Train what is missing, write what the networks learnt in training, and let them play the panel as one row."""
    config = options(Config, __doc__)
    torch.set_num_threads(1)
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    panel, entries, learnt = the_panel(), [], []
    paths = {world: folder / f"{world}.zip" for world in config.only or panel.worlds}
    missing = [world for world, path in paths.items() if not is_trained(config, path)]
    for world, path in paths.items():
        if world in missing:
            train(config, world, path)
        learnt.append(json.loads(path.with_suffix(".json").read_text("utf-8")))
        print(json.dumps(learnt[-1]), flush=True)
        entries.append({"model": f"sb3:{path}", "deterministic": False, "environments": [panel.worlds[world].environment]})
    write("panel_networks", f"`{command()}`\n\n{learning_table(learnt)}", {"command": command(), "networks": learnt})
    write_atomically(rows := folder / "rows.yaml", json.dumps({ROW: entries}, indent=1) + "\n")  # JSON is YAML
    print(play(PanelConfig(plan=str(rows), size=config.size, only=config.only, folder=str(folder))))


if __name__ == "__main__":
    run(main)
