"""An actor's probabilities are those of plain passes, one for each candidate."""

import gymnasium as gym
import pytest
import torch
from training_data import GOTO, plain_log_probs, with_random_adapter

from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.policy import text_spec
from gym_text_policies.training.model import layouts
from gym_text_policies.training.model.actor_critic import Actor, ActorCritic, Critic
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.ppo import PPOConfig
from gym_text_policies.training.trajectories import play

pytestmark = [pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def played(tiny_model):
    """Return an actor whose adapter changes what it says, an episode of its own, its candidates, their plain log-probabilities."""
    options = {"episodes_per_iteration": 1, "group_size": 1, "temperature": 2.0}
    config = PPOConfig(model=tiny_model, environments=(f"{GOTO}&max_episode_steps=3",), **options)
    actor = ActorCritic(tiny_model, temperature=2.0)
    with_random_adapter(actor.model)
    (trajectory,) = play(config, actor, Progress())
    spec = text_spec(gym.make("BabyAIText-v0", task="goto"))
    prompts = prompts_of(trajectory.episode, spec, config.prompting, training_prompt(config.prompting))
    plain = []
    for messages, candidates in zip(prompts, trajectory.candidates, strict=False):  # none after the last step
        scores = [plain_log_probs(actor.model, actor.tokenizer, messages, answer).sum() / 2 for answer in candidates]
        plain.append(torch.stack(scores).log_softmax(0))
    return actor, trajectory.conversations(config, actor), trajectory.candidates, torch.stack(plain)


def gradient(actor, log_probs):
    """Return the gradient of log-probabilities, weighted so that none cancels another."""
    actor.model.zero_grad()
    (log_probs * torch.arange(1, log_probs.numel() + 1).reshape(log_probs.shape)).sum().backward(retain_graph=True)
    return torch.cat([parameter.grad.flatten() for parameter in actor.parameters])


@pytest.mark.parametrize(("packs", "most"), [(True, 10_000), (True, 16), (False, 100_000), (False, 16)])
def test_decisions_have_the_probabilities_and_gradients_of_plain_passes_packed_and_padded(played, packs, most, monkeypatch):
    actor, conversations, _, plain = played
    monkeypatch.setattr(actor.model, "packs", packs)
    monkeypatch.setattr(layouts, "_BLOCK", most)
    monkeypatch.setattr(layouts, "_PADDED_TOKENS", most)
    evaluation = actor.evaluate(conversations)
    torch.testing.assert_close(evaluation.log_probs, plain, atol=1e-4, rtol=1e-4)
    expected = gradient(actor, plain)
    torch.testing.assert_close(gradient(actor, evaluation.log_probs), expected, atol=1e-3 * float(expected.abs().max()), rtol=1e-3)
    monkeypatch.setattr(actor.model, "packs", True)
    torch.testing.assert_close(evaluation.hidden, actor.evaluate(conversations).hidden, atol=1e-4, rtol=1e-4)
    assert not evaluation.hidden.requires_grad, "what the critic learns does not change the actor"


def test_layers_that_compute_again_have_the_same_gradients_and_keep_less(played, tiny_model):
    _, conversations, _, _ = played
    kept, found = [], []

    def keep(tensor):
        kept[-1] += 1
        return tensor

    for gradient_checkpointing in (False, True):
        actor = Actor(tiny_model, gradient_checkpointing=gradient_checkpointing)
        with_random_adapter(actor.model)
        kept.append(0)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            log_probs = actor.evaluate(conversations).log_probs
        found.append((log_probs.detach(), gradient(actor, log_probs)))
        actor.player()  # a copy without it
    assert kept[1] < kept[0] / 4
    torch.testing.assert_close(found[1], found[0])


def test_play_draws_by_the_probabilities_that_are_learnt(played):
    _, _, drawn, plain = played
    for candidates, log_probs in zip(drawn, plain, strict=True):
        assert list(candidates.values()) == pytest.approx(log_probs.exp().tolist(), abs=1e-4)


def test_the_reference_is_the_model_without_the_new_adapter(played, tiny_model):
    actor, conversations, _, plain = played
    with torch.no_grad(), actor.reference():
        reference = actor.evaluate(conversations).log_probs
        untrained = Actor(tiny_model, temperature=2.0).evaluate(conversations).log_probs
    torch.testing.assert_close(reference, untrained)
    assert (reference - plain).abs().max() > 1e-3


def test_a_critic_fits_the_returns_by_least_squares_and_stays_as_it_was_where_the_states_tell_nothing():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(20_000, 8, generator=generator)  # many more than RIDGE
    states[:, 7] = 3.0  # in all states
    returns = states[:, 0] - 2 * states[:, 1] + 5
    before = Critic(torch.arange(8.0).double(), torch.tensor(1.0).double())
    fitted = before.fitted(states, returns)
    assert float((fitted.values(states) - returns).abs().max()) < 0.05 * float((before.values(states) - returns).abs().max())
    assert fitted.weight[7] == pytest.approx(7.0) and float(fitted.values(states).mean()) == pytest.approx(float(returns.mean()))
    assert all(torch.equal(one, two) for one, two in zip(before.fitted(states[:0], returns[:0]), before, strict=True))
