"""Bar plots of an environment: one for each measure, with a bar and a standard error for each policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gym_text_policies.report.runs import Variant
from gym_text_policies.report.table import Summary


@dataclass(frozen=True)
class Measure:
    """A figure that every episode has."""

    name: str
    form: str
    """Format of its mean."""
    of: Callable[[Summary], float]
    always: bool = True
    """Whether it is plotted even if all means are 0."""

    def write(self, value: float) -> str:
        """Return a value as text; a value that rounds to 0 has no sign."""
        text = self.form.format(value)
        return text.lstrip("-") if float(text.replace(",", "")) == 0 else text


MEASURES = (
    Measure("success rate", "{:.2f}", lambda episode: float(episode.outcome == "won")),
    Measure("return", "{:.2f}", lambda episode: episode.total_reward),
    Measure("length, steps", "{:.1f}", lambda episode: episode.length),
    Measure("tokens in", "{:,.0f}", lambda episode: episode.tokens_in, always=False),
    Measure("tokens out", "{:,.0f}", lambda episode: episode.tokens_out, always=False),
    Measure("cost, US dollars", "{:.2g}", lambda episode: episode.cost, always=False),
)


@dataclass(frozen=True)
class Bar:
    """One bar. Positions are percent of the plot's width."""

    policy: str
    text: str
    """The mean, with its standard error if it is known."""
    left: float
    width: float
    whisker: tuple[float, float] | None
    """The mean minus and plus one standard error. None for fewer than two episodes."""


@dataclass(frozen=True)
class Plot:
    """The bars of one measure."""

    name: str
    bars: tuple[Bar, ...]
    zero: float
    """Position of 0."""
    low: str
    high: str
    """Labels of the left and the right edge."""


def plots(variants: Sequence[Variant]) -> tuple[list[Plot], list[str]]:
    """Return the plots of an environment, and the names of the measures without a plot."""
    drawn, empty = [], []
    for measure in MEASURES:
        points = [(variant.policy, *mean_and_error([measure.of(e) for e in _played(variant)])) for variant in variants]
        known = [(policy, mean, error) for policy, mean, error in points if mean is not None]
        if known and (measure.always or any(mean for _, mean, _ in known)):
            drawn.append(_plot(measure, known))
        else:
            empty.append(measure.name)
    return drawn, empty


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and its standard error. The mean of no values is None, and so is the error of fewer than two."""
    if not values:
        return None, None
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(np.mean(values)), error


def _played(variant: Variant) -> list[Summary]:
    return [episode for episode in variant.episodes if episode.error is None]


def _plot(measure: Measure, points: Sequence[tuple[str, float, float | None]]) -> Plot:
    low = min(0.0, *(mean - (error or 0) for _, mean, error in points))
    high = max(0.0, *(mean + (error or 0) for _, mean, error in points))
    if measure.name == "success rate":
        low, high = 0.0, 1.0
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return round(min(max((value - low) / span * 100, 0), 100), 2)

    bars = []
    for policy, mean, error in points:
        text = measure.write(mean) + (f" ± {measure.write(error)}" if error is not None else "")
        whisker = (place(mean - error), place(mean + error)) if error is not None else None
        left, right = sorted((place(0), place(mean)))
        bars.append(Bar(policy, text, left, round(right - left, 2), whisker))
    return Plot(measure.name, tuple(bars), place(0), measure.write(low), measure.write(high))
