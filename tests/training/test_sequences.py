"""Packed conversations have the losses and gradients of plain passes."""

from functools import partial

import gymnasium as gym
import pytest
import torch
from training_data import plain_log_probs, plain_losses, thinking, with_random_adapter

from gym_text_policies import load_policy, rollout
from gym_text_policies.data.rows import Example, rows_of
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import text_spec
from gym_text_policies.training.model import layouts
from gym_text_policies.training.model.layouts import PackedRow, answer_losses
from gym_text_policies.training.model.lora import add_lora, load_base
from gym_text_policies.training.model.sequences import Conversation, DecisionNodes, number_decisions, passes

pytestmark = [pytest.mark.usefixtures("one_thread")]


def tokenised(tokenizer, rows):
    """Return the rows as conversations."""
    return [Conversation.of(tokenizer, row.examples()) for row in rows]


@pytest.mark.parametrize("block", [384, 32])
def test_packed_losses_are_those_of_one_plain_pass_for_each_decision(tiny_model, noisy_rows, block, monkeypatch):
    monkeypatch.setattr(layouts, "_BLOCK", block)
    base, tokenizer = load_base(tiny_model)
    model = with_random_adapter(add_lora(base)).eval()
    make_env = partial(gym.make, "BabyAIText-v0", max_episode_steps=4)
    policy = load_policy("scripted:go forward|turn left", make_env(), strategy="zero_shot", history=1)
    prompting = PolicyConfig(strategy="zero_shot", history=1, with_reward=False)
    steps = [rows_of(e, text_spec(make_env()), prompting, "own") for e in rollout(make_env, policy, range(3))]
    for rows in (noisy_rows[:4], noisy_rows[4:5], [row for episode in steps for row in episode]):
        with torch.no_grad():
            packed = answer_losses(model, tokenised(tokenizer, rows))
            assert packed.tolist() == pytest.approx(plain_losses(model, tokenizer, rows), abs=1e-4)
    conversations = tokenised(tokenizer, noisy_rows[:4])
    first, second, *_ = PackedRow(model, conversations).offsets
    shared = len({*first} & {*second})
    assert shared > 100, "what the prompts begin with is read once"
    assert len(PackedRow(model, conversations).tokens) == sum(conversation.size for conversation in conversations) - 3 * shared


@pytest.mark.parametrize("keeps", ["false", "true"])
def test_a_thought_is_a_branch_between_the_prompt_and_the_answer(tiny_model, keeps):
    base, tokenizer = load_base(tiny_model)
    tokenizer = thinking(tokenizer, keeps)
    messages = (
        {"role": "user", "content": "a hall"},
        {"role": "assistant", "content": "go"},
        {"role": "user", "content": "a door"},
    )
    examples = [Example(messages[:1], "go", "a <|im_end|>"), Example(messages, "turn left", "left?"), Example(messages, "go")]
    conversation = Conversation.of(tokenizer, examples)
    learnt = [[token for _, token in decision.answers[0]] for decision in conversation.decisions]
    assert [tokenizer.decode(tokens) for tokens in learnt] == [
        "<think>\na <|im_end|>\n</think>\n\ngo<|im_end|>",
        "<think>\nleft?\n</think>\n\nturn left<|im_end|>",
        "go<|im_end|>",
    ], "a thought is learnt with what opens and closes it"
    assert [tokens.count(tokenizer.eos_token_id) for tokens in learnt] == [1, 1, 1], "a thought cannot end the turn"
    model = with_random_adapter(add_lora(base)).eval()
    with torch.no_grad():
        plain = [-plain_log_probs(model, tokenizer, *example) for example in examples]
    assert answer_losses(model, [conversation]).tolist() == pytest.approx(torch.cat(plain).tolist(), abs=1e-4)


def test_conversations_go_into_passes_in_their_order_and_none_is_left_out():
    conversations = []
    for size in (3, 4, 9, 2, 1):
        conversations.append(Conversation())
        conversations[-1].tree.grow(-1, range(size))
        conversations[-1].decisions.append(DecisionNodes(0, (((0, 1),),)))
    episodes = number_decisions([conversations[:2], conversations[2:]])
    assert [[one.indices for one in episode] for episode in episodes] == [
        [range(0, 1), range(1, 2)],
        [range(2, 3), range(3, 4), range(4, 5)],
    ]
    groups = passes(conversations, 8)
    assert [[one.size for one in group] for group in groups] == [[3, 4], [9], [2, 1]]
    (group,) = passes(conversations, 9)
    assert len(group) == 5, "what they have in common counts once"
