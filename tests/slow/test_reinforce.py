"""The loop in the docs that learns from decisions as arrays."""

import functools
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from training_data import plain_log_probs
from transformers import AutoModelForCausalLM, AutoTokenizer

from gym_text_policies import load_policy, rollout

pytestmark = pytest.mark.usefixtures("one_thread")
make_env = functools.partial(gym.make, "BabyAIText-v0", task="goto", fold="train", expert="off", max_episode_steps=4)


@pytest.fixture(scope="module")
def learner(tiny_model):
    """Return a small model and its tokenizer."""
    return AutoModelForCausalLM.from_pretrained(tiny_model), AutoTokenizer.from_pretrained(tiny_model)


def test_the_loop_in_the_docs_takes_its_step_along_the_gradient_of_plain_passes(learner, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")
    import reinforce

    model, tokenizer = learner
    policy = load_policy("scripted:go forward", make_env())
    (episode, *_) = rollout(make_env, policy, [0])
    prompts = [[{"role": "user", "content": text}] for text in (str(episode.steps[0].observation["text"]), "Where are you?")]
    names = ["turn left", "go forward", "drop"]
    asked = [tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"] for prompt in prompts]
    candidates = [np.array([*tokenizer(name)["input_ids"], tokenizer.eos_token_id]) for name in names]
    found = reinforce.scores(model, [np.array(tokens) for tokens in asked], [candidates] * 2, tokenizer.eos_token_id)
    expected = [[plain_log_probs(model, tokenizer, prompt, name).sum() for name in names] for prompt in prompts]
    torch.testing.assert_close(found, torch.stack([torch.stack(row) for row in expected]), atol=1e-4, rtol=1e-4)

    before = [parameter.detach().clone() for parameter in model.parameters()]
    longer = functools.partial(make_env, max_episode_steps=48)
    (won,) = reinforce.train(model, tokenizer, longer, iterations=1, temperature=100.0, learning_rate=1e-3)
    assert 0 < won < 1
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert any(changed), "some episodes of a level were won, and some lost"
    sys.modules.pop("reinforce")
