"""GRPO: what training bugs break, on a small random model."""

import dataclasses
import functools
import json
import math
import re
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch
from safetensors.torch import load_file
from training_data import Corridor, Rich, plain_log_probs, with_random_adapter

from gym_text import UsageError
from gym_text.errors import EngineError, RunError
from gym_text_policies import cli
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.training.grpo import GRPOConfig, group_advantages, learn, make_batch, run
from gym_text_policies.training.loop import pass_sums
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.ppo import clipped_objective, generalised_advantages
from gym_text_policies.training.trajectories import play

pytestmark = [pytest.mark.usefixtures("one_thread")]


class Failing(Corridor):
    """A corridor whose engine fails, from a seed on."""

    def __init__(self, *, since=0, **arguments):
        super().__init__(length=1, **arguments)
        self.since = since

    def _start(self, seed):
        if seed % 1_000_000 >= self.since:
            raise EngineError("it fails")
        return super()._start(seed)


@pytest.fixture(scope="module", autouse=True)
def corridor():
    """Register the toy environment for these tests."""
    gym.register("Corridor-v0", entry_point=Corridor)
    gym.register("Rich-v0", entry_point=Rich, disable_env_checker=True)
    gym.register("Failing-v0", entry_point=Failing)
    yield
    del gym.registry["Corridor-v0"], gym.registry["Rich-v0"], gym.registry["Failing-v0"]


def settings(tiny_model, folder, **options):
    usual = {
        "environments": ("Corridor-v0?length=2",),
        "episodes_per_iteration": 12,
        "group_size": 6,
        "episodes_per_step": 12,
        "dev_every": 0,
    }
    return GRPOConfig(**{"folder": str(folder), "model": tiny_model, **usual, **options})


@pytest.fixture
def played(tiny_model, tmp_path):
    """Return a configuration, a model, and two levels with six episodes each, some of them won."""
    config = settings(tiny_model, tmp_path, temperature=5.0, seed=4)
    torch.manual_seed(0)
    actor = Actor(tiny_model, temperature=5.0)
    return config, actor, play(config, actor, Progress(), config.group_size)


def test_episodes_of_a_level_are_drawn_independently_and_levels_follow_each_other(played):
    _, _, trajectories = played
    assert [one.episode.seed for one in trajectories] == [0] * 6 + [1] * 6
    assert len({tuple(one.actions) for one in trajectories[:6]}) > 1


def test_advantages_of_dense_rewards_compare_what_follows_where_as_much_is_won_as_many_steps_ago():
    rewards = [[0, 1, 0, 2], [1, 0, 0, 0, 2], [0, 1, 0, 0]]
    trajectories = [SimpleNamespace(level=("game", 0), rewards=own) for own in rewards]
    trajectories.append(SimpleNamespace(level=("game", 1), rewards=[0, 5]))
    first, second, third, alone = group_advantages(trajectories, discount=0.5)
    follow = [[0.75, 1.5, 1, 2], [1.125, 0.25, 0.5, 1, 2], [0.5, 1, 0, 0]]  # worked out by hand
    assert [generalised_advantages(own, [0] * len(own), 0, 0.5, 1)[0] for own in rewards] == follow
    start, after = (0.75 + 1.125 + 0.5) / 3, (1 + 0.25 + 0) / 3  # nothing won, no step ago; 1 won, no step ago
    assert first == pytest.approx([0.75 - start, 1.5 - 1.25, 1 - after, 2 - 2.5 / 3])
    assert second == pytest.approx([1.125 - start, 0.25 - after, 0.5 - 2.5 / 3, 0, 0])  # alone at the end
    assert third == pytest.approx([0.5 - start, 1 - 1.25, 0 - after, 0 - 2.5 / 3])
    assert not alone.any(), "another level is not compared"

    first, *_ = group_advantages(trajectories, discount=0.5, decay=0)
    values = [start, 1.25, after, 2.5 / 3]  # of the first episode's situations
    assert first == pytest.approx([0 + 1.25 / 2 - start, 1 + after / 2 - 1.25, 0 + 2.5 / 6 - after, 2 - 2.5 / 3])
    half, *_ = group_advantages(trajectories, discount=0.5, decay=0.5)
    assert half == pytest.approx(generalised_advantages(rewards[0], values, 0, 0.5, 0.5)[0])


def test_decisions_that_teach_nothing_are_not_read(played):
    config, actor, trajectories = played
    advantages = group_advantages(trajectories)
    batch = make_batch(config, actor, trajectories, advantages)
    taken = [
        (one.actions[t], list(one.candidates[t].values())[one.actions[t]], own[t])
        for one, own in zip(trajectories, advantages, strict=True)
        for t in range(len(own))
        if own[t]
    ]
    assert len(taken) < sum(map(len, advantages)), "an episode that alone goes on to the end is compared with none"
    found = zip(batch.actions.tolist(), batch.old_log_probs.exp().tolist(), batch.advantages.tolist(), strict=True)
    assert [value for row in found for value in row] == pytest.approx([value for row in taken for value in row], abs=1e-6)
    assert sum(len(one.indices) for one in batch.conversations) == len(taken)
    assert sum(len(one.decisions) for one in batch.conversations) == len(taken)


def test_the_losses_are_those_of_plain_passes_and_the_ratio_is_1_at_first(played):
    config, actor, trajectories = played
    batch = make_batch(config, actor, trajectories, group_advantages(trajectories))
    objective = functools.partial(clipped_objective, batch, 0.01, 0.02)
    sums = pass_sums(actor, batch, batch.conversations, objective)
    assert float(sums["old_kl"]) == pytest.approx(0, abs=1e-3) and float(sums["clipped"]) == 0
    assert float(sums["policy_loss"].detach()) == pytest.approx(-float(batch.advantages.sum()), abs=1e-3)

    with_random_adapter(actor.model)
    sums = pass_sums(actor, batch, batch.conversations, objective)
    loss, prompt = 0.0, training_prompt(config.prompting)
    for one, own in zip(trajectories, group_advantages(trajectories), strict=True):
        prompts = prompts_of(one.episode, Corridor().text_spec, config.prompting, prompt)
        for messages, candidates, taken, advantage in zip(prompts, one.candidates, one.actions, own, strict=False):
            scores = [plain_log_probs(actor.model, actor.tokenizer, messages, answer).sum().detach() / 5 for answer in candidates]
            ratio = float(torch.stack(scores).softmax(0)[taken]) / list(candidates.values())[taken]
            loss -= min(ratio * advantage, max(0.99, min(1.02, ratio)) * advantage)
    assert float(sums["policy_loss"].detach()) == pytest.approx(loss, rel=1e-3, abs=1e-3)
    assert float(sums["clipped"]) > 0, "the clip counts"


def test_a_level_that_is_always_or_never_won_teaches_nothing_and_is_not_read(played, tiny_model):
    config, actor, trajectories = played
    lost = [one for one in trajectories if one.episode.outcome != "won"]
    optimizer = torch.optim.AdamW(actor.parameters, lr=1.0)
    before = [parameter.detach().clone() for parameter in actor.parameters]
    for kl_weight in (0.0, 0.1):
        metrics = learn(dataclasses.replace(config, kl_weight=kl_weight), actor, optimizer, Progress(), lost)
        assert metrics == {"mixed": 0.0, "learnt": 0.0}
    assert all(torch.equal(old, new) for old, new in zip(before, actor.parameters, strict=True))


def test_a_run_says_at_its_end_what_it_learnt_from_and_warns_where_that_is_nothing(tiny_model, tmp_path, caplog):
    lost = {"environments": ("Corridor-v0?length=3&max_episode_steps=1",), "iterations": 2, "dev_every": 2, "dev_episodes": 2}
    with caplog.at_level("INFO"):
        run(settings(tiny_model, tmp_path / "run", **lost))
    assert "iteration 2: nothing is learnt, as no action turned out better than another. Begin with a model" in caplog.text
    assert f"learnt from 0 of 24 decisions, so the adapter plays as {tiny_model} does" in caplog.text
    ends = f"dev fold: 0.00 before, 0.00 in the iteration that is kept. The curve: gym-text report {tmp_path}/run"
    assert ends in caplog.text


def test_it_finds_what_is_rewarded_from_a_model_that_does_not(tiny_model, tmp_path):
    options = {"environments": ("Corridor-v0?length=1",), "episodes_per_iteration": 32, "group_size": 8, "iterations": 6}
    folder = run(settings(tiny_model, tmp_path / "run", **options, episodes_per_step=16, epochs=2, learning_rate=1e-2))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["success"] < 0.6 and lines[-1]["success"] > 0.9
    assert all(math.isfinite(value) for line in lines for value in line.values())
    assert json.loads((folder / "training.json").read_text())["made_by"]["grpo"]["group_size"] == 8


def test_settings_that_make_no_groups_are_refused(tiny_model, tmp_path):
    with pytest.raises(UsageError, match="episodes_per_iteration: expected a multiple of group_size=6; got 10"):
        settings(tiny_model, tmp_path, episodes_per_iteration=10)
    with pytest.raises(UsageError, match="episodes_per_step: expected a multiple of group_size=6; got 16"):
        settings(tiny_model, tmp_path, episodes_per_step=16)
    with pytest.raises(UsageError, match="group_size"):
        settings(tiny_model, tmp_path, group_size=1)


def test_rewards_that_are_not_finite_end_the_run_and_the_last_checkpoint_is_kept(tiny_model, tmp_path, capfd):
    options = [
        "--environments=Rich-v0?since=2&worth='1e300'",
        "--episodes-per-iteration=12",
        "--group-size=6",
        "--episodes-per-step=12",
    ]
    options += [f"--model={tiny_model}", f"--folder={tmp_path}/run", "--dev-every=0", "--iterations=3", "--temperature=20"]
    assert cli.main(["grpo", *options]) == 1
    told = capfd.readouterr().err.splitlines()[-1]
    assert re.match(r"gym-text: iteration 2: expected finite numbers; \w+ is -?(inf|nan)", told)
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-1"]
    weights = load_file(tmp_path / "run/checkpoint-1/adapter_model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())
    assert not (tmp_path / "run/adapter").exists()
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1


def test_episodes_that_fail_are_told_and_counted_and_the_others_are_learnt_from(tiny_model, tmp_path, caplog):
    config = settings(tiny_model, tmp_path / "run", environments=("Failing-v0?since=1",), iterations=1)
    with caplog.at_level("WARNING"):
        run(config)
    (line,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert (line["failed"], line["episodes"]) == (6, 6)
    assert "iteration 1: 6 of 12 episodes ended in an error; of Failing-v0, seed 1: EngineError: it fails" in caplog.text
    with pytest.raises(RunError, match="iteration 1: 12 of 12 episodes ended in an error; of Failing-v0, seed 0: EngineError"):
        run(dataclasses.replace(config, folder=str(tmp_path / "all"), environments=("Failing-v0?since=0",)))
