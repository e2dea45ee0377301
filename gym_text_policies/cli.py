"""The command line, `gym-text`. A command's module is imported when the command is used."""

from __future__ import annotations

import io
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

from gym_text_policies.commands.parser import COMMANDS, FILE, make_parser

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal acts on, without tab and the end of a line."""


def shown(text: str) -> str:
    """Return a text that is safe in a terminal: characters that move its cursor or set its title are replaced."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class ShownFormatter(logging.Formatter):
    """Formats a line of the log by `shown`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return shown(super().format(record))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit status: 0 for success, 1 for a run that could not continue or whose episodes all ended in an error, 2 for a mistake
        of the user, 130 after Ctrl-C or SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):  # a character that its encoding lacks becomes a question mark
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ShownFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for package in ("gym_text", "gym_text_policies"):  # other packages, such as httpx, log each request at INFO
        logging.getLogger(package).setLevel(logging.INFO)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not {"", os.getcwd()} & set(sys.path):  # the user's modules; last, so that they hide no installed package
        sys.path.append(os.getcwd())
    chosen = next((word for word in arguments if not word.startswith("-")), "")
    if chosen not in COMMANDS:
        make_parser().parse_args(arguments)  # shows help or the version, or names the command that was meant, and exits
    return _run(chosen, arguments)


def _run(chosen: str, arguments: Sequence[str]) -> int:
    """Run a command; return the exit status."""
    from gym_text.errors import GymTextError
    from gym_text_policies.backends.threads import settle_threads
    from gym_text_policies.settings.from_file import read_settings

    config: Any = None
    try:
        settle_threads()  # before anything imports torch
        options = vars(make_parser([chosen]).parse_args(arguments))  # only the options that were given
        kind, function = COMMANDS[options.pop("command")].load()
        file = options.pop(FILE, None)
        config = read_settings(kind, file, options) if file is not None else kind(**options)
        result = function(config)
        if isinstance(result, os.PathLike):
            result = f"The model: {os.fspath(result)}; load_policy takes this folder as a model."
        if result is not None:
            print(shown(result), flush=True)
    except KeyboardInterrupt as stop:
        print(f"\nStopped. {str(stop) or _kept(config)}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has read enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  the interpreter flushes it at exit
        return 0
    except (GymTextError, OSError) as error:
        print(f"gym-text: {shown(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return 0


def _kept(config: Any) -> str:
    """Return a sentence about what a stopped command keeps. It is for commands that do not say it themselves."""
    folder = getattr(config, "folder", None)
    if not isinstance(folder, str | os.PathLike):
        return ""
    if not os.path.isdir(folder) or set(os.listdir(folder)) <= {"config.json", ".lock"}:
        return f"{folder} keeps nothing, because nothing had ended yet."
    return f"{folder} keeps what had ended, but not what was still running. The same command continues from there."


def console() -> None:
    """Run `main` and exit at once: a thread that waits for a model must not delay the exit.

    SIGTERM, by which clusters end a job, does what Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if status == 130:
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    console()
