"""`Thinking`: what a policy asks of a model's thoughts, and which thoughts the model reads again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.prompts import Prompt

_OF_REQUEST = ("think", "think_tokens", "top_p", "top_k", "min_p")


@dataclass(frozen=True)
class Thinking:
    """The settings of a policy that concern thoughts and how tokens are drawn."""

    request: Mapping[str, Any]
    """The fields of a request that were given."""
    history: str = "none"
    """Which earlier thoughts the model reads again: none, last or all."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], prompt: Prompt) -> Thinking:
        """Return this part of a policy's settings.

        Raises:
            UsageError: If it does not fit the strategy or the history.
        """
        given = {name: settings[name] for name in _OF_REQUEST if name in settings}
        thinking = cls(given, settings.get("history_thoughts", "none"))
        if prompt.thinks and (thinking.is_asked or thinking.history != "none"):
            name = "think" if thinking.is_asked else "history_thoughts"
            raise UsageError(
                f"{name}: expected a strategy whose answer is an action alone, such as 'zero_shot', as the model thinks by itself; "
                f"strategy {settings['strategy']!r} asks it to think in words a second time."
            )
        if thinking.history != "none" and settings["history"] == 0:
            raise UsageError(
                f"history_thoughts={thinking.history!r}: expected a history, in which earlier thoughts stand; got history=0."
            )
        return thinking

    @property
    def is_asked(self) -> bool:
        """Whether the model is told to think, beyond what it does by itself."""
        return self.request.get("think") not in (None, False)

    @property
    def config(self) -> dict[str, Any]:
        """What was given, for the policy's configuration. Without these settings it stays as in earlier records."""
        return {**self.request, **({} if self.history == "none" else {"history_thoughts": self.history})}

    def kept(self, thoughts: Sequence[str | None]) -> tuple[str | None, ...]:
        """Return the thoughts of earlier steps that the model reads again; None in place of the others."""
        first = {"none": len(thoughts), "last": len(thoughts) - 1, "all": 0}[self.history]
        return tuple(thought if step >= first else None for step, thought in enumerate(thoughts))
