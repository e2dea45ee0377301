"""Ollama, by its official client."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import Any

from gym_text.errors import check_int, import_extra
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.provider_table import PROVIDERS
from gym_text_policies.backends.providers.answer_checks import count
from gym_text_policies.backends.providers.chat_answers import arguments_of, finish_of, with_thought
from gym_text_policies.backends.providers.chat_messages import tools_of, with_calls, with_field, with_picture
from gym_text_policies.backends.providers.connection import CallError, check_no_error
from gym_text_policies.backends.providers.keys import client_key
from gym_text_policies.backends.providers.remote import RemoteBackend
from gym_text_policies.backends.providers.typed_decisions import systemone
from gym_text_policies.records import Message

_logger = logging.getLogger(__name__)
_REMEMBERED = 4096
"""Most episodes whose last chat is remembered."""


class OllamaBackend(RemoteBackend):
    """A model that Ollama serves.

    For a text a chat request is sent, with the schema, if any, as its ``format``, or with the tool, if any. Ollama leaves it to the
    model whether it calls the tool. For choices a ``systemone`` decision is requested, which needs a model made for decisions.

    Args:
        model: The model's name, such as ``llama3.2:3b``.
        base_url: Address of the server; by default OLLAMA_HOST of the environment, else this machine.
        key_variable: Name of the environment variable that holds the key, if the server wants one; None sends none.
        num_ctx: Most tokens that the model reads and writes; by default as the server is set, often 4096. Ollama leaves out the
            oldest turns of a longer chat without saying so. If Ollama reads fewer tokens although a chat has grown,
            `Answer.turns_dropped` is 1, and one warning is logged.
        rounds: See `RemoteBackend`.
        shared: See `RemoteOptions`.
    """

    provider = "ollama"
    takes_pictures = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        key_variable: str | None = PROVIDERS["ollama"].key_variable,
        num_ctx: int | None = None,
        rounds: bool | int = True,
        **shared: Any,
    ) -> None:
        super().__init__(model, base_url, key_variable, rounds=rounds, **shared)
        self._num_ctx = num_ctx if num_ctx is None else check_int("num_ctx", num_ctx, 1, 100_000_000)
        self._ollama: Any = import_extra("ollama", "ollama")
        self._httpx: Any = import_extra("httpx", "ollama")  # Ollama's client uses it, and lets its errors through
        key = client_key(self.provider, key_variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        hooks = {"response": [_check_response]}
        self._client = self._ollama.Client(base_url, timeout=self._options.timeout, headers=headers, event_hooks=hooks)
        self._chats: OrderedDict[str, tuple[tuple[Message, ...], int]] = OrderedDict()  # episode -> its last chat, tokens read
        self._lock = threading.Lock()
        self._warned = False

    @property
    def config(self) -> dict[str, Any]:
        """Model, server and context."""
        return super().config | ({"num_ctx": self._num_ctx} if self._num_ctx else {})

    def _ask(self, request: Request) -> Answer:
        if request.choices is not None:
            most = self._most_choices(request)
            return systemone(request, most, lambda *fields: self._called(self._client.systemone, self.model, *fields).model_dump())
        names = ("temperature", "top_p", "top_k", "min_p", "seed")
        options = {"num_predict": request.most_tokens, "num_ctx": self._num_ctx, **{name: getattr(request, name) for name in names}}
        messages = with_calls(with_field(request.messages, "thinking"), request, numbered=False)
        response = self._client.chat(
            self.model,
            with_picture(messages, request.picture, part=False),
            tools=None if request.tool is None else tools_of(request),
            think=request.think,
            format=None if request.schema is None or request.tool is not None else dict(request.schema),
            options={name: value for name, value in options.items() if value is not None},
        )
        tokens_in = count(response.prompt_eval_count)
        answer = Answer(
            response.message.content or "",
            arguments=arguments_of(response.message.model_dump(), request.tool),
            finish=finish_of(response.done_reason),
            tokens_in=tokens_in,
            tokens_out=count(response.eval_count),
            turns_dropped=int(self._is_cut(request, tokens_in)),
        )
        return with_thought(answer, response.message.thinking)

    def _is_cut(self, request: Request, tokens_in: int) -> bool:
        """Return whether the server read fewer tokens than before the chat grew; log a warning the first time."""
        if not request.episode or not tokens_in:
            return False
        with self._lock:
            before, read = self._chats.pop(request.episode, ((), 0))
            grown = len(before) < len(request.messages) and before == request.messages[: len(before)]
            cut = grown and tokens_in < read
            self._chats[request.episode] = request.messages, max(tokens_in, read) if grown else tokens_in
            if len(self._chats) > _REMEMBERED:
                self._chats.popitem(last=False)
            if cut and not self._warned:
                self._warned = True
                _logger.warning(
                    "ollama:%s: %d tokens were read of a chat of which %d were read before it grew: its oldest turns are left out. "
                    "Set num_ctx, or show less history.",
                    *(self.model, tokens_in, read),
                )
        return cut

    def _call_error(self, error: Exception) -> CallError | None:
        if isinstance(error, self._httpx.TimeoutException):
            return CallError.timeout(self._options.timeout)
        if isinstance(error, ConnectionError | self._httpx.TransportError):
            return CallError.connection(error, sent=not isinstance(error, ConnectionError))
        return None


def _check_response(response: Any) -> None:
    """Raise `CallError` for a failed request, before the client does.

    The client's own errors have no headers, and it knows no error in an answer with HTTP status 200.
    """
    body = response.read()
    if response.is_error:
        raise CallError.of_status(response.status_code, body.decode(errors="replace"), response.headers)
    if b'"error"' in body:
        check_no_error(response.json())
