"""A backend without a model, for tests of your own policies, prompts and loops."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from gym_text_policies.backends.base import Answer, Backend, Request


class ScriptedBackend(Backend):
    """Answers from a list, over and over, or by a function.

    Args:
        script: The answers in turn, also as one text with ``|`` between them, or a function from a request to its answer. In a
            request with choices the choice that equals the answer has probability 1. In a request with a tool, an answer that its
            argument can have, or a JSON object of arguments, is a call of the tool.
        name: Its name in records.
    """

    def __init__(self, script: str | Sequence[str] | Callable[[Request], str], name: str = "scripted") -> None:
        self._script = script.split("|") if isinstance(script, str) else script
        self._name = f"scripted:{script}" if isinstance(script, str) else name
        self._calls = 0

    @classmethod
    def option_names(cls) -> list[str]:
        """Return nothing: a script has no options."""
        return []

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Return the next answers of the script; tokens are counted as words."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer:
        text = self._script(request) if callable(self._script) else self._script[self._calls % len(self._script)]
        self._calls += 1
        words_in = sum(len(message["content"].split()) for message in request.messages)
        if request.choices is None:
            call = _call(request, text) if request.tool else None
            said = text if call is None else ""
            return Answer(said, arguments=call, finish="stop", tokens_in=words_in, tokens_out=len(text.split()))
        return Answer(probabilities={choice: float(choice == text) for choice in request.choices}, tokens_in=words_in)

    @property
    def config(self) -> dict[str, Any]:
        """Its name."""
        return {"backend": "scripted", "name": self._name}


def _call(request: Request, text: str) -> str | None:
    """Return the arguments of a call of the request's tool; None if the text is none."""
    ((name, argument),) = (request.schema or {})["properties"].items()
    if text in argument.get("enum", (text,)) and not text.startswith("{"):
        return json.dumps({name: text})
    return text if text.startswith("{") else None
