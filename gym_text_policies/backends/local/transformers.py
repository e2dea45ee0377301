"""`TransformersBackend`: a model of transformers in this process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gym_text.errors import check_int
from gym_text_policies.backends.base import Answer, Backend, Request, softmax
from gym_text_policies.backends.local.best_first import find, search
from gym_text_policies.backends.local.decoding import Candidates, Generation, PromptLookup, generate, read
from gym_text_policies.backends.local.exactness import exact_prefixes, window_of
from gym_text_policies.backends.local.prefixes import Prefix
from gym_text_policies.backends.local.questions import PendingAnswer, Question, Questions
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.sampling import Draw, Sampler
from gym_text_policies.backends.local.thinking import thinking_start

_PASS_TOKENS = 512
"""About the most new tokens of one forward pass on a CPU."""
_GPU_PASS_TOKENS = 2048
"""The same on a GPU, where few large passes are faster. The logits after so many tokens take about a gigabyte."""
_FEW_TOKENS = 200
"""Tokens of all candidates that one pass reads about as fast as a search finds the best of them."""
_REMEMBERED = 4096
"""Most answers that are kept, for requests that come again (as in a game that stands still); and most texts whose tokens are
kept."""


class TransformersBackend(Backend):
    """A causal language model with a chat template.

    Tokens at the start of a prompt that were read before are not computed again, and an answer that was given before is looked up.
    If a chat is longer than the model's window, its oldest turns are left out.

    In mode ``choose`` one forward pass computes a request's prompt and all its candidates. The score of a candidate is
    log P(candidate + end of turn | prompt), prompt and candidate tokenised apart. The probabilities are the softmax of the scores.
    For a request that leaves out the probabilities, short passes search for the candidate with the highest score. Where this would
    not be faster, or the scores are no sums, or tokens cannot be removed from the model's cache, all are computed nevertheless.

    If the chat template lets the model think, the thoughts of all requests are generated first, and an answer of any kind stands
    behind its closed thought. A thought that the model does not close is closed in its place. If the model begins an answer where
    it could have thought, there is no thought: its words go on from there; JSON, and any answer in front of which the template
    writes something, such as an empty thought, begin anew behind that.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer, with a chat template.
        name: The model's name in records, or all fields that identify it there.
        max_cached_tokens: About the most tokens whose keys and values are kept between calls; the least recently used are dropped
            first. By default they take a tenth of the memory of the machine or the GPU; the embedded model takes 46 kB for each
            token. Episodes that run at once, with what their searches look at, should fit: else their prompts
            are read again.
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
        max_cached_tokens: int | None = None,
        optimise: bool = False,
        weights: str = "",
    ) -> None:
        self._tokenizer = tokenizer
        self._identity: Mapping[str, Any] = {"model": name} if isinstance(name, str) else name
        ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        self._questions = Questions(tokenizer, window_of(model.config), str(self._identity["model"]), ends)
        self._thoughts = thinking_start(format_of(tokenizer))
        if max_cached_tokens is not None:
            check_int("max_cached_tokens", max_cached_tokens, 1, 10**9)
        self._prefixes = exact_prefixes(model.eval(), max_cached_tokens, optimise=optimise, weights=weights)
        self._pass_tokens = _PASS_TOKENS if model.device.type == "cpu" else _GPU_PASS_TOKENS
        self._texts = PromptLookup()
        self._answered: OrderedDict[Question, Answer] = OrderedDict()
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
            questions = [self._questions.of(request) for request in requests]
            new = [question for question in dict.fromkeys(questions) if question not in self._answered]
            fresh = dict(zip(new, self._compute(new), strict=True))
            self._answered.update(fresh)
            answers = [fresh.pop(question) if question in fresh else self._recall(question) for question in questions]
            while len(self._answered) > _REMEMBERED:
                self._answered.popitem(last=False)
        return answers

    def forget(self) -> None:
        """Forget the keys and values of all prompts, which are read again if they are needed."""
        with self._lock:
            self._prefixes.forget()

    def count(self, text: str) -> int:
        """Return the number of tokens of a text by itself."""
        with self._lock:
            return len(self._questions.tokens(text))

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text by itself."""
        return list(self._questions.tokens(text))

    def _recall(self, question: Question) -> Answer:
        """Return the answer to a question that was answered before. All its tokens count as cached."""
        self._answered.move_to_end(question)
        answer = self._answered[question]
        return replace(answer, tokens_cached=answer.tokens_in)

    def _compute(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer different questions. Those about which the model thinks come first."""
        asked = {question: PendingAnswer.of(question) for question in questions}
        self._think([each for question, each in asked.items() if question.answer_start.thinks])
        answers: dict[Question, Answer] = {}
        choosing = [each for each in asked.values() if each.question.request.choices is not None]
        for choose, searches in ((self._choose, False), (self._find, True)):
            for group in self._groups([each for each in choosing if self._searches(each.question) is searches]):
                answers |= zip([each.question for each in group], choose(group), strict=True)
        free = [each for each in asked.values() if each.question.request.choices is None]
        if free:
            answers |= zip([each.question for each in free], self._generate(free), strict=True)
        return [answers[question] for question in questions]

    def _think(self, asked: Sequence[PendingAnswer]) -> None:
        """Let the model think about several questions together, each until its thought ends or has its greatest length."""
        for each in asked:
            each.cached = self._prefixes.match(each.question.prompt)
        watches = [self._questions.markers(each.question.answer_start).watch() for each in asked]
        prefixes = self._prefixes.open([each.question.prompt for each in asked]) if asked else []
        generations = [
            Generation(question.prompt, prefix, self._sampler(question), self._texts, watch, question.request.thought_tokens)
            for question, prefix, watch in zip((each.question for each in asked), prefixes, watches, strict=True)
        ]
        generate(self._prefixes, generations)
        for each, generation, watch in zip(asked, generations, watches, strict=True):
            each.generation, each.thought = generation, watch.thought(generation.tokens)
            each.log_probs = generation.sampler.log_probs
            if each.thought:
                self._texts.remember(each.question.prompt, each.thought.tokens)
            else:  # the model has begun its answer; unless answers begin there, it answers anew where they do
                each.opening = self._questions.markers(each.question.answer_start).ids(each.question.answer_start.opening)
                free = not (each.opening or each.question.schema or each.question.choices)
                each.begun = tuple(generation.tokens) if free else ()

    def _opened(self, asked: Sequence[PendingAnswer]) -> list[Prefix]:
        """Return what is remembered of the tokens before each answer."""
        unread = [each for each in asked if each.prefix is None]
        for each in unread:
            if each.generation is None:
                each.cached = self._prefixes.match(each.prompt)
        opened = iter(self._prefixes.open([each.prompt for each in unread]) if unread else ())
        return [next(opened) if each.prefix is None else each.prefix for each in asked]

    def _groups(self, asked: Sequence[PendingAnswer]) -> Iterator[list[PendingAnswer]]:
        """Divide questions with choices into groups, one for each forward pass. Those with the fewest unread tokens come first.

        If the cache has no room for all questions, another order could drop what the next question needs.
        """
        unread = [
            len(each.prompt) - (len(each.prefix.tokens) if each.prefix else self._prefixes.match(each.prompt)) for each in asked
        ]
        group, size = [], 0
        for index in sorted(range(len(asked)), key=unread.__getitem__):
            group.append(asked[index])
            size += unread[index] + 3 * len(asked[index].question.choices)
            if size >= self._pass_tokens:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _choose(self, asked: Sequence[PendingAnswer]) -> list[Answer]:
        """Score the candidates of several questions in one pass."""
        candidates = [
            Candidates.of(
                prefix,
                each.prompt,
                [self._questions.tokens(choice) for choice in each.question.choices],
                self._questions.end,
            )
            for each, prefix in zip(asked, self._opened(asked), strict=True)
        ]
        log_probs = read(self._prefixes, candidates)
        return [
            each.answer(
                dict(zip(each.question.choices, zip(tree.tokens, rows, strict=True), strict=True)),
                probabilities=softmax(each.question.choices, list(map(sum, rows))),
                probability_kind="likelihood",
                tokens_in=sum(map(len, tree.tokens)),
            )
            for each, tree, rows in zip(asked, candidates, log_probs, strict=True)
        ]

    def _searches(self, question: Question) -> bool:
        """Return whether to search for the most probable candidate alone."""
        request = question.request
        if request.probabilities or not self._prefixes.cuts_back:
            return False
        return sum(len(self._questions.tokens(choice)) for choice in question.choices) > _FEW_TOKENS

    def _find(self, asked: Sequence[PendingAnswer]) -> list[Answer]:
        """Find the most probable candidates of several questions, without the probabilities of the others."""
        searches = [
            search(prefix, each.prompt, [self._questions.tokens(choice) for choice in each.question.choices], self._questions.end)
            for each, prefix in zip(asked, self._opened(asked), strict=True)
        ]
        answers = []
        for each, found in zip(asked, find(self._prefixes, searches), strict=True):
            choice = each.question.choices[found.index]
            tokens_of_choice = {choice: (found.tokens, found.log_probs)}
            answers.append(each.answer(tokens_of_choice, choice=choice, tokens_in=found.tokens_read))
        return answers

    def _generate(self, asked: Sequence[PendingAnswer]) -> list[Answer]:
        """Generate the texts of several questions together."""
        generations = [self._generation(each, prefix) for each, prefix in zip(asked, self._opened(asked), strict=True)]
        generate(self._prefixes, generations)
        for each, generation in zip(asked, generations, strict=True):
            if generation.ended:  # a cut answer is not remembered: a caller may ask for one token only to have a prompt read
                self._texts.remember(each.prompt, generation.tokens)
        return [self._said(each, generation) for each, generation in zip(asked, generations, strict=True)]

    def _generation(self, asked: PendingAnswer, prefix: Prefix) -> Generation:
        """Return the generation of an answer in words."""
        question, generation, grammar, ends = asked.question, asked.generation, None, self._questions.stops
        if question.schema and question.calls:
            calls = self._questions.calls
            grammar, ends = calls.matcher(question.calls, question.schema), frozenset([calls.end(question.calls)])
        elif question.schema:
            grammar = self._questions.grammars.of(question.schema)
        until, most = (lambda tokens: tokens[-1] in ends), question.request.max_tokens
        if generation is None:
            generation = Generation(asked.prompt, prefix, self._sampler(question), self._texts, until, most)
        else:
            del generation.sampler.log_probs[asked.thought_tokens + len(asked.begun) :]
            generation.go_on(asked.prompt, prefix, asked.begun, until, most)
        generation.sampler.grammar = grammar
        return generation

    def _said(self, asked: PendingAnswer, generation: Generation) -> Answer:
        """Return a generated answer."""
        tokens, finish, called = generation.tokens, "stop" if generation.ended else "length", None
        words = tokens[:-1] if generation.ended else tokens
        text = self._tokenizer.decode(words, skip_special_tokens=True)
        if asked.question.calls:
            text, called = "", self._questions.calls.arguments(asked.question.calls, asked.question.schema or "", tokens)
        elif self._thoughts and not asked.question.schema:
            text, closed = self._questions.markers(self._thoughts).answer(words, text)
            finish = finish if closed else "length"
        answers = {called or text: (tokens, generation.sampler.log_probs[asked.thought_tokens :])}
        return asked.answer(answers, text=text, arguments=called, finish=finish, tokens_out=len(tokens))

    def _sampler(self, question: Question) -> Sampler:
        request = question.request
        draw = Draw(request.temperature, request.top_k, request.top_p, request.min_p)
        return Sampler(draw, request.seed or 0, keeps=request.tokens)
