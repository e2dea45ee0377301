"""Standard streams of a command: one that is closed, or that cannot show a letter, ends nothing."""

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
    """Return a text for a terminal: what a model, a game or a record said moves no cursor, and changes no title."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class ShownFormatter(logging.Formatter):
    """Formats a line of the log by `shown`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return shown(super().format(record))


def prepare_streams() -> None:
    """Let a closed stream be an empty one, and show a question mark in place of a letter that a stream's encoding lacks."""
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
    """Open a standard stream that is closed: else the next file to be opened would be what libraries write their messages into."""
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        os.set_inheritable(opened, True)
