"""Learning curves: read from the files that training and search write, and laid out as SVG charts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError

_LISTS = {"training.json": "curve", "trainer_state.json": "log_history"}
"""JSON file -> its key with the records. The second file is Hugging Face's."""
_SEARCH = "evaluations.jsonl"
CURVE_FILES = ("curve.jsonl", "metrics.jsonl", *_LISTS, _SEARCH)
"""Files with records, which are numbers by name; a jsonl file has one record a line. If a run has several, the first one counts."""
_POSITIONS = ("step", "iteration", "update", "round", "evaluation", "episode", "epoch")
"""Names that can be the x axis. The first that a run has is taken."""
_MOST_POINTS = 400
"""Most points of a curve; of more, every second or third … is kept."""


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


def read_curves(root: Path) -> Iterator[Curve]:
    """Yield the curves of the training runs in a folder. The folder itself may be a run. Of each run one file is read.

    Raises:
        UsageError: If a file with such a name does not contain records.
    """
    best: dict[Path, Path] = {}
    for name in reversed(CURVE_FILES):
        for path in sorted(root.rglob(name), key=lambda path: (len(path.parent.name), path)):  # checkpoint-100 after checkpoint-50
            best[_run(path)] = path
    for run, path in sorted(best.items()):
        records = _records(path)
        yield from _curves(run.resolve().name, _with_best(records) if path.name == _SEARCH else records)


def _with_best(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the value of each evaluation of a search, and the best value so far."""
    curve: list[Mapping[str, Any]] = []
    top = -math.inf
    usable = [record for record in records if _is_number(record.get("index")) and _is_number(record.get("value"))]
    for record in sorted(usable, key=lambda record: record["index"]):
        top = max(top, record["value"])
        curve.append({"evaluation": record["index"] + 1, "return of the evaluation": record["value"], "best return so far": top})
    return curve


def _run(path: Path) -> Path:
    """Return the folder of the run that a file belongs to; checkpoints and adapters are subfolders of a run."""
    folder = path.parent
    return folder.parent if folder.name == "adapter" or folder.name.startswith("checkpoint-") else folder


def _records(path: Path) -> list[Mapping[str, Any]]:
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".json":
            records = json.loads(text).get(_LISTS[path.name], [])
        else:
            whole = text[: text.rfind("\n") + 1]  # a running program may be writing the last line
            records = [json.loads(line) for line in whole.splitlines() if line.strip()]
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: expected records of a training run; it cannot be read: {error}.") from error
    return [record for record in records if isinstance(record, dict)]


def _curves(run: str, records: Sequence[Mapping[str, Any]]) -> Iterator[Curve]:
    over = next((name for name in _POSITIONS if any(name in record for record in records)), "record")
    points: dict[str, list[tuple[float, float]]] = {}
    for number, record in enumerate(records):
        position = record.get(over, number)
        for name, value in record.items():
            if name not in _POSITIONS and _is_number(value) and _is_number(position):
                points.setdefault(name, []).append((float(position), float(value)))
    for name, series in points.items():
        if len(series) > 1:
            yield Curve(run, name, over, tuple(sorted(series)[:: math.ceil(len(series) / _MOST_POINTS)]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Chart:
    """The curves of one figure, one for each run, laid out in a box of `WIDTH` x `HEIGHT`."""

    name: str
    over: str
    lines: tuple[tuple[str, str], ...]
    """Pairs of a run's name and its points as SVG text."""
    x_ticks: tuple[tuple[float, str], ...]
    """Pairs of a place in the box and its label."""
    y_ticks: tuple[tuple[float, str], ...]


WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 348, 10, 184
"""Edges of the plotted area, in the box."""


def charts(curves: Sequence[Curve]) -> list[Chart]:
    """Return one chart for each figure, with a line for each run."""
    by_name: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        by_name.setdefault((curve.name, curve.over), []).append(curve)
    return [_chart(*name, group) for name, group in by_name.items()]


def _chart(name: str, over: str, curves: Sequence[Curve]) -> Chart:
    xs = ticks(*_range([x for curve in curves for x, _ in curve.points]), 4)
    ys = ticks(*_range([y for curve in curves for _, y in curve.points]), 5)

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (x - xs[0]) / (xs[-1] - xs[0]) * (RIGHT - LEFT)
        return round(right, 1), round(BOTTOM - (y - ys[0]) / (ys[-1] - ys[0]) * (BOTTOM - TOP), 1)

    lines = tuple((curve.run, " ".join(f"{a},{b}" for a, b in (place(*point) for point in curve.points))) for curve in curves)
    x_ticks = tuple((place(x, ys[0])[0], f"{x:g}") for x in xs)
    return Chart(name, over, lines, x_ticks, tuple((place(xs[0], y)[1], f"{y:.4g}") for y in ys))


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Return about `about` round numbers at equal distances, from `low` or below to `high` or above.

    >>> ticks(0, 187, 4)
    [0.0, 50.0, 100.0, 150.0, 200.0]
    >>> ticks(0.31, 0.31, 4)
    [0.306, 0.308, 0.31, 0.312, 0.314]
    """
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - (abs(low) or 1) / 100, high + (abs(high) or 1) / 100
    step = 10 ** math.floor(math.log10((high - low) / about))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (step * factor) <= about)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]
