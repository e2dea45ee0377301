"""The page of the public interface, made from the docstrings. griffe reads signatures, sections, and the strings under fields."""

import contextlib
import functools
import importlib
import inspect
import json
import logging
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from run_notebooks import NOTEBOOKS, code_of

ROOT = Path(__file__).parent.parent
PACKAGES = ("gym_text", "gym_text.wrappers", "gym_text_policies")
"""Packages whose ``__all__`` is public. Names that the pages and the notebooks of the documentation import are public as well."""
MORE = {
    "gym_text.spaces": ("ActionNames", "FreeText", "TextHistory"),
    "gym_text.errors": ("BudgetError", "ClusterError", "StoreError"),
    "gym_text_policies.policies.config": ("PolicyConfig",),
    "gym_text_policies.backends": ("Answer", "Backend", "Request"),
    "gym_text_policies.run.experiment": ("AgentConfig", "EnvironmentConfig", "ExperimentConfig", "RunsConfig"),
    "gym_text_policies.search": ("Evaluation", "Found", "Proposal"),
}
"""More public names: those that the public functions take and return."""
IMPLEMENTED = ("_start", "_play", "_plan", "_hint", "_frame", "_fork_game")
"""Methods of `TextEnv` that a subclass implements."""
ERRORS = "gym_text.errors"
WIDTH = 84
"""Characters of a line of code on the page."""

Code = griffe.Class | griffe.Function


def reference_page() -> str:
    """Return the page as Markdown."""
    parts = ["# Reference\n\nThis page is made from the docstrings, like the page of [environments](environments.md)."]
    for module, names in public_names().items():
        doc = str(importlib.import_module(module).__doc__)
        doc = doc if module == ERRORS else doc.partition("\n\n")[0]
        parts.append(f"## {module} {{ #{module} }}\n\n{as_markdown(linked(doc))}")
        parts += [entry(name, read(module, name)) for name in names]
    return "\n\n".join(parts) + "\n"


@functools.cache
def public_names() -> dict[str, list[str]]:
    """Return the modules to import from, and the public names of each.

    If two objects have one name, the second is labelled with its module, as in ``vector.History``. Each object is listed once.
    Errors are listed under `ERRORS`.
    """
    exported = [(module, importlib.import_module(module).__all__) for module in PACKAGES]
    labels: dict[Any, str] = {}
    modules: dict[str, list[str]] = {}
    for module, names in [*exported, *MORE.items(), *imported_by_the_pages()]:
        for name in names:
            thing = getattr(importlib.import_module(module), name)
            if thing in labels or inspect.ismodule(thing):
                continue
            labels[thing] = f"{module.rpartition('.')[2]}.{name}" if name in labels.values() else name
            is_error = inspect.isclass(thing) and issubclass(thing, Exception)
            modules.setdefault(ERRORS if is_error else module, []).append(labels[thing])
    return {module: sorted(modules[module]) for module in sorted(modules)}


def imported_by_the_pages() -> Iterator[tuple[str, list[str]]]:
    """Yield each module of this project that the pages' examples import from, with the imported names.

    A module that cannot be imported, as a bridge without its library, is left out.
    """
    pages = [path.read_text("utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
    pages += ["\n".join(code_of(json.loads(path.read_text("utf-8")))) for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
    for page in pages:
        for module, names in re.findall(r"^(?:>>> )?from (gym_text[\w.]*) import ([\w, ]+)$", page, re.M):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
                yield module, names.split(", ")


@functools.cache
def code() -> Any:
    """Return griffe's data of both packages, by dotted path."""
    logging.getLogger("griffe").setLevel(logging.ERROR)  # griffe warns of docstrings without types; the types are in the signatures
    options = {"returns_multiple_items": False, "returns_named_value": False}
    loader = griffe.GriffeLoader(search_paths=[ROOT], docstring_parser="google", docstring_options=options)
    for package in ("gym_text", "gym_text_policies"):
        loader.load(package)
    loader.resolve_aliases()
    return loader.modules_collection


def read(module: str, name: str) -> Code:
    """Return griffe's data of a public name, from the module that defines it."""
    thing = getattr(importlib.import_module(module), name.rpartition(".")[2])
    return code()[f"{thing.__module__}.{thing.__qualname__}"]


@functools.cache
def members(module: str, name: str) -> dict[str, Any]:
    """Return the documented members of a public class. Members of bases that have no entry of their own are included."""
    thing = read(module, name)
    if not isinstance(thing, griffe.Class):
        return {}
    entries = {read(module, name).path for module, names in public_names().items() for name in names}
    documented: dict[str, Any] = {}
    for owner in [*reversed([base for base in thing.mro() if base.path not in entries]), thing]:
        documented |= {key: member for key, member in owner.members.items() if not member.is_alias and member.docstring}
    shown = IMPLEMENTED if name == "TextEnv" else ()
    return {key: member for key, member in documented.items() if not key.startswith("_") or key in shown}


@functools.cache
def anchors() -> frozenset[str]:
    """Return the names that can be the target of a link: ``rollout``, ``EpisodeStore.append``."""
    tops = [(module, name) for module, names in public_names().items() for name in names]
    return frozenset({name for _, name in tops} | {f"{name}.{key}" for module, name in tops for key in members(module, name)})


def linked(text: str, owner: str = "") -> str:
    """Return a text in which each public name in single backticks, or member of the class `owner`, is a link."""

    def link(match: re.Match[str]) -> str:
        name = match[1]
        target = next((target for target in (f"{owner}.{name}", name) if target in anchors() and target != owner), None)
        return f"[`{name}`](#{target})" if target else match[0]

    return re.sub(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)", link, text)


def entry(name: str, thing: Code) -> str:
    """Return the section of a public class or function."""
    module = next(module for module, names in public_names().items() if name in names)
    own_members = members(module, name)
    parts = [f"### {name} {{ #{name} }}"]
    bases = [f"`{base}`" for base in getattr(thing, "bases", ()) if not str(base).startswith("_")]
    if bases:
        parts.append("Base: " + ", ".join(linked(base, name) for base in bases))
    if thing.is_function or ("__init__" in thing.members and "dataclass" not in thing.labels):
        parts.append(signature(thing))
    parts.append(description(thing, name))
    attributes = [attribute(name, member) for member in own_members.values() if member.is_attribute]
    parts += ["**Attributes**", *attributes] if attributes else []
    for key, member in own_members.items():
        if member.is_function:
            parts += [f"#### {name}.{key} {{ #{name}.{key} }}", signature(member), description(member, name)]
    return "\n\n".join(parts)


def signature(thing: Any) -> str:
    """Return a signature as a block of code. If it does not fit into one line, each parameter has a line of its own."""
    text = thing.signature()
    if len(text) > WIDTH:
        arguments, close, returned = text.partition("(")[2].rpartition(")")
        parts, depth = [""], 0
        for character in arguments:
            depth += (character in "([{") - (character in ")]}")
            if character == "," and not depth:
                parts.append("")
            else:
                parts[-1] += character
        text = "\n".join([text.partition("(")[0] + "(", *(f"    {part.strip()}," for part in parts), close + returned])
    return f"```python\n{text}\n```"


def attribute(owner: str, member: Any) -> str:
    """Return an attribute, a field or a property: its type, its default, and the string under it."""
    value = "" if member.value is None else str(member.value)
    if value.startswith("field("):
        factory, default = re.search(r"default_factory=(\w+)", value), re.search(r"default=([^,)]+)", value)
        value = f"{factory[1]}()" if factory else default[1] if default else ""
    line = member.name + (f": {member.annotation}" if member.annotation else "") + (f" = {value}" if value else "")
    return f"`{line}`{{ #{owner}.{member.name} }}\n{item(description(member, owner))}"


def description(thing: Any, owner: str) -> str:
    """Return a docstring: its text, the arguments, what is returned, and the errors that are raised."""
    parts = []
    for section in thing.docstring.parsed if thing.docstring else ():
        kind = section.kind.value
        if kind == "text":
            parts.append(as_markdown(linked(section.value, owner)))
            continue
        items = [(part, as_markdown(linked(part.description, owner)).strip()) for part in section.value]
        if kind == "parameters":
            parts += ["**Arguments**", *(f"`{part.name}`\n{item(text)}" for part, text in items)]
        elif kind == "raises":
            names = [", ".join(linked(f"`{name}`") for name in re.findall(r"[\w.]+", str(part.annotation))) for part, _ in items]
            parts += ["**Raises**", *(f"{name}\n{item(text)}" for name, (_, text) in zip(names, items, strict=True))]
        elif kind in ("returns", "yields"):
            parts += [f"**{kind.capitalize()}**", *(text for _, text in items)]
        else:
            raise ValueError(f"{thing.path}: expected Args, Returns, Yields or Raises; got the section {kind!r}.")
    return "\n\n".join(parts)


def item(text: str) -> str:
    """Return a text as a definition in a definition list."""
    return ":   " + textwrap.indent(text, "    ").strip()


def as_markdown(doc: str) -> str:
    """Return a docstring as Markdown: literals, code blocks, doctests; its headings one level lower."""
    lines: list[str] = []
    in_session = False
    for line in [*doc.splitlines(), ""]:
        if line.startswith(">>>") and not in_session:
            lines.append("```python")
            in_session = True
        elif in_session and not line.strip():
            lines.append("```")
            in_session = False
        if in_session:
            lines.append(line)
        else:
            text = line.replace("``", "`")
            lines.append(re.sub(r"^(#+ )", r"#\1", text.removesuffix(":") if text.endswith("::") else text))
    return "\n".join(lines)
