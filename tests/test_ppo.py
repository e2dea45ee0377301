"""PPO: what training bugs break, on a small random model."""

import dataclasses
import json
import math
import shutil

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file

from gym_text import Action, Field, TextSpec, UsageError
from gym_text.spaces import FreeText
from gym_text.text_env import Outcome, TextEnv
from gym_text_policies.training import sequences
from gym_text_policies.training.actor_critic import ActorCritic, advantages
from gym_text_policies.training.checkpoints import State, load_checkpoint
from gym_text_policies.training.ppo import PPOConfig, improved, learn, losses, play, prepare, train
from gym_text_policies.training.rows import Asked

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"),
]
GOTO = "BabyAIText-v0?task=goto&max_episode_steps=5"


class Corridor(TextEnv):
    """Go right `length` times; with a length of 1 a bandit. Any other action ends the episode, for nothing."""

    def __init__(self, *, length=3, fold=None, expert="off", render_mode=None):
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        fields = {"text": Field("where you are"), "goal": Field("the task")}
        actions = (Action("left", "go left"), Action("right", "go right"), Action("stay", "stay where you are"))
        self.text_spec = TextSpec("Walk.", fields, actions, "discrete")
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Dict({"text": FreeText(64), "goal": FreeText(64)})
        self.length, self.place = length, 0

    def _start(self, seed):
        self.place = 0
        return {"text": "Place 0.", "goal": "Walk."}

    def _play(self, action):
        self.place += 1
        over = action != 1 or self.place == self.length
        won = over and action == 1
        return Outcome({"text": f"Place {self.place}.", "goal": "Walk."}, float(won), over, success=won)


@pytest.fixture(scope="module", autouse=True)
def corridor():
    """Register the toy environment for these tests."""
    gym.register("Corridor-v0", entry_point=Corridor)
    yield
    del gym.registry["Corridor-v0"]


def settings(tiny_model, folder, **options):
    return PPOConfig(
        **{"folder": str(folder), "model": tiny_model, "environments": (GOTO,), "episodes": 8, "dev_every": 0, **options}
    )


@pytest.fixture
def played(tiny_model, tmp_path):
    """Return a configuration, a learner, and the batch of an iteration."""
    config = settings(tiny_model, tmp_path, value_iterations=0)
    torch.manual_seed(0)
    learner = ActorCritic(tiny_model)
    return config, learner, prepare(config, learner, play(config, learner, State())[1])


def test_the_ratio_is_1_at_first_and_play_and_learning_agree_and_the_untouched_model_has_kl_0(played):
    config, learner, batch = played
    sums = losses(config, learner, batch, batch.parts(range(8)))
    assert batch.rollout_gap < 1e-3, "the probabilities are those of play"
    assert float(sums["old_kl"].detach()) == pytest.approx(0, abs=1e-4) and float(sums["clipped"]) == 0
    assert float(sums["kl"].detach()) == pytest.approx(0, abs=1e-4)
    assert float(sums["policy_loss"].detach()) == pytest.approx(-float((batch.counts * batch.advantages).sum()), abs=1e-3)
    assert (batch.counts * batch.advantages).mean() == pytest.approx(0, abs=1e-5)


def test_answers_of_earlier_decisions_are_not_seen_in_blocks_of_any_size(played, monkeypatch):
    _, learner, batch = played
    found = []
    for block in (10_000, 16):
        monkeypatch.setattr(sequences, "_BLOCK", block)
        learner.model.zero_grad()
        logs = learner.judge([part.reading for part in batch.parts(range(3))]).logs
        logs[logs > float("-inf")].sum().backward()
        found.append((logs.detach(), torch.cat([weight.grad.flatten() for weight in learner.weights])))
    (whole, whole_gradient), (blocks, blocks_gradient) = found
    torch.testing.assert_close(blocks, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(blocks_gradient, whole_gradient, atol=1e-3, rtol=1e-3)


def test_kl_is_measured_to_the_adapter_that_training_began_with(tiny_model, tmp_path):
    folder = train(settings(tiny_model, tmp_path / "first", iterations=1, episodes=2, value_iterations=0, learning_rate=1e-2))
    record = json.loads((folder / "training.json").read_text())
    assert record["template"] == Asked().prompt().config["template"] and record["asked"]["mode"] == "choose"
    config = settings(tiny_model, tmp_path / "second", adapter=str(folder), value_iterations=0, learning_rate=1e-2, episodes=4)
    learner = ActorCritic(tiny_model, folder)
    with learner.reference():
        pass
    assert all(parameter.requires_grad for parameter in learner.weights)
    batch = prepare(config, learner, play(config, learner, State())[1])
    assert float(losses(config, learner, batch, batch.parts([0, 1]))["kl"].detach()) == pytest.approx(0, abs=1e-4)
    optimizer = torch.optim.AdamW(learner.weights, lr=1e-2)
    learn(dataclasses.replace(config, entropy_weight=1.0), learner, optimizer, batch, State())  # for want of rewards
    assert float(losses(config, learner, batch, batch.parts([0, 1]))["kl"].detach()) > 1e-4
    with pytest.raises(UsageError, match="expected one for"):
        ActorCritic("smollm2", folder)


def test_in_bfloat16_the_ratio_is_1_at_first_and_play_is_near(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path, episodes=4)
    torch.manual_seed(0)
    learner = ActorCritic(tiny_model, precision="bfloat16")
    batch = prepare(config, learner, play(config, learner, State())[1])
    sums = losses(config, learner, batch, batch.parts(range(4)))
    others = losses(config, learner, batch, batch.parts(reversed(range(3))))  # another packing
    assert float(others["old_kl"].detach()) == pytest.approx(0, abs=1e-2) and float(others["clipped"]) == 0
    assert 0 < batch.rollout_gap < 0.1
    assert float(sums["old_kl"].detach()) == pytest.approx(0, abs=1e-3)
    assert {weight.dtype for weight in learner.weights} == {torch.float32}
    with pytest.raises(UsageError, match="expected one of 'float32', 'bfloat16'"):
        dataclasses.replace(config, precision="float16")


@pytest.mark.parametrize("history", ["all", "0"])
def test_one_pass_of_all_episodes_equals_one_of_each_decision(tiny_model, tmp_path, history):
    found = []
    for size in (1, 40, 100_000):
        options = {"tokens_per_pass": size, "history": history, "temperature": 20.0}  # at which all actions are tried
        config = settings(tiny_model, tmp_path, **options, value_iterations=0, epochs=1, value_epochs=2, entropy_weight=0.01)
        torch.manual_seed(0)
        learner = ActorCritic(tiny_model, temperature=20.0)
        torch.nn.init.normal_(learner.head.weight)  # for values that are not 0 after the last step
        batch = prepare(config, learner, play(config, learner, State())[1])
        optimizer = torch.optim.SGD([*learner.weights, *learner.head.parameters()], lr=1.0)
        metrics = learn(config, learner, optimizer, batch, State(kl_weight=0.1))
        weights = [parameter.detach().clone() for parameter in (*learner.weights, *learner.head.parameters())]
        found.append((len(batch.parts(range(8))), metrics, batch, weights))
    (most, *one), (middle, *some), (least, *eight) = found
    assert most == len(batch.logs) >= middle >= least == 8 and most > least
    assert history == "all" or most > middle > least
    for metrics, read, weights in (one, some):
        assert metrics == pytest.approx(eight[0], abs=1e-3)
        torch.testing.assert_close(read.returns, batch.returns, atol=1e-4, rtol=1e-4)
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(weights, eight[2], strict=True))


def test_the_values_are_learnt_and_do_not_change_play(played):
    config, learner, batch = played
    before = [parameter.detach().clone() for parameter in learner.weights]
    far = dataclasses.replace(batch, returns=torch.full_like(batch.returns, 3.0), advantages=torch.zeros_like(batch.advantages))
    optimizer = torch.optim.SGD([*learner.weights, *learner.head.parameters()], lr=1e-3)
    for alone, least, most in ((0, 0.1, 0.5), (1, 2.5, 3.5)):  # about value_clip further, 0.2; alone, as far as it takes
        config = dataclasses.replace(config, value_iterations=alone, kl_weight=0.0, value_epochs=200)
        metrics = learn(config, learner, optimizer, far, State())
        assert least < float(learner.values(batch.seen).detach().mean()) < most
        assert ("kl" in metrics) == (not alone)
        assert all(torch.equal(old, new) for old, new in zip(before, learner.weights, strict=True))
    with pytest.raises(UsageError, match="train fold alone"):
        dataclasses.replace(config, environments=(f"{GOTO}&fold=train",))  # by which the dev fold would not be played


def test_actions_that_play_seldom_draws_are_left_out(tiny_model, tmp_path):
    counts, gaps = [], []
    for least in (0.0, 0.1):
        config = settings(tiny_model, tmp_path, temperature=0.2, least_probability=least, value_iterations=0)
        learner = ActorCritic(tiny_model, temperature=0.2)
        batch = prepare(config, learner, play(config, learner, State())[1])
        counts.append(
            [len(decided.answers) for part in batch.parts(range(8)) for decided in part.reading.decided if decided.answers]
        )
        gaps.append(batch.rollout_gap)
        assert float(losses(config, learner, batch, batch.parts(range(8)))["old_kl"].detach()) == pytest.approx(0, abs=1e-4)
    assert len(counts[0]) == len(counts[1]), "the same decisions"
    assert all(min(4, every) <= some <= every for every, some in zip(*counts, strict=True)) and sum(counts[1]) < sum(counts[0])
    assert max(gaps) < 1e-3, "the probabilities are those of play, among the actions that are left"
    with pytest.raises(UsageError, match=r"least_probability: expected a number from 0 to 0\.1; got 1"):
        dataclasses.replace(config, least_probability=1)


def test_it_learns_from_the_steps_that_a_win_would_take_after_each_candidate(tiny_model, tmp_path, monkeypatch):
    game = "CookingWorldText-v0?num_locations=1&num_ingredients=1&max_episode_steps=3"
    options = {"plan_advantages": True, "kl_weight": 0.0, "temperature": 20.0}
    config = settings(tiny_model, tmp_path, environments=(game,), episodes=2, episodes_per_step=2, epochs=16, **options)
    learner = ActorCritic(tiny_model, temperature=20.0)
    episodes, trajectories = play(config, learner, State())
    env = gym.make("CookingWorldText-v0", num_locations=1, num_ingredients=1, expert="replan")
    for episode, trajectory in zip(episodes, trajectories, strict=True):
        env.reset(seed=episode.seed)
        for step, place, plans in zip(episode.steps, trajectory.actions, trajectory.plans, strict=True):
            action = step.decision.action
            looks = env.unwrapped.looks_further(action)
            assert plans[place] == (min(plans) if looks else env.unwrapped.plan_steps(action))
            assert max(plans) > min(plans), "steps of a plan, and others"
            env.step(action)
    monkeypatch.setattr(ActorCritic, "reference", None)  # counts for nothing, and so is not asked
    batch = prepare(config, learner, trajectories)
    with torch.no_grad():
        before = losses(config, learner, batch, batch.parts(range(2)))["policy_loss"] / len(batch.logs)
    metrics = learn(config, learner, torch.optim.AdamW(learner.weights, 1e-2), batch, State())
    assert not metrics.keys() & {"kl", "value_loss", "explained_variance", "clipped"}
    assert metrics["policy_loss"] < 0.9 * before, "nearer to what is to be learnt"
    for names in ((), ("red", "green")):
        with pytest.raises(UsageError, match=r"plan_advantages: expected TextWorldExpress's games, .* got 'BabyAIText"):
            play(dataclasses.replace(config, environments=(GOTO,), interchangeable=names), learner, State())


def test_a_step_more_divides_the_odds_and_what_is_never_drawn_has_a_floor(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path, plan_advantages=True, plan_temperature=0.5, plan_floor=0.0)
    logs = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2], [0.5, 0.5, 0.0]]).log()
    steps = torch.tensor([[4.0, 3.0, math.inf], [math.inf, 2.0, 2.0], [math.inf, math.inf, math.inf]])
    new = improved(config, logs, steps)
    assert float(new[0, 0] / new[0, 1]) == pytest.approx(9 * math.exp(-2))
    assert new[1].tolist() == pytest.approx([0.0, 0.6, 0.4]) and new[2].tolist() == pytest.approx([0.5, 0.5, 0.0])
    floored = improved(dataclasses.replace(config, plan_floor=0.1), logs, steps)
    assert float(floored[0, 0] / floored[0, 1]) == pytest.approx((0.81 + 0.05) / (0.09 + 0.05) * math.exp(-2))
    for name, value in (("plan_floor", 0.6), ("plan_temperature", 0)):
        with pytest.raises(UsageError, match=f"{name}: expected a number .*; got {value}"):
            dataclasses.replace(config, **{name: value})


def test_it_plays_with_names_exchanged(tiny_model, tmp_path):
    plain = settings(tiny_model, tmp_path, episodes=4)
    exchanged = dataclasses.replace(plain, interchangeable=("red", "green", "blue", "purple", "yellow", "grey"))
    learner = ActorCritic(tiny_model)
    (first, _), (second, _) = (play(config, learner, State()) for config in (plain, exchanged))
    goals = [[episode.steps[0].observation["goal"] for episode in episodes] for episodes in (first, second)]
    assert [goal.split()[-1] for goal in goals[0]] == [goal.split()[-1] for goal in goals[1]] and goals[0] != goals[1]
    with pytest.raises(UsageError, match=r"^interchangeable: expected two or more different names"):
        dataclasses.replace(plain, interchangeable=("red",))


def test_truncated_is_not_terminated(played):
    config, learner, batch = played
    _, trajectories = play(config, learner, State())
    decided = [[decided for reading in trajectory.readings for decided in reading.decided] for trajectory in trajectories]
    assert any(trajectory.truncated for trajectory in trajectories)
    for trajectory, some in zip(trajectories, decided, strict=True):
        assert len(some) == len(trajectory.actions) + trajectory.truncated
    ends = learner.judge([part.reading for part in batch.parts(range(8))]).last_seen
    assert len(ends) == sum(trajectory.truncated for trajectory in trajectories)
    assert advantages([0.0], [0.0], 0.0, 0.9, 1.0) == ([0.0], [0.0])
    assert advantages([0.0], [0.0], 1.0, 0.9, 1.0) == ([0.9], [0.9]), "the value of the last observation is used"


def test_it_plays_and_learns_at_its_temperature(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path / "cold", temperature=0.01, episodes=2)
    episodes, _ = play(config, ActorCritic(tiny_model), State())
    decisions = [step.decision for episode in episodes for step in episode.steps]
    assert all(decision.probabilities[decision.action] == max(decision.probabilities.values()) for decision in decisions)
    train(dataclasses.replace(config, folder=str(tmp_path / "warm"), temperature=2.0, iterations=1))
    assert json.loads((tmp_path / "warm/metrics.jsonl").read_text())["rollout_gap"] < 1e-3
    with pytest.raises(UsageError, match=r"temperature: expected a number from 0\.01 to 100; got 200"):
        dataclasses.replace(config, temperature=200)


def test_returns_are_of_rewards_times_their_scale(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path, environments=("Corridor-v0?length=1",), reward_scale=0.25)
    learner = ActorCritic(tiny_model)
    episodes, trajectories = play(config, learner, State())
    rewards = [0.25 * episode.total_reward for episode in episodes]
    assert prepare(config, learner, trajectories).returns.tolist() == rewards and 0.25 in rewards


@pytest.mark.parametrize(("length", "iterations"), [(1, 8), (3, 10)])
def test_a_bandit_and_a_corridor_whose_reward_comes_at_the_end_are_solved(tiny_model, tmp_path, length, iterations):
    options = {"learning_rate": 5e-3, "episodes": 16, "episodes_per_step": 16, "batch": 16}
    config = settings(
        tiny_model, tmp_path / "run", environments=(f"Corridor-v0?length={length}",), iterations=iterations, **options
    )
    folder = train(dataclasses.replace(config, value_iterations=1, kl_weight=0.0, epochs=3, entropy_weight=0.01))
    successes = [line["success"] for line in json.loads((folder / "training.json").read_text())["curve"]]
    assert max(sum(successes[i : i + 3]) / 3 for i in range(iterations - 2)) > 0.9 > sum(successes[:2]) / 2


def test_the_same_seed_gives_the_same_losses_and_a_run_goes_on_where_it_was(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path / "straight", iterations=4, learning_rate=1e-3, episodes=4, dev_every=2, dev_episodes=2)
    straight = train(config)
    stopped = dataclasses.replace(config, folder=str(tmp_path / "stopped"), iterations=2)
    train(stopped)
    shutil.rmtree(tmp_path / "stopped/adapter")
    (tmp_path / "stopped/checkpoint-3.partial").mkdir()  # as a process leaves it that is killed while it writes
    resumed = train(dataclasses.replace(stopped, iterations=4))
    one, two = (load_file(folder / "adapter_model.safetensors") for folder in (straight, resumed))
    assert all(torch.equal(one[name], two[name]) for name in one)
    lines = [(folder.parent / "metrics.jsonl").read_text().splitlines() for folder in (straight, resumed)]
    assert len(lines[0]) == 4
    for a, b in zip(*(map(json.loads, each) for each in lines), strict=True):
        assert {k: v for k, v in a.items() if "seconds" not in k} == {k: v for k, v in b.items() if "seconds" not in k}
    weights = tmp_path / "stopped/checkpoint-4/optimizer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    learner = ActorCritic(tiny_model)
    with pytest.raises(UsageError, match="expected a whole checkpoint"):
        load_checkpoint(tmp_path / "stopped", learner, torch.optim.AdamW(learner.weights))
    with pytest.raises(UsageError, match="clip: stored"):
        train(dataclasses.replace(stopped, clip=0.1))
