"""The name by which verifiers finds `gym_text.bridges.verifiers`: it looks for a module without a dot."""

from gym_text.bridges.verifiers import LevelEnv, Levels, PlayerHarness

__all__ = ["LevelEnv", "Levels", "PlayerHarness"]
