"""A film of an episode: the game's text, the probabilities of the valid actions, and the expert's choice."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from gym_text.errors import import_extra
from gym_text_policies import Episode
from gym_text_policies.records import Step

WIDTH, HEIGHT, MARGIN = 900, 500, 26
SCALE = 2
"""Pictures are drawn this much larger and then made smaller, which smooths their edges."""
MIDDLE = 478
"""Pixels: where the column of the probabilities begins."""
BARS = 6
"""Actions that are shown, the most probable first; the expert's is always among them."""
GROWTH = (0.25, 0.7, 1.0)
"""Lengths of the bars in the pictures of one step, as a share of their last one."""
INK, FAINT, PAPER, CARD, LINE = (32, 33, 36), (104, 107, 112), (250, 249, 246), (255, 255, 255), (222, 220, 214)
MODEL, BAR, EXPERT, CHIP = (26, 82, 118), (160, 198, 222), (158, 82, 0), (253, 236, 214)
_LETTERS, _BOLD, _FIXED = "DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono"
"""Fonts that come with matplotlib, so that every machine draws the same."""


def write_film(path: Path, episode: Episode, title: str, model: str) -> None:
    """Write an episode as a GIF.

    Args:
        path: The file.
        episode: What was played in `choose`, in an environment with ``expert="replan"``.
        title: Shown at the top.
        model: Who plays; shown above the probabilities.
    """
    iio = import_extra("imageio.v3", "experiments")
    images, durations = [], []
    for image, milliseconds in _frames(episode, title, model):
        images.append(image)
        durations.append(milliseconds)
    same = [image.quantize(palette=_palette(), dither=Image.Dither.NONE).convert("RGB") for image in images]
    iio.imwrite(path, same, extension=".gif", duration=durations, loop=0)


def _frames(episode: Episode, title: str, model: str) -> Iterator[tuple[Image.Image, int]]:
    """Yield the pictures, each with the milliseconds that it stays."""
    for number, step in enumerate(episode.steps):
        for share in GROWTH:
            page = _Page(episode, number, title)
            page.probabilities(step, model, share)
            taken = share == GROWTH[-1]
            if taken:
                page.verdict(step)
            yield page.image, (1000 + 2 * len(str(step.observation["text"]))) if taken else 90
    page = _Page(episode, episode.length, title)
    page.ending()
    yield page.image, 4000


class _Page:
    """One picture: the game so far on the left, the model's probabilities on the right, a mark for each step at the bottom."""

    def __init__(self, episode: Episode, number: int, title: str) -> None:
        self.episode = episode
        self.number = number
        self._image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), PAPER)
        self._draw = ImageDraw.Draw(self._image)
        score = episode.steps[number - 1].score if number else 0.0
        self._write((MARGIN, 20), title, 17, INK, _BOLD)
        counted = f"step {min(number + 1, episode.length)} of {episode.length}    score {score:.2f}"
        self._write((WIDTH - MARGIN, 22), counted, 15, FAINT, anchor="ra")
        self._texts = [str(step.observation["text"]) for step in episode.steps] + [str(episode.last_observation.get("text", ""))]
        self._transcript()
        self._notes()
        self._steps()

    @property
    def image(self) -> Image.Image:
        """The picture in its own size."""
        return self._image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)

    def _transcript(self) -> None:
        """Draw what the game said and what was typed, the latest at the bottom, as much as there is room for."""
        self._box((MARGIN, 56, MIDDLE - 26, 352), 8, CARD, LINE)
        lines: list[tuple[str, Any]] = []
        for number in range(self.number + 1):
            if number:
                lines.append((f"> {self.episode.steps[number - 1].decision.action}", MODEL))
            colour = INK if number == self.number else FAINT
            lines += [(line, colour) for line in _wrapped(self._texts[number], 50)]
        for row, (line, colour) in enumerate(lines[-16:]):
            self._write((MARGIN + 14, 68 + 17.4 * row), line, 13, colour, _FIXED)

    def _notes(self) -> None:
        """Draw the recipe, once it has been read, and what is carried."""
        observation = (
            self.episode.steps[self.number].observation if self.number < self.episode.length else self.episode.last_observation
        )
        carried = [line.strip() for line in str(observation["inventory"]).splitlines()[1:] if line.strip()]
        for name, text, y in (("RECIPE", self._recipe(), 366), ("CARRIES", ", ".join(carried) or "nothing", 410)):
            self._write((MARGIN, y + 2), name, 11, FAINT, _BOLD)
            for row, line in enumerate(textwrap.wrap(text, 50)[:2]):
                self._write((MARGIN + 76, y + 18 * row), line, 13, INK)

    def _recipe(self) -> str:
        for text in self._texts[: self.number + 1]:
            _, found, recipe = text.partition("Ingredients:")
            if found:
                return ": ".join(_listed(part) for part in recipe.split("Directions:"))
        return "not read yet"

    def probabilities(self, step: Step, model: str, share: float) -> None:
        """Draw the right column, with bars of a share of their length."""
        known = dict(step.decision.probabilities or {})
        shown = sorted(known, key=lambda name: -known[name])[:BARS]
        if step.gold_action in known and step.gold_action not in shown:
            shown[-1] = step.gold_action
        self._write((MIDDLE, 60), model, 14, INK)
        self._write((MIDDLE, 82), f"probability of each of the {len(known)} actions that the game takes now", 12, FAINT)
        right = WIDTH - MARGIN
        for row, name in enumerate(shown):
            y = 110 + 40 * row
            taken = name == step.decision.action and share == GROWTH[-1]
            self._box((MIDDLE, y, right, y + 32), 6, CARD, MODEL if taken else LINE, 2 if taken else 1)
            self._box((MIDDLE + 2, y + 2, MIDDLE + 5 + (right - MIDDLE - 7) * known[name] * share, y + 30), 4, BAR)
            self._write((MIDDLE + 14, y + 8), name, 14, INK, _BOLD if taken else _LETTERS)
            self._write((right - 12, y + 8), _percent(known[name]), 14, INK, anchor="ra")
            if name == step.gold_action:
                self._box((right - 152, y + 6, right - 90, y + 26), 10, CHIP, EXPERT)
                self._write((right - 121, y + 9), "expert", 12, EXPERT, anchor="ma")
        rest = max(0.0, 1 - sum(known[name] for name in shown))
        self._write(
            (MIDDLE + 14, 112 + 40 * len(shown)), f"the other {len(known) - len(shown)} together: {_percent(rest)}", 12, FAINT
        )

    def verdict(self, step: Step) -> None:
        """Draw what is played, and what the expert says of it."""
        self._write((MIDDLE, 388), f"> {step.decision.action}", 18, MODEL, _BOLD)
        same = step.decision.action == step.gold_action
        words = "The expert would do the same." if same else f"The expert would: {step.gold_action}."
        self._write((MIDDLE, 415), words, 13, FAINT if same else EXPERT, _LETTERS if same else _BOLD)

    def ending(self) -> None:
        """Draw how it ended."""
        same = sum(step.decision.action == step.gold_action for step in self.episode.steps)
        self._write((MIDDLE, 150), f"{self.episode.outcome} in {self.episode.length} steps", 32, MODEL, _BOLD)
        self._write((MIDDLE, 202), f"In {same} of them the expert would have done the same.", 15, INK)

    def _steps(self) -> None:
        """Draw a mark for each step, in the expert's colour where it would have done something else."""
        gap = 4
        width = (WIDTH - 2 * MARGIN + gap) / self.episode.length
        for i, step in enumerate(self.episode.steps):
            same = step.decision.action == step.gold_action
            fill, edge = (
                (CARD, LINE) if i > self.number else (CARD, INK) if i == self.number else (BAR, MODEL) if same else (CHIP, EXPERT)
            )
            self._box((MARGIN + i * width, HEIGHT - 36, MARGIN + (i + 1) * width - gap, HEIGHT - 24), 3, fill, edge)

    def _box(self, corners: tuple[float, float, float, float], radius: int, fill: Any, edge: Any = None, width: int = 1) -> None:
        self._draw.rounded_rectangle([SCALE * value for value in corners], SCALE * radius, fill, edge, SCALE * width)

    def _write(
        self, place: tuple[float, float], text: str, size: int, colour: Any, font: str = _LETTERS, anchor: str = "la"
    ) -> None:
        path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
        at = (SCALE * place[0], SCALE * place[1])
        self._draw.text(at, text, colour, ImageFont.truetype(path, SCALE * size), anchor=anchor)


def _wrapped(text: str, columns: int) -> list[str]:
    """Return a text in lines of at most so many columns, without empty ones."""
    return [line for part in text.splitlines() for line in textwrap.wrap(part, columns, subsequent_indent=" " * (part[:2] == "  "))]


def _listed(text: str) -> str:
    return ", ".join(line.strip() for line in text.splitlines() if line.strip())


def _percent(share: float) -> str:
    """Return a probability for people: the small ones are not 0.

    >>> _percent(0.9996), _percent(0.123), _percent(0.0004)
    ('> 99.9 %', '12.3 %', '< 0.1 %')
    """
    if share > 0.999:
        return "> 99.9 %"
    return f"{share:.1%}".replace("%", " %") if share >= 0.001 else "< 0.1 %"


def _palette() -> Image.Image:
    """Return the colours of all pictures: each ink on each ground, and what smooth edges have in between."""
    pairs = [(ink, ground) for ink in (INK, FAINT, MODEL, EXPERT, LINE) for ground in (PAPER, CARD, BAR, CHIP)]
    shares = [i / 8 for i in range(9)]
    blends = {tuple(round(a * x + b * (1 - x)) for a, b in zip(*pair, strict=True)) for pair in pairs for x in shares}
    image = Image.new("P", (1, 1))
    image.putpalette([part for colour in sorted(blends)[:256] for part in colour])
    return image
