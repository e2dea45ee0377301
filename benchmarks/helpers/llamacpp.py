"""llama.cpp beside us: the engine in the wheel ``xllamacpp``, on the embedded model's own file of 4-bit weights.

It runs in a process of its own: in ours, PyTorch's threads, which wait actively for a while after each product, take its cores.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection

from gym_text_policies.backends.local.smollm2 import smollm2_file


class LlamaCpp:
    """llama.cpp, in a process that ends with this one.

    Args:
        threads: Threads that it takes.
        window: Most tokens of a prompt with its answer.
    """

    def __init__(self, threads: int, window: int = 4096) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process would have PyTorch's threads
        self._answers, other = context.Pipe()
        context.Process(target=_serve, args=(other, threads, window), daemon=True).start()

    @staticmethod
    def installed() -> bool:
        """Return whether the wheel is there."""
        return find_spec("xllamacpp") is not None

    def generate(self, prompt: Sequence[int], most: int) -> int:
        """Generate greedily; return the number of new tokens. What it has read of the prompt is kept for the next call."""
        self._answers.send((list(prompt), most))
        count: int = self._answers.recv()
        return count


def _serve(requests: Connection, threads: int, window: int) -> None:
    """Answer requests until there is nobody who asks."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(smollm2_file())
    params.n_ctx, params.n_parallel, params.verbosity = window, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    with contextlib.suppress(EOFError):  # the other end is closed
        while True:
            prompt, most = requests.recv()
            asked = {"prompt": prompt, "n_predict": most, "temperature": 0.0, "top_k": 1, "cache_prompt": True}
            requests.send(server.handle_completions(asked)["timings"]["predicted_n"])
