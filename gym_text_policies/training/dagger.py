"""DAgger: the learner plays, the expert labels every state that the learner reaches, and the learner learns these labels as well.

The episodes of an expert contain only states that the expert reaches. A learner that errs once gets into other states, in which it
errs again (Ross et al. 2011, https://arxiv.org/abs/1011.0686). In each iteration the last adapter plays new levels of the train
fold. DAgger adds the labelled states to the data, and trains this adapter further on all data. The data and the new adapter are in
the folder ``round-N``. A run that was stopped goes on in the iteration that was not done.

The adapter plays without thoughts, because the labels are the expert's actions. Settings of fine-tuning that DAgger does not have
are the defaults of `gym_text_policies.training.sft`.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, check_int
from gym_text.registration import TRAINING
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.rows import Row, policy_of
from gym_text_policies.policies.config import settings_of
from gym_text_policies.training.options import Dtype
from gym_text_policies.training.sft import SFTConfig, sft

WARMUP = 2
"""Steps of each fine-tuning before the learning rate has risen to its maximum."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DAggerConfig:
    """Let a tuned model play, and teach it the expert's action in every state that the model reaches, in iterations (DAgger)."""

    folder: str = "runs/dagger"
    """Run folder: the data and the adapter of each iteration."""
    model: str = "runs/sft/adapter"
    """Adapter to begin with, made by gym-text sft: its folder, or adapters/NAME."""
    data: tuple[str, ...] = ("runs/data/rows",)
    """Datasets of gym-text collect that the adapter was trained on. Each iteration learns from them again, so that the model does
    not forget them."""
    environments: tuple[str, ...] = (TRAINING,)
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto. Each has an expert."""
    iterations: int = 2
    """How often the learner plays and learns."""
    episodes_per_iteration: int = 100
    """Episodes of each environment in one iteration."""
    first_seed: int = 500
    """Seed of the first episode of the first iteration. Later iterations use later seeds."""
    learning_rate: float = 2e-4
    """Learning rate of the adapter. In each iteration it falls to 0 by a cosine."""
    tokens_per_pass: int = SFTConfig.tokens_per_pass
    """Number of tokens in one forward and backward pass, as in gym-text sft."""
    interchangeable: tuple[str, ...] = ()
    """Names to exchange with each other at random in each row of data, as in gym-text sft."""
    dtype: Dtype = "float32"
    """Number format of the base's weights and of all products in learning: float32 or bfloat16."""
    seed: int = 0
    """Seed of everything that is drawn at random."""

    def __post_init__(self) -> None:
        for name in ("iterations", "episodes_per_iteration"):
            check_int(name, getattr(self, name), 1, 1_000_000)
        self.learning  # noqa: B018  raises where a setting of fine-tuning is wrong

    @property
    def learning(self) -> SFTConfig:
        """Settings of fine-tuning, without those that each iteration has of its own."""
        names = ("learning_rate", "tokens_per_pass", "interchangeable", "dtype")
        return SFTConfig(warmup=WARMUP, **{name: getattr(self, name) for name in names})


def dagger(config: DAggerConfig) -> Path:
    """Play and learn in iterations, and return the folder of the last adapter.

    Raises:
        UsageError: If the adapter or the data do not exist, the data have thoughts, or an environment has no expert that labels
            states.
    """
    rows: list[Row] = [row for source in config.data for row in read_rows(source)]
    prompting = policy_of(rows)
    if prompting.think:
        raise UsageError("data: expected rows without thoughts, because the expert's actions, which DAgger adds, have none.")
    if settings_of(config.model).get("think"):
        prompting = dataclasses.replace(prompting, think=False)
    asked = {name: getattr(prompting, name) for name in ("mode", "think", "with_reward")} | {"seed": config.seed}
    adapter, data = config.model, config.data
    for number in range(1, config.iterations + 1):
        folder = Path(config.folder) / f"round-{number}"
        playing = CollectConfig(
            folder=str(folder / "data"),
            environments=config.environments,
            episodes=(str(config.episodes_per_iteration),),
            first_seed=config.first_seed + (number - 1) * config.episodes_per_iteration,
            model=adapter,
            labels="expert",
            strategy=prompting.strategy,
            history=prompting.history,
            options=asked,
        )
        new = collect(playing)
        won = {row.episode: row.success for row in new}  # an episode may be several rows
        _logger.info("Iteration %d: the learner won %.0f %% of %d.", number, 100 * sum(won.values()) / len(won), len(won))
        rows += new
        data = (*data, str(folder / "data" / "rows"))
        own: dict[str, Any] = {"folder": str(folder / "sft"), "model": adapter, "data": data, "seed": config.seed + number}
        adapter = str(folder / "sft" / "adapter")
        if not Path(adapter).exists():
            sft(dataclasses.replace(config.learning, **own), rows)
    return Path(adapter)
