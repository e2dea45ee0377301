"""Pictures of a recorded episode, and the expert's actions that its record lacks. Both come from playing the episode again."""

from __future__ import annotations

import base64
import functools
import io
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError, import_extra
from gym_text.html import block, line
from gym_text_policies.files.json_data import plain
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.files.safe_files import is_regular, subfolder
from gym_text_policies.policies.seen_pictures import picture_digest
from gym_text_policies.records import Episode
from gym_text_policies.report.replay import replay
from gym_text_policies.stored_environment import make_stored_environment, owner_of
from gym_text_policies.terminal.notebooks import episode_html

_MOST_PICTURES = 40
"""Most pictures of an episode. A longer one shows every second step, or every third, and so on; and each that the model saw."""
_MOST_WIDTH = 720
"""Pixels."""
_COLOURS = 32
"""Colours of a picture. The games use few, so that no loss is seen."""
_KEY = re.compile("[0-9a-f]{32}")
"""Pattern of an episode's key, which becomes the name of a file. Any other text could lead out of the folder."""
_MOST_REASON = 300
"""Most characters of a reason."""
_STORED = {"pictures": str, "shown": int, "gold_actions": str, "differing": int}
"""Fields of `Pictures` that are stored in a file -> type of their entries."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of an episode, and the expert's actions."""

    pictures: tuple[str, ...] = ()
    """WebP without loss in base64; equal pictures are kept once."""
    shown: tuple[int | None, ...] = ()
    """For each observation the index of its picture, or None if the picture before it stays."""
    gold_actions: tuple[str | None, ...] = ()
    """For each step the expert's action, or None if it is unknown."""
    differing: tuple[int, ...] = ()
    """Numbers of the steps before which the model saw another picture, by its digest in the record."""
    missing: str = ""
    """Why there are no pictures."""

    @property
    def size(self) -> int:
        """Number of characters of the pictures."""
        return sum(map(len, self.pictures))


def draw_pictures(episode: Episode, run: Path | None = None) -> Pictures:
    """Play an episode again and draw it.

    Args:
        episode: The recorded episode. `make_stored_environment` makes its environment from the record.
        run: The run folder; its folder ``pictures`` keeps the pictures, if it can be written.

    Returns:
        The pictures. There are none if the environment cannot be made, or if its observations differ from the record's.
    """
    try:
        if not _KEY.fullmatch(episode.key):
            raise UsageError(f"key: expected 32 hexadecimal digits; got {episode.key[:50]!r}.")
        stored = _read(run, episode) if run else None
        if stored is not None:
            return stored
        drawn = _draw(episode)
    except Exception as error:  # an environment that a record describes may raise anything
        reason = " ".join(str(error).split())[:_MOST_REASON]
        return Pictures(missing=reason or type(error).__name__)
    if run is not None:
        _keep(drawn, run, episode)
    return drawn


def _path(run: Path, episode: Episode) -> Path:
    return run / "pictures" / f"{episode.key}-{episode.length}.json"


def _read(run: Path, episode: Episode) -> Pictures | None:
    """Return the stored pictures of an episode, if their file is whole and lies in the run folder."""
    path = _path(run, episode)
    with suppress(OSError, ValueError, TypeError, KeyError):
        if is_regular(path, run):
            stored: dict[str, Any] = json.loads(path.read_text("utf-8"))
            fields: dict[str, Any] = {name: tuple(stored[name]) for name in _STORED}
            if all(isinstance(part, kind | None) for name, kind in _STORED.items() for part in fields[name]):
                return Pictures(**fields)
    return None


def _keep(drawn: Pictures, run: Path, episode: Episode) -> None:
    path = _path(run, episode)
    with suppress(OSError, UsageError):
        subfolder(run, path.parent.name)
        write_atomically(path, json.dumps({name: getattr(drawn, name) for name in _STORED}))


def _draw(episode: Episode) -> Pictures:
    pictures: dict[str, int] = {}  # picture -> its index
    shown: list[int | None] = []
    gold: list[str | None] = []
    differing: list[int] = []
    stride = math.ceil((episode.length + 1) / _MOST_PICTURES)
    for state in replay(episode, functools.partial(_make, episode)):
        number = state.number
        seen = episode.steps[number].decision.picture if number < episode.length else None
        if number % stride and number != episode.length and not seen:
            shown.append(None)
        else:
            picture = state.picture()
            differing += [number] * bool(seen and seen != picture_digest(picture))
            shown.append(pictures.setdefault(_encode(picture), len(pictures)))
        if number < episode.length:
            step = episode.steps[number]
            _check(state.obs, step.observation)
            gold.append(step.gold_action or state.info.get("gold_action"))
    return Pictures(tuple(pictures), tuple(shown), tuple(gold), tuple(differing))


def _make(episode: Episode) -> gym.Env[Any, Any]:
    """Make the episode's environment with pictures. If the record lacks an expert's action, the expert is on in every state."""
    record = dict(episode.environment)
    if owner_of(record["id"]).startswith("gym_text."):
        known = all(step.gold_action for step in episode.steps)
        record["kwargs"] = {**record["kwargs"], "expert": "off" if known else "replan"}
    return make_stored_environment(record, render_mode="rgb_array")


def _check(obs: Any, recorded: Mapping[str, Any]) -> None:
    """Raise ValueError unless an observation equals the recorded one in the keys that both have."""
    if plain({key: obs[key] for key in recorded if key in obs}) != {key: recorded[key] for key in recorded if key in obs}:
        raise ValueError("expected the recorded observations; the game shows others when it is played again")


def _encode(frame: Any) -> str:
    """Return a picture in base64: as WebP without loss, which is a quarter to a half smaller than PNG."""
    import_extra("PIL", "experiments")
    from PIL import Image

    image = Image.fromarray(np.asarray(frame, dtype=np.uint8))
    if image.width > _MOST_WIDTH:
        image = image.resize((_MOST_WIDTH, round(image.height * _MOST_WIDTH / image.width)))
    buffer = io.BytesIO()
    few = image.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE).convert("RGB")
    few.save(buffer, "WEBP", lossless=True, quality=60, method=4)  # of Pillow's settings those that cost no more time than PNG
    return base64.b64encode(buffer.getvalue()).decode("ascii")


@dataclass(frozen=True)
class Illustrated:
    """An episode with its pictures. A notebook shows it."""

    episode: Episode = field(repr=False)
    """The episode."""
    drawn: Pictures = field(repr=False)
    """Its pictures, and the expert's actions that its record lacks."""

    def _repr_html_(self) -> str:
        """Return the episode for a notebook; if there are no pictures, it says why."""
        numbers = {number: index for number, index in enumerate(self.drawn.shown) if index is not None}
        pictures = {
            number: self.drawn.pictures[index] for number, index in numbers.items() if 0 <= index < len(self.drawn.pictures)
        }
        gold = {number: action for number, action in enumerate(self.drawn.gold_actions) if action is not None}
        why = [line(f"No pictures: {self.drawn.missing}", faint=True)] * bool(self.drawn.missing)
        return str(block(episode_html(self.episode, pictures, gold), *why))


def illustrated(episode: Episode) -> Illustrated:
    """Play an episode again for its pictures.

    Args:
        episode: The recorded episode. Its record chooses one of the environments that ship with this package or with Gymnasium.

    Raises:
        UsageError: If a module cannot be imported.
    """
    return Illustrated(episode, draw_pictures(episode))
