"""`average`: an adapter whose weights are the means of the weights of several adapters, which are stages of one training.

The stages end at different points around an optimum, and lose different episodes. The mean of their weights is often nearer to the
optimum (Izmailov et al. 2018, https://arxiv.org/abs/1803.05407). It costs no training, and plays as fast as each of the adapters.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.local.adapters import CONFIG, WEIGHTS, adapter_folder, read_adapter, record_of, template_of
from gym_text_policies.training.model.lora import environment_record
from gym_text_policies.training.model.saving import made, write_adapter


@dataclass(frozen=True)
class AverageConfig:
    """Take the mean of several adapters of one training: each adapter is the previous one, trained further."""

    adapters: tuple[str, ...] = ()
    """Two or more adapters: folders, or adapters/NAME."""
    folder: str = "runs/average/adapter"
    """New folder for the mean, which is an adapter."""

    def __post_init__(self) -> None:
        if len(self.adapters) < 2:
            raise UsageError(f"adapters: expected two or more; got {list(self.adapters)}.")


def average(config: AverageConfig) -> Path:
    """Write the mean of adapters, and return its folder.

    Raises:
        UsageError: If an adapter is not complete or does not fit the first adapter, or the folder is not empty.
    """
    torch = import_extra("torch", "train")
    from safetensors.torch import load_file

    digests = {name: read_adapter(name)[1] for name in config.adapters}
    folders = [adapter_folder(name) or Path(name) for name in config.adapters]
    weights = [load_file(folder / WEIGHTS) for folder in folders]
    settings = [json.loads((folder / CONFIG).read_text("utf-8")) for folder in folders]
    records = [record_of(name) for name in config.adapters]
    templates = [template_of(folder) for folder in folders]
    template = next(({"template": record["template"]} for record in records if "template" in record), {})
    prompts = [
        {"asked": {}, **template, **{key: record[key] for key in ("asked", "template") if key in record}} for record in records
    ]
    for name, *properties in zip(config.adapters, map(_shapes, weights), map(_scale, settings), prompts, templates, strict=True):
        if properties != [_shapes(weights[0]), _scale(settings[0]), prompts[0], templates[0]]:
            raise UsageError(
                f"adapter {name!r}: expected the base, rank, alpha and prompt of {config.adapters[0]!r}; one of these differs. "
                "Only stages of one training have a mean."
            )
    games = [_games(record) for record in records]
    for name, learnt in zip(config.adapters, games, strict=True):
        if learnt and games[0] and not learnt & games[0]:
            raise UsageError(
                f"adapter {name!r}: expected one that learnt {', '.join(sorted(games[0]))}, as {config.adapters[0]!r} did; "
                f"it learnt {', '.join(sorted(learnt))}. Only stages of one training have a mean."
            )
    mean = {key: torch.stack([each[key].float() for each in weights]).mean(0).to(first.dtype) for key, first in weights[0].items()}
    made_by = {
        "average": dataclasses.asdict(config),
        "digests": digests,
        "environments": sorted(set().union(*games)),
        "ran_on": environment_record(),
    }
    write_adapter(config.folder, mean, settings[0], templates[0], {**prompts[0], "made_by": made_by})
    return Path(config.folder)


def run(config: AverageConfig) -> str:
    """Write the mean, and return a sentence that names its folder."""
    return made(average(config))


def _games(record: Any) -> set[str]:
    """Return the ids of the environments that an adapter's record names at any depth."""
    if isinstance(record, list):
        return set().union(*map(_games, record))
    if not isinstance(record, dict):
        return set()
    named = record.get("environments", ())
    return {name.partition("?")[0] for name in named} | set().union(*map(_games, record.values()))


def _shapes(weights: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(tensor.shape) for key, tensor in weights.items()}


def _scale(settings: dict[str, Any]) -> list[Any]:
    return [settings.get(key) for key in ("base_model_name_or_path", "r", "lora_alpha")]
