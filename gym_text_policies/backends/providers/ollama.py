"""Ollama, by its official client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gym_text.errors import import_extra
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.openai import INSTRUCTIONS
from gym_text_policies.backends.providers.remote import CallError, RemoteBackend, RemoteOptions, as_state, check_url, shares


class OllamaBackend(RemoteBackend):
    """A model that Ollama serves.

    A text is a chat; a schema goes along as its `format`; choices are one ``systemone`` decision, for which Ollama needs a model
    made for decisions.

    Args:
        model: The model's name, such as ``llama3.2:3b``.
        options: Timeout, retries, cache, prices, limits.
        base_url: Address of the server; by default OLLAMA_HOST of the environment, else this machine.
    """

    provider = "ollama"
    most_choices = 255

    def __init__(self, model: str, options: RemoteOptions | None = None, *, base_url: str | None = None) -> None:
        super().__init__(model, options)
        self._base_url = check_url(base_url)
        self._ollama: Any = import_extra("ollama", "ollama")
        self._httpx: Any = import_extra("httpx", "ollama")  # the client's own, whose errors it lets through
        self._client = self._ollama.Client(base_url, timeout=self._options.timeout, event_hooks={"response": [_check_status]})

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
            probabilities=shares(request.choices or (), response.answers["action"].probabilities),
            probability_kind=self.probability_kind,
            tokens_in=response.usage.input_tokens,
            tokens_out=response.usage.output_tokens,
        )

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn the client's errors, and answers of another form, into `CallError`."""
        try:
            yield
        except self._httpx.TimeoutException:
            raise CallError(f"no answer within {self._options.timeout:g} s", retry=True, billed=True) from None
        except (ConnectionError, self._httpx.TransportError) as error:
            sent = not isinstance(error, ConnectionError)
            raise CallError(f"connection failed: {error}", retry=True, billed=sent) from None
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise CallError.malformed(error) from None


def _check_status(response: Any) -> None:
    """Raise before the client does, whose own error has lost the headers."""
    if response.is_error:
        raise CallError.of_status(response.status_code, response.read().decode(errors="replace"), response.headers)
