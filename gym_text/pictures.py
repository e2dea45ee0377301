"""Pictures: a panel of text for games without a picture of their own, and pygame without a screen."""

from __future__ import annotations

import os
import sys
import textwrap

import numpy as np

from gym_text.errors import import_extra

WIDTH, HEIGHT = 640, 480
"""Size of the panel in pixels; even numbers, as video codecs need."""
_MARGIN = 20
_INK, _ACCENT, _PAPER = (32, 33, 36), (26, 82, 118), (250, 249, 246)


def draw_panel(title: str, text: str) -> np.ndarray:
    """Draw a title and a text below it, in the largest font size that shows both whole.

    Args:
        title: Shown first, in another colour.
        text: Shown below; line breaks are kept.

    Returns:
        A picture, uint8 of shape (480, 640, 3). Text that is too long for the smallest size is cut and ends in ``…``.
    """
    import_extra("PIL", "textworld")
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (WIDTH, HEIGHT), _PAPER)
    draw = ImageDraw.Draw(image)
    for size in (22, 20, 18, 16, 14, 12, 11):
        font = ImageFont.load_default(size)
        columns = int((WIDTH - 2 * _MARGIN) / draw.textlength("abcdefghij nopqrst uvwxyz", font) * 25)
        heading, body = _wrap(title, columns), _wrap(text, columns)
        line_height = int(size * 1.35)
        lines = (HEIGHT - 2 * _MARGIN) // line_height
        if len(heading) + len(body) + 1 <= lines:
            break
    else:
        body = [*body[: lines - len(heading) - 2], "…"]
    y = _MARGIN
    for line, colour in [*((line, _ACCENT) for line in heading), ("", _INK), *((line, _INK) for line in body)]:
        draw.text((_MARGIN, y), line, fill=colour, font=font)
        y += line_height
    return np.asarray(image).copy()


def prepare_pygame(extra: str) -> None:
    """Import pygame so that it draws on machines without a screen, and prints nothing.

    Without this, SDL writes a complaint to stderr if it finds no display server.
    """
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    import_extra("pygame", extra)


def _wrap(text: str, columns: int) -> list[str]:
    return [line for paragraph in text.splitlines() for line in (textwrap.wrap(paragraph, columns) or [""])]
