"""The spec of an environment as JSON schemas, in the environment's own methods."""

from __future__ import annotations

from typing import Any

from gym_text.spec import TextSpec


class HasSchemas:
    """An environment or wrapper that returns its `text_spec` as JSON schemas."""

    text_spec: TextSpec
    """What a player must know of the environment."""

    def get_observation_schema(self) -> dict[str, Any]:
        """Return a JSON schema of the observation."""
        return self.text_spec.observation_schema()

    def get_action_schema(self) -> dict[str, Any]:
        """Return a JSON schema of an action's name."""
        return self.text_spec.action_schema()

    def get_goal_description(self) -> str:
        """Return what the task is."""
        return self.text_spec.goal
