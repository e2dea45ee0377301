"""The report: what is in it, what it says of few seeds, and that nothing a model or a game said becomes a part of the page."""

import base64
import dataclasses
import json
import re
import runpy
from pathlib import Path

import gymnasium as gym
import pytest
from report_runs import ATTACK

from gym_text_policies import EpisodeStore, LLMPolicy, ScriptedBackend, cli, load_policy, rollout
from gym_text_policies.report import write_report
from gym_text_policies.report.runs import read_runs
from gym_text_policies.report.step_pictures import draw_pictures

BROWSER = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "helpers" / "browser.py"))


@pytest.fixture(scope="module")
def page(run):
    return write_report([run], run / "report.html")


def test_one_command_writes_the_page_and_names_it(run, tmp_path, capsys):
    output = tmp_path / "made" / "page.html"
    assert cli.main(["report", str(run), "--no-pictures", "--file", str(output)]) == 0
    assert str(output) in capsys.readouterr().out
    text = output.read_text()
    assert "<title>Report</title>" in text and text.count('id="episode-') == 30


def test_the_page_has_a_row_for_each_policy_with_the_tables_figures(run, page):
    text = page.read_text()
    for variant in read_runs([run]).variants:
        assert variant.policy == "forward" or f"{variant.row['success']:.2f} [" in text  # all of its episodes are errors
    assert "gold (expert)" in text and "scripted, choose" in text and "30 episodes, 5 rows, 1 environment" in text


def test_nothing_that_a_run_says_is_markup(page):
    text = page.read_text()
    assert len(re.findall(r"<script\b", text)) == 2 + text.count('id="episode-')  # the index, the viewer, and the episodes
    assert text.count("</script>") == len(re.findall(r"<script\b", text))
    assert "<img src=x" not in text
    assert "Content-Security-Policy" in text and "default-src 'none'" in text


@pytest.fixture
def browser():
    path = BROWSER["find_browser"]()
    if path is None:
        pytest.skip("Chromium is not installed")
    try:
        started = BROWSER["Browser"](path)
    except BROWSER["BrowserError"] as error:
        pytest.skip(f"Chromium does not start here: {error}")
    with started:
        yield started


def test_the_page_works_in_a_browser(page, browser):
    def text(name):
        return browser.run(f"document.getElementById('{name}').textContent")

    def pick(name, value):
        browser.run(f"document.getElementById('pick-{name}').value = {json.dumps(value)}")
        browser.run(f"document.getElementById('pick-{name}').dispatchEvent(new Event('change'))")

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
    assert browser.run("document.querySelector('#picture img').decode().then(() => document.querySelector('#picture img').width)")
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


def test_policies_that_look_ahead_stand_apart_with_prior_and_visits_of_each_action(browser, tmp_path):
    def make_game():
        return gym.make("BabyAIText-v0", task="goto", max_episode_steps=4)

    with EpisodeStore(tmp_path) as store, make_game() as env:
        for settings in ({"lookahead": "puct", "simulations": 12}, {}):
            for episode in rollout(make_game, load_policy("random", env, **settings), range(2)):
                store.append(episode)
    page = write_report([tmp_path], tmp_path / "report.html", pictures=False)
    browser.open(page.as_uri())
    rows = browser.run("[...document.querySelectorAll('section:first-of-type tbody tr')].map((row) => row.textContent.trim())")
    assert [row.split("\n")[0] for row in rows[:3]] == [
        *("random", "These policies look ahead in copies of the game", "random, looks ahead: 12 simulations †")
    ]
    assert "It uses the simulator" in browser.run("document.body.textContent")
    browser.run("document.getElementById('pick-policy').selectedIndex = 1")
    browser.run("document.getElementById('pick-policy').dispatchEvent(new Event('change'))")
    lines = browser.run(
        "[...document.querySelectorAll('.chance:not(.heads)')].map((line) => [...line.querySelectorAll('.value, .name')].map("
        "(part) => part.textContent))"
    )
    (first, *_) = (episode for episode in EpisodeStore(tmp_path).episodes() if episode.looks_ahead and episode.seed == 0)
    decision = first.steps[0].decision
    shown = {name.partition(" ←")[0]: (float(prior), int(visits), value) for name, prior, visits, value in lines}
    assert {name: visits for name, (_, visits, _) in shown.items() if visits} == decision.visits
    assert [visits for _, visits, _ in shown.values()] == sorted((visits for _, visits, _ in shown.values()), reverse=True)
    for name, (prior, _, value) in shown.items():
        assert prior == round(decision.probabilities[name], 3)
        assert value == (f"{decision.values[name]:.3f}" if name in decision.values else "-")
    assert f"{decision.simulator_steps} steps in copies" in browser.run("document.getElementById('decision').textContent")
    assert browser.complaints == []


class Seeing(ScriptedBackend):
    """Takes pictures, and says always the same."""

    takes_pictures = True


def test_each_picture_that_the_model_saw_is_shown(browser, tmp_path):
    def make_game():
        return gym.make("BabyAIText-v0", max_episode_steps=45, render_mode="rgb_array")

    with make_game() as env:
        (episode,) = rollout(make_game, LLMPolicy(Seeing(["turn left"]), env.get_wrapper_attr("text_spec"), pictures=True), [0])
    with EpisodeStore(tmp_path) as store:
        store.append(episode)
    page = write_report([tmp_path], tmp_path / "report.html")
    assert "null" not in re.search(r'"shown":\[[^]]*', page.read_text())[0]
    browser.open(page.as_uri())
    assert "the model saw this picture" in browser.run("document.getElementById('decision').textContent")
    assert ", pictures" in page.read_text() and browser.complaints == []
    browser.open(write_report([tmp_path], tmp_path / "report.html", pictures=False).as_uri())
    assert browser.run("document.getElementById('decision').textContent").count("the model saw one") == 1
    changed = dataclasses.replace(episode.steps[1].decision, picture="0" * 64)
    steps = (episode.steps[0], dataclasses.replace(episode.steps[1], decision=changed))
    assert "expected the pictures that the model saw" in draw_pictures(dataclasses.replace(episode, steps=steps)).missing


@pytest.fixture
def theirs(run, tmp_path):
    """Return a run folder from elsewhere: its episodes as JSON data, and a function that writes them."""
    lines = [json.loads(line) for line in (run / "episodes.jsonl").read_text("utf-8").splitlines()[:2]]
    folder = tmp_path / "theirs"
    folder.mkdir()

    def write():
        (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return lines, write


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"id": "Theirs-v0", "module": "their_games"}, "Import their_games in Python first."),
        ({"id": "TextArenaTwoPlayers-v0", "kwargs": {"game": "Nim-v0", "opponent": "their_games:player"}}, "opponent="),
        ({"id": "TextWorldText-v0", "kwargs": {"file": "/etc/passwd"}}, "file="),
    ],
)
def test_a_record_names_no_code_and_no_host_and_is_shown_without_pictures(theirs, tmp_path, monkeypatch, environment, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-sent")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    (tmp_path / "their_games.py").write_text("open('made', 'w').close()\ndef player(obs): return 'x'\n")
    lines, write = theirs
    for line in lines:
        line["environment"].update(environment)
    folder = write()
    text = write_report([folder], folder / "report.html").read_text()
    assert "2 episodes without pictures: environment" in text and reason in text
    assert text.count('id="episode-') == 2 and not (tmp_path / "made").exists()


def test_no_link_of_a_folder_brings_a_file_of_the_reader_into_the_page_or_is_written_through(theirs, tmp_path):
    _, write = theirs
    folder = write()
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret of mine")
    (folder / "gifs").mkdir()
    for name in ("gifs/seed-0.gif", "metrics.jsonl", "table.json", "report.html"):
        (folder / name).symlink_to(secret)
    (folder / "more").mkdir()
    (folder / "more" / "episodes.jsonl").symlink_to(secret)
    text = write_report([folder], folder / "report.html").read_text()
    assert (
        "secret of mine" not in text and base64.b64encode(b"a secret of mine").decode() not in text and "data:image/gif" not in text
    )
    assert secret.read_bytes() == b"a secret of mine"
