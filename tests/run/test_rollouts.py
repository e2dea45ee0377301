"""One loop: every seed is played once, and an episode does not depend on what runs beside it."""

import dataclasses
import json
import threading

import gymnasium as gym
import numpy as np
import pytest
from episodes import without_seconds

from gym_text import UsageError
from gym_text.errors import BudgetError
from gym_text_policies import Decision, Policy, PolicyError, ScriptedBackend, load_policy, rollout
from gym_text_policies.environments import environment_maker
from gym_text_policies.policy import text_spec


def make_cooking():
    return gym.make("CookingWorldText-v0", max_episode_steps=12)


@pytest.mark.parametrize("env_id", ["CookingWorldText-v0", "MountainCarContinuousLLM-v0"])
def test_episodes_do_not_depend_on_how_many_run_at_once(env_id):
    def play(workers, num_envs):
        policy = load_policy("random", gym.make(env_id), seed=5)
        make = lambda: gym.make(env_id, max_episode_steps=30)  # noqa: E731
        return without_seconds(rollout(make, policy, range(6), workers=workers, num_envs=num_envs))

    alone = play(1, 1)
    assert [e.seed for e in alone] == list(range(6))
    assert play(1, 8) == play(4, 1) == play(3, 2) == alone
    assert len({tuple(s.decision.action for s in e.steps) for e in alone}) == 6


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


@pytest.mark.parametrize(("workers", "num_envs"), [(1, 8), (4, 1)])
def test_a_failing_decision_ends_its_own_episode_and_no_other(workers, num_envs):
    policy = Faulty(text_spec(make_cooking()))
    episodes = list(rollout(make_cooking, policy, range(8), workers=workers, num_envs=num_envs))
    assert sorted(e.seed for e in episodes) == list(range(8))
    failed = [e for e in episodes if e.outcome == "error"]
    assert len(failed) == 4
    expected = "PolicyError: the provider answered 500 (CookingWorldText-v0, seed {}, step 3)"
    assert all(e.error == expected.format(e.seed) and e.length == 2 and e.traceback is None for e in failed)
    assert all(e.outcome == "truncated" and e.length == 12 for e in episodes if e not in failed)


class FailsInOne(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """A game of a user's that fails in the third step of seed 1, or at its start, in a given way. Then it is broken for good."""

    def __init__(self, env, fail, at_reset=False):
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.fail, self.at_reset, self.broken = fail, at_reset, False

    def reset(self, *, seed=None, options=None):
        if self.broken:
            raise OSError("broken for good")
        self.seed, self.steps = seed, 0
        return self._changed(super().reset(seed=seed, options=options), now=self.at_reset)

    def step(self, action):
        self.steps += 1
        return self._changed(super().step(action), now=self.steps == 3 and not self.at_reset)

    def _changed(self, result, now):
        if not (now and self.seed == 1):
            return result
        self.broken = True
        return self.fail(result)


def raises(result):
    raise ZeroDivisionError("of the user's\nin two lines")


def refuses(result):
    raise UsageError("level: expected another one")


def with_obs(**changes):
    return lambda result: (result[0] | changes, *result[1:])


HOSTILE = {
    "raises": (raises, "ZeroDivisionError: of the user's (CookingWorldText-v0, seed 1, {})\nin two lines"),
    "refuses": (refuses, "UsageError: level: expected another one (CookingWorldText-v0, seed 1, {})"),
    "reward NaN": (lambda r: (r[0], float("nan"), *r[2:]), "EngineError: reward: expected a finite number (at most 1e300)"),
    "score NaN": (lambda r: (*r[:4], r[4] | {"score": float("nan")}), "EngineError: score: expected a finite number"),
    "observation NaN": (
        with_obs(look=np.array([1.0, np.nan])),
        "EngineError: observation['look']: expected plain JSON with finite",
    ),
    "no actions": (with_obs(valid_actions=()), "EngineError: valid_actions: expected the name of an action"),
    "key gone": (lambda r: ({k: v for k, v in r[0].items() if k != "look"}, *r[1:]), "KeyError: 'look' ("),
    "nothing": (lambda r: None, "TypeError: "),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_an_environment_does_in_one_episode_ends_that_episode_alone(name):
    fail, expected = HOSTILE[name]
    policy = load_policy("random", make_cooking())
    make = lambda: FailsInOne(make_cooking(), fail)  # noqa: E731
    episodes = {e.seed: e for e in rollout(make, policy, range(4), workers=2, num_envs=1)}
    assert sorted(episodes) == [0, 1, 2, 3] and [e.seed for e in episodes.values() if e.error] == [1]
    assert episodes[1].error.startswith(expected.format("step 3")) and "(CookingWorldText-v0, seed 1, step 3)" in episodes[1].error
    assert episodes[1].length == 2 and episodes[1].last_observation["text"]
    json.dumps(episodes[1].to_json(), allow_nan=False)


def test_an_environment_that_broke_at_reset_is_made_anew():
    fail, expected = HOSTILE["raises"]
    make = lambda: FailsInOne(make_cooking(), fail, at_reset=True)  # noqa: E731
    episodes = {e.seed: e for e in rollout(make, load_policy("random", make_cooking()), range(4), num_envs=1)}
    assert [seed for seed, episode in sorted(episodes.items()) if not episode.error] == [0, 2, 3]
    assert (
        episodes[1].error.startswith(expected.format("at reset")) and "(CookingWorldText-v0, seed 1, at reset)" in episodes[1].error
    )


class Wrong(Policy):
    """Does something that no policy may, at the second step of the game that has the goal of seed 1."""

    config = {"kind": "wrong"}  # noqa: RUF012

    def __init__(self, answer):
        super().__init__(text_spec(make_cooking()))
        self.answer, self.look = answer, make_cooking().reset(seed=1)[0]["look"]

    def decide(self, turns):
        first = [Decision(self.spec.names(turn.obs)[0]) for turn in turns]
        bad = [turn.step == 1 and turn.episode.endswith("-1") for turn in turns]
        return [self.answer(decision) if wrong else decision for decision, wrong in zip(first, bad, strict=True)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda decision: {}["typo"], "KeyError: 'typo' ("),
        (lambda decision: None, "PolicyError: Wrong.decide: expected a list with a Decision for each of 1 turns; got [None]. ("),
        (lambda decision: dataclasses.replace(decision, cost=float("nan")), "PolicyError: Wrong.decide: cost: expected a finite"),
        (lambda decision: dataclasses.replace(decision, probabilities={"a": np.nan}), "PolicyError: Wrong.decide: probabilities: "),
    ],
)
def test_whatever_a_policy_does_in_one_episode_ends_that_episode_alone(answer, expected):
    episodes = list(rollout(make_cooking, Wrong(answer), range(4), num_envs=8))
    assert sorted(e.seed for e in episodes) == [0, 1, 2, 3]
    (failed,) = [e for e in episodes if e.error]
    assert failed.error.startswith(expected) and f"(CookingWorldText-v0, seed {failed.seed}, step 2)" in failed.error
    assert failed.length == 1


@pytest.mark.parametrize("error", [UsageError("a setting"), BudgetError("spent"), KeyboardInterrupt()])
@pytest.mark.parametrize("workers", [1, 3])
def test_what_no_other_episode_would_escape_ends_the_run(error, workers):
    def refuse(decision):
        raise error

    with pytest.raises(type(error)):
        list(rollout(make_cooking, Wrong(refuse), range(4), workers=workers, num_envs=1))


def test_a_name_that_is_no_action_ends_its_episode_and_not_the_run():
    make = lambda: gym.make("CookingWorldText-v0", actions="index", max_episode_steps=6)  # noqa: E731
    policy = load_policy("scripted:nonsense", make(), on_invalid="open fridge")
    episodes = list(rollout(make, policy, range(6)))
    assert len(episodes) == 6 and all(e.error is None or e.error.startswith("InvalidActionError: ") for e in episodes)
    assert any(e.error for e in episodes)


@pytest.mark.parametrize("on_invalid", ["raise", "random", "retry"])
def test_a_model_that_is_drawn_and_fails_gives_equal_episodes_in_batches_and_alone(on_invalid):
    def answer(request):
        return "nonsense" if request.seed % 3 == 0 else "look around" if request.seed % 3 == 1 else "inventory"

    def play(num_envs):
        policy = load_policy(ScriptedBackend(answer), make_cooking(), temperature=1.0, on_invalid=on_invalid, noise=0.3)
        return without_seconds(rollout(make_cooking, policy, range(5), num_envs=num_envs))

    alone = play(1)
    assert play(4) == alone and (any(e.error for e in alone) == (on_invalid == "raise"))


def test_a_turn_draws_the_same_whatever_the_steps_before_have_drawn():
    class Draws(Faulty):
        def __init__(self, spec, more):
            super().__init__(spec)
            self.more, self.drawn = more, []

        def decide(self, turns):
            self.drawn += [turn.rng.random(1 + self.more * turn.step)[0] for turn in turns]
            return [Decision(self.spec.names(turn.obs)[0]) for turn in turns]

    few, many = (Draws(text_spec(make_cooking()), more) for more in (0, 5))
    for policy in (few, many):
        list(rollout(make_cooking, policy, [3]))
    assert few.drawn == many.drawn and len(set(few.drawn)) == 12


@pytest.mark.parametrize("seeds", [np.arange(2), iter(np.arange(2, dtype=np.uint8))])
def test_numpys_integers_are_seeds(seeds):
    episodes = without_seconds(rollout(make_cooking, load_policy("random", make_cooking(), seed=np.int64(0)), seeds))
    assert episodes == without_seconds(rollout(make_cooking, load_policy("random", make_cooking()), range(2)))
    json.dumps([e.to_json() for e in episodes])


@pytest.mark.parametrize("seed", [-1, "1", True])
def test_what_is_no_seed_is_refused_before_anything_is_played(seed):
    played = []
    with pytest.raises(UsageError, match="seed: expected an integer from 0"):
        for episode in rollout(make_cooking, load_policy("random", make_cooking()), [0, seed]):
            played.append(episode)
    assert not played


def test_a_slow_answer_holds_up_only_its_own_episode():
    ended, waited, finished = threading.Event(), [], 0

    class Slow(Faulty):
        def decide(self, turns):
            if turns[0].episode.endswith("-0"):
                waited.append(ended.wait(300))
            return [Decision(self.spec.names(turn.obs)[0]) for turn in turns]

    for _ in rollout(make_cooking, Slow(text_spec(make_cooking())), range(4), workers=2, num_envs=1):
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

    for _ in rollout(make_cooking, Endless(text_spec(make_cooking())), range(4), workers=4, num_envs=1):
        break
    waited_for = list(answered)
    left.set()
    assert waited_for == []


def test_an_episode_knows_its_level_which_seeds_beyond_the_fold_play_again():
    def levels(make_env, seeds):
        return [episode.level for episode in rollout(make_env, load_policy("random", make_env()), seeds, num_envs=1)]

    cooking = levels(lambda: gym.make("CookingWorldText-v0", fold="test", max_episode_steps=1), (0, 1, 1000))
    assert cooking[0] == cooking[2] != cooking[1]
    lake = environment_maker("FrozenLake-v1", fold="test", max_episode_steps=1)
    assert levels(lake, (0, 1, 1_000_000)) == [3_000_000, 3_000_001, 3_000_000]
    assert levels(lambda: gym.make("BabyAIText-v0", max_episode_steps=1), (0, 1_000_000)) == [0, 1_000_000]
