"""Pictures for the page: a recorded episode is played again, drawn, and asked for the expert's advice where the record has none."""

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
from gym_text_policies.environments import remake_environment, spec_of
from gym_text_policies.records import Episode, plain
from gym_text_policies.report.replay import replay
from gym_text_policies.store import write_atomically

_logger = logging.getLogger(__name__)
_MOST_PICTURES = 40
"""Most pictures of an episode. A longer one shows every second step, or every third, and so on."""
_MOST_WIDTH = 720
"""Pixels."""
_COLOURS = 32
"""The games use few colours. A picture takes 1 to 8 kB, without visible loss."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of an episode, and the expert's advice."""

    pictures: tuple[str, ...] = ()
    """PNG in base64; equal pictures are kept once."""
    shown: tuple[int | None, ...] = ()
    """For each observation the index of its picture, or None where the earlier picture stays."""
    gold_actions: tuple[str | None, ...] = ()
    """For each step the expert's action, or None where it is unknown."""

    @property
    def size(self) -> int:
        """Number of characters of the pictures."""
        return sum(map(len, self.pictures))


def draw_pictures(episode: Episode, cache: Path | None = None) -> Pictures:
    """Play an episode again and draw it.

    Args:
        episode: The recorded episode. Its environment is made from the record.
        cache: A folder that keeps what was drawn. If it cannot be written, nothing is kept.

    Returns:
        The pictures. There are none if the environment cannot be made, or if the game goes another way than the record.
    """
    path = cache / f"{episode.key}-{episode.length}.json" if cache else None
    if path is not None:
        with suppress(OSError, ValueError, TypeError):
            stored = json.loads(path.read_text("utf-8"))
            return Pictures(**{name: tuple(values) for name, values in stored.items()})
    try:
        drawn = _draw(episode)
    except (gym.error.Error, GymTextError, ImportError, TypeError, ValueError, LookupError, RuntimeError) as error:
        _logger.info("%s: no pictures: %s", episode.environment["id"], error)
        return Pictures()
    if path is not None:
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, json.dumps(asdict(drawn)))
    return drawn


def _draw(episode: Episode) -> Pictures:
    pictures: dict[str, int] = {}  # PNG -> its index
    shown: list[int | None] = []
    gold: list[str | None] = []
    stride = math.ceil((episode.length + 1) / _MOST_PICTURES)
    for state in replay(episode, functools.partial(_make, episode)):
        number = state.number
        if number % stride and number != episode.length:
            shown.append(None)
        else:
            shown.append(pictures.setdefault(_encode(state.picture()), len(pictures)))
        if number < episode.length:
            step = episode.steps[number]
            _check(state.obs, step.observation)
            gold.append(step.gold_action or state.info.get("gold_action"))
    return Pictures(tuple(pictures), tuple(shown), tuple(gold))


def _make(episode: Episode) -> gym.Env[Any, Any]:
    """Return the episode's environment with pictures, and with an expert for every state if the record lacks some advice."""
    record = dict(episode.environment)
    entry_point = spec_of(record).entry_point
    if isinstance(entry_point, str) and entry_point.startswith("gym_text."):
        known = all(step.gold_action for step in episode.steps)
        record["kwargs"] = {**record["kwargs"], "expert": "off" if known else "replan"}
    return remake_environment(record, render_mode="rgb_array")


def _check(obs: Any, recorded: Mapping[str, Any]) -> None:
    """Raise ValueError unless an observation is the recorded one, in the keys that both have."""
    if plain({key: obs[key] for key in recorded if key in obs}) != {key: recorded[key] for key in recorded if key in obs}:
        raise ValueError("expected the recorded observations; played again, the game goes another way")


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
