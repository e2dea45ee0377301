"""From run folders to one HTML page: tables, plots, comparisons, learning curves, and episodes to step through.

In the order in which data flows, with the modules to read in that order::

    curves         training files -> learning curves
    runs           folders -> a Variant (a policy in an environment) for each row
    statistics     means and intervals, in which a level counts once; paired tests
    figures        episodes -> Summary -> the figures of a row
    table          figures -> the table, which the commands bench and run show as well
    plots          variants and curves -> bars with standard errors, and lines
    compare        the command compare, and the pairs of a report: paired tests of policies
    replay         a recorded episode -> its states, by playing its actions again
    step_pictures  replay -> pictures and the expert's advice, for the viewer and for notebooks
    viewer         variants -> the episodes to step through, as JSON for viewer.js
    page           all of the above -> one HTML page (page.html.jinja, style.css, viewer.js)
    films          replay -> an episode as a GIF in a run folder
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gym_text.errors import UsageError, import_extra

__all__ = ["ReportConfig", "run", "write_report"]


@dataclass(frozen=True)
class ReportConfig:
    """Make one HTML page of run folders: tables, plots, comparisons, learning curves, and episodes to step through."""

    runs: tuple[str, ...] = field(metadata={"positional": True})
    """Run folders, or folders that contain run folders."""
    file: str | None = None
    """File to write. By default it is report.html in the first run folder."""
    pictures: bool = True
    """Draw pictures of these episodes, by playing them again."""


def run(config: ReportConfig) -> str:
    """Write the report and say where it is."""
    file = config.file or Path(*config.runs[:1]) / "report.html"
    path = write_report(config.runs, file, pictures=config.pictures)
    return f"{path} ({path.stat().st_size / 1e6:.1f} MB)"


def write_report(
    folders: Iterable[str | Path], file: str | Path, *, episodes: int = 200, pictures: bool = True, title: str = "Report"
) -> Path:
    """Write one HTML page about run folders; it needs no other file and no network.

    Args:
        folders: Run folders, or folders that contain run folders.
        file: The HTML file.
        episodes: Most episodes to step through.
        pictures: Whether to play these episodes again for their pictures.
        title: Heading of the page.

    Returns:
        The page's path.

    Raises:
        UsageError: If a folder contains no run, `file` is a folder.
        StoreError: If the page cannot be written.
        MissingDependencyError: If scipy, which computes the intervals, or matplotlib, which draws the plots, is not installed.
    """
    import_extra("scipy", "bench")
    import_extra("matplotlib", "bench")
    from gym_text_policies.files.run_folders import write_atomically, writing
    from gym_text_policies.report.page import render
    from gym_text_policies.report.runs import read_runs
    from gym_text_policies.report.viewer import choose, show

    path = Path(file)
    if path.is_dir():
        raise UsageError(f"file: expected a file; {path} is a folder. Name a file in it, such as {path / 'report.html'}.")
    runs = read_runs(folders)
    shown = show(choose(runs.variants, episodes), pictures=pictures)
    page = render(runs, shown, title)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page)
    return path
