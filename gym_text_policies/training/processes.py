"""What the processes of one training run, as ``torchrun`` starts them, do together; a process alone does it by itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from gym_text.errors import import_extra
from gym_text_policies.store import EpisodeStore

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
_NOTHING = object()


def process_count() -> int:
    """Return how many processes train one model together, as ``torchrun`` tells each of them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Return whether this process is the one that writes."""
    return os.environ.get("RANK", "0") == "0"


def claim(run: str, config: Any, free: Sequence[str], later: Mapping[str, Any]) -> EpisodeStore | None:
    """Note whose run folder it is, or compare, and keep other runs out; of several processes of one run the first does so.

    Args:
        run: Kind of the run.
        config: Its settings.
        free: Names of those that may change when it goes on.
        later: Those that older runs do not have, with the values at which they are not noted: an older folder goes on.
    """
    if not is_first():
        return None
    noted = {name: value for name, value in dataclasses.asdict(config).items() if name not in free}
    settings = {name: value for name, value in noted.items() if name not in later or value != later[name]}
    return EpisodeStore(config.folder, {"run": run, **settings})


def join() -> None:
    """Meet the others, and take this process's GPU, if there are any; before a model is loaded."""
    torch, accelerate = import_extra("torch", "train"), import_extra("accelerate", "train")
    accelerate.PartialState(cpu=not torch.cuda.is_available())


def share(items: Sequence[T]) -> Sequence[T]:
    """Return those of some items that this process is to work on: every n-th."""
    return items[int(os.environ.get("RANK", "0")) :: process_count()]


def gather(done: Sequence[T]) -> list[T]:
    """Return what all processes have done, in the order in which `share` dealt it; tensors have to be on the CPU."""
    shares = import_extra("accelerate", "train").utils.gather_object([list(done)])
    return [item for row in zip_longest(*shares, fillvalue=_NOTHING) for item in row if item is not _NOTHING]


def add_gradients(weights: Iterable[torch.nn.Parameter]) -> None:
    """Give each weight the sum of all processes' gradients; also where this process has had nothing to do."""
    if process_count() == 1:
        return
    torch, accelerate = import_extra("torch", "train"), import_extra("accelerate", "train")
    for weight in weights:
        own = torch.zeros_like(weight) if weight.grad is None else weight.grad
        weight.grad = accelerate.utils.reduce(own, "sum")
