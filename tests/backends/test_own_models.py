"""Language models of the user's own, by name, in commands, in files and in `load_policy`."""

import json
import sys

import gymnasium as gym
import pytest

from gym_text_policies import EpisodeStore, cli, load_policy, rollout
from gym_text_policies.backends import Answer, Backend
from gym_text_policies.backends.load import load_backend

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=4"
MODULE = """
from gym_text_policies.backends import Answer, Backend, backend

open("imported", "w").close()

@backend
def saying(requests, *, word="turn left"):
    "Say one word."
    return [
        Answer(word) if request.choices is None
        else Answer(probabilities=chosen(request.choices, word))
        for request in requests
    ]

def chosen(choices, word):
    best = word if word in choices else choices[0]
    return {choice: float(choice == best) for choice in reversed(choices)}

class Loud(Backend):
    def __init__(self, *, times):
        self.times = times

    config = {"backend": "loud"}

    def answer(self, requests):
        return [Answer("go forward")] * len(requests) * self.times

@backend
def broken(requests):
    return ["turn left" for request in requests]

@backend
def unlikely(requests):
    return [Answer(probabilities=dict.fromkeys(request.choices, 1.0)) for request in requests]

@backend
def greedy(requests):
    return [Answer(choice=request.choices[-1]) for request in requests]

def forward(obs):
    return 2
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The current folder, with a module of models."""
    (tmp_path / "own_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_models", None)


def make():
    return gym.make("BabyAIText-v0", task="goto", max_episode_steps=4)


@pytest.mark.parametrize(
    ("name", "options", "said", "mode"),
    [
        ("saying", {}, "turn left", "text"),
        ("saying", {"word": "turn right"}, "turn right", "choose"),
        ("Loud", {"times": 1}, "go forward", "text"),
    ],
)
def test_a_function_and_a_class_play_by_their_names_with_settings_and_options(module, name, options, said, mode):
    policy = load_policy(f"own_models:{name}", make(), mode=mode, **options)
    (episode,) = rollout(make, policy, [0])
    assert {step.decision.action for step in episode.steps} == {said}
    assert (policy.config["mode"], policy.config["model"]) == (mode, f"own_models:{name}") and len(policy.config["source"]) == 16


def test_options_and_source_identify_a_model(module):
    def identity(**options):
        sys.modules.pop("own_models", None)
        return load_backend("own_models:saying", **options).config

    first = identity()
    assert identity() == first != identity(word="turn right")
    path = module / "own_models.py"
    path.write_text(MODULE + "# edited\n")
    assert identity() != first


@pytest.mark.parametrize(
    ("name", "options", "mode", "message"),
    [
        ("broken", {}, "text", "expected answers of the documented form; an Answer is expected; got 'turn left'"),
        ("Loud", {"times": 2}, "text", "for each of 1 requests; got 2 answers"),
        ("unlikely", {}, "choose", "expected answers of the documented form; probabilities have to sum to 1"),
        ("greedy", {}, "choose", "of the documented form; a probability of each choice is expected; got the choice 'toggle' alone"),
        ("saying", {"word": 5}, "text", "expected answers of the documented form; text has to be a text"),
    ],
)
def test_answers_of_another_form_end_the_episode_with_a_sentence(module, name, options, mode, message):
    (episode,) = rollout(make, load_policy(f"own_models:{name}", make(), mode=mode, **options), [0])
    assert message in episode.error


def test_the_most_probable_choice_alone_is_played_where_it_suffices(module):
    (episode,) = rollout(make, load_policy("own_models:greedy", make(), mode="choose", probabilities=False), [0])
    assert episode.error is None and {step.decision.action for step in episode.steps} == {"toggle"}


def test_bench_has_a_row_for_each_mode_and_collect_takes_it(module, capsys):
    words = ["bench", "--models", "own_models:saying", "--options", "word=turn right", "--environments", GOTO]
    assert cli.main([*words, "--baselines", "none", "--folder", "run"]) == 0, capsys.readouterr().err
    rows = json.loads((module / "run/table.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["own_models:saying, text", "own_models:saying, choose"]
    assert {step.decision.action for episode in EpisodeStore(module / "run").episodes() for step in episode.steps} == {"turn right"}
    assert cli.main(["report", "run"]) == 0
    words = ["collect", "--model", "own_models:saying", "--environments", GOTO, "--episodes", "12", "--threshold", "0"]
    assert cli.main([*words, "--folder", "data"]) == 0, capsys.readouterr().err


def test_in_python_a_class_that_backend_makes_is_called_with_its_options(module):
    import own_models

    assert issubclass(own_models.saying, Backend) and own_models.saying.__doc__ == "Say one word."
    (episode,) = rollout(make, load_policy(own_models.saying(word="turn right"), make()), [0])
    assert {step.decision.action for step in episode.steps} == {"turn right"}
    assert isinstance(own_models.saying().answer([]), list) and Answer("a").text == "a"
