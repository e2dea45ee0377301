"""The episodes that can be stepped through: a balanced choice of them, and their data."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from markupsafe import Markup

from gym_text.errors import import_extra
from gym_text_policies.report.pictures import Pictures, draw_pictures
from gym_text_policies.report.runs import Variant
from gym_text_policies.report.table import Summary

MOST = 200
"""Episodes in the viewer."""
TEXT_BUDGET = 18_000_000
"""Characters of all that was seen and said."""
PICTURE_BUDGET = 12_000_000
"""Characters of all pictures."""
_T = TypeVar("_T")
_OUTCOMES = ("won", "lost", "truncated", "error")


@dataclass(frozen=True)
class Shown:
    """One episode of the viewer."""

    entry: dict[str, Any]
    """What it is found by."""
    data: Markup
    """What is shown, as JSON that can stand in a page."""


def choose(variants: Sequence[Variant], most: int = MOST) -> list[tuple[Variant, Summary]]:
    """Choose episodes, the most telling first: of each environment, each policy in it, each outcome in turn; low seeds first."""
    groups: dict[str, list[Variant]] = defaultdict(list)
    for variant in variants:
        groups[variant.environment].append(variant)
    turns = _alternate([_alternate([_by_outcome(variant) for variant in group]) for group in groups.values()])
    return list(itertools.islice(turns, most))


def _by_outcome(variant: Variant) -> Iterator[tuple[Variant, Summary]]:
    """Yield a variant's episodes, one of each outcome in turn."""
    return _alternate([iter([(variant, e) for e in variant.episodes if e.outcome == outcome]) for outcome in _OUTCOMES])


def _alternate(iterators: Sequence[Iterator[_T]]) -> Iterator[_T]:
    """Yield one of each iterator in turn, until all are at their end."""
    waiting = deque(iterators)
    while waiting:
        one = waiting.popleft()
        for value in one:
            yield value
            waiting.append(one)
            break


def show(chosen: Sequence[tuple[Variant, Summary]], *, pictures: bool = True, progress: bool = False) -> list[Shown]:
    """Return the chosen episodes, those of a policy together; one whose text does not fit any more is left out.

    Args:
        chosen: What `choose` has chosen.
        pictures: Whether to play them again for their pictures, until the budget of these is spent.
        progress: Whether a terminal shows how far it is.
    """
    shown: list[tuple[int, int, Shown]] = []
    order: dict[int, int] = {}
    text_left, pictures_left = TEXT_BUDGET, PICTURE_BUDGET if pictures else 0
    tqdm = import_extra("tqdm", "bench").tqdm
    for variant, summary in tqdm(chosen, desc="episodes to step through", disable=None if progress and pictures else True):
        store = variant.stores[summary.key]
        (episode,) = store.episodes([summary.key])
        record = episode.to_json()
        text = {name: record[name] for name in ("steps", "last_observation", "error")}
        if (size := len(script_json(text))) > text_left:
            continue
        text_left -= size
        drawn = draw_pictures(episode, store.folder / "pictures") if pictures_left > 0 else Pictures()
        pictures_left -= drawn.size
        if pictures_left < 0:
            drawn = Pictures(gold_actions=drawn.gold_actions)
        place = order.setdefault(id(variant), len(order))
        shown.append((place, summary.seed, Shown(_entry(variant, summary), script_json(text | asdict(drawn)))))
    return [one for *_, one in sorted(shown, key=lambda item: item[:2])]


def _entry(variant: Variant, summary: Summary) -> dict[str, Any]:
    return {
        "environment": variant.environment,
        "policy": variant.policy,
        "seed": str(summary.seed),
        "outcome": summary.outcome,
        "return": summary.total_reward,
    }


def script_json(value: Any) -> Markup:
    """Return JSON that can stand in a script element: nothing in it ends the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(text)
