"""How the processes of a training run share work and results. ``torchrun`` starts several processes; else there is one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gym_text.errors import import_extra
from gym_text_policies.backends.local.models import device_of
from gym_text_policies.files.folders import restore_folders, whole_folders
from gym_text_policies.files.run_folders import RunFolder

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
_NOTHING = object()


class Stopped(KeyboardInterrupt):
    """Ctrl-C in a training run. The message says which checkpoint is kept."""


def process_count() -> int:
    """Return how many processes train one model together, as ``torchrun`` tells each of them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Return whether this process is the one that writes."""
    return os.environ.get("RANK", "0") == "0"


def training_device() -> str:
    """Return where models are trained: ``cpu`` if ``ACCELERATE_USE_CPU`` is set, else ``auto``, see `device_of`.

    ``CUDA_VISIBLE_DEVICES`` picks one of several GPUs; ``torchrun`` gives each process its own.
    """
    return "cpu" if import_extra("accelerate.utils", "train").parse_flag_from_env("ACCELERATE_USE_CPU") else "auto"


def on_cpu() -> bool:
    """Return whether models are trained on the CPU."""
    return device_of(training_device()) == "cpu"


@contextlib.contextmanager
def claim(run: str, config: Any, free: Sequence[str]) -> Iterator[None]:
    """Lock a run folder while the block runs, and check that the folder belongs to this run. Only the first process does this.

    Args:
        run: Kind of the run.
        config: Settings of the run, a dataclass with a ``folder``.
        free: Names of the settings that may change when the run is continued.

    Raises:
        UsageError: If the folder belongs to another run, or to a run with other settings.
        StoreError: If another process uses the folder.
        Stopped: After Ctrl-C.
    """
    if not is_first():
        yield
        return
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in free}
    with RunFolder(config.folder, {"run": run, **settings}, type(config)) as folder:
        restore_folders(folder.path)
        try:
            yield
        except KeyboardInterrupt:
            raise Stopped(_kept(folder.path)) from None


def _kept(folder: Path) -> str:
    """Return what a run that was stopped has kept."""
    checkpoints = whole_folders(folder, "checkpoint-*")
    if not checkpoints:
        return f"Nothing is kept: {folder} has no checkpoint yet."
    newest = max(checkpoints, key=lambda path: int(path.name.partition("-")[2]))
    return f"The checkpoint {newest} is kept; the same command goes on from there."


def join() -> None:
    """Wait for the other processes, if any, and select this process's GPU. Call it before a model is loaded.

    Several processes may share a GPU: play keeps it busy for a part of the time only.
    """
    gpus = import_extra("torch", "train").cuda.device_count()
    shared = 0 < gpus < int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # NCCL refuses two processes on one GPU
    options = {"backend": "gloo"} if shared else {}
    import_extra("accelerate", "train").PartialState(cpu=on_cpu(), **options)


def own_share(items: Sequence[T]) -> Sequence[T]:
    """Return the items that this process works on. With n processes, each process takes every n-th item."""
    return items[int(os.environ.get("RANK", "0")) :: process_count()]


def gather(results: Sequence[T]) -> list[T]:
    """Return the results of all processes, in the order of the items before `own_share` split them. Tensors must be on the CPU."""
    shares = import_extra("accelerate", "train").utils.gather_object([list(results)])
    return [item for row in zip_longest(*shares, fillvalue=_NOTHING) for item in row if item is not _NOTHING]


def add_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Give each parameter the sum of the gradients of all processes. A process without a gradient counts as 0."""
    if process_count() == 1:
        return
    torch, accelerate = import_extra("torch", "train"), import_extra("accelerate", "train")
    trained = list(parameters)
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained]
    total = accelerate.utils.reduce(torch.cat([gradient.flatten() for gradient in gradients]), "sum")  # one message, not hundreds
    for parameter, part in zip(trained, total.split([gradient.numel() for gradient in gradients]), strict=True):
        parameter.grad = part.view_as(parameter)
