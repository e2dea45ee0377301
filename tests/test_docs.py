"""The documentation builds, offline; the code in it runs as a doctest."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gym_text_policies import cli
from gym_text_policies.environments import playable_ids

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_every_page_environment_and_command(build, tmp_path):
    pytest.importorskip("zensical")
    site = build.build(tmp_path / "docs")
    pages = {path.stem for path in DOCS.glob("*.md")} | {"environments", "command-line"}
    assert all((site / page / "index.html").is_file() for page in pages - {"index"}) and (site / "index.html").is_file()
    environments = (tmp_path / "docs/pages/environments.md").read_text()
    assert all(f"## {name}\n" in environments for name in playable_ids(gymnasium=False))
    assert "`FrozenLake-v1`" in environments and environments.count("```") % 2 == 0
    commands = (tmp_path / "docs/pages/command-line.md").read_text()
    assert all(f"## gym-text {name}\n" in commands for name in cli.COMMANDS)
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=.https?://", (site / "index.html").read_text())


def test_every_page_is_in_the_menu(build):
    assert {path.name for path in DOCS.glob("*.md")} <= build.PAGES.keys()


def test_links_out_of_the_site_become_names(build):
    text = "see [the table](../benchmarks/results/search.md) and [start](index.md)"
    assert build.without_outer_links(text) == "see `benchmarks/results/search.md` and [start](index.md)"


def test_a_docstring_becomes_markdown(build):
    doc = "One.\n\n## Heading\n\n>>> f()\n1\n\nAs ``x``::\n\n    block\n\n>>> g()\n2"
    assert build.as_markdown(doc).split("\n") == [
        *("One.", "", "### Heading", "", "```python", ">>> f()", "1", "```", "", "As `x`:", "", "    block", ""),
        *("```python", ">>> g()", "2", "```", ""),
    ]


def ppo(*arguments):
    """Run the loop in CleanRL's manner from its command line; return the success that each line reports."""
    run = subprocess.run(
        [sys.executable, "-W", "error", DOCS / "cleanrl_ppo.py", *arguments], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    return [float(success) for success in re.findall(r"success ([\d.]+), [\d.]+ steps an episode$", run.stdout, re.M)]


def test_cleanrls_ppo_learns_goto_from_its_command_line():
    small = ("--total-timesteps", "16384", "--eval-every", "100", "--eval-episodes", "50")
    before, after = ppo(*small)
    assert before < 0.5 and after > 0.75


def test_cleanrls_ppo_takes_the_fast_vector_environment_and_its_masks():
    arguments = ("--env-id", "CookingWorldText-v0", "--arguments", '{"actions": "index"}', "--length", "256")
    small = ("--total-timesteps", "256", "--num-envs", "8", "--num-steps", "16", "--eval-episodes", "4")
    assert len(ppo(*arguments, *small)) == 2


def test_cleanrls_ppo_is_short():
    assert len((DOCS / "cleanrl_ppo.py").read_text().splitlines()) <= 250
