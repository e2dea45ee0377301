"""The report: what is in it, what it says of few seeds, and that nothing a model or a game said becomes a part of the page."""

import base64
import dataclasses
import json
import re
import runpy
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from gym_text import UsageError
from gym_text.descriptions import description_of
from gym_text.wrappers import DescribeObservation
from gym_text_policies import EpisodeStore, LLMPolicy, ScriptedBackend, as_policy, cli, load_policy, rollout
from gym_text_policies.policy import text_spec
from gym_text_policies.report import write_report
from gym_text_policies.report.compare import Pair, compare, probabilities_of_better
from gym_text_policies.report.curves import charts, read_curves
from gym_text_policies.report.runs import read_runs
from gym_text_policies.report.viewer import choose

BROWSER = runpy.run_path(str(Path(__file__).parent.parent / "benchmarks" / "browser.py"))
ATTACK = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
SEEDS = range(6)


def make_env():
    return gym.make("BabyAIText-v0", task="goto", fold="test", max_episode_steps=20)


def policies(env):
    spec = text_spec(env)
    words = ScriptedBackend([f"turn left {ATTACK}"], name=f"words {ATTACK}")
    yield load_policy("random", env)
    yield LLMPolicy(words, spec, mode="text")
    yield LLMPolicy(ScriptedBackend(["go forward", "turn left"]), spec, mode="choose")
    yield as_policy(lambda obs: 2, env, name="forward")
    yield load_policy("gold", env)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with an attack in its own name, a policy's name, an observation and an answer."""
    folder = tmp_path_factory.mktemp("runs") / "<script>document.title = 'taken'"
    store = EpisodeStore(folder)
    with make_env() as env:
        for policy in policies(env):
            for episode in rollout(make_env, policy, SEEDS):
                if policy.config["kind"] == "function":
                    first = dataclasses.replace(episode.steps[0], observation=dict(episode.steps[0].observation) | {"text": ATTACK})
                    episode = dataclasses.replace(episode, steps=(first, *episode.steps[1:]), error=ATTACK)
                store.append(episode)
    store.close()
    return folder


@pytest.fixture(scope="module")
def page(run):
    return write_report([run], run / "report.html")


def test_one_command_writes_the_page_and_names_it(run, tmp_path, capsys):
    output = tmp_path / "made" / "page.html"
    assert cli.main(["report", str(run), "--no-pictures", "--episodes", "3", "--title", "All of it", "--output", str(output)]) == 0
    assert str(output) in capsys.readouterr().out
    text = output.read_text()
    assert "<title>All of it</title>" in text and text.count('id="episode-') == 3


def test_the_page_has_a_row_for_each_policy_with_the_tables_figures(run, page):
    text = page.read_text()
    for variant in read_runs([run]).variants:
        assert f"{variant.row['success']:.2f} [" in text if variant.row["success"] is not None else True
    assert "gold (expert)" in text and "scripted, choose" in text and "30 episodes, 5 rows, 1 environment" in text


def test_an_environment_in_somebody_elses_words_is_reported_without_pictures(tmp_path):
    def make_pole():
        env = gym.make("CartPole-v1", max_episode_steps=3)
        return DescribeObservation(env, dataclasses.replace(description_of(env).spec, goal="Balance it."))

    with EpisodeStore(tmp_path) as store, make_pole() as env:
        for episode in rollout(make_pole, load_policy("random", env), range(2)):
            store.append(episode)
    assert "CartPole-v1" in write_report([tmp_path], tmp_path / "report.html").read_text()


def test_nothing_that_a_run_says_is_markup(page):
    text = page.read_text()
    assert len(re.findall(r"<script\b", text)) == 2 + text.count('id="episode-')  # the index, the viewer, and the episodes
    assert text.count("</script>") == len(re.findall(r"<script\b", text))
    assert "<img src=x" not in text
    assert "Content-Security-Policy" in text and "default-src 'none'" in text


def test_the_page_loads_nothing_from_elsewhere(page):
    text = re.sub(r'<script type="application/json".*?</script>', "", page.read_text(), flags=re.S)
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", text)


def test_the_page_works_in_a_browser(page, tmp_path):
    path = BROWSER["find_browser"]()
    if path is None:
        pytest.skip("Chromium is not installed")
    try:
        browser = BROWSER["Browser"](path)
    except BROWSER["BrowserError"] as error:
        pytest.skip(f"Chromium does not start here: {error}")

    def text(name):
        return browser.run(f"document.getElementById('{name}').textContent")

    def pick(name, value):
        browser.run(f"document.getElementById('pick-{name}').value = {json.dumps(value)}")
        browser.run(f"document.getElementById('pick-{name}').dispatchEvent(new Event('change'))")

    with browser:
        browser.open(page.as_uri().replace("'", "%27"))
        assert browser.run("document.title") == "Report"
        pick("policy", "scripted, choose")
        pick("seed", "1")
        browser.press("ArrowRight")  # above the viewer this scrolls
        assert text("place").startswith("step 1 of ")
        browser.run("document.getElementById('viewer').scrollIntoView()")
        assert text("place").startswith("step 1 of ")
        first = text("decision")
        browser.press("ArrowRight")
        assert text("place").startswith("step 2 of ") and text("decision") != first
        assert "turn left ← taken" in text("probabilities") and "expert" in text("decision")
        assert "go to" in text("seen") and "Which action" in text("prompt")
        assert browser.run(
            "document.querySelector('#picture img').decode().then(() => document.querySelector('#picture img').width)"
        )
        browser.press("ArrowLeft")
        assert text("decision") == first
        browser.press("End")
        assert text("place") == "the end" and "ended" in text("decision")
        for name in browser.run("[...document.getElementById('pick-policy').options].map((option) => option.value)"):
            pick("policy", name)
            if ATTACK in name or name == "forward":
                assert ATTACK in text("decision") + text("seen")
        assert browser.run("document.title") == "Report"
        browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
        assert browser.run("document.documentElement.scrollWidth") <= 360
        assert browser.complaints == []


def test_pictures_are_kept_and_an_episode_that_goes_another_way_has_none(run, page):
    kept = list((run / "pictures").iterdir())
    store = EpisodeStore(run)
    changed = {episode.key for episode in store.episodes() if episode.error}
    assert {path.name.partition("-")[0] for path in kept} == {episode.key for episode in store.episodes()} - changed
    picture = base64.b64decode(json.loads(kept[0].read_text())["pictures"][0])
    assert picture.startswith(b"\x89PNG")


def test_a_row_shows_its_gif(run, tmp_path):
    store = EpisodeStore(tmp_path)
    for episode in EpisodeStore(run).episodes():
        if episode.policy["kind"] == "gold":
            store.append(episode)
    (tmp_path / "gifs").mkdir()
    (tmp_path / "gifs" / "seed-0.gif").write_bytes(b"GIF89a")
    text = write_report([tmp_path], tmp_path / "r.html", pictures=False).read_text()
    assert f"data:image/gif;base64,{base64.b64encode(b'GIF89a').decode()}" in text


def test_learning_curves_come_from_the_files_that_training_leaves(tmp_path):
    for name, file, data in (
        ("sft", "adapter/training.json", {"curve": [{"step": n, "loss": 2 / n} for n in range(1, 1001)]}),
        ("old", "checkpoint-50/trainer_state.json", {"log_history": [{"step": 1, "loss": 9.0}, {"step": 2, "loss": 8.0}]}),
        ("old", "checkpoint-100/trainer_state.json", {"log_history": [{"step": 1, "loss": 7.0}, {"step": 2, "loss": 6.0}]}),
    ):
        path = tmp_path / name / file
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(data))
    (tmp_path / "ppo").mkdir()
    (tmp_path / "ppo" / "metrics.jsonl").write_text('{"iteration": 1, "return": 0.5}\n{"iteration": 2, "return": 0.7}\n{"iter')
    (tmp_path / "search").mkdir()
    lines = [{"key": str(i), "index": i, "value": value, "successes": 0} for i, value in enumerate((1.0, 3.0, 2.0))]
    (tmp_path / "search" / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = {(curve.run, curve.name): curve for curve in read_curves(tmp_path)}
    assert set(curves) == {
        *(("sft", "loss"), ("old", "loss"), ("ppo", "return")),
        *(("search", "return of the evaluation"), ("search", "best return so far")),
    }
    assert curves["search", "best return so far"].points == ((1.0, 1.0), (2.0, 3.0), (3.0, 3.0))
    assert len(curves["sft", "loss"].points) <= 400
    assert curves["old", "loss"].points == ((1.0, 7.0), (2.0, 6.0))
    assert curves["ppo", "return"].over == "iteration"
    assert [len(chart.lines) for chart in charts(list(curves.values()))] == [2, 1, 1, 1]
    text = write_report([tmp_path], tmp_path / "r.html").read_text()
    assert text.count("<polyline") == 5 and "Learning curves" in text


def test_few_differing_seeds_are_never_certain():
    one_of_many = np.array([1.0] + [0.0] * 99)
    no_difference, one, all_ten, against = probabilities_of_better([np.zeros(9), one_of_many, np.ones(10), -np.ones(10)])
    assert no_difference == 0.5
    assert one == pytest.approx(0.75, abs=0.03)  # one seed won: a flat prior on the share of seeds won gives 3/4
    assert all_ten > 0.995 and against < 0.005
    assert Pair(all_ten, 1.0, 10).text == "> 0.99" and Pair(against, -1.0, 10).text == "< 0.01"
    assert Pair(0.5, -0.001, 3).shown_difference == "0.00"
    assert Pair(1.0, 1.0, 9).text == "0.99" and Pair(1.0, 1.0, 9).few
    assert Pair(0.992, 1.0, 50).text == "0.99"  # 4,000 draws cannot tell it from 0.99


def test_pairs_are_of_the_seeds_that_both_have_played(run):
    comparison = compare(read_runs([run]).variants)
    assert comparison.policies[0] == "gold (expert)" and "forward" not in comparison.policies  # all its episodes are errors
    pairs = [pair for row in comparison.pairs for pair in row if pair]
    assert len(pairs) == 12 and {pair.seeds for pair in pairs} == {len(SEEDS)} and all(pair.few for pair in pairs)
    assert comparison.pairs[0][1].probability == 1 - comparison.pairs[1][0].probability


def test_the_choice_balances_policies_and_outcomes(run):
    variants = read_runs([run]).variants
    assert {variant.policy for variant, _ in choose(variants, 5)} == {variant.policy for variant in variants}
    chance = next(variant for variant in variants if variant.policy == "random")
    outcomes = {episode.outcome for episode in chance.episodes}
    assert {episode.outcome for _, episode in choose([chance], len(outcomes))} == outcomes
    assert len(choose(variants, 7)) == 7 and len(choose(variants)) == 30


def test_policies_of_one_name_are_told_apart(tmp_path):
    store = EpisodeStore(tmp_path)
    with make_env() as env:
        for history in (0, 2):
            policy = LLMPolicy(ScriptedBackend(["turn left"]), text_spec(env), history=history)
            for episode in rollout(make_env, policy, range(1)):
                store.append(episode)
    store.close()
    variants = read_runs([tmp_path]).variants
    assert [variant.policy for variant in variants] == ["scripted, text, history=0", "scripted, text, history=2"]
    assert len({variant.environment for variant in variants}) == 1
    labels = {variants[1].episodes[0].key: "with history"}  # as the benchmark's table calls it
    (tmp_path / "table.json").write_text(json.dumps({"labels": labels}))
    assert [variant.policy for variant in read_runs([tmp_path]).variants] == ["scripted, text", "with history"]


def test_what_does_not_fit_is_left_out(run, tmp_path, monkeypatch):
    monkeypatch.setattr("gym_text_policies.report.viewer.TEXT_BUDGET", 20_000)
    text = write_report([run], tmp_path / "r.html", pictures=False).read_text()
    assert 0 < text.count('id="episode-') < 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "expected the folder of a run; nowhere is none"),
        (["."], "has neither"),
        ([".", "--episodes", "500"], "expected an integer from 0 to 200"),
        ([".", "--output", "."], "expected a file"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_damaged_curve_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "training.json").write_text("[")
    with pytest.raises(UsageError, match=r"training\.json: expected records"):
        write_report([tmp_path], tmp_path / "r.html")
