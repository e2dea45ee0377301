"""`combine`: one adapter that plays as each of several adapters does in its own worlds, without further training.

A sum of the adapters' updates changes a layer's outputs in every world, also by the updates that were learnt in the others. Here
each linear layer gets the update that comes nearest, in the mean square over the inputs that the layer has in each world, to what
the adapter of that world makes of them (RegMean: Jin et al. 2022, https://arxiv.org/abs/2212.09849). It is then cut to a low rank
so that what is lost is least over the same inputs.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_text.errors import UsageError, check_int, import_extra
from gym_text_policies.backends.local.adapters import WEIGHTS, base_and_adapter, read_adapter, template_of
from gym_text_policies.backends.local.tree import Tree
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.rows import Row, learner_of, policy_of, prompt_record
from gym_text_policies.training.model.lora import RANK, add_lora, environment_record, load_base
from gym_text_policies.training.model.saving import made, save_adapter

if TYPE_CHECKING:
    from torch import Tensor

    from gym_text_policies.training.model.sequences import Conversation

DIAGONAL = 0.05
"""Share of the products of two different inputs that is left out. The paper found such a share better than none."""
RIDGE = 1e-3
"""What is added to the diagonal, in units of its mean: a direction that no input has gets no update."""
_TOKENS_PER_PASS = 2048


@dataclass(frozen=True)
class CombineConfig:
    """Make one adapter of several, which have learnt different environments, without further training."""

    adapters: tuple[str, ...] = ()
    """Two or more adapters of one base: folders, or adapters/NAME."""
    data: tuple[str, ...] = ()
    """Datasets of gym-text collect, one for each adapter, in its environments, all with one strategy. The adapters read them."""
    folder: str = "runs/combined/adapter"
    """New folder for the adapter."""
    rank: int = RANK
    """Rank of the new adapter."""
    tokens_per_dataset: int = 3000
    """Number of tokens that are read of each dataset, or some more: whole rows are drawn. It should be above the width of the
    widest layer, 1,536 in SmolLM2-135M."""
    seed: int = 0
    """Seed of everything that is drawn at random."""

    def __post_init__(self) -> None:
        if len(self.adapters) < 2 or len(self.adapters) != len(self.data):
            raise UsageError(
                "adapters, data: expected two or more adapters, and a dataset for each; "
                f"got {len(self.adapters)} and {len(self.data)}."
            )
        check_int("rank", self.rank, 1, 1024)
        check_int("tokens_per_dataset", self.tokens_per_dataset, 1, 10_000_000)


def combine(config: CombineConfig) -> Path:
    """Write one adapter for what several have learnt, and return its folder.

    The model holds in float32, beside its weights, two matrices for each layer: inputs x inputs, and one of the weights' size.

    Raises:
        UsageError: If an adapter is not complete or for another base, the chat templates differ, the
            prompts of the datasets differ, or the folder is not empty.
    """
    if Path(config.folder).exists():
        raise UsageError(f"{config.folder}: expected a new folder; it is there already. Name another one, or remove it.")
    bases = [base_and_adapter(name) for name in config.adapters]
    if other := next((name for name, (_, folder) in zip(config.adapters, bases, strict=True) if not folder), None):
        raise UsageError(f"adapters: expected adapters, as gym-text sft makes them; {other!r} is none.")
    for name, (_, folder) in zip(config.adapters, bases, strict=True):
        _check_products(name, Path(folder) / WEIGHTS)
    templates = [template_of(folder) for _, folder in bases]
    if len(set(templates)) > 1:
        raise UsageError("adapters: expected one chat template for all; these differ.")
    datasets = [read_rows(source) for source in config.data]
    asked = policy_of([row for rows in datasets for row in rows])
    tools = {row.tool for rows in datasets for row in rows}
    model, tokenizer = load_base(bases[0][0], chat_template=templates[0])
    if not model.packs:
        raise UsageError(
            f"adapters: expected a base that trains on packed rows, where each token counts once; {bases[0][0]!r} does not."
        )
    names = [f"adapter{number}" for number in range(len(config.adapters))]
    for name, adapter in zip(names, config.adapters, strict=True):
        model = add_lora(model, adapter=adapter, name=name)
    model = add_lora(model, rank=config.rank, name="combined").eval()
    if other := next((layer for layer, lora in _adapted(model).items() if "combined" not in lora.lora_A), None):
        raise UsageError(f"adapters: expected updates of linear layers other than the last; one changes {other!r}.")

    sums = _Sums()
    for name, rows in zip(names, datasets, strict=True):
        model.set_adapter(name)
        sums.add(model, name, list(_read(rows, model, tokenizer, config)))
    for layer, lora in _adapted(model).items():
        lora_b, lora_a = _low_rank(*sums.of(layer), config.rank)
        scale = math.sqrt(lora.scaling["combined"])
        lora.lora_B["combined"].weight.data = lora_b / scale
        lora.lora_A["combined"].weight.data = lora_a / scale
    made_by = {
        "combine": dataclasses.asdict(config),
        "digests": {name: read_adapter(name)[1] for name in config.adapters},
        "environments": sorted({row.environment for rows in datasets for row in rows}),
        "ran_on": environment_record(),
    }
    save_adapter(model, config.folder, {**prompt_record(learner_of(asked, tokenizer, tools)), "made_by": made_by}, name="combined")
    return Path(config.folder)


def run(config: CombineConfig) -> str:
    """Combine, and return a sentence that names the adapter's folder."""
    return made(combine(config))


class _Sums:
    """Of each layer the sums over adapters of ``X^T X`` and of ``U X^T X``: X are an adapter's inputs, one a row, U its update."""

    def __init__(self) -> None:
        self._inputs: dict[str, Tensor] = {}  # layer -> (inputs, inputs)
        self._targets: dict[str, Tensor] = {}  # layer -> (outputs, inputs)

    def add(self, model: Any, name: str, conversations: Sequence[Conversation]) -> None:
        """Add an adapter, which is active, with the inputs that conversations give to its layers. Each adapter has equal weight."""
        torch = import_extra("torch", "train")
        from gym_text_policies.training.model.layouts import answer_losses
        from gym_text_policies.training.model.sequences import conversation_passes

        products: dict[str, Tensor] = {}
        counts: Counter[str] = Counter()
        with torch.no_grad(), _watched(_adapted(model), products, counts):
            for group in conversation_passes(conversations, _TOKENS_PER_PASS):
                answer_losses(model, group)
        for layer, lora in _adapted(model).items():
            product = products.pop(layer) / counts[layer]
            product = (1 - DIAGONAL) * product + DIAGONAL * product.diagonal().diag()
            update = lora.get_delta_weight(name).float() if name in lora.lora_A else torch.zeros_like(lora.weight)
            self._inputs[layer] = self._inputs.get(layer, 0) + product
            self._targets[layer] = self._targets.get(layer, 0) + update @ product

    def of(self, layer: str) -> tuple[Tensor, Tensor]:
        """Return both sums of a layer."""
        return self._inputs[layer], self._targets[layer]


def _low_rank(inputs: Tensor, targets: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return B, of shape (outputs, rank), and A, of shape (rank, inputs), so that B A comes nearest to every adapter's update.

    Args:
        inputs: Sum of the adapters' ``X^T X``, of shape (inputs, inputs).
        targets: Sum of their ``U X^T X``, of shape (outputs, inputs).
        rank: The rank.
    """
    torch = import_extra("torch", "train")
    inputs = inputs + RIDGE * inputs.diagonal().mean() * torch.eye(len(inputs), device=inputs.device)
    values, vectors = torch.linalg.eigh(inputs)  # inputs = V diag(values) V^T
    root = values.clamp_min(1e-12).sqrt()
    # targets inputs^-1 is the best update. The best of a low rank is that of its product with the root of `inputs`.
    left, singular, right = torch.linalg.svd(targets @ (vectors / root), full_matrices=False)
    half = singular[:rank].sqrt()
    lora_b, lora_a = left[:, :rank] * half, half[:, None] * (right[:rank] / root) @ vectors.T
    missing = rank - len(half)  # of a layer that is narrower than the rank
    return torch.nn.functional.pad(lora_b, (0, missing)), torch.nn.functional.pad(lora_a, (0, 0, 0, missing))


def _adapted(model: Any) -> dict[str, Any]:
    """Return the layers of a model that have an adapter, by name."""
    return {name: layer for name, layer in model.named_modules() if getattr(layer, "lora_A", None)}


@contextmanager
def _watched(layers: dict[str, Any], products: dict[str, Tensor], counts: Counter[str]) -> Iterator[None]:
    """While the block runs, add up ``X^T X`` of each layer's inputs, and count these. Layers of one input share it."""
    last: list[Any] = [None, None]  # the tensor that was read last, and its product

    def watch(layer: str) -> Any:
        def hook(module: Any, arguments: tuple[Tensor, ...]) -> None:
            if arguments[0] is not last[0]:
                inputs = arguments[0].flatten(0, -2).float()  # (tokens, inputs)
                last[:] = arguments[0], inputs.T @ inputs
            products[layer] = products.get(layer, 0) + last[1]
            counts[layer] += arguments[0].shape[:-1].numel()

        return hook

    hooks = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _check_products(name: str, weights: Path) -> None:
    """Raise `UsageError` if an adapter has other weights than pairs of matrices, as those of DoRA, biases and whole layers are."""
    with import_extra("safetensors", "train").safe_open(weights, "pt") as file:
        for key in file.keys():  # noqa: SIM118 (it is no mapping)
            if not key.endswith((".lora_A.weight", ".lora_B.weight")):
                raise UsageError(f"adapters: expected updates that are products of two matrices; {name!r} also has {key!r}.")


def _read(rows: Sequence[Row], model: Any, tokenizer: Any, config: CombineConfig) -> Iterator[Conversation]:
    """Yield rows of a dataset, drawn at random, as conversations, until they have enough tokens."""
    from gym_text_policies.backends.local.exactness import window_of
    from gym_text_policies.training.model.sequences import Conversation

    tree = Tree()
    for row in random.Random(config.seed).sample(rows, len(rows)):
        conversation = Conversation.of(tokenizer, row.examples())
        conversation.check_window(window_of(model.config))
        yield conversation
        tree.graft(conversation.tree)
        if len(tree.tokens) >= config.tokens_per_dataset:
            return
