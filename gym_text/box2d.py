"""`import_box2d`: the physics engine of LunarLander, which has no wheel on some systems."""

from __future__ import annotations

import warnings

from gym_text.errors import MissingDependencyError, import_extra


def import_box2d() -> None:
    """Import Box2D without the DeprecationWarnings of its SWIG types, which crash the interpreter if warnings are errors.

    Raises:
        MissingDependencyError: If Box2D is not installed; the message says on which systems it must be compiled.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import_extra("Box2D", "box2d")
    except MissingDependencyError as error:
        raise MissingDependencyError(
            f"{error}. If that installs no Box2D, there is no wheel of it for this Python and machine: use Python 3.11 to 3.13 on "
            "x86 or a Mac; or compile it, with a C++ compiler: pip install swig setuptools wheel, then pip install box2d-py",
            name="Box2D",
        ) from error
