"""`TokenServer`: a kind of server that takes tokens and gives their log-probabilities, and what it is asked and answers.

A server is asked for the log-probability of each token of several candidates behind a prompt: the actions of mode ``choose``, each
with the end of turn. Requests are made so that the server computes the prompt once, and uses its cache of earlier prompts.

A server turns the words of a game into special tokens if they spell one, so that a game could forge a role. It also accepts tokens:
so prompts are tokenised in this process, by the model's tokenizer of transformers, and compared with the server's tokens once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.tokens import check_tokenizer
from gym_text_policies.backends.providers.connection import Connection
from gym_text_policies.records import Message

Candidates = Sequence[Sequence[int]]
"""The tokens of each text that may stand behind a prompt."""
_CHECKED: tuple[Message, ...] = ({"role": "user", "content": "You see a red ball.\n\nGo to it."},)
"""A chat whose tokens are compared with the server's."""


@dataclass(frozen=True)
class Generated:
    """The tokens that a server has generated behind a prompt."""

    tokens: Sequence[int] = ()
    """The end of turn included, if the model ended its text."""
    log_probs: Sequence[float] = ()
    """The log-probability of each token, in nats: in the distribution that the token was drawn from, or at temperature 1 if nothing
    was drawn. Empty unless they were asked for."""
    computed: int | None = 0
    """Number of the prompt's tokens that the server computed; None if it does not say."""
    finish: str | None = None
    """How the text ended, as a value of `Answer.finish`."""

    def then(self, more: Generated) -> Generated:
        """Return these tokens with more behind them."""
        computed = None if self.computed is None or more.computed is None else self.computed + more.computed
        tokens, log_probs = [*self.tokens, *more.tokens], [*self.log_probs, *more.log_probs]
        return Generated(tokens, log_probs, computed, more.finish)


class TokenServer(ABC):
    """One kind of server that takes tokens and gives their log-probabilities.

    Args:
        server: The server.
        row: The model's entry in ``/v1/models``.
        tokenizer: Name of the model's tokenizer, if the user gave one.
    """

    name: ClassVar[str]
    owner: ClassVar[str]
    """The owner of the models in this kind of server's ``/v1/models``."""

    def __init__(self, server: Connection, row: Mapping[str, Any], tokenizer: str | None) -> None:
        self._server = server
        self._row = row
        self._tokenizer_name = tokenizer

    @property
    @abstractmethod
    def window(self) -> int:
        """The most tokens that the model reads."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The server's name for the model: a folder, a file, or a name on the hub."""

    @property
    def template(self) -> str | None:
        """The server's chat template; None: that of the tokenizer."""
        return None

    @abstractmethod
    def chat_tokens(self, chat: Sequence[Message], arguments: Mapping[str, Any]) -> list[int]:
        """Return the server's tokens of a chat, with template arguments, up to where an answer begins."""

    @abstractmethod
    def score(self, prompt: Sequence[int], candidates: Candidates) -> tuple[list[list[float]], int | None]:
        """Return the log-probability of each token of each candidate behind a prompt, in nats.

        And the number of tokens that the server computed; None if it does not say.
        """

    @abstractmethod
    def generate(self, prompt: Sequence[int], request: Request, stop: str = "") -> Generated:
        """Generate tokens behind a prompt.

        Args:
            prompt: The tokens before them.
            request: How many are generated at most, how they are drawn, and the JSON schema of the text, if there is one.
            stop: A text behind which the server may stop, if there is one. If the request needs the log-probability of each token,
                it is not sent, as servers do not give those of its tokens.
        """

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer: of the name that the user gave, or else of the server's name for the model.

        Raises:
            UsageError: If it cannot be loaded, or has no chat template.
        """
        path = self._tokenizer_name or self.path
        model = f"the model {self._server.model!r}"
        return load_tokenizer(
            path, f"tokenizer: expected that of {model}, which {self.name} leaves to its client; got {path!r}.", self.template
        )

    def check_tokens(self, arguments: Mapping[str, Any]) -> None:
        """Check that the server gives a chat the same tokens as `tokenizer`, with these template arguments.

        Raises:
            UsageError: If the tokens differ.
        """
        chat = list(_CHECKED)
        here = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, **arguments)["input_ids"]
        tokens = self.chat_tokens(chat, arguments)
        if list(here) != tokens:
            given = f" with the template arguments {dict(arguments)}" if arguments else ""
            raise UsageError(
                f"tokenizer: expected the tokens that {self.name} gives a chat{given}; {self._tokenizer_name or self.path!r} gives "
                f"{list(here)}, the server {tokens}. Name the served model's tokenizer: tokenizer='hf:OWNER/NAME', or the folder "
                "of its files."
            )


def load_tokenizer(name: str, why: str, template: str | None = None) -> Any:
    """Return a tokenizer of transformers: ``hf:OWNER/NAME``, ``OWNER/NAME``, a folder, a GGUF file, or ``smollm2``.

    Args:
        name: Its name.
        why: The beginning of the error if there is no such tokenizer, or it has no chat template.
        template: A chat template in place of the tokenizer's.
    """
    transformers = import_extra("transformers", "local")
    if name == "smollm2":
        from gym_text_policies.backends.local.smollm2 import smollm2_folder

        name = str(smollm2_folder())
    file = Path(name)
    try:
        if file.suffix == ".gguf":
            if not file.is_file():
                raise OSError("There is no such file on this machine.")
            import_extra("gguf", "local")
            tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(name.removeprefix("hf:"), trust_remote_code=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise UsageError(
            f"{why} {' '.join(str(error).split())[:300]} Name it: tokenizer='hf:OWNER/NAME', or the folder of its files."
        ) from error
    tokenizer.chat_template = template or tokenizer.chat_template
    check_tokenizer(tokenizer, f"{why} {name!r}:")
    return tokenizer


def draw_settings(request: Request) -> dict[str, float]:
    """Return the seed, `top_p`, `top_k` and `min_p` of a request, as far as they are given; none if nothing is drawn."""
    names = ("seed", "top_p", "top_k", "min_p") if request.temperature else ()
    return {name: getattr(request, name) for name in names if getattr(request, name) is not None}


def next_tokens(candidates: Candidates) -> dict[tuple[int, ...], list[int]]:
    """Return all proper beginnings of candidates, each with the tokens that may follow it.

    >>> next_tokens([[5, 2], [5, 6, 2]])
    {(): [5], (5,): [2, 6], (5, 6): [2]}
    """
    following: dict[tuple[int, ...], dict[int, None]] = {}
    for candidate in candidates:
        for index, token in enumerate(candidate):
            following.setdefault(tuple(candidate[:index]), {})[token] = None
    return {beginning: list(tokens) for beginning, tokens in following.items()}


def along(candidates: Candidates, values: Mapping[tuple[int, ...], Mapping[int, float]]) -> list[list[float]]:
    """Return the value of each token of each candidate. The keys of `values` are the tokens before a token, then the token."""
    return [[values[tuple(tokens[:index])][token] for index, token in enumerate(tokens)] for tokens in candidates]
