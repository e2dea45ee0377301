"""Compare stable-baselines3's PPO with the random policy and the expert on BabyAIText, on seeds that it was not trained on.

``python benchmarks/stable_baselines.py`` takes some minutes on one core, and writes ``stable_baselines.md`` and ``.json``.
``--help`` lists the options.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from statistics import fmean
from typing import Any

import gymnasium as gym
import torch
from helpers.harness import command, options, run, table, write
from helpers.networks import WordEmbeddings
from sb3_contrib import MaskablePPO
from scipy.stats import binomtest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from tqdm import tqdm

import gym_text  # noqa: F401  registers the environments
from gym_text.wrappers import EncodeText
from gym_text_policies import Episode, Policy, as_policy, load_policy, rollout
from gym_text_policies.report.table import interval, number


@dataclass(frozen=True)
class Config:
    """Train PPO on a BabyAIText task. PPO, the random policy and the expert then play the same held-out seeds."""

    task: str = "goto"
    """Task of BabyAIText."""
    steps: int = 100_000
    """Training steps of all games together, on the fold train."""
    games: int = 8
    """Games at once in training."""
    length: int = 128
    """Most words of a text; the rest is cut off."""
    episodes: int = 200
    """Episodes of each policy after training, on the seeds 0, 1, … of the fold test."""
    seed: int = 0
    """Seed of training."""


def make_env(config: Config, fold: str, expert: str = "off") -> gym.Env[Any, Any]:
    """Return the environment of texts."""
    return gym.make("BabyAIText-v0", task=config.task, fold=fold, expert=expert)


def train(
    config: Config,
    make: Callable[[], gym.Env[Any, Any]],
    algorithm: type[PPO | MaskablePPO] = PPO,
    **policy_kwargs: Any,
) -> PPO | MaskablePPO:
    """Return a model that was trained on games which a function makes."""
    games = make_vec_env(lambda: EncodeText(make(), length=config.length), n_envs=config.games, seed=config.seed)
    model = algorithm(
        "MultiInputPolicy",
        games,
        n_steps=64,
        batch_size=128,
        n_epochs=4,
        learning_rate=1e-3,
        gamma=0.97,
        policy_kwargs=policy_kwargs,
        seed=config.seed,
        device="cpu",
    )
    return model.learn(config.steps)


def players(config: Config) -> Iterable[tuple[str, Callable[[], Policy]]]:
    """Yield each contender's name, and a function that makes its policy. The time of that call is its training time."""
    env = make_env(config, "test", "path")
    encoder = EncodeText(env, length=config.length)

    def trained(name: str, **policy_kwargs: Any) -> Policy:
        model = train(config, lambda: make_env(config, "train"), **policy_kwargs)
        return as_policy(lambda obs: model.predict(encoder.observation(obs))[0], env, name=name)

    yield "random", partial(load_policy, "random", env, seed=config.seed)
    yield "PPO, MultiInputPolicy as it is", partial(trained, "ppo")
    yield "PPO, word embeddings", partial(trained, "ppo embeddings", features_extractor_class=WordEmbeddings)
    yield "expert", partial(load_policy, "gold", env)


def row(name: str, seconds: float, episodes: list[Episode]) -> dict[str, Any]:
    """Return the figures of a contender."""
    won = sum(episode.outcome == "won" for episode in episodes)
    interval = binomtest(won, len(episodes)).proportion_ci(0.95, method="wilson")
    return {
        "policy": name,
        "episodes": len(episodes),
        "won": won,
        "success": won / len(episodes),
        "success_interval": [float(interval.low), float(interval.high)],
        "return": fmean(episode.total_reward for episode in episodes),
        "length": fmean(episode.length for episode in episodes),
        "training_seconds": seconds,
    }


def report(config: Config, rows: Iterable[dict[str, Any]]) -> str:
    """Return the figures as Markdown."""
    lines = []
    for r in rows:
        success = number(r["success"], ".2f") + interval(r["success_interval"], ".2f")
        figures = f"{r['return']:.2f}", f"{r['length']:.1f}", f"{r['training_seconds']:.0f}"
        lines.append((r["policy"], f"{r['won']} of {r['episodes']}", success, *figures))
    columns = ("policy", "won", "success [95 %]", "return", "length", "training, s")
    return f"`{command()}`: BabyAIText-v0, task={config.task}, {config.steps:,} steps on one core\n\n{table(columns, lines)}"


def main() -> None:
    """Train, play, print and write the table."""
    config = options(Config)
    torch.set_num_threads(1)
    rows = []
    for name, make_policy in players(config):
        start = time.perf_counter()
        policy = make_policy()
        seconds = time.perf_counter() - start
        played = rollout(lambda: make_env(config, "test", "path"), policy, range(config.episodes))
        rows.append(row(name, seconds, list(tqdm(played, desc=name, total=config.episodes))))
    packages = {name: version(name) for name in ("gymnasium", "minigrid", "stable_baselines3", "torch")}
    record = {"config": asdict(config), "python": platform.python_version(), "versions": packages, "rows": rows}
    write("stable_baselines", report(config, rows), record)


if __name__ == "__main__":
    run(main)
