"""Specs, episodes, stores and tables show themselves in a notebook; their texts are data."""

import base64
import dataclasses
from html.parser import HTMLParser

import gymnasium as gym
import pytest

import gym_text  # noqa: F401  registers the environments
from gym_text import Action, Field, TextSpec
from gym_text_policies import Decision, Episode, Step, load_policy, rollout
from gym_text_policies.report.figures import row
from gym_text_policies.report.step_pictures import Illustrated, Pictures
from gym_text_policies.report.table import markdown

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
TAGS = {"b", "br", "div", "img", "span", "table", "tbody", "td", "th", "thead", "tr"}


class Page(HTMLParser):
    """The tags, the attributes and the text of a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self.pictures = [], set(), "", []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.pictures += [value for name, value in attrs if name == "src"]

    def handle_data(self, data):
        self.text += data


def evil_episode(length=2):
    decision = Decision(EVIL, False, completion=EVIL, reasoning=EVIL, invalid=EVIL, probabilities={EVIL: 0.5, "b": 0.5})
    step = Step({"text": EVIL, "goal": EVIL}, decision, 0.5, False, False, False, False, 0.5, True, gold_action=EVIL)
    searched = dataclasses.replace(step, decision=dataclasses.replace(decision, visits={EVIL: 3}))
    environment = {"id": EVIL, "kwargs": {EVIL: EVIL}, "wrappers": [], "max_episode_steps": None}
    episode = Episode("0" * 32, environment, {"kind": "llm", "model": EVIL, "mode": EVIL}, 0, (step, searched) * (length // 2))
    return dataclasses.replace(episode, last_observation={"text": EVIL, "goal": EVIL}, error=EVIL)


def shown_by_evil_objects():
    """Return the HTML of an object of each kind whose every text is hostile."""
    episode = evil_episode()
    spec = TextSpec(EVIL, {EVIL: Field(EVIL)}, (Action(EVIL, EVIL),), "discrete", reward=EVIL)
    illustration = Illustrated(episode, Pictures((EVIL, base64.b64encode(b"<svg onload=alert(1)>").decode()), (0, 1, 1), (EVIL,)))
    table = markdown([row(EVIL, EVIL, [dataclasses.replace(episode, error=None)], asked=EVIL)])
    return [thing._repr_html_() for thing in (spec, illustration, table)]


def test_no_text_of_a_game_or_a_model_becomes_markup():
    pytest.importorskip("scipy")
    for html in shown_by_evil_objects():
        page = Page(html)
        assert {*page.tags} <= TAGS and page.attributes <= {"style", "class", "alt", "src"}, html
        assert "img" not in page.tags and "<script>alert(1)" in page.text


def test_a_text_with_half_a_character_or_controls_can_be_written_to_a_file():
    episode = dataclasses.replace(evil_episode(), error="a\ud800b\x1b[31m\u202ec")
    html = Illustrated(episode, Pictures())._repr_html_()
    html.encode("utf-8")
    assert "\x1b" not in html and "\u202e" not in html


def test_an_episode_shows_its_steps_and_the_bars_of_its_probabilities():
    pytest.importorskip("minigrid")
    env = gym.make("BabyAIText-v0", task="goto", fold="dev")
    policy = load_policy("scripted:turn left", env, mode="choose")
    (episode,) = rollout(lambda: gym.make("BabyAIText-v0", task="goto", fold="dev", max_episode_steps=3), policy, [0])
    page = Page(Illustrated(episode, Pictures())._repr_html_())
    assert page.tags.count("tr") == 1 + 3 + 1, "the headings, three steps, the end"
    assert "truncated, return 0, 3 steps, seed 0." in page.text and "expert" in page.text and "%" in page.text
