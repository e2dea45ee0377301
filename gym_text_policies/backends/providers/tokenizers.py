"""Tokenizers of models behind servers. A prompt gets the same tokens as with a model in this process.

vLLM and SGLang turn the words of a game into special tokens if they spell one, so that a game could forge a role. They also accept
tokens: so prompts are tokenised here, by the model's tokenizer, without its weights and without torch. llama.cpp's server can read
special tokens as text, and tokenises by itself.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.local.tokens import check_tokenizer, fitting_tokens, text_tokens
from gym_text_policies.records import Message

_REMEMBERED = 4096
"""Most texts whose tokens, or special tokens, are kept."""
_MARK = re.compile(r"<[^<>\s]{2,}>|\[/?[A-Z][A-Z_]+\]")
"""The form of markers in chat templates: ``</think>``, ``[TOOL_CALLS]``."""
Post = Callable[[str, dict[str, Any]], Any]
"""Posts JSON to a path of the server, and returns its answer."""


class ChatTokenizer:
    """Prompts and choices as tokens.

    Args:
        tokenizer: One of transformers, or a `LlamaCppTokenizer`.
        window: Most tokens that the model reads.
        name: The model's name, for errors.
    """

    def __init__(self, tokenizer: Any, window: int, name: str) -> None:
        self._tokenizer = tokenizer
        self._window = window
        self._name = name
        self._asks = isinstance(tokenizer, LlamaCppTokenizer)
        # a tokenizer of transformers has a state, so only one thread may use it
        self._lock: Any = contextlib.nullcontext() if self._asks else threading.Lock()
        self._of_text = functools.lru_cache(_REMEMBERED)(lambda text: tuple(text_tokens(tokenizer, text)))
        self.end: int = tokenizer.eos_token_id

    def of(
        self, messages: Sequence[Message], choices: Sequence[str] = (), *, room: int = 1, read: Sequence[int] = ()
    ) -> tuple[list[int], list[list[int]], int]:
        """Return the tokens of a chat, those of each choice with an end of turn, and the number of turns dropped.

        Args:
            messages: The chat.
            choices: The choices.
            room: Number of tokens for which the model's window must have room behind the chat.
            read: The tokens of the chat's start, if they are known; see `continued_tokens`.

        Raises:
            PolicyError: If the chat is longer than the model's window even without its earlier turns.
        """
        with self._lock:
            paths = [[*self._of_text(choice), self.end] for choice in choices]
            room = max(room, *map(len, paths)) if paths else room
            if self._asks:
                self._tokenizer.learn(messages)
            prompt, dropped = fitting_tokens(self._tokenizer, messages, self._window - room, self._name, read=read)
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


class _Mark(str):
    """A marker that a chat template spells and that is a single token even if special tokens are read as text."""

    special = False


class LlamaCppTokenizer:
    """The tokenizer of a llama.cpp server, with the methods of transformers' tokenizers that `prompt_tokens` and `text_tokens` use.

    The server does not list its special tokens, so this class looks for them in texts. It needs those that a message spells; if
    there are any, it needs those of the template, too. A token is special if its text becomes other tokens when special tokens are
    read as text.

    Args:
        post: Asks the server.
        begin: The text of the token that begins a text.
        end: The text of the end of turn.
        chat_template: The model's chat template. Some of its markers are single tokens even if special tokens are read as text.
            The words of a game never become these markers either.
    """

    def __init__(self, post: Post, begin: str, end: str, chat_template: str = "") -> None:
        self._post = post
        self._special: dict[str, int] = {}  # special tokens met so far
        self._learn = functools.lru_cache(_REMEMBERED)(self._learn_anew)
        self.chat_template = chat_template
        marks = {row["id"]: row["piece"] for row in self._rows(chat_template)} if chat_template else {}
        self.added_tokens_decoder = {token: _Mark(piece) for token, piece in marks.items() if _MARK.fullmatch(str(piece))}
        if not end:
            raise UsageError("tokenizer: expected that of a model with an end of turn; llama.cpp's /props names no eos_token.")
        self.eos_token_id = self._ids(end, parse_special=True)[0]
        # /apply-template leaves out the beginning of text, which /tokenize would add; transformers' templates write it
        self._begin = begin if self._ids("", add_special=True)[:1] == self._ids(begin, parse_special=True) else ""

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens met so far."""
        return list(self._special)

    def __call__(self, text: str, *, add_special_tokens: bool = False, split_special_tokens: bool = False) -> dict[str, list[int]]:
        """Return the tokens of a text; with `split_special_tokens` none of them is special."""
        return {"input_ids": self._ids(text, parse_special=not split_special_tokens)}

    def convert_tokens_to_ids(self, token: str) -> int:
        """Return the number of a special token, or of another marker that the template spells."""
        marks = {str(mark): number for number, mark in self.added_tokens_decoder.items()}
        return self._special[token] if token in self._special else marks[token]

    def apply_chat_template(
        self, messages: Sequence[Message], *, tokenize: bool = False, add_generation_prompt: bool = True
    ) -> str:
        """Return a chat as text, up to where the model's answer begins."""
        return self._begin + str(self._post("/apply-template", {"messages": list(messages)})["prompt"])

    def learn(self, messages: Sequence[Message]) -> None:
        """Learn the special tokens that a chat's messages spell; if they spell any, learn those of the template, too."""
        for message in messages:
            self._learn(message["content"])
        marks = (*self._special, *map(str, self.added_tokens_decoder.values()))
        if any(token in message["content"] for message in messages for token in marks):
            self._learn(self.apply_chat_template(messages))

    def _learn_anew(self, text: str) -> None:
        rows = self._rows(text, parse_special=True)
        if [row["id"] for row in rows] != self._ids(text):
            for token, piece in {row["id"]: row["piece"] for row in rows}.items():
                if isinstance(piece, str) and self._ids(piece) != [token]:
                    self._special[piece] = token

    def _ids(self, text: str, **how: bool) -> list[int]:
        return [int(row["id"]) for row in self._rows(text, **how)]

    def _rows(self, text: str, *, parse_special: bool = False, add_special: bool = False) -> Any:
        """Return the tokens of a text, each with its ``id`` and its ``piece``: a text, or bytes that are a part of a character."""
        body = {"content": text, "parse_special": parse_special, "add_special": add_special, "with_pieces": True}
        return self._post("/tokenize", body)["tokens"]
