"""The contract that every registered environment keeps."""

import copy
import inspect
import multiprocessing
import pickle
import re
import subprocess
import sys
import textwrap
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
from training_data import Corridor

from gym_text import InvalidActionError, StepOrderError, TextEnv, UsageError
from gym_text.wrappers import EncodeText, GoldAction, History

HEADINGS = [
    "Description",
    "Action Space",
    "Observation Space",
    "Rewards",
    "Starting State",
    "Episode End",
    "Arguments",
    "Info",
    "Version History",
]
COOKING, LANDER, CAR = "CookingWorldText-v0", "LunarLanderLLM-v2", "MountainCarContinuousLLM-v0"
ALWAYS = {"score", "success", "failure"}
MORE = {"BabyAIText-v0": {"progression"}}
"""Keys of `info` that one environment has beside those of all."""
WRONG_ACTIONS = {
    gym.spaces.Text: [3, None, b"look", ["look"], np.array("look")],
    gym.spaces.Discrete: ["go", 1.0, 7, -1, True, None, np.array([1]), [1, [2, 3]], 2**70],
    gym.spaces.Box: ["push", None, [np.nan], [1.5], 0.5, [[0.5]], [0.5, 0.5], ["0.5"], [1e300], [1j], [[1], [2, 3]]],
}
"""For each kind of action space: actions of a wrong type, shape or range."""


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


def section(env, heading):
    """Return the first two columns that matter of the table under a heading of the environment's docstring."""
    text = inspect.cleandoc(type(env.unwrapped).__doc__).partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in rows}


# ---------------------------------------------------------------- Gymnasium's contract


@pytest.mark.parametrize(
    "arguments",
    [{}, {"expert": "off"}, {"fold": "test", "expert": "replan"}, {"render_mode": "ansi"}, {"render_mode": "rgb_array"}],
    ids=str,
)
def test_gymnasium_checker_has_no_complaint(env_id, arguments, make):
    check_env(make(env_id, **arguments).unwrapped)


@pytest.mark.parametrize("expert_plays", [False, True], ids=["random", "expert"])
def test_whole_episodes_lie_in_the_spaces_and_have_plain_types(env_id, expert_plays, make):
    env = make(env_id)
    spec, rng = env.get_wrapper_attr("text_spec"), np.random.default_rng(0)
    for seed in range(3):
        obs, info = env.reset(seed=seed)
        over, total = False, 0.0
        while not over:
            assert obs in env.observation_space
            name = info["gold_action"] if expert_plays and "gold_action" in info else str(rng.choice(spec.names(obs)))
            action = spec.encode(name, obs)
            assert action in env.action_space
            obs, reward, terminated, truncated, info = env.step(action)
            total, over = total + reward, terminated or truncated
            assert {type(reward), type(info["score"])} == {float}
            assert {type(value) for value in (terminated, truncated, info["success"], info["failure"])} == {bool}
            assert info["score"] == pytest.approx(total)
            assert terminated or not (info["success"] or info["failure"])
            assert not (info["success"] and info["failure"])
        assert obs in env.observation_space


def test_observation_has_text_and_goal_and_no_hint(env_id, make):
    obs, _ = make(env_id).reset(seed=0)
    assert obs["text"] and obs["goal"]
    assert not {"gold_path", "gold_action", "score"} & set(obs)


def test_spaces_survive_pickling(env_id, make):
    env = make(env_id)
    for space in (env.observation_space, env.action_space):
        copy = pickle.loads(pickle.dumps(space))
        assert copy == space
        space.seed(1)
        copy.seed(1)
        sample = copy.sample()
        assert data_equivalence(sample, space.sample(), exact=True)
        assert sample in space


@with_expert
def test_changing_a_returned_observation_does_not_change_the_game(env_id, make):
    env = make(env_id, render_mode="ansi", expert="replan")
    obs, info = env.reset(seed=0)
    shown, action = env.render(), env.get_wrapper_attr("text_spec").encode(info["gold_action"], obs)
    obs.clear()
    assert env.render() == shown
    env.step(action)


def test_step_and_render_before_reset_are_refused(env_id, make):
    env = make(env_id, render_mode="ansi")
    action = env.action_space.sample()
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(action)
    with pytest.raises(StepOrderError, match=r"expected a running episode; there is none\. Call reset\(\)"):
        env.unwrapped.step(action)
    with pytest.raises(StepOrderError, match=r"expected an episode; there is none\. Call reset\(\)"):
        env.unwrapped.render()


@with_expert
def test_step_after_the_end_is_refused_and_reset_repairs_it(env_id, make, follow_gold_action):
    env = make(env_id)
    _, info = follow_gold_action(env, *env.reset(seed=0))
    assert info["success"]
    for stepper in (env, env.unwrapped):
        with pytest.raises(StepOrderError, match=r"this one has ended\. Call reset\(\)"):
            stepper.step(env.action_space.sample())
    env.reset(seed=0)
    env.step(env.action_space.sample())


def test_step_after_close_is_refused_and_close_may_be_repeated(env_id, make):
    env = make(env_id).unwrapped
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(StepOrderError, match="reset"):
        env.step(env.action_space.sample())


@with_expert
def test_wrong_actions_are_refused_and_cost_nothing(env_id, make):
    env = make(env_id, render_mode="ansi")
    obs, info = env.reset(seed=0)
    kind = next(kind for kind in WRONG_ACTIONS if isinstance(env.action_space, kind))
    shown = env.render()
    for action in WRONG_ACTIONS[kind]:
        with pytest.raises(InvalidActionError, match=r"action: expected .*; got .*\n?.*encode") as caught:
            env.unwrapped.step(action)
        assert type(action).__name__ in str(caught.value)
    assert env.render() == shown
    *_, after = env.unwrapped.step(env.get_wrapper_attr("text_spec").encode(info["gold_action"], obs))
    assert after["gold_action"] == info["gold_path"][1]


@pytest.mark.parametrize(("seed", "shown"), [(-1, "-1"), (2**63, str(2**63)), (1.5, "1.5"), ("3", "'3'"), (True, "True")])
def test_wrong_seeds_are_refused(env_id, seed, shown, make):
    with pytest.raises(UsageError, match=rf"seed: expected an integer from 0 to {2**63 - 1}; got {re.escape(shown)}"):
        make(env_id).reset(seed=seed)


def test_largest_and_numpy_seeds_are_accepted(env_id, make):
    env = make(env_id, expert="off")
    env.reset(seed=2**63 - 1)
    assert freeze(env.reset(seed=np.int64(3))[0]) == freeze(env.reset(seed=3)[0])


def test_reset_options_are_refused(env_id, make):
    env = make(env_id)
    env.reset(options={})
    with pytest.raises(UsageError, match=r"options: expected none .*; got \{'level': 3\}"):
        env.reset(options={"level": 3})


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("fold", "tset", "fold: expected one of 'train', 'dev', 'test'; got 'tset'. Did you mean 'test'?"),
        ("expert", "repaln", "expert: expected one of 'off', 'path', 'replan'; got 'repaln'. Did you mean 'replan'?"),
        ("expert", None, "expert: expected one of 'off', 'path', 'replan'; got None."),
        ("render_mode", "ascii", "render_mode: expected one of 'ansi', 'rgb_array', 'human'; got 'ascii'. Did you mean 'ansi'?"),
    ],
)
def test_unknown_choices_are_refused_with_the_nearest_one(env_id, argument, value, message, make):
    with pytest.raises(UsageError, match=re.escape(message)):
        make(env_id, disable_env_checker=True).unwrapped.__class__(**{argument: value})


# ---------------------------------------------------------------- documentation


def test_docstring_has_the_fixed_headings(env_id, make):
    text = inspect.cleandoc(type(make(env_id).unwrapped).__doc__)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS


def test_docstring_names_every_argument_with_its_default(env_id, make):
    env = make(env_id)
    parameters = list(inspect.signature(type(env.unwrapped)).parameters.values())
    assert {name: row[1] for name, row in section(env, "Arguments").items()} == {p.name: str(p.default) for p in parameters}


def test_docstring_names_every_observation_field_and_the_version(env_id, make):
    env = make(env_id)
    assert set(section(env, "Observation Space")) == set(env.observation_space)
    assert f"* {env_id.rpartition('-')[2]}: " in type(env.unwrapped).__doc__


# ---------------------------------------------------------------- info and the expert


@with_expert
def test_the_steps_of_the_path_are_counted_down(env_id, make):
    env = make(env_id, expert="path")
    obs, info = env.reset(seed=0)
    counted, path = [], info["gold_path"]
    while "gold_action" in info:
        counted.append(info["gold_steps"])
        obs, _, _, _, info = env.step(env.unwrapped.text_spec.encode(info["gold_action"], obs))
    assert counted == list(range(len(path), 0, -1)) and "gold_steps" not in info


@with_expert
def test_info_has_the_documented_keys_and_never_none(env_id):
    first, *rest = play(env_id, seed=0, expert="path")
    always = ALWAYS | MORE.get(env_id, set())
    assert set(first[1]) == always | {"gold_path", "gold_action", "gold_steps"}
    for step in rest:
        assert set(step[4]) - {"gold_action", "gold_steps"} == always | {"action_was_valid"}
        assert ("gold_action" in step[4]) == ("gold_steps" in step[4])
    assert all(None not in (said[-1]).values() for said in (first, *rest))


def test_expert_off_gives_no_hints(env_id):
    first, *rest = play(env_id, seed=0, expert="off")
    always = ALWAYS | MORE.get(env_id, set())
    assert set(first[1]) == always
    assert all(set(step[4]) == always | {"action_was_valid"} for step in rest)


@with_expert
def test_gold_path_wins_when_replayed(env_id, make):
    path = make(env_id).reset(seed=0)[1]["gold_path"]
    env = make(env_id, expert="off")
    spec, (obs, _) = env.get_wrapper_attr("text_spec"), env.reset(seed=0)
    for number, name in enumerate(path, 1):
        obs, _, terminated, truncated, info = env.step(spec.encode(name, obs))
        assert terminated == (number == len(path))
        assert info["action_was_valid"]
    assert info["success"] and not truncated


@with_expert
def test_gold_action_walks_along_the_gold_path(env_id, make):
    env = make(env_id)
    spec, (obs, info) = env.get_wrapper_attr("text_spec"), env.reset(seed=0)
    path, hints = info["gold_path"], []
    while "gold_action" in info:
        hints.append(info["gold_action"])
        obs, *_, info = env.step(spec.encode(hints[-1], obs))
    assert tuple(hints) == path


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
def test_gold_action_vanishes_off_the_path_and_never_comes_back(env_id, make):
    env = make(env_id)
    spec, obs, info, path = leave_path(env)
    assert "gold_action" not in info
    for name in path[1:8]:
        obs, *_, info = env.step(spec.encode(name, obs))
        assert "gold_action" not in info
    assert "gold_action" in env.reset(seed=0)[1]


@with_expert
def test_replanning_expert_advises_off_the_path_until_the_end(env_id, make):
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


def play_two_episodes(env, steps):
    """Begin an episode, play some steps, none of which ends the game, and begin another episode."""
    env.reset(seed=1)
    for _ in range(steps):
        env.step("look around")
    env.reset(seed=0)


def test_a_registered_limit_that_cuts_an_episode_short_of_the_expert_warns_however_the_environment_is_used(make):
    hard = {"num_locations": 11, "num_ingredients": 5}
    with pytest.warns(UserWarning, match=r"needs 64 steps here, the limit is 50\. Pass max_episode_steps=64") as caught:
        play_two_episodes(History(make(COOKING, **hard), 2), 50)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="needs 64 steps here, the limit is 50") as caught:
        GoldAction(make(COOKING, **hard)).reset(seed=1)
    assert len(caught) == 1
    for limit in (20, 64):  # chosen on purpose, so that nothing is wrong; and beyond the limit altogether
        play_two_episodes(make(COOKING, max_episode_steps=limit, **hard), limit)
    play_two_episodes(make(COOKING, **hard), 49)
    play_two_episodes(make(COOKING), 50)


# ---------------------------------------------------------------- seeds


@pytest.fixture(scope="module")
def another_process():
    """Yield a process that was spawned, and so has nothing of this one."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_same_seed_gives_the_same_episode_in_any_process(env_id, another_process):
    here = play(env_id, seed=5)
    assert data_equivalence(play(env_id, seed=5), here, exact=True)
    assert data_equivalence(another_process.submit(play, env_id, seed=5).result(), here, exact=True)


def test_rendering_and_experts_do_not_change_the_episode(env_id):
    def strip(said):
        return [(*step[:-1], {key: step[-1][key] for key in ALWAYS}) for step in said]

    plain = strip(play(env_id, seed=5, steps=40, expert="off"))
    assert data_equivalence(strip(play(env_id, seed=5, steps=40, expert="replan")), plain, exact=True)
    assert data_equivalence(strip(play(env_id, seed=5, steps=40, render=True, render_mode="rgb_array")), plain, exact=True)


@with_expert
def test_the_observation_does_not_tell_what_the_expert_would_do(env_id, make):
    envs = [make(env_id, expert=expert) for expert in ("path", "off", "replan")]
    (obs, info), *others = [env.reset(seed=1) for env in envs]
    spec, rng = envs[0].get_wrapper_attr("text_spec"), np.random.default_rng(1)
    for number, name in enumerate(info["gold_path"][:30]):
        assert all(data_equivalence(other[0], obs, exact=True) for other in others)
        action = spec.encode(name if number < 20 else str(rng.choice(spec.names(obs))), obs)
        (obs, _, terminated, *_), *others = [env.step(action) for env in envs]
        if terminated:
            break
    assert all(data_equivalence(other[0], obs, exact=True) for other in others)


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


def test_reset_without_a_seed_is_reproducible_and_goes_on_to_new_episodes(env_id, make):
    env = make(env_id, expert="off", **({"game": "2048-v0"} if env_id == "TextArenaText-v0" else {}))  # it shows its level at once

    def draw():
        return [freeze(env.reset(seed=seed)[0]) for seed in (7, None, None)]

    first = draw()
    assert draw() == first
    assert len(set(first)) == 3


@with_expert
def test_folds_never_meet(env_id, make):
    levels, number = set(), gym.spec(env_id).kwargs.get("num_levels", 20)
    for fold in ("train", "dev", "test"):
        env = make(env_id, fold=fold)
        for obs, info in (env.reset(seed=seed) for seed in range(number)):
            levels.add((freeze(obs), info["gold_path"]))
    assert len(levels) == 3 * number


# ---------------------------------------------------------------- the lander and the car


@pytest.mark.parametrize(
    ("ours", "theirs", "arguments"),
    [
        (LANDER, "LunarLander-v3", {}),
        (LANDER, "LunarLander-v3", {"gravity": -5.0, "enable_wind": True, "wind_power": 20.0, "turbulence_power": 2.0}),
        (CAR, "MountainCarContinuous-v0", {}),
    ],
)
def test_dynamics_are_those_of_gymnasium(ours, theirs, arguments, make):
    env, original = make(ours, **arguments), make(theirs, **arguments)
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


@pytest.mark.parametrize("env_id", [LANDER, CAR])
@pytest.mark.parametrize(("fold", "shift"), [("train", 1_000_000), ("dev", 2_000_000), ("test", 3_000_000)])
def test_folds_shift_the_seed(env_id, fold, shift, make):
    plain, folded = make(env_id, expert="off"), make(env_id, expert="off", fold=fold)
    for seed, level in ((3, shift + 3), (1_000_003, shift + 3), (999_999, shift + 999_999)):
        assert folded.reset(seed=seed)[0]["text"] == plain.reset(seed=level)[0]["text"]


@pytest.mark.parametrize(("env_id", "mark", "wins"), [(LANDER, 240, 80), (CAR, 90, 100)])
def test_expert_reaches_the_mark_over_a_hundred_seeds(env_id, mark, wins, make, follow_gold_action):
    env, returns, won = make(env_id), [], 0
    for seed in range(100):
        rewards, info = follow_gold_action(env, *env.reset(seed=seed))
        assert info["score"] == pytest.approx(sum(rewards))
        returns.append(sum(rewards))
        won += info["success"]
    assert np.mean(returns) >= mark
    assert won >= wins


def test_replanning_experts_recover_from_a_bad_start(make, follow_gold_action):
    for env_id, bad in ((LANDER, 1), (CAR, np.array([-1.0], dtype=np.float32))):
        env, won = make(env_id, expert="replan"), 0
        for seed in range(10):
            env.reset(seed=seed)
            for _ in range(10):
                obs, *_, info = env.step(bad)
            won += follow_gold_action(env, obs, info)[1]["success"]
        assert won >= 7


# ---------------------------------------------------------------- output


def test_ansi_shows_goal_and_text(env_id, make):
    env = make(env_id, render_mode="ansi")
    obs, _ = env.reset(seed=0)
    assert env.render() == f"{obs['goal']}\n\n{obs['text']}"


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


def test_render_without_a_mode_warns_with_the_remedy(env_id, make):
    env = make(env_id).unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match='pass render_mode="ansi" or "rgb_array" to gym.make'):
        assert env.render() is None


def test_nothing_is_printed(env_id, capfd):
    for mode in ("ansi", "rgb_array"):
        play(env_id, seed=0, render=True, render_mode=mode, expert="replan")
    assert capfd.readouterr() == ("", "")


def test_playing_and_drawing_every_environment_prints_nothing():
    script = textwrap.dedent("""
        import importlib.util, gymnasium as gym, gym_text
        left_out = "no.such" if importlib.util.find_spec("textworld") else "gym_text.textworld."
        entries = {name: str(spec.entry_point) for name, spec in gym.registry.items()}
        for name in [name for name, entry in entries.items() if entry.startswith("gym_text.") and left_out not in entry]:
            for mode in ("ansi", "rgb_array"):
                env = gym.make(name, render_mode=mode)
                obs, info = env.reset(seed=0)
                action = info.get("gold_action") or obs["valid_actions"][0]
                env.step(env.get_wrapper_attr("text_spec").encode(action, obs))
                env.render()
    """)
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_stable_baselines_keeps_whole_strings(env_id, make):
    from stable_baselines3.common.vec_env import DummyVecEnv

    vector = DummyVecEnv([partial(gym.make, env_id, expert="off")] * 2)
    vector.seed(3)
    batch, env = vector.reset(), make(env_id, expert="off")
    for number in range(2):
        obs, _ = env.reset(seed=3 + number)
        assert set(batch) == set(obs)
        assert freeze({key: batch[key][number] for key in obs}) == freeze(obs)
    vector.close()


# ---------------------------------------------------------------- subclasses and copies


def test_a_subclass_may_use_any_name_that_is_not_described():
    taken = "obs over score path turn on_path taken outcome window facts name keys titles checked running accept conclude copied"
    kind = type("Helpful", (Corridor,), {f"_{name}": lambda self: 1 / 0 for name in taken.split()})
    env = kind(render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().ndim == 3 and env.step(1)[0]["text"] == "Place 1."
    own = {
        name
        for name in (*vars(TextEnv), *vars(env))
        if name.startswith("_") and not name.startswith(("__", "_TextEnv__", "_Replayable__"))
    }
    described = {"_start", "_play", "_plan", "_hint", "_more_info", "_frame", "_frame_titles", "_frame_keys", "_caption"}
    described |= {
        "_level_seed",
        "_steps_left",
        "_accepted",
        "_step",
        "_running_episode",
        "_checked_action",
        "_episode_so_far",
        "_replay_episode",
        "_fork_game",
        "_draw_unseen",
    }
    assert own - {"_abc_impl", "_np_random", "_np_random_seed"} <= described


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("expert", ["path", "replan"])
@with_expert
def test_a_copy_goes_on_where_the_original_is(env_id, expert, duplicate, make):
    env = make(env_id, expert=expert)
    fresh = duplicate(env)
    assert data_equivalence(fresh.reset(seed=5), env.reset(seed=5))
    path = make(env_id).reset(seed=5)[1]["gold_path"]
    obs = env.reset(seed=5)[0]
    for name in path[:3]:
        obs = env.step(env.unwrapped.text_spec.encode(name, obs))[0]
    twin = duplicate(env)
    for name in path[3:6]:
        action = env.unwrapped.text_spec.encode(name, obs)
        after, theirs = env.step(action), twin.step(action)
        assert data_equivalence(after, theirs)
        obs = after[0]
    assert data_equivalence(env.reset(), twin.reset()), "the generator is carried as well"
    twin.close()
    encoded = EncodeText(History(make(env_id), 2))
    assert data_equivalence(duplicate(encoded).reset(seed=5), encoded.reset(seed=5))


def test_after_an_error_that_nobody_foresaw_the_episode_is_over(make, monkeypatch):
    env = make("CookingWorldText-v0", expert="off")
    env.reset(seed=0)

    def fail(action):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(env.unwrapped, "_play", fail)
        env.step("inventory")
    with pytest.raises(ResetNeeded, match="expected a running episode"):
        env.step("inventory")
