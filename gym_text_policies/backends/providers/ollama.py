"""Ollama, by its official client."""

from __future__ import annotations

from typing import Any

from gym_text.errors import import_extra
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.keys import USUAL, client_key
from gym_text_policies.backends.providers.openai import INSTRUCTIONS
from gym_text_policies.backends.providers.remote import RemoteBackend, RemoteOptions, as_state, check_url, normalised


class OllamaBackend(RemoteBackend):
    """A model that Ollama serves.

    A text is a chat; a schema is sent as its `format`; choices are one ``systemone`` decision, for which Ollama needs a model made
    for decisions.

    Args:
        model: The model's name, such as ``llama3.2:3b``.
        options: Timeout, retries, cache, prices, limits.
        base_url: Address of the server; by default OLLAMA_HOST of the environment, else this machine.
        key_variable: Name of the environment variable that holds the key, if the server wants one; None sends none.
    """

    provider = "ollama"
    most_choices = 255

    def __init__(
        self,
        model: str,
        options: RemoteOptions | None = None,
        *,
        base_url: str | None = None,
        key_variable: str | None = USUAL["ollama"],
    ) -> None:
        super().__init__(model, options)
        self._base_url = check_url(base_url)
        self._ollama: Any = import_extra("ollama", "ollama")
        self._httpx: Any = import_extra("httpx", "ollama")  # Ollama's client uses it, and lets its errors through
        key = client_key(self.provider, key_variable)
        settings = {"timeout": self._options.timeout, "event_hooks": {"response": [_check_status]}}
        self._client = self._ollama.Client(base_url, headers={"Authorization": f"Bearer {key}"} if key else None, **settings)

    @property
    def config(self) -> dict[str, Any]:
        """Model and server."""
        return super().config | ({"base_url": self._base_url} if self._base_url else {})

    def _ask(self, request: Request) -> Answer:
        with self._failures():
            return self._chat(request) if request.choices is None else self._systemone(request)

    def _chat(self, request: Request) -> Answer:
        options = {"num_predict": request.max_tokens, "temperature": request.temperature, "seed": request.seed}
        response = self._client.chat(
            self.model,
            list(request.messages),
            format=None if request.schema is None else dict(request.schema),
            options={name: value for name, value in options.items() if value is not None},
        )
        return Answer(
            response.message.content or "", tokens_in=response.prompt_eval_count or 0, tokens_out=response.eval_count or 0
        )

    def _systemone(self, request: Request) -> Answer:
        question = {"type": "choice", "instructions": INSTRUCTIONS, "criteria": dict.fromkeys(request.choices or ())}
        response = self._client.systemone(self.model, as_state(request.messages), {"action": question})
        return Answer(
            probabilities=normalised(request.choices or (), response.answers["action"].probabilities),
            probability_kind=self.probability_kind,
            tokens_in=response.usage.input_tokens,
            tokens_out=response.usage.output_tokens,
        )

    def _call_error(self, error: Exception) -> CallError | None:
        if isinstance(error, self._httpx.TimeoutException):
            return CallError.timeout(self._options.timeout)
        if isinstance(error, ConnectionError | self._httpx.TransportError):
            return CallError.connection(error, sent=not isinstance(error, ConnectionError))
        return None


def _check_status(response: Any) -> None:
    """Raise before the client does: its own error has no headers."""
    if response.is_error:
        raise CallError.of_status(response.status_code, response.read().decode(errors="replace"), response.headers)
