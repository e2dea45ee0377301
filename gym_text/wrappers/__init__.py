"""Wrappers that add keys to the observation."""

from gym_text.wrappers.gold_action import GoldAction

__all__ = ["GoldAction"]
