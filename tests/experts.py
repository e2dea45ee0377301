"""Which environments have an expert; the contract's other tests hold for all."""

import gymnasium as gym
import pytest

import gym_text  # noqa: F401  registers the environments

WITHOUT = ("TextArenaText-v0", "TextArenaTwoPlayers-v0")
IDS = sorted(name for name, spec in gym.registry.items() if str(spec.entry_point).startswith("gym_text.") and name not in WITHOUT)
with_expert = pytest.mark.parametrize("env_id", IDS)
"""Runs a test once for each registered environment that has an expert, in place of the fixture `env_id`."""
