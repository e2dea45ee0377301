"""The contract that every registered environment keeps."""

import copy
import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from experts import with_expert
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from gym_text import InvalidActionError, StepOrderError, UsageError
from gym_text.wrappers import GoldAction

COOKING, BABYAI, LANDER, CAR = "CookingWorldText-v0", "BabyAIText-v0", "LunarLanderLLM-v2", "MountainCarContinuousLLM-v0"
ALWAYS = {"score", "success", "failure"}
MORE = {BABYAI: {"progression"}}
"""Keys of `info` that one environment has beside those of all."""
WRONG_ACTIONS = {
    COOKING: [3, None, b"look", ["look"], np.array("look")],
    LANDER: ["go", 1.0, 7, -1, True, None, np.array([1]), [1, [2, 3]], 2**70],
    CAR: ["push", None, [np.nan], [1.5], 0.5, [[0.5]], [0.5, 0.5], ["0.5"], [1e300], [1j], [[1], [2, 3]]],
}
"""For each kind of action space, an environment and actions of a wrong type, shape or range."""
one_of_each_kind = pytest.mark.parametrize("env_id", WRONG_ACTIONS)


def play(env_id, seed, steps=12, render=False, **arguments):
    """Play a fixed random policy; return all that the environment said."""
    env = gym.make(env_id, **arguments)
    spec, rng = env.get_wrapper_attr("text_spec"), np.random.default_rng(seed)
    said = [env.reset(seed=seed)]
    for _ in range(steps):
        obs = said[-1][0]
        said.append(env.step(spec.encode(str(rng.choice(spec.names(obs))), obs)))
        if render:
            env.render()
        if said[-1][2] or said[-1][3]:
            break
    env.close()
    return said


def freeze(obs):
    """Return the observation as a value that can be in a set."""
    return tuple(value.tobytes() if isinstance(value, np.ndarray) else value for _, value in sorted(obs.items()))


# ---------------------------------------------------------------- Gymnasium's contract


@pytest.mark.parametrize("arguments", [{}, {"fold": "test", "expert": "replan", "render_mode": "rgb_array"}], ids=str)
def test_gymnasium_checker_has_no_complaint(env_id, arguments, make):
    check_env(make(env_id, **arguments).unwrapped)


def check_step(env, obs, reward, terminated, truncated, info):
    """Check what `step` returned: its spaces and types, and the keys of ``info``."""
    assert obs in env.observation_space and not {"gold_path", "gold_action", "score"} & set(obs)
    assert {type(reward), type(info["score"])} == {float}
    assert {type(value) for value in (terminated, truncated, info["success"], info["failure"])} == {bool}
    assert terminated or not (info["success"] or info["failure"])
    assert not (info["success"] and info["failure"]) and None not in info.values()
    always = ALWAYS | MORE.get(env.spec.id, set()) | {"action_was_valid"}
    assert set(info) - {"gold_action", "gold_steps"} == always
    assert ("gold_action" in info) == ("gold_steps" in info)


@pytest.mark.parametrize("expert", ["off", "path"])
def test_a_whole_episode_keeps_the_contract_and_prints_nothing(env_id, expert, make, capfd):
    env = make(env_id, expert=expert, render_mode="ansi")
    spec, rng = env.get_wrapper_attr("text_spec"), np.random.default_rng(0)
    obs, info = env.reset(seed=0)
    assert obs in env.observation_space and obs["text"] and obs["goal"]
    always, hints = ALWAYS | MORE.get(env_id, set()), {"gold_path", "gold_action", "gold_steps"}
    assert set(info) in ((always,) if expert == "off" else (always, always | hints))
    over, total, path = False, 0.0, []
    while not over:
        assert env.render() == f"{obs['goal']}\n\n{obs['text']}"
        name = info.get("gold_action") or str(rng.choice(spec.names(obs)))
        path += [info["gold_action"]] if "gold_action" in info else []
        action = spec.encode(name, obs)
        assert action in env.action_space
        obs, reward, terminated, truncated, info = env.step(action)
        check_step(env, obs, reward, terminated, truncated, info)
        assert expert == "path" or not hints & set(info)
        total, over = total + reward, terminated or truncated
        assert info["score"] == pytest.approx(total)
    if terminated:
        with pytest.raises(StepOrderError, match=r"this one has ended\. Call reset\(\)"):
            env.step(env.action_space.sample())
    first = env.reset(seed=0)[1]
    assert tuple(path) == first.get("gold_path", ())
    env.step(env.action_space.sample())
    assert capfd.readouterr() == ("", "")


def test_spaces_survive_pickling(env_id, make):
    env = make(env_id)
    for space in (env.observation_space, env.action_space):
        copied = pickle.loads(pickle.dumps(space))
        assert copied == space
        space.seed(1)
        copied.seed(1)
        assert data_equivalence(sample := copied.sample(), space.sample(), exact=True)
        assert sample in space


@one_of_each_kind
def test_changing_a_returned_observation_does_not_change_the_game(env_id, make):
    env = make(env_id, render_mode="ansi", expert="replan")
    obs, info = env.reset(seed=0)
    shown, action = env.render(), env.get_wrapper_attr("text_spec").encode(info["gold_action"], obs)
    for value in obs.values():
        if isinstance(value, np.ndarray):
            value += 1
    obs.clear()
    assert env.render() == shown
    env.step(action)


def test_step_and_render_need_an_episode(make):
    env = make(COOKING, render_mode="ansi")
    with pytest.raises(ResetNeeded, match="reset"):
        env.step("look around")
    with pytest.raises(StepOrderError, match=r"expected a running episode; there is none\. Call reset\(\)"):
        env.unwrapped.step("look around")
    with pytest.raises(StepOrderError, match=r"expected an episode; there is none\. Call reset\(\)"):
        env.unwrapped.render()


def test_step_after_close_is_refused_and_close_may_be_repeated(env_id, make):
    env = make(env_id).unwrapped
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(StepOrderError, match="reset"):
        env.step(env.action_space.sample())


@one_of_each_kind
def test_wrong_actions_are_refused_and_cost_nothing(env_id, make):
    env = make(env_id, render_mode="ansi")
    obs, info = env.reset(seed=0)
    shown = env.render()
    for action in WRONG_ACTIONS[env_id]:
        with pytest.raises(InvalidActionError, match=r"action: expected .*; got .*\n?.*encode") as caught:
            env.unwrapped.step(action)
        assert type(action).__name__ in str(caught.value)
    assert env.render() == shown
    *_, after = env.unwrapped.step(env.get_wrapper_attr("text_spec").encode(info["gold_action"], obs))
    assert after["gold_action"] == info["gold_path"][1]


@pytest.mark.parametrize("between", [". ", ", ", " then ", " and ", "\n"])
@pytest.mark.parametrize("env_id", [COOKING, "MapReaderText-v0", "ScienceWorldText-v0", "TextCraftText-v0"])
def test_two_commands_in_one_line_are_not_understood(env_id, between, make):
    env = make(env_id)
    _, info = env.reset(seed=0)
    assert not env.step(between.join(info["gold_path"][:2]))[-1]["action_was_valid"]


def test_wrong_seeds_options_and_choices_are_refused(make):
    env = make(COOKING)
    for seed, shown in ((-1, "-1"), (2**63, str(2**63)), (1.5, "1.5"), ("3", "'3'"), (True, "True")):
        with pytest.raises(UsageError, match=rf"seed: expected an integer from 0 to {2**63 - 1}; got {re.escape(shown)}"):
            env.reset(seed=seed)
    with pytest.raises(UsageError, match=r"options: expected none .*; got \{'level': 3\}"):
        env.reset(options={"level": 3})
    env.reset(options={})
    for argument, value, message in (
        ("fold", "tset", "fold: expected one of 'train', 'dev', 'test'; got 'tset'. Did you mean 'test'?"),
        ("expert", None, "expert: expected one of 'off', 'path', 'replan'; got None."),
        ("render_mode", "ascii", "render_mode: expected one of 'ansi', 'rgb_array'; got 'ascii'. Did you mean 'ansi'?"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            type(env.unwrapped)(**{argument: value})


# ---------------------------------------------------------------- the expert


@with_expert
def test_the_gold_path_wins_when_replayed_and_its_steps_are_counted_down(env_id, make):
    path = make(env_id).reset(seed=0)[1]["gold_path"]
    env, hinting = make(env_id, expert="off"), make(env_id)
    spec, (obs, _), (_, hints) = env.get_wrapper_attr("text_spec"), env.reset(seed=0), hinting.reset(seed=0)
    for number, name in enumerate(path):
        assert (hints["gold_action"], hints["gold_steps"]) == (name, len(path) - number)
        obs, _, terminated, truncated, info = env.step(action := spec.encode(name, obs))
        hints = hinting.step(action)[4]
        assert terminated == (number == len(path) - 1)
        assert info["action_was_valid"]
    assert info["success"] and not truncated and not {"gold_action", "gold_steps"} & set(hints)


def leave_path(env):
    """Play the first step of the gold path and then an action that is not on it."""
    spec, (obs, info) = env.get_wrapper_attr("text_spec"), env.reset(seed=0)
    path = info["gold_path"]
    obs, *_ = env.step(spec.encode(path[0], obs))
    others = [name for name in spec.names(obs) if name != path[1]]
    if env.spec.id.startswith("SimonSays"):
        others = ["sing"]  # every other command loses the game
    obs, *_, info = env.step(spec.encode(others[0], obs))
    return spec, obs, info, path


@with_expert
def test_gold_action_vanishes_off_the_path_and_the_replanning_expert_goes_on(env_id, make):
    env = make(env_id)
    spec, obs, info, path = leave_path(env)
    assert "gold_action" not in info
    for name in path[1:8]:
        obs, *_, info = env.step(spec.encode(name, obs))
        assert "gold_action" not in info
    env = make(env_id, expert="replan")
    spec, obs, info, _ = leave_path(env)
    over = False
    while not over:
        assert info["gold_action"] in spec.names(obs)
        obs, _, terminated, truncated, info = env.step(spec.encode(info["gold_action"], obs))
        over = terminated or truncated
    assert truncated or "gold_action" not in info


@with_expert
def test_expert_needing_more_steps_than_the_limit_warns_with_the_remedy(env_id, make, follow_gold_action):
    with pytest.warns(UserWarning, match=rf"{env_id}: the expert needs .* the limit is 1\.") as caught:
        GoldAction(make(env_id, max_episode_steps=1)).reset(seed=0)
    needed = int(re.search(r"Pass max_episode_steps=(\d+) or more to gym.make", str(caught[0].message))[1])
    env = make(env_id, max_episode_steps=needed)
    assert follow_gold_action(env, *env.reset(seed=0))[1]["success"]


# ---------------------------------------------------------------- seeds


@pytest.fixture(scope="module")
def another_process():
    """Yield a process that was spawned, and so has nothing of this one."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_same_seed_gives_the_same_episode_in_any_process(env_id, another_process):
    assert data_equivalence(another_process.submit(play, env_id, seed=5).result(), play(env_id, seed=5), exact=True)


def test_rendering_and_experts_do_not_change_the_episode(env_id, capfd):
    def strip(said):
        return [(*step[:-1], {key: step[-1][key] for key in ALWAYS}) for step in said]

    plain = strip(play(env_id, seed=5, steps=30, expert="off"))
    assert data_equivalence(strip(play(env_id, seed=5, steps=30, expert="path")), plain, exact=True)
    assert data_equivalence(
        strip(play(env_id, seed=5, steps=30, render=True, render_mode="rgb_array", expert="replan")), plain, exact=True
    )
    assert capfd.readouterr() == ("", "")


@one_of_each_kind
def test_sync_vector_plays_the_same_episodes(env_id):
    seeds = [5, 6]
    alone = [play(env_id, seed) for seed in seeds]
    vector = SyncVectorEnv([partial(gym.make, env_id)] * 2)
    space, spec = vector.single_action_space, vector.envs[0].get_wrapper_attr("text_spec")
    rngs = [np.random.default_rng(seed) for seed in seeds]
    obs, _ = vector.reset(seed=seeds)
    for step in range(1, min(map(len, alone))):
        assert obs in vector.observation_space
        rows = list(iterate(vector.observation_space, obs))
        assert [freeze(row) for row in rows] == [freeze(said[step - 1][0]) for said in alone]
        actions = [spec.encode(str(rng.choice(spec.names(row))), row) for rng, row in zip(rngs, rows, strict=True)]
        obs, rewards, *_ = vector.step(concatenate(space, actions, create_empty_array(space, 2)))
        assert rewards.tolist() == [said[step][1] for said in alone]
    vector.close()


def test_seeds_of_any_size_and_none_are_reproducible_and_go_on_to_new_episodes(env_id, make):
    env = make(env_id, expert="off", **({"game": "2048-v0"} if env_id == "TextArenaText-v0" else {}))  # it shows its level at once

    def draw():
        return [freeze(env.reset(seed=seed)[0]) for seed in (np.int64(7), None, None)]

    first = draw()
    assert draw() == first and len(set(first)) == 3
    assert freeze(env.reset(seed=7)[0]) == first[0]
    env.reset(seed=2**63 - 1)


@with_expert
def test_folds_never_meet(env_id, make):
    levels, number = set(), 2 if env_id == "ScienceWorldText-v0" else 6
    for fold in ("train", "dev", "test"):
        env = make(env_id, fold=fold)
        for obs, info in (env.reset(seed=seed) for seed in range(number)):
            levels.add((freeze(obs), info["gold_path"]))
    assert len(levels) == 3 * number


# ---------------------------------------------------------------- the lander and the car


@pytest.mark.parametrize(("ours", "theirs"), [(LANDER, "LunarLander-v3"), (CAR, "MountainCarContinuous-v0")])
def test_dynamics_are_those_of_gymnasium(ours, theirs, make):
    env, original = make(ours), make(theirs)
    original.action_space.seed(0)
    for seed in (0, 1):
        obs, _ = env.reset(seed=seed)
        expected, _ = original.reset(seed=seed)
        for _ in range(60):
            numbers = np.concatenate([value for key, value in obs.items() if key not in ("text", "goal")])
            assert numbers.tolist() == expected.tolist()
            action = original.action_space.sample()
            obs, *outcome, _ = env.step(action)
            expected, *expected_outcome, _ = original.step(action)
            assert outcome == expected_outcome


@pytest.mark.parametrize(("env_id", "mark", "wins"), [(LANDER, 240, 16), (CAR, 90, 20)])
def test_expert_reaches_the_mark(env_id, mark, wins, make, follow_gold_action):
    env, returns, won = make(env_id), [], 0
    for seed in range(20):
        rewards, info = follow_gold_action(env, *env.reset(seed=seed))
        returns.append(sum(rewards))
        won += info["success"]
    assert np.mean(returns) >= mark
    assert won >= wins


def test_replanning_experts_recover_from_a_bad_start(make, follow_gold_action):
    for env_id, bad in ((LANDER, 1), (CAR, np.array([-1.0], dtype=np.float32))):
        env, won = make(env_id, expert="replan"), 0
        for seed in range(5):
            env.reset(seed=seed)
            for _ in range(10):
                obs, *_, info = env.step(bad)
            won += follow_gold_action(env, obs, info)[1]["success"]
        assert won >= 3


# ---------------------------------------------------------------- output


@with_expert
def test_picture_is_not_blank_and_follows_the_game(env_id, make):
    env = make(env_id, render_mode="rgb_array")
    spec, (obs, info) = env.get_wrapper_attr("text_spec"), env.reset(seed=0)
    first = env.render()
    for name in info["gold_path"][:5]:
        obs, *_ = env.step(spec.encode(name, obs))
    second = env.render()
    for picture in (first, second):
        assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 1
    assert first.shape == second.shape
    assert not np.array_equal(first, second)


def test_render_without_a_mode_warns_with_the_remedy(make):
    env = make(COOKING).unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match='pass render_mode="ansi" or "rgb_array" to gym.make'):
        assert env.render() is None


# ---------------------------------------------------------------- subclasses and copies


@pytest.mark.parametrize(
    ("duplicate", "expert"),
    [(copy.deepcopy, "path"), (lambda env: pickle.loads(pickle.dumps(env)), "replan")],
    ids=["deepcopy", "pickle"],
)
@with_expert
def test_a_copy_goes_on_where_the_original_is(env_id, expert, duplicate, make):
    env = make(env_id, expert=expert)
    path = env.reset(seed=5)[1]["gold_path"]
    obs = env.reset(seed=5)[0]
    for name in path[:3]:
        obs = env.step(env.unwrapped.text_spec.encode(name, obs))[0]
    copied = duplicate(env)
    for name in path[3:6]:
        action = env.unwrapped.text_spec.encode(name, obs)
        after, theirs = env.step(action), copied.step(action)
        assert data_equivalence(after, theirs)
        obs = after[0]
    assert data_equivalence(env.reset(), copied.reset()), "the generator is carried as well"
    copied.close()


def test_after_an_error_that_nobody_foresaw_the_episode_is_over(make, monkeypatch):
    env = make(COOKING, expert="off")
    env.reset(seed=0)

    def fail(action):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(env.unwrapped, "_play", fail)
        env.step("inventory")
    with pytest.raises(ResetNeeded, match="expected a running episode"):
        env.step("inventory")
