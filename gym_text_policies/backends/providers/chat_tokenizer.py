"""`ChatTokenizer`: prompts for servers that take tokens. A prompt gets the same tokens as with a model in this process.

vLLM turns the words of a game into special tokens if they spell one, so that a game could forge a role. It also accepts tokens: so
prompts are tokenised here, by the model's tokenizer, without its weights and without torch. llama.cpp's server can read special
tokens as text, and tokenises by itself: see `LlamaCppTokenizer`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.chat_format import PLAIN, AnswerStart
from gym_text_policies.backends.local.rendering import format_of, set_format
from gym_text_policies.backends.local.thinking import Thought, ThoughtMarkers, ends_with_beginning
from gym_text_policies.backends.local.tokens import check_tokenizer, fitting_tokens, stops, template_tokens, text_tokens
from gym_text_policies.backends.local.tokens import end_of_turn as end_of_turn_of
from gym_text_policies.backends.providers.llama_cpp_tokenizer import LlamaCppTokenizer
from gym_text_policies.backends.providers.token_server import Generated
from gym_text_policies.records import Message

_REMEMBERED = 4096
"""Most texts whose tokens are kept."""


class ChatTokenizer:
    """Prompts and choices as tokens, and generated tokens as thoughts and answers. Several threads may use it.

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
        answer_start: AnswerStart = PLAIN,
    ) -> tuple[list[int], list[list[int]], int]:
        """Return the tokens of a chat, those of each choice with an end of turn, and the number of turns dropped.

        Args:
            messages: The chat.
            choices: The choices.
            room: Number of tokens for which the model's window must have room behind the chat, if there are no choices.
            more: Number of tokens for which it must have room before the answer.
            read: The tokens of the chat's start, if they are known; see `continued_tokens`.
            answer_start: Where the answer begins, or the thought before it.

        Raises:
            PolicyError: If the chat is longer than the model's window even without its earlier turns.
        """
        with self.lock:
            candidates = [[*self._of_text(choice), self.end] for choice in choices]
            room = more + (max(map(len, candidates)) if candidates else room)
            if self._asks:
                self._tokenizer.learn(messages)
            prompt, dropped = fitting_tokens(
                self._tokenizer, messages, self.window - room, self._name, read=read, answer_start=answer_start
            )
        return prompt, candidates, dropped

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

    def stopped_within(self, answer_start: AnswerStart, generated: Generated) -> bool:
        """Return whether a server took a part of what closes a thought for an end: in channels, a thought and a turn end alike."""
        if generated.finish != "stop" or not generated.tokens or generated.tokens[-1] in self._stops:
            return False
        with self.lock:
            return ends_with_beginning(self._tokenizer.decode(generated.tokens), answer_start.thought_close.strip())

    def thought(self, answer_start: AnswerStart, generated: Generated) -> Thought | None:
        """Return the thought with which a generated text begins; None if the model began an answer.

        Args:
            answer_start: Where the text was generated.
            generated: The text, up to the end of the thought or of the turn.
        """
        with self.lock:
            markers, tokens = self._markers(answer_start, generated), list(generated.tokens)
            if tokens and generated.finish == "stop" and not answer_start.is_closed(markers.raw(tokens)):
                ends = stops(self._tokenizer, tokens[-1], answer_start)  # the server may know more ends
                markers = ThoughtMarkers(self._tokenizer, answer_start, ends)
            watch = markers.watch()
            size = next((size for size in range(1, len(tokens) + 1) if watch(tokens[:size])), len(tokens))
            return watch.thought(tokens[:size])

    def answer(self, answer_start: AnswerStart, generated: Generated, *, words: bool = True) -> Generated:
        """Return a generated answer up to its end of turn, without thoughts.

        Args:
            answer_start: Where the answer, or the thought before it, begins.
            generated: What was generated behind that thought.
            words: Whether thoughts may stand in the answer: not if it follows a JSON schema.
        """
        ends = [index for index, token in enumerate(generated.tokens, 1) if token in self._stops]
        ended = ends[0] if ends else len(generated.tokens) if generated.finish == "stop" else 0
        tokens = list(generated.tokens[: ended or None])
        finish, text, closed = "stop" if ended else generated.finish, generated.text, True
        said = tokens[:-1] if ended else tokens
        with self.lock:
            if answer_start.thought_close or self.end != self._tokenizer.eos_token_id or len(tokens) < len(generated.tokens):
                text = str(self._tokenizer.decode(said, skip_special_tokens=True))
            if words and answer_start.thought_close:
                text, closed = self._markers(answer_start, generated).answer(said, text)
        log_probs = generated.log_probs[: len(tokens)]
        return replace(generated, text=text, tokens=tokens, log_probs=log_probs, finish=finish if closed else "length")

    def _markers(self, answer_start: AnswerStart, generated: Generated) -> ThoughtMarkers:
        if self._asks:
            self._tokenizer.learn_text(self._tokenizer.decode(generated.tokens))
        return ThoughtMarkers(self._tokenizer, answer_start, stops(self._tokenizer, answer_start=answer_start))


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
