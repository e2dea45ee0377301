"""From run folders to one HTML page: tables, plots, comparisons, learning curves, and episodes to step through."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gym_text.errors import UsageError, check_int, import_extra

__all__ = ["ReportConfig", "run", "write_report"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportConfig:
    """Make one HTML page of run folders: tables, plots, comparisons, learning curves, and episodes to step through."""

    run: tuple[str, ...] = field(metadata={"positional": True})
    """Folders of runs, or folders that hold several."""
    output: str | None = None
    """The file; by default report.html in the first folder."""
    episodes: int = 200
    """Most episodes that can be stepped through, 200 or fewer."""
    pictures: bool = True
    """Play these again for their pictures, which are kept in the run's folder."""
    title: str = "Report"
    """Heading of the page."""


def run(config: ReportConfig) -> str:
    """Write the report and say where it is."""
    if not config.run:
        raise UsageError("run: expected one or more run folders; got none.")
    output = config.output or Path(config.run[0]) / "report.html"
    path = write_report(config.run, output, episodes=config.episodes, pictures=config.pictures, title=config.title)
    return f"{path} ({path.stat().st_size / 1e6:.1f} MB)"


def write_report(
    folders: Iterable[str | Path],
    output: str | Path,
    *,
    episodes: int = 200,
    pictures: bool = True,
    title: str = "Report",
    progress: bool = True,
) -> Path:
    """Write one HTML page about run folders; it needs no other file and no network.

    Args:
        folders: Of runs, or folders that hold several.
        output: The page.
        episodes: Most episodes that can be stepped through, 200 or fewer.
        pictures: Play these again for their pictures, which are kept in the run's folder.
        title: Heading of the page.
        progress: Whether a terminal shows how far it is.

    Returns:
        The page's path.

    Raises:
        UsageError: If a folder holds no run, or the page cannot be written there.
        MissingDependencyError: If scipy, which the intervals need, is not installed.
    """
    import_extra("scipy", "bench")
    from gym_text_policies.report.page import render
    from gym_text_policies.report.runs import read_runs
    from gym_text_policies.report.viewer import MOST, choose, show

    check_int("episodes", episodes, 0, MOST)
    path = Path(output)
    if path.is_dir():
        raise UsageError(f"output: expected a file; {path} is a folder. Name a file in it, such as {path / 'report.html'}.")
    runs = read_runs(folders)
    page = render(runs, show(choose(runs.variants, episodes), pictures=pictures, progress=progress), title)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(page.encode("utf-8", "replace"))
    os.replace(partial, path)
    return path
