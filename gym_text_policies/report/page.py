"""From runs to one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup

from gym_text_policies.report import curves
from gym_text_policies.report.compare import FEW, Comparison, compare
from gym_text_policies.report.plots import Plot, plots
from gym_text_policies.report.runs import Runs, Variant
from gym_text_policies.report.table import HEADER, NOTES, cells
from gym_text_policies.report.viewer import Shown, script_json

_HERE = Path(__file__).parent
_COLOURS = 8
"""Colours of lines in the style sheet."""
_GIF_BUDGET = 9_000_000
"""Bytes of all GIFs."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    cells: tuple[str, ...]
    gif: str | None = None
    """As a data URI."""


@dataclass(frozen=True)
class Environment:
    """The part of the page about one environment."""

    name: str
    rows: tuple[Row, ...]
    plots: list[Plot]
    empty: list[str]
    """Measures of which there is nothing to draw."""
    comparison: Comparison | None

    @property
    def has_gifs(self) -> bool:
        """Whether a row has one."""
        return any(row.gif for row in self.rows)


def render(runs: Runs, shown: Sequence[Shown], title: str) -> str:
    """Return the page. Everything that comes from a run is escaped: text by the template, JSON by `script_json`."""
    script = (_HERE / "viewer.js").read_text("utf-8")
    names = list(dict.fromkeys(curve.run for curve in runs.curves))
    colours = {name: i % _COLOURS for i, name in enumerate(names)}
    gifs, left_out = _gifs(runs.variants)
    notes = [f"{left_out} GIFs are left out, as the page would get too large."] if left_out else []
    episodes = sum(len(variant.episodes) for variant in runs.variants)
    own = Markup  # our own files, not text of a run
    return _template().render(
        title=title,
        summary=_summary(runs, episodes),
        environments=[_environment(name, variants, gifs) for name, variants in runs.environments.items()],
        header=HEADER[1:],
        charts=curves.charts(runs.curves),
        box=curves,
        runs=colours.items(),
        colours=colours,
        few=FEW,
        shown=shown,
        episodes=f"{episodes:,}",
        index=script_json([one.entry for one in shown]),
        notes=" ".join(NOTES.split()),
        more_notes=notes,
        sources=[str(source) for source in runs.sources],
        style=own((_HERE / "style.css").read_text("utf-8")),
        script=own(script),
        script_hash=own("sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()),
    )


def _template() -> jinja2.Template:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("page.html.jinja")


def _summary(runs: Runs, episodes: int) -> str:
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        _count(episodes, "episode"),
        _count(len(runs.variants), "row"),
        _count(len(runs.environments), "environment"),
    ]
    return f"{', '.join(parts)}. Made {made}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def _environment(name: str, variants: Sequence[Variant], gifs: Mapping[int, str]) -> Environment:
    rows = tuple(Row(cells(variant.row)[1:], gifs.get(id(variant))) for variant in variants)
    return Environment(name, rows, *plots(variants), compare(variants))


def _gifs(variants: Sequence[Variant]) -> tuple[dict[int, str], int]:
    """Return for each variant, by its id(), a GIF as a data URI; and how many there was no room for.

    The first one is shown, or the smallest where that is too large.
    """
    found = [variant for variant in variants if variant.gifs]
    left, kept = _GIF_BUDGET, {}
    for number, variant in enumerate(found):
        share = left / (len(found) - number)
        path = variant.gifs[0]
        if path.stat().st_size > share:
            path = min(variant.gifs, key=lambda path: path.stat().st_size)
        if (size := path.stat().st_size) <= left:
            left -= size
            kept[id(variant)] = "data:image/gif;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    return kept, len(found) - len(kept)
