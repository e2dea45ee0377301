"""Tests of the bridges, and of TextWorld's games, with the real libraries: ``make test-bridges``.

Their requirements contradict this package's or each other's, or have to be compiled, so each library has an environment of its own
in ``.venv/bridges``. ``python tests/libraries/environments.py [NAME ...]`` makes them where they are missing and runs in each
``tests/libraries/test_NAME.py``, ``test_NAME_*.py`` and the library's section of docs/, two libraries at once.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = {
    "art": (
        *("--no-deps", "openpipe-art==0.5.18", "openai==2.44.0", "litellm==1.82.0", "polars==2.1.0"),
        *("polars-runtime-32==2.1.0", "fastuuid==0.14.0", "tiktoken==0.14.0", "distro==1.9.0", "aiohttp==3.14.5", "yarl==1.25.1"),
        *("multidict==7.2.1", "propcache==0.5.4", "aiohappyeyeballs==2.7.1", "aiosignal==1.4.0", "frozenlist==1.8.0"),
        *("importlib_metadata==10.2.0", "zipp==4.1.2"),
    ),
    "decision_clients": ("typesafe-sdk==0.7.5", "pydantic-ai-slim==2.68.0", "litellm==1.110.2"),
    "inspect_ai": ("inspect-ai==0.3.285",),
    "verl_skyrl": (
        *("--no-deps", "--ignore-requires-python", "verl==0.9.1", "skyrl==0.4.0", "skyrl-gym==0.4.0", "hydra-core==1.3.8"),
        *("omegaconf==2.4.0", "antlr4-python3-runtime==4.9.3", "tensordict==0.10.0", "torchdata==0.11.0", "codetiming==1.4.0"),
        *("pylatexenc==2.11", "pyvers==0.2.3", "importlib_metadata==10.2.0", "zipp==4.1.2", "loguru==0.7.3", "cachetools==8.0.2"),
    ),
    "nemo_gym": (
        *("--no-deps", "--ignore-requires-python", "nemo-gym==0.7.0", "openai==2.44.0", "anthropic==0.109.2", "wandb==0.31.0"),
        *("hydra-core==1.3.8", "omegaconf==2.4.0", "antlr4-python3-runtime==4.9.3", "aiohttp==3.14.5", "multidict==7.2.1"),
        *("yarl==1.25.1", "propcache==0.5.4", "aiohappyeyeballs==2.7.1", "aiosignal==1.4.0", "frozenlist==1.8.0"),
        *("itsdangerous==2.2.0", "yappi==1.7.6", "pydot==4.0.1", "distro==1.9.0", "docstring_parser==0.18.0"),
    ),
    "openenv": ("openenv==0.10.0",),
    "textworld": (
        *("--no-deps", "textworld==1.7.0", "jericho==3.3.1", "hashids==1.3.1", "mementos==1.3.1", "more-itertools==11.2.1"),
        *("TatSu==5.8.3", "termcolor==3.3.0"),
    ),
    "trl": ("trl==1.16.0",),
    "verifiers": ("verifiers==0.4.0",),
}
"""By the bridge's name, what its environment has beside, or in place of, what this one has."""


PAGES = {
    **{
        "inspect_ai": ("evaluators", "Inspect"),
        "verifiers": ("evaluators", "verifiers"),
        "openenv": ("evaluators", "OpenEnv"),
        "trl": ("trl", ""),
    },
    **{"verl_skyrl": ("levels", "verl and SkyRL"), "nemo_gym": ("levels", "NeMo Gym"), "art": ("levels", "ART")},
}
"""The page of docs/ about a library, and its section of that page; an empty text stands for all of the page."""
LONGEST_FIRST = ("trl", "textworld", "openenv", "verl_skyrl", "verifiers", "inspect_ai", "nemo_gym", "art", "decision_clients")


class NotInstalledError(Exception):
    """A library could not be installed; the message has pip's last line."""


def own_python(name: str) -> str:
    """Return the Python of a library's environment, which is made, once, if it is not there.

    It sees all that this environment has, so that only what differs is installed, by this environment's pip and without compiling
    what is never imported.

    Raises:
        NotInstalledError: If pip fails, as without a network.
    """
    folder = ROOT / ".venv" / "bridges" / name
    python, ready = folder / "bin" / "python", folder / "ready"
    parent = f"{sysconfig.get_path('purelib')}\n{ROOT}\n"
    wanted = "\n".join((*REQUIREMENTS[name], parent))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists() and ready.read_text("utf-8") == wanted:
            return str(python)
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "parent.pth").write_text(parent, "utf-8")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check", "--no-compile"]
        installed = subprocess.run([*pip, *REQUIREMENTS[name]], capture_output=True, text=True)
        if installed.returncode:
            raise NotInstalledError(f"{name} could not be installed: {installed.stderr.strip().splitlines()[-1]}")
        ready.write_text(wanted, "utf-8")
    return str(python)


def page_of(name: str, folder: str) -> list[str]:
    """Write the part of docs/ about a library into a folder, for its doctests; return its path, or nothing if there is none."""
    if name not in PAGES:
        return []
    page, section = PAGES[name]
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    path = Path(folder, f"{name}.md")
    path.write_text(text, "utf-8")
    return [str(path)]


def run_tests(name: str) -> bool:
    """Run a library's tests and its page in its environment; print what they print, and return whether they pass."""
    files = sorted((*Path(__file__).parent.glob(f"test_{name}.py"), *Path(__file__).parent.glob(f"test_{name}_*.py")))
    paths = [*map(str, files)]
    variables = {"OMP_NUM_THREADS": "1", "GYM_TEXT_GAMES": str(ROOT / ".venv" / "bridges" / "games")}
    variables["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else ART's import asks another machine for prices
    begin = time.monotonic()
    try:
        command = [own_python(name), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "default", *paths]
    except NotInstalledError as error:
        print(f"NOT TESTED: {error}", flush=True)
        return True
    with tempfile.TemporaryDirectory() as merged:
        variables["LLAMA_SERVER_FOLDER"] = merged
        ran = subprocess.run(
            [*command, *page_of(name, merged)], cwd=ROOT, capture_output=True, text=True, env=os.environ | variables
        )
    printed = f"{ran.stdout}\n{ran.stderr}" if ran.returncode else ran.stdout.strip().splitlines()[-1]
    print(f"{name}, {time.monotonic() - begin:.0f} s: {printed}", flush=True)
    return ran.returncode == 0


if __name__ == "__main__":
    names = sys.argv[1:] or LONGEST_FIRST
    if unknown := sorted(set(names) - REQUIREMENTS.keys()):
        sys.exit(f"NAME: expected some of {', '.join(REQUIREMENTS)}; got {', '.join(unknown)}.")
    with ThreadPoolExecutor(2) as two:
        sys.exit(not all(two.map(run_tests, names)))
