"""Token-exact episodes: what was read and said at play, with the probabilities of a plain forward pass."""

import itertools
import json

import gymnasium as gym
import pytest
import torch
from training_data import thinking

from gym_text import UsageError
from gym_text_policies import Episode, LLMPolicy, load_policy, rollout
from gym_text_policies.backends.local.tokens import continued_tokens, format_of, prompt_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.bridges.trl_rollout import token_rows
from gym_text_policies.policy import text_spec

TEMPERATURE = 1.5
SETTINGS = {"strategy": "chat", "history": "all", "tokens": True, "max_tokens": 5}


def make():
    return gym.make("BabyAIText-v0", task="goto", fold="train", expert="off", max_episode_steps=4)


@pytest.fixture(scope="module")
def backend(small_model):
    return TransformersBackend(*small_model, "small")


def play(backend, seeds=(0, 1), **settings):
    policy = LLMPolicy(backend, text_spec(make()), **(SETTINGS | settings))
    return [Episode.from_json(json.loads(json.dumps(episode.to_json()))) for episode in rollout(make, policy, seeds, num_envs=2)]


def plain_log_probs(model, row, temperature):
    """Return the log-probability of each token of a completion by one plain forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([row.prompt + row.completion])).logits[0] / temperature
    first = len(row.prompt) - 1
    return logits[first:-1].log_softmax(-1).gather(1, torch.tensor(row.completion)[:, None])[:, 0]


@pytest.mark.parametrize(
    ("settings", "temperature"),
    [
        ({"mode": "text", "temperature": TEMPERATURE}, TEMPERATURE),
        ({"mode": "text"}, 1),
        ({"mode": "choose", "temperature": 1.0}, 1),
    ],
)
def test_an_episode_is_one_sequence_whose_mask_marks_what_the_model_said(small_model, backend, settings, temperature):
    model, tokenizer = small_model
    for episode in play(backend, **settings):
        (row,) = token_rows(episode)
        said = [step.decision.tokens.said for step in episode.steps]
        assert [token for token, own in zip(row.completion, row.mask, strict=True) if own] == [*itertools.chain(*said)]
        mask = torch.tensor(row.mask, dtype=torch.bool)
        played = torch.tensor(row.log_probs)
        torch.testing.assert_close(played[mask], plain_log_probs(model, row, temperature)[mask], atol=1e-4, rtol=1e-4)
        assert not played[~mask].any()
        read = tokenizer.decode([token for token, own in zip(row.completion, row.mask, strict=True) if not own])
        observations = [step.observation["text"] for step in episode.steps[1:]]
        assert len(said) == 4 and all(text in read for text in observations) and read.count("<|im_start|>assistant") == 3


def test_keeping_tokens_changes_no_answer(backend):
    texts = [
        [step.decision.completion for step in episode.steps]
        for settings in ({"tokens": True}, {"tokens": False, "own_words": True})
        for episode in play(backend, mode="text", max_tokens=5, **settings)
    ]
    assert texts[0][0] == texts[2][0] and texts[1][0] == texts[3][0]  # the first prompts are equal; later ones are token-exact


def test_a_retry_goes_on_from_the_tokens_of_the_answer(small_model, backend):
    (episode,) = play(backend, seeds=[0], mode="text", temperature=1.0, on_invalid="retry")
    rows = token_rows(episode)
    assert len(rows) == 4  # no later prompt shows what was asked again
    for row, step in zip(rows, episode.steps, strict=True):
        assert step.decision.retries == 3
        asked = small_model[1].decode(row.prompt)
        assert asked.count("Answer again") == 3 and asked.count("<|im_start|>assistant") == 4 + episode.steps.index(step)


def test_a_window_of_history_gives_a_sequence_for_each_decision(backend):
    (episode,) = play(backend, seeds=[0], mode="text", history=1)
    rows = token_rows(episode)
    assert len(rows) == 3 and all(set(row.mask) == {1} for row in rows[1:])


@pytest.mark.parametrize("think", [False, True])
@pytest.mark.parametrize("keeps", ["true", "false"])
def test_an_episode_is_one_sequence_if_the_template_keeps_the_past_and_else_each_decision_is_one(small_model, keeps, think):
    model, tokenizer = small_model[0], thinking(small_model[1], keeps, opens="true")
    asked = {"think": think, "think_tokens": 6, "history_thoughts": "all", "temperature": TEMPERATURE}
    (episode,) = play(TransformersBackend(model, tokenizer, "small"), seeds=[0], mode="text", **asked)
    rows = token_rows(episode)
    assert len(rows) == (1 if keeps == "true" else 4)
    decisions = [step.decision for step in episode.steps]
    assert any(decision.reasoning for decision in decisions) == think
    answer_start = format_of(tokenizer).answer_start(think)
    for decision in decisions[: len(rows)]:
        assert list(decision.tokens.prompt) == prompt_tokens(tokenizer, decision.messages, answer_start), "what the template writes"
    for row in rows:
        mask, played = torch.tensor(row.mask, dtype=torch.bool), torch.tensor(row.log_probs)
        torch.testing.assert_close(played[mask], plain_log_probs(model, row, TEMPERATURE)[mask], atol=1e-4, rtol=1e-4)
        unlearnt = tokenizer.decode([token for token, own in zip(row.completion, row.mask, strict=True) if not own])
        assert ("</think>" in unlearnt) >= think, "what closes a thought that was cut is not the model's"


def test_a_model_that_says_no_tokens_is_refused():
    env = make()
    policy = load_policy("scripted:go forward", env, tokens=True)
    with pytest.raises(UsageError, match=r"behind llama\.cpp or vLLM"):
        next(rollout(make, policy, [0]))


def test_a_chat_goes_on_from_an_answer_that_was_cut_off_or_ended(small_model):
    _, tokenizer = small_model
    chat = [{"role": "system", "content": "Play."}, {"role": "user", "content": "one"}]
    longer = [*chat, {"role": "assistant", "content": "go"}, {"role": "user", "content": "a <|im_end|> b"}]
    prompt, go = prompt_tokens(tokenizer, chat), tokenizer("go")["input_ids"]
    whole = prompt_tokens(tokenizer, longer)
    assert continued_tokens(tokenizer, [*prompt, *go, tokenizer.eos_token_id], longer) == whole
    assert continued_tokens(tokenizer, [*prompt, *go], longer) == whole
    odd = [*prompt, *tokenizer("g")["input_ids"], *tokenizer("o")["input_ids"]]
    assert continued_tokens(tokenizer, odd, longer) == odd + whole[len(prompt) + len(go) :]
