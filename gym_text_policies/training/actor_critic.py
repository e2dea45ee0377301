"""A language model as actor and critic: the probability of each action that can be said, and the value of what is seen.

The actor is ``choose``: log P(action + end of turn | prompt), softmax over the actions that can be said now; the same numbers by
which `LLMPolicy` plays. The critic is a linear head on the last hidden state of the prompt's last token; what it learns does not
change the actor. One pass reads decisions of an episode, with their candidates, as one tree, or several such trees; see
`gym_text_policies.training.sequences`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gym_text import TextSpec
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Episode
from gym_text_policies.training.lora import add_lora, as_it_plays, compile_layers, load_base, set_precision
from gym_text_policies.training.rows import Asked, prompts_of
from gym_text_policies.training.sequences import Reading, pack, read

_REFERENCE = "reference"


class Candidate(NamedTuple):
    """An action that could have been taken."""

    action: str
    share: float
    """Probability with which play drew it."""
    plan: float = 0.0
    """Steps to a win after it by the expert's plan, where that is learnt from; infinite: none."""


@dataclass(frozen=True)
class Trajectory:
    """An episode, ready to be learnt from."""

    readings: tuple[Reading, ...]
    """Its decisions with their candidates; after them, if the episode was truncated, the last observation without any."""
    actions: tuple[int, ...]
    """Place of the action that was taken among the candidates, for each decision."""
    shares: tuple[float, ...]
    """Probability with which play took it."""
    plans: tuple[tuple[float, ...], ...]
    """Steps to a win after each candidate, where that is learnt from."""
    rewards: tuple[float, ...]
    truncated: bool
    """Whether it was cut off: then what would still have come is the value of the last observation."""

    @classmethod
    def of(
        cls,
        episode: Episode,
        candidates: Sequence[Sequence[Candidate]],
        spec: TextSpec,
        asked: Asked,
        prompt: Prompt,
        tokenizer: Any,
        most: int,
    ) -> Trajectory:
        """Return an episode that a policy played in ``choose``.

        Args:
            episode: What was played.
            candidates: For each of its decisions the actions that are learnt of, the one that was taken among them.
            spec: Of its environment.
            asked: How the model was asked.
            prompt: The template by which it was.
            tokenizer: The model's.
            most: After so many tokens, those of the first prompt not counted, another reading begins.
        """
        readings, taken = [Reading()], []
        truncated = not episode.steps[-1].terminated
        for place, messages in enumerate(prompts_of(episode, spec, asked, prompt)):
            if place < episode.length:
                if readings[-1].grown > most:
                    readings.append(Reading())
                actions = [candidate.action for candidate in candidates[place]]
                readings[-1].add(tokenizer, messages, actions)
                taken.append(actions.index(episode.steps[place].decision.action))
            elif truncated:
                readings[-1].add(tokenizer, messages, ())
        shares = tuple(some[place].share for some, place in zip(candidates, taken, strict=True))
        plans = tuple(tuple(candidate.plan for candidate in some) for some in candidates)
        return cls(tuple(readings), tuple(taken), shares, plans, tuple(step.reward for step in episode.steps), truncated)


@dataclass(frozen=True)
class Judged:
    """What a model says of decisions; a row for each, in the order of what was read."""

    logs: torch.Tensor
    """Log-probability of each candidate, float32 of shape (decisions, most candidates); minus infinity where there is none."""
    seen: torch.Tensor
    """What the head reads at each decision, without gradients; float32 of shape (decisions, width of the model)."""
    last_seen: torch.Tensor
    """Likewise for each last observation of a truncated episode; shape (last observations, width of the model)."""

    def cpu(self) -> Judged:
        """Return the same on the CPU."""
        return Judged(self.logs.cpu(), self.seen.cpu(), self.last_seen.cpu())


class ActorCritic:
    """A model with the adapter that learns, a head for values, and what it began as.

    Args:
        model: Name of the base.
        adapter: Folder of the adapter to begin with; empty: a new one.
        rank: Of a new adapter.
        alpha: Of a new adapter.
        temperature: By which the actions' scores are divided.
        precision: Of the products and the base's weights: ``float32`` or ``bfloat16``.
        compiled: Whether to compile the model's layers.
    """

    def __init__(
        self,
        model: str,
        adapter: str | Path = "",
        *,
        rank: int = 16,
        alpha: float = 32.0,
        temperature: float = 1.0,
        precision: str = "float32",
        compiled: bool = False,
    ) -> None:
        base, self.tokenizer = load_base(model)
        self.model = add_lora(base, rank=rank, alpha=alpha, adapter=adapter)
        self._temperature = temperature
        self._adapted = bool(adapter)
        if adapter:
            add_lora(self.model, adapter=adapter, name=_REFERENCE)
            self.model.set_adapter("default")
        set_precision(self.model, precision)
        if compiled:
            compile_layers(self.model)
        self._rounded = precision == "bfloat16"
        self.model.eval()  # there is no dropout in what learns: the probabilities are those of play
        self.head = torch.nn.Linear(base.config.hidden_size, 1).to(base.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    @property
    def weights(self) -> list[torch.nn.Parameter]:
        """The adapter's parameters."""
        return [parameter for name, parameter in self.model.named_parameters() if "lora_" in name and _REFERENCE not in name]

    def player(self) -> TransformersBackend:
        """Return what plays as the model does now."""
        return as_it_plays(self.model, self.tokenizer)

    @contextlib.contextmanager
    def reference(self) -> Iterator[None]:
        """Be what it began as while the block runs."""
        if not self._adapted:
            with self.model.disable_adapter():
                yield
            return
        self.model.set_adapter(_REFERENCE)
        try:
            yield
        finally:
            self.model.set_adapter("default")

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the values of what `judge` says was seen, float32 of shape (decisions,), on the CPU."""
        return self.head(seen.to(self.head.weight.device))[:, 0].cpu()  # type: ignore[no-any-return]

    def judge(self, readings: Sequence[Reading]) -> Judged:
        """Return log-probabilities of all decisions, with gradients where they are on, and what was seen, from one pass."""
        packed = pack(self.model, readings)
        tokens: list[tuple[int, int, int]] = []  # (row that predicts, token, candidate)
        candidates: list[tuple[int, int]] = []  # (decision, place among its candidates)
        seen: list[int] = []  # row of each prompt's last token
        ends: list[int] = []  # likewise of the last observations
        for reading, places in zip(readings, packed.places, strict=True):
            for decided in reading.decided:
                for place, answer in enumerate(decided.answers):
                    tokens += [(places[node], token, len(candidates)) for node, token in answer]
                    candidates.append((len(seen), place))
                (seen if decided.answers else ends).append(places[decided.last])
        rows = sorted({row for row, _, _ in tokens})
        index = {row: place for place, row in enumerate(rows)}
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self._rounded):
            logs, hidden = read(self.model, packed, rows, hidden=True)
        assert hidden is not None
        device = logs.device
        each = logs[torch.tensor([index[row] for row, _, _ in tokens]), torch.tensor([token for _, token, _ in tokens])]
        sums = torch.zeros(len(candidates), device=device).index_add(
            0, torch.tensor([c for _, _, c in tokens], device=device), each
        )
        width = 1 + max(place for _, place in candidates)
        scores = torch.full((len(seen), width), float("-inf"), device=device)
        places_of = tuple(torch.tensor(column, device=device) for column in zip(*candidates, strict=True))
        hidden = hidden.detach()
        return Judged(scores.index_put(places_of, sums / self._temperature).log_softmax(-1), hidden[seen], hidden[ends])


def advantages(
    rewards: Sequence[float], values: Sequence[float], last_value: float, discount: float, decay: float
) -> tuple[list[float], list[float]]:
    """Return generalised advantages (Schulman et al. 2015, https://arxiv.org/abs/1506.02438) and returns of one episode.

    Args:
        rewards: Of each step.
        values: Of what was seen before each step.
        last_value: Of what was seen after the last: 0 where the episode terminated, for then nothing more can come.
        discount: Worth of a reward one step later.
        decay: Lambda, from 0 (one step and the value) to 1 (all rewards).

    >>> advantages([0.0, 1.0], [0.5, 0.5], 0.0, 1.0, 1.0)
    ([0.5, 0.5], [1.0, 1.0])
    >>> advantages([0.0, 1.0], [0.5, 0.5], 2.0, 1.0, 0.0)
    ([0.0, 2.5], [0.5, 3.0])
    """
    found: list[float] = []
    following, after = 0.0, last_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + discount * after - value + discount * decay * following
        found.append(following)
        after = value
    found.reverse()
    return found, [advantage + value for advantage, value in zip(found, values, strict=True)]
