"""`Pictures`: the pictures of the environment that a policy shows to its model."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError, import_extra
from gym_text.wrappers import Picture
from gym_text_policies.backends.base import Backend

_EXAMPLE = np.full((64, 64, 3), 200, np.uint8)
"""The picture with which a model is asked before a run. Some models take no smaller one."""


class Seen(NamedTuple):
    """A picture that a model sees."""

    png: bytes
    """What is sent."""
    digest: str
    """Of the picture as it was rendered."""


def picture_digest(picture: np.ndarray) -> str:
    """Return the SHA-256 of a picture: of its height and width, as in ``344x256 ``, and its pixels. No PNG library changes it."""
    height, width = picture.shape[:2]
    return hashlib.sha256(f"{height}x{width} ".encode() + np.ascontiguousarray(picture, np.uint8).tobytes()).hexdigest()


@dataclass(frozen=True)
class Pictures:
    """The settings of a policy that concern pictures."""

    shown: bool = False
    """Whether the model sees the present step's picture."""
    size: int | None = None
    """Pixels of the longest side to which a larger picture is reduced; None leaves it as it is rendered."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], backend: Backend) -> Pictures:
        """Return this part of a policy's settings.

        Raises:
            UsageError: If the model takes no pictures, or the settings do not fit each other.
            MissingDependencyError: If Pillow is not installed, which writes PNG.
        """
        pictures = cls(bool(settings.get("pictures")), settings.get("picture_size"))
        if not pictures.shown:
            if pictures.size is not None:
                raise UsageError("picture_size: expected pictures=True, too; without it the model sees no picture.")
            return pictures
        if not backend.takes_pictures:
            raise UsageError(
                f"pictures: expected a model behind openai: or ollama:, or a Backend of your own with takes_pictures = True; "
                f"{backend.config} takes none."
            )
        if settings["tokens"]:
            raise UsageError("pictures: expected tokens=False, as the tokens of a picture are not known.")
        import_extra("PIL", "experiments")
        return pictures

    @property
    def config(self) -> dict[str, Any]:
        """What was given, for the policy's configuration. Without pictures it stays as in earlier records."""
        size = {} if self.size is None else {"picture_size": self.size}
        return {"pictures": True, **size} if self.shown else {}

    @property
    def example(self) -> bytes | None:
        """The PNG of a question before a run; None if the model sees no pictures."""
        return self._png(_EXAMPLE) if self.shown else None

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the wrapper that adds the picture to the observation, if the model sees it."""
        return Picture(env) if self.shown else env

    def seen(self, obs: Mapping[str, Any]) -> Seen | None:
        """Return the picture of an observation as the model sees it; None if the model sees no pictures."""
        if not self.shown:
            return None
        if "picture" not in obs:
            raise UsageError("obs: expected the key 'picture'; it is missing. Use policy.wrap(env).")
        return Seen(self._png(obs["picture"]), picture_digest(obs["picture"]))

    def _png(self, picture: np.ndarray) -> bytes:
        from PIL import Image

        image = Image.fromarray(picture)
        if self.size is not None:
            image.thumbnail((self.size, self.size), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()
