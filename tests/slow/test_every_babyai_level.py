"""Every level of minigrid's BabyAI is played by its expert."""

import gymnasium as gym
import minigrid  # noqa: F401  registers the levels
import pytest

ID = "BabyAIText-v0"
LEVELS = sorted(name for name in gym.registry if name.startswith("BabyAI-"))
BOT_FAILS = {"KeyInBox", "OpenDoorsOrderN4Debug"}
"""Levels that minigrid's bot does not solve on seed 0."""


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_plays_and_its_expert_wins_or_is_silent(level, make):
    env = make(ID, level=level)
    spec, (obs, info) = env.get_wrapper_attr("text_spec"), env.reset(seed=0)
    path = info.get("gold_path")
    assert (path is None) == (level.removeprefix("BabyAI-").removesuffix("-v0") in BOT_FAILS)
    for name in path or [action.name for action in spec.actions]:
        assert obs in env.observation_space
        obs, *_, info = env.step(spec.encode(name, obs))
    assert obs in env.observation_space
    assert info["success"] == (path is not None)
