"""PPO: what training bugs break, on a small random model."""

import dataclasses
import functools
import json
import math
import shutil

import gymnasium as gym
import pytest
import torch
from safetensors.torch import load_file
from training_data import GOTO, Corridor, Rich, plain_log_probs, with_random_adapter

from gym_text import UsageError
from gym_text.errors import RunError
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.policies.config import TRAINED
from gym_text_policies.training import ppo
from gym_text_policies.training.loop import pass_sums
from gym_text_policies.training.model.actor_critic import ActorCritic, Critic
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.ppo import PPOConfig, clipped_objective, generalised_advantages, make_batch, run, update
from gym_text_policies.training.trajectories import play

pytestmark = [pytest.mark.usefixtures("one_thread")]
SHORT = f"{GOTO}&max_episode_steps=5"


def settings(tiny_model, folder, **options):
    return PPOConfig(
        **{
            "folder": str(folder),
            "model": tiny_model,
            "environments": (SHORT,),
            "episodes_per_iteration": 8,
            "group_size": 1,
            "kl_weight": 0.05,
            "dev_every": 0,
            **options,
        }
    )


@pytest.fixture(scope="module", autouse=True)
def corridor():
    """Register the toy environment for these tests."""
    gym.register("Corridor-v0", entry_point=Corridor)
    gym.register("Rich-v0", entry_point=Rich, disable_env_checker=True)
    yield
    del gym.registry["Corridor-v0"], gym.registry["Rich-v0"]


@pytest.fixture
def played(tiny_model, tmp_path):
    """Return a configuration, a learner, and the batch of an iteration of which some episodes are won."""
    config = settings(tiny_model, tmp_path, environments=(SHORT, "Corridor-v0?length=1"))
    torch.manual_seed(0)
    learner = ActorCritic(tiny_model)
    return config, learner, make_batch(config, learner, play(config, learner, Progress()))


def sums_of(learner, batch, episodes):
    """Return the losses of some episodes, read in one pass."""
    conversations = [conversation for episode in episodes for conversation in batch.parts[episode]]
    return pass_sums(learner, batch, conversations, functools.partial(clipped_objective, batch, ppo.CLIP, ppo.CLIP))


def test_the_ratio_is_1_at_first_and_play_and_learning_agree_and_the_untouched_model_has_kl_0(played):
    _, learner, batch = played
    sums = sums_of(learner, batch, range(len(batch.parts)))
    assert batch.rollout["rollout_gap"] < 1e-3 and abs(batch.rollout["rollout_kl"]) < 1e-5, "the probabilities are those of play"
    assert float(sums["old_kl"].detach()) == pytest.approx(0, abs=1e-4) and float(sums["clipped"]) == 0
    assert float(sums["kl"].detach()) == pytest.approx(0, abs=1e-4)
    assert float(sums["policy_loss"].detach()) == pytest.approx(-float(batch.advantages.sum()), abs=1e-3)
    assert 1 < len(batch.advantages) < len(batch.returns) and batch.advantages.std() > 0.5, "the others teach next to nothing"


def test_the_losses_are_those_of_plain_passes_once_the_policy_has_moved(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(ppo, "CLIP", 0.1)
    monkeypatch.setattr(ppo, "LEAST_WEIGHT", 0.0)
    options = {"environments": ("Corridor-v0?length=2",), "episodes_per_iteration": 6, "seed": 5}  # by which it wins once
    config = settings(tiny_model, tmp_path, **options)
    learner = ActorCritic(tiny_model)
    trajectories = play(config, learner, Progress())
    batch = make_batch(config, learner, trajectories)
    with_random_adapter(learner.model)
    sums = {name: float(value.detach()) for name, value in sums_of(learner, batch, range(6)).items()}

    expected = dict.fromkeys(sums, 0.0)
    advantages = iter(batch.advantages.tolist())
    for trajectory in trajectories:
        prompts = prompts_of(trajectory.episode, Corridor().text_spec, config.prompting, training_prompt(config.prompting))
        for messages, candidates, taken in zip(prompts, trajectory.candidates, trajectory.actions, strict=False):
            scores = [plain_log_probs(learner.model, learner.tokenizer, messages, answer).sum().detach() for answer in candidates]
            new, old = torch.stack(scores).softmax(0).tolist(), list(candidates.values())
            advantage, ratio = next(advantages), new[taken] / old[taken]
            expected["policy_loss"] -= min(ratio * advantage, max(0.9, min(1.1, ratio)) * advantage)
            expected["old_kl"] += ratio - 1 - math.log(ratio)
            expected["clipped"] += not 0.9 <= ratio <= 1.1
            expected["entropy"] -= sum(p * math.log(p) for p in new)
            expected["kl"] += sum(p * math.log(p / q) for p, q in zip(new, old, strict=True))  # it began as it played
    assert sums == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert abs(sums["policy_loss"]) > 0.1 and sums["clipped"] > 0, "the clip counts"


def test_kl_is_measured_to_the_adapter_that_training_began_with(tiny_model, tmp_path):
    options = {"learning_rate": 1e-2}
    folder = run(settings(tiny_model, tmp_path / "first", iterations=1, episodes_per_iteration=2, **options))
    record = json.loads((folder / "training.json").read_text())
    assert record["template"] == training_prompt(TRAINED).config["template"] and record["asked"]["mode"] == "choose"
    config = settings(tiny_model, tmp_path / "second", model=str(folder), episodes_per_iteration=4, **options)
    learner = ActorCritic(str(folder))
    with learner.reference():
        pass
    assert all(parameter.requires_grad for parameter in learner.parameters)
    batch = make_batch(config, learner, play(config, learner, Progress()))
    assert float(sums_of(learner, batch, [0, 1])["kl"].detach()) == pytest.approx(0, abs=1e-4)
    optimizer = torch.optim.AdamW(learner.parameters, lr=1e-2)
    rewarded = dataclasses.replace(batch, advantages=torch.linspace(-1, 1, len(batch.advantages)))  # no episode is won
    update(config, learner, optimizer, Progress(), rewarded)
    assert float(sums_of(learner, batch, [0, 1])["kl"].detach()) > 1e-4


def test_in_bfloat16_the_ratio_is_1_at_first_and_play_is_near(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path, episodes_per_iteration=4)
    torch.manual_seed(0)
    learner = ActorCritic(tiny_model, dtype="bfloat16")
    batch = make_batch(config, learner, play(config, learner, Progress()))
    sums = sums_of(learner, batch, range(4))
    others = sums_of(learner, batch, [2, 1, 0])  # another packing
    assert float(others["old_kl"].detach()) == pytest.approx(0, abs=1e-2) and float(others["clipped"]) == 0
    assert 0 < batch.rollout["rollout_gap"] < 0.1 and abs(batch.rollout["rollout_kl"]) < 0.01
    assert float(sums["old_kl"].detach()) == pytest.approx(0, abs=1e-3)
    assert {weight.dtype for weight in learner.parameters} == {torch.float32}
    with pytest.raises(UsageError, match="expected one of 'float32', 'bfloat16'"):
        dataclasses.replace(config, dtype="float16")


def test_one_pass_of_all_episodes_equals_one_of_each_decision(tiny_model, tmp_path, monkeypatch):
    found = []
    for size in (1, 40, 100_000):
        options = {"tokens_per_pass": size, "temperature": 20.0}  # at which all actions are tried
        config = settings(tiny_model, tmp_path, **options, epochs=1, kl_weight=0.1)
        vars(config)["prompting"] = dataclasses.replace(config.prompting, history=0)
        torch.manual_seed(0)
        learner = ActorCritic(tiny_model, temperature=20.0)
        learner.critic = Critic(torch.randn_like(learner.critic.weight), learner.critic.bias)  # the last observation has a value
        batch = make_batch(config, learner, play(config, learner, Progress()))
        metrics = update(config, learner, torch.optim.SGD(learner.parameters, lr=1.0), Progress(), batch)
        weights = [parameter.detach().clone() for parameter in learner.parameters]
        found.append((len(batch.conversations), metrics, batch, weights))
    (most, *one), (middle, *some), (least, *eight) = found
    assert most == len(batch.old_log_probs) >= middle >= least == 8 and most > least
    assert most > middle > least
    for metrics, read, weights in (one, some):
        assert metrics == pytest.approx(eight[0], abs=1e-3)
        torch.testing.assert_close(read.returns, batch.returns, atol=1e-4, rtol=1e-4)
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(weights, eight[2], strict=True))


def test_the_values_of_a_level_are_not_fitted_to_its_own_returns(played):
    config, learner, _ = played
    trajectories = play(config, learner, Progress())
    first = trajectories[0].episode.length  # the only episode of its level
    rich = dataclasses.replace(trajectories[0].episode.steps[0], reward=100.0)
    trajectories[0] = dataclasses.replace(
        trajectories[0], episode=dataclasses.replace(trajectories[0].episode, steps=(rich, *trajectories[0].episode.steps[1:]))
    )
    one, other = make_batch(config, learner, play(config, learner, Progress())), make_batch(config, learner, trajectories)
    assert other.returns[0] == one.returns[0] + 100 and torch.equal(one.values[:first], other.values[:first])
    assert not torch.allclose(one.values[first:], other.values[first:]), "the other levels' values are"
    before = [parameter.detach().clone() for parameter in learner.parameters]
    update(config, learner, torch.optim.SGD(learner.parameters, lr=0.0), Progress(), other)
    assert learner.critic is other.critic and all(torch.equal(a, b) for a, b in zip(before, learner.parameters, strict=True))


def test_an_action_that_changes_nothing_costs_what_the_discount_takes_from_the_value():
    assert generalised_advantages([0.0, 1.0], [0.5, 0.5], 0.0, 0.9, 0.0)[0] == pytest.approx([-0.05, 0.5])


def test_a_corridor_whose_reward_comes_at_the_end_is_solved(tiny_model, tmp_path):
    length, iterations, seed = 3, 10, 2
    options = {"learning_rate": 5e-3, "episodes_per_iteration": 16, "episodes_per_step": 16, "seed": seed}
    config = settings(
        tiny_model, tmp_path / "run", environments=(f"Corridor-v0?length={length}",), iterations=iterations, **options
    )
    folder = run(dataclasses.replace(config, kl_weight=0.0, epochs=3))
    successes = [line["success"] for line in json.loads((folder / "training.json").read_text())["curve"]]
    assert max(sum(successes[i : i + 3]) / 3 for i in range(iterations - 2)) > 0.9 > sum(successes[:2]) / 2


def test_the_same_seed_gives_the_same_losses_and_a_run_goes_on_where_it_was(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(PPOConfig, "schedule", "constant")  # else the rate depends on the number of iterations
    config = settings(
        tiny_model, tmp_path / "straight", iterations=4, learning_rate=1e-3, episodes_per_iteration=4, dev_every=2, dev_episodes=2
    )
    straight = run(config)
    stopped = dataclasses.replace(config, folder=str(tmp_path / "stopped"), iterations=2)
    run(stopped)
    shutil.rmtree(tmp_path / "stopped/adapter")
    (tmp_path / "stopped/checkpoint-3.partial").mkdir()  # as a process leaves it that is killed while it writes
    resumed = run(dataclasses.replace(stopped, iterations=4))
    one, two = (load_file(folder / "adapter_model.safetensors") for folder in (straight, resumed))
    assert all(torch.equal(one[name], two[name]) for name in one)
    lines = [(folder.parent / "metrics.jsonl").read_text().splitlines() for folder in (straight, resumed)]
    assert [("dev_success" in line, "return" in line) for line in map(json.loads, lines[0])] == [
        *((True, False), (False, True), (True, True), (False, True), (True, True))
    ], "the dev fold is played before learning, too"
    for a, b in zip(*(map(json.loads, each) for each in lines), strict=True):
        assert all(a[name] == b[name] for name in a.keys() | b.keys() if name not in ("minutes", "seconds_play", "seconds_learn"))
    with pytest.raises(UsageError, match="discount: stored"):
        run(dataclasses.replace(stopped, discount=0.8))


def test_returns_beyond_what_32_bits_hold_end_the_run_before_any_weight_changes(tiny_model, tmp_path):
    options = {"environments": ("Rich-v0?since=8&worth=1e200",), "iterations": 2}
    with pytest.raises(RunError, match="iteration 2: expected finite numbers; returns is inf"):
        run(settings(tiny_model, tmp_path / "run", **options))
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-1"]


def test_a_loss_or_gradient_that_is_not_finite_changes_no_weight(played):
    config, learner, batch = played
    optimizer = torch.optim.SGD(learner.parameters, lr=1.0)
    before = [parameter.detach().clone() for parameter in learner.parameters]
    far = dataclasses.replace(batch, old_log_probs=batch.old_log_probs - 200)  # a ratio of e to the power of 200
    with pytest.raises(RunError, match=r"iteration 1: expected finite numbers; .* is (inf|nan)"):
        update(config, learner, optimizer, Progress(), far)
    handle = learner.parameters[0].register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(RunError, match=r"iteration 1: expected finite numbers; grad_norm is (inf|nan)"):
        update(config, learner, optimizer, Progress(), batch)
    handle.remove()
    assert all(torch.equal(old, new) for old, new in zip(before, learner.parameters, strict=True))
