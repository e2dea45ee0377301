"""An episode as a GIF: the picture of each state beside what the model thought, what it did, and how probable that was."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import import_extra
from gym_text_policies.records import Episode, Step
from gym_text_policies.report.replay import replayed

HEIGHT, PANEL, MARGIN = 420, 380, 14
"""Pixels: height of all, width and margin of the panel beside the picture."""
MOST_PICTURES = 400
"""A longer episode shows every second step, or third …"""
_BARS = 6
"""Most actions whose probabilities are shown, the most probable first."""
_LAST = 2000
"""Milliseconds that the last picture stays."""
_INK, _FAINT, _ACCENT, _BAR, _PAPER = (32, 33, 36), (110, 113, 118), (26, 82, 118), (174, 205, 225), (250, 249, 246)


def write_gif(path: str | Path, episode: Episode, make_env: Callable[[], gym.Env[Any, Any]], fps: int = 10) -> None:
    """Play an episode again, by its recorded actions, and write it as a GIF.

    Args:
        path: The file.
        episode: What was played.
        make_env: Makes the same environment, with ``render_mode="rgb_array"``; one that draws nothing is shown by its text.
        fps: Pictures a second, 1 to 50.

    Raises:
        MissingDependencyError: If Pillow is not installed.
    """
    import_extra("PIL", "experiments")
    stride = math.ceil((episode.length + 1) / MOST_PICTURES)
    pictures = [
        _beside(state.picture(), episode, state.number, state.so_far)
        for state in replayed(episode, make_env)
        if state.number % stride == 0 or state.number == episode.length
    ]
    if not pictures:
        return
    durations = [max(20, round(1000 / fps))] * (len(pictures) - 1) + [_LAST]
    first, *rest = (picture.quantize(128, method=2) for picture in pictures)  # 2: by an octree, several times faster
    partial = Path(path).with_suffix(".partial")
    first.save(partial, format="GIF", save_all=True, append_images=rest, duration=durations, loop=0)
    partial.replace(path)


def _beside(frame: np.ndarray, episode: Episode, index: int, so_far: float) -> Any:
    """Return one picture of the GIF."""
    from PIL import Image

    picture = Image.fromarray(frame)
    picture = picture.resize((max(1, round(picture.width * HEIGHT / picture.height)), HEIGHT))
    whole = Image.new("RGB", (picture.width + PANEL, HEIGHT), _PAPER)
    whole.paste(picture, (0, 0))
    page = _Page(whole, picture.width + MARGIN)
    page.line(f"step {min(index + 1, episode.length)} of {episode.length}   return {so_far:.4g}", 14, _FAINT)
    if index < episode.length:
        _write_decision(page, episode.steps[index])
    else:
        page.line(episode.outcome, 22, _ACCENT)
        if episode.error:
            page.text(episode.error, 13, _INK, HEIGHT - MARGIN)
    return whole


def _write_decision(page: _Page, step: Step) -> None:
    decision = step.decision
    page.text(decision.action, 20, _ACCENT, page.y + 80)
    if not decision.valid:
        page.line("its answer could not be used", 13, _FAINT)
    probabilities = sorted((decision.probabilities or {}).items(), key=lambda item: -item[1])[:_BARS]
    room = HEIGHT - MARGIN - 30 * len(probabilities)
    thoughts = decision.reasoning or (decision.completion if decision.completion != decision.action else "")
    if thoughts:
        page.y += 6
        page.text(thoughts, 14, _INK, room - 6)
    page.y = room
    for name, probability in probabilities:
        page.bar(name, probability)


class _Page:
    """The panel, written from top to bottom."""

    def __init__(self, image: Any, left: int) -> None:
        from PIL import ImageDraw

        self._draw = ImageDraw.Draw(image)
        self._left = left
        self._width = PANEL - 2 * MARGIN
        self.y = MARGIN

    def line(self, text: str, size: int, colour: tuple[int, int, int]) -> None:
        self._draw.text((self._left, self.y), text, fill=colour, font=_font(size))
        self.y += int(size * 1.4)

    def text(self, text: str, size: int, colour: tuple[int, int, int], bottom: int) -> None:
        """Write a text in lines that fit, down to `bottom`; what does not fit ends in dots."""
        columns = max(8, int(self._width / self._draw.textlength("abcdefghij nopqrst uvwxyz", _font(size)) * 25))
        lines = [part for line in text.splitlines() for part in (textwrap.wrap(line, columns) or [""])]
        room = max(1, (bottom - self.y) // int(size * 1.4))
        if len(lines) > room:
            lines = [*lines[: room - 1], lines[room - 1][: columns - 2] + " ..."]
        for line in lines:
            self.line(line, size, colour)

    def bar(self, name: str, probability: float) -> None:
        """Draw a probability as a bar, with its name on it."""
        right = self._left + round(self._width * probability)
        self._draw.rectangle((self._left, self.y, max(self._left + 1, right), self.y + 24), fill=_BAR)
        label = textwrap.shorten(name, 38, placeholder=" ...") or name[:38]
        self._draw.text((self._left + 6, self.y + 4), f"{probability:.0%}  {label}", fill=_INK, font=_font(13))
        self.y += 30


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
