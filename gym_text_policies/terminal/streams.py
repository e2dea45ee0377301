"""Standard streams of a command: the command goes on if a stream is closed or cannot show a character."""

from __future__ import annotations

import codecs
import functools
import logging
import os
import re
import sys
from typing import TextIO, cast

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


def prepare_streams() -> None:
    """Replace a closed stream by an empty one, and show a question mark for a character that a stream's encoding lacks."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        _keep_open(number)
        if getattr(sys, name) is None:
            setattr(sys, name, _empty("w" if number else "r"))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and codecs.lookup(stream.encoding or "utf-8").name != "utf-8":
            reconfigure(errors="replace")


@functools.cache
def _empty(mode: str) -> TextIO:
    """Return a stream without content; it stays open as long as the process, as standard streams do."""
    return cast(TextIO, open(os.devnull, mode, encoding="utf-8"))


def _keep_open(number: int) -> None:
    """Open a closed standard stream. Otherwise the next file gets its number, and libraries write messages into that file."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `number`
        os.set_inheritable(opened, True)
