"""Pictures drawn by pygame: a state of a text game as a page, a caption below a picture, and a window on the screen.

The letters are pygame's own font, so every machine draws the same.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gym_text.errors import UsageError, import_extra

WIDTH, HEIGHT = 720, 480
"""Size of a page in pixels; even numbers, as video codecs need."""
_MARGIN = 18
_MIDDLE = 372
"""Where the list of actions begins, in pixels; the texts end before it."""
_TOP = 46
"""Where texts and actions begin, in pixels; the line of facts is above."""
_SIZES = (19, 17, 16, 15, 14, 13, 12, 11, 10)
"""Sizes of letters in pixels; the largest with which everything fits is taken."""
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
    """Draw a state of a text game: titled texts, the actions that can be chosen, and the one that led here.

    Args:
        sections: Titles and texts, from top to bottom; line breaks are kept, and empty texts are left out.
        facts: One line at the top, such as step and score.
        actions: Names of the actions that can be chosen now. Without them the texts have the whole width.
        taken: Name of the action that led to this state. It stands above the actions, and is marked among them if it is there.
        refused: Whether the game did not accept that action.
        keys: The keys that stand for the first actions, in their order; each is shown before its action.

    Returns:
        A picture, uint8 of shape (480, 720, 3). A text that is too long for the smallest letters is cut and ends in ``...``, and of
        actions that do not fit the number is given.
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
    """Return a picture with a line of facts and up to four lines of text below it, in 88 rows of pixels more."""
    pygame = _pygame()
    height, width = picture.shape[:2]
    whole = pygame.Surface((width, height + 88))
    whole.fill(_PAPER)
    whole.blit(pygame.surfarray.make_surface(picture.transpose(1, 0, 2)), (0, 0))
    _write(whole, facts, (8, height + 8), 12, _FAINT, width - 16)
    for size in _SIZES:
        lines = _wrap(text, size, width - 16)
        if len(lines) * _leading(size) <= 56:
            break
    for number, line in enumerate(_cut(lines, 56 // _leading(size))):
        _write(whole, line, (8, height + 27 + number * _leading(size)), size, _INK, width - 16)
    return _as_array(whole)


class Window:
    """A window on the screen. It opens with the first picture.

    Args:
        title: What its frame says.
        fps: Most pictures a second; `show` waits as long.
    """

    def __init__(self, title: str, fps: int) -> None:
        self._title = title
        self._fps = fps
        self._clock: Any = None

    def show(self, picture: np.ndarray) -> None:
        """Show a picture, uint8 of shape (height, width, 3).

        Raises:
            UsageError: If the machine has no screen.
        """
        pygame = import_extra("pygame", "textworld")
        if self._clock is None:
            try:
                pygame.display.init()
            except pygame.error as error:
                raise UsageError(
                    f"render_mode: expected a screen for 'human'; pygame found none ({error}). Pass 'rgb_array' for pictures."
                ) from error
            self._clock = pygame.time.Clock()
        size = (picture.shape[1], picture.shape[0])
        screen = pygame.display.get_surface()
        if screen is None or screen.get_size() != size:
            screen = pygame.display.set_mode(size)
            pygame.display.set_caption(self._title)
        screen.blit(pygame.surfarray.make_surface(picture.transpose(1, 0, 2)), (0, 0))
        pygame.event.pump()
        self._clock.tick(self._fps)
        pygame.display.flip()

    def close(self) -> None:
        """Close the window; the next picture opens it again."""
        if self._clock is not None:
            import_extra("pygame", "textworld").display.quit()
            self._clock = None


def prepare_pygame(extra: str) -> None:
    """Import pygame so that it draws on machines without a screen, and prints nothing.

    Without this, SDL writes a complaint to stderr if it finds no display server.
    """
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    import_extra("pygame", extra)


def _pygame() -> Any:
    """Return pygame with its fonts ready; an environment that has closed since the last picture may have ended them."""
    pygame = import_extra("pygame", "textworld")
    pygame.font.init()
    _font.cache_clear()
    return pygame


@functools.cache
def _font(size: int) -> Any:
    """Return pygame's font in twice the size: a line is drawn large and then made smaller, which spaces its letters evenly."""
    return import_extra("pygame", "textworld").font.Font(None, round(size * 2.6))  # None's sizes are 1.3 times its letters'


def _width(text: str, size: int) -> float:
    """Return how wide a line is, in pixels."""
    return float(_font(size).size(text)[0] / 2)


def _leading(size: int) -> int:
    """Return the distance of two lines in pixels."""
    return round(size * 1.3)


def _write(page: Any, text: str, place: tuple[int, int], size: int, colour: tuple[int, int, int], width: int) -> None:
    """Write one line; what goes beyond the width is cut."""
    pygame = import_extra("pygame", "textworld")
    line = _font(size).render(_shorten(text, size, width), True, colour)
    page.blit(pygame.transform.smoothscale(line, (line.get_width() // 2, line.get_height() // 2)), place)


def _write_sections(page: Any, sections: Sequence[tuple[str, str]], width: int) -> None:
    sections = [(title, text) for title, text in sections if text.strip()]
    room = HEIGHT - _TOP - _MARGIN + 10  # no space is needed below the last
    gaps = 26 * len(sections)  # the title of each, and some space below
    for size in _SIZES:
        wrapped = [_wrap(text, size, width) for _, text in sections]
        most = (room - gaps) // _leading(size)
        if sum(map(len, wrapped)) <= most:
            break
    while sum(map(len, wrapped)) > most:  # the longest text loses its last lines
        longest = max(range(len(wrapped)), key=lambda place: len(wrapped[place]))
        others = sum(map(len, wrapped)) - len(wrapped[longest])
        second = max([len(lines) for place, lines in enumerate(wrapped) if place != longest], default=0)
        wrapped[longest] = _cut(wrapped[longest], max(most - others, min(second, len(wrapped[longest]) - 1), 1))
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
        kept = rows * columns - 1
        if marked is not None and marked >= kept:  # the marked one is always shown
            lines[kept - 1], marked = lines[marked], kept - 1
        lines[kept:] = [f"... and {len(lines) - kept} more"]
    for number, line in enumerate(lines):
        place = (_MIDDLE + 6 + number // rows * column, y + number % rows * (_leading(size) + 2))
        if number == marked:
            pygame.draw.rect(page, _CHIP, (place[0] - 6, place[1] - 2, column - 4, _leading(size) + 1), border_radius=4)
        _write(page, line, place, size, _ACCENT if number == marked else _INK, column - 12)


def _wrap(text: str, size: int, width: int) -> list[str]:
    """Return a text in lines of at most so many pixels; empty lines are kept but at its ends."""
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
    """Return the first lines; where some are left out, the last one ends in dots."""
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1]} ..."]


def _shorten(text: str, size: int, width: int) -> str:
    """Return a line that is at most so many pixels wide; where it was cut, it ends in dots."""
    if _width(text, size) <= width:
        return text
    while text and _width(f"{text} ...", size) > width:
        text = text[:-1]
    return f"{text} ..."


def _as_array(surface: Any) -> np.ndarray:
    """Return a surface as a picture, uint8 of shape (height, width, 3)."""
    pygame = import_extra("pygame", "textworld")
    return np.ascontiguousarray(pygame.surfarray.array3d(surface).transpose(1, 0, 2))
