"""What the docstrings of several games have in common, written once."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from gym_text.parameters import Parameters

INDEX_ACTIONS = """\
With ``actions="index"``: `Discrete(n)`, the index in ``obs["valid_actions"]``; an index beyond the list is an invalid action.
``info["action_mask"]`` (`np.int8`) and `action_masks` (`bool`) say which indices are valid."""

_SPACES = """\
## Action Space

{action_space}

## Observation Space

{observation_space}"""
_LAST_SECTIONS = """\
## Arguments

{arguments}

## Info

{info}

## Version History

* v0: first version, on {engine}."""


def observation_table(text: str, goal: str) -> str:
    """Return the table of the observations of a game that lists its valid actions, with the meanings of its text and goal."""
    return f"""\
`Dict`:

| key | space | meaning |
|---|---|---|
| `text` | `Text` | {text} |
| `goal` | `Text` | {goal} |
| `look` | `Text` | what the present room looks like |
| `inventory` | `Text` | what the agent carries |
| `valid_actions` | `Sequence(Text)` | a sorted tuple of the actions that the game accepts now |"""


def arguments_table(parameters: Parameters, *rows: str) -> str:
    """Return the table of a game's arguments: its parameters, more rows, and the arguments of all such games."""
    game_rows = [f"| `{name}` | {p.values} | {p.default} | {p.meaning} |" for name, p in parameters.items()]
    shared = """\
| `actions` | text, index | text | the action space |
| `fold` | train, dev, test | train | the set of levels |
| `expert` | off, path, replan | path | the hints in `info` |
| `render_mode` | ansi, rgb_array, human | None | text, a picture of texts and valid actions, or that picture in a window |"""
    return "\n".join(["| argument | values | registered | meaning |", "|---|---|---|---|", *game_rows, *rows, shared])


def index_size(registered: int, largest: int) -> str:
    """Return the size of the index space in words, for the registered parameters and, if the size differs, for others."""
    return f"{registered}" if registered == largest else f"{registered} at the registered parameters, {largest} at any others"


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Return a docstring with texts in place of their names in braces, such as ``{action_space}``.

    ``{spaces}`` stands for the sections of the two spaces, ``{last_sections}`` for those from the arguments on.
    """
    page = inspect.cleandoc(page)
    for name, text in {"spaces": _SPACES, "last_sections": _LAST_SECTIONS, **texts}.items():
        page = page.replace(f"{{{name}}}", text)
    return page
