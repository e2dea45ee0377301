"""The bodies of requests to ``/v1/systemone`` and ``/v1/decisions``, the wire formats of decision models. Extra: ``serve``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from gym_text_policies.backends.typed_questions import MOST_OPTIONS, MOST_QUESTIONS

Content = str | dict[str, Any] | list[Any]
Name = Annotated[str, Field(min_length=0)]
"""To know the length pydantic decodes the text, and so refuses half of a surrogate pair, which no answer could name."""


class _Fields(BaseModel):
    """Fields of a request; others are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Choice(_Fields):
    """A question of ``/v1/systemone`` whose answer is one of several options."""

    type: Literal["choice"]
    instructions: Content | None = None
    criteria: dict[Name, Content | None] = Field(min_length=2, max_length=MOST_OPTIONS)


class Score(_Fields):
    """A question whose answer is one of several levels."""

    type: Literal["score"]
    instructions: Content | None = None
    criteria: list[Content] = Field(min_length=2, max_length=MOST_OPTIONS)


class Noul(_Fields):
    """A question whose answer is yes or no."""

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: dict[Literal["true", "false"], Content | None] | None = None


class SystemOne(_Fields):
    """A request to ``/v1/systemone``."""

    model: str | None = None
    state: Content
    questions: dict[Name, Annotated[Choice | Score | Noul, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MOST_QUESTIONS
    )
    keep_alive: float | str | None = None
    """Ollama's; without effect."""


class Text(_Fields):
    """A part of a message that is text."""

    type: Literal["input_text", "output_text"]
    text: str
    prompt_cache_breakpoint: dict[str, Any] | None = None


class Data(_Fields):
    """A part of a message that is JSON. Other parts, as pictures, are refused."""

    type: Literal["input_json"]
    data: Content
    prompt_cache_breakpoint: dict[str, Any] | None = None


Parts = list[Annotated[Text | Data, Field(discriminator="type")]]


class ChatMessage(_Fields):
    """A message of a chat."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    phase: str | None = None


class Option(_Fields):
    """An option, or a level, which has a label."""

    value: Name | StrictBool | None = None
    label: Name | None = None
    description: str | None = None


class ListedQuestion(_Fields):
    """A question of ``/v1/decisions``."""

    type: Literal["choice", "score", "predicate"]
    name: Name | None = None
    instructions: str | Parts
    choices: list[Option] = Field(default=[], max_length=MOST_OPTIONS)
    levels: list[Option] = Field(default=[], max_length=MOST_OPTIONS)


class Decisions(_Fields):
    """A request to ``/v1/decisions``."""

    model: str
    input: str | Annotated[list[ChatMessage], Field(min_length=1)]
    questions: list[ListedQuestion] = Field(min_length=1, max_length=400)
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    safety_identifier: str | None = None
