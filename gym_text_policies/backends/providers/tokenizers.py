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
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.chat_format import PLAIN, Place
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.tokens import check_tokenizer, end_of_turn, fitting_tokens, text_tokens
from gym_text_policies.backends.providers.llama_cpp_tokenizer import LlamaCppTokenizer
from gym_text_policies.records import Message

_REMEMBERED = 4096
"""Most texts whose tokens, or special tokens, are kept."""


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
        self._window = window
        self._name = name
        self._asks = isinstance(tokenizer, LlamaCppTokenizer)
        # a tokenizer of transformers has a state, so only one thread may use it
        self._lock: Any = contextlib.nullcontext() if self._asks else threading.Lock()
        self._of_text = functools.lru_cache(_REMEMBERED)(lambda text: tuple(text_tokens(tokenizer, text)))
        self.format = format_of(tokenizer, template_kwargs)
        self.end = _end(tokenizer, template_kwargs, end_of_turn)

    def of(
        self,
        messages: Sequence[Message],
        choices: Sequence[str] = (),
        *,
        room: int = 1,
        read: Sequence[int] = (),
        place: Place = PLAIN,
    ) -> tuple[list[int], list[list[int]], int]:
        """Return the tokens of a chat, those of each choice with an end of turn, and the number of turns dropped.

        Args:
            messages: The chat.
            choices: The choices.
            room: Number of tokens for which the model's window must have room behind the chat.
            read: The tokens of the chat's start, if they are known; see `continued_tokens`.
            place: Where the answer begins, or the thought before it.

        Raises:
            PolicyError: If the chat is longer than the model's window even without its earlier turns.
        """
        with self._lock:
            paths = [[*self._of_text(choice), self.end] for choice in choices]
            room = max(room, *map(len, paths)) if paths else room
            if self._asks:
                self._tokenizer.learn(messages)
            prompt, dropped = fitting_tokens(self._tokenizer, messages, self._window - room, self._name, read=read, place=place)
        return prompt, paths, dropped


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


def _end(tokenizer: Any, arguments: Mapping[str, Any] | None, text: str | None) -> int:
    """Return the token that ends an answer: that of a text which the user gave, or else what the chat template writes."""
    if isinstance(tokenizer, LlamaCppTokenizer):
        tokenizer.learn_text(text or format_of(tokenizer, arguments).end)
    if text is None:
        return end_of_turn(tokenizer, arguments)
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(tokens) != 1:
        raise UsageError(f"end_of_turn: expected the text of one token of the model; {text!r} has {len(tokens)}.")
    return int(tokens[0])
