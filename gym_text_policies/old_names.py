"""Old names of settings, which work for one release: `old_names` and `gone`, for config dataclasses and for functions.

Python, the command line, YAML files and stored settings ask the same table, `table_of`. Each says in a sentence what holds now.
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
    """What became of a setting that is no more."""

    value: Any
    """The value that always holds now."""
    instead: str = ""
    """A sentence that says what does now what another value did; empty if nothing does."""


class Before(str):
    """The new name where two settings became one, and both may be given. The old one counts then, unless it is empty."""


def old_names(**names: str) -> Callable[[T], T]:
    """Return a decorator that accepts keywords by their old names as well; Python callers get a `FutureWarning`.

    Decorate a subclass as well, with ``@old_names()`` where it has no further old names: it has a constructor of its own.

    Args:
        names: The new name of each old one: ``@old_names(seeds="episodes", epochs="sft.epochs")``; a `Before` where both names may
            be given together. What stands before a dot is a field that is a config dataclass itself.
    """
    return lambda target: _with_table(target, names)


def gone(**values: Any) -> Callable[[T], T]:
    """Return a decorator that accepts keywords of settings that are no more, if their value is the one that always holds now.

    Args:
        values: That value, or a `Fixed`, by the old name: ``@gone(max_norm=1.0)``.
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
    """Return the new name of a setting, None for a setting that is no more, and the sentence for the user.

    Args:
        target: The class or the function.
        old: A name of its table.
        value: What it is given.
        given: All names that are given.
        spell: Returns a name as the user writes it: ``--llm-seeds`` on the command line.

    Raises:
        UsageError: If the new name is given as well, or a setting that is no more has another value than the fixed one.
    """
    table = table_of(target)
    new = table[old]
    if isinstance(new, Fixed):
        if value != new.value:
            repair = new.instead or f"Leave {spell(old)} out."
            raise UsageError(f"{spell(old)}: expected {new.value!r}, which always holds now; got {value!r}. {repair}")
        return None, f"{spell(old)} can be left out: it is always {new.value!r} now. The name goes with the next release."
    if isinstance(new, Before):
        return new if value else None, f"{spell(old)} is now {spell(new)}; the old name goes with the next release."
    if rivals := sorted(name for name in given if name != old and f"{new}.".startswith(f"{table.get(name, name)}.")):
        raise UsageError(f"{spell(old)}: expected {spell(new)} alone, which is its name now; got {spell(rivals[0])} as well.")
    return new, f"{spell(old)} is now {spell(new)}; the old name goes with the next release."


def with_new_names(
    target: Any,
    given: Mapping[str, V],
    say: Callable[[str, V], None],
    *,
    spell: Callable[[str], str] = str,
    plain: Callable[[V], Any] = lambda value: value,
    strict: bool = True,
) -> dict[str, V]:
    """Return settings by their new names, which may have dots, without those that are no more.

    Args:
        target: The class or the function that they are for.
        given: The settings.
        say: Takes the sentence for each old name, and the value.
        spell: See `new_name`.
        plain: Returns what a value stands for.
        strict: Raise the errors of `new_name`; without, a setting that `new_name` refuses keeps its old name.

    Raises:
        UsageError: See `new_name`.
    """
    settings, table = {}, table_of(target)
    for name, value in sorted(given.items(), key=lambda item: isinstance(table.get(item[0]), Before)):  # the last one counts
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

    A setting that is no more is left out if it had the value that always holds now, and kept if it had another.
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
        accepting.__init__ = accept  # type: ignore[method-assign]  # that is what a class decorator may do
    result: T = accepting
    return result
