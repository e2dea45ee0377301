"""`RemoteBackend`: the base class of providers, with retries, a cache, budgets, and one treatment of failed calls."""

from __future__ import annotations

import json
import logging
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from gym_text.errors import GymTextError, PolicyError, UsageError, check_int, import_extra
from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.backends.provider_table import PROVIDERS
from gym_text_policies.backends.providers.answer_cache import AnswerCache, request_key
from gym_text_policies.backends.providers.answer_checks import check_answer
from gym_text_policies.backends.providers.budget import Budget, Spending, cost_of, prices_of
from gym_text_policies.backends.providers.connection import CallError, check_url
from gym_text_policies.backends.providers.keys import key_of
from gym_text_policies.backends.providers.options import SHARED_OPTIONS, RemoteOptions
from gym_text_policies.backends.providers.thought_limit import ThoughtLimit, check_thought
from gym_text_policies.backends.providers.typed_decisions import FEWEST_CHOICES, limit_in, questions_of
from gym_text_policies.backends.thoughts import thought_apart
from gym_text_policies.backends.typed_questions import MOST_OPTIONS
from gym_text_policies.files.redaction import hide_keys

_logger = logging.getLogger(__name__)
_MISREAD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""Errors from reading an answer that has another form."""
_BACKOFF = 0.5
"""Seconds before the second try, plus a random time of up to the same length. They double before each further try, up to 30."""
_SHOWN = 500
"""Most characters of a provider's message that an error shows."""


class RemoteBackend(Backend):
    """A model behind a provider's client.

    Args:
        model: The provider's name of the model.
        base_url: Address of the server, if it is not the provider's.
        key_variable: Name of the environment variable with the key.
        rounds: Whether a typed decision may take several rounds (see `in_rounds`) if the choices are too many for one question. How
            many a question can have, at most 255, is learnt from the server's refusal. A number says it; False refuses rounds.
        shared: How to call it, see `RemoteOptions`.
    """

    remote = True
    provider: ClassVar[str]
    """Its name in `PROVIDERS`, which stands before the colon of a model's name."""
    _client: Any
    most_choices: int = MOST_OPTIONS
    """Most choices of a question, as far as it is known; 0 if the provider has no typed decisions."""
    probability_kind: str = "decision"
    hides_thoughts = False
    """Whether the provider may think without a sign of it in its answers."""

    def __init__(
        self, model: str, base_url: str | None, key_variable: str | None, *, rounds: bool | int = True, **shared: Any
    ) -> None:
        if not model:
            raise UsageError(f"model: expected {self.provider}:NAME; got {self.provider + ':'!r}.")
        self.model = model
        self._options = RemoteOptions(**shared)
        self._rounds = rounds
        if not isinstance(rounds, bool):
            self.most_choices = check_int("rounds", rounds, FEWEST_CHOICES, MOST_OPTIONS)
        self._url, name = check_url(base_url), self._options.server
        if name and not self._url:
            raise UsageError("server: expected none without a base_url; a server's name replaces that address in records.")
        self._server = {"server": name} if name else {"base_url": self._url} if self._url else {}
        key = key_of(key_variable)
        self._hide: Callable[[str], str] = lambda text: hide_keys(text, key)  # whatever the key's variable is called
        self._tenacity = import_extra("tenacity", PROVIDERS[self.provider].extra)
        self._prices = prices_of(model, self._options.prices)
        self._budget = Budget(self._prices, self._options.max_cost, self._options.max_total_tokens)
        self._cache = AnswerCache(self._options.cache) if self._options.cache else None
        self._thoughts = ThoughtLimit(self._call)

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of its constructor's options, and of those that all providers take."""
        return [name for name in super().option_names() if name != "shared"] + list(SHARED_OPTIONS)

    @property
    def config(self) -> dict[str, Any]:
        """The provider, the model, the server, and the size of rounds if it is given."""
        rounds = {} if isinstance(self._rounds, bool) else {"rounds": self._rounds}
        return {"backend": self.provider, "model": self.model, **self._server, **rounds}

    @property
    def spent(self) -> Spending:
        """Tokens and US dollars spent since this backend was made."""
        return self._budget.spent

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request. Several requests are sent at once.

        Raises:
            PolicyError: If the provider fails, after retries.
            BudgetError: If a call could pass a limit.
            UsageError: If the provider has no answers of this kind.
        """
        if len(requests) <= 1:
            return [self._answer(request) for request in requests]
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(self._answer, requests))

    def check(self, request: Request) -> None:
        """Send the server this request, with retries, budget and cache as for any other.

        Raises:
            UsageError: If the server does not answer, has no such model, cannot answer in this way, or thinks otherwise than asked.
            BudgetError: If the call could pass a limit.
        """
        name = f"{self.provider}:{self.model}"
        try:
            answer = self._answer(request)
        except PolicyError as error:
            mode = "choose" if request.choices else "tool" if request.tool else "json" if request.schema else "text"
            raise UsageError(
                f"model: expected a server that answers in mode {mode!r}; asked before the run, it failed: {error} "
                "See that the server runs, that its address, the model's name and the key are right, and that it knows this mode."
            ) from None
        check_thought(name, request, answer, hidden=self.hides_thoughts)
        if request.tool is not None and answer.arguments is None:
            raise UsageError(
                f"mode 'tool': expected a model that calls tools; asked before the run, {name} said {(answer.text or '')[:80]!r}. "
                "Start its server so that it reads this model's calls (llama.cpp: --jinja; vLLM: --enable-auto-tool-choice with a "
                "--tool-call-parser), or take mode 'json'."
            )
        if request.tool is None and request.schema is not None and not _follows(answer, request.schema):
            raise UsageError(
                f"mode 'json': expected a server that makes the model follow a JSON schema; asked before the run, {name} said "
                f"{(answer.text or '')[:80]!r}. Take mode 'text', or a server that obeys the schema, such as vLLM or llama.cpp."
            )

    def close(self) -> None:
        """Close the connections. No request is answered after this."""
        self._client.close()
        if self._cache:
            self._cache.close()

    def _sent(self, request: Request) -> tuple[Any, int]:
        """Return what is sent for a request, as JSON data, and the most tokens that it may generate."""
        tool = [dict(request.tool)] if request.tool else []
        sent = [*request.messages, *(request.choices or ()), dict(request.meanings or {}), dict(request.schema or {}), *tool]
        questions = questions_of(len(request.choices), self.most_choices) if request.choices else 1  # each may read the state
        return sent * questions, request.most_tokens * questions

    def _is_by_tokens(self, request: Request) -> bool:
        """Return whether a request is answered by tokens, if the server takes tokens. Then its thought has a limit of its own."""
        return False

    @abstractmethod
    def _ask(self, request: Request) -> Answer:
        """Send a request once."""

    @abstractmethod
    def _call_error(self, error: Exception) -> CallError | None:
        """Return a `CallError` for an error of the provider's client; None for any other error."""

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn errors of the client, and those of reading an answer with another form, into `CallError`."""
        try:
            yield
        except (CallError, GymTextError):
            raise
        except Exception as error:
            failed = self._call_error(error) or (CallError.malformed(error) if isinstance(error, _MISREAD) else error)
            raise failed from None

    def _called(self, call: Callable[..., Any], *fields: Any) -> Any:
        """Call the client; a failure is a `CallError`."""
        with self._failures():
            return call(*fields)

    def _answer(self, request: Request) -> Answer:
        if request.choices is not None:
            if request.picture is not None:
                raise UsageError(
                    "pictures: expected mode 'text', 'json' or 'tool'; typed decisions, and log-probabilities of whole actions, "
                    "are made without a picture."
                )
            if not self.most_choices:
                raise UsageError(f"{self.provider}: expected mode 'text' or 'json'; this provider has no typed decisions.")
            if len(request.choices) == 1:
                return Answer(probabilities={request.choices[0]: 1.0}, probability_kind=self.probability_kind)
        is_chat = request.choices is None and not self._is_by_tokens(request)
        ask = partial(self._thoughts.answer if is_chat else self._call, request)
        if self._cache is None or (request.temperature > 0 and request.seed is None):
            return ask()
        return self._cache.get(request_key(self.config, request), ask)

    def _most_choices(self, request: Request) -> int:
        """Return the most choices of a question; raise `PolicyError` if the request needs rounds that are refused."""
        count = len(request.choices or ())
        if self._rounds is False and count > self.most_choices:
            raise PolicyError(
                f"{self.provider}:{self.model}: with rounds=False expected at most {self.most_choices} choices, as many as a "
                f"question can have; got {count}. rounds=True decides in rounds; mode 'text' has no limit."
            )
        return self.most_choices

    def _hint(self, request: Request, error: CallError) -> str:
        """Return what the user can do if the server refuses a request."""
        return "" if request.choices is None else " Mode 'json' asks for no typed decision."

    def _call(self, request: Request, *, once: bool = False) -> Answer:
        """Send a request with retries, or only once, within the budget."""
        most = self.most_choices
        try:
            answer: Answer = self.retrying(0 if once else None)(self._ask_within_budget, request)
        except CallError as error:
            limit = limit_in(str(error), min(len(request.choices or ()), most)) if error.refused and self._rounds is True else None
            if limit:  # the refusal says how many choices a question can have
                self.most_choices = min(limit, self.most_choices)
                return self._call(request, once=once)
            raise self.failure(error, self._hint(request, error) if error.refused else "") from None
        except UsageError as error:  # its message may quote the server, and so a key
            raise UsageError(self._shown(error, _SHOWN * 4)) from None
        return answer

    def _ask_within_budget(self, request: Request) -> Answer:
        with self._failures():
            sent, most = self._sent(request)
        bound = self._budget.reserve(request, sent, most)
        spent = Spending()
        try:
            with self._failures():
                answer = thought_apart(self._ask(request))
                answer = self._without_keys(check_answer(answer, request.choices))
            if self._prices:
                answer = replace(answer, cost=cost_of(answer, self._prices))
            spent = Spending(answer.tokens_in + answer.tokens_out, answer.cost) if answer.tokens_in else bound
        except CallError as error:
            spent = bound if error.billed else spent
            raise
        finally:
            self._budget.settle(bound, spent)
        return answer

    def retrying(self, retries: int | None = None) -> Any:
        """Return a caller of tenacity's, which tries again after a `CallError` with `retry`: so often, or as the options say."""
        backoff = self._tenacity.wait_exponential_jitter(multiplier=_BACKOFF, max=30.0, jitter=_BACKOFF)

        def wait(state: Any) -> float:
            after = state.outcome.exception().after
            return float(backoff(state) if after is None else after + random.uniform(0.0, _BACKOFF))

        def log(state: Any) -> None:
            shown, seconds = self._shown(state.outcome.exception()), state.next_action.sleep
            _logger.info("%s:%s: %s; again in %.1f s", self.provider, self.model, shown, seconds)

        return self._tenacity.Retrying(
            stop=self._tenacity.stop_after_attempt(1 + (self._options.retries if retries is None else retries)),
            retry=self._tenacity.retry_if_exception(lambda error: isinstance(error, CallError) and error.retry),
            wait=wait,
            before_sleep=log,
            reraise=True,
        )

    def failure(self, error: CallError, hint: str = "") -> PolicyError:
        """Return the error that ends an episode. It shows no key."""
        tries = f" ({self._options.retries + 1} tries)" if error.retry and self._options.retries else ""
        return PolicyError(f"{self.provider}:{self.model}: {self._shown(error)}{tries}{hint}")

    def _shown(self, error: BaseException, most: int = _SHOWN) -> str:
        """Return the text of an error without keys, then cut: if it were cut first, a part of a key could stay."""
        text = self._hide(str(error))
        return text if len(text) <= most else f"{text[:most]} …"

    def _without_keys(self, answer: Answer) -> Answer:
        """Return an answer without keys, so that it can be stored. A server knows the key of the request, and may repeat it."""
        texts: dict[str, Any] = {name: getattr(answer, name) for name in ("text", "reasoning", "arguments", "reference")}
        hidden: dict[str, Any] = {name: value and self._hide(value) for name, value in texts.items()}
        if hidden == texts:
            return answer
        tokens = answer.tokens and {self._hide(said): numbers for said, numbers in answer.tokens.items()}
        return replace(answer, tokens=tokens, **hidden)


def _follows(answer: Answer, schema: Mapping[str, Any]) -> bool:
    """Return whether an answer has the fields of a schema and their enumerated values, or was cut and begins as an object."""
    text = (answer.text or "").strip()
    try:
        fields = json.loads(text)
    except ValueError:
        return answer.finish == "length" and text.startswith("{")
    enums = {name: part.get("enum") for name, part in schema["properties"].items()}
    return isinstance(fields, dict) and all(name in fields and fields[name] in (enums[name] or [fields[name]]) for name in enums)
