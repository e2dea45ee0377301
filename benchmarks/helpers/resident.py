"""Peaks of a process's resident memory while a model is loaded, gets an adapter and a player, and learns one row."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

STAGES = ("load_base", "add_lora", "player_of", "one step")
_STATUS = Path("/proc/self/status")
_INTERVAL = 0.005
"""Seconds between two looks at the memory."""
_PROMPT = [
    {"role": "system", "content": "You play a game."},
    {"role": "user", "content": "a wall 3 steps forward\na wall 2 steps right"},
]


def resident() -> int:
    """Return the bytes of this process's resident memory; pages of files, such as those of mapped weights, count."""
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmRSS:"))
    return 1024 * int(line.split()[1])


@contextlib.contextmanager
def watched(peaks: dict[str, int], stage: str, before: int) -> Iterator[None]:
    """Note the stage's highest memory, less `before`, in bytes."""
    over, seen = threading.Event(), [resident()]

    def look() -> None:
        while not over.wait(_INTERVAL):
            seen.append(max(seen.pop(), resident()))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        peaks[stage] = max(*seen, resident()) - before
        gc.collect()


def peaks_of(folder: str) -> dict[str, int]:
    """Return the peak of each stage in bytes, above what the libraries take; call it in a process of its own.

    Args:
        folder: A model in bfloat16. It is trained on the CPU, in bfloat16.
    """
    import torch

    from gym_text_policies.training.model.layouts import answer_losses
    from gym_text_policies.training.model.lora import add_lora, load_base, set_dtype
    from gym_text_policies.training.model.player import player_of
    from gym_text_policies.training.model.sequences import Conversation

    torch.set_num_threads(1)
    peaks: dict[str, int] = {}
    before = resident()
    with watched(peaks, STAGES[0], before):
        model, tokenizer = load_base(folder, dtype="bfloat16", device="cpu")
    with watched(peaks, STAGES[1], before):
        model = add_lora(model)
        set_dtype(model, "bfloat16")
    with watched(peaks, STAGES[2], before):
        player = player_of(model, tokenizer, "bfloat16")
    conversation = Conversation()
    conversation.add(tokenizer, _PROMPT, ["turn left"])
    optimizer = torch.optim.AdamW(weight for weight in model.parameters() if weight.requires_grad)
    with watched(peaks, STAGES[3], before):
        with torch.autocast("cpu", torch.bfloat16):
            loss = answer_losses(model, [conversation]).sum()
        loss.backward()
        optimizer.step()
    del player
    return peaks
