"""Calls by models in this process, among all calls that the template can write."""

import itertools
import json
from dataclasses import replace

import pytest
import torch
from tool_templates import AS_JSON, AS_TEXT, THINKING, give

from gym_text.babyai.env import BABYAI_SPEC
from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.call_format import with_tool
from gym_text_policies.backends.local.rendering import calls_of
from gym_text_policies.backends.local.tokens import prompt_tokens, template_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.environments import environment_maker
from gym_text_policies.prompts.tools import argument_schema, as_calls, call_of, called_action, tool_function

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=3"
NAMES = ("turn left", "turn right", "go forward", "go <|end|>")
BOTH = pytest.mark.parametrize("template", [AS_JSON, AS_TEXT])


@pytest.fixture(scope="module")
def backends(tiny_model):
    """Return a model with random weights for each template."""
    from small_models import small_llama
    from transformers import AutoTokenizer

    made = {}
    for template in (AS_JSON, AS_TEXT, THINKING):
        tokenizer = give(AutoTokenizer.from_pretrained(tiny_model), template)
        model = small_llama(len(tokenizer), initializer_range=0.3, max_position_embeddings=2048)
        made[template] = TransformersBackend(model, tokenizer, "tiny"), model, tokenizer
    return made


def request(text="A wall.", names=NAMES, **more):
    schema = argument_schema(BABYAI_SPEC, names or ())
    if names is None:
        del schema["properties"]["action"]["enum"]
    settings = {"max_tokens": 60, "think": False} | more
    return Request(({"role": "user", "content": text},), schema=schema, tool=tool_function(BABYAI_SPEC), **settings)


@BOTH
def test_a_call_is_the_path_of_the_most_probable_tokens_among_the_calls(backends, template):
    backend, model, tokenizer = backends[template]
    calls = calls_of(tokenizer, with_tool({}, tool_function(BABYAI_SPEC)), think=False)
    called = set()
    for text in (f"{i} walls{' far' * i}" for i in range(12)):
        (answer,) = backend.answer([request(text, tokens=True)])
        prompt = prompt_tokens(tokenizer, request(text).messages, calls.answer_start)
        left = {name: list(answer.tokens[answer.arguments].said) for name in [called_action(answer.arguments)]}
        for name in NAMES[:3]:
            left[name] = template_tokens(tokenizer, calls.text(name))
        left[NAMES[3]] = left.get(NAMES[3]) or backend._questions.grammars._call_tokens(calls, NAMES[3])
        said = []
        while len(left) > 1:
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *said]])).logits[0, -1]
            said.append(max({tokens[len(said)] for tokens in left.values()}, key=lambda token: logits[token].item()))
            left = {name: tokens for name, tokens in left.items() if tokens[len(said) - 1] == said[-1]}
        assert answer.arguments == json.dumps({"action": next(iter(left))}) and answer.finish == "stop" and answer.text == ""
        called.add(answer.arguments)
    assert len(called) > 1


@BOTH
def test_drawn_calls_are_all_valid_and_follow_the_seed(backends, template):
    backend, *_ = backends[template]
    drawn = [request(temperature=1.5, seed=seed) for seed in range(40)]
    answers = backend.answer(drawn)
    assert {called_action(answer.arguments) for answer in answers} == set(NAMES)
    assert [answer.arguments for answer in backend.answer(drawn[::-1])][::-1] == [answer.arguments for answer in answers]


@BOTH
def test_any_text_can_be_the_argument_where_no_actions_are_listed(backends, template):
    backend, *_ = backends[template]
    answers = backend.answer([request(names=None, temperature=1.0, seed=seed, max_tokens=120) for seed in range(6)])
    texts = [called_action(answer.arguments) for answer in answers if answer.arguments is not None]
    assert len(set(texts)) > 2 and all(texts)


def test_a_thought_is_closed_before_the_call(backends):
    backend, *_ = backends[THINKING]
    answers = backend.answer([request(str(i), think=True, think_tokens=6, temperature=2.0, seed=i) for i in range(6)])
    assert all(answer.arguments and called_action(answer.arguments) in NAMES for answer in answers)
    assert all(answer.tokens_reasoning <= 6 for answer in answers) and any(answer.thought_cut for answer in answers)
    assert any(answer.reasoning for answer in answers) and not any("think>" in answer.arguments for answer in answers)


@BOTH
def test_a_chat_of_calls_beyond_the_window_loses_its_oldest_turns(backends, template):
    backend, _, tokenizer = backends[template]
    texts = [text for i in range(80) for text in (f"You see wall {i}. " * 4, call_of(NAMES[i % 2]))]
    steps = [{"role": role, "content": text} for role, text in zip(itertools.cycle(("user", "assistant")), texts, strict=False)]
    rules, last = {"role": "system", "content": "Play."}, {"role": "user", "content": "A ball."}
    (answer,) = backend.answer([replace(request(), messages=as_calls([rules, *steps, last]))])
    assert called_action(answer.arguments) in NAMES and answer.turns_dropped > 30
    left = as_calls([rules, *steps[2 * answer.turns_dropped :], last])
    assert [message["role"] for message in left[:4]] == ["system", "user", "assistant", "tool"]
    answer_start = calls_of(tokenizer, with_tool({}, tool_function(BABYAI_SPEC)), think=False).answer_start
    assert answer.tokens_in == len(prompt_tokens(tokenizer, left, answer_start))


@BOTH
def test_an_episode_with_kept_tokens_is_the_episode_without(backends, template):
    backend, *_ = backends[template]
    make = environment_maker(GOTO, fold="train")
    episodes = []
    for tokens in (False, True):
        with make() as env:
            policy = load_policy(backend, env, mode="tool", tokens=tokens, think=False)
        (episode,) = rollout(make, policy, [3])
        assert episode.error is None and episode.invalid == 0
        episodes.append(episode)
    plain, kept = episodes
    assert [step.decision.completion for step in plain.steps] == [step.decision.completion for step in kept.steps]
    for before, after in itertools.pairwise(step.decision.tokens for step in kept.steps):
        assert after.prompt[: len(before.prompt + before.said)] == before.prompt + before.said
