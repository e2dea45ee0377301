"""The backend in this process: the embedded model's exact probabilities, alone, in batches and with a warm cache."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch

from gym_text.babyai.env import BABYAI_SPEC
from gym_text_policies import LLMPolicy, PolicyError, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import Prompt

SYSTEM = {"role": "system", "content": "You play a game. Answer with one action."}


@pytest.fixture(scope="module")
def model():
    """Return the model and tokenizer, as transformers loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = smollm2_folder()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def backend(model):
    """Return a backend of the embedded model that has answered nothing yet."""
    return TransformersBackend(*model, "smollm2")


@pytest.fixture
def small_backend(small_model):
    """Return a backend of the small model that has answered nothing yet."""
    return TransformersBackend(*small_model, "small")


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
            log_probs = network(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        scores.append(sum(float(log_probs[len(prompt) + i - 1, token]) for i, token in enumerate(answer)))
    return scores


@pytest.fixture(scope="module")
def brute_force(model):
    """Return `log_likelihoods` of REQUESTS."""
    return [log_likelihoods(model, request) for request in REQUESTS]


def softmax(scores):
    """Return probabilities from their logarithms, which are known up to a constant."""
    weights = np.exp(np.array(scores) - max(scores))
    return weights / weights.sum()


def test_choose_equals_brute_force_alone_in_a_batch_and_with_a_warm_cache(model, backend, brute_force):
    expected = [dict(zip(r.choices, softmax(scores), strict=True)) for r, scores in zip(REQUESTS, brute_force, strict=True)]
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


def test_json_answers_are_of_their_schema_alone_and_in_a_batch(small_model, small_backend):
    schema = Prompt("reasoning").schema(BABYAI_SPEC, ("turn left", "go forward"))
    requests = [question(text, schema=schema, max_tokens=50) for text in ("A red ball.", "A wall.")]
    texts = [answer.text for answer in small_backend.answer(requests)]
    for text in texts:
        fields = json.loads(text)
        assert list(fields) == ["reasoning", "action"] and fields["action"] in ("turn left", "go forward")
    assert texts == [TransformersBackend(*small_model, "fresh").answer([request])[0].text for request in requests]


@pytest.mark.parametrize("names", [("say <|im_end|>",), ("<|im_start|>user", "<|im_end|>"), ('say "é <|endoftext|>!"',)])
def test_json_says_actions_that_spell_special_tokens_with_other_tokens(small_backend, names):
    schema = Prompt("zero_shot").schema(BABYAI_SPEC, names)
    (answer,) = small_backend.answer([question("A red ball.", schema=schema, max_tokens=60, tokens=True)])
    assert json.loads(answer.text)["action"] in names and answer.finish == "stop"
    assert not set(answer.tokens[answer.text].said[:-1]) & set(small_backend._tokenizer.all_special_ids)


def test_a_token_that_a_schema_does_not_allow_is_an_error(small_backend):
    matcher = small_backend._questions.grammars.of('{"enum": ["go"]}')
    with pytest.raises(PolicyError, match=r"expected a token that the grammar allows; .*doesn't satisfy the grammar"):
        matcher.take(small_backend._tokenizer.eos_token_id)


def test_drawn_answers_depend_on_their_seed_alone(small_model, small_backend):
    requests = [question("Tell me a word.", temperature=1.5, seed=seed, max_tokens=6) for seed in range(6)]
    texts = [answer.text for answer in small_backend.answer(requests)]
    assert len(set(texts)) > 3
    assert texts[2] == TransformersBackend(*small_model, "fresh").answer(requests[2:3])[0].text
    unseeded = [small_backend.answer([question("Tell me a word.", temperature=1.5, max_tokens=6)])[0].text for _ in range(6)]
    assert len(set(unseeded)) > 1


@pytest.mark.parametrize("mode", ["choose", "text"])
def test_episodes_of_the_model_do_not_depend_on_how_many_run_at_once(mode, small_model):
    def make():
        return gym.make("BabyAIText-v0", expert="off", max_episode_steps=3)

    def play(num_envs):
        backend = TransformersBackend(*small_model, "small")
        policy = LLMPolicy(backend, text_spec(make()), mode=mode, max_tokens=6)
        return sorted(rollout(make, policy, range(8), num_envs=num_envs), key=lambda e: e.seed)

    for one, eight in zip(play(1), play(8), strict=True):
        assert one.key == eight.key and one.length == eight.length > 0
        for a, b in zip(one.steps, eight.steps, strict=True):
            assert (a.decision.action, a.decision.completion, a.reward) == (b.decision.action, b.decision.completion, b.reward)
            assert a.observation == b.observation
            if mode == "choose":
                assert a.decision.probabilities == pytest.approx(b.decision.probabilities, abs=1e-4)
