"""OpenAI, and every server with its protocol: vLLM, llama.cpp, SGLang, `transformers serve`, Gemini's compatible endpoint."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

from gym_text.errors import UsageError, check_choice, import_extra
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.chat_format import Think
from gym_text_policies.backends.provider_table import PROVIDERS
from gym_text_policies.backends.providers.chat_answers import read_chat
from gym_text_policies.backends.providers.chat_messages import (
    Detail,
    effort_of,
    refuse_settings,
    tools_of,
    with_calls,
    with_field,
    with_picture,
)
from gym_text_policies.backends.providers.connection import CallError, Connection
from gym_text_policies.backends.providers.exact_scores import ExactScores, token_server
from gym_text_policies.backends.providers.keys import NO_KEY, key_of
from gym_text_policies.backends.providers.options import check_fields, check_name
from gym_text_policies.backends.providers.remote import RemoteBackend
from gym_text_policies.backends.providers.typed_decisions import decision, systemone

_logger = logging.getLogger(__name__)
_SWITCHES = ("enable_thinking", "thinking")
"""Arguments by which chat templates turn thoughts on and off. A template ignores those that it does not name."""
_NOT_NEEDED = ("temperature", "seed", "parallel_tool_calls", "chat_template_kwargs")
"""Fields that are sent even if the user does not ask for them, and without which a server can answer."""
_NOT_TAKEN = re.compile(r"unsupported|not support|unknown|unrecogni|unexpected|not permitted|not allowed|deprecated", re.IGNORECASE)
"""Words of a server that refuses a field as such, and not because of what else is sent."""
Decide = Literal["auto", "decisions", "systemone", "logprobs"]
"""The ways to ask for choices; see `OpenAIBackend`."""
_TYPED: dict[str, Decide] = {"decisions": "decisions", "systemone": "systemone"}
"""Last part of a typed decision's path -> the way to ask. ``auto`` is ``logprobs`` or ``decisions``."""
_OTHER_WAYS = (
    " decide='decisions' asks for typed decisions in OpenAI's form, decide='systemone' in Jev's, as transformers serve has it; "
    "decide='auto' or 'logprobs' takes the log-probabilities of llama.cpp and vLLM. Mode 'json' needs none."
)


class OpenAIBackend(RemoteBackend):
    """A model by the official `openai` client.

    For a text a chat completion is requested, with the schema, if any, as a strict JSON schema, and with the tool, if any, as the
    one function that the model has to call. There are four ways to ask for choices:

    * ``decisions``: a typed decision by ``/v1/decisions``, OpenAI's format.
    * ``logprobs``: the exact score of each choice, log P(choice + end of turn | prompt), as of a model in this process; from
      llama.cpp and vLLM. See `TokenServer` for how each is asked.
    * ``systemone``: a typed decision by ``/v1/systemone``, the format of Jev, vLLM, `transformers serve` and many others.
    * ``auto``: ``logprobs`` if the server is llama.cpp or vLLM, else ``decisions``. With a `base_url` the server is asked for its
      kind at the first request with choices.

    In records ``auto`` and ``decisions`` are the same, so that episodes stored with one are found with the other. The record of
    each decision says how it was made (`probability_kind`).

    Args:
        model: The model's name.
        base_url: Address of another server, with its ``/v1`` or whatever stands before ``/chat/completions``; by default
            OPENAI_BASE_URL of the environment, else OpenAI. If it ends with ``/systemone`` or ``/decisions``, that is `decide`.
        key_variable: Name of the environment variable with the key; None sends none. Other servers may need none.
        decide: How to ask for choices.
        rounds: See `RemoteBackend`.
        tokenizer: The model's tokenizer, ``hf:OWNER/NAME`` or a folder, for ``logprobs``. By default it is loaded by the server's
            name for the model. No answer depends on it: a tokenizer with other tokens than the server's is refused.
        template_kwargs: Arguments of the model's chat template, such as ``{"enable_thinking": false}``, on a server of one's own.
        end_of_turn: The text of the token that ends an answer, for ``logprobs`` and tokens; by default what the template writes.
        picture_detail: In how much detail a model of OpenAI's sees a picture: low, high or auto; None leaves it to the server.
        extra: More fields of a chat completion, such as ``{"reasoning_effort": "low"}``. None leaves a field out:
            ``{"temperature": None}`` for models that take no temperature.
        shared: See `RemoteOptions`.
    """

    provider = "openai"
    takes_pictures = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key_variable: str | None = PROVIDERS["openai"].key_variable,
        decide: Decide = "auto",
        rounds: bool | int = True,
        tokenizer: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        end_of_turn: str | None = None,
        picture_detail: Detail | None = None,
        extra: Mapping[str, Any] | None = None,
        **shared: Any,
    ) -> None:
        base_url = base_url if base_url is not None else os.environ.get("OPENAI_BASE_URL") or None
        head, _, last = base_url.rstrip("/").rpartition("/") if isinstance(base_url, str) else ("", "", "")
        if last in _TYPED:
            base_url, decide = head, _TYPED[last]
        super().__init__(model, base_url, key_variable, rounds=rounds, **shared)
        check_choice("decide", decide, get_args(Decide))
        if picture_detail is not None:
            check_choice("picture_detail", picture_detail, get_args(Detail))
        self._detail = picture_detail
        self.hides_thoughts = not self._url
        key = key_of(key_variable)
        if not key and not self._url:
            raise UsageError(f"openai:{model}: expected a key in the environment variable {key_variable}; it is not set.")
        self._openai: Any = import_extra("openai", "openai")
        client = self._openai.OpenAI(base_url=self._url, api_key=key or NO_KEY, timeout=self._options.timeout, max_retries=0)
        self._client = Connection(client, model)
        self._decide: Decide = "decisions" if decide == "auto" and not self._url else decide
        self._tokenizer = check_name("tokenizer", tokenizer)
        self._end_of_turn = check_name("end_of_turn", end_of_turn)
        self._extra = check_fields("extra", extra)
        self._template_kwargs = check_fields("template_kwargs", template_kwargs)
        if self._extra.get("chat_template_kwargs") is not None or (template_kwargs and not self._url):
            raise UsageError(
                "template_kwargs: expected it in place of chat_template_kwargs in extra, and only with a base_url, as OpenAI takes "
                "no template arguments."
            )
        self._scores: ExactScores | None = None
        self._kind_known = False
        self._left_out: set[str] = set()
        self._lock = threading.Lock()
        self.probability_kind = "decision" if self._decide in _TYPED else "likelihood"

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

    def _sent(self, request: Request) -> tuple[Any, int]:
        """Return what is sent. A chat contains `extra`, which may raise the number of tokens that can be generated."""
        if self._is_by_tokens(request):
            return super()._sent(request)[0], request.max_tokens + (0 if request.think is False else request.thought_tokens)
        if request.choices is not None:
            return super()._sent(request)
        body = self._body(replace(request, picture=None))  # its bytes are no tokens
        limits = [body[name] for name in ("max_tokens", "max_completion_tokens") if name in body]
        answers = body.get("n", 1)
        if self._budget.is_limited and not (limits and all(type(number) is int and number > 0 for number in (*limits, answers))):
            raise UsageError(
                "extra: expected max_tokens, or max_completion_tokens, to be a number with max_cost and max_total_tokens; without "
                "it an answer's cost has no bound."
            )
        return body, max(limits, default=request.most_tokens) * answers

    def _is_by_tokens(self, request: Request) -> bool:
        if request.choices is not None:
            return self._decide not in _TYPED
        others = (request.schema, request.tool, request.picture)
        return request.tokens and bool(self._url) and all(part is None for part in others)

    def _ask(self, request: Request) -> Answer:
        scores = self._exact_scores() if self._is_by_tokens(request) else None
        if request.choices is None:
            return scores.write(request) if scores else self._chat(request)
        if scores:
            return scores.choose(request)
        most = self._most_choices(request)
        if self._decide != "systemone":
            return decision(self.model, request, most, partial(self._called, self._client.post))

        def post(state: Any, questions: dict[str, Any]) -> Any:
            return self._called(self._client.post, "/v1/systemone", {"model": self.model, "state": state, "questions": questions})

        return systemone(request, most, post)

    def _chat(self, request: Request) -> Answer:
        """Return the answer of a chat completion. From then on it is asked for without a field that the server refuses."""
        body = self._body(request)
        try:
            with self._failures():
                return read_chat(self._client.post("/v1/chat/completions", body), request.tool)
        except CallError as error:
            words = str(error) if error.refused and _NOT_TAKEN.search(str(error)) else ""
            named = re.findall(r'"param": *"(\w+)"', words) or re.findall(r"\w+", words)
            given = self._extra.keys() | ({"chat_template_kwargs"} if self._template_kwargs else set())
            name = next((name for name in named if name in _NOT_NEEDED and name in body.keys() - given), None)
            if name is None:
                raise
        with self._lock:
            if name not in self._left_out:
                self._left_out.add(name)
                _logger.warning("openai:%s: the server takes no %s; it is left out from now on.", self.model, name)
        return self._chat(request)

    def _exact_scores(self) -> ExactScores | None:
        """Return what scores choices by tokens; None if the server makes typed decisions. It is asked for its kind once."""
        with self._lock:
            if not self._kind_known:
                tokens = token_server(self._client, self._tokenizer)
                if tokens is None and self._decide == "logprobs":
                    raise UsageError(
                        f"decide='logprobs': expected llama.cpp or vLLM, as owned_by in its /v1/models says.{_OTHER_WAYS}"
                    )
                self._scores = ExactScores(tokens, self.model, self._template_kwargs, self._end_of_turn) if tokens else None
                self._kind_known = True
            return self._scores

    def _hint(self, request: Request, error: CallError) -> str:
        if request.choices is not None:
            return " Mode 'json' needs no log-probabilities." if self._scores else _OTHER_WAYS
        fields = self._body(request).keys() - {"model", "messages", "response_format", "tools", "tool_choice"}
        named = next((name for name in sorted(fields) if name in str(error)), None)
        if named is None:
            return "" if request.schema is None else " Mode 'text' sends no schema, which may list too many actions."
        return f" If the server takes no {named}, leave it out: extra={{{named!r}: None}}."

    def _body(self, request: Request) -> dict[str, Any]:
        """Return the body of a chat completion's request."""
        more: dict[str, Any] = {}
        if request.tool is not None:
            more = {"tools": tools_of(request, strict=True), "tool_choice": "required", "parallel_tool_calls": False}
        elif request.schema is not None:
            schema = {"name": "answer", "schema": dict(request.schema), "strict": True}
            more["response_format"] = {"type": "json_schema", "json_schema": schema}
        if not self._url:
            refuse_settings("OpenAI", request, ("top_k", "min_p"))
        messages = with_calls(with_field(request.messages, "reasoning_content" if self._url else None), request, numbered=True)
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": with_picture(messages, request.picture, self._detail, part=True),
            # OpenAI's newer models take only the longer name; not every compatible server knows that one
            "max_tokens" if self._url else "max_completion_tokens": request.most_tokens,
            **{name: getattr(request, name) for name in ("temperature", "seed", "top_p", "top_k", "min_p")},
            **self._thinking(request.think),
        }
        left_out = dict.fromkeys(self._left_out.copy())
        return {name: value for name, value in (fields | more | left_out | self._extra).items() if value is not None}

    def _thinking(self, think: Think) -> dict[str, Any]:
        """Return the fields that say how to think: a hosted model takes an effort, a server of one's own template arguments."""
        if not self._url:
            return {"reasoning_effort": effort_of(think)}
        effort = {"reasoning_effort": think} if isinstance(think, str) else {}
        switches = {} if think is None else dict.fromkeys(_SWITCHES, think is not False)
        return {"chat_template_kwargs": (switches | effort | self._template_kwargs) or None, **effort}

    def _call_error(self, error: Exception) -> CallError | None:
        if isinstance(error, self._openai.APITimeoutError):
            return CallError.timeout(self._options.timeout)
        if isinstance(error, self._openai.APIConnectionError):
            return CallError.connection(error.__cause__ or error, sent=type(error.__cause__).__name__ != "ConnectError")
        if isinstance(error, self._openai.APIStatusError):
            return CallError.of_status(error.status_code, error.response.text, error.response.headers)
        return CallError.malformed(error) if isinstance(error, self._openai.APIError) else None
