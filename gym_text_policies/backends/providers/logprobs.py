"""`LogProbs`: probabilities of choices by the exact log-probabilities of their tokens, from servers that give these."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Answer, Request, softmax
from gym_text_policies.backends.chat_format import Place
from gym_text_policies.backends.providers.checks import is_log_prob
from gym_text_policies.backends.providers.connection import Connection
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.llama_cpp import LlamaCpp
from gym_text_policies.backends.providers.scoring import VLLM, ScoringServer, SGLang
from gym_text_policies.backends.providers.tokenizers import ChatTokenizer
from gym_text_policies.records import Tokens

FORMS: tuple[type[ScoringServer], ...] = (LlamaCpp, VLLM, SGLang)
_UNKNOWN = (404, 405, 501)
"""HTTP statuses of a server that does not know a path."""


class LogProbs:
    """Scores choices as a model in this process does: log P(choice + end of turn | prompt), prompt and choice tokenised apart.

    Args:
        form: The kind of server.
        server: The server.
        template_kwargs: The user's template arguments.
        end_of_turn: The text of the token that ends an answer; None: what the chat template writes.
    """

    def __init__(
        self,
        form: ScoringServer,
        server: Connection,
        template_kwargs: Mapping[str, Any] | None = None,
        end_of_turn: str | None = None,
    ) -> None:
        self._form = form
        self._server = server
        self._tokenizer = form.tokenizer(server)
        self._tokens = ChatTokenizer(self._tokenizer, form.window(server), server.model, template_kwargs, end_of_turn)
        self._compared: set[str] = set()

    @classmethod
    def of(
        cls,
        server: Connection,
        tokenizer: str | None,
        template_kwargs: Mapping[str, Any] | None = None,
        end_of_turn: str | None = None,
        *,
        only: bool,
    ) -> LogProbs | None:
        """Ask a server for its list of models, which tells its kind. Return None if typed decisions are to be used instead.

        Args:
            server: The server.
            tokenizer: Name of the model's tokenizer, if the user gave one.
            template_kwargs: The user's template arguments.
            end_of_turn: The text of the token that ends an answer; None: what the chat template writes.
            only: Whether to use log-probabilities even if the server has typed decisions.

        Raises:
            UsageError: If the model's tokenizer is needed and cannot be loaded, or with `only` if the server gives no
                log-probabilities.
        """
        rows = _models(server)
        row = next((row for row in rows if row.get("id") == server.model), rows[0] if rows else {})
        # an adapter has the tokenizer of its base
        row = next((other for other in rows if other.get("id") == row.get("parent")), row)
        form = next((form for form in FORMS if form.owner == row.get("owned_by")), None)
        if form is None and only:
            names = ", ".join(form.name for form in FORMS)
            raise UsageError(
                f"decide='logprobs': expected a server that gives log-probabilities of given tokens ({names}), as "
                f"owned_by in its /v1/models says; got {row.get('owned_by')!r}. Take decide='systemone' for transformers serve, "
                "decide='letter' for a chat with top_logprobs, or mode 'json' for any."
            )
        if form is None or (not only and _has_decisions(server)):
            return None
        return cls(form(row, tokenizer), server, template_kwargs, end_of_turn)

    def ask(self, request: Request) -> Answer:
        """Return the probabilities of a request's choices: the softmax of their scores."""
        choices = request.choices or ()
        prompt, paths, dropped = self._tokens.of(request.messages, choices, read=request.read, place=self._place(request))
        reading = self._form.read(self._server, prompt, paths)
        if invalid := [value for row in reading.log_probs for value in row if not is_log_prob(value)]:
            raise CallError(
                f"expected log-probabilities, finite and none above 0; got {invalid[0]:g}. Start {self._form.name} without an "
                "option for other numbers, such as vLLM's --logprobs-mode raw_logits."
            )
        scores = [sum(row) / (len(row) if request.length_normalised else 1) for row in reading.log_probs]
        tokens_in = len(prompt) + sum(map(len, paths))
        rows = zip(choices, paths, reading.log_probs, strict=True)
        tokens_of = {choice: Tokens(tuple(prompt), tuple(path), tuple(log_probs)) for choice, path, log_probs in rows}
        return Answer(
            probabilities=softmax(choices, scores),
            probability_kind="likelihood",
            tokens_in=tokens_in,
            tokens_cached=0 if reading.computed is None else max(0, tokens_in - reading.computed),
            turns_dropped=dropped,
            tokens=tokens_of if request.tokens else None,
        )

    def _place(self, request: Request) -> Place:
        """Return where the answer begins, after a comparison of the prompt's tokens with the server's."""
        place = self._tokens.format.place(request.think)
        arguments = dict(place.arguments)
        if (known := json.dumps(arguments, sort_keys=True)) not in self._compared:
            self._form.compare(self._server, self._tokenizer, arguments)
            self._compared.add(known)
        return place

    def write(self, request: Request) -> Answer | None:
        """Return a text with its tokens; None if the server does not tell them."""
        place = self._place(request)
        prompt, _, dropped = self._tokens.of(request.messages, room=request.max_tokens, read=request.read, place=place)
        writing = self._form.write(self._server, prompt, request.max_tokens, request.temperature, request.seed)
        if writing is None:
            return None
        return Answer(
            writing.text,
            finish=writing.finish,
            tokens_in=len(prompt),
            tokens_cached=0 if writing.computed is None else max(0, len(prompt) - writing.computed),
            tokens_out=len(writing.tokens),
            turns_dropped=dropped,
            tokens={writing.text: Tokens(tuple(prompt), tuple(writing.tokens), tuple(writing.log_probs))},
        )


def tells(server: Connection) -> dict[str, Any]:
    """Return what a server tells of its model's weights and chat template, to tell one from another."""
    rows = _models(server)
    row = next((row for row in rows if row.get("id") == server.model), rows[0] if len(rows) == 1 else {})
    facts = {name: row[name] for name in ("root", "parent", "meta") if row.get(name)}
    if row.get("owned_by") == LlamaCpp.owner:
        properties = server.get("/props")
        facts["file"] = re.split(r"[/\\]", str(properties["model_path"]))[-1]
        facts["template"] = hashlib.sha256(str(properties["chat_template"]).encode()).hexdigest()[:16]
    return facts


def _status(error: Exception) -> int | None:
    """Return the HTTP status in an error of the client, if there is one."""
    return getattr(error, "status_code", None)


def _has_decisions(server: Connection) -> bool:
    """Return whether a server has typed decisions, by its answer to an empty request for one."""
    try:
        server.post("/v1/decisions", {})
    except Exception as error:
        if _status(error) is None:
            raise
        return _status(error) not in _UNKNOWN
    return True


def _models(server: Connection) -> list[dict[str, Any]]:
    """Return a server's list of models; an empty one if it has none."""
    try:
        answer = server.get("/v1/models")
    except Exception as error:
        if _status(error) in (*_UNKNOWN, 500):  # `transformers serve` without a network answers 500
            return []
        raise
    rows = answer.get("data") if isinstance(answer, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
