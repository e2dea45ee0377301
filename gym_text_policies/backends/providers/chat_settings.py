"""Settings of a chat's request: how a server is asked to think, and what it refuses to be asked."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.chat_format import Think
from gym_text_policies.backends.providers.errors import CallError

_logger = logging.getLogger(__name__)
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_LEFT_OUT = ("temperature", "seed", "top_p", "top_k", "min_p", "parallel_tool_calls")
"""Fields without which a server can answer."""
_NOT_TAKEN = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|deprecated|no such|invalid field"
    r"|extra_forbidden|cannot find field|only the default",
    re.IGNORECASE,
)
"""Words of a server that refuses a field as such, and not because of what else is sent."""
_OF_VALUE = re.compile(r"unsupported[_ ]value|supported values|does not support ['\"]?\w+['\"]? with", re.IGNORECASE)
"""Words of a server that refuses the value of a field that it knows."""
_SWITCHES = ("enable_thinking", "thinking")
"""Arguments by which chat templates turn thoughts on and off. A template ignores those that it does not name."""
_THOUGHT_FIELD, _KWARGS, _EFFORT = "reasoning_content", "chat_template_kwargs", "reasoning_effort"
_SMALLEST = ("none", "minimal", "low")
"""Smallest efforts of hosted models: each takes at least one of them, or does not think."""


class ChatSettings:
    """The fields of a chat's request that say how to think, and what the server has refused so far. Several threads may use it.

    A server of one's own is asked to think by arguments of its chat template, a hosted one by an effort. A field that the server
    refuses by HTTP status 400 or 422 is replaced or left out from then on.

    Args:
        model: The model's name, for messages.
        own: Whether the server may be one's own.
        template_kwargs: The user's template arguments.
        given: Fields that the user has set, which are never replaced.
    """

    def __init__(self, model: str, *, own: bool, template_kwargs: Mapping[str, Any], given: Collection[str] = ()) -> None:
        self._model = model
        self._own = own
        self._template_kwargs = dict(template_kwargs)
        self._given = set(given)
        self._refused: set[str] = set()  # fields, and efforts as reasoning_effort=none
        self._lock = threading.Lock()

    @property
    def by_template(self) -> bool:
        """Whether the server is asked to think by arguments of its chat template."""
        return self._own and _KWARGS not in self._refused

    @property
    def thought_field(self) -> str | None:
        """The field of a message with an earlier thought; None if the server takes none."""
        return _THOUGHT_FIELD if self._own and _THOUGHT_FIELD not in self._refused else None

    def thinking(self, think: Think) -> dict[str, Any]:
        """Return the fields that say whether and how much to think."""
        effort = {_EFFORT: think} if isinstance(think, str) else {}
        if self.by_template:
            switches = {} if think is None else dict.fromkeys(_SWITCHES, think is not False)
            arguments = switches | effort | self._template_kwargs
            return ({_KWARGS: arguments} if arguments else {}) | ({} if _EFFORT in self._refused else effort)
        if think is not False:
            return {_EFFORT: effort_of(think)}
        if _EFFORT in self._refused:  # a model that takes no effort does not think
            return {}
        return {_EFFORT: next((name for name in _SMALLEST if f"{_EFFORT}={name}" not in self._refused), None)}

    def fit(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request without what the server has refused."""
        fitted = dict(body)
        for name in self._refused & fitted.keys() - self._given - {_EFFORT, _KWARGS}:
            value = fitted.pop(name)
            if name in _OTHER_NAME:
                fitted.setdefault(_OTHER_NAME[name], value)
        return fitted

    def learn(self, error: CallError, body: Mapping[str, Any], think: Think) -> bool:
        """Return whether the request is to be sent again, because the server refused a field that can be replaced or left out.

        Raises:
            UsageError: If the server refuses the effort that the user has set.
        """
        field = self._refused_field(str(error), body) if error.refused else None
        if field is None:
            return False
        key, what = field, "it is left out from now on"
        if field in _OTHER_NAME:
            what = f"{_OTHER_NAME[field]} is sent from now on"
        elif field == _KWARGS:
            what = f"it is asked to think by {_EFFORT} from now on"
        elif field == _EFFORT and not self.by_template:
            if think is not False:
                raise UsageError(f"think={think!r}: expected an effort that {self._model} takes; {error}")
            key = f"{_EFFORT}={body[_EFFORT]}" if _OF_VALUE.search(str(error)) and body[_EFFORT] != _SMALLEST[-1] else field
            what = "another is tried"
        with self._lock:
            if key not in self._refused:
                self._refused.add(key)
                _logger.warning("%s: its server takes no %s; %s.", self._model, key, what)
        return True

    def _refused_field(self, words: str, body: Mapping[str, Any]) -> str | None:
        """Return the field that a server's words refuse, if the request can do without it: the one that they name first."""
        names = {name for name in (*_OTHER_NAME, *_LEFT_OUT, _EFFORT) if name in body}
        names |= {_KWARGS} if _KWARGS in body and not self._template_kwargs else set()
        names -= self._given
        names |= {_THOUGHT_FIELD} if any(_THOUGHT_FIELD in message for message in body["messages"]) else set()
        names -= {name for name in _OTHER_NAME if _OTHER_NAME[name] in self._refused}  # the server has refused the other name
        first = re.search("|".join(rf"(?<!\w){name}(?!\w)" for name in names), words) if names else None
        return first[0] if first and _NOT_TAKEN.search(words) else None


def effort_of(think: Think) -> str | None:
    """Return the effort that stands for a setting of thoughts, for hosted models."""
    return think if isinstance(think, str) else {None: None, True: "medium", False: _SMALLEST[0]}[think]


def refuse_settings(model: str, request: Request, names: Sequence[str]) -> None:
    """Raise `UsageError` if a request has one of these settings, which the model's provider does not have."""
    for name in names:
        if getattr(request, name) is not None:
            raise UsageError(f"{name}: expected none; {model} has no such setting. Leave it out, or take a server of your own.")
