"""`LlamaCppTokenizer`: a tokenizer that asks a llama.cpp server for the text of chats, and for tokens."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gym_text_policies.backends.local.rendering import rendered
from gym_text_policies.records import Message

_REMEMBERED = 4096
"""Most texts whose special tokens, and most tokens whose texts, are kept."""
MARK = re.compile(r"<[^<>\s]{2,}>|\[/?[A-Z][A-Z_]+\]")
"""The form of markers in chat templates: ``</think>``, ``[TOOL_CALLS]``."""
_REFUSED = (400, 500)
"""HTTP statuses of llama.cpp's server for a chat that the template refuses."""
Post = Callable[[str, dict[str, Any]], Any]
"""Posts JSON to a path of the server, and returns its answer."""


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
        end: The text of the token that ends a text; empty if the model has none.
        chat_template: The model's chat template. Some of its markers are single tokens even if special tokens are read as text.
            The words of a game never become these markers either.
    """

    def __init__(self, post: Post, begin: str, end: str, chat_template: str = "") -> None:
        self._post = post
        self.eos_token = end or None
        self._special: dict[str, int] = {}  # special tokens met so far
        self._learn = functools.lru_cache(_REMEMBERED)(self._learn_anew)
        self._text_of = functools.lru_cache(_REMEMBERED)(self._text_of_anew)
        self.chat_template = chat_template
        marks = {row["id"]: row["piece"] for row in self._rows(chat_template)} if chat_template else {}
        self.added_tokens_decoder = {token: _Mark(piece) for token, piece in marks.items() if MARK.fullmatch(str(piece))}
        self.eos_token_id = self._ids(end, parse_special=True)[0] if end else None
        # /apply-template leaves out the beginning of text, which /tokenize would add; transformers' templates write it
        self._begin = begin if self._ids("", add_special=True)[:1] == self._ids(begin, parse_special=True) else ""

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens met so far."""
        return list(self._special)

    @property
    def all_special_ids(self) -> list[int]:
        """The numbers of `all_special_tokens`."""
        return list(self._special.values())

    def __call__(self, text: str, *, add_special_tokens: bool = False, split_special_tokens: bool = False) -> dict[str, list[int]]:
        """Return the tokens of a text; with `split_special_tokens` none of them is special."""
        return {"input_ids": self._ids(text, parse_special=not split_special_tokens)}

    def convert_tokens_to_ids(self, token: str) -> int:
        """Return the number of a special token, or of another marker that the template spells."""
        marks = {str(mark): number for number, mark in self.added_tokens_decoder.items()}
        return self._special[token] if token in self._special else marks[token]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False, **_: Any) -> str:
        """Return the text of tokens, by default with that of special tokens."""
        text = self._text_of(tuple(tokens))
        if not skip_special_tokens:
            return text
        self.learn_text(text)
        return self._text_of(tuple(token for token in tokens if token not in self.all_special_ids))

    def apply_chat_template(
        self, messages: Sequence[Message], *, tokenize: bool = False, add_generation_prompt: bool = True, **arguments: Any
    ) -> str:
        """Return a chat as text, by default up to where the model's answer begins.

        Args:
            messages: The chat.
            tokenize: Not supported.
            add_generation_prompt: Whether the model's answer begins behind the chat.
            arguments: The template's arguments.

        Raises:
            ValueError: If the template refuses the chat.
        """
        if not messages or messages[-1]["role"] != "assistant":
            return self._begin + self._rendered(messages, add_generation_prompt, arguments)
        # the server would take the last answer for the beginning of the next one, and leave out what the template writes behind
        # it. A template's argument replaces the variable of the same name, so the template gets the chat as it is
        question = [{"role": "user", "content": ""}]
        text = self._rendered(question, True, arguments | {"messages": list(messages)})
        if not add_generation_prompt:  # without one the server writes another end for gpt-oss
            before, asked = (self._rendered(question, generation, arguments) for generation in (False, True))
            text = text.removesuffix(asked.removeprefix(before))
        return self._begin + text

    def _rendered(self, chat: Sequence[Mapping[str, Any]], generation: bool, arguments: Mapping[str, Any]) -> str:
        """Return what the server renders a chat to."""
        body = {"messages": list(chat), "add_generation_prompt": generation, "chat_template_kwargs": dict(arguments)}
        try:
            return str(self._post("/apply-template", body)["prompt"])
        except Exception as error:
            if getattr(error, "status_code", None) in _REFUSED:
                raise ValueError(f"llama.cpp's server: {error}") from error
            raise

    def learn(self, messages: Sequence[Message]) -> None:
        """Learn the special tokens that a chat's messages spell; if they spell any, learn those of the template, too."""
        texts = [text for message in messages for text in message.values()]
        for text in texts:
            self.learn_text(text)
        marks = (*self._special, *map(str, self.added_tokens_decoder.values()))
        if any(token in text for text in texts for token in marks):
            self.learn_text(rendered(self, messages))

    def learn_text(self, text: str) -> None:
        """Learn the special tokens that a text spells."""
        self._learn(text)

    def _learn_anew(self, text: str) -> None:
        rows = self._rows(text, parse_special=True)
        if [row["id"] for row in rows] != self._ids(text):
            for token, piece in {row["id"]: row["piece"] for row in rows}.items():
                if isinstance(piece, str) and self._ids(piece) != [token]:
                    self._special[piece] = token

    def _text_of_anew(self, tokens: tuple[int, ...]) -> str:
        return str(self._post("/detokenize", {"tokens": list(tokens)})["content"])

    def _ids(self, text: str, **how: bool) -> list[int]:
        return [int(row["id"]) for row in self._rows(text, **how)]

    def _rows(self, text: str, *, parse_special: bool = False, add_special: bool = False) -> Any:
        """Return the tokens of a text, each with its ``id`` and its ``piece``: a text, or bytes that are a part of a character."""
        body = {"content": text, "parse_special": parse_special, "add_special": add_special, "with_pieces": True}
        return self._post("/tokenize", body)["tokens"]
