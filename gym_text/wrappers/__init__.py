"""Wrappers for any of the environments."""

from gym_text.wrappers.describe_observation import DescribeObservation
from gym_text.wrappers.encode_text import EncodeText
from gym_text.wrappers.exchange_names import ExchangeNames
from gym_text.wrappers.forks import Forks
from gym_text.wrappers.gold_action import GoldAction
from gym_text.wrappers.history import History
from gym_text.wrappers.picture import Picture

__all__ = ["DescribeObservation", "EncodeText", "ExchangeNames", "Forks", "GoldAction", "History", "Picture"]
