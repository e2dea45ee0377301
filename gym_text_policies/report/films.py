"""Episodes as GIFs: the picture of each state beside the model's reasoning, its action, and the actions' probabilities."""

from __future__ import annotations

import functools
import io
import logging
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from gym_text.errors import import_extra
from gym_text_policies.environments.stored import make_stored_environment
from gym_text_policies.files.safe_files import replacing, subfolder
from gym_text_policies.records import Decision, Episode, Step
from gym_text_policies.report.replay import ReplayedState, replay
from gym_text_policies.report.runs import read_runs

HEIGHT, PANEL, MARGIN = 480, 380, 14
"""Pixels: height of a frame, width of the panel beside the picture, and the panel's margin."""
_MOST_PICTURES = 400
"""Most frames. A longer episode shows every second step, or every third, and so on."""
_COLOURS = 128
"""Colours of a frame, chosen by an octree."""
_BARS, _BARS_ALONE = 6, 12
"""Most probabilities that are shown, below reasoning and without reasoning: those of the best actions and of the taken one."""
_LAST = 2000
"""Milliseconds that the last frame stays."""
_INK, _FAINT, _ACCENT, _BAR, _PAPER = (32, 33, 36), (110, 113, 118), (26, 82, 118), (174, 205, 225), (250, 249, 246)
_EXPERT = (158, 82, 0)
_MOST_STEPS = 100
"""Most steps of a won episode that is filmed for a report."""
_logger = logging.getLogger(__name__)


def film_wins(folder: Path) -> None:
    """Film in each environment an episode that a language model has won: the shortest one of the policy that wins most often.

    Args:
        folder: A run folder. The films are in its folder ``gifs``; each has its episode's key as its name.
    """
    for variants in read_runs([folder]).environments.values():
        asked = [variant for variant in variants if variant.asked]
        best = max(asked, key=lambda variant: variant.row["success"] or 0.0, default=None)
        won = [one for one in (best.episodes if best else ()) if one.won and one.length <= _MOST_STEPS and one.key.isalnum()]
        if best is None or not won:
            continue
        key = min(won, key=lambda summary: summary.length).key
        path = subfolder(folder, "gifs") / f"{key}.gif"
        (episode,) = best.stores[key].episodes([key])
        try:
            if not path.exists():
                write_gif(
                    path, episode, functools.partial(make_stored_environment, episode.environment, render_mode="rgb_array"), 2
                )
        except Exception as error:  # an environment that a record describes may raise anything
            _logger.warning("%s, %s: no film: %s: %s", best.environment, best.policy, type(error).__name__, error)


def write_gif(path: str | Path, episode: Episode, make_env: Callable[[], gym.Env[Any, Any]], fps: int = 10) -> None:
    """Play the actions of an episode again, and write its pictures as a GIF. The file is replaced whole, or stays.

    Args:
        path: The file.
        episode: The recorded episode.
        make_env: Makes the same environment, with ``render_mode="rgb_array"``. If it draws nothing, the GIF shows its texts.
        fps: Frames a second, 1 to 50.

    Raises:
        MissingDependencyError: If Pillow is not installed.
    """
    import_extra("PIL", "experiments")
    stride = math.ceil((episode.length + 1) / _MOST_PICTURES)
    shown = {*range(0, episode.length, stride), episode.length}
    frames: Iterator[Any] = (_frame(state, episode) for state in replay(episode, make_env) if state.number in shown)
    durations = [max(20, round(1000 / fps))] * (len(shown) - 1) + [_LAST]
    data = io.BytesIO()
    next(frames).save(data, "GIF", save_all=True, append_images=frames, duration=durations, loop=0)
    with replacing(Path(path)) as file:
        file.write(data.getvalue())


def _frame(state: ReplayedState, episode: Episode) -> Any:
    """Return one frame of the GIF: the picture of a state, and the panel beside it."""
    from PIL import Image

    picture, index = Image.fromarray(state.picture()), state.number
    width = 2 * max(1, round(picture.width * HEIGHT / picture.height / 2))  # even, as video codecs need
    whole = Image.new("RGB", (width + PANEL, HEIGHT), _PAPER)
    whole.paste(picture.resize((width, HEIGHT), Image.Resampling.LANCZOS), (0, 0))
    panel = _Panel(whole, width + MARGIN)
    panel.line(f"step {min(index + 1, episode.length)} of {episode.length}   return {state.reward_so_far:.4g}", 14, _FAINT)
    if index < episode.length:
        _write_decision(panel, episode.steps[index])
    else:
        panel.line(episode.outcome, 22, _ACCENT)
        if episode.error:
            panel.text(episode.error, 13, _INK, HEIGHT - MARGIN)
    return whole.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE)


def _write_decision(panel: _Panel, step: Step) -> None:
    decision = step.decision
    panel.text(decision.action, 20, _ACCENT, panel.y + 80)
    if not decision.valid:
        why = decision.invalid or decision.finish
        panel.line(f"its answer could not be used{f': {why}' if why else ''}", 13, _FAINT)
    if decision.thought_cut:
        panel.line(f"its thought was cut after {decision.tokens_reasoning} tokens", 13, _FAINT)
    known = _bars(panel, decision)
    thoughts = decision.reasoning or (decision.completion if decision.completion != decision.action else "")
    shown = sorted(known, key=lambda name: -known[name])[: _BARS if thoughts else _BARS_ALONE]
    if decision.action in known and decision.action not in shown:
        shown[-1] = decision.action
    panel.y += 6
    if thoughts:
        room = HEIGHT - MARGIN - 30 * len(shown)
        panel.text(thoughts, 14, _INK, room - 6)
        panel.y = room
    for name in shown:
        panel.bar(name, known[name], taken=name == decision.action, expert=name == step.gold_action)


def _bars(panel: _Panel, decision: Decision) -> Mapping[str, float]:
    """Return the length of each action's bar: its probability, or its share of the simulations if the policy looks ahead."""
    if not decision.visits:
        return decision.probabilities or {}
    simulations = sum(decision.visits.values())
    panel.line(f"looks ahead: share of simulations ({simulations})", 13, _FAINT)
    return {name: decision.visits.get(name, 0) / max(simulations, 1) for name in decision.probabilities or decision.visits}


class _Panel:
    """The panel, written from top to bottom."""

    def __init__(self, image: Any, left: int) -> None:
        from PIL import ImageDraw, ImageFont

        self._draw = ImageDraw.Draw(image)
        self._font = ImageFont.load_default
        self._left = left
        self._width = PANEL - 2 * MARGIN
        self.y = MARGIN

    def line(self, text: str, size: int, colour: tuple[int, int, int]) -> None:
        self._draw.text((self._left, self.y), text, fill=colour, font=self._font(size))
        self.y += int(size * 1.4)

    def text(self, text: str, size: int, colour: tuple[int, int, int], bottom: int) -> None:
        """Write a text in lines of the panel's width, down to `bottom`; a text that is too long is cut and ends in dots."""
        columns = max(8, int(self._width / self._draw.textlength("abcdefghij nopqrst uvwxyz", self._font(size)) * 25))
        lines = [part for line in text.splitlines() for part in (textwrap.wrap(line, columns) or [""])]
        room = max(1, (bottom - self.y) // int(size * 1.4))
        if len(lines) > room:
            lines = [*lines[: room - 1], lines[room - 1][: columns - 2] + " ..."]
        for line in lines:
            self.line(line, size, colour)

    def bar(self, name: str, probability: float, *, taken: bool, expert: bool) -> None:
        """Draw an action's probability as a bar with its name. The taken action has a frame, the expert's the word "expert"."""
        right, end = self._left + round(self._width * probability), self._left + self._width
        self._draw.rectangle((self._left, self.y, max(self._left + 1, right), self.y + 24), fill=_BAR)
        if taken:
            self._draw.rectangle((self._left, self.y, end, self.y + 24), outline=_ACCENT, width=2)
        label = textwrap.shorten(name, 38, placeholder=" ...") or name[:38]
        self._draw.text((self._left + 6, self.y + 4), f"{probability:.0%}  {label}", fill=_INK, font=self._font(13))
        if expert:
            self._draw.text((end - 6, self.y + 4), "expert", fill=_EXPERT, font=self._font(13), anchor="ra")
        self.y += 30
