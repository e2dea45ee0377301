"""OpenAI, and every server with its protocol: vLLM, `transformers serve`, Gemini's compatible endpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gym_text.errors import UsageError, check_choice, import_extra
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.remote import RemoteBackend, RemoteOptions, as_state, check_url, normalised
from gym_text_policies.backends.providers.servers import Servers

INSTRUCTIONS = "Which action comes next?"
"""The question of a typed decision."""


class OpenAIBackend(RemoteBackend):
    """A model by the official `openai` client.

    A text is a chat completion; a schema is sent as a strict JSON schema; choices are one typed decision. OpenAI's decisions take
    2 to 255 choices. `transformers serve` has ``/v1/systemone`` instead, for at most 26 choices: each choice gets a letter, and the
    logits of the letters are compared.

    Args:
        model: The model's name.
        options: Timeout, retries, cache, prices, limits.
        base_url: Address of another server, with its ``/v1``; by default OPENAI_BASE_URL of the environment, else OpenAI. Or
            the addresses of several servers of the same model, which share the load: see `Servers`.
        key_variable: Name of the environment variable that holds the key. Another server may do without one.
        decide: Which typed decision the server has.
        extra: More fields of a chat completion, such as ``{"reasoning_effort": "low"}``. None leaves a field out:
            ``{"temperature": None}`` for models that take no temperature.
    """

    provider = "openai"

    def __init__(
        self,
        model: str,
        options: RemoteOptions | None = None,
        *,
        base_url: str | Sequence[str] | None = None,
        key_variable: str = "OPENAI_API_KEY",
        decide: Literal["decisions", "systemone"] = "decisions",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, options)
        check_choice("decide", decide, ("decisions", "systemone"))
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key_variable):
            raise UsageError(
                "key_variable: expected the name of an environment variable, such as OPENAI_API_KEY; got another text."
            )
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or ()
        self._urls = [check_url(url) for url in ([base_url] if isinstance(base_url, str) else base_url)]
        key = os.environ.get(key_variable)
        if not key and not self._urls:
            raise UsageError(f"openai:{model}: expected a key in the environment variable {key_variable}; it is not set.")
        self._openai: Any = import_extra("openai", "openai")
        settings = {"api_key": key or "none", "timeout": self._options.timeout, "max_retries": 0}
        self._client = Servers([self._openai.OpenAI(base_url=url, **settings) for url in (self._urls or (None,))])
        self._decide = decide
        self._extra = dict(extra or {})
        self.most_choices = 255 if decide == "decisions" else 26
        self.probability_kind = "decision" if decide == "decisions" else "letter"

    @property
    def config(self) -> dict[str, Any]:
        """Model, server, and what else its answers depend on."""
        url = self._urls[0] if len(self._urls) == 1 else self._urls
        own = {"base_url": url, "decide": self._decide if self._decide != "decisions" else None, "extra": self._extra}
        return super().config | {name: value for name, value in own.items() if value}

    def _ask(self, request: Request) -> Answer:
        with self._client.turn() as client, self._failures():
            if request.choices is None:
                return self._chat(client, request)
            return self._decision(client, request) if self._decide == "decisions" else self._systemone(client, request)

    def _chat(self, client: Any, request: Request) -> Answer:
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": list(request.messages),
            # OpenAI's newer models take only the longer name; not every compatible server knows that one
            "max_tokens" if self._urls else "max_completion_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
        if request.schema is not None:
            schema = {"name": "answer", "schema": dict(request.schema), "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        fields = {name: value for name, value in (fields | self._extra).items() if value is not None}
        known = {name: fields.pop(name) for name in ("model", "messages")}
        completion = client.chat.completions.create(**known, extra_body=fields)
        message, usage = completion.choices[0].message, completion.usage
        details = usage and usage.prompt_tokens_details
        return Answer(
            message.content or message.refusal or "",
            tokens_in=usage.prompt_tokens if usage else 0,
            tokens_cached=(details and details.cached_tokens) or 0,
            tokens_out=usage.completion_tokens if usage else 0,
        )

    def _decision(self, client: Any, request: Request) -> Answer:
        choices = [{"value": choice} for choice in request.choices or ()]
        decision = client.decisions.create(
            model=self.model,
            input=list(request.messages),
            questions=[{"type": "choice", "instructions": INSTRUCTIONS, "choices": choices}],
        )
        answer, usage = decision.answers[0], decision.usage
        if answer.type == "refusal":
            raise CallError("the model refused to decide", billed=True)
        return Answer(
            probabilities=normalised(request.choices or (), {row.value: row.probability for row in answer.probabilities}),
            probability_kind=self.probability_kind,
            tokens_in=usage.input_tokens,
            tokens_cached=usage.input_tokens_details.cached_tokens,
            tokens_out=usage.output_tokens,
        )

    def _systemone(self, client: Any, request: Request) -> Answer:
        criteria = dict.fromkeys(request.choices or ())
        question = {"type": "choice", "instructions": INSTRUCTIONS, "criteria": criteria}
        body = {"model": self.model, "state": as_state(request.messages), "questions": {"action": question}}
        data = client.post("/systemone", cast_to=object, body=body)
        return Answer(
            probabilities=normalised(request.choices or (), data["answers"]["action"]["probabilities"]),
            probability_kind=self.probability_kind,
            tokens_in=data["usage"]["input_tokens"],
            tokens_out=data["usage"]["output_tokens"],
        )

    def _call_error(self, error: Exception) -> CallError | None:
        if isinstance(error, self._openai.APITimeoutError):
            return CallError.timeout(self._options.timeout)
        if isinstance(error, self._openai.APIConnectionError):
            return CallError.connection(error.__cause__ or error, sent=type(error.__cause__).__name__ != "ConnectError")
        if isinstance(error, self._openai.APIStatusError):
            return CallError.of_status(error.status_code, error.response.text, error.response.headers)
        return CallError.malformed(error) if isinstance(error, self._openai.APIError) else None
