"""A language model as the optimiser, on scripted answers."""

import numpy as np
import pytest
from searches import config, evaluator, tried

from gym_text import UsageError
from gym_text_policies import PolicyError, ScriptedBackend
from gym_text_policies.search import search
from gym_text_policies.search.evaluations import open_evaluations
from gym_text_policies.search.model import ModelOptimiser


def asked(script, *, evaluations=3, **options):
    """Search with a model that answers from a list or a function; return what was found and its requests."""
    requests = []

    def answer(request):
        requests.append(request)
        return script(request) if callable(script) else script[len(requests) - 1]

    settings = config(optimiser="model", evaluations=evaluations, **options)
    return search(settings, backend=ScriptedBackend(answer)), requests


def test_a_model_is_shown_what_was_tried_and_its_words_are_kept():
    found, requests = asked(['{"reason": "begin", "p1": 1, "p2": 2, "p3": 0}', "p1=-1, p2=5, p3=0.5", "[2, 2, 2]"])
    assert [e.parameters for e in found.evaluations] == [(1, 2, 0), (-1, 5, 0.5), (2, 2, 2)]
    assert [e.proposal.reason for e in found.evaluations] == ["begin", "p1=-1, p2=5, p3=0.5", "[2, 2, 2]"]
    assert all(e.proposal.source == "model" and e.proposal.tokens_in > 0 for e in found.evaluations)
    last = requests[-1].messages[-1]["content"]
    for evaluation in found.evaluations[:2]:
        shown = ", ".join(f"p{i + 1}={value:.4g}" for i, value in enumerate(evaluation.parameters))
        assert f"{shown}: {evaluation.value:.2f}" in last
    assert "car" not in last and "position" not in last and "greatest possible" not in last


def test_answers_that_cannot_be_used_are_asked_again_counted_and_replaced():
    answers = ["p1=9, p2=0, p3=0", "I do not know", "1 2 3", "1 2 3", "1 2 3", "1 2 3", "nothing"]
    found, requests = asked(answers, evaluations=2)
    first, second = (evaluation.proposal for evaluation in found.evaluations)
    assert first.parameters == (1, 2, 3) and first.source == "model" and len(first.rejections) == 2
    assert second.source == "random instead" and len(second.rejections) == 4 and second.reason is None
    assert "tried before" in second.rejections[0] and all(-6 <= value <= 6 for value in second.parameters)
    assert "p1 = 9 is not from -6 to 6" in requests[1].messages[-1]["content"]
    assert requests[1].messages[-2] == {"role": "assistant", "content": "p1=9, p2=0, p3=0"}
    again, _ = asked(answers, evaluations=2)
    assert tried(again) == tried(found)


def test_the_semantic_prompt_tells_the_task_and_how_episodes_went():
    found, requests = asked(["1 2 3", "2 3 4"], evaluations=2, prompt="semantic", optimum=99.5)
    first, second = (request.messages[-1]["content"] for request in requests)
    for words in (
        "the flag",
        "w_velocity: from -6 to 6, how much velocity adds",
        "push left hard",
        "is 99.5",
        "about 1 away",
        "clipped",
    ):
        assert words in first
    assert f"The latest (w_position=1, w_velocity=2, bias=3: {found.evaluations[0].value:.2f}): " in second
    assert "of 3 episodes succeeded" in second and "velocity -0" in second


def test_several_proposals_of_one_prompt_are_evaluated_before_the_next(tmp_path):
    def script(request):
        rng = np.random.default_rng(request.seed)
        return "2 2 2" if rng.random() < 0.3 else " ".join(f"{value:.3f}" for value in rng.uniform(-7, 6, size=3))

    options = {"evaluations": 9, "proposals_per_prompt": 4, "warmup_evaluations": 1}
    whole, requests = asked(script, **options)
    prompts = [request.messages for request in requests if len(request.messages) == 2]
    assert len(prompts) == 8 and len(set(map(str, prompts))) == 2
    assert len({request.seed for request in requests}) == len(requests) > 8
    assert sum(e.parameters == (2, 2, 2) for e in whole.evaluations) <= 1
    for some in (3, 9):  # a search that was stopped within a prompt's proposals goes on
        part, again = asked(script, **(options | {"evaluations": some, "folder": str(tmp_path)}))
        assert tried(part) == tried(whole)[:some]
    assert sum(len(request.messages) == 2 for request in again) == 2 + 4  # not those that were evaluated already
    with pytest.raises(UsageError, match="proposals_per_prompt: expected an integer from 1"):
        config(optimiser="model", proposals_per_prompt=0)


def test_structured_answers_have_a_schema_within_the_bounds():
    _, requests = asked(["1 2 3"], evaluations=1)
    schema = requests[0].schema
    assert list(schema["properties"]) == ["reason", "p1", "p2", "p3"] == schema["required"]
    assert (schema["properties"]["p1"]["minimum"], schema["properties"]["p1"]["maximum"]) == (-6, 6)
    table, lake = asked(["0 " * 16], evaluations=1, environment="FrozenLake-v1")
    assert lake[0].schema["properties"]["p1"] == {"type": "integer", "minimum": 0, "maximum": 3}
    assert table.evaluations[0].parameters == (0,) * 16


def test_the_buffer_keeps_the_best_and_the_latest():
    history = search(config(evaluations=12)).evaluations
    rolled = evaluator(config())
    optimiser = ModelOptimiser(rolled.form, 0, 0, ScriptedBackend([""]), config(buffer_size=4), rolled.spec)
    shown = optimiser.messages(history)[-1]["content"]
    ranked = sorted(history, key=lambda e: -e.value)
    wanted = [*ranked[:2], *[e for e in reversed(history) if e not in ranked[:2]][:2]]
    for evaluation in history:
        assert (f": {evaluation.value:.2f}\n" in shown) == any(evaluation.value == other.value for other in wanted)
    rolled.close()


def test_what_a_provider_refuses_ends_the_run_and_the_next_goes_on(tmp_path):
    def answer(request):
        if broken:
            raise PolicyError("down")
        return "1 2 3" if "1, p2=2" not in request.messages[-1]["content"] else "2 2 2"

    broken = True
    settings = config(optimiser="model", evaluations=2, warmup_evaluations=1, folder=str(tmp_path))
    with pytest.raises(PolicyError, match="down"):
        search(settings, backend=ScriptedBackend(answer))
    assert len(open_evaluations(tmp_path)) == 1
    broken = False
    assert len(search(settings, backend=ScriptedBackend(answer)).evaluations) == 2


def test_parameters_are_never_read_from_a_thought():
    answers = ["<think>p1=1, p2=1, p3=1</think>p1=2, p2=2, p3=2", "<think>[3, 3, 3] or", "[4, 4, 4]</think>[5, 5, 5]"]
    found, _ = asked(answers, evaluations=2)
    first, second = (evaluation.proposal for evaluation in found.evaluations)
    assert (first.parameters, second.parameters) == ((2, 2, 2), (5, 5, 5))
    assert first.thoughts == ("p1=1, p2=1, p3=1",) and first.answers == ("p1=2, p2=2, p3=2",)
    assert second.rejections == ("No answer followed the thought; think in fewer words.",) and second.tokens_reasoning > 0
