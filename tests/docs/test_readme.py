"""The README and the results page say what is there; their code runs as a doctest."""

import importlib
import json
import re
from pathlib import Path

import pytest

from gym_text_policies.commands.parser import COMMANDS, make_parser
from gym_text_policies.report.table import fitted

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs/results.md").read_text()
MADE = ("environments.md", "command-line.md", "reference.md")
"""Pages that `docs/build.py` makes of the code."""
PAGES = {path: path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}


@pytest.fixture
def pictures(monkeypatch):
    pytest.importorskip("PIL")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("pictures")


def test_the_readmes_table_is_made_of_the_committed_results(pictures):
    assert pictures.summary_table() in README


def test_the_benchmarks_table_is_the_committed_result():
    assert (ROOT / "benchmarks/results/policies.md").read_text().strip() in RESULTS
    record = json.loads((ROOT / "benchmarks/results/policies.json").read_text())
    assert fitted(record["rows"]) in RESULTS


@pytest.mark.parametrize("name", ["babyai", "cookingworld", "lunarlander", "scienceworld"])
def test_the_tables_of_adapters_are_the_committed_results(name):
    committed = (ROOT / f"benchmarks/results/adapters_{name}.md").read_text()
    short, _, _ = committed.partition("\n| environment")
    assert "gold (expert)" in short and short.strip() in RESULTS


def test_the_page_of_published_results_copies_the_records():
    results, page = ROOT / "benchmarks/results", (ROOT / "docs/published.md").read_text()
    for path in filter(Path.exists, (results / f"published_{part}.md" for part in ("four", "tales"))):
        assert path.read_text().partition("\n\n")[0].strip() in page
    record = json.loads((results / "published_scienceworld.json").read_text())
    for row in record.values():
        cells = (
            f"{row[name]:.1f} [{low:.1f}, {high:.1f}]" for name in ("score", "strict") for low, high in [row[f"{name}_interval"]]
        )
        assert row["levels"] < 148 or all(cell in page for cell in cells)
    ours, chance = record["scienceworld-sft"], record["random"]
    for name in ("score", "strict"):
        assert f"{chance[name] / 100:.3f}; {ours[name] / 100:.3f}".replace("0.", ".") in page


def test_the_table_of_worlds_is_the_committed_result():
    assert (ROOT / "benchmarks/results/worlds.md").read_text().strip() in (ROOT / "docs/worlds.md").read_text()


def test_the_figures_of_reinforcement_learning_are_the_committed_result():
    results = {name: ROOT / f"benchmarks/results/reinforcement{name}" for name in ("", "_ppo", "_search", "_cookingworld")}
    for path in results.values():
        assert path.with_suffix(".md").read_text().strip() in (ROOT / "docs/reinforcement.md").read_text()
    records = {name: json.loads(path.with_suffix(".json").read_text()) for name, path in results.items()}
    (start, *_), mean = records[""]["rows"], records[""]["means"]["grpo"]
    learnt, before = ([f"{one[task]['success']:.2f}" for task in ("goto", "pickup")] for one in (mean, start["columns"]))
    said = f"GRPO wins {learnt[0]} of goto and {learnt[1]} of pickup in place of {before[0]} and {before[1]}"
    assert said in " ".join(README.split())
    (start, *_), mean = records["_cookingworld"]["rows"], records["_cookingworld"]["means"]["grpo"]
    learnt, before = (f"{one['CookingWorld']['success']:.2f}" for one in (mean, start["columns"]))
    assert f"and {learnt} of CookingWorld in place of {before}" in " ".join(README.split())


def test_the_tree_names_every_folder_and_nothing_else():
    tree = re.search(r"## Tree\n\n```\n(.*?)```", README, re.S)[1]
    named, top = set(), ""
    for line in tree.splitlines():
        for path in re.findall(r"[a-z_]+(?:/[a-z_]+)*(?:/|\.py)(?= |$)", line):
            top = path if line[0] != " " else top
            named.add(path if line[0] != " " else top + path)
    assert [path for path in named if not (ROOT / path).exists()] == []
    folders = {
        f"{p.parent.relative_to(ROOT)}/" for package in ("gym_text", "gym_text_policies") for p in (ROOT / package).rglob("*.py")
    }
    assert folders - named == {"gym_text_policies/backends/"}, "of which the tree has both halves"


def test_links_between_pages_lead_to_a_file():
    for page, text in PAGES.items():
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", text)
        assert [link for link in links if not (page.parent / link).exists() and link not in MADE] == [], page


def test_each_option_of_a_command_on_a_page_exists():
    mistakes = []
    for page, text in PAGES.items():
        for command, words in re.findall(r"gym-text ([a-z-]+)((?:\\\n|[^\n`])*)", text):
            if command in COMMANDS:
                known = make_parser([command]).options
                named = {option.partition("=")[0] for option in re.findall(r"(?<!\S)--[a-z][\w.-]*", words.partition(" | ")[0])}
                mistakes += [f"{page.name}: gym-text {command} {option}" for option in sorted(named - {*known, "--help"})]
    assert mistakes == []


def test_the_commands_have_few_options():
    counts = {}
    for name in COMMANDS:
        counts[name] = sum(not option.startswith("--no-") for option in {*make_parser([name]).options} - {"-h", "--help"})
    assert max(counts.values()) <= 28 and sum(counts.values()) <= 200, counts
