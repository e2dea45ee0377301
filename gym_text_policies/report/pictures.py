"""Pictures for the page: a recorded episode is played again, drawn, and asked for the expert's advice where the record has none."""

from __future__ import annotations

import base64
import functools
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError, import_extra
from gym_text_policies.files import is_regular, subfolder
from gym_text_policies.json_data import plain
from gym_text_policies.records import Episode
from gym_text_policies.remake import owner_of, remake_environment
from gym_text_policies.report.replay import replay
from gym_text_policies.store import write_atomically

_MOST_PICTURES = 40
"""Most pictures of an episode. A longer one shows every second step, or every third, and so on."""
_MOST_WIDTH = 720
"""Pixels."""
_COLOURS = 32
"""The games use few colours. A picture takes 1 to 8 kB, without visible loss."""
_KEY = re.compile("[0-9a-f]{32}")
"""What a key looks like; it becomes a file's name, and another text could lead out of the folder."""
_MOST_REASON = 300
"""Characters."""
_KEPT = {"pictures": str, "shown": int, "gold_actions": str}
"""What a file keeps of an episode: fields of `Pictures`, and the type of their entries."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of an episode, and the expert's advice."""

    pictures: tuple[str, ...] = ()
    """PNG in base64; equal pictures are kept once."""
    shown: tuple[int | None, ...] = ()
    """For each observation the index of its picture, or None where the earlier picture stays."""
    gold_actions: tuple[str | None, ...] = ()
    """For each step the expert's action, or None where it is unknown."""
    missing: str = ""
    """Why there are none."""

    @property
    def size(self) -> int:
        """Number of characters of the pictures."""
        return sum(map(len, self.pictures))


def draw_pictures(episode: Episode, run: Path | None = None, *, imports: Sequence[str] = ()) -> Pictures:
    """Play an episode again and draw it.

    Args:
        episode: The recorded episode. Its environment is made from the record; see `remake_environment` for what is made.
        run: A folder, in whose folder ``pictures`` is kept what was drawn. If that cannot be written, nothing is kept.
        imports: Modules whose environments may be made.

    Returns:
        The pictures. There are none if the environment cannot be made, or if the game goes another way than the record.
    """
    try:
        if not _KEY.fullmatch(episode.key):
            raise UsageError(f"key: expected 32 hexadecimal digits; got {episode.key[:50]!r}.")
        kept = _read(run, episode) if run else None
        if kept is not None:
            return kept
        drawn = _draw(episode, imports)
    except Exception as error:  # whatever a record makes of an environment
        reason = " ".join(str(error).split())[:_MOST_REASON]
        return Pictures(missing=reason or type(error).__name__)
    if run is not None:
        _keep(drawn, run, episode)
    return drawn


def _path(run: Path, episode: Episode) -> Path:
    return run / "pictures" / f"{episode.key}-{episode.length}.json"


def _read(run: Path, episode: Episode) -> Pictures | None:
    """Return what was kept of an episode's pictures, if it is whole and lies in the run's folder."""
    path = _path(run, episode)
    with suppress(OSError, ValueError, TypeError, KeyError):
        if is_regular(path, run):
            stored: dict[str, Any] = json.loads(path.read_text("utf-8"))
            if all(isinstance(part, kind | None) for name, kind in _KEPT.items() for part in stored[name]):
                return Pictures(tuple(stored["pictures"]), tuple(stored["shown"]), tuple(stored["gold_actions"]))
    return None


def _keep(drawn: Pictures, run: Path, episode: Episode) -> None:
    path = _path(run, episode)
    with suppress(OSError, UsageError):
        subfolder(run, path.parent.name)
        write_atomically(path, json.dumps({name: getattr(drawn, name) for name in _KEPT}))


def _draw(episode: Episode, imports: Sequence[str]) -> Pictures:
    pictures: dict[str, int] = {}  # PNG -> its index
    shown: list[int | None] = []
    gold: list[str | None] = []
    stride = math.ceil((episode.length + 1) / _MOST_PICTURES)
    for state in replay(episode, functools.partial(_make, episode, imports)):
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


def _make(episode: Episode, imports: Sequence[str]) -> gym.Env[Any, Any]:
    """Return the episode's environment with pictures, and with an expert for every state if the record lacks some advice."""
    record = dict(episode.environment)
    if owner_of(record["id"]).startswith("gym_text."):
        known = all(step.gold_action for step in episode.steps)
        record["kwargs"] = {**record["kwargs"], "expert": "off" if known else "replan"}
    return remake_environment(record, imports=imports, render_mode="rgb_array")


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
