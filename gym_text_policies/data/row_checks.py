"""What a record of a dataset must be to be learnt from; datasets come from anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

ROLES = ("system", "user", "assistant")
_SHOWN = 60
"""Most characters of a value that an error shows."""


def check_conversation(messages: Any, labels: Any) -> None:
    """Raise ValueError or TypeError unless messages are texts of known roles, with a label for each and something to learn."""
    if not messages or not all(_is_message(message) for message in messages):
        raise ValueError(f"messages: expected texts of {', '.join(ROLES)}; got {str(messages)[:_SHOWN]}")
    if not all(isinstance(label, str) for label in labels) or len(labels) != len(messages) or labels[0] or not any(labels):
        raise ValueError(f"labels: expected a text for each message, the first empty and not all; got {str(labels)[:_SHOWN]}")


def check_origin(environment: Any, history: Any) -> None:
    """Raise ValueError or TypeError unless a text names an environment as JSON, and another says how long a history is."""
    data = json.loads(environment)
    if not isinstance(data, dict) or not isinstance(data.get("id"), str) or not isinstance(data.get("kwargs"), dict):
        raise ValueError(f"environment: expected a JSON object with id and kwargs; got {environment[:_SHOWN]!r}")
    if history != "all" and not re.fullmatch("[0-9]{1,6}", str(history)):
        raise ValueError(f"history: expected a number or all; got {str(history)[:_SHOWN]!r}")


def _is_message(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") in ROLES and isinstance(message.get("content"), str)
