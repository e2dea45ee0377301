"""The panel: its digests hold, its scores are right, and a result file that somebody changed is refused."""

import datetime
import importlib
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from gym_text.errors import RunError, UsageError
from gym_text.sokoban.env import SokobanEnv
from gym_text_policies import Policy
from gym_text_policies.cli import main
from gym_text_policies.run.panel import reference as references
from gym_text_policies.run.panel.command import PanelConfig, play, run
from gym_text_policies.run.panel.reference import check, the_reference
from gym_text_policies.run.panel.results import MOST_BYTES, read_result, scores, terminal_table
from gym_text_policies.run.panel.verify import verify
from gym_text_policies.run.panel.worlds import SIZES, the_panel

ROOT = Path(__file__).parents[2]
COMMITTED = sorted((ROOT / "benchmarks/panel").glob("*.json"))
FAST = ("Sokoban", "GoTo")
"""Worlds without a Java machine."""


def test_the_first_level_of_each_world_shows_what_it_showed_when_the_panel_was_made(capsys):
    assert main(["panel", "--check", "--size", "one"]) == 0
    assert "11 levels of 11 worlds: all digests are those of version 1" in capsys.readouterr().out


def test_a_later_level_does_too_each_week_another():
    week, panel = datetime.date.today().strftime("%G-W%V"), the_panel()
    levels = {name: panel.levels(name, "full") for name in panel.worlds if name != "ScienceWorld"}  # it takes seconds
    check({name: [random.Random(f"{week} {name}").choice(seeds)] for name, seeds in levels.items()})


def test_a_level_that_changes_is_named_with_what_follows(monkeypatch, capsys):
    real, steps = SokobanEnv._play, []

    def changed(self, action):
        steps.append(action)
        outcome = real(self, action)
        return outcome._replace(reward=outcome.reward + 0.01) if len(steps) == 3 else outcome

    monkeypatch.setattr(SokobanEnv, "_play", changed)
    older = replace(the_reference(), versions={**the_reference().versions, "numpy": "1.0"})
    monkeypatch.setattr(references, "the_reference", lambda: older)
    assert main(["panel", "--check", "--only", "Sokoban"]) == 1
    said = capsys.readouterr().err
    assert "Sokoban: 1 of 10 levels differ, the first is level 0.\n" in said
    assert "needs a new version of the panel" in said and "numpy 1.0 then, " in said and "now." in said


def test_the_reference_has_every_level_and_chance_leaves_room():
    panel, reference = the_panel(), the_reference()
    assert reference.version == panel.version and reference.worlds.keys() == panel.worlds.keys()
    for name in panel.worlds:
        known, levels = reference.worlds[name], panel.levels(name, "full")
        assert len(known.digests) == len(known.expert) == len(known.chance) == len(levels)
        for size in SIZES[1:]:
            count = len(panel.levels(name, size))
            assert sum(known.expert[:count]) / count > 0.5 + sum(known.chance[:count]) / count, (name, size)


def test_a_score_is_the_share_of_the_way_from_chance_to_the_expert():
    worlds = the_reference().worlds
    ends = {name: (worlds[name].chance[:10], worlds[name].expert[:10]) for name in FAST}
    half = {name: [(low + high) / 2 for low, high in zip(*pair, strict=True)] for name, pair in ends.items()}
    found, mean = scores(half, worlds)
    assert [figures["score"] for figures in found.values()] == pytest.approx([50, 50]) == mean["interval"]
    found, mean = scores({"Sokoban": ends["Sokoban"][0], "GoTo": ends["GoTo"][1]}, worlds)
    assert [figures["score"] for figures in found.values()] == pytest.approx([0, 100]) and mean["score"] == pytest.approx(50)
    alone, lucky = scores({"GoTo": [1.0, 0.0] * 5}, worlds), {"Sokoban": [0.0, 0.5] * 5, "GoTo": [1.0, 0.0] * 5}
    low, high = alone[1]["interval"]
    assert low < alone[1]["score"] < high and scores(lucky, worlds)[0]["GoTo"] == alone[0]["GoTo"]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Return the folder in which random and the expert have played two worlds, and what the command says."""
    folder = tmp_path_factory.mktemp("panel")
    said = run(PanelConfig(models=("random", "gold"), only=FAST, folder=str(folder)))
    return folder / "results", said


def test_the_expert_has_100_in_each_world_and_no_mean_without_all_worlds(played):
    folder, said = played
    assert (
        "| 100 [100, 100] |" in said
        and re.search(r"\| won +\|( +\|){3} \d+/20 +\| 20/20 ", said)
        and str(folder / "random-small-Sokoban-GoTo.json") in said
    )
    result = read_result(folder / "gold-expert-small-Sokoban-GoTo.json")
    table = result.table(the_panel(), the_reference())
    assert {row["score"] for row in table["worlds"].values()} == {100.0} and table["mean"] is None
    assert result.worlds["GoTo"].digest == the_reference().worlds["GoTo"].digest(range(10))
    assert all(len(episode.actions) == episode.length for episode in result.worlds["GoTo"].episodes)
    chance = read_result(folder / "random-small-Sokoban-GoTo.json").table(the_panel(), the_reference())["worlds"]
    assert all(-60 < row["score"] < 60 for row in chance.values())


def test_a_result_file_holds_and_its_actions_lead_to_its_returns(played, capsys):
    for path in played[0].glob("*.json"):
        assert "its actions lead to these returns" in verify(path, again=True)
    assert main(["panel", "--verify", str(path)]) == 0 and "are right; with --check" in capsys.readouterr().out


def changed(path, change):
    """Write a copy of a result file with a change."""
    data = json.loads(path.read_text())
    change(data)
    copy = path.with_name("changed.txt")
    copy.write_text(json.dumps(data))
    return copy


def first(data):
    return data["worlds"]["GoTo"]["episodes"][0]


CHANGES = {
    "a level twice": (lambda data: data["worlds"]["GoTo"]["episodes"].append(first(data)), "levels from 0 to 9, in order"),
    "other levels": (lambda data: data["worlds"]["GoTo"].update(digest="0" * 16), "expected the digest"),
    "another panel": (lambda data: data.update(panel=9), "expected version 1, which this package has; got 9"),
    "an unknown key": (lambda data: first(data).update(note="hi"), "got an unknown key 'note'"),
    "a negative length": (lambda data: first(data).update(length=-1), "an action for each of -1 steps"),
    "markup in the name": (lambda data: data.update(name="<script>"), "expected at most 100 letters"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_result_file_that_was_changed_is_refused_with_the_reason(played, what):
    change, reason = CHANGES[what]
    with pytest.raises(RunError, match=reason):
        verify(changed(played[0] / "random-small-Sokoban-GoTo.json", change))


def test_another_return_is_found_by_playing_the_actions(played):
    path = played[0] / "random-small-Sokoban-GoTo.json"
    copy = changed(path, lambda data: first(data).update(total_reward=0.99))
    assert "are right" in verify(copy)
    with pytest.raises(RunError, match=r"GoTo, level 0: its actions lead to the return .*; the file says the return 0\.99"):
        verify(copy, again=True)
    with pytest.raises(RunError, match="level 0: its actions cannot be played; "):
        verify(changed(path, lambda data: first(data)["actions"].__setitem__(0, 77)), again=True)
    longest = max(json.loads(path.read_text())["worlds"]["Sokoban"]["episodes"], key=lambda episode: episode["length"])["level"]

    def shortened(data):
        episode = data["worlds"]["Sokoban"]["episodes"][longest]
        episode.update(length=episode["length"] - 1, actions=episode["actions"][:-1])

    with pytest.raises(RunError, match=rf"Sokoban, level {longest}: expected actions to the end of the episode"):
        verify(changed(path, shortened), again=True)


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "\xff"])
def test_what_is_no_result_file_is_an_error_in_a_sentence(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, "latin-1")
    with pytest.raises(RunError, match="expected a result file of the panel, as `gym-text panel` writes"):
        verify(path)
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(UsageError, match="expected at most 20,000,000 bytes"):
        read_result(path)


def test_a_language_model_has_hashes_of_its_prompts_and_the_history_of_the_world(tmp_path):
    config = PanelConfig(
        models=("scripted:go forward",), only=("GoTo", "LunarLander"), options={"history": 2}, folder=str(tmp_path)
    )
    (result,) = play(config)
    assert result.name == "scripted:go forward, choose" and result.settings["mode"] == "choose"
    assert {name: world.policy["history"] for name, world in result.worlds.items()} == {"GoTo": 2, "LunarLander": 0}
    result.write(path := tmp_path / "result.json")
    assert "are right" in verify(path)
    with pytest.raises(RunError, match="LunarLander: expected history 0, with which every language model plays there; got 2"):
        verify(changed(path, lambda data: data["worlds"]["LunarLander"]["policy"].update(history=2)))
    hashes = {episode.prompts for world in result.worlds.values() for episode in world.episodes}
    assert len(hashes) == 20 and None not in hashes
    assert play(config)[0].worlds == result.worlds, "nothing is played again"


def rows_file(folder, rows):
    (folder / "rows.yaml").write_text(json.dumps(rows), "utf-8")  # JSON is YAML
    return str(folder / "rows.yaml")


def test_a_row_with_an_entry_for_each_world_is_one_result(tmp_path):
    entries = [
        {"model": "random", "environments": ["BabyAIText-v0?max_episode_steps=26&task=goto"]},
        {"model": "gold", "environments": ["BabyAIText-v0", "SokobanText-v0"]},
    ]
    plan, worlds = rows_file(tmp_path, {"both": entries}), ("Sokoban", "GoTo", "LunarLander")
    (result,) = play(PanelConfig(plan=plan, only=worlds, folder=str(tmp_path / "run")))
    assert {name: world.policy["kind"] for name, world in result.worlds.items()} == {"GoTo": "random", "Sokoban": "gold"}
    assert {name: settings["model"] for name, settings in result.settings.items()} == {"GoTo": "random", "Sokoban": "gold"}
    result.write(path := tmp_path / "result.json")
    assert "are right" in verify(path)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"mine@2": "random"}, "row 'mine@2': expected at most 100 letters"),
        ({"mine": [{"model": "random", "environments": ["SokobanText-v0?size=9"]}]}, "got 'SokobanText-v0?size=9'"),
    ],
)
def test_rows_without_a_result_file_or_a_world_of_their_own_are_refused_before_anything_is_played(tmp_path, capsys, rows, said):
    plan = rows_file(tmp_path, {name: row if isinstance(row, list) else {"model": row} for name, row in rows.items()})
    assert main(["panel", "--only", "Sokoban", "--folder", str(tmp_path / "run"), "--plan", plan]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="Did you mean 'Sokoban'"):
        PanelConfig(only=("Socoban",))


class Broken(Policy):
    """Fails in each episode."""

    config: ClassVar = {"kind": "broken"}

    def decide(self, turns):
        raise RuntimeError("broken policy")


def test_a_panel_whose_episodes_all_end_in_an_error_writes_its_file_and_exits_with_1(tmp_path, capsys):
    assert main(["panel", "--only", "Sokoban", "--folder", str(tmp_path), "--models", "test_panel:Broken"]) == 1
    assert "expected an episode without an error; all 10 ended in one" in capsys.readouterr().err
    (path,) = (tmp_path / "results").iterdir()
    assert [episode.outcome for episode in read_result(path).worlds["Sokoban"].episodes] == ["error"] * 10


def test_each_committed_result_holds_and_the_page_has_their_figures(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    panel = importlib.import_module("panel")
    assert len(COMMITTED) > 3 and all("holds: version and digests are right" in verify(path) for path in COMMITTED)
    page = (ROOT / "docs/panel.md").read_text("utf-8")
    assert panel.updated(page, COMMITTED) == page, "python benchmarks/panel.py writes it"


def test_levels_won_and_unusable_answers_are_counted_in_all_worlds(tmp_path):
    (result,) = play(PanelConfig(models=("scripted:hello",), options={"mode": "text"}, only=("Sokoban",), folder=str(tmp_path)))
    assert (result.won, result.unusable) == (0, 1.0)
    assert re.search(r"\| won .*\| 0/10 .*\n\| unusable .*\| 100% ", terminal_table([result], the_panel(), the_reference()))
    first, *others = result.worlds["Sokoban"].episodes
    ended = [replace(first, outcome="error"), *(replace(episode, outcome="won", invalid=0) for episode in others)]
    mended = replace(result, worlds={"Sokoban": replace(result.worlds["Sokoban"], episodes=tuple(ended))})
    assert (mended.won, len(mended.played), mended.unusable) == (9, 9, 0.0)
    assert mended.table(the_panel(), the_reference())["worlds"]["Sokoban"] == {"score": None, "interval": None}
    mended.write(path := tmp_path / "mended.json")
    assert "version and digests are right" in verify(path)
    assert replace(result, worlds={}).unusable is None
