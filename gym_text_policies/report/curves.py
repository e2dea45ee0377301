"""Learning curves, read from ``metrics.jsonl`` of training and ``evaluations.jsonl`` of search.

Runs whose settings differ only in their seeds are one line, the mean, in a band from the lowest to the highest value.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gym_text.errors import UsageError
from gym_text_policies.files.json_data import is_finite
from gym_text_policies.files.safe_files import check_regular, is_regular

_TRAINING, _SEARCH = "metrics.jsonl", "evaluations.jsonl"
"""Files of a run: in each line a record, which maps names to numbers."""
_POSITIONS = ("step", "episodes", "iteration", "update", "round", "evaluation", "episode", "epoch", "minutes")
"""Names of figures that can be the x axis. A run takes the first one that its records have."""
_SEEDS = ("seed", "first_seed")
"""Settings in which runs of one line may differ."""
_MOST_POINTS = 400
"""Most points of a curve. A longer curve keeps every second point, or every third, and so on."""


@dataclass(frozen=True)
class Curve:
    """One figure over the course of a run."""

    run: str
    """Name of the run's folder."""
    name: str
    """Name of the figure, such as ``loss``."""
    over: str
    """Name of the x axis, such as ``step``."""
    points: tuple[tuple[float, float], ...]
    """Pairs (x, y), by x."""
    settings: str = ""
    """The run's settings without its seeds, where its folder has a config.json with a seed."""

    @property
    def group(self) -> str:
        """A text that is equal for all runs of one line."""
        return self.settings or f"run {self.run}"


def read_curves(root: Path) -> Iterator[Curve]:
    """Yield the curves of the runs in a folder, which may be a run itself.

    Raises:
        UsageError: If a file with such a name does not contain records.
    """
    paths = [path for name in (_TRAINING, _SEARCH) for path in root.rglob(name) if is_regular(path, root)]
    for path in sorted(paths):
        records = _records(path)
        yield from _curves(path.parent, _with_best(records) if path.name == _SEARCH else records)


def _with_best(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return for each evaluation of a search its value and the best value so far."""
    curve: list[Mapping[str, Any]] = []
    top = -math.inf
    usable = [record for record in records if is_finite(record.get("index")) and is_finite(record.get("value"))]
    for record in sorted(usable, key=lambda record: record["index"]):
        top = max(top, record["value"])
        curve.append({"evaluation": record["index"] + 1, "return of the evaluation": record["value"], "best return so far": top})
    return curve


def _records(path: Path) -> list[Mapping[str, Any]]:
    try:
        text = path.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]  # a running program may be writing the last line
        records = [json.loads(line) for line in whole.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected records of a training run; it cannot be read: {error}.") from error
    return [record for record in records if isinstance(record, dict)]


def _settings(run: Path) -> str:
    """Return a run's settings without its seeds; an empty text if they are unknown."""
    try:
        settings = json.loads(check_regular(run / "config.json", run).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(settings, dict) or "seed" not in settings:
        return ""
    return json.dumps({name: value for name, value in settings.items() if name not in _SEEDS}, sort_keys=True)


def _curves(run: Path, records: Sequence[Mapping[str, Any]]) -> Iterator[Curve]:
    settings = _settings(run)
    over = next((name for name in _POSITIONS if any(name in record for record in records)), "record")
    points: dict[str, list[tuple[float, float]]] = {}
    for number, record in enumerate(records):
        position = record.get(over, number if over == "record" else None)
        for name, value in record.items():
            if name not in _POSITIONS and is_finite(value) and is_finite(position):
                points.setdefault(name, []).append((float(position), float(value)))
    for name, series in points.items():
        thinned = tuple(sorted(series)[:: math.ceil(len(series) / _MOST_POINTS)])
        yield Curve(run.resolve().name, name, over, thinned, settings)


@dataclass(frozen=True)
class Line:
    """One figure of one run, or of several runs that differ only in their seeds."""

    label: str
    points: tuple[tuple[float, float], ...]
    """Pairs (x, y), by x: the mean over the runs."""
    band: tuple[tuple[float, float, float], ...] = ()
    """Lowest and highest value of the runs: (x, low, high); empty for one run."""


def lines(curves: Sequence[Curve]) -> list[Line]:
    """Return the lines of one figure. Runs that differ only in their seeds are one line."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.group, []).append(curve)
    return [_line(group) for group in groups.values()]


def _line(curves: Sequence[Curve]) -> Line:
    """Return runs as one line over the part of the x axis that all runs have. Values between two points are interpolated."""
    first = curves[0].run
    if len(curves) == 1:
        return Line(first, curves[0].points)
    common = os.path.commonprefix([curve.run for curve in curves]).rstrip("-_. ")  # noqa: RUF071  by characters, not folders
    label = f"{common or first}, {len(curves)} runs"
    low, high = max(curve.points[0][0] for curve in curves), min(curve.points[-1][0] for curve in curves)
    xs = sorted({x for curve in curves for x, _ in curve.points if low <= x <= high}) or [low]
    columns = [np.array(curve.points).T for curve in curves]
    values = np.array([np.interp(xs, x, y) for x, y in columns])  # (runs, points)
    band = zip(xs, values.min(0).tolist(), values.max(0).tolist(), strict=True)
    return Line(label, tuple(zip(xs, values.mean(0).tolist(), strict=True)), tuple(band))
