"""Settings of everything that trains a language model, and of everything that learns from the episodes that the model plays."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from gym_text.errors import MissingDependencyError, UsageError, check_choice, check_int
from gym_text.registration import TRAINING
from gym_text.wrappers.exchange_names import ExchangeNames, Names
from gym_text_policies.data.rows import learner_of, trained_as, training_prompt
from gym_text_policies.environments import check_no_fold, environment_maker, fold_arguments
from gym_text_policies.game import MakeEnv
from gym_text_policies.policies.config import PolicyConfig

if TYPE_CHECKING:
    from gym_text_policies.training.model.actor_critic import Actor

Dtype = Literal["float32", "bfloat16"]
Schedule = Literal["cosine", "constant", "linear"]
Tracker = Literal["none", "tensorboard", "wandb", "trackio", "mlflow", "comet_ml", "swanlab", "clearml", "dvclive"]
"""Trackers that transformers and accelerate both support."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Settings of everything that trains a language model. Subclasses give defaults to ``folder`` and ``learning_rate``."""

    algorithm: ClassVar[str]
    """Name of the algorithm in run folders and records."""

    folder: str
    """Run folder: checkpoints, metrics, and at the end the adapter. A run that was stopped goes on from its last checkpoint."""
    model: str = "smollm2"
    """What training begins with. A base model (smollm2, hf:OWNER/NAME, a folder) gets a new adapter. An adapter (its folder, or
    adapters/NAME) is trained further."""
    learning_rate: float
    """Learning rate of the adapter."""
    interchangeable: tuple[str, ...] = ()
    """Names, for instance of foods, to exchange with each other at random, anew for each episode or row of data. So the model has
    to read what the text says about a thing: in the train fold a name always means the same, and a model could learn that by heart.
    Join names that belong together by =, as in fry=stove roast=oven."""
    dev_episodes: int = 20
    """Episodes of each environment whenever the model plays the dev fold."""
    dtype: Dtype = "float32"
    """Number format of the base's weights and of all products: float32, or bfloat16 (autocast; trained weights stay float32).
    bfloat16 is faster where the processor multiplies it in hardware: GPUs, CPUs with AMX, and most with AVX512-BF16."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of the model's layers, and compute the rest again for the gradients. Training takes a quarter more time
    and a fraction of the memory."""
    report_to: Tracker = "none"
    """Where metrics go besides the run folder."""
    seed: int = 0
    """Seed of everything that is drawn at random."""

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, get_args(Dtype))
        check_choice("report_to", self.report_to, get_args(Tracker))
        if self.report_to != "none" and find_spec(self.report_to) is None:
            raise MissingDependencyError(
                f"report_to: expected a tracker that is installed; got {self.report_to!r}. Run: pip install {self.report_to}"
            )
        if self.interchangeable:
            Names(self.interchangeable)
        check_int("dev_episodes", self.dev_episodes, 1, 1_000_000)
        check_int("seed", self.seed, 0, 2**31 - 1)
        self.check_positive("learning_rate")

    def check_positive(self, *names: str) -> None:
        """Raise `UsageError` unless each named setting is above 0."""
        for name in names:
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: expected a number above 0; got {getattr(self, name)!r}.")

    def check_ranges(self, **ranges: tuple[float, float]) -> None:
        """Raise `UsageError` unless each named setting is within its range."""
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"{name}: expected a number from {least} to {most}; got {getattr(self, name)!r}.")


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(TrainingOptions):
    """Settings of all training on episodes that the model plays itself."""

    temperature, kl_weight, entropy_weight = 1.0, 0.0, 0.0  # some algorithms have settings for them
    schedule, warmup_iterations = "constant", 1

    environments: tuple[str, ...] = (TRAINING,)
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto. The model plays their train fold."""
    iterations: int = 50
    """How often the model plays and learns. A finished run goes on if this number is raised."""
    episodes_per_iteration: int = 16
    """Episodes of each iteration; the environments take turns."""
    first_seed: int = 0
    """Seed of the first episode. Later iterations use later seeds."""
    epochs: int = 2
    """How often the model learns from the episodes of an iteration."""
    episodes_per_step: int = 8
    """Episodes in one step of the optimiser."""
    learning_rate: float = 3e-5
    tokens_per_pass: int = 4096
    """Number of tokens in one forward and backward pass: those of several episodes, or of a part of a longer episode. (The first
    prompt of a part does not count.) The result does not depend on this number; 1,000 tokens of SmolLM2-135M take 2.5 GB."""
    dev_every: int = 10
    """The model plays the dev fold before the first iteration, and after every dev_every-th. The run keeps the weights of the
    iteration that won most of the dev fold. 0: the dev fold is never played, and the last weights are kept."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_no_fold("environments", self.environments, "train")
        for name in ("iterations", "epochs", "episodes_per_step", "episodes_per_iteration", "tokens_per_pass"):
            check_int(name, getattr(self, name), 1, 1_000_000)
        for name in ("first_seed", "dev_every"):
            check_int(name, getattr(self, name), 0, 2**31 - 1)

    @functools.cached_property
    def prompting(self) -> PolicyConfig:
        """Settings of the prompts: those of the adapter's training, or those of a new adapter."""
        return trained_as(PolicyConfig(self.model, mode="choose"), self.model)

    def check_prompting(self) -> None:
        """Raise `UsageError` if the model would learn on other prompts than it plays with."""
        prompt = training_prompt(self.prompting)
        if prompt.by_label:
            raise UsageError(
                f"strategy {self.prompting.strategy!r}: expected a model that compares the names of actions, as in 'chat'; "
                "this one compares their labels, which 'sft' and 'dagger' teach."
            )
        if prompt.thinks:
            raise UsageError(
                f"strategy {self.prompting.strategy!r}: expected a model whose answer is the action alone, as in 'chat', "
                "'zero_shot'. This one writes its thoughts before it chooses, and on-policy training does not learn thoughts."
            )

    def learner(self, actor: Actor) -> PolicyConfig:
        """How the model is asked. A model whose chat template has thoughts plays and learns without them."""
        return learner_of(dataclasses.replace(self.prompting, think=None), actor.tokenizer)

    def env_maker(self, name: str) -> MakeEnv:
        """Return a function that makes an environment of the train fold, in which the names of `interchangeable` are exchanged."""
        make_env = environment_maker(name, **fold_arguments(name, "train"))
        return (lambda: ExchangeNames(make_env(), self.interchangeable)) if self.interchangeable else make_env


@dataclass(frozen=True, kw_only=True)
class RewardConfig(OnPolicyConfig):
    """Settings of algorithms that learn from rewards: PPO and GRPO."""

    least_group: ClassVar[int] = 1
    """Least number of episodes of a level that the algorithm can learn from."""

    episodes_per_iteration: int = 64
    """Episodes of each iteration, a multiple of group_size; the environments take turns."""
    episodes_per_step: int = 16
    """Episodes in one step of the optimiser, a multiple of group_size: episodes of one level stay together."""
    group_size: int = 8
    """Episodes of each level."""
    epochs: int = 1
    learning_rate: float = 5e-5
    temperature: float = 1.0
    """Temperature of the actions that the model draws, from 0.01 to 100. Play and learning divide the scores of the actions by it.
    Above 1 the model explores more."""
    kl_weight: float = 0.0
    """Weight, in the loss, of the policy's KL divergence from the model that training began with. At 0 it is not computed."""
    discount: float
    """Discount factor (gamma). Below 1 soon rewards count more than late ones."""
    decay: float
    """Lambda of the generalised advantages. 1 counts all later rewards; below 1 the luck of later steps counts less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ranges(temperature=(0.01, 100), discount=(0, 1), decay=(0, 1))
        check_int("group_size", self.group_size, self.least_group, 1_000_000)
        for name in ("episodes_per_iteration", "episodes_per_step"):
            if getattr(self, name) % self.group_size:
                raise UsageError(f"{name}: expected a multiple of group_size={self.group_size}; got {getattr(self, name)}.")
        if not self.kl_weight >= 0:
            raise UsageError(f"kl_weight: expected a number of at least 0; got {self.kl_weight!r}.")

    @property
    def levels_per_step(self) -> int:
        """Levels in one step of the optimiser."""
        return self.episodes_per_step // self.group_size
