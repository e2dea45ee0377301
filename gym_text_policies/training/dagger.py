"""DAgger: the learner plays, the expert labels every state that the learner reaches, and the learner learns these labels as well.

An expert shows only the states that an expert reaches. A learner that errs once leaves them, and errs again (Ross et al. 2011,
https://arxiv.org/abs/1011.0686). Each round plays new levels of the train fold with the last adapter, adds the labelled states to
the data, and trains that adapter further. A run that was stopped goes on in the round where it was.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path

from gym_text.errors import UsageError, check_choice, check_int
from gym_text.registration import TRAINING
from gym_text_policies.backends.local.adapters import read_adapter
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.rows import Row, policy_of
from gym_text_policies.training.model.lora import PRECISIONS, TRAINING_DEVICES, Precision, TrainingDevice
from gym_text_policies.training.model.trackers import Tracker, check_tracker
from gym_text_policies.training.sft import SFTConfig, sft

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DAggerConfig:
    """Let a tuned model play, and teach it what its expert says in every state that it reaches, in rounds (DAgger)."""

    folder: str = "runs/dagger"
    """Run folder: each round's data and adapter."""
    adapter: str = "runs/sft/adapter"
    """Folder of the adapter to begin with, made by gym-text sft."""
    data: tuple[str, ...] = ("runs/data/rows",)
    """Datasets that the adapter was trained on; each round learns them again, so that nothing is forgotten."""
    environments: tuple[str, ...] = (TRAINING,)
    """Environments that the learner plays: ids, with keyword arguments as in BabyAIText-v0?task=goto. Each has an expert."""
    rounds: int = 2
    """How often it plays and learns."""
    episodes: int = 100
    """Episodes of each environment and round."""
    first_seed: int = 500
    """Seed of the first round's first episode; each round takes new ones."""
    expert_share: float = 0.0
    """Probability that the expert's action is played in place of the learner's, in the first round; it halves with each round."""
    learning_rate: float = 2e-4
    """Highest learning rate of each round."""
    epochs: float = 1.0
    """How often each round reads all of the data."""
    max_steps: int = 0
    """Steps of the optimiser in each round; 0: when all epochs are done."""
    rows_per_step: int = 8
    """Conversations of one step of the optimiser."""
    rows_per_pass: int = 2
    """Conversations that go through the model at once."""
    dev_environments: tuple[str, ...] = ()
    """Environments whose dev fold decides which checkpoint of a round is kept."""
    dev_episodes: int = 20
    """Episodes of each of them."""
    batch: int = 8
    """Episodes that run at once."""
    report_to: Tracker = "none"
    """Where else metrics go."""
    seed: int = 0
    """Seed of everything that is drawn at random."""
    interchangeable: tuple[str, ...] = ()
    """Names that are exchanged with each other in each row; see gym-text sft."""
    precision: Precision = "float32"
    """Precision of products and of the base's weights in learning: float32 or bfloat16; see gym-text sft."""
    compiled: bool = False
    """Compile the model's layers for learning; see gym-text sft."""
    device: TrainingDevice = "auto"
    """Where to learn: auto (CUDA where there is one, else MPS, else the CPU) or cpu. CUDA_VISIBLE_DEVICES picks one of several."""

    def __post_init__(self) -> None:
        check_int("rounds", self.rounds, 1, 1000)
        check_int("episodes", self.episodes, 1, 1_000_000)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("device", self.device, TRAINING_DEVICES)
        check_tracker(self.report_to)
        if not 0 <= self.expert_share <= 1:
            raise UsageError(f"expert_share: expected a probability; got {self.expert_share!r}.")


def dagger(config: DAggerConfig) -> Path:
    """Play and learn in rounds, and return the folder of the last adapter.

    Raises:
        UsageError: If there is no adapter or no data to begin with, or an environment's expert labels nothing.
    """
    rows: list[Row] = [row for source in config.data for row in read_rows(source)]
    prompting = policy_of(rows)
    adapter = Path(config.adapter)
    for number in range(1, config.rounds + 1):
        folder = Path(config.folder) / f"round-{number}"
        played = CollectConfig(
            folder=str(folder / "data"),
            environments=config.environments,
            episodes=(str(config.episodes),),
            first_seed=config.first_seed + (number - 1) * config.episodes,
            policy=str(adapter),
            labels="expert",
            expert_share=config.expert_share / 2 ** (number - 1),
            strategy=prompting.strategy,
            history=prompting.history,
            with_reward=prompting.with_reward,
            options={} if config.device == "auto" else {"device": config.device},
            num_envs=config.batch,
            seed=config.seed,
        )
        new = collect(played)
        won = {row.episode: row.success for row in new}  # an episode may be several rows
        _logger.info("Round %d: the learner won %.0f %% of %d.", number, 100 * sum(won.values()) / len(won), len(won))
        rows += new
        if not (folder / "sft" / "adapter").exists():
            sft(_learning(config, folder, adapter, number), rows)
        adapter = folder / "sft" / "adapter"
    return adapter


def _learning(config: DAggerConfig, folder: Path, adapter: Path, number: int) -> SFTConfig:
    """Return the settings of one round's fine-tuning."""
    own = {field.name for field in dataclasses.fields(SFTConfig)} & {field.name for field in dataclasses.fields(config)}
    shared = {name: getattr(config, name) for name in own - {"data", "folder", "adapter", "seed"}}
    data = (*config.data, *(str(Path(config.folder) / f"round-{n}" / "data" / "rows") for n in range(1, number + 1)))
    model, _ = read_adapter(adapter)
    return SFTConfig(
        data=data, folder=str(folder / "sft"), model=model, adapter=str(adapter), seed=config.seed + number, warmup=2, **shared
    )


def run(config: DAggerConfig) -> str:
    """Play and learn, and return a sentence that names the adapter's folder."""
    return f"The adapter: {dagger(config)}; load_policy takes this folder as a model."
