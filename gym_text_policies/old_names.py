"""Old names of settings, which work for one release: `old_names` and `gone`, for config dataclasses and for functions.

Python, the command line, YAML files and stored settings use the same table, `table_of`. Each tells the user the new name.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gym_text.errors import UsageError
from gym_text_policies.sections import with_sections

T = TypeVar("T", bound=Callable[..., Any])
V = TypeVar("V")
_TABLE = "__old_names__"
"""Attribute of a class or a function that has old names."""


@dataclass(frozen=True)
class Fixed:
    """The value of a setting that no longer exists."""

    value: Any
    """The value that always holds now."""
    instead: str = ""
    """A sentence that tells the user what to use in place of other values; empty if there is nothing."""
    refused: bool = False
    """Whether any value is an error, because nothing like it holds now."""


class Before(str):
    """The new name of a setting that was merged into another one.

    Both names may be given. Then the value of the old name counts, unless it is empty.
    """


def old_names(**names: str) -> Callable[[T], T]:
    """Return a decorator that accepts keywords by their old names as well; Python callers get a `FutureWarning`.

    Decorate each subclass as well, because it has its own constructor: with ``@old_names()`` if it adds no old names.

    Args:
        names: The new name of each old one: ``@old_names(seeds="episodes", epochs="sft.epochs")``; a `Before` where both names may
            be given together. The name before a dot is a field that is itself a config dataclass.
    """
    return lambda target: _with_table(target, names)


def gone(**values: Any) -> Callable[[T], T]:
    """Return a decorator that accepts keywords of settings that no longer exist, if they have the value that always holds now.

    Args:
        values: The value that always holds now, or a `Fixed`, by the old name: ``@gone(max_norm=1.0)``.
    """
    entries = {name: value if isinstance(value, Fixed) else Fixed(value) for name, value in values.items()}
    return lambda target: _with_table(target, entries)


def table_of(target: Any) -> Mapping[str, str | Fixed]:
    """Return what became of each old name of a class or a function: a new name, or a fixed value."""
    kinds = reversed(target.__mro__) if isinstance(target, type) else (target,)
    return {old: new for kind in kinds for old, new in vars(kind).get(_TABLE, {}).items()}


def new_name(
    target: Any, old: str, value: Any, given: Collection[str], spell: Callable[[str], str] = str
) -> tuple[str | None, str]:
    """Return the new name of a setting, or None if it no longer exists, and the sentence for the user.

    Args:
        target: The class or the function.
        old: A name of its table.
        value: The value that the user gives.
        given: All names that the user gives.
        spell: Returns a name as the user writes it: ``--llm-seeds`` on the command line.

    Raises:
        UsageError: If the new name is given as well, or a setting that no longer exists has a value other than the fixed one.
    """
    table = table_of(target)
    new = table[old]
    if isinstance(new, Fixed):
        if new.refused:
            raise UsageError(
                f"{spell(old)}: expected settings of this release, which has no such setting; got {value!r}. {new.instead}"
            )
        if value != new.value:
            repair = new.instead or f"Leave {spell(old)} out."
            raise UsageError(f"{spell(old)}: expected {new.value!r}, which always holds now; got {value!r}. {repair}")
        return None, f"{spell(old)} can be left out: it is always {new.value!r} now. The next release removes the name."
    if isinstance(new, Before):
        return new if value else None, f"{spell(old)} is now {spell(new)}; the next release removes the old name."
    if rivals := sorted(name for name in given if name != old and f"{new}.".startswith(f"{table.get(name, name)}.")):
        raise UsageError(f"{spell(old)}: expected {spell(new)} alone, which is its name now; got {spell(rivals[0])} as well.")
    return new, f"{spell(old)} is now {spell(new)}; the next release removes the old name."


def with_new_names(
    target: Any,
    given: Mapping[str, V],
    say: Callable[[str, V], None],
    *,
    spell: Callable[[str], str] = str,
    plain: Callable[[V], Any] = lambda value: value,
    strict: bool = True,
) -> dict[str, V]:
    """Return settings by their new names, which may have dots. Settings that no longer exist are left out.

    Args:
        target: The class or the function that takes the settings.
        given: The settings.
        say: Takes the sentence for each old name, and the value.
        spell: See `new_name`.
        plain: Converts a value to plain data, if it is a node of a YAML file.
        strict: Whether to raise the errors of `new_name`. If not, a setting that `new_name` refuses keeps its old name.

    Raises:
        UsageError: See `new_name`.
    """
    settings, table = {}, table_of(target)
    for name, value in sorted(given.items(), key=lambda item: isinstance(table.get(item[0]), Before)):  # these last: they count
        new: str | None = name
        if name in table:
            try:
                new, sentence = new_name(target, name, plain(value), given, spell)
                say(sentence, value)
            except UsageError:
                if strict:
                    raise
        if new is not None:
            settings[new] = value
    return settings


def stored_by_new_names(kind: type[Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that an earlier release may have stored, by their new names.

    A setting that no longer exists is left out if its value is the one that always holds now. Otherwise it is kept.
    """
    settings: dict[str, Any] = {}
    for name, value in with_new_names(kind, stored, lambda *_: None, strict=False).items():
        *sections, last = [name] if name in stored else name.split(".")
        inner = settings
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return settings


def _with_table(target: T, entries: Mapping[str, str | Fixed]) -> T:
    call: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]  # of this very class

    @functools.wraps(call)
    def accept(*arguments: Any, **given: Any) -> Any:
        if not given.keys().isdisjoint(table):
            given = with_new_names(accepting, given, say)
            given = with_sections(target, given) if isinstance(target, type) else given
        return call(*arguments, **given)

    def say(sentence: str, _: Any) -> None:
        warnings.warn(f"{target.__name__}: {sentence}", FutureWarning, stacklevel=4)  # at the line that calls `accept`

    accepting: Any = target if isinstance(target, type) else accept
    setattr(accepting, _TABLE, {**vars(target).get(_TABLE, {}), **entries})
    table = table_of(accepting)
    if accepting is target:
        accepting.__init__ = accept  # type: ignore[method-assign]  # a class decorator may replace the constructor
    result: T = accepting
    return result
