"""A model of transformers in this process."""

from __future__ import annotations

import functools
import importlib
import json
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gym_text.errors import check_int, import_extra
from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.backends.local.guesses import Guesser
from gym_text_policies.backends.local.tokens import fitting_tokens, text_tokens

_PASS_TOKENS = 512
"""New tokens of one forward pass, about: more in one pass would waste attention on other requests' tokens."""
_GUESSED = 7
"""Tokens that one pass tries ahead, of all answers together; on a CPU eight cost hardly more than one."""
_MORE_GUESSED = 15
"""The same where all that was tried last was right: 16 cost a quarter more than eight."""
_REMEMBERED = 4096
"""Answers kept for requests that come again, as they do when a game stands still, and texts whose tokens are kept."""


@dataclass(frozen=True)
class _Question:
    """A request as tokens; equal questions have equal answers."""

    prompt: tuple[int, ...]
    choices: tuple[str, ...] | None
    schema: str | None
    max_tokens: int
    temperature: float
    seed: int | None
    length_normalised: bool
    turns_dropped: int


class TransformersBackend(Backend):
    """A causal language model with a chat template.

    What a prompt has in common with one that was read before is not computed again, and a question that was answered is only
    recalled. Where a chat is longer than the model's window its oldest turns go.

    In ``choose`` all candidates of a request share its prompt in one forward pass. A candidate's score is
    log P(candidate + end of turn | prompt), prompt and candidate tokenised apart; the probabilities are the softmax of the scores.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer, with a chat template.
        name: By which the records know it, or all that they say of it.
        max_cached_tokens: Tokens whose keys and values are kept from call to call, about; the least recently used go first.
            The embedded model takes 46 kB for each.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str | Mapping[str, Any], *, max_cached_tokens: int = 32_768) -> None:
        from gym_text_policies.backends.local.prefixes import Prefixes

        self._tokenizer = tokenizer
        self._identity: Mapping[str, Any] = {"model": name} if isinstance(name, str) else name
        self._tokens = functools.lru_cache(_REMEMBERED)(lambda text: tuple(text_tokens(tokenizer, text)))
        self._end: int = tokenizer.eos_token_id
        self._window: int = model.config.max_position_embeddings
        self._prefixes = Prefixes(model.eval(), check_int("max_cached_tokens", max_cached_tokens, 1, 10**9))
        self._said = Guesser()
        self._grammar_tokens: Any = None
        self._answered: OrderedDict[_Question, Answer] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def config(self) -> dict[str, Any]:
        """The model's name, and what else identifies it."""
        return {"backend": "transformers", **self._identity}

    @property
    def tokens_computed(self) -> int:
        """Tokens that went through the model so far."""
        return self._prefixes.computed

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request.

        Raises:
            PolicyError: If a prompt is longer than the model's window even without all earlier turns.
        """
        with self._lock:  # the tokenizer, too, has a state
            questions = [self._question(request) for request in requests]
            new = [question for question in dict.fromkeys(questions) if question not in self._answered]
            fresh = dict(zip(new, self._compute(new), strict=True))
            self._answered.update(fresh)
            answers = [fresh.pop(question) if question in fresh else self._recall(question) for question in questions]
            while len(self._answered) > _REMEMBERED:
                self._answered.popitem(last=False)
        return answers

    def _question(self, request: Request) -> _Question:
        answer = 1 + max(len(self.tokens(choice)) for choice in request.choices) if request.choices else request.max_tokens
        prompt, turns_dropped = fitting_tokens(self._tokenizer, request.messages, self._window - answer, self._identity["model"])
        schema = _bounded(request.schema, request.max_tokens) if request.schema else None
        seed = secrets.randbits(31) if request.temperature and request.seed is None else request.seed
        return _Question(
            tuple(prompt),
            request.choices,
            schema,
            request.max_tokens,
            request.temperature,
            seed,
            request.length_normalised,
            turns_dropped,
        )

    def _recall(self, question: _Question) -> Answer:
        """Return the answer to a question that was answered before: none of its tokens is computed."""
        self._answered.move_to_end(question)
        answer = self._answered[question]
        return replace(answer, tokens_cached=answer.tokens_in)

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text that stands alone."""
        return list(self._tokens(text))

    def _grammar(self, schema: str) -> Any:
        """Return what follows an answer token by token and says which may come next."""
        llguidance = import_extra("llguidance", "local")
        if self._grammar_tokens is None:
            self._grammar_tokens = importlib.import_module("llguidance.hf").from_tokenizer(self._tokenizer)
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": False})
        return llguidance.LLMatcher(self._grammar_tokens, grammar)

    def _compute(self, questions: list[_Question]) -> list[Answer]:
        """Answer questions, none of them twice."""
        answers: dict[_Question, Answer] = {}
        for group in self._groups([question for question in questions if question.choices is not None]):
            answers |= zip(group, self._choose(group), strict=True)
        free = [question for question in questions if question.choices is None]
        answers |= zip(free, self._generate(free), strict=True)
        return [answers[question] for question in questions]

    def _groups(self, questions: list[_Question]) -> Iterator[list[_Question]]:
        """Cut questions with choices into groups of one forward pass each; those of which most is remembered come first.

        Else, where not all of them can be remembered, each would make the model forget what the next one needs.
        """
        unread = {question: len(question.prompt) - self._prefixes.match(question.prompt) for question in questions}
        group, size = [], 0
        for question in sorted(questions, key=lambda question: unread[question]):
            group.append(question)
            size += unread[question] + 3 * len(question.choices or ())
            if size >= _PASS_TOKENS:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _choose(self, questions: list[_Question]) -> list[Answer]:
        """Score the candidates of several questions in one pass: what they have in common is one branch of a tree."""
        from gym_text_policies.backends.local.packing import Tree
        from gym_text_policies.backends.local.prefixes import Branch

        known = [self._prefixes.match(question.prompt) for question in questions]
        branches: list[Branch] = []
        candidates: list[list[tuple[list[int], list[int]]]] = []  # of each choice its tokens, and the rows that predict them
        for question, prefix in zip(questions, self._prefixes.open([q.prompt for q in questions]), strict=True):
            branch = Branch.line(prefix, question.prompt[len(prefix.tokens) :], [])
            last = len(branch.tokens) - 1
            tree = Tree(branch.tokens, branch.parents)
            candidates.append([])
            for choice in question.choices or ():
                tokens = self.tokens(choice)
                nodes = [last, *tree.grow(last, tokens)]
                candidates[-1].append(([*tokens, self._end], [node - last for node in nodes]))
            branch.wanted += range(last, len(branch.tokens))
            branches.append(branch)
        answers = []
        for question, cached, branch, choices, logits in zip(
            questions, known, branches, candidates, self._prefixes.compute(branches), strict=True
        ):
            branch.keep(branch.wanted[0] + 1)
            logs = logits.log_softmax(-1)
            scores = [float(logs[rows, tokens].sum()) for tokens, rows in choices]
            if question.length_normalised:
                scores = [score / len(tokens) for score, (tokens, _) in zip(scores, choices, strict=True)]
            answers.append(
                Answer(
                    probabilities=_softmax(question.choices or (), scores),
                    probability_kind="likelihood",
                    tokens_in=len(question.prompt) + sum(len(tokens) for tokens, _ in choices),
                    tokens_cached=cached,
                    turns_dropped=question.turns_dropped,
                )
            )
        return answers

    def _generate(self, questions: list[_Question]) -> list[Answer]:
        """Generate for several questions, a token of each in a pass, and more where a guess at what comes next is right."""
        from gym_text_policies.backends.local.prefixes import Branch
        from gym_text_policies.backends.local.writer import Writer

        known = [self._prefixes.match(question.prompt) for question in questions]
        prefixes = self._prefixes.open([question.prompt for question in questions]) if questions else []
        writers = [Writer(q.temperature, q.seed or 0, self._grammar(q.schema) if q.schema else None) for q in questions]
        guessers = [Guesser(question.prompt, self._said) for question in questions]
        outputs: list[list[int]] = [[] for _ in questions]
        active, tries = list(range(len(questions))), [_GUESSED] * len(questions)
        while active:
            branches = []
            for i in active:
                room = min(tries[i] // len(active), questions[i].max_tokens - len(outputs[i]) - 1)
                unread = [*questions[i].prompt, *outputs[i]][len(prefixes[i].tokens) :]
                tokens = unread + (writers[i].forced(room) or guessers[i].guess(room))
                branches.append(Branch.line(prefixes[i], tokens, range(len(unread) - 1, len(tokens))))
            for i, branch, logits in zip(active, branches, self._prefixes.compute(branches), strict=True):
                read, before = branch.wanted[0] + 1, len(outputs[i])
                for row in logits:
                    outputs[i].append(writers[i].next(row))
                    if outputs[i][-1] == self._end or read == len(branch.tokens) or branch.tokens[read] != outputs[i][-1]:
                        break
                    read += 1
                branch.keep(read)
                tries[i] = _MORE_GUESSED if read == len(branch.tokens) and len(branch.wanted) > 1 else _GUESSED
                guessers[i].say(outputs[i][before:])
            active = [i for i in active if outputs[i][-1] != self._end and len(outputs[i]) < questions[i].max_tokens]
        for question, output in zip(questions, outputs, strict=True):
            if output[-1] == self._end:  # not what was cut off, as where a caller reads a prompt by asking for a single token
                self._said.remember(question.prompt, output)
        return [
            Answer(
                self._tokenizer.decode(output, skip_special_tokens=True),
                tokens_in=len(question.prompt),
                tokens_cached=cached,
                tokens_out=len(output),
                turns_dropped=question.turns_dropped,
            )
            for question, cached, output in zip(questions, known, outputs, strict=True)
        ]


def _bounded(schema: Mapping[str, Any], max_tokens: int) -> str:
    """Return a schema as text, its free strings bounded so that an object of them ends within `max_tokens` tokens, about."""
    properties = dict(schema["properties"])
    free = [name for name, part in properties.items() if part.get("type") == "string" and "enum" not in part]
    for name in free:
        properties[name] = {"maxLength": max(1, 3 * (max_tokens - 40) // len(free))} | properties[name]
    return json.dumps(dict(schema) | {"properties": properties})


def _softmax(choices: Sequence[str], scores: list[float]) -> dict[str, float]:
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = sum(weights)
    return {choice: weight / total for choice, weight in zip(choices, weights, strict=True)}
