"""The optimiser of what is trained: AdamW, with its moments in 32 bits or in 8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.local.models import device_of

if TYPE_CHECKING:
    from torch.optim import Optimizer

Optim = Literal["adamw", "adamw_8bit"]
OPTIMS: tuple[Optim, ...] = get_args(Optim)
_PROBED = 4096
"""Number of weights from which on bitsandbytes keeps their moments in 8 bits."""


def make_optim(optim: Optim, parameters: Iterable[Any], **options: Any) -> Optimizer:
    """Return the optimiser of some parameters. Weights do not decay.

    Args:
        optim: ``adamw``, or ``adamw_8bit`` (Dettmers et al. 2021, https://arxiv.org/abs/2110.02861) of bitsandbytes.
        parameters: Tensors, or groups of them.
        options: Of the optimiser, such as ``lr``.
    """
    if optim == "adamw_8bit":
        eight_bits: Optimizer = import_extra("bitsandbytes", "gpu").optim.AdamW8bit(parameters, weight_decay=0.0, **options)
        return eight_bits
    torch = import_extra("torch", "train")
    adamw: Optimizer = torch.optim.AdamW(parameters, weight_decay=0.0, **options)
    return adamw


def check_optim(optim: Optim, device: str) -> None:
    """Take a step of an optimiser on a device, so that a run does not end at its first step.

    Raises:
        MissingDependencyError: If bitsandbytes is needed and not installed.
        UsageError: If bitsandbytes cannot take a step on this device.
    """
    if optim == "adamw":
        return
    import_extra("bitsandbytes", "gpu")
    torch, device = import_extra("torch", "train"), device_of(device)
    probe = torch.nn.Parameter(torch.zeros(_PROBED, device=device))
    probe.grad = torch.ones_like(probe)
    try:
        make_optim(optim, [probe]).step()
    except Exception as error:  # of many classes, by release and device
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"optim: expected a bitsandbytes that has 8-bit Adam on {device}; {reason}. Take --optim adamw, a CUDA device, or a "
            "newer release of bitsandbytes."
        ) from None


def flat_state(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and tensors of an optimiser's state of one parameter. bitsandbytes has plain numbers and inner mappings."""
    torch = import_extra("torch", "train")
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from flat_state(value)
        else:
            yield name, torch.as_tensor(value).clone()  # bitsandbytes shares a tensor between parameters


def as_stored(tensor: Any) -> Any:
    """Return a value of an optimiser's state as it was before `flat_state`: bitsandbytes counts steps by an int."""
    torch = import_extra("torch", "train")
    return tensor.item() if tensor.dtype == torch.int64 and not tensor.ndim else tensor
