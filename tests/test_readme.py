"""The README says what is there; its code runs as a doctest."""

import json
import re
from pathlib import Path

from gym_text_policies import table
from gym_text_policies.prompts import STRATEGIES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_tree_names_every_module_and_nothing_else():
    tree = re.search(r"## Tree\n\n```\n(.*?)```", README, re.S)[1]
    named, folder = set(), ""
    for line in tree.splitlines():
        path = line.strip().split()[0]
        folder = folder if line.startswith(" ") else ""
        if path.endswith("/") and not line.startswith(" "):
            folder = path
        named.add(path if line[0] != " " else folder + path)
    assert all((ROOT / path).exists() for path in named), [path for path in named if not (ROOT / path).exists()]
    modules = {str(p.relative_to(ROOT)) for package in ("gym_text", "gym_text_policies") for p in (ROOT / package).rglob("*.py")}
    modules = {path for path in modules if not path.endswith("__init__.py") or path.count("/") == 1}
    assert modules - named == set()


def test_every_strategy_is_in_the_tree():
    assert all(f"prompts/{strategy}.jinja" in README for strategy in STRATEGIES)


def test_the_table_is_the_committed_result():
    assert (ROOT / "benchmarks/results/policies.md").read_text().strip() in README
    record = json.loads((ROOT / "benchmarks/results/policies.json").read_text())
    assert table.markdown(record["rows"]) in README


def test_the_figures_of_ppo_are_the_committed_result():
    record = json.loads((ROOT / "benchmarks/results/stable_baselines.json").read_text())
    rows = {row["policy"]: row for row in record["rows"]}
    ppo, expert, chance = rows["PPO, word embeddings"], rows["expert"], rows["random"]
    said = f"PPO wins {ppo['won']} of {ppo['episodes']} unseen levels in {ppo['length']:.1f} steps each "
    said += f"(the expert: {expert['length']:.1f}; the random policy wins {chance['won']})"
    assert said in " ".join((ROOT / "docs/training-loops.md").read_text().split())
