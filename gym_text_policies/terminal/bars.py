"""Progress bars of tqdm: a line in a terminal, a widget in a notebook where ipywidgets is installed, else a line there, too."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from gym_text.errors import import_extra


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


def bar_class() -> Any:
    """Return tqdm's class of bars that fits; `tqdm.auto` would warn in a notebook without ipywidgets.

    Raises:
        MissingDependencyError: If tqdm is not installed.
    """
    widgets = in_notebook() and importlib.util.find_spec("ipywidgets") is not None
    return import_extra("tqdm.notebook" if widgets else "tqdm", "bench").tqdm


def is_watched() -> bool:
    """Return whether somebody looks at stderr as it is written: in a terminal or in a notebook."""
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
