"""Decisions as arrays, and the loop in the docs that learns from them."""

import dataclasses
import functools

import gymnasium as gym
import pytest
import torch
from training_data import plain_log_probs, thinking
from transformers import AutoModelForCausalLM, AutoTokenizer

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.data.arrays import decisions_of

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
]
make_env = functools.partial(gym.make, "BabyAIText-v0", task="goto", fold="train", expert="off", max_episode_steps=4)


@pytest.fixture(scope="module")
def learner(tiny_model):
    """Return a small model and its tokenizer."""
    return AutoModelForCausalLM.from_pretrained(tiny_model), AutoTokenizer.from_pretrained(tiny_model)


def test_arrays_are_what_was_played_and_log_probs_those_of_plain_passes(tiny_model, learner):
    policy = load_policy(tiny_model, make_env(), mode="choose", temperature=2.0)
    episodes = sorted(rollout(make_env, policy, [3, 4]), key=lambda episode: episode.seed)
    decisions = decisions_of(episodes, learner[1])
    steps = [(number, episode, step) for number, episode in enumerate(episodes) for step in episode.steps]
    assert len(decisions) == len(steps)
    for i, (number, episode, step) in enumerate(steps):
        assert (decisions.episodes[i], decisions.groups[i]) == (number, episode.seed)
        assert (decisions.rewards[i], decisions.returns[i]) == (step.reward, episode.total_reward)
        names = list(step.decision.probabilities)
        assert names[decisions.actions[i]] == step.decision.action
        assert learner[1].decode(decisions.candidates[i][0][:-1]) == names[0]
        with torch.no_grad():
            scores = [plain_log_probs(*learner, step.decision.messages, name).sum() / 2 for name in names]
        assert decisions.log_probs[i] == pytest.approx(float(torch.stack(scores).log_softmax(0)[decisions.actions[i]]), abs=1e-4)


def test_a_model_with_thoughts_gives_arrays_of_its_play_without_them_and_no_others(tiny_model, learner):
    policy = load_policy(tiny_model, make_env(), mode="choose")
    (episode,) = rollout(make_env, policy, [3])
    tokenizer = thinking(learner[1])
    with pytest.raises(UsageError, match="expected decisions without thoughts"):
        decisions_of([episode], tokenizer)
    decisions = decisions_of([dataclasses.replace(episode, policy={**episode.policy, "think": False})], tokenizer)
    assert tokenizer.decode(decisions.prompts[0]).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_decisions_without_probabilities_are_refused(learner):
    episodes = rollout(make_env, load_policy("random", make_env()), [0])
    with pytest.raises(UsageError, match="expected decisions of a language model in mode 'choose'"):
        decisions_of(episodes, learner[1])
