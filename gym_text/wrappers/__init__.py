"""Wrappers for any of the environments."""

from gym_text.wrappers.check_limit import CheckLimit
from gym_text.wrappers.gold_action import GoldAction

__all__ = ["CheckLimit", "GoldAction"]
