"""One word for one thing: options that several commands have mean the same, and what documents say is what commands take."""

import argparse
import dataclasses
import functools
import re
from collections import defaultdict
from pathlib import Path
from typing import get_type_hints

import pytest

from gym_text_policies import cli
from gym_text_policies.experiments.config import AgentConfig, EnvironmentConfig, RunsConfig
from gym_text_policies.experiments.settings import field_docs, members_of
from gym_text_policies.experiments.variants import VariantSettings
from gym_text_policies.old_names import table_of

ROOT = Path(__file__).parent.parent
COMMANDS = {name: command.load()[0] for name, command in cli.COMMANDS.items()}
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.py")])
_USE = re.compile(r"gym-text ([a-z-]+)((?:\\\n|[^\n`])*)")
"""A command and its words, up to the end of the line or of the code."""


def declarations():
    """Return for each name of a field the unrelated classes that declare it, with its type and its help."""
    declared = defaultdict(dict)
    for kind in (*COMMANDS.values(), AgentConfig, EnvironmentConfig, RunsConfig):
        for base in filter(dataclasses.is_dataclass, kind.__mro__):
            for name in vars(base).get("__annotations__", {}).keys() & {field.name for field in dataclasses.fields(base)}:
                declared[name][base] = get_type_hints(base)[name], field_docs(base).get(name, "")
    for name, classes in declared.items():
        roots = [kind for kind in classes if not any(kind is not other and issubclass(kind, other) for other in classes)]
        yield name, {kind: classes[kind] for kind in roots}


OTHERWISE = {
    "episodes": "gym-text collect takes a number for each environment; gym-text report counts over all environments",
    "epochs": "SFT may end within an epoch, on-policy training may not",
    "folder": "gym-text average, combine and merge write a folder that is no run folder",
    "imports": "a report plays records again, where other commands read files",
    "model": "the model plays, proposes, is trained further, or is merged",
    "pictures": "a model sees them, a report and a search draw them",
    "name": "sections of a YAML file: an environment's and a run folder's",
}
"""Names whose type or help differs between commands -> why."""


def test_options_of_one_name_have_one_type_and_one_meaning():
    differing = set()
    for name, classes in declarations():
        types = {frozenset(members_of(hint)) - {type(None)} for hint, _ in classes.values()}
        beginnings = {" ".join(re.findall(r"\w+", text)[:2]) for _, text in classes.values()}
        if len(types) > 1 or len(beginnings) > 1:
            differing.add(name)
    assert differing == OTHERWISE.keys()


@functools.cache
def options_of(command):
    """Return the options of a command as its help shows them, each with whether it takes a value."""
    (commands,) = (a for a in cli.make_parser([command])._actions if isinstance(a, argparse._SubParsersAction))
    actions = commands.choices[command]._actions
    return {option: action.nargs != 0 for action in actions if action.help != argparse.SUPPRESS for option in action.option_strings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_show_commands_with_the_options_that_they_have(path):
    wrong = []
    for command, words in _USE.findall(path.read_text("utf-8")):
        given = re.findall(r"(?<=\s)(--[a-z][a-z0-9.-]*)(?: +([\w.]+))?", re.sub(r"#.*|[|;&>].*|'[^']*'|\"[^\"]*\"", "", words))
        for option, value in given if command in COMMANDS else ():
            wrong += [f"{command} {option}"] if option not in options_of(command) else []
            wrong += [f"{command} {option} {value}"] if value and not options_of(command).get(option, True) else []
    assert wrong == []


def test_the_page_of_words_has_each_name_and_each_old_name():
    page = (ROOT / "docs/words.md").read_text("utf-8")
    words = set(re.findall(r"`(\w+)`", page))
    tables = {kind.__name__: table_of(kind) for kind in (*COMMANDS.values(), RunsConfig, VariantSettings)}
    missing = {f"{old} of {kind}" for kind, table in tables.items() for old in table if old not in words}
    new = {name for table in tables.values() for name in table.values() if isinstance(name, str)}
    assert not missing and {name.rpartition(".")[2] for name in new} <= words
