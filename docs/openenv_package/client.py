"""The package's client: ``GymTextEnv(base_url=…)`` plays over the network."""

from gym_text_policies.bridges.openenv import GymTextEnv, TextAction, TextObservation

__all__ = ["GymTextEnv", "TextAction", "TextObservation"]
