"""Pictures drawn by pygame: a page with the state of a text game, and a caption below a picture.

All text is in the font that pygame ships, so that every machine draws the same picture.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gym_text.errors import import_extra

WIDTH, HEIGHT = 720, 480
"""Size of a page in pixels; even numbers, as video codecs need."""
_MARGIN = 18
_MIDDLE = 372
"""Left edge of the list of actions, in pixels; the texts are to the left of it."""
_TOP = 46
"""Top edge of the texts and the list of actions, in pixels; the line of facts is above it."""
_SIZES = (19, 17, 16, 15, 14, 13, 12, 11, 10)
"""Sizes of letters in pixels; a page uses the largest with which everything fits."""
_INK, _FAINT, _ACCENT, _PAPER = (32, 33, 36), (104, 107, 112), (26, 82, 118), (250, 249, 246)
_LINE, _CHIP, _REFUSED = (222, 220, 214), (205, 225, 238), (158, 82, 0)


def draw_page(
    sections: Sequence[tuple[str, str]],
    *,
    facts: str = "",
    actions: Sequence[str] = (),
    taken: str | None = None,
    refused: bool = False,
    keys: str = "",
) -> np.ndarray:
    """Draw the state of a text game: texts with titles, the actions that can be chosen, and the last action.

    Args:
        sections: Titles and texts, from top to bottom; line breaks are kept, and empty texts are left out.
        facts: One line at the top, such as step and score.
        actions: Names of the actions that can be chosen now. Without them the texts have the whole width.
        taken: Name of the last action. It stands above the list of actions, and is marked in the list if it is there.
        refused: Whether the game did not accept the last action.
        keys: The keys that stand for the first actions, in their order; each is shown before its action.

    Returns:
        A picture, uint8 of shape (480, 720, 3). A text that is too long for the smallest letters is cut and ends in ``...``. If
        actions do not fit, the list ends with their number.
    """
    pygame = _pygame()
    page = pygame.Surface((WIDTH, HEIGHT))
    page.fill(_PAPER)
    _write(page, facts, (_MARGIN, 14), 13, _FAINT, WIDTH - 2 * _MARGIN)
    pygame.draw.line(page, _LINE, (_MARGIN, 36), (WIDTH - _MARGIN, 36))
    beside = bool(actions) or taken is not None
    _write_sections(page, sections, (_MIDDLE if beside else WIDTH) - 2 * _MARGIN)
    if beside:
        pygame.draw.line(page, _LINE, (_MIDDLE - _MARGIN // 2, _TOP), (_MIDDLE - _MARGIN // 2, HEIGHT - _MARGIN))
        _write_actions(page, actions, taken, refused, keys)
    return _as_array(page)


def draw_caption(picture: np.ndarray, text: str, facts: str) -> np.ndarray:
    """Add 88 rows of pixels below a picture, with a line of facts and up to four lines of text."""
    pygame = _pygame()
    height, width = picture.shape[:2]
    canvas = pygame.Surface((width, height + 88))
    canvas.fill(_PAPER)
    canvas.blit(pygame.surfarray.make_surface(picture.transpose(1, 0, 2)), (0, 0))
    _write(canvas, facts, (8, height + 8), 12, _FAINT, width - 16)
    for size in _SIZES:
        lines = _wrap(text, size, width - 16)
        if len(lines) * _leading(size) <= 56:
            break
    for number, line in enumerate(_cut(lines, 56 // _leading(size))):
        _write(canvas, line, (8, height + 27 + number * _leading(size)), size, _INK, width - 16)
    return _as_array(canvas)


def prepare_pygame(extra: str) -> None:
    """Import pygame so that it draws on machines without a screen, and prints nothing.

    Without this, SDL writes a complaint to stderr if it finds no display server.
    """
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    import_extra("pygame", extra)


def _pygame() -> Any:
    """Return pygame with its fonts initialised: closing another environment may have shut them down."""
    pygame = import_extra("pygame", "textworld")
    pygame.font.init()
    _font.cache_clear()
    return pygame


@functools.cache
def _font(size: int) -> Any:
    """Return pygame's font at twice the size: a line is drawn large and scaled down, which spaces its letters evenly."""
    # 1.3 times two: the size that pygame's own font takes is 1.3 times the size of its letters
    return import_extra("pygame", "textworld").font.Font(None, round(size * 2.6))


@functools.lru_cache(1 << 14)
def _width(text: str, size: int) -> float:
    """Return the width of a line in pixels."""
    return float(_font(size).size(text)[0] / 2)


def _leading(size: int) -> int:
    """Return the distance of two lines in pixels."""
    return round(size * 1.3)


def _write(page: Any, text: str, position: tuple[int, int], size: int, colour: tuple[int, int, int], width: int) -> None:
    """Write one line, cut to a width."""
    pygame = import_extra("pygame", "textworld")
    line = _font(size).render(_shorten(text, size, width), True, colour)
    page.blit(pygame.transform.smoothscale(line, (line.get_width() // 2, line.get_height() // 2)), position)


def _write_sections(page: Any, sections: Sequence[tuple[str, str]], width: int) -> None:
    sections = [(title, text) for title, text in sections if text.strip()]
    height = HEIGHT - _TOP - _MARGIN + 10  # the last section needs no space below it
    gaps = 26 * len(sections)  # titles, and the space below each section
    for size in _SIZES:
        wrapped = [_wrap(text, size, width) for _, text in sections]
        max_lines = (height - gaps) // _leading(size)
        if sum(map(len, wrapped)) <= max_lines:
            break
    while sum(map(len, wrapped)) > max_lines:  # the longest text loses its last lines
        longest = max(range(len(wrapped)), key=lambda index: len(wrapped[index]))
        others = sum(map(len, wrapped)) - len(wrapped[longest])
        second = max([len(lines) for index, lines in enumerate(wrapped) if index != longest], default=0)
        wrapped[longest] = _cut(wrapped[longest], max(max_lines - others, min(second, len(wrapped[longest]) - 1), 1))
    y = _TOP
    for (title, _), lines in zip(sections, wrapped, strict=True):
        _write(page, title.upper(), (_MARGIN, y), 11, _ACCENT, width)
        y += 16
        for line in lines:
            _write(page, line, (_MARGIN, y), size, _INK, width)
            y += _leading(size)
        y += 10


def _write_actions(page: Any, actions: Sequence[str], taken: str | None, refused: bool, keys: str) -> None:
    pygame = import_extra("pygame", "textworld")
    y, width = _TOP, WIDTH - _MIDDLE - _MARGIN
    if taken is not None:
        _write(page, "NOT ACCEPTED" if refused else "TAKEN", (_MIDDLE, y), 11, _REFUSED if refused else _ACCENT, width)
        pygame.draw.rect(page, _CHIP, (_MIDDLE, y + 15, width, 24), border_radius=4)
        _write(page, taken or "(empty)", (_MIDDLE + 6, y + 19), 15, _REFUSED if refused else _ACCENT, width - 12)
        y += 50
    if not actions:
        return
    _write(page, f"VALID ACTIONS NOW: {len(actions)}", (_MIDDLE, y), 11, _ACCENT, width)
    y += 18
    lines = [f"{key}  {name}" if key else name for key, name in zip([*keys, *[""] * len(actions)], actions, strict=False)]
    for size, columns in ((16, 1), (15, 1), (14, 1), (13, 1), (13, 2), (12, 2), (11, 2)):
        rows = (HEIGHT - _MARGIN // 2 - y) // (_leading(size) + 2)
        column = width // columns
        if len(lines) <= rows * columns and (columns == 1 or max(_width(line, size) for line in lines) <= column - 12):
            break
    marked = actions.index(taken) if taken in actions else None
    if len(lines) > rows * columns:
        shown = rows * columns - 1
        if marked is not None and marked >= shown:  # the marked action is always shown
            lines[shown - 1], marked = lines[marked], shown - 1
        lines[shown:] = [f"... and {len(lines) - shown} more"]
    for number, line in enumerate(lines):
        x, top = _MIDDLE + 6 + number // rows * column, y + number % rows * (_leading(size) + 2)
        if number == marked:
            pygame.draw.rect(page, _CHIP, (x - 6, top - 2, column - 4, _leading(size) + 1), border_radius=4)
        _write(page, line, (x, top), size, _ACCENT if number == marked else _INK, column - 12)


def _wrap(text: str, size: int, width: int) -> list[str]:
    """Return the lines of a text, each at most `width` pixels wide; empty lines are kept except at both ends."""
    lines: list[str] = []
    for paragraph in text.strip().expandtabs(2).splitlines():
        indent = paragraph[: len(paragraph) - len(paragraph.lstrip())]
        line = ""
        for word in paragraph.split():
            if line and _width(f"{line} {word}", size) > width:
                lines.append(line)
                line = indent + word
            else:
                line = f"{line} {word}" if line else indent + word
        lines.append(line)
    return lines


def _cut(lines: list[str], most: int) -> list[str]:
    """Return at most `most` lines; if that leaves some out, the last line ends in dots."""
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1]} ..."]


def _shorten(text: str, size: int, width: int) -> str:
    """Return a line cut to at most `width` pixels; a cut line ends in dots."""
    if _width(text, size) <= width:
        return text
    while text and _width(f"{text} ...", size) > width:
        text = text[:-1]
    return f"{text} ..."


def _as_array(surface: Any) -> np.ndarray:
    """Return a surface as a picture, uint8 of shape (height, width, 3)."""
    pygame = import_extra("pygame", "textworld")
    return np.ascontiguousarray(pygame.surfarray.array3d(surface).transpose(1, 0, 2))
