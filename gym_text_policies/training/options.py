"""Settings of everything that trains a language model, whatever it learns from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from gym_text.errors import UsageError, check_choice, check_int
from gym_text.wrappers.exchange_names import Names
from gym_text_policies.training.measured import MeasuredOptions
from gym_text_policies.training.model.linear_layers import ALL_LINEAR
from gym_text_policies.training.model.lora import ALPHA, DTYPES, RANK, TARGETS, TRAINING_DEVICES, Dtype, TrainingDevice
from gym_text_policies.training.model.optim import OPTIMS, Optim
from gym_text_policies.training.model.trackers import Tracker, check_tracker

Schedule = Literal["cosine", "constant", "linear"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
MAY_CHANGE = ("folder", "compiled", "gradient_checkpointing", "device", "report_to", "test_environments", "test_episodes")
"""Settings of `TrainingOptions` that may change when a run is continued. Each algorithm adds names of its own settings."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(MeasuredOptions):
    """Settings of everything that trains a language model. Subclasses give defaults to ``folder`` and ``learning_rate``."""

    folder: str
    """Run folder: checkpoints, metrics, and at the end the adapter. A run that was stopped goes on from its last checkpoint."""
    model: str = "smollm2"
    """What training begins with. A base model (smollm2, hf:OWNER/NAME, a folder) gets a new adapter. An adapter (its folder, or
    adapters/NAME) is trained further."""
    rank: int | None = field(default=None, metadata={"unset": RANK})
    """Rank of a new adapter; by default 16. An adapter that is trained further keeps its rank, alpha and layers: others are
    refused."""
    alpha: float | None = field(default=None, metadata={"unset": ALPHA})
    """A new adapter's updates are scaled by alpha / rank; by default alpha is 32."""
    target_modules: tuple[str, ...] | None = field(default=None, metadata={"unset": TARGETS})
    """Linear layers that a new adapter changes: all-linear (all but the last layer, the default), attention (those of attention
    alone), or names, as in q_proj v_proj."""
    learning_rate: float
    """Learning rate of the adapter."""
    schedule: Schedule = "constant"
    """How the learning rate changes in the course of training, after a warm-up if there is one: cosine (to 0), linear (to 0) or
    constant."""
    optim: Optim = "adamw"
    """Optimiser of the adapter: adamw, or adamw_8bit (bitsandbytes), which keeps its moments in a byte each in place of four."""
    interchangeable: tuple[str, ...] = ()
    """Names, for instance of foods, to exchange with each other at random, anew for each episode or row of data. So the model has
    to read what the text says about a thing: in the train fold a name always means the same, and a model could learn that by heart.
    Join names that belong together by =, as in fry=stove roast=oven."""
    dev_episodes: int = 20
    """Episodes of each environment whenever the model plays the dev fold."""
    dtype: Dtype = "float32"
    """Number format of the base's weights and of all products: float32, or bfloat16 (autocast; trained weights stay float32).
    bfloat16 is faster where the processor multiplies it in hardware: GPUs, CPUs with AMX or AVX512-BF16."""
    load_in_4bit: bool = False
    """Load the base's weights in 4 bits; needs CUDA. Products are in bfloat16, and the model plays with these same weights."""
    compiled: bool = False
    """Compile the model's layers (torch.compile): steps get faster after some minutes. It needs a C++ compiler."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of the model's layers, and compute the rest again for the gradients. Training takes a quarter more time
    and a fraction of the memory."""
    device: TrainingDevice = "auto"
    """Where to train: auto (CUDA if available, else MPS, else the CPU) or cpu. CUDA_VISIBLE_DEVICES picks one of several GPUs."""
    report_to: Tracker = "none"
    """Where metrics go besides the run folder."""
    seed: int = 0
    """Seed of everything that is drawn at random."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("optim", self.optim, OPTIMS)
        check_choice("device", self.device, TRAINING_DEVICES)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_tracker(self.report_to)
        if self.interchangeable:
            Names(self.interchangeable)
        check_int("dev_episodes", self.dev_episodes, 1, 1_000_000)
        check_int("seed", self.seed, 0, 2**31 - 1)
        if self.rank is not None:
            check_int("rank", self.rank, 1, 1_000_000)
        words = self.target_modules
        if words is not None and (not words or (ALL_LINEAR in words and len(words) > 1)):
            raise UsageError(f"target_modules: expected {ALL_LINEAR!r} alone, or names of layers; got {words!r}.")
        self.check_positive("learning_rate", *(() if self.alpha is None else ("alpha",)))

    @property
    def products(self) -> Dtype:
        """Number format of products: `dtype`, or bfloat16 if the base's weights have 4 bits."""
        return "bfloat16" if self.load_in_4bit else self.dtype

    @property
    def backend(self) -> dict[str, Any]:
        """Options of a backend that plays as the model was trained: on the same device, in 4 bits if it has them."""
        device = {} if self.device == "auto" else {"device": self.device}
        return device | ({"load_in_4bit": True} if self.load_in_4bit else {})

    @property
    def lora(self) -> dict[str, Any]:
        """The settings of the adapter that `add_lora` takes."""
        return {name: getattr(self, name) for name in ("rank", "alpha", "target_modules")}

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
