"""Render runs as one HTML page that needs no other file."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from gym_text_policies.report import calibration
from gym_text_policies.report.compare import pairs_of
from gym_text_policies.report.plots import bars, learning_curves, reliability
from gym_text_policies.report.runs import Runs, Variant
from gym_text_policies.report.statistics import FEW
from gym_text_policies.report.table import NOTES, interval, more_notes, number, table
from gym_text_policies.report.viewer import Shown, script_json

_HERE = Path(__file__).parent
_GIF_BUDGET = 9_000_000
"""Most bytes of all GIFs together."""


def render(runs: Runs, shown: Sequence[Shown], title: str) -> str:
    """Return the page. The template escapes the texts of a run in HTML, and `script_json` escapes them in JSON."""
    script = (_HERE / "viewer.js").read_text("utf-8")  # a file of this package is safe as Markup
    gifs, left_out = _gifs(runs.variants)
    notes = [f"{left_out} GIFs are left out, because the page would be too large."] if left_out else []
    notes += [*more_notes([variant.row for variant in runs.variants])]
    reasons = Counter(episode.missing for episode in shown if episode.missing)
    notes += [f"{_count(count, 'episode')} without pictures: {reason}" for reason, count in reasons.items()]
    episodes = sum(len(variant.episodes) for variant in runs.variants)
    counts = ((episodes, "episode"), (len(runs.variants), "row"), (len(runs.environments), "environment"))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        title=title,
        summary=f"{', '.join(_count(*count) for count in counts)}. Made {datetime.now(UTC):%Y-%m-%d %H:%M UTC}.",
        environments=[_environment(name, variants, gifs) for name, variants in runs.environments.items()],
        curves=learning_curves(runs.curves) if runs.curves else None,
        several_seeds=len({curve.group for curve in runs.curves}) < len({curve.run for curve in runs.curves}),
        few=FEW,
        number=number,
        interval=interval,
        shown=shown,
        episodes=f"{episodes:,}",
        index=script_json([episode.entry for episode in shown]),
        notes=" ".join(NOTES.split()),
        probability_notes=" ".join(calibration.NOTES.split()),
        more_notes=notes,
        sources=[str(source) for source in runs.sources],
        style=Markup((_HERE / "style.css").read_text("utf-8")),
        script=Markup(script),
        script_hash=Markup("sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()),
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _environment(name: str, variants: Sequence[Variant], gifs: Mapping[int, str]) -> dict[str, Any]:
    """Return the part of the page about one environment."""
    header, *lines = (line[1:] for line in table([variant.row for variant in variants]))
    ahead = [index for index, variant in enumerate(variants) if variant.row["looks_ahead"]]
    return {
        "name": name,
        "header": header,
        "rows": [*zip_longest(lines, (gifs.get(id(variant)) for variant in variants))],  # the last line may be the sum of costs
        "has_gifs": any(id(variant) in gifs for variant in variants),
        "first_ahead": ahead[0] if ahead else None,
        "bars": bars(variants),
        "probabilities": [line[1:] for line in calibration.lines(variant.row for variant in variants)],
        "reliability": reliability(variants),
        "comparison": pairs_of(variants),
    }


def _gifs(variants: Sequence[Variant]) -> tuple[dict[int, str], int]:
    """Return for each variant, by its id(), its smallest GIF as a data URI, and the number of variants without room for theirs."""
    with_gifs = [variant for variant in variants if variant.gifs]
    left, gifs = _GIF_BUDGET, {}
    for variant in with_gifs:
        path = min(variant.gifs, key=lambda path: path.stat().st_size)
        if (size := path.stat().st_size) <= left:
            left -= size
            gifs[id(variant)] = "data:image/gif;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    return gifs, len(with_gifs) - len(gifs)
