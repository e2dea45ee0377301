"""What the processes of one training run, as ``torchrun`` starts them, do together; a process alone does it by itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from gym_text.errors import import_extra

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
