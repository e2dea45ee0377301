"""What another precision changes: probabilities and decisions on recorded prompts, compared with those of float32.

The prompts are those of the expert's episodes of CookingWorld and of BabyAI's five tasks, each with the whole episode so far
(strategy ``chat``). The embedded model and an adapter that was trained on the game answer them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from helpers.harness import command, options, run, table, write
from inference import prompts_of_expert
from tqdm import tqdm

from gym_text.babyai.levels import TASKS
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.loading import load_transformers
from gym_text_policies.backends.local.models import Dtype

GAMES = {
    "cookingworld": ("CookingWorldText-v0",),
    "babyai": tuple(f"BabyAIText-v0?task={task}" for task in TASKS),
}
"""Environments by what the names of their adapters begin with."""


@dataclass(frozen=True)
class Config:
    """What to compare."""

    prompts: int = 125
    """Prompts of each game; two models answer each."""
    together: int = 8
    """Prompts of one call."""
    dtype: Dtype = "bfloat16"
    """The precision that is compared with float32."""


@dataclass(frozen=True)
class Difference:
    """How two precisions differ on the prompts of one game."""

    model: str
    game: str
    prompts: int
    largest: float
    """Of a choice's probability."""
    sum: float
    """Of the differences of all probabilities."""
    probabilities: int
    """Their number."""
    others: int
    """Prompts whose most probable choice is another one."""


def prompts(game: str, count: int) -> list[Request]:
    """Return the first prompts of the expert's episodes of a game, the same number of each of its environments."""
    found: list[Request] = []
    for name in GAMES[game]:
        env_id, _, task = name.partition("?task=")
        share, own, seed = count // len(GAMES[game]), [], 0
        while len(own) < share:
            own += prompts_of_expert(1, env_id=env_id, first=seed, **({"task": task} if task else {}))[0]
            seed += 1
        found += own[:share]
    return found


def answers(model: str, dtype: Dtype, requests: Sequence[Request], together: int) -> list[dict[str, float]]:
    """Return the probabilities of the choices of each request."""
    backend, found = load_transformers(model, dtype=dtype, device="cpu"), []
    for first in tqdm(range(0, len(requests), together), desc=f"{model}, {dtype}", unit=" calls"):
        found += [dict(answer.probabilities or {}) for answer in backend.answer(requests[first : first + together])]
    return found


def difference(model: str, game: str, config: Config) -> Difference:
    """Return how the precision differs from float32 for a model in a game."""
    requests = prompts(game, config.prompts)
    exact, other = (answers(model, dtype, requests, config.together) for dtype in ("float32", config.dtype))
    gaps = [abs(own[name] - others[name]) for own, others in zip(exact, other, strict=True) for name in own]
    changed = sum(
        max(own, key=own.__getitem__) != max(others, key=others.__getitem__) for own, others in zip(exact, other, strict=True)
    )
    return Difference(model, game, len(requests), max(gaps), sum(gaps), len(gaps), changed)


def report(differences: Sequence[Difference], config: Config) -> str:
    """Return the figures as Markdown; the last row is of all prompts."""
    total = Difference(
        "all",
        "",
        sum(each.prompts for each in differences),
        max(each.largest for each in differences),
        sum(each.sum for each in differences),
        sum(each.probabilities for each in differences),
        sum(each.others for each in differences),
    )
    rows = []
    for each in (*differences, total):
        mean, share = each.sum / each.probabilities, each.others / each.prompts
        rows.append((each.model, each.game, each.prompts, f"{each.largest:.3f}", f"{mean:.5f}", f"{each.others} ({share:.1%})"))
    columns = ("model", "game", "prompts", "largest difference of a probability", "mean", "decisions that differ")
    return f"`{command()}`: {config.dtype} compared with float32, on a CPU\n\n{table(columns, rows)}"


def main() -> None:
    """Compare, print the table and write ``results/precision.json`` and ``.md``."""
    config = options(Config, __doc__)
    differences = [difference(model, game, config) for game in GAMES for model in ("smollm2", f"adapters/{game}-sft")]
    record = {"config": asdict(config), "differences": [asdict(each) for each in differences]}
    write("precision", report(differences, config), record)


if __name__ == "__main__":
    run(main)
