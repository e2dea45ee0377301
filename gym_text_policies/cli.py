"""The command line, `gym-text`."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from gym_text.errors import GymTextError
from gym_text_policies.bench import BenchConfig, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit status: 0, 1 for a run that could not go on, 2 for a mistake on the command line, 130 after Ctrl-C.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    parser = argparse.ArgumentParser(prog="gym-text", description="Language models in reinforcement-learning environments.")
    commands = parser.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench", help="play policies in environments and print one table", description=BenchConfig.__doc__)
    add_fields(bench, BenchConfig)
    values = vars(parser.parse_args(arguments))
    del values["command"]
    try:
        config = BenchConfig(**values)
        table, store = run(config)
        print(f"\n{table}\n\nEpisodes, tables (table.md, table.json) and configuration: {store.folder}")
    except KeyboardInterrupt:
        print(
            f"\nStopped. Every finished episode is kept in {values['folder']}; the same command goes on from there.",
            file=sys.stderr,
        )
        return 130
    except GymTextError as error:
        print(f"gym-text: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return 0


def add_fields(parser: argparse.ArgumentParser, config: type[Any]) -> None:
    """Make an option of each field of a config dataclass; the string under the field is its help."""
    help_texts = field_docs(config)
    for field in dataclasses.fields(config):
        flag = f"--{field.name.replace('_', '-')}"
        text = f"{help_texts[field.name]} Default: {field.default}.".replace("%", "%%")
        if isinstance(field.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default, help=text)
        elif isinstance(field.default, tuple):
            parser.add_argument(flag, nargs="*", default=field.default, action=_AsTuple, metavar="NAME", help=text)
        else:
            parser.add_argument(
                flag, type=type(field.default), default=field.default, metavar=type(field.default).__name__, help=text
            )


class _AsTuple(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, tuple(values))


def field_docs(config: type[Any]) -> dict[str, str]:
    """Return the string that stands under each field of a dataclass."""
    body = ast.parse(inspect.getsource(config)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, doc in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr):
            docs[field.target.id] = " ".join(str(ast.literal_eval(doc.value)).split())
    return docs


def console() -> None:
    """Run `main` and leave at once: a worker that waits for a model must not hold up the exit."""
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if status == 130:
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    console()
