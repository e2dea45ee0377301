"""Bar plots of an environment: one for each measure, with a bar and a standard error for each policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gym_text_policies.report.figures import Summary
from gym_text_policies.report.runs import Variant
from gym_text_policies.report.statistics import by_level, mean, standard_error
from gym_text_policies.report.table import LONG


@dataclass(frozen=True)
class Measure:
    """A figure that every episode has."""

    name: str
    form: str
    """Format of its mean."""
    of: Callable[[Summary], float | None]
    """Returns its value in an episode; None if it is not known."""
    always: bool = True
    """Whether it is plotted even if all means are 0."""

    def write(self, value: float) -> str:
        """Return a value as text; a value that rounds to 0 has no sign."""
        text = self.form.format(value) if abs(value) < LONG else f"{value:.3g}"
        return text.lstrip("-") if float(text.replace(",", "")) == 0 else text


MEASURES = (
    Measure("success rate", "{:.2f}", lambda episode: float(episode.won) if episode.tells_success else None),
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
    """Return the plots of an environment, and the names of the measures that are 0 everywhere."""
    drawn, empty = [], []
    for measure in MEASURES:
        values = {variant.policy: _values(variant, measure) for variant in variants}
        means = [(policy, average, standard_error(each)) for policy, each in values.items() if (average := mean(each)) is not None]
        if means and (measure.always or any(average for _, average, _ in means)):
            drawn.append(_plot(measure, means))
        elif means:
            empty.append(measure.name)
    return drawn, empty


def _values(variant: Variant, measure: Measure) -> list[float]:
    """Return a measure's mean in each level that a policy played without an error."""
    episodes = [episode for episode in variant.episodes if episode.error is None and measure.of(episode) is not None]
    return [*by_level(episodes, lambda episode: measure.of(episode) or 0.0).values()]


def _plot(measure: Measure, points: Sequence[tuple[str, float, float | None]]) -> Plot:
    ends = [0.0, *(average + side * (error or 0.0) for _, average, error in points for side in (-1, 1))]
    low, high = (0.0, 1.0) if measure.name == "success rate" else (min(ends), max(ends))
    span = (high - low) or 1.0

    def position_of(value: float) -> float:
        return round(min(max((value - low) / span * 100, 0), 100), 2)

    bars = []
    for policy, average, error in points:
        text = measure.write(average) + (f" ± {measure.write(error)}" if error is not None else "")
        whisker = (position_of(average - error), position_of(average + error)) if error is not None else None
        left, right = sorted((position_of(0), position_of(average)))
        bars.append(Bar(policy, text, left, round(right - left, 2), whisker))
    return Plot(measure.name, tuple(bars), position_of(0), measure.write(low), measure.write(high))
