"""Games with parameters. A game declares each of them once, in its table `parameters`.

The constructor's signature and checks, and the whole docstring around the game's own sections, are made from this table.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from gym_text.errors import UsageError, check_bool, check_choice, check_int, check_options
from gym_text.spec import TextSpec

BOOL = (False, True)
INDEX_ACTIONS = """\
With ``actions="index"``: `Discrete(n)`, the index in ``obs["valid_actions"]``; an index beyond the list is an invalid action.
``info["action_mask"]`` (`np.int8`) and `action_masks` (`bool`) say which indices are valid."""

_SPACES = """\
## Action Space

{action_space}

## Observation Space

`Dict`:

| key | space | meaning |
|---|---|---|
| `text` | `Text` | {text} |
| `goal` | `Text` | {goal} |
| `look` | `Text` | what the present room looks like |
| `inventory` | `Text` | what the agent carries |
| `valid_actions` | `Sequence(Text)` | a sorted tuple of the actions that the game accepts now |

"""
_LAST_SECTIONS = """\
## Arguments

| argument | values | registered | meaning |
|---|---|---|---|
{arguments}| `actions` | text, index | text | the action space |
| `fold` | train, dev, test | train | the set of levels |
| `expert` | off, path, replan | path | the hints in `info` |
| `render_mode` | ansi, rgb_array | None | text, or a picture of texts and valid actions; for human in a window |

## Info

{info}

## Version History

* v0: first version, on {engine}."""


class Parameter(NamedTuple):
    """A parameter of a game."""

    engine_name: str
    values: Sequence[int]
    """The values that it can have: `BOOL`, a range, or a few integers, the least first."""
    default: int
    meaning: str

    @property
    def values_in_words(self) -> str:
        """The values, in words for the docstring."""
        if self.values == BOOL:
            return "bool"
        return f"{self.values[0]} to {self.values[-1]}" if isinstance(self.values, range) else ", ".join(map(str, self.values))

    def check(self, name: str, value: object) -> int:
        """Return the value, or raise `UsageError`."""
        if self.values == BOOL:
            return check_bool(name, value)
        number = check_int(name, value, self.values[0], self.values[-1])
        if number not in self.values:
            raise UsageError(f"{name}: expected one of {self.values_in_words}; got {number}.")
        return number


Parameters = Mapping[str, Parameter]
"""The parameters of a game by their names in Python."""


class GameWithParameters:
    """A class of games that an engine makes by parameters. Its constructor takes the parameters as keywords.

    A game sets the class variables without a value here, and its docstring has a summary, a description and the sections
    ``## Rewards`` and ``## Episode End``; all other sections are added, ``## Starting State`` if there is none.
    """

    texts: ClassVar[Mapping[str, str]]
    """What all games of an engine share in the added sections: engine, action_space, text, goal, starting_state and info."""
    argument_rows: ClassVar[tuple[str, ...]] = ()
    """Rows of the table of arguments for those that are no parameters of the engine."""
    game_spec: ClassVar[TextSpec]
    most_actions: ClassVar[int]
    """Size of the index space at the registered parameters: the most valid actions measured there, or some more."""
    most_actions_ever: ClassVar[int]
    """The same at all other parameters."""
    parameters: ClassVar[Parameters] = {}
    presets: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    """Published settings, by the name that ``difficulty`` gives them."""
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the docstring and the signature of a game."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "game_spec"):
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters = [
                *(
                    inspect.Parameter(n, keyword, default=p.default, annotation=type(p.default).__name__)
                    for n, p in cls.parameters.items()
                ),
                *[inspect.Parameter("difficulty", keyword, default=None, annotation="str | None")] * bool(cls.presets),
                *(p for p in inspect.signature(cls.__init__).parameters.values() if p.kind is keyword),
            ]
            cls.__signature__ = inspect.Signature(parameters, return_annotation="None")
            cls.__doc__ = _page(cls)

    def read_parameters(self, arguments: Mapping[str, Any]) -> dict[str, int]:
        """Return all parameters by their names in Python: each value is the argument's, else the preset's, else the default.

        Raises:
            UsageError: If an argument is unknown, or its value is not one that the table `parameters` allows.
        """
        check_options(type(self).__name__, arguments, inspect.signature(type(self)).parameters)
        preset = arguments.get("difficulty")
        if preset is not None:
            check_choice("difficulty", preset, self.presets)
        given = {**self.presets.get(str(preset), {}), **arguments}
        return {name: p.check(name, given.get(name, p.default)) for name, p in self.parameters.items()}

    def index_size(self, values: Mapping[str, int]) -> int:
        """Return the size of the index space at these values of the parameters."""
        registered = all(values[name] == p.default for name, p in self.parameters.items())
        return self.most_actions if registered else self.most_actions_ever

    def engine_parameters(self, values: Mapping[str, int]) -> dict[str, int]:
        """Return the parameters under the engine's names."""
        return {p.engine_name: values[name] for name, p in self.parameters.items()}


def _page(game: type[GameWithParameters]) -> str:
    """Return the docstring of a game with all sections."""
    rows = [f"| `{name}` | {p.values_in_words} | {p.default} | {p.meaning} |" for name, p in game.parameters.items()]
    if game.presets:
        rows.append(
            f"| `difficulty` | {', '.join(game.presets)} | None | a published setting; other arguments replace its values |"
        )
    most, ever = game.most_actions, game.most_actions_ever
    size = f"{most}" if most == ever else f"{most} at the registered parameters, {ever} at any others"
    summary, _, page = inspect.cleandoc(game.__doc__ or "").partition("\n\n")
    start = "" if "## Starting State" in page else "## Starting State\n\n{starting_state}\n\n"
    page = page.replace("## Rewards", f"{_SPACES}## Rewards").replace("## Episode End", f"{start}## Episode End")
    page = f"{summary}\n\n## Description\n\n{page}\n\n{_LAST_SECTIONS}"
    for name, text in {**game.texts, "n": size, "arguments": "".join(f"{row}\n" for row in (*rows, *game.argument_rows))}.items():
        page = page.replace(f"{{{name}}}", text)
    return page
