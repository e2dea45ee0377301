"""The episodes to step through: a balanced choice, and their data for viewer.js."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from markupsafe import Markup

from gym_text.errors import import_extra
from gym_text_policies.records import Outcome
from gym_text_policies.report.figures import Summary
from gym_text_policies.report.runs import Variant
from gym_text_policies.report.step_pictures import Pictures, draw_pictures

TEXT_BUDGET = 18_000_000
"""Most characters of all observations, prompts and answers together."""
PICTURE_BUDGET = 12_000_000
"""Most characters of all pictures together."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Shown:
    """One episode of the viewer."""

    entry: dict[str, Any]
    """Its environment, policy, seed, outcome and return, for the menus."""
    data: Markup
    """Its steps and pictures, as JSON that is safe in a script element."""
    missing: str = ""
    """Why it has no pictures, if pictures were wanted."""


def choose(variants: Sequence[Variant], most: int) -> list[tuple[Variant, Summary]]:
    """Choose episodes. They alternate between environments, then policies, then outcomes; low seeds come first."""
    groups = itertools.groupby(variants, key=lambda variant: variant.environment)
    turns = _alternate([_alternate([_by_outcome(variant) for variant in group]) for _, group in groups])
    return list(itertools.islice(turns, most))


def _by_outcome(variant: Variant) -> Iterator[tuple[Variant, Summary]]:
    """Yield a variant's episodes, one of each outcome in turn."""
    return _alternate([(variant, one) for one in variant.episodes if one.outcome == outcome] for outcome in get_args(Outcome))


def _alternate(iterables: Iterable[Iterable[_T]]) -> Iterator[_T]:
    """Yield one value of each iterable in turn, until all have ended."""
    for values in itertools.zip_longest(*iterables):
        yield from (value for value in values if value is not None)


def show(chosen: Sequence[tuple[Variant, Summary]], *, pictures: bool = True) -> list[Shown]:
    """Return the data of the chosen episodes, sorted by policy and seed.

    An episode whose text exceeds the rest of `TEXT_BUDGET` is left out.

    Args:
        chosen: The result of `choose`.
        pictures: Whether to play the episodes again for their pictures, until `PICTURE_BUDGET` is spent.
    """
    shown: list[tuple[int, int, Shown]] = []
    order: dict[int, int] = {}
    text_left, pictures_left = TEXT_BUDGET, PICTURE_BUDGET if pictures else 0
    tqdm = import_extra("tqdm.auto", "bench").tqdm
    for variant, summary in tqdm(chosen, desc="episodes to step through", disable=None if pictures else True):
        (episode,) = variant.stores[summary.key].episodes([summary.key])
        record = episode.to_json()
        text = {name: record[name] for name in ("steps", "last_observation", "error")}
        if (size := len(script_json(text))) > text_left:
            continue
        text_left -= size
        drawn = draw_pictures(episode) if pictures_left > 0 else Pictures()
        pictures_left -= drawn.size
        if pictures_left < 0:
            drawn = Pictures(gold_actions=drawn.gold_actions)
        rank = order.setdefault(id(variant), len(order))
        data = script_json(text | {name: getattr(drawn, name) for name in ("pictures", "shown", "gold_actions")})
        entry = {"environment": variant.environment, "policy": variant.policy, "seed": str(summary.seed)}
        entry |= {"outcome": summary.outcome, "return": summary.total_reward}
        shown.append((rank, summary.seed, Shown(entry, data, drawn.missing)))
    return [episode for *_, episode in sorted(shown, key=lambda item: item[:2])]


def script_json(value: Any) -> Markup:
    """Return JSON that is safe in a script element: it contains no ``<`` that could end the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)
