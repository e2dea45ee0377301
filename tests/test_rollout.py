"""One loop: every seed is played once, and an episode does not depend on what runs beside it."""

import dataclasses
import threading

import gymnasium as gym
import pytest

from gym_text import EngineError, UsageError
from gym_text_policies import Decision, Policy, PolicyError, load_policy, rollout
from gym_text_policies.environments import environment_maker
from gym_text_policies.policy import text_spec


def make_cooking():
    return gym.make("CookingWorldText-v0", max_episode_steps=12)


def without_seconds(episodes):
    """Return the episodes by seed, without their timings."""
    timeless = [
        dataclasses.replace(
            e, steps=tuple(dataclasses.replace(s, decision=dataclasses.replace(s.decision, seconds=0)) for s in e.steps)
        )
        for e in episodes
    ]
    return sorted(timeless, key=lambda e: e.seed)


@pytest.mark.parametrize("env_id", ["CookingWorldText-v0", "BabyAIText-v0", "MountainCarContinuousLLM-v0"])
def test_episodes_do_not_depend_on_how_many_run_at_once(env_id):
    def play(workers, batch):
        policy = load_policy("random", gym.make(env_id), seed=5)
        make = lambda: gym.make(env_id, max_episode_steps=30)  # noqa: E731
        return without_seconds(rollout(make, policy, range(6), workers=workers, batch=batch))

    alone = play(1, 1)
    assert [e.seed for e in alone] == list(range(6))
    assert play(1, 8) == play(4, 1) == play(3, 2) == alone
    assert len({tuple(s.decision.action for s in e.steps) for e in alone}) == 6


def test_another_policy_seed_plays_otherwise():
    first, second = (
        without_seconds(rollout(make_cooking, load_policy("random", make_cooking(), seed=seed), [0])) for seed in (0, 1)
    )
    assert [s.decision.action for s in first[0].steps] != [s.decision.action for s in second[0].steps]
    assert first[0].key != second[0].key


def test_a_step_holds_what_the_environment_said():
    policy = load_policy("gold", make_cooking())
    (episode,) = rollout(lambda: gym.make("CookingWorldText-v0"), policy, [7])
    env = gym.make("CookingWorldText-v0")
    obs, info = env.reset(seed=7)
    assert [s.decision.action for s in episode.steps] == list(info["gold_path"])
    for step in episode.steps:
        assert step.observation == obs | {"valid_actions": list(obs["valid_actions"])}
        assert step.gold_action == info["gold_action"] == step.decision.action
        obs, reward, terminated, truncated, info = env.step(step.decision.action)
        assert (step.reward, step.terminated, step.truncated) == (reward, terminated, truncated)
        assert (step.success, step.failure, step.score) == (info["success"], info["failure"], info["score"])
    assert episode.last_observation["text"] == obs["text"]
    assert episode.outcome == "won" and episode.total_reward == pytest.approx(1.0)


class Faulty(Policy):
    """Plays the first action, and fails in the third step of odd episodes."""

    config = {"kind": "faulty"}  # noqa: RUF012

    def decide(self, turns):
        if any(turn.step == 2 and int(turn.episode.split("-")[1]) % 2 for turn in turns):
            raise PolicyError("the provider answered 500")
        return [Decision(self.spec.names(turn.obs)[0]) for turn in turns]


@pytest.mark.parametrize(("workers", "batch"), [(1, 8), (4, 1)])
def test_a_failing_decision_ends_its_own_episode_and_no_other(workers, batch):
    policy = Faulty(text_spec(make_cooking()))
    episodes = list(rollout(make_cooking, policy, range(8), workers=workers, batch=batch))
    assert sorted(e.seed for e in episodes) == list(range(8))
    failed = [e for e in episodes if e.outcome == "error"]
    assert len(failed) == 4
    assert all(e.error == "PolicyError: the provider answered 500" and e.length == 2 for e in failed)
    assert all(e.outcome == "truncated" and e.length == 12 for e in episodes if e not in failed)


class BrokenGame(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """A game whose level 1 cannot be generated."""

    def __init__(self, env):
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed=None, options=None):
        if seed == 1:
            raise EngineError("no such level")
        return super().reset(seed=seed, options=options)


def test_a_level_that_cannot_begin_is_an_error_episode_without_steps():
    policy = load_policy("random", make_cooking())
    episodes = {e.seed: e for e in rollout(lambda: BrokenGame(make_cooking()), policy, range(3))}
    assert (episodes[1].outcome, episodes[1].length, episodes[1].error) == ("error", 0, "EngineError: no such level")
    assert episodes[0].length == episodes[2].length == 12


@pytest.mark.parametrize("workers", [1, 3])
def test_a_mistake_in_the_program_ends_the_run(workers):
    class Wrong(Faulty):
        def decide(self, turns):
            raise KeyError("typo")

    with pytest.raises(KeyError, match="typo"):
        list(rollout(make_cooking, Wrong(text_spec(make_cooking())), range(4), workers=workers, batch=1))


def test_a_slow_answer_holds_up_only_its_own_episode():
    ended, waited, finished = threading.Event(), [], 0

    class Slow(Faulty):
        def decide(self, turns):
            if turns[0].episode.endswith("-0"):
                waited.append(ended.wait(300))
            return [Decision(self.spec.names(turn.obs)[0]) for turn in turns]

    for _ in rollout(make_cooking, Slow(text_spec(make_cooking())), range(4), workers=2, batch=1):
        finished += 1
        if finished == 3:
            ended.set()
    assert finished == 4 and waited and all(waited)


def test_leaving_the_loop_early_does_not_wait_for_slow_answers():
    left, answered = threading.Event(), []

    class Endless(Faulty):
        def decide(self, turns):
            if turns[0].step == 1 and not turns[0].episode.endswith("-0"):
                left.wait(60)
                answered.append(turns[0].episode)
            return [Decision(self.spec.names(turn.obs)[0]) for turn in turns]

    for _ in rollout(make_cooking, Endless(text_spec(make_cooking())), range(4), workers=4, batch=1):
        break
    waited_for = list(answered)
    left.set()
    assert waited_for == []


def test_the_number_of_decisions_is_reported_as_they_are_made():
    counts = []
    (episode,) = rollout(make_cooking, load_policy("random", make_cooking()), [0], watch=counts.append)
    assert sum(counts) == episode.length


def test_a_loop_without_workers_is_refused():
    with pytest.raises(UsageError, match="workers=0"):
        list(rollout(make_cooking, load_policy("random", make_cooking()), [0], workers=0))


def test_an_episode_knows_its_level_which_seeds_beyond_the_fold_play_again():
    def levels(make_env, seeds):
        return [episode.level for episode in rollout(make_env, load_policy("random", make_env()), seeds, batch=1)]

    cooking = levels(lambda: gym.make("CookingWorldText-v0", fold="test", max_episode_steps=1), (0, 1, 1000))
    assert cooking[0] == cooking[2] != cooking[1]
    lake = environment_maker("FrozenLake-v1", fold="test", max_episode_steps=1)
    assert levels(lake, (0, 1, 1_000_000)) == [3_000_000, 3_000_001, 3_000_000]
    assert levels(lambda: gym.make("BabyAIText-v0", max_episode_steps=1), (0, 1_000_000)) == [0, 1_000_000]
