"""The name by which verifiers finds `gym_text_policies.bridges.verifiers`: it looks for a module without a dot."""

from gym_text_policies.bridges.verifiers import LevelEnv, Levels, PlayerHarness

__all__ = ["LevelEnv", "Levels", "PlayerHarness"]
