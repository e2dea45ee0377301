"""`VLLMBackend`: the model that TRL's trainer keeps in vLLM (``use_vllm=True``, TRL 1.16), as a player of `trl_rollout`.

All waiting episodes are sampled in one call of ``trainer.vllm_generation.generate``: prompts go in as token ids, and the ids that
vLLM has sampled come back with their log-probabilities. There is no copy of the model; TRL gives vLLM the present weights before it
calls a `rollout_func`.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gym_text.errors import PolicyError, UsageError
from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.backends.chat_format import AnswerStart
from gym_text_policies.backends.local.exactness import window_of
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.thinking import PromptAndThought, Thought, ThoughtMarkers, thinking_start, with_budget
from gym_text_policies.backends.local.tokens import fitting_tokens, stops

_NAME = "trl"
"""The model's name in records."""


@dataclass(kw_only=True)
class _Asked(PromptAndThought):
    """A request on its way to an answer."""

    request: Request
    answer_start: AnswerStart
    """Where the chat ends."""
    budget: int
    """Most tokens of a thought; 0 if the model does not think."""
    words: list[int] = field(default_factory=list)
    """The tokens of the answer."""
    word_log_probs: list[float] = field(default_factory=list)
    """The log-probability of each."""


class VLLMBackend(Backend):
    """A causal language model in the vLLM of TRL's trainer. It answers in words, at the trainer's temperature.

    Prompts, thoughts, and where an answer ends are those of `TransformersBackend`. vLLM draws with a generator of its own, so that
    a request's seed has no effect. TRL starts a colocated vLLM with ``logprobs_mode="processed_logprobs"``: the log-probabilities
    are those of the distribution from which vLLM draws, thus of the logits divided by the temperature. TRL's trainer computes the
    same numbers for the same tokens, up to rounding, and corrects for the difference by importance sampling. A log-probability that
    vLLM does not know is NaN; there TRL corrects nothing.

    Args:
        generation: ``vllm_generation`` of the trainer.
        tokenizer: Its tokenizer, with a chat template.
        window: Most tokens that vLLM reads.
        ends: ``generation_config.eos_token_id`` of the model.
    """

    def __init__(self, generation: Any, tokenizer: Any, window: int, ends: int | Iterable[int] | None = None) -> None:
        self._generation, self._tokenizer, self._window = generation, tokenizer, window
        self._answer_start = format_of(tokenizer).answer_start
        self._stops = stops(tokenizer, ends)
        self._stops_at = functools.partial(stops, tokenizer, ends)
        self._markers_of = functools.lru_cache(
            lambda answer_start: ThoughtMarkers(tokenizer, answer_start, stops(tokenizer, ends, answer_start))
        )
        self._thoughts = thinking_start(format_of(tokenizer))
        self._lock = threading.Lock()

    @classmethod
    def of_trainer(cls, trainer: Any) -> VLLMBackend:
        """Return the backend of a trainer with ``use_vllm=True``.

        Raises:
            UsageError: If several processes would have to sample equally often, or vLLM would sleep during an episode.
        """
        args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
        if trainer.accelerator.num_processes > 1 and (args.vllm_mode != "colocate" or args.vllm_tensor_parallel_size > 1):
            raise UsageError(
                "GRPOConfig: expected vllm_mode='colocate' and vllm_tensor_parallel_size=1 with several processes, whose episodes "
                f"have different lengths; got {args.vllm_mode!r} and {args.vllm_tensor_parallel_size}."
            )
        if args.vllm_enable_sleep_mode:
            raise UsageError(
                "GRPOConfig: expected vllm_enable_sleep_mode=False, as TRL would send vLLM all weights again at each step of the "
                "episodes; got True."
            )
        window = window_of(model.config)
        window, ends = min(window, args.vllm_max_model_length or window), getattr(model.generation_config, "eos_token_id", None)
        return cls(trainer.vllm_generation, trainer.processing_class, window, ends)

    @property
    def config(self) -> dict[str, Any]:
        """The model's name."""
        return {"backend": "vllm", "model": _NAME}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request. All thoughts are sampled in one call of vLLM, and all answers in another.

        Raises:
            PolicyError: If a prompt is longer than the model's window even without its earlier turns, or vLLM does not return a
                log-probability for each token.
            UsageError: If a request does not ask for an answer in words.
        """
        answers: dict[int, Answer] = {}
        with self._lock:
            for think in dict.fromkeys(request.think for request in requests):
                asked = {index: self._asked(request) for index, request in enumerate(requests) if request.think == think}
                self._think([each for each in asked.values() if each.budget])
                self._write(list(asked.values()))
                answers |= {index: self._said(each) for index, each in asked.items()}
        return [answers[index] for index in range(len(requests))]

    def _asked(self, request: Request) -> _Asked:
        if any(part is not None for part in (request.choices, request.schema, request.tool, request.picture)):
            raise UsageError("mode: expected 'text' with the vLLM of TRL's trainer, which gives answers in words alone.")
        answer_start, budget = with_budget(self._answer_start(request.think), request.think_tokens, self._window)
        room = request.max_tokens
        if budget:
            room += budget + len(self._markers(answer_start).ids(answer_start.thought_open + answer_start.thought_close))
        chat, dropped = fitting_tokens(
            self._tokenizer, request.messages, self._window - room, _NAME, read=request.read, answer_start=answer_start
        )
        thought = Thought("", cut=True) if budget == 0 else None
        return _Asked(
            chat=tuple(chat), turns_dropped=dropped, thought=thought, request=request, answer_start=answer_start, budget=budget or 0
        )

    def _think(self, asked: Sequence[_Asked]) -> None:
        """Let the model think about several requests, each until its thought ends or has its greatest length."""
        if not asked:
            return
        answer_start = asked[0].answer_start
        markers, ends = self._markers(answer_start), self._stops_at(answer_start)
        if len(close := markers.ids(markers.closed)) == 1:
            ends |= {*close}
        for each, tokens, log_probs in self._sampled(asked, [each.budget for each in asked], ends):
            watch = markers.watch()
            size = next((size for size in range(1, len(tokens) + 1) if watch(tokens[:size])), len(tokens))
            each.thought, each.log_probs = watch.thought(tokens[:size]), log_probs[:size]
            if each.thought is None:  # the model has begun its answer; unless answers begin there, it answers anew where they do
                each.opening = markers.ids(answer_start.opening)
                size = 0 if each.opening else min(size, each.request.max_tokens)
                each.words, each.word_log_probs = tokens[:size], log_probs[:size]

    def _write(self, asked: Sequence[_Asked]) -> None:
        """Let the model answer several requests, or end the answers that it has begun."""
        begun = [each for each in asked if len(each.words) < each.request.max_tokens and not self._is_ended(each)]
        rooms = [each.request.max_tokens - len(each.words) for each in begun]
        for each, tokens, log_probs in self._sampled(begun, rooms, self._stops):
            each.words += tokens
            each.word_log_probs += log_probs

    def _is_ended(self, asked: _Asked) -> bool:
        return bool(asked.words) and asked.words[-1] in self._stops

    def _sampled(
        self, asked: Sequence[_Asked], rooms: Sequence[int], ends: Collection[int]
    ) -> Iterator[tuple[_Asked, list[int], list[float]]]:
        """Sample behind several requests, and yield each with the tokens that were sampled and their log-probabilities.

        TRL has one greatest length for all prompts of a call. A shorter text is cut, which does not change how it was drawn.

        Args:
            asked: The requests.
            rooms: Most tokens for each request.
            ends: The tokens with which a text ends; no other token ends it.
        """
        if not asked:
            return
        settings = {
            "max_completion_length": max(rooms),
            "generation_kwargs": {"stop_token_ids": sorted(ends), "ignore_eos": True},
        }
        usual = {name: getattr(self._generation, name) for name in settings}
        prompts = [[*each.prompt, *each.words] for each in asked]
        try:
            for name, value in settings.items():
                setattr(self._generation, name, value)
            _, texts, log_probs, _ = self._generation.generate(prompts=prompts, images=None, num_generations=1)
        finally:
            for name, value in usual.items():
                setattr(self._generation, name, value)
        for each, room, tokens, rows in zip(asked, rooms, texts, log_probs, strict=True):
            if not tokens or len(tokens) != len(rows):
                raise PolicyError(
                    f"vLLM: expected tokens, and a log-probability for each; got {len(tokens)} tokens and {len(rows)} "
                    "log-probabilities."
                )
            drawn = [math.nan if row[0] is None else float(row[0]) for row in rows]
            yield each, [int(token) for token in tokens[:room]], drawn[:room]

    def _said(self, asked: _Asked) -> Answer:
        """Return a generated answer."""
        ended, closed = self._is_ended(asked), True
        words = asked.words[:-1] if ended else asked.words
        text = self._tokenizer.decode(words, skip_special_tokens=True)
        if self._thoughts:
            text, closed = self._markers(self._thoughts).answer(words, text)
        return asked.said(
            tokens_cached=0,
            tokens_in=0,
            tokens_out=len(asked.words),
            text=text,
            finish="stop" if ended and closed else "length",
            tokens=asked.tokens({text: (asked.words, asked.word_log_probs)}) if asked.request.tokens else None,
        )

    def _markers(self, answer_start: AnswerStart) -> ThoughtMarkers:
        return self._markers_of(replace(answer_start, arguments=()))  # arguments of a template may have no hash
