"""A model of this process behind the wire formats of decision models: ``POST /v1/systemone`` and ``/v1/decisions``.

The questions of one request share its state, which is read once. Requests that wait while the model computes are answered together.
Answers do not depend on that. Nothing that a client sends is run, imported, or used as a path. Extra: ``serve``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from gym_text.errors import GymTextError, UsageError
from gym_text_policies.backends.base import Answer, Backend
from gym_text_policies.backends.base import Request as Asked
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.backends.typed_questions import LABELS, MOST_OPTIONS, Decide, TypedQuestion, as_text
from gym_text_policies.bridges.decision_requests import ChatMessage, Content, Decisions, ListedQuestion, Parts, SystemOne, Text
from gym_text_policies.bridges.serving import MOST_SESSIONS
from gym_text_policies.records import Message

MOST_BODY = 1_048_576
"""Most bytes of a request's body."""


def create_app(model: Backend, name: str, *, decide: Decide = "exact", max_sessions: int = MOST_SESSIONS) -> FastAPI:
    """Return the application for a model.

    Args:
        model: A model of this process.
        name: The name by which clients ask for it.
        decide: How options are asked about, see `TypedQuestion.asked`.
        max_sessions: Most requests at once.

    Raises:
        UsageError: If the model is not one of this process, or has letters of more than one token.
    """
    if not isinstance(model, TransformersBackend):
        raise UsageError(f"model: expected one of this process; got {name!r}, whose own server can answer.")
    if decide == "labels" and any(len(model.tokens(label)) != 1 for label in LABELS["choice"]):
        raise UsageError(f"decide: expected another way than labels; not every letter is one token of {name!r}.")
    app, waiting = FastAPI(title="gym-text serve", docs_url=None, redoc_url=None), Waiting(model, max_sessions)

    async def answered(
        chat: list[Message], questions: Sequence[TypedQuestion], asks_for: str | None
    ) -> tuple[list[dict[str, Any]], list[Answer]]:
        if asks_for not in (None, name):
            raise HTTPException(404, f"model {asks_for!r} is not served here; {name!r} is")
        try:
            asked = [question.asked(decide) for question in questions]
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        answers = await waiting.answers([_request(chat, words, texts, decide) for words, texts in asked])
        if any(answer.turns_dropped for answer in answers):
            raise HTTPException(400, "expected a state that fits into the model's window; it is too long")
        return [
            question.answer(texts, answer.probabilities or {})
            for question, (_, texts), answer in zip(questions, asked, answers, strict=True)
        ], answers

    @app.post("/v1/systemone")
    async def systemone(body: SystemOne) -> dict[str, Any]:
        questions = [TypedQuestion.of(each.type, each.instructions, each.criteria) for each in body.questions.values()]
        answers, spent = await answered(_chat_of(body.state), questions, body.model)
        usage = {"input_tokens": sum(answer.tokens_in for answer in spent), "output_tokens": 0}
        return {"model": name, "answers": dict(zip(body.questions, answers, strict=True)), "usage": usage}

    @app.post("/v1/decisions")
    async def decisions(body: Decisions) -> dict[str, Any]:
        try:
            questions = [_typed(question) for question in body.questions]
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        given = [body.input] if isinstance(body.input, str) else body.input
        answers, spent = await answered([_message(each) for each in given], questions, body.model)
        tokens = sum(answer.tokens_in for answer in spent)
        details = {"cached_tokens": sum(answer.tokens_cached for answer in spent), "cache_write_tokens": 0}
        usage = {"input_tokens": tokens, "input_tokens_details": details, "output_tokens": 0, "total_tokens": tokens}
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
        named = zip(body.questions, answers, strict=True)
        return {"model": name, "answers": [_listed(question, answer) for question, answer in named], "usage": usage}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        listed = {"name": name, "description": "A language model that answers typed questions.", "release_date": ""}
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "gym-text"}]
        return {"object": "list", "data": data, "models": [listed]}  # OpenAI's form, and Jev's

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.middleware("http")
    async def limited(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        size = request.headers.get("content-length", "")
        if request.method == "POST" and not (size.isdecimal() and int(size) <= MOST_BODY):
            return _refusal(request, 413, f"expected a body of a known length, of at most {MOST_BODY} bytes")
        if request.headers.get("content-encoding", "identity") != "identity":
            return _refusal(request, 415, "expected a body that is not compressed; typesafe-sdk sends it with compression=False")
        return await go_on(request)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return _refusal(request, error.status_code, error.detail)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        return _refusal(request, 422, [{key: each[key] for key in ("loc", "msg", "type")} for each in error.errors()])

    return app


class Waiting:
    """Requests that wait for a model. All that wait when it is free are answered together.

    Args:
        model: The model.
        most: Most requests at once; one more is refused with status 429.
    """

    def __init__(self, model: Backend, most: int) -> None:
        self._model, self._most, self._count = model, most, 0
        self._queue: list[tuple[Sequence[Asked], asyncio.Future[list[Answer]]]] = []
        self._running: asyncio.Task[None] | None = None

    async def answers(self, asked: Sequence[Asked]) -> list[Answer]:
        """Return the model's answers to the questions of one request."""
        if self._count >= self._most:
            raise HTTPException(429, f"{self._most} requests are waiting; ask again later")
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._queue.append((asked, future))
        self._count += 1
        try:
            if self._running is None:
                self._running = asyncio.create_task(self._run())
            return await future
        except GymTextError as error:  # the prompt is too long for the model
            raise HTTPException(400, str(error)) from error
        finally:
            self._count -= 1

    async def _run(self) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            batch = [each for each in batch if not each[1].cancelled()]
            for (_, future), result in zip(batch, await asyncio.to_thread(self._together, [a for a, _ in batch]), strict=True):
                if future.cancelled():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        self._running = None

    def _together(self, groups: Sequence[Sequence[Asked]]) -> list[list[Answer] | Exception]:
        """Answer several requests; where that fails, each alone."""
        try:
            first = self._model.answer([group[0] for group in groups])  # reads each state, which the other questions share
            rest = iter(self._model.answer([asked for group in groups for asked in group[1:]]))
            return [[answer, *(next(rest) for _ in group[1:])] for answer, group in zip(first, groups, strict=True)]
        except Exception as error:
            return [error] if len(groups) == 1 else [self._together([group])[0] for group in groups]


def _request(chat: Sequence[Message], words: str, texts: Sequence[str], decide: Decide) -> Asked:
    """Return one question behind a chat as a request. The question's words continue the chat's last message if it is the user's."""
    *before, last = chat
    if words and last["role"] == "user":
        chat = [*before, {**last, "content": f"{last['content']}\n\n{words}"}]
    elif words:
        chat = [*chat, {"role": "user", "content": words}]
    return Asked(tuple(chat), tuple(dict.fromkeys(texts)), end_of_turn=decide != "labels", think=False)


def _chat_of(state: Content) -> list[Message]:
    """Return a state as a chat: a list of messages with role and content is one; all else is what the user says."""
    if isinstance(state, list) and state and all(map(_is_message, state)):
        return [_message(ChatMessage.model_validate(each)) for each in state]
    return [{"role": "user", "content": as_text(state)}]


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.keys() != {"role", "content"}:
        return False
    return value["role"] in ("user", "assistant", "system", "developer") and isinstance(value["content"], str)


def _message(message: str | ChatMessage) -> Message:
    if isinstance(message, str):
        return {"role": "user", "content": as_text(message)}
    return {"role": "system" if message.role == "developer" else message.role, "content": _joined(message.content)}


def _joined(content: str | Parts) -> str:
    """Return the text of a message or of instructions; JSON is written as text."""
    if isinstance(content, str):
        return as_text(content)
    return "\n".join(as_text(part.text if isinstance(part, Text) else part.data) for part in content)


def _typed(question: ListedQuestion) -> TypedQuestion:
    """Return a question of ``/v1/decisions``.

    Raises:
        ValueError: If it has not the options of its type.
    """
    instructions = _joined(question.instructions)
    if question.type == "predicate":
        return TypedQuestion.of("noul", instructions, None)
    is_choice = question.type == "choice"
    options, many, key = (question.choices, "choices", "value") if is_choice else (question.levels, "levels", "label")
    names = [getattr(option, key) for option in options]
    if len(options) < 2 or None in names:
        raise ValueError(f"a {question.type} question has 2 to {MOST_OPTIONS} {many}, each with a {key}")
    if len({(type(name), name) for name in names}) < len(names):
        raise ValueError("each choice of a question must be unique")
    descriptions = tuple(as_text(option.description) for option in options)
    if is_choice:
        return TypedQuestion("choice", instructions, tuple(name for name in names if name is not None), descriptions)
    levels = [f"{name}: {text}" if text else as_text(name) for name, text in zip(names, descriptions, strict=True)]
    return TypedQuestion.of("score", instructions, levels)


def _listed(question: ListedQuestion, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer in the form of ``/v1/decisions``."""
    if question.type == "predicate":
        return {"type": "predicate", "name": question.name, "probability": answer["noul"]}
    rows: list[dict[str, Any]] = [{"value": value, "probability": share} for value, share in answer["probabilities"].items()]
    if question.type == "score":
        rows = [{**row, "value": level, "label": question.levels[level].label} for level, row in enumerate(rows)]
    kept: dict[str, Any] = {key: answer[key] for key in ("type", "choice", "score", "confidence") if key in answer}
    return {**kept, "name": question.name, "probabilities": rows}


def _refusal(request: Request, status: int, detail: Any) -> JSONResponse:
    """Return an error as the clients of the two formats expect it."""
    if not request.url.path.endswith("/decisions"):
        return JSONResponse({"detail": detail}, status)
    if isinstance(detail, list):
        detail = "; ".join(f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in detail)
    kind = "invalid_request_error" if status < 429 else "rate_limit_error"
    error = {"message": detail, "type": kind, "param": None, "code": "model_not_found" if status == 404 else None}
    return JSONResponse({"error": error}, 400 if status == 422 else status)
