"""The user's cache folder, for files that take long to make."""

from __future__ import annotations

from pathlib import Path

from gym_text.errors import UsageError, import_extra


def cache_folder(name: str, extra: str) -> Path:
    """Return the path of a folder in ``gym-text`` in the user's cache folder; it may not exist yet.

    Args:
        name: The folder's name.
        extra: The extra that the error names if platformdirs is not installed.

    Raises:
        UsageError: If the user has no home.
    """
    import_extra("platformdirs", extra)
    from platformdirs import user_cache_path

    try:
        return Path(user_cache_path("gym-text")).expanduser() / name  # older versions do not expand ~
    except RuntimeError as error:
        raise UsageError(
            f"the user's cache folder: expected a home folder; {error}. XDG_CACHE_HOME=/some/folder names another."
        ) from error
