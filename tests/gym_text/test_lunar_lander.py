"""The lander: described truthfully, and its arguments."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from gym_text import lunar_lander

LANDER = "LunarLanderLLM-v2"


def lander_obs(cartesian, angular=(0, 0), legs=(0, 0)):
    return {"lander_cartesian": np.array(cartesian), "lander_angular": np.array(angular), "legs_contact": np.array(legs)}


def test_landing_beside_the_pad_or_crashing_is_no_success(make):
    env = make(LANDER, expert="off")
    for seed in range(5):
        env.reset(seed=seed)
        terminated = False
        while not terminated:
            _, reward, terminated, _, info = env.step(0)
        assert reward == -100
        assert info["failure"] and not info["success"]


@pytest.mark.parametrize(
    ("obs", "lines"),
    [
        (
            lander_obs((0.5, 1.25, -0.3, -0.6), (0.1, -0.2)),
            [
                "Position: x 0.50 (right of the pad), height 1.25.",
                "Velocity: 0.30 (to the left), 0.60 (down).",
                "Tilt: 0.10 radians (to the left), turning 0.20 (to the right).",
                "Legs: no leg touches the ground.",
            ],
        ),
        (
            lander_obs((-0.5, 0.02, 0.3, 0.6), (-0.1, 0.2), (0, 1)),
            [
                "Position: x -0.50 (left of the pad), height 0.02.",
                "Velocity: 0.30 (to the right), 0.60 (up).",
                "Tilt: 0.10 radians (to the right), turning 0.20 (to the left).",
                "Legs: the right leg touches the ground.",
            ],
        ),
        (lander_obs((0, 0, 0, -1), legs=(1, 0)), [..., ..., ..., "Legs: the left leg touches the ground."]),
        (
            lander_obs((-0.001, -0.001, -0.001, -0.001), (-0.001, -0.001), (1, 1)),
            [
                "Position: x 0.00, height 0.00.",
                re.compile(r"Velocity: 0\.00, 0\.00\.?.*"),
                "Tilt: 0.00 radians, turning 0.00.",
                "Legs: both legs touch the ground.",
            ],
        ),
    ],
    ids=["left", "right", "left leg", "at rest"],
)
def test_lander_is_described_truthfully(obs, lines):
    said = lunar_lander.describe(obs).split("\n")
    assert len(said) == 4
    for line, expected in zip(said, lines, strict=True):
        assert expected is ... or (expected.match(line) if isinstance(expected, re.Pattern) else line == expected)


def test_lander_actions_do_what_their_meaning_says(make):
    env, spec, after = make(LANDER, expert="off"), lunar_lander.LUNAR_LANDER_SPEC, {}
    for number, action in enumerate(spec.actions):
        env.reset(seed=1)
        obs, *_ = env.step(number)
        (_, _, vx, vy), (_, spin) = obs["lander_cartesian"], obs["lander_angular"]
        after[action.name] = np.array([vx, vy, spin])
    drift = after["do nothing"]
    assert after["fire main engine"][1] > drift[1]
    for name in ("fire left engine", "fire right engine"):
        meaning = next(action.meaning for action in spec.actions if action.name == name)
        push, turn = re.fullmatch(r"push to the (left|right) and turn to the (left|right)", meaning).groups()
        vx, _, spin = after[name] - drift
        assert push == ("left" if vx < 0 else "right")
        assert turn == ("left" if spin > 0 else "right")


def test_lander_rounds_what_player_and_expert_see(make):
    env, exact = make(LANDER, decimals=1, expert="replan"), make(LANDER, expert="off")
    (obs, info), (exact_obs, _) = env.reset(seed=0), exact.reset(seed=0)
    disagreed = 0
    for action in info["gold_path"]:
        for key in ("lander_cartesian", "lander_angular"):
            assert np.array_equal(obs[key], np.round(exact_obs[key], 1)) and not np.signbit(obs[key][obs[key] == 0]).any()
        assert obs["text"] == lunar_lander.describe(obs) and obs in env.observation_space
        assert info["gold_action"] == action == lunar_lander.controller(obs)
        disagreed += action != lunar_lander.controller(exact_obs)
        number = lunar_lander.LUNAR_LANDER_SPEC.encode(action, obs)
        obs, reward, terminated, _, info = env.step(number)
        exact_obs, exact_reward, *_ = exact.step(number)
        assert reward == exact_reward
    assert terminated and info["success"] and disagreed


def test_lander_that_flies_away_stays_in_the_spaces(make):
    env = make(LANDER, expert="off", max_episode_steps=400)
    env.unwrapped._game.gravity = -0.5  # else it turns over
    env.reset(seed=0)
    over, height = False, 0.0
    while not over:
        obs, _, terminated, truncated, _ = env.step(2)
        over, height = terminated or truncated, max(height, float(obs["lander_cartesian"][1]))
        assert obs in env.observation_space
    assert height == 2.5  # clipped


# ---------------------------------------------------------------- without Box2D

WITHOUT = """
import sys
sys.modules["Box2D"] = None  # as where it is not installed
import gymnasium as gym, gym_text
from gym_text_policies.cli import main
for name in ("LunarLanderLLM-v2", "LunarLander-v3", "CarRacing-v3"):
    print(name, main(["bench", "--environments", name, "--models", "random", "--baselines", "none", "--folder", "one"]))
print("envs", main(["envs"]))
arguments = ["--models", "random", "--modes", "text", "--baselines", "none", "--episodes", "1", "--folder", "all"]
print("bench", main(["bench", *arguments]))
"""


def test_without_box2d_one_sentence_says_how_to_get_it_and_the_rest_plays(tmp_path):
    sentence = "'Box2D' is not installed. Run: pip install 'gym-text[box2d]'. If that installs no Box2D, there is no wheel of it"
    command = [sys.executable, "-c", WITHOUT]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    for name in ("LunarLanderLLM-v2", "LunarLander-v3", "CarRacing-v3"):
        assert f"\n{name} 1\n" in f"\n{done.stdout}"
    assert done.stderr.count(sentence) == 4 and "\nLunarLanderLLM-v2 is left out. " in done.stderr
    assert "\nenvs 0\n" in done.stdout and done.stdout.endswith("bench 0\n")
    table = done.stdout.partition("envs 0")[2]
    assert all(f"| {name}" in table for name in ("CookingWorldText-v0", "BabyAIText-v0"))
