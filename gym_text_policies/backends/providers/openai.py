"""OpenAI, and every server with its protocol: vLLM, llama.cpp, SGLang, `transformers serve`, Gemini's compatible endpoint."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from gym_text.errors import UsageError, check_choice, import_extra
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.provider_table import PROVIDERS
from gym_text_policies.backends.providers.chat_answers import read_chat
from gym_text_policies.backends.providers.chat_messages import Detail, tools_of, with_calls, with_field, with_picture_part
from gym_text_policies.backends.providers.chat_settings import ChatSettings, refuse_settings
from gym_text_policies.backends.providers.connection import Connection, Servers, check_url
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.exact_scores import ExactScores, token_server, weights_of
from gym_text_policies.backends.providers.keys import NO_KEY, key_of
from gym_text_policies.backends.providers.options import RemoteOptions, check_fields, check_name
from gym_text_policies.backends.providers.remote import RemoteBackend
from gym_text_policies.backends.providers.thought_limit import ThoughtLimit
from gym_text_policies.backends.providers.typed_decisions import check_no_picture, check_no_thought, decision, systemone

Decide = Literal["auto", "decisions", "systemone", "logprobs"]
"""The ways to ask for choices; see `OpenAIBackend`."""
_MOST_CHOICES = {"decisions": 255, "systemone": 26}
"""Most choices of a typed decision. ``logprobs`` has no limit; ``auto`` is ``logprobs`` or ``decisions``."""
_OTHER_WAYS = (
    " Typed decisions are OpenAI's. decide='auto' or 'logprobs' takes the log-probabilities of llama.cpp and vLLM; "
    "decide='systemone' is for transformers serve. Mode 'json' needs none."
)


class OpenAIBackend(RemoteBackend):
    """A model by the official `openai` client.

    For a text a chat completion is requested, with the schema, if any, as a strict JSON schema, and with the tool, if any, as the
    one function that the model has to call. There are four ways to ask for choices:

    * ``decisions``: one typed decision of 2 to 255 choices, at OpenAI.
    * ``logprobs``: the exact score of each choice, log P(choice + end of turn | prompt), as of a model in this process; from
      llama.cpp and vLLM. See `TokenServer` for how each is asked.
    * ``systemone``: ``/v1/systemone`` of `transformers serve`, for at most 26 choices: each gets a letter, and the logits of the
      letters are compared.
    * ``auto``: ``logprobs`` if the server is llama.cpp or vLLM, else ``decisions``. With a `base_url` the server is asked for its
      kind at the first request with choices.

    In records ``auto`` and ``decisions`` are the same, so that episodes stored with one are found with the other. The record of
    each decision says how it was made (`probability_kind`).

    Args:
        model: The model's name.
        options: See `RemoteOptions`.
        base_url: Address of another server, with its ``/v1``; by default OPENAI_BASE_URL of the environment, else OpenAI. Or the
            addresses of several servers with the same model, which share the load: see `Servers`.
        key_variable: Name of the environment variable with the key; None sends none. Other servers may need none.
        decide: How to ask for choices.
        tokenizer: The model's tokenizer, ``hf:OWNER/NAME`` or a folder, for ``logprobs`` with vLLM. By default it is loaded by the
            server's name for the model. No answer depends on it: a tokenizer with other tokens than the server's is refused.
        template_kwargs: Arguments of the model's chat template, such as ``{"enable_thinking": false}``, on a server of one's own.
        end_of_turn: The text of the token that ends an answer, for ``logprobs`` and tokens; by default what the template writes.
        picture_detail: In how much detail a model of OpenAI's sees a picture: low, high or auto; None leaves it to the server.
        extra: More fields of a chat completion, such as ``{"reasoning_effort": "low"}``. None leaves a field out:
            ``{"temperature": None}`` for models that take no temperature.
    """

    provider = "openai"
    takes_pictures = True

    def __init__(
        self,
        model: str,
        options: RemoteOptions | None = None,
        *,
        base_url: str | Sequence[str] | None = None,
        key_variable: str | None = PROVIDERS["openai"].key_variable,
        decide: Decide = "auto",
        tokenizer: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        end_of_turn: str | None = None,
        picture_detail: Detail | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, options)
        check_choice("decide", decide, get_args(Decide))
        if picture_detail is not None:
            check_choice("picture_detail", picture_detail, get_args(Detail))
        self._detail = picture_detail
        base_url = base_url if base_url is not None else os.environ.get("OPENAI_BASE_URL") or ()
        self._urls = [check_url(url) for url in (base_url if isinstance(base_url, list | tuple) else [base_url])]
        key = key_of(key_variable)
        self._name_server(self._urls[0] if len(self._urls) == 1 else self._urls)
        if not key and not self._urls:
            raise UsageError(f"openai:{model}: expected a key in the environment variable {key_variable}; it is not set.")
        self._keep_secret(key)
        self._openai: Any = import_extra("openai", "openai")
        self._client = Servers([self._connect(url, key or NO_KEY) for url in (self._urls or (None,))])
        self._decide: Decide = "decisions" if decide == "auto" and not self._urls else decide
        self._tokenizer = check_name("tokenizer", tokenizer)
        self._end_of_turn = check_name("end_of_turn", end_of_turn)
        self._extra = check_fields("extra", extra)
        self._template_kwargs = check_fields("template_kwargs", template_kwargs)
        own = bool(self._urls)
        if "chat_template_kwargs" in self._extra or (template_kwargs and not own):
            raise UsageError(
                "template_kwargs: expected it in place of chat_template_kwargs in extra, and only with a base_url, as OpenAI takes "
                "no template arguments."
            )
        self._settings = ChatSettings(f"openai:{model}", own=own, template_kwargs=self._template_kwargs, given=self._extra)
        self._thoughts = ThoughtLimit(self._call, self._is_by_tokens)
        self._scores: dict[Connection, ExactScores | None] = {}  # of the servers that were asked for their kind
        self._lock = threading.Lock()
        self.most_choices = _MOST_CHOICES.get(self._decide, _MOST_CHOICES["decisions"])
        self.probability_kind = {"decisions": "decision", "systemone": "letter"}.get(self._decide, "likelihood")

    def _connect(self, url: str | None, key: str) -> Connection:
        timeout = self._options.timeout
        return Connection(self._openai.OpenAI(base_url=url, api_key=key, timeout=timeout, max_retries=0), self.model, timeout)

    @property
    def config(self) -> dict[str, Any]:
        """Model, server, and what else its answers depend on."""
        settings = {
            "decide": None if self._decide in ("auto", "decisions") else self._decide,
            "template_kwargs": self._template_kwargs,
            "end_of_turn": self._end_of_turn,
            "picture_detail": self._detail,
            "extra": self._extra,
        }
        return super().config | {name: value for name, value in settings.items() if value}

    def _ask_weights(self) -> dict[str, Any]:
        """Return what the servers tell of their model; raise `UsageError` if they differ."""
        with self._failures():
            weights = [weights_of(server) if self._urls else {} for server in self._client.connections]
        if any(of_server != weights[0] for of_server in weights):
            raise UsageError(f"identify_weights: expected servers of one model; they tell of different ones: {weights}.")
        return weights[0]

    @property
    def _hides_thoughts(self) -> bool:
        return not self._settings.by_template

    def _check_choices(self, request: Request) -> None:
        check_no_picture(request)
        if self._decide in _MOST_CHOICES:  # else the server is asked for its kind first
            super()._check_choices(request)

    def _sent(self, request: Request) -> tuple[Any, int]:
        """Return what is sent. A chat contains `extra`, which may raise the number of tokens that can be generated."""
        thought = self._thought_by_tokens(request)
        if request.choices is not None:
            sent, most = super()._sent(request)
            return sent, most + thought
        body = self._body(replace(request, picture=None))  # its bytes are no tokens
        limits = [body[name] for name in ("max_tokens", "max_completion_tokens") if name in body]
        answers = body.get("n", 1)
        if self._budget.is_limited and not (limits and all(type(number) is int and number > 0 for number in (*limits, answers))):
            raise UsageError(
                "extra: expected max_tokens, or max_completion_tokens, to be a number with max_cost and max_total_tokens; without "
                "it an answer's cost has no bound."
            )
        return body, max(limits, default=request.most_tokens) * answers + thought

    def _is_by_tokens(self, request: Request) -> bool:
        """Return whether a request is answered by tokens, if the server takes tokens."""
        if request.choices is not None:
            return self._decide not in _MOST_CHOICES
        others = (request.schema, request.tool, request.picture)
        return request.tokens and bool(self._urls) and all(part is None for part in others)

    def _thought_by_tokens(self, request: Request) -> int:
        """Return the most tokens of a thought that the model's window limits, and not the request."""
        if not self._budget.is_limited or request.think_tokens is not None or not self._is_by_tokens(request):
            return 0
        if not self._scores:
            with self._client.turn() as server, self._failures():
                self._scores_of(server)
        scores = next(iter(self._scores.values()))
        return scores.thought_tokens(request) if scores else 0

    def _ask(self, request: Request) -> Answer:
        with self._client.turn() as server, self._failures():
            scores = self._scores_of(server) if self._is_by_tokens(request) else None
            if request.choices is None:
                return scores.write(request) if scores else read_chat(self._complete(server, request))
            if scores:
                return scores.choose(request)
            super()._check_choices(request)
            check_no_thought(request)
            return systemone(server, request) if self._decide == "systemone" else decision(server, request)

    def _scores_of(self, server: Connection) -> ExactScores | None:
        """Return what scores choices at a server; None if it makes typed decisions. Each server is asked for its kind once."""
        with self._lock:
            if server not in self._scores:
                tokens = token_server(server, self._tokenizer)
                if tokens is None and self._decide == "logprobs":
                    raise UsageError(
                        f"decide='logprobs': expected llama.cpp or vLLM, as owned_by in its /v1/models says.{_OTHER_WAYS}"
                    )
                given = (self._template_kwargs, self._end_of_turn)
                self._scores[server] = ExactScores(tokens, self.model, *given) if tokens else None
            return self._scores[server]

    def _hint(self) -> str:
        return " Mode 'json' needs no log-probabilities." if any(self._scores.values()) else _OTHER_WAYS

    def _body(self, request: Request) -> dict[str, Any]:
        """Return the body of a chat completion's request."""
        more: dict[str, Any] = {}
        if request.tool is not None:
            more = {"tools": tools_of(request, strict=True), "tool_choice": "required", "parallel_tool_calls": False}
        elif request.schema is not None:
            schema = {"name": "answer", "schema": dict(request.schema), "strict": True}
            more["response_format"] = {"type": "json_schema", "json_schema": schema}
        if not self._urls:
            refuse_settings("OpenAI", request, ("top_k", "min_p"))
        messages = with_calls(with_field(request.messages, self._settings.thought_field), request, numbered=True)
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": with_picture_part(messages, request.picture, self._detail),
            # OpenAI's newer models take only the longer name; not every compatible server knows that one
            "max_tokens" if self._urls else "max_completion_tokens": request.most_tokens,
            **{name: getattr(request, name) for name in ("temperature", "seed", "top_p", "top_k", "min_p")},
            **self._settings.thinking(request.think),
        }
        return self._settings.fit({name: value for name, value in (fields | more | self._extra).items() if value is not None})

    def _complete(self, server: Connection, request: Request) -> Any:
        """Return a chat completion. If the server refuses a field that is not needed, it is asked again without the field."""
        while True:
            body = self._body(request)
            try:
                with self._failures():
                    return server.post("/v1/chat/completions", body)
            except CallError as error:
                if not self._settings.learn(error, body, request.think):
                    raise

    def _call_error(self, error: Exception) -> CallError | None:
        if isinstance(error, self._openai.APITimeoutError):
            return CallError.timeout(self._options.timeout)
        if isinstance(error, self._openai.APIConnectionError):
            return CallError.connection(error.__cause__ or error, sent=type(error.__cause__).__name__ != "ConnectError")
        if isinstance(error, self._openai.APIStatusError):
            return CallError.of_status(error.status_code, error.response.text, error.response.headers)
        return CallError.malformed(error) if isinstance(error, self._openai.APIError) else None
