"""`TransformersBackend`: a model of transformers in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gym_text.errors import check_int
from gym_text_policies.backends.base import Answer, Backend, Request, softmax
from gym_text_policies.backends.local.best_first import find, search
from gym_text_policies.backends.local.decoding import Generation, PromptLookup, generate
from gym_text_policies.backends.local.exactness import exact_prefixes, window_of
from gym_text_policies.backends.local.prefixes import Candidates, Prefix, candidate_log_probs
from gym_text_policies.backends.local.questions import PendingAnswer, Question, Questions
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.thinking import thinking_start

MAX_CACHED_TOKENS = 49_152
"""About the most tokens that a model remembers, if the user does not say: more than two gigabytes with the embedded model."""
_PASS_TOKENS = 512
"""About the most new tokens of one forward pass on a CPU."""
_GPU_PASS_TOKENS = 2048
"""The same on a GPU, where few large passes are faster. The logits after so many tokens take about a gigabyte."""
_FEW_TOKENS = 200
"""Tokens of all candidates that one pass reads about as fast as a search finds the best of them."""
_SCORED = 256
"""Most prompts of which the scores of candidates are kept, for the same prompt with other candidates, as in a search."""
_REMEMBERED = 4096
"""Most answers that are kept, for requests that come again (as in a game that stands still); most texts whose tokens are kept; and
most candidates whose scores are kept behind one prompt."""


class TransformersBackend(Backend):
    """A causal language model with a chat template.

    Tokens at the start of a prompt that were read before are not computed again. An answer that was given before is looked up, and
    so are the scores of candidates behind the same prompt.
    If a chat is longer than the model's window, its oldest turns are left out.

    In mode ``choose`` one forward pass computes a request's prompt and all its candidates. The score of a candidate is
    log P(candidate + end of turn | prompt), prompt and candidate tokenised apart. The probabilities are the softmax of the scores.
    For a request that leaves out the probabilities, short passes search for the candidate with the highest score, if there are so
    many candidates that this is faster, and tokens can be removed from the model's cache.

    If the chat template lets the model think, the thoughts of all requests are generated first, and an answer of any kind stands
    behind its closed thought. A thought that the model does not close is closed in its place. If the model begins an answer where
    it could have thought, there is no thought: its words go on from there; JSON, and any answer in front of which the template
    writes something, such as an empty thought, begin anew behind that.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer, with a chat template.
        name: The model's name in records, or all fields that identify it there.
        max_cached_tokens: About the most tokens whose keys and values are kept between calls; the least recently used are dropped
            first. The embedded model takes 46 kB for each token. Episodes that run at once, with what their searches look at,
            should fit: else their prompts are read again.
        optimise: Prepare the model for inference on a CPU, if that is faster. The caller cannot use the model afterwards.

    Raises:
        UsageError: If the model's probabilities cannot be computed exactly: see `exact_prefixes`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str | Mapping[str, Any],
        *,
        max_cached_tokens: int = MAX_CACHED_TOKENS,
        optimise: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._identity: Mapping[str, Any] = {"model": name} if isinstance(name, str) else name
        ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        self._questions = Questions(tokenizer, window_of(model.config), str(self._identity["model"]), ends)
        self._thoughts = thinking_start(format_of(tokenizer))
        check_int("max_cached_tokens", max_cached_tokens, 1, 10**9)
        self._prefixes = exact_prefixes(model.eval(), max_cached_tokens, optimise=optimise)
        self._pass_tokens = _PASS_TOKENS if model.device.type == "cpu" else _GPU_PASS_TOKENS
        self._texts = PromptLookup()
        self._answered: dict[Question, Answer] = {}
        self._scored: dict[tuple[tuple[int, ...], int | None], dict[tuple[int, ...], tuple[float, ...]]] = {}
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
            fresh = self._compute(new)
            self._answered |= fresh
            # all tokens of an answer that was given before count as cached
            known = [replace(answer, tokens_cached=answer.tokens_in) for answer in map(self._answered.__getitem__, questions)]
            answers = [fresh.pop(question, again) for question, again in zip(questions, known, strict=True)]
            while len(self._answered) > _REMEMBERED:
                del self._answered[next(iter(self._answered))]
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

    def _compute(self, questions: Sequence[Question]) -> dict[Question, Answer]:
        """Answer different questions. Those about which the model thinks come first."""
        asked = [PendingAnswer.of(question) for question in questions]
        self._think([each for each in asked if each.question.answer_start.thinks])
        answers: dict[Question, Answer] = {}
        for answer, searches in ((self._choose, False), (self._find, True)):
            choosing = [each for each in asked if each.question.candidates and self._searches(each.question) is searches]
            for group in self._groups(choosing):
                answers |= zip([each.question for each in group], answer(group), strict=True)
        free = [each for each in asked if not each.question.candidates]
        return answers | dict(zip([each.question for each in free], self._generate(free), strict=True))

    def _think(self, asked: Sequence[PendingAnswer]) -> None:
        """Let the model think about several questions together, each until its thought ends or has its greatest length."""
        for each in asked:
            each.cached = self._prefixes.match(each.chat)
        markers = [self._questions.markers(each.question.answer_start) for each in asked]
        generations = [
            Generation(each.chat, prefix, each.sampler, self._texts, own.ends, each.question.request.thought_tokens)
            for each, own, prefix in zip(asked, markers, self._prefixes.open([each.chat for each in asked]), strict=True)
        ]
        generate(self._prefixes, generations)
        for each, own, generation in zip(asked, markers, generations, strict=True):
            each.thinking, each.thought, each.log_probs = generation.prefix, own.thought(generation.tokens), each.sampler.log_probs
            if each.thought:
                self._texts.remember(each.chat, each.thought.tokens)
            else:  # the model has begun its answer; unless answers begin there, it answers anew where they do
                each.opening = own.ids(each.question.answer_start.opening)
                free = not (each.opening or each.question.schema or each.question.candidates)
                each.begun = tuple(generation.tokens) if free else ()

    def _opened(self, asked: Sequence[PendingAnswer]) -> list[Prefix]:
        """Return what is remembered of the tokens before each answer."""
        unread = [each for each in asked if each.prefix is None]
        for each in unread:
            if each.thinking is None:
                each.cached = self._prefixes.match(each.prompt)
        opened = iter(self._prefixes.open([each.prompt for each in unread]))
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
            size += unread[index] + 3 * len(asked[index].question.candidates)
            if size >= self._pass_tokens:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _choose(self, asked: Sequence[PendingAnswer]) -> list[Answer]:
        """Score the candidates of several questions in one pass, except those that were scored behind the same prompt before."""
        ends = [self._questions.end_behind(each.question.request) for each in asked]
        scored = [self._scored.setdefault((each.prompt, end), {}) for each, end in zip(asked, ends, strict=True)]
        new = [[one for one in each.question.candidates if one not in known] for each, known in zip(asked, scored, strict=True)]
        branches = [
            Candidates.of(prefix, each.prompt, candidates, end)
            for each, prefix, candidates, end in zip(asked, self._opened(asked), new, ends, strict=True)
        ]
        for known, candidates, rows in zip(scored, new, candidate_log_probs(self._prefixes, branches), strict=True):
            known.update(zip(candidates, rows, strict=True))
        answers = []
        for each, known, branch, end in zip(asked, scored, branches, ends, strict=True):
            choices = each.question.request.choices or ()
            paths = [(*candidate, end) if end is not None else candidate for candidate in each.question.candidates]
            rows = [known[candidate] for candidate in each.question.candidates]
            tokens_in = sum(map(len, paths))
            each.cached += tokens_in - sum(map(len, branch.tokens))
            answers.append(
                each.answer(
                    dict(zip(choices, zip(paths, rows, strict=True), strict=True)),
                    probabilities=softmax(choices, list(map(sum, rows))),
                    probability_kind="likelihood",
                    tokens_in=tokens_in,
                )
            )
        for known in scored:
            if len(known) > _REMEMBERED:
                known.clear()
        while len(self._scored) > _SCORED:
            del self._scored[next(iter(self._scored))]
        return answers

    def _searches(self, question: Question) -> bool:
        """Return whether to search for the most probable candidate alone."""
        if question.request.probabilities or not question.request.end_of_turn:
            return False
        return self._prefixes.cuts_back and sum(map(len, question.candidates)) > _FEW_TOKENS

    def _find(self, asked: Sequence[PendingAnswer]) -> list[Answer]:
        """Find the most probable candidates of several questions, without the probabilities of the others."""
        searches = [
            search(prefix, each.prompt, each.question.candidates, self._questions.end)
            for each, prefix in zip(asked, self._opened(asked), strict=True)
        ]
        answers = []
        for each, found in zip(asked, find(self._prefixes, searches), strict=True):
            choice = (each.question.request.choices or ())[found.index]
            answers.append(each.answer({choice: (found.tokens, found.log_probs)}, choice=choice, tokens_in=found.tokens_read))
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
        question, sampler, ends = asked.question, asked.sampler, self._questions.stops
        if question.schema and question.calls:
            sampler.grammar = self._questions.grammars.of_call(question.calls, question.schema)
            ends = frozenset([self._questions.grammars.call_end(question.calls)])
        elif question.schema:
            sampler.grammar = self._questions.grammars.of(question.schema)
        del sampler.log_probs[asked.thought_tokens + len(asked.begun) :]
        until, most = (lambda tokens: tokens[-1] in ends), question.request.max_tokens
        return Generation(asked.prompt, prefix, sampler, self._texts, until, most, list(asked.begun[:most]))

    def _said(self, asked: PendingAnswer, generation: Generation) -> Answer:
        """Return a generated answer."""
        question, tokens, called = asked.question, generation.tokens, None
        finish = "stop" if generation.ended else "length"
        words = tokens[:-1] if generation.ended else tokens
        text = self._tokenizer.decode(words, skip_special_tokens=True)
        if question.calls:
            text, called = "", self._questions.grammars.called(question.calls, question.schema or "", tokens)
        elif self._thoughts and not question.schema:
            text, closed = self._questions.markers(self._thoughts).answer(words, text)
            finish = finish if closed else "length"
        answers = {called or text: (tokens, asked.sampler.log_probs[asked.thought_tokens :])}
        return asked.answer(answers, text=text, arguments=called, finish=finish, tokens_out=len(tokens))
