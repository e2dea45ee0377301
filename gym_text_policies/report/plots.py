"""The plots of the page, drawn by matplotlib as SVG: bars of an environment's policies, and learning curves."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from gym_text_policies.report.calibration import bins
from gym_text_policies.report.curves import Curve, lines
from gym_text_policies.report.runs import Variant, shortened
from gym_text_policies.report.statistics import by_level, mean

_COLUMNS = 3
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "report",  # equal plots are equal bytes
    "text.parse_math": False,  # a name may have dollar signs
}


MEASURES = {
    "success rate": ("z.2f", "won"),
    "return": ("z.2f", "total_reward"),
    "length, steps": (".1f", "length"),
    "tokens in": (",.0f", "tokens_in"),
    "tokens out": (",.0f", "tokens_out"),
    "cost, US dollars": (".2g", "cost"),
}
"""Figure that every episode has -> the format of its mean, and its name in a `Summary`."""
_IF_ANY = ("tokens_in", "tokens_out", "cost")
"""Figures that are not plotted if all means are 0."""


def means_of(variants: Sequence[Variant], name: str) -> dict[int, tuple[float, float | None]]:
    """Return by a variant's index a figure's mean over its levels without errors, and the standard error from two levels on."""
    means = {}
    for index, variant in enumerate(variants):
        episodes = [episode for episode in variant.episodes if episode.error is None and (name != "won" or episode.tells_success)]
        values = [float(value) for value in by_level(episodes, lambda episode: getattr(episode, name)).values()]
        if (average := mean(values)) is not None:
            means[index] = average, float(stats.sem(values)) if len(values) > 1 else None
    return means if name not in _IF_ANY or any(average for average, _ in means.values()) else {}


@matplotlib.rc_context(_STYLE)
def bars(variants: Sequence[Variant]) -> str | None:
    """Return the means of an environment's policies as horizontal bars, in a picture as a data URI; None if nothing was played."""
    plotted = {name: means for name, (_, measure) in MEASURES.items() if (means := means_of(variants, measure))}
    if not plotted:
        return None
    rows = math.ceil(len(plotted) / _COLUMNS)
    figure = Figure(figsize=(12, rows * (0.8 + 0.3 * len(variants))), layout="constrained")
    for place, (name, means) in enumerate(plotted.items()):
        axes = figure.add_subplot(rows, _COLUMNS, place + 1, title=name)
        _draw_bars(axes, means, MEASURES[name][0])
        names = [shortened(variant.policy) for variant in variants] if place % _COLUMNS == 0 else [""] * len(variants)
        axes.set_yticks(range(len(variants)), names)
        axes.set_ylim(len(variants) - 0.5, -0.5)  # the first policy is at the top
    return _data_uri(figure)


def _draw_bars(axes: Axes, means: Mapping[int, tuple[float, float | None]], form: str) -> None:
    errors = [0.0 if error is None else error for _, error in means.values()]
    texts = [f"{average:{form}}" + (f" ± {error:{form}}" if error is not None else "") for average, error in means.values()]
    drawn = axes.barh([*means], [average for average, _ in means.values()], 0.7, xerr=errors, color="#7fb0dc")
    axes.bar_label(drawn, texts, padding=3)
    axes.axvline(0, color="#59636e", linewidth=0.8)
    axes.margins(x=0.4)


@matplotlib.rc_context(_STYLE)
def reliability(variants: Sequence[Variant]) -> str | None:
    """Return for each policy how often its most probable action is the expert's, by its probability; None if nobody knows."""
    judged = {}
    for variant in variants:
        if decisions := [one for episode in variant.episodes if episode.error is None for one in episode.judged]:
            judged[variant.policy] = decisions
    if not judged:
        return None
    rows = math.ceil(len(judged) / _COLUMNS)
    figure = Figure(figsize=(12, 3 * rows), layout="constrained")
    for place, (name, decisions) in enumerate(judged.items()):
        axes = figure.add_subplot(rows, _COLUMNS, place + 1, title=shortened(name), xlim=(0, 1), ylim=(-0.03, 1.03))
        axes.set(xlabel="probability of the most probable action", ylabel="share that is the expert's")
        top, right, counts = zip(*bins(decisions), strict=True)
        axes.plot([0, 1], [0, 1], color="#59636e", linewidth=0.8, linestyle="--")
        axes.plot(top, right, color="#7fb0dc")
        axes.scatter(top, right, [10 + 150 * count / len(decisions) for count in counts], color="#7fb0dc")
    return _data_uri(figure)


@matplotlib.rc_context(_STYLE)
def learning_curves(curves: Sequence[Curve]) -> str:
    """Return one plot for each figure, with the `lines` of its runs, in a picture as a data URI."""
    colours: dict[str, str] = {}
    plotted: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        plotted.setdefault((curve.name, curve.over), []).append(curve)
    rows = math.ceil(len(plotted) / _COLUMNS)
    figure = Figure(figsize=(12, 2.6 * rows + 0.4), layout="constrained")
    for place, ((name, over), group) in enumerate(plotted.items()):
        axes = figure.add_subplot(rows, _COLUMNS, place + 1, title=name, xlabel=over)
        for line in lines(group):
            colour = colours.setdefault(line.label, f"C{len(colours)}")
            axes.plot(*zip(*line.points, strict=True), color=colour, marker="o" if len(line.points) == 1 else "")
            if line.band:
                xs, low, high = zip(*line.band, strict=True)
                axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    figure.legend(
        handles=[Line2D([], [], color=colour, label=label) for label, colour in colours.items()],
        loc="outside upper left",
        ncols=_COLUMNS,
        frameon=False,
    )
    return _data_uri(figure)


def _data_uri(figure: Figure) -> str:
    """Return a figure as SVG in a data URI. A picture runs no script, whatever the names in it say."""
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode("ascii")
