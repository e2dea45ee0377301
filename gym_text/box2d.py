"""`import_box2d`: the physics engine of LunarLander and CarRacing, which has no wheel on some systems."""

from __future__ import annotations

import platform
import sys
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
        if has_box2d_wheel(sys.version_info[:2], platform.machine()):
            raise
        here = f"Python {sys.version_info.major}.{sys.version_info.minor} on {platform.machine()}"
        raise MissingDependencyError(
            f"Box2D, which LunarLander and CarRacing need, is not installed, and there is no wheel of it for {here}. "
            "Use Python 3.11 to 3.13 on x86 or a Mac; or compile it, with a C++ compiler: pip install swig setuptools wheel, then "
            "pip install box2d-py",
            name="Box2D",
        ) from error


def has_box2d_wheel(python: tuple[int, int], machine: str) -> bool:
    """Return whether Box2D 2.3.10 has a wheel, by the conditions of the extra `box2d` in pyproject.toml: not for Linux on ARM."""
    return python < (3, 14) and machine in ("x86_64", "AMD64", "arm64")
