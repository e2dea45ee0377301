"""`LogProbs`: probabilities of choices by the exact log-probabilities of their tokens, from servers that give these."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Answer, Request, softmax
from gym_text_policies.backends.chat_format import Place
from gym_text_policies.backends.local.thinking import Thought, with_budget
from gym_text_policies.backends.providers.asked import Asked
from gym_text_policies.backends.providers.checks import is_log_prob
from gym_text_policies.backends.providers.connection import Connection
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.llama_cpp import LlamaCpp
from gym_text_policies.backends.providers.paths import ToWrite, Writing
from gym_text_policies.backends.providers.scoring import VLLM, ScoringServer, SGLang
from gym_text_policies.backends.providers.tokenizers import ChatTokenizer

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
        """Return the probabilities of a request's choices: the softmax of their scores, behind the thought if the model thinks."""
        choices = request.choices or ()
        asked = self._asked(request, choices)
        if asked is None:
            raise UsageError(
                f"tokens: expected False with a model that thinks and {self._form.name}, which does not tell the exact "
                "log-probabilities of what it generates. Leave tokens out, or set think=False."
            )
        reading = self._form.read(self._server, asked.prompt, asked.paths)
        if invalid := [value for row in reading.log_probs for value in row if not is_log_prob(value)]:
            raise CallError(
                f"expected log-probabilities, finite and none above 0; got {invalid[0]:g}. Start {self._form.name} without an "
                "option for other numbers, such as vLLM's --logprobs-mode raw_logits."
            )
        scores = [sum(row) / (len(row) if request.length_normalised else 1) for row in reading.log_probs]
        rows = zip(choices, zip(asked.paths, reading.log_probs, strict=True), strict=True)
        return asked.answer(
            computed=reading.computed,
            probabilities=softmax(choices, scores),
            probability_kind="likelihood",
            tokens_in=sum(map(len, asked.paths)),
            tokens=asked.tokens(dict(rows)) if request.tokens else None,
        )

    def write(self, request: Request) -> Answer | None:
        """Return a text with its tokens; None if the server does not tell them."""
        asked = self._asked(request)
        writing = self._answered(request, asked) if asked else None
        if asked is None or writing is None:
            return None
        said = self._tokens.answer(asked.place, writing, words=request.schema is None)
        return asked.answer(
            computed=writing.computed,
            text=said.text,
            finish=said.finish,
            tokens_out=len(said.tokens),
            tokens=asked.tokens({said.text: (said.tokens, said.log_probs)}) if request.tokens else None,
        )

    def _asked(self, request: Request, choices: Sequence[str] = ()) -> Asked | None:
        """Return a request as tokens, with the model's thought, if it thinks; None if the server does not tell tokens."""
        place, budget = self._limited_place(request)
        room = 0 if budget is None else budget + len(self._tokens.ids(place.thought_open + place.thought_close))
        question, paths, dropped = self._tokens.of(
            request.messages, choices, room=request.max_tokens, more=room, read=request.read, place=place
        )
        asked = Asked(place, paths, chat=tuple(question), turns_dropped=dropped)
        if budget == 0:
            asked.thought = Thought("", cut=True)
        return self._think(request, asked, budget) if budget else asked

    def _think(self, request: Request, asked: Asked, budget: int) -> Asked | None:
        """Let the model think; None if the server does not tell tokens."""
        wanted = replace(_wanted(request, budget), stop=asked.place.thought_close.strip())
        writing = self._form.write(self._server, asked.prompt, wanted)
        while writing and len(writing.tokens) < budget and self._tokens.stopped_within(asked.place, writing):
            writing = self._go_on(asked, writing, wanted)
        if writing is None:
            return None
        thought = self._tokens.thought(asked.place, writing)
        asked.computed, asked.thought, asked.log_probs = writing.computed, thought, writing.log_probs
        if thought is None:  # the model has begun its answer; unless answers begin there, it answers anew where they do
            asked.opening = self._tokens.ids(asked.place.opening)
            if not (asked.opening or request.schema or request.choices):
                asked.begun = writing
        return asked

    def _answered(self, request: Request, asked: Asked) -> Writing | None:
        """Return the text of an answer, or the rest of one that the model has begun."""
        begun, wanted = asked.begun, replace(_wanted(request, request.max_tokens), schema=request.schema, stop=self._tokens.stop)
        tokens = begun.tokens[: request.max_tokens]
        if begun.finish == "stop" or len(tokens) == request.max_tokens:
            finish = begun.finish if len(tokens) == len(begun.tokens) else "length"
            return replace(begun, tokens=tokens, log_probs=begun.log_probs[: len(tokens)], finish=finish)
        if asked.thought and wanted.seed is not None:
            wanted = replace(wanted, seed=(wanted.seed + 1) % 2**31)  # the thought has used the draws of this seed
        return self._go_on(asked, replace(begun, tokens=tokens), wanted)

    def _go_on(self, asked: Asked, begun: Writing, wanted: ToWrite) -> Writing | None:
        """Return a text that is begun, with more tokens behind it."""
        prompt, most = [*asked.prompt, *begun.tokens], wanted.most - len(begun.tokens)
        more = self._form.write(self._server, prompt, replace(wanted, most=most))
        if more is None:
            return None
        computed = None if begun.computed is None or more.computed is None else begun.computed + more.computed
        tokens, log_probs = [*begun.tokens, *more.tokens], [*begun.log_probs, *more.log_probs]
        return replace(more, text=begun.text + more.text, tokens=tokens, log_probs=log_probs, computed=computed)

    def thought_tokens(self, request: Request) -> int:
        """Return the most tokens of a thought about a request; 0 if the model does not think."""
        return self._limited_place(request)[1] or 0

    def _limited_place(self, request: Request) -> tuple[Place, int | None]:
        """Return the result of `with_budget`, after a comparison of the prompt's tokens with the server's."""
        place = self._tokens.format.place(request.think)
        arguments = dict(place.arguments)
        with self._tokens.lock:
            if (known := json.dumps(arguments, sort_keys=True)) not in self._compared:
                self._form.compare(self._server, self._tokenizer, arguments)
                self._compared.add(known)
        return with_budget(place, request.think_tokens, self._tokens.window)


def _wanted(request: Request, most: int) -> ToWrite:
    """Return how tokens are drawn for a request, at most `most`."""
    draw = {name: getattr(request, name) for name in ("temperature", "seed", "top_p", "top_k", "min_p")}
    return ToWrite(most, **draw, exact=request.tokens)


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
