"""Tokenizers of models behind servers. A prompt gets the same tokens as with a model in this process.

vLLM and SGLang turn the words of a game into special tokens if they spell one, so that a game could forge a role. They also accept
tokens: so prompts are tokenised here, by the model's tokenizer, without its weights and without torch. llama.cpp's server can read
special tokens as text, and tokenises by itself: see `LlamaCppTokenizer`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.chat_format import PLAIN, Place
from gym_text_policies.backends.local.rendering import format_of, set_format
from gym_text_policies.backends.local.thinking import Thought, ThoughtMarkers, ends_with_beginning
from gym_text_policies.backends.local.tokens import check_tokenizer, fitting_tokens, stops, template_tokens, text_tokens
from gym_text_policies.backends.local.tokens import end_of_turn as end_of_turn_of
from gym_text_policies.backends.providers.llama_cpp_tokenizer import LlamaCppTokenizer
from gym_text_policies.backends.providers.paths import Writing
from gym_text_policies.records import Message

_REMEMBERED = 4096
"""Most texts whose tokens, or special tokens, are kept."""


class Said(NamedTuple):
    """A generated answer, apart from the thought before it."""

    text: str
    tokens: list[int]
    log_probs: list[float]
    finish: str | None


class ChatTokenizer:
    """Prompts and choices as tokens.

    Args:
        tokenizer: One of transformers, or a `LlamaCppTokenizer`.
        window: Most tokens that the model reads.
        name: The model's name, for errors.
        template_kwargs: The user's template arguments.
        end_of_turn: The text of the token that ends an answer; None: what the chat template writes.
    """

    def __init__(
        self,
        tokenizer: Any,
        window: int,
        name: str,
        template_kwargs: Mapping[str, Any] | None = None,
        end_of_turn: str | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self._asks = isinstance(tokenizer, LlamaCppTokenizer)
        # a tokenizer of transformers has a state, so only one thread may use it
        self.lock: Any = contextlib.nullcontext() if self._asks else threading.Lock()
        self._of_text = functools.lru_cache(_REMEMBERED)(lambda text: tuple(text_tokens(tokenizer, text)))
        set_format(tokenizer, template_kwargs or {}, end_of_turn or "")
        self.format = format_of(tokenizer)
        if self._asks:
            tokenizer.learn_text(self.format.end)
        self.end = end_of_turn_of(tokenizer)
        self.window = window
        self._stops = stops(tokenizer)

    def of(
        self,
        messages: Sequence[Message],
        choices: Sequence[str] = (),
        *,
        room: int = 1,
        more: int = 0,
        read: Sequence[int] = (),
        place: Place = PLAIN,
    ) -> tuple[list[int], list[list[int]], int]:
        """Return the tokens of a chat, those of each choice with an end of turn, and the number of turns dropped.

        Args:
            messages: The chat.
            choices: The choices.
            room: Number of tokens for which the model's window must have room behind the chat, if there are no choices.
            more: Number of tokens for which it must have room before the answer.
            read: The tokens of the chat's start, if they are known; see `continued_tokens`.
            place: Where the answer begins, or the thought before it.

        Raises:
            PolicyError: If the chat is longer than the model's window even without its earlier turns.
        """
        with self.lock:
            paths = [[*self._of_text(choice), self.end] for choice in choices]
            room = more + (max(map(len, paths)) if paths else room)
            if self._asks:
                self._tokenizer.learn(messages)
            prompt, dropped = fitting_tokens(self._tokenizer, messages, self.window - room, self._name, read=read, place=place)
        return prompt, paths, dropped

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text that the chat template writes."""
        with self.lock:
            return tuple(template_tokens(self._tokenizer, text)) if text else ()

    @property
    def stop(self) -> str:
        """The end of turn as text; empty if it is the tokenizer's end of text, where every server stops."""
        if self.end == self._tokenizer.eos_token_id:
            return ""
        with self.lock:
            return str(self._tokenizer.decode([self.end]))

    def stopped_within(self, place: Place, writing: Writing) -> bool:
        """Return whether a server took a part of what closes a thought for an end: in channels, a thought and a turn end alike."""
        if writing.finish != "stop" or not writing.tokens or writing.tokens[-1] in self._stops:
            return False
        with self.lock:
            return ends_with_beginning(self._tokenizer.decode(writing.tokens), place.thought_close.strip())

    def thought(self, place: Place, writing: Writing) -> Thought | None:
        """Return the thought with which a generated text begins; None if the model began an answer.

        Args:
            place: Where the text was generated.
            writing: The text, up to the end of the thought or of the turn.
        """
        with self.lock:
            markers, tokens = self._markers(place, writing), list(writing.tokens)
            if tokens and writing.finish == "stop" and not place.is_closed(markers.raw(tokens)):
                ends = stops(self._tokenizer, tokens[-1], place)  # the server may know more ends
                markers = ThoughtMarkers(self._tokenizer, place, ends)
            watch = markers.watch()
            said = next((tokens[:size] for size in range(1, len(tokens) + 1) if watch(tokens[:size])), tokens)
            return watch.thought(said)

    def answer(self, place: Place, writing: Writing, *, words: bool = True) -> Said:
        """Return a generated answer up to its end of turn, without thoughts.

        Args:
            place: Where the answer, or the thought before it, begins.
            writing: What was generated behind that thought.
            words: Whether thoughts may stand in the answer: not if it follows a JSON schema.
        """
        ends = [index for index, token in enumerate(writing.tokens, 1) if token in self._stops]
        ended = ends[0] if ends else len(writing.tokens) if writing.finish == "stop" else 0
        tokens = list(writing.tokens[: ended or None])
        finish, text, closed = "stop" if ended else writing.finish, writing.text, True
        said = tokens[:-1] if ended else tokens
        with self.lock:
            if place.thought_close or self.end != self._tokenizer.eos_token_id or len(tokens) < len(writing.tokens):
                text = str(self._tokenizer.decode(said, skip_special_tokens=True))
            if words and place.thought_close:
                text, closed = self._markers(place, writing).answer(said, text)
        return Said(text, tokens, writing.log_probs[: len(tokens)], finish if closed else "length")

    def _markers(self, place: Place, writing: Writing) -> ThoughtMarkers:
        if self._asks:
            self._tokenizer.learn_text(self._tokenizer.decode(writing.tokens))
        return ThoughtMarkers(self._tokenizer, place, stops(self._tokenizer, place=place))


def load_tokenizer(name: str, *, why: str) -> Any:
    """Return a tokenizer of transformers.

    Args:
        name: ``hf:OWNER/NAME`` or ``OWNER/NAME`` on the Hugging Face hub, a folder, or ``smollm2``.
        why: The beginning of the error if it cannot be loaded.

    Raises:
        UsageError: If there is no such tokenizer, or it has no chat template.
        MissingDependencyError: If transformers is not installed.
    """
    transformers = import_extra("transformers", "local")
    if name == "smollm2":
        from gym_text_policies.backends.local.smollm2 import smollm2_folder

        name = str(smollm2_folder())
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name.removeprefix("hf:"), trust_remote_code=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{why} {' '.join(str(error).split())[:300]} Name it: tokenizer='hf:OWNER/NAME', or the folder of its files."
        ) from error
    check_tokenizer(tokenizer, f"{why} {name!r}:")
    return tokenizer
