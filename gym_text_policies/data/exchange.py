"""Rows in which names of things are exchanged, so that a model has to read what they mean."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence

from gym_text.errors import UsageError
from gym_text.wrappers.exchange_names import Names
from gym_text_policies.data.rows import Row


def exchange_names(rows: Sequence[Row], names: Sequence[str], seed: int) -> list[Row]:
    """Return rows in which some names are exchanged with each other at random, anew for each row.

    In the data a name may always mean the same: a chicken leg is always grilled. A model could learn that by heart and ignore the
    text. After the exchange the text alone tells what a name means.

    Args:
        rows: The rows.
        names: Names of things; see `gym_text.wrappers.exchange_names.Names`.
        seed: Seed of the draws.

    Raises:
        UsageError: If a thing has no other thing with as many names, a name is given twice, or no row contains a name.
    """
    things = Names(names)
    missing = things.single - {name for row in rows for message in row.messages for name in things.names_in(message["content"])}
    if missing:
        raise UsageError(f"interchangeable: expected names that the data contain; missing are {sorted(missing)}.")
    rng = random.Random(seed)
    exchanged = []
    for row in rows:
        rename = functools.partial(things.rename, new=things.draw(rng))
        messages = tuple({key: text if key == "role" else rename(text) for key, text in said.items()} for said in row.messages)
        labels, thoughts = (tuple(map(rename, texts)) for texts in (row.labels, row.thoughts))
        renamed = dataclasses.replace(row, messages=messages, labels=labels, thoughts=thoughts, tool=rename(row.tool))
        options = tuple(tuple(map(rename, names)) for names in row.options)
        exchanged.append(dataclasses.replace(renamed, options=options))
    return exchanged
