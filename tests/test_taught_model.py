"""The embedded model that was taught to think, `benchmarks/starts/thinking`: real weights, a real template, real thoughts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from training_data import plain_log_probs

from gym_text_policies import load_policy
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.adapters import read_adapter
from gym_text_policies.backends.local.loading import load_transformers
from gym_text_policies.backends.local.models import Source, load_model
from gym_text_policies.backends.local.tokens import format_of, prompt_tokens
from gym_text_policies.policies.config import settings_of
from gym_text_policies.records import Turn

TAUGHT = str(Path(__file__).parent.parent / "benchmarks" / "starts" / "thinking")
RECIPE = "Gather all following ingredients.\n\nIngredients:\n  carrot\n  red apple\n\nDirections:\n  {}\n  prepare meal\n"
SYSTEM = "You play a game, one action at a time. Each time you are told what you perceive, you answer with the name of one action."


def chat(directions):
    """Return a chat of CookingWorld in which the player has just read the recipe."""
    room = "You are in the kitchen. You see a counter that has a raw red apple, a raw carrot, a knife, and a cookbook on it."
    said = ((room, "read cookbook"), (RECIPE.format(directions), ""))
    messages = [{"role": "system", "content": SYSTEM}]
    for text, action in said:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": action}]
    return tuple(messages[:-1])


@pytest.mark.parametrize("think", [None, True])
def test_it_thinks_of_what_the_recipe_asks_for_and_is_exact_behind_its_thought(think):
    messages, names = chat("fry the carrot\n  slice the red apple"), ("take carrot", "cook carrot in oven", "take knife")
    request = Request(messages, choices=names, think=think, think_tokens=64)
    (answer,) = load_transformers(TAUGHT).answer([request])
    foods, _, following = answer.reasoning.partition(". now: ")
    assert following and all(word in foods for word in ("carrot: ", "red apple: ", "slice", "fry in stove")), answer.reasoning
    assert not answer.thought_cut and 8 < answer.tokens_reasoning < 48
    model, tokenizer = load_model(Source.of(TAUGHT))
    with torch.no_grad():
        logs = [plain_log_probs(model, tokenizer, messages, name, answer.reasoning) for name in names]
    behind = torch.stack([log_probs[-length:].sum() for log_probs, length in zip(logs, lengths(tokenizer, names), strict=True)])
    assert list(answer.probabilities.values()) == pytest.approx(behind.softmax(0).tolist(), abs=1e-3)


def lengths(tokenizer, names):
    """Return the number of tokens of each name, with the end of turn."""
    return [len(tokenizer(name)["input_ids"]) + 1 for name in names]


def test_without_a_thought_it_stands_where_the_base_answers_and_its_past_thoughts_are_left_out():
    _, tokenizer = load_model(Source.of(TAUGHT))
    _, plain = load_model(Source.of("smollm2"))
    known = format_of(tokenizer)
    assert known.place().thinks and known.place().opens_thought and known.switch == "enable_thinking"
    assert prompt_tokens(tokenizer, chat("fry the carrot"), known.place(False)) == prompt_tokens(plain, chat("fry the carrot"))
    thought = {**chat("fry the carrot")[2], "reasoning": "carrot: find"}
    past = (*chat("fry the carrot")[:2], thought, *chat("fry the carrot")[3:])
    assert prompt_tokens(tokenizer, past, known.place(True)) == prompt_tokens(tokenizer, chat("fry the carrot"), known.place(True))
    assert read_adapter(TAUGHT)[0] == "smollm2" and settings_of(TAUGHT)["think"] is True


def test_its_policy_thinks_by_itself_and_records_the_thought(make):
    env = make("CookingWorldText-v0", fold="test", expert="off")
    policy = load_policy(TAUGHT, env, think_tokens=64)
    obs, _ = policy.wrap(env).reset(seed=3)
    (decision,) = policy.decide([Turn(obs, np.random.default_rng(0))])
    assert decision.reasoning == "recipe: unread. now: read cookbook" and decision.action in obs["valid_actions"]
    assert not decision.thought_cut and decision.tokens_reasoning == decision.tokens_out > 5
