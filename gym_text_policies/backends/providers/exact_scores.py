"""`ExactScores`: probabilities of choices by the exact log-probabilities of their tokens, from servers that give these."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gym_text_policies.backends.base import Answer, Request, softmax
from gym_text_policies.backends.chat_format import AnswerStart
from gym_text_policies.backends.local.thinking import PromptAndThought, Thought, with_budget
from gym_text_policies.backends.providers.answer_checks import is_log_prob
from gym_text_policies.backends.providers.chat_tokenizer import ChatTokenizer
from gym_text_policies.backends.providers.connection import Connection
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.llama_cpp import LlamaCpp
from gym_text_policies.backends.providers.token_server import TokenServer
from gym_text_policies.backends.providers.vllm import VLLM

TOKEN_SERVERS: tuple[type[TokenServer], ...] = (LlamaCpp, VLLM)
_NO_LIST = (404, 405, 500, 501)
"""HTTP statuses of a server that has no list of models; 500 is that of `transformers serve` without a network."""


@dataclass
class _TokenRequest(PromptAndThought):
    """A request as tokens, with the thought of the model, if it thinks."""

    answer_start: AnswerStart
    """Where the answer begins, or the thought before it."""
    candidates: list[list[int]]
    """The tokens of each choice, with an end of turn."""
    computed: int | None = 0
    """Number of tokens that the server computed for the thought; None if it does not say."""

    def answer(self, *, computed: int | None, tokens_in: int = 0, tokens_out: int = 0, **fields: Any) -> Answer:
        """Return an answer.

        Args:
            computed: Number of tokens that the server computed for the answer; None if it does not say.
            tokens_in: Number of tokens of the choices.
            tokens_out: Number of tokens that were generated behind the thought.
            fields: The other fields of the answer.
        """
        total = None if self.computed is None or computed is None else self.computed + computed
        cached = 0 if total is None else max(0, self.read + tokens_in - total)
        return self.said(tokens_cached=cached, tokens_in=tokens_in, tokens_out=tokens_out, **fields)


class ExactScores:
    """Scores choices as a model in this process does: log P(choice + end of turn | prompt), prompt and choice tokenised apart.

    Args:
        server: The server of the model.
        name: The model's name, for errors.
        template_kwargs: The user's template arguments.
        end_of_turn: The text of the token that ends an answer; None: what the chat template writes.
    """

    def __init__(
        self,
        server: TokenServer,
        name: str,
        template_kwargs: Mapping[str, Any] | None = None,
        end_of_turn: str | None = None,
    ) -> None:
        self._server = server
        self._tokens = ChatTokenizer(server.tokenizer, server.window, name, template_kwargs, end_of_turn)
        self._checked: set[str] = set()  # template arguments with which tokens were compared with the server's

    def choose(self, request: Request) -> Answer:
        """Return the probabilities of a request's choices: the softmax of their scores, behind the thought if the model thinks."""
        choices = request.choices or ()
        asked = self._with_thought(request, choices)
        scores = self._server.score(asked.prompt, asked.candidates)
        if invalid := [value for row in scores.log_probs for value in row if not is_log_prob(value)]:
            raise CallError(
                f"expected log-probabilities, finite and none above 0; got {invalid[0]:g}. Start {self._server.name} without an "
                "option for other numbers, such as vLLM's --logprobs-mode raw_logits."
            )
        sums = [sum(row) for row in scores.log_probs]
        found = zip(choices, zip(asked.candidates, scores.log_probs, strict=True), strict=True)
        return asked.answer(
            computed=scores.computed,
            probabilities=softmax(choices, sums),
            probability_kind="likelihood",
            tokens_in=sum(map(len, asked.candidates)),
            tokens=asked.tokens(dict(found)) if request.tokens else None,
        )

    def write(self, request: Request) -> Answer:
        """Return a text with its tokens."""
        asked = self._with_thought(request)
        if asked.thought and request.seed is not None:
            request = replace(request, seed=(request.seed + 1) % 2**31)  # the thought has used the draws of this seed
        generated = self._server.generate(asked.prompt, request, self._tokens.stop)
        said = self._tokens.answer(asked.answer_start, generated, words=request.schema is None)
        return asked.answer(
            computed=said.computed,
            text=said.text,
            finish=said.finish,
            tokens_out=len(said.tokens),
            tokens=asked.tokens({said.text: (said.tokens, said.log_probs)}) if request.tokens else None,
        )

    def thought_tokens(self, request: Request) -> int:
        """Return the most tokens of a thought about a request; 0 if the model does not think."""
        return self._limited_place(request)[1] or 0

    def _with_thought(self, request: Request, choices: Sequence[str] = ()) -> _TokenRequest:
        """Return a request as tokens, with the model's thought, if it thinks."""
        answer_start, limit = self._limited_place(request)
        more = 0 if limit is None else limit + len(self._tokens.ids(answer_start.thought_open + answer_start.thought_close))
        chat, candidates, dropped = self._tokens.of(
            request.messages, choices, room=request.max_tokens, more=more, read=request.read, answer_start=answer_start
        )
        asked = _TokenRequest(answer_start=answer_start, candidates=candidates, chat=tuple(chat), turns_dropped=dropped)
        if limit == 0:
            asked.thought = Thought("", cut=True)
        elif limit:
            self._think(request, asked, limit)
        return asked

    def _think(self, request: Request, asked: _TokenRequest, limit: int) -> None:
        """Let the model think, at most `limit` tokens."""
        request, stop = replace(request, max_tokens=limit, schema=None), asked.answer_start.thought_close.strip()
        generated = self._server.generate(asked.prompt, request, stop)
        while len(generated.tokens) < limit and self._tokens.stopped_within(asked.answer_start, generated):
            rest = replace(request, max_tokens=limit - len(generated.tokens))
            generated = generated.then(self._server.generate([*asked.prompt, *generated.tokens], rest, stop))
        asked.thought = self._tokens.thought(asked.answer_start, generated)
        asked.computed, asked.log_probs = generated.computed, generated.log_probs
        if asked.thought is None:  # the model has begun its answer: it answers anew, where answers begin
            asked.opening = self._tokens.ids(asked.answer_start.opening)

    def _limited_place(self, request: Request) -> tuple[AnswerStart, int | None]:
        """Return the result of `with_budget`, after a comparison of the prompt's tokens with the server's."""
        answer_start = self._tokens.format.answer_start(request.think)
        arguments = dict(answer_start.arguments)
        with self._tokens.lock:
            if (name := json.dumps(arguments, sort_keys=True)) not in self._checked:
                self._server.check_tokens(arguments)
                self._checked.add(name)
        return with_budget(answer_start, request.think_tokens, self._tokens.window)


def token_server(server: Connection, tokenizer: str | None) -> TokenServer | None:
    """Ask a server for its list of models, which tells its kind. Return None if it is none of `TOKEN_SERVERS`.

    Args:
        server: The server.
        tokenizer: Name of the model's tokenizer, if the user gave one.
    """
    rows = _models(server)
    row = next((row for row in rows if row.get("id") == server.model), rows[0] if rows else {})
    # an adapter has the tokenizer of its base
    row = next((other for other in rows if other.get("id") == row.get("parent")), row)
    kind = next((kind for kind in TOKEN_SERVERS if kind.owner == row.get("owned_by")), None)
    return None if kind is None else kind(server, row, tokenizer)


def weights_of(server: Connection) -> dict[str, Any]:
    """Return what a server tells of its model's weights and chat template, to tell one from another."""
    rows = _models(server)
    row = next((row for row in rows if row.get("id") == server.model), rows[0] if len(rows) == 1 else {})
    facts = {name: row[name] for name in ("root", "parent", "meta") if row.get(name)}
    if row.get("owned_by") == LlamaCpp.owner:
        properties = server.get("/props")
        facts["file"] = re.split(r"[/\\]", str(properties["model_path"]))[-1]
        facts["template"] = hashlib.sha256(str(properties["chat_template"]).encode()).hexdigest()[:16]
    return facts


def _models(server: Connection) -> list[dict[str, Any]]:
    """Return a server's list of models; an empty one if it has none."""
    try:
        answer = server.get("/v1/models")
    except Exception as error:
        if getattr(error, "status_code", None) in _NO_LIST:
            return []
        raise
    rows = answer.get("data") if isinstance(answer, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
