"""`ExactScores`: probabilities of choices by the exact log-probabilities of their tokens, from servers that give these."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gym_text_policies.backends.base import Answer, Request, softmax
from gym_text_policies.backends.chat_format import AnswerStart
from gym_text_policies.backends.local.rendering import format_of, set_format
from gym_text_policies.backends.local.thinking import PromptAndThought, Thought, ThoughtMarkers, ends_with_beginning, with_budget
from gym_text_policies.backends.local.tokens import end_of_turn as end_of_turn_of
from gym_text_policies.backends.local.tokens import fitting_tokens, stops, template_tokens, text_tokens
from gym_text_policies.backends.providers.answer_checks import is_log_prob
from gym_text_policies.backends.providers.connection import CallError, Connection
from gym_text_policies.backends.providers.llama_cpp import LlamaCpp
from gym_text_policies.backends.providers.token_server import Generated, TokenServer
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

    def cached(self, computed: int | None, tokens_in: int = 0) -> int:
        """Return how many tokens the server did not compute, of the prompt and of `tokens_in` more; 0 if it does not say."""
        if self.computed is None or computed is None:
            return 0
        return max(0, self.read + tokens_in - self.computed - computed)


class ExactScores:
    """Scores choices as a model in this process does: log P(choice + end of turn | prompt), prompt and choice tokenised apart.

    Several threads may use it.

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
        self._server, self._name, self._tokenizer = server, name, server.tokenizer
        set_format(self._tokenizer, template_kwargs or {}, end_of_turn or "")
        self._format = format_of(self._tokenizer)
        self._end = end_of_turn_of(self._tokenizer)
        self._stops = stops(self._tokenizer)
        self._lock = threading.Lock()  # a tokenizer of transformers has a state
        self._checked: set[str] = set()  # template arguments with which tokens were compared with the server's

    def choose(self, request: Request) -> Answer:
        """Return the probabilities of a request's choices: the softmax of their scores, behind the thought if the model thinks."""
        choices = request.choices or ()
        asked = self._with_thought(request, choices)
        log_probs, computed = self._server.score(asked.prompt, asked.candidates)
        if invalid := [value for row in log_probs for value in row if not is_log_prob(value)]:
            raise CallError(
                f"expected log-probabilities, finite and none above 0; got {invalid[0]:g}. Start {self._server.name} without an "
                "option for other numbers, such as vLLM's --logprobs-mode raw_logits."
            )
        sums = [sum(row) for row in log_probs]
        found = zip(choices, zip(asked.candidates, log_probs, strict=True), strict=True)
        tokens_in = sum(map(len, asked.candidates))
        return asked.said(
            probabilities=softmax(choices, sums),
            probability_kind="likelihood",
            tokens_in=tokens_in,
            tokens_cached=asked.cached(computed, tokens_in),
            tokens_out=0,
            tokens=asked.tokens(dict(found)) if request.tokens else None,
        )

    def write(self, request: Request) -> Answer:
        """Return a text with its tokens."""
        asked = self._with_thought(request)
        if asked.thought and request.seed is not None:
            request = replace(request, seed=(request.seed + 1) % 2**31)  # the thought has used the draws of this seed
        with self._lock:  # the end of text stops every server
            stop = "" if self._end == self._tokenizer.eos_token_id else str(self._tokenizer.decode([self._end]))
        generated = self._server.generate(asked.prompt, request, stop)
        with self._lock:
            text, said = self._answer(asked.answer_start, generated, words=request.schema is None)
        return asked.said(
            text=text,
            finish=said.finish,
            tokens_in=0,
            tokens_cached=asked.cached(said.computed),
            tokens_out=len(said.tokens),
            tokens=asked.tokens({text: (said.tokens, said.log_probs)}) if request.tokens else None,
        )

    def _with_thought(self, request: Request, choices: Sequence[str] = ()) -> _TokenRequest:
        """Return a request as tokens, with the model's thought, if it thinks."""
        with self._lock:
            answer_start = self._format.answer_start(request.think)
            arguments = dict(answer_start.arguments)
            if (key := json.dumps(arguments, sort_keys=True)) not in self._checked:
                self._server.check_tokens(arguments)
                self._checked.add(key)
            answer_start, limit = with_budget(answer_start, request, self._server.window)
            more = 0 if limit is None else limit + len(self._ids(answer_start.thought_open + answer_start.thought_close))
            candidates = [[*text_tokens(self._tokenizer, choice), self._end] for choice in choices]
            room = more + (max(map(len, candidates)) if candidates else request.max_tokens)
            chat, dropped = fitting_tokens(
                self._tokenizer,
                request.messages,
                self._server.window - room,
                self._name,
                read=request.read,
                answer_start=answer_start,
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
        while len(generated.tokens) < limit and self._stopped_within(stop, generated):
            rest = replace(request, max_tokens=limit - len(generated.tokens))
            generated = generated.then(self._server.generate([*asked.prompt, *generated.tokens], rest, stop))
        asked.computed, asked.log_probs = generated.computed, generated.log_probs
        with self._lock:
            asked.thought = self._thought(asked.answer_start, generated)
            if asked.thought is None:  # the model has begun its answer: it answers anew, where answers begin
                asked.opening = self._ids(asked.answer_start.opening)

    def _ids(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text that the chat template writes."""
        return tuple(template_tokens(self._tokenizer, text)) if text else ()

    def _stopped_within(self, close: str, generated: Generated) -> bool:
        """Return whether a server took a part of what closes a thought for an end: in channels, a thought and a turn end alike."""
        if generated.finish != "stop" or not generated.tokens or generated.tokens[-1] in self._stops:
            return False
        with self._lock:
            return ends_with_beginning(self._tokenizer.decode(generated.tokens), close)

    def _thought(self, answer_start: AnswerStart, generated: Generated) -> Thought | None:
        """Return the thought with which a text begins that was generated up to the end of the thought, or of the turn.

        It is None if the model began an answer.
        """
        markers, tokens = self._markers(answer_start), list(generated.tokens)
        if tokens and generated.finish == "stop" and not answer_start.is_closed(markers.raw(tokens)):
            ends = stops(self._tokenizer, tokens[-1], answer_start)  # the server may know more ends
            markers = ThoughtMarkers(self._tokenizer, answer_start, ends)
        size = next((size for size in range(1, len(tokens) + 1) if markers.ends(tokens[:size])), len(tokens))
        return markers.thought(tokens[:size])

    def _answer(self, answer_start: AnswerStart, generated: Generated, *, words: bool) -> tuple[str, Generated]:
        """Return the text of a generated answer without thoughts (with a JSON schema it has none), and its tokens up to its end."""
        ends = [index for index, token in enumerate(generated.tokens, 1) if token in self._stops]
        ended = ends[0] if ends else len(generated.tokens) if generated.finish == "stop" else 0
        tokens, finish = list(generated.tokens[: ended or None]), "stop" if ended else generated.finish
        said = tokens[:-1] if ended else tokens
        text = str(self._tokenizer.decode(said, skip_special_tokens=True))
        if words and answer_start.thought_close:
            text, closed = self._markers(answer_start).answer(said, text)
            finish = finish if closed else "length"
        return text, replace(generated, tokens=tokens, log_probs=generated.log_probs[: len(tokens)], finish=finish)

    def _markers(self, answer_start: AnswerStart) -> ThoughtMarkers:
        return ThoughtMarkers(self._tokenizer, answer_start, stops(self._tokenizer, answer_start=answer_start))


def token_server(server: Connection, tokenizer: str | None) -> TokenServer | None:
    """Ask a server for its list of models, which tells its kind. Return None if it is none of `TOKEN_SERVERS`."""
    try:
        answer = server.get("/v1/models")
    except Exception as error:
        if getattr(error, "status_code", None) in _NO_LIST:
            return None
        raise
    models = answer.get("data") if isinstance(answer, dict) else None
    rows = [row for row in models if isinstance(row, dict)] if isinstance(models, list) else []
    row = next((row for row in rows if row.get("id") == server.model), rows[0] if rows else {})
    # an adapter has the tokenizer of its base
    row = next((other for other in rows if other.get("id") == row.get("parent")), row)
    kind = next((kind for kind in TOKEN_SERVERS if kind.owner == row.get("owned_by")), None)
    return None if kind is None else kind(server, row, tokenizer)
