"""Pictures of an episode that was played, and the expert's advice in it, by playing it again."""

from __future__ import annotations

import base64
import functools
import io
import json
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text import GymTextError
from gym_text.errors import import_extra
from gym_text_policies.environments import remake_environment
from gym_text_policies.records import Episode, plain
from gym_text_policies.report.replay import replayed
from gym_text_policies.store import write_atomically

_logger = logging.getLogger(__name__)
_MOST_PICTURES = 40
"""Of one episode; a longer one is shown every second, third … step."""
_MOST_WIDTH = 640
_COLOURS = 32
"""Games are drawn in few colours: so a picture takes 1 to 8 kB, without a loss that is seen."""


@dataclass(frozen=True)
class Replay:
    """What playing an episode again shows."""

    pictures: tuple[str, ...] = ()
    """PNG in base64, each once."""
    shown: tuple[int | None, ...] = ()
    """For each observation the number of its picture, or None where it is the one before."""
    gold_actions: tuple[str | None, ...] = ()
    """For each step the expert's action, where one is known."""

    @property
    def size(self) -> int:
        """Characters of its pictures."""
        return sum(map(len, self.pictures))


def replay(episode: Episode, cache: Path | None = None) -> Replay:
    """Play an episode again.

    Args:
        episode: The episode; its environment is made anew.
        cache: A folder that keeps what was drawn; where it cannot be written nothing is kept.

    Returns:
        What was seen. Nothing, where the environment cannot be made or has no pictures, or the game does not go as it did.
    """
    path = cache / f"{episode.key}-{episode.length}.json" if cache else None
    if path is not None:
        with suppress(OSError, ValueError, TypeError):
            stored = json.loads(path.read_text("utf-8"))
            return Replay(**{name: tuple(values) for name, values in stored.items()})
    try:
        seen = _play(episode)
    except (gym.error.Error, GymTextError, ImportError, TypeError, ValueError, LookupError, RuntimeError) as error:
        _logger.info("%s: no pictures: %s", episode.environment["id"], error)
        return Replay()
    if path is not None:
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, json.dumps(asdict(seen)))
    return seen


def _play(episode: Episode) -> Replay:
    pictures: dict[str, int] = {}
    shown: list[int | None] = []
    gold: list[str | None] = []
    every = math.ceil((episode.length + 1) / _MOST_PICTURES)

    for state in replayed(episode, functools.partial(_make, episode)):
        number = state.number
        if number % every and number != episode.length:
            shown.append(None)
        else:
            shown.append(pictures.setdefault(_encode(state.picture()), len(pictures)))
        if number < episode.length:
            step = episode.steps[number]
            _check(state.obs, step.observation)
            gold.append(step.gold_action or state.info.get("gold_action"))
    return Replay(tuple(pictures), tuple(shown), tuple(gold))


def _make(episode: Episode) -> gym.Env[Any, Any]:
    """Return the episode's environment, with pictures, and an expert that knows every state if the record lacks some advice."""
    record = dict(episode.environment)
    entry_point = gym.spec(record["id"]).entry_point
    if isinstance(entry_point, str) and entry_point.startswith("gym_text."):
        known = all(step.gold_action for step in episode.steps)
        record["kwargs"] = {**record["kwargs"], "expert": "off" if known else "replan"}
    return remake_environment(record, render_mode="rgb_array")


def _check(obs: Any, recorded: Mapping[str, Any]) -> None:
    """Raise ValueError unless the observation is the recorded one."""
    if plain({key: obs[key] for key in recorded if key in obs}) != {key: recorded[key] for key in recorded if key in obs}:
        raise ValueError("the game, played again, does not go as it did")


def _encode(frame: Any) -> str:
    """Return a picture as PNG in base64."""
    import_extra("PIL", "experiments")
    from PIL import Image

    image = Image.fromarray(np.asarray(frame, dtype=np.uint8))
    if image.width > _MOST_WIDTH:
        image = image.resize((_MOST_WIDTH, round(image.height * _MOST_WIDTH / image.width)))
    buffer = io.BytesIO()
    image.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
