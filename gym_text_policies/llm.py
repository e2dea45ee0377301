"""`LLMPolicy`: a language model as a policy, made of a prompt, a backend and a parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gym_text import TextSpec
from gym_text.errors import PolicyError, UsageError, check_choice, check_int
from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.parsing import parse_action
from gym_text_policies.policy import Policy
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Decision, Turn

Mode = Literal["text", "choose"]
MODES = ("text", "choose")


class LLMPolicy(Policy):
    """Ask a language model for each action.

    Args:
        backend: The model.
        spec: What the environment tells its players.
        strategy: What is asked: a template's name, or the path of your own; see `gym_text_policies.prompts`.
        mode: How it is answered. ``text``: in words, generated greedily and parsed. ``choose``: by the probability of each action
            that can be said now; the most probable is taken.
        on_invalid: What to play when an answer in words cannot be used (it is counted in any case). ``random``: any action
            that can be said now. ``play``: the answer itself, so that the game answers it (text games only). ``raise``: end
            the episode as an error. Or an action's name.
        max_tokens: Most tokens of an answer in words.
        seed: Seed of all that the policy draws at random.
    """

    def __init__(
        self,
        backend: Backend,
        spec: TextSpec,
        *,
        strategy: str = "zero_shot",
        mode: Mode = "text",
        on_invalid: str = "random",
        max_tokens: int = 16,
        seed: int = 0,
    ) -> None:
        super().__init__(spec, seed=seed)
        check_choice("mode", mode, MODES)
        check_int("max_tokens", max_tokens, 1, 100_000)
        if on_invalid not in ("random", "play", "raise") and not (
            spec.encoding in ("text", "index") or on_invalid in {action.name for action in spec.actions}
        ):
            check_choice("on_invalid", on_invalid, ["random", "raise", *(action.name for action in spec.actions)])
        if on_invalid == "play" and spec.encoding != "text":
            raise UsageError(
                "on_invalid='play': expected a game with text actions, which answers any words; this one's are not text."
            )
        self._backend = backend
        self._prompt = Prompt(strategy)
        self._mode = mode
        self._on_invalid = on_invalid
        self._max_tokens = max_tokens

    @property
    def config(self) -> dict[str, Any]:
        """Model, template, mode and the rest of its settings."""
        return {
            "kind": "llm",
            **self._backend.config,
            **self._prompt.config,
            "mode": self._mode,
            "on_invalid": self._on_invalid,
            "max_tokens": self._max_tokens,
            "seed": self.seed,
        }

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Ask the model for all turns in one call."""
        requests = [self._request(turn) for turn in turns]
        answers = self._backend.answer(requests)
        return [self._decision(*row) for row in zip(turns, requests, answers, strict=True)]

    def _request(self, turn: Turn) -> Request:
        messages = self._prompt.render(self.spec, turn.obs)
        choices = self.spec.names(dict(turn.obs)) if self._mode == "choose" else None
        return Request(messages, choices, max_tokens=self._max_tokens)

    def _decision(self, turn: Turn, request: Request, answer: Answer) -> Decision:
        if answer.probabilities is not None:
            action, valid = max(answer.probabilities, key=answer.probabilities.__getitem__), True
        else:
            parsed = parse_action(answer.text or "", self.spec, turn.obs)
            action, valid = (parsed, True) if parsed is not None else (self._instead(answer.text or "", turn), False)
        return Decision(
            action,
            valid,
            messages=request.messages,
            completion=answer.text,
            probabilities=answer.probabilities,
            tokens_in=answer.tokens_in,
            tokens_cached=answer.tokens_cached,
            tokens_out=answer.tokens_out,
            cost=answer.cost,
        )

    def _instead(self, text: str, turn: Turn) -> str:
        """Return the action to play in place of an answer that cannot be used."""
        names = self.spec.names(dict(turn.obs))
        if self._on_invalid == "random":
            return names[turn.rng.integers(len(names))]
        if self._on_invalid == "play":
            return text
        if self._on_invalid == "raise":
            raise PolicyError(f"answer: expected one of {', '.join(map(repr, names))}; got {text!r}. Set on_invalid to play on.")
        return self._on_invalid
