"""The README says what is there; its code runs as a doctest."""

import json
import re
from pathlib import Path

from gym_text_policies.report import table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


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
