"""Make the panel's reference, and the table of its page.

``python benchmarks/panel.py`` writes the table of ``docs/panel.md`` from the result files in ``benchmarks/panel`` (a second).
``--part reference`` first computes the digests of all levels, and what chance and the expert reach there (a quarter of an hour).
Do that only for a new version of the panel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from helpers.harness import options, run
from tqdm import tqdm

from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.run.panel.page import updated
from gym_text_policies.run.panel.reference import make_reference, the_reference
from gym_text_policies.run.panel.worlds import the_panel

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/panel.md"
FILES = ROOT / "benchmarks/panel"
"""The folder of the committed result files."""


@dataclass(frozen=True)
class Config:
    """Make the panel's reference, and the table of its page."""

    part: Literal["page", "reference"] = "page"
    """What is made: page, or reference and page."""


def main() -> None:
    """Make what the command line asks for."""
    panel = the_panel()
    if options(Config, __doc__).part == "reference":
        with tqdm(total=sum(len(panel.levels(name, "full")) for name in panel.worlds), unit=" levels") as bar:
            make_reference(panel, lambda name, done: (bar.set_postfix_str(name), bar.update())).write()
    write_atomically(PAGE, updated(PAGE.read_text("utf-8"), FILES.glob("*.json"), panel, the_reference()))


if __name__ == "__main__":
    run(main)
