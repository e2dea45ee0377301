"""`TransformersBackend`: a model of transformers in this process."""

from __future__ import annotations

import functools
import importlib
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gym_text.errors import check_int, import_extra
from gym_text_policies.backends.base import Answer, Backend, Request, softmax
from gym_text_policies.backends.local.decoding import Candidates, Generation, PromptLookup, Sampler, generate, read
from gym_text_policies.backends.local.exactness import exact_prefixes, window_of
from gym_text_policies.backends.local.tokens import fitting_tokens, text_tokens
from gym_text_policies.records import Tokens

_PASS_TOKENS = 512
"""About the most new tokens of one forward pass on a CPU."""
_GPU_PASS_TOKENS = 2048
"""The same on a GPU, where few large passes are faster. The logits after so many tokens take about a gigabyte."""
_REMEMBERED = 4096
"""Most answers that are kept, for requests that come again (as in a game that stands still); and most texts whose tokens are
kept."""


@dataclass(frozen=True)
class _Question:
    """A request as tokens. Equal questions have equal answers."""

    prompt: tuple[int, ...]
    turns_dropped: int
    schema: str | None
    request: Request
    """The request without its messages, schema and episode. `prompt` and `schema` replace the first two, and no answer depends on
    the episode."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The candidates; empty if the request asks for a text."""
        return self.request.choices or ()


class TransformersBackend(Backend):
    """A causal language model with a chat template.

    Tokens at the start of a prompt that were read before are not computed again, and an answer that was given before is looked up.
    If a chat is longer than the model's window, its oldest turns are left out.

    In mode ``choose`` one forward pass computes a request's prompt and all its candidates. The score of a candidate is
    log P(candidate + end of turn | prompt), prompt and candidate tokenised apart. The probabilities are the softmax of the scores.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer, with a chat template.
        name: The model's name in records, or all fields that identify it there.
        max_cached_tokens: About the most tokens whose keys and values are kept between calls; the least recently used are dropped
            first. The embedded model takes 46 kB for each token.
        optimise: Prepare the model for inference on a CPU, if that is faster. The caller cannot use the model afterwards.
        weights: What identifies the weights, so that the way of reading is compared only once: see `exact_prefixes`.

    Raises:
        UsageError: If the model's probabilities cannot be computed exactly: see `exact_prefixes`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str | Mapping[str, Any],
        *,
        max_cached_tokens: int = 32_768,
        optimise: bool = False,
        weights: str = "",
    ) -> None:
        self._tokenizer = tokenizer
        self._identity: Mapping[str, Any] = {"model": name} if isinstance(name, str) else name
        self._tokens = functools.lru_cache(_REMEMBERED)(lambda text: tuple(text_tokens(tokenizer, text)))
        self._end: int = tokenizer.eos_token_id
        self._window = window_of(model.config)
        room = check_int("max_cached_tokens", max_cached_tokens, 1, 10**9)
        self._prefixes = exact_prefixes(model.eval(), room, optimise=optimise, weights=weights)
        self._pass_tokens = _PASS_TOKENS if model.device.type == "cpu" else _GPU_PASS_TOKENS
        self._texts = PromptLookup()
        self._grammar_tokens: Any = None
        self._answered: OrderedDict[_Question, Answer] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def config(self) -> dict[str, Any]:
        """The model's name, and what else identifies it."""
        return {"backend": "transformers", **self._identity}

    @property
    def way(self) -> str:
        """The fastest exact way of reading the model: ``packed``, ``cached`` or ``reread``. See `exact_prefixes`."""
        return self._prefixes.way

    @property
    def tokens_computed(self) -> int:
        """Number of tokens that went through the model so far."""
        return self._prefixes.computed

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request.

        Raises:
            PolicyError: If a prompt is longer than the model's window even without its earlier turns.
        """
        with self._lock:  # the tokenizer has a state, too
            questions = [self._question(request) for request in requests]
            new = [question for question in dict.fromkeys(questions) if question not in self._answered]
            fresh = dict(zip(new, self._compute(new), strict=True))
            self._answered.update(fresh)
            answers = [fresh.pop(question) if question in fresh else self._recall(question) for question in questions]
            while len(self._answered) > _REMEMBERED:
                self._answered.popitem(last=False)
        return answers

    def count(self, text: str) -> int:
        """Return the number of tokens of a text by itself."""
        with self._lock:
            return len(self._tokens(text))

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text by itself."""
        return list(self._tokens(text))

    def _question(self, request: Request) -> _Question:
        room = 1 + max(len(self.tokens(choice)) for choice in request.choices) if request.choices else request.max_tokens
        prompt, turns_dropped = fitting_tokens(
            self._tokenizer, request.messages, self._window - room, self._identity["model"], read=request.read
        )
        schema = self._bounded(request.schema, request.max_tokens) if request.schema else None
        seed = secrets.randbits(31) if request.temperature and request.seed is None else request.seed
        return _Question(
            tuple(prompt), turns_dropped, schema, replace(request, messages=(), schema=None, episode="", seed=seed, read=())
        )

    def _recall(self, question: _Question) -> Answer:
        """Return the answer to a question that was answered before. All its tokens count as cached."""
        self._answered.move_to_end(question)
        answer = self._answered[question]
        return replace(answer, tokens_cached=answer.tokens_in)

    def _compute(self, questions: Sequence[_Question]) -> list[Answer]:
        """Answer different questions."""
        answers: dict[_Question, Answer] = {}
        for group in self._groups([question for question in questions if question.request.choices is not None]):
            answers |= zip(group, self._choose(group), strict=True)
        free = [question for question in questions if question.request.choices is None]
        if free:
            answers |= zip(free, self._generate(free), strict=True)
        return [answers[question] for question in questions]

    def _groups(self, questions: Sequence[_Question]) -> Iterator[list[_Question]]:
        """Divide questions with choices into groups, one for each forward pass. Those with the fewest unread tokens come first.

        If the cache has no room for all questions, another order could drop what the next question needs.
        """
        unread = {question: len(question.prompt) - self._prefixes.match(question.prompt) for question in questions}
        group, size = [], 0
        for question in sorted(questions, key=unread.__getitem__):
            group.append(question)
            size += unread[question] + 3 * len(question.choices)
            if size >= self._pass_tokens:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _choose(self, questions: Sequence[_Question]) -> list[Answer]:
        """Score the candidates of several questions in one pass."""
        prompts = [question.prompt for question in questions]
        cached = [self._prefixes.match(prompt) for prompt in prompts]
        candidates = [
            Candidates.of(
                prefix,
                question.prompt,
                [self._tokens(choice) for choice in question.choices],
                self._end,
                length_normalised=question.request.length_normalised,
            )
            for question, prefix in zip(questions, self._prefixes.open(prompts), strict=True)
        ]
        log_probs = read(self._prefixes, candidates)
        return [
            Answer(
                probabilities=softmax(question.choices, tree.scores(rows)),
                probability_kind="likelihood",
                tokens_in=len(question.prompt) + sum(map(len, tree.tokens)),
                tokens_cached=known,
                turns_dropped=question.turns_dropped,
                tokens=_tokens_of(question, dict(zip(question.choices, zip(tree.tokens, rows, strict=True), strict=True))),
            )
            for question, known, tree, rows in zip(questions, cached, candidates, log_probs, strict=True)
        ]

    def _generate(self, questions: Sequence[_Question]) -> list[Answer]:
        """Generate the texts of several questions together."""
        prompts = [question.prompt for question in questions]
        cached = [self._prefixes.match(prompt) for prompt in prompts]
        generations = [
            Generation(question.prompt, prefix, self._sampler(question), self._texts, self._end, question.request.max_tokens)
            for question, prefix in zip(questions, self._prefixes.open(prompts), strict=True)
        ]
        generate(self._prefixes, generations)
        for prompt, generation in zip(prompts, generations, strict=True):
            if generation.ended:  # a cut answer is not remembered: a caller may ask for one token only to have a prompt read
                self._texts.remember(prompt, generation.tokens)
        texts = [self._tokenizer.decode(generation.tokens, skip_special_tokens=True) for generation in generations]
        return [
            Answer(
                text,
                finish="stop" if generation.ended else "length",
                tokens_in=len(question.prompt),
                tokens_cached=known,
                tokens_out=len(generation.tokens),
                turns_dropped=question.turns_dropped,
                tokens=_tokens_of(question, {text: (generation.tokens, generation.sampler.log_probs)}),
            )
            for question, known, generation, text in zip(questions, cached, generations, texts, strict=True)
        ]

    def _sampler(self, question: _Question) -> Sampler:
        grammar = self._grammar(question.schema) if question.schema else None
        return Sampler(question.request.temperature, question.request.seed or 0, grammar, keeps=question.request.tokens)

    def _bounded(self, schema: Mapping[str, Any], max_tokens: int) -> str:
        """Return a schema as text. Its free strings get a greatest length, so that an object takes about `max_tokens` at most."""
        properties = dict(schema["properties"])
        free = [name for name, part in properties.items() if part.get("type") == "string" and "enum" not in part]
        longest = max((len(self._tokens(name)) for part in properties.values() for name in part.get("enum", ())), default=0)
        for name in free:
            room = max_tokens - max(40, longest + 24)  # keys and action take the rest
            properties[name] = {"maxLength": max(1, 3 * room // len(free))} | properties[name]
        return json.dumps(dict(schema) | {"properties": properties})

    def _grammar(self, schema: str) -> Any:
        """Return llguidance's matcher of a JSON schema, which says token by token what may come next."""
        llguidance = import_extra("llguidance", "local")
        if self._grammar_tokens is None:
            self._grammar_tokens = importlib.import_module("llguidance.hf").from_tokenizer(self._tokenizer)
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": False})
        return llguidance.LLMatcher(self._grammar_tokens, grammar)


def _tokens_of(question: _Question, answers: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> dict[str, Tokens] | None:
    """Return the tokens of a text, or of each choice, if the request asks for tokens."""
    if not question.request.tokens:
        return None
    return {text: Tokens(question.prompt, tuple(tokens), tuple(log_probs)) for text, (tokens, log_probs) in answers.items()}
