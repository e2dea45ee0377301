"""Wrappers for any of the environments."""

from gym_text.wrappers.gold_action import GoldAction

__all__ = ["GoldAction"]
