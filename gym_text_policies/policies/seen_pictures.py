"""The pictures of the environment that a policy shows to its model."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.base import Backend

EXAMPLE = np.full((64, 64, 3), 200, np.uint8)
"""The picture with which a model is asked before a run. Some models take no smaller one."""


class SeenPicture(NamedTuple):
    """A picture that a model sees."""

    png: bytes
    """What is sent."""
    digest: str
    """Of the picture as it was rendered."""


def picture_digest(picture: np.ndarray) -> str:
    """Return the SHA-256 of a picture: of its height and width, as in ``344x256 ``, and its pixels. No PNG library changes it."""
    height, width = picture.shape[:2]
    return hashlib.sha256(f"{height}x{width} ".encode() + np.ascontiguousarray(picture, np.uint8).tobytes()).hexdigest()


def check_pictures(settings: Mapping[str, Any], backend: Backend) -> None:
    """Raise an error if a policy of these settings cannot show pictures to its model.

    Raises:
        UsageError: If the model takes no pictures, or the settings do not fit each other.
        MissingDependencyError: If Pillow is not installed, which writes PNG.
    """
    if not backend.takes_pictures:
        raise UsageError(
            f"pictures: expected a model behind openai: or ollama:, or a Backend of your own with takes_pictures = True; "
            f"{backend.config} takes none."
        )
    if settings["tokens"]:
        raise UsageError("pictures: expected tokens=False, as the tokens of a picture are not known.")
    import_extra("PIL", "experiments")


def seen_picture(picture: np.ndarray) -> SeenPicture:
    """Return a picture, uint8 of shape (height, width, 3), as the model sees it."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return SeenPicture(buffer.getvalue(), picture_digest(picture))
