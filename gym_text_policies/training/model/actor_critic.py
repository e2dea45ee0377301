"""A language model as actor and critic: the probability of each valid action, and the value of the observation.

The actor computes the probabilities with which `LLMPolicy` plays in ``choose``: a softmax, over the valid actions, of
log P(action + end of turn | prompt). The critic is a linear head on the last hidden state of the prompt's last token. The critic's
gradients do not reach the actor. The decisions of an episode with their candidates are a tree of tokens
(`gym_text_policies.training.model.sequences`). One pass of the model reads one or several trees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from gym_text_policies.backends.local.adapters import base_and_adapter, read_template, template_of
from gym_text_policies.backends.local.exactness import window_of
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.training.model.layouts import lay_out
from gym_text_policies.training.model.lora import add_lora, checkpoint_layers, compile_layers, load_base, set_dtype
from gym_text_policies.training.model.player import player_of
from gym_text_policies.training.model.sequences import Conversation

_REFERENCE = "reference"
RIDGE = 500
"""How strongly a critic is held at what it was: as by so many decisions that each tell one direction of the hidden states, with the
mean variance of all."""


class Evaluation(NamedTuple):
    """What a model computes for the decisions of some conversations, in their order; float32 on the CPU."""

    log_probs: torch.Tensor
    """Log-probability of each candidate, of shape (decisions, most candidates); -inf where a decision has fewer."""
    hidden: torch.Tensor
    """Hidden state from which the critic computes each decision's value, detached; of shape (decisions, width)."""
    last_hidden: torch.Tensor
    """Such a hidden state for the last observation of each truncated episode; of shape (truncated episodes, width)."""


class Actor:
    """A model with an adapter that is trained, and a reference: the same model as it was before training.

    Args:
        model: A base, which gets a new adapter, or an adapter, which is trained further.
        temperature: The actions' scores are divided by it.
        dtype: Number format of products and of the base's weights: ``float32`` or ``bfloat16``.
        gradient_checkpointing: Whether the layers keep only their inputs, and compute the rest again for the gradients.
        compiled: Whether torch compiles the layers.
        rank: Rank of a new adapter; None: 16.
        chat_template: File of a chat template that replaces the model's; empty: none does.
    """

    def __init__(
        self,
        model: str,
        *,
        temperature: float = 1.0,
        dtype: str = "float32",
        gradient_checkpointing: bool = False,
        compiled: bool = False,
        rank: int | None = None,
        chat_template: str = "",
    ) -> None:
        base_name, self._adapter = base_and_adapter(model)
        template = read_template(chat_template) if chat_template else template_of(self._adapter)
        base, self.tokenizer = load_base(base_name, dtype=dtype, chat_template=template)
        self.model = add_lora(base, adapter=self._adapter, rank=rank)
        set_dtype(self.model, dtype)
        if compiled:
            compile_layers(self.model)
        if gradient_checkpointing:
            checkpoint_layers(self.model)
        self._temperature, self._dtype = temperature, dtype
        self.model.eval()  # no dropout: the probabilities are those of play

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The adapter's parameters."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def window(self) -> int:
        """Most tokens that the model reads."""
        return window_of(self.model.config)

    def player(self) -> TransformersBackend:
        """Return a backend that plays with the model's present weights."""
        return player_of(self.model, self.tokenizer, self._dtype)

    def autocast(self) -> torch.autocast:
        """Return a context in which products have the number format of training."""
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=self._dtype == "bfloat16")

    @contextlib.contextmanager
    def reference(self) -> Iterator[None]:
        """Switch to the model that training began with while the block runs."""
        if not self._adapter:
            with self.model.disable_adapter():
                yield
            return
        if _REFERENCE not in self.model.peft_config:
            add_lora(self.model, adapter=self._adapter, name=_REFERENCE)
        self.model.set_adapter(_REFERENCE)
        try:
            yield
        finally:
            self.model.set_adapter("default")

    def evaluate(self, conversations: Sequence[Conversation]) -> Evaluation:
        """Read all decisions in one pass. The log-probabilities have gradients, unless ``torch.no_grad`` is on."""
        rows = lay_out(self.model, conversations)
        tokens: list[tuple[int, int, int]] = []  # (offset that predicts it, token, candidate)
        candidates: list[tuple[int, int]] = []  # (decision, number among its candidates)
        prompt_ends: list[int] = []  # offset of the last token of each prompt with candidates
        episode_ends: list[int] = []  # offset of the last token of each prompt without candidates: the last observations
        for conversation, offsets in zip(conversations, rows.offsets, strict=True):
            for decision in conversation.decisions:
                for number, answer in enumerate(decision.answers):
                    tokens += [(offsets[node], token, len(candidates)) for node, token in answer]
                    candidates.append((len(prompt_ends), number))
                (prompt_ends if decision.answers else episode_ends).append(offsets[decision.prompt_end])
        predicting = sorted({offset for offset, _, _ in tokens})
        index = {offset: number for number, offset in enumerate(predicting)}
        with self.autocast():  # (predicting, vocabulary), (…, width)
            log_probs, hidden = rows.read(self.model, predicting, [*prompt_ends, *episode_ends])
        each = log_probs[torch.tensor([index[offset] for offset, _, _ in tokens]), torch.tensor([token for _, token, _ in tokens])]
        of_candidate = torch.tensor([candidate for _, _, candidate in tokens])
        scores = torch.zeros(len(candidates)).index_add(0, of_candidate, each.cpu())  # (candidates,)
        width = 1 + max(number for _, number in candidates)
        table = torch.full((len(prompt_ends), width), float("-inf"))  # (decisions, most candidates)
        cells = tuple(torch.tensor(column) for column in zip(*candidates, strict=True))
        hidden = hidden.detach().cpu()
        log_softmax = table.index_put(cells, scores / self._temperature).log_softmax(-1)
        return Evaluation(log_softmax, hidden[: len(prompt_ends)], hidden[len(prompt_ends) :])


class Critic(NamedTuple):
    """A linear function of hidden states: the values of observations. All in float64 on the CPU."""

    weight: torch.Tensor
    """Shape (width,)."""
    bias: torch.Tensor
    """Shape ()."""

    def values(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return values, of shape (decisions,), of the hidden states of an `Evaluation`, of shape (decisions, width)."""
        return hidden.double() @ self.weight + self.bias

    def fitted(self, hidden: torch.Tensor, returns: torch.Tensor) -> Critic:
        """Return a critic that is fitted to returns, of shape (decisions,), by least squares; it stays near this one (`RIDGE`)."""
        if not len(hidden):
            return self
        states, errors = hidden.double(), returns.double() - self.values(hidden)
        mean, error = states.mean(0), errors.mean()
        states = states - mean
        products = states.T @ states  # (width, width)
        products.diagonal().add_(RIDGE * products.diagonal().mean() / len(states) + 1e-9)
        change = torch.linalg.solve(products, states.T @ (errors - error))
        return Critic(self.weight + change, self.bias + error - mean @ change)


class ActorCritic(Actor):
    """An actor with a critic. Before training all values are 0. The arguments are those of `Actor`."""

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self.critic = Critic(torch.zeros(self.model.config.hidden_size, dtype=torch.float64), torch.zeros((), dtype=torch.float64))
