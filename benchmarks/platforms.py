"""Systems and versions of Python for which wheels exist of all that `make` installs. uv resolves them; nothing is installed.

    pip install uv
    python benchmarks/platforms.py          # a few minutes

It asks the package index that uv is set up with. A system is a row, a version of Python a column; a cell has the number of
packages, or the package without a wheel. The packages are resolved, and not run: the docs say what ran where.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from helpers.harness import run, table, write

ROOT = Path(__file__).parent.parent
SYSTEMS = {
    "Linux, x86_64": "x86_64-manylinux_2_35",
    "Linux, ARM": "aarch64-manylinux_2_35",
    "macOS 14, ARM": "aarch64-apple-darwin",
    "Windows, x86_64": "x86_64-pc-windows-msvc",
}
"""Names of systems, and uv's; Linux with the C library of Ubuntu 22.04."""
MAC = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
"""How uv is told which macOS."""
VERSIONS = ("3.11.5", "3.12", "3.13", "3.14")
"""pymdown-extensions, of which the documentation is made, needs 3.11.5."""
SOURCES = ("chess",)
"""Packages that come as Python's source alone; no compiler is needed for them."""
EXTRAS = {"dev": "`make bench`, `make test`", "all": "`pip install 'gym-text[all]'`"}
"""What is resolved, and what installs it; both with the versions of constraints.txt."""


def resolve(system: str, version: str, extra: str, uv: str) -> str:
    """Return how many packages an extra needs on a system, and whether Box2D is among them; or which has no wheel."""
    command = [uv, "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += [part for name in SOURCES for part in ("--no-binary", name)]
    command += ["--python-platform", SYSTEMS[system], "--python-version", version, "--extra", extra]
    command += ["--constraints", "constraints.txt", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=os.environ | MAC)
    if done.returncode:
        missing = re.search(r"Because (?:only )?([\w.-]+(?:==[\w.]+)?)", " ".join(done.stderr.split()))
        return f"**no**: {missing.group(1)}" if missing else f"**no**: {done.stderr.strip()[:200]}"
    packages = [line for line in done.stdout.splitlines() if line and not line.startswith(("#", " "))]
    has_box2d = any(line.lower().startswith("box2d==") for line in packages)
    return f"{len(packages)}" + ("" if has_box2d else ", without Box2D")


def tables(uv: str) -> str:
    """Resolve everything, and return the results in Markdown."""
    lines = []
    for extra, what in EXTRAS.items():
        lines += [f"Packages that {what} needs, all of them wheels but {', '.join(SOURCES)}:", ""]
        rows = []
        for system in SYSTEMS:
            rows.append([system])
            for version in VERSIONS:
                rows[-1].append(resolve(system, version, extra, uv))
                print(extra, system, version, rows[-1][-1], file=sys.stderr, flush=True)
        lines += [table(("", *(f"Python {version}" for version in VERSIONS)), rows), ""]
    version = subprocess.run([uv, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    return "\n".join(lines) + f"\nuv {version}, `--only-binary :all:`, with constraints.txt. Resolved, not run.\n"


def main() -> None:
    """Resolve, and write the table."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    if not Path(uv).exists():
        raise SystemExit("expected uv; it is not installed. Run: pip install uv")
    write("platforms", tables(uv))


if __name__ == "__main__":
    run(main)
