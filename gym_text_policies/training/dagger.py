"""DAgger: the learner plays, the expert labels every state that the learner reaches, and the learner learns these labels as well.

The episodes of an expert contain only states that the expert reaches. A learner that errs once gets into other states, in which it
errs again (Ross et al. 2011, https://arxiv.org/abs/1011.0686). In each iteration the last adapter plays new levels of the train
fold. DAgger adds the labelled states to the data, and trains this adapter further on all data. The data and the new adapter are in
the folder ``round-N``. A run that was stopped goes on in the iteration that was not done.

If the data have thoughts, the learner thinks, and the environment writes the thoughts before the expert's actions. If they have
none, a learner whose chat template has thoughts plays and learns without them.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from pathlib import Path

from gym_text.errors import UsageError, check_int
from gym_text.registration import TRAINING
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.rows import Row, policy_of
from gym_text_policies.policies.config import settings_of
from gym_text_policies.training.measured import MeasuredOptions, measured
from gym_text_policies.training.model.saving import made
from gym_text_policies.training.sft import SFTConfig, sft

_logger = logging.getLogger(__name__)
_SET_HERE = ("data", "folder", "model", "seed", "test_environments", "test_episodes")
"""Settings of fine-tuning that DAgger sets itself, in each iteration, or for all."""
_WITHOUT = (*_SET_HERE, "rank", "alpha", "target_modules")
"""These settings are no options, nor are those of a new adapter: DAgger trains an adapter further."""


@dataclass(frozen=True)
class DAggerConfig(MeasuredOptions):
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
    expert_share: float = 0.0
    """Probability that the expert's action is played instead of the learner's, in the first iteration. Each later iteration halves
    this probability."""
    num_envs: int = 8
    """Episodes that run at once, asking the model together."""
    seed: int = 0
    """Seed of everything that is drawn at random."""
    sft: SFTConfig = field(default=SFTConfig(learning_rate=2e-4, warmup=2), metadata={"without": _WITHOUT})
    """How each iteration learns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("iterations", "episodes_per_iteration", "num_envs"):
            check_int(name, getattr(self, name), 1, 1_000_000)
        if not 0 <= self.expert_share <= 1:
            raise UsageError(f"expert_share: expected a probability; got {self.expert_share!r}.")
        for name in _SET_HERE:
            if (value := getattr(self.sft, name)) != getattr(SFTConfig(), name):
                raise UsageError(f"sft: expected settings without {name}, which DAgger sets in each iteration; got {value!r}.")


def dagger(config: DAggerConfig) -> Path:
    """Play and learn in iterations, and return the folder of the last adapter.

    Raises:
        UsageError: If the adapter or the data do not exist, or an environment has no expert that labels states.
    """
    rows: list[Row] = [row for source in config.data for row in read_rows(source)]
    prompting = policy_of(rows)
    if prompting.think is None and settings_of(config.model).get("think"):
        prompting = dataclasses.replace(prompting, think=False)  # the data have no thoughts, so there are none to learn
    asked = {"mode": prompting.mode, "think": prompting.think, "with_reward": prompting.with_reward, "seed": config.seed}
    adapter, data = Path(config.model), config.data
    for number in range(1, config.iterations + 1):
        folder = Path(config.folder) / f"round-{number}"
        played = CollectConfig(
            folder=str(folder / "data"),
            environments=config.environments,
            episodes=(str(config.episodes_per_iteration),),
            first_seed=config.first_seed + (number - 1) * config.episodes_per_iteration,
            model=str(adapter),
            labels="expert",
            expert_share=config.expert_share / 2 ** (number - 1),
            strategy=prompting.strategy,
            history=prompting.history,
            options={**asked, **config.sft.backend},
            num_envs=config.num_envs,
        )
        new = collect(played)
        won = {row.episode: row.success for row in new}  # an episode may be several rows
        _logger.info("Iteration %d: the learner won %.0f %% of %d.", number, 100 * sum(won.values()) / len(won), len(won))
        rows += new
        data = (*data, str(folder / "data" / "rows"))
        learning = dataclasses.replace(
            config.sft, data=data, folder=str(folder / "sft"), model=str(adapter), seed=config.seed + number
        )
        adapter = folder / "sft" / "adapter"
        if not adapter.exists():
            sft(learning, rows)
    return measured(config, config.folder, adapter, config.sft.backend)


def run(config: DAggerConfig) -> str:
    """Play and learn, and return a sentence that names the adapter's folder."""
    return made(dagger(config))
