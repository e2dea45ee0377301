"""`Memory`: what a player has read and done, for games that show the present alone."""

from __future__ import annotations

from collections import Counter


class Memory:
    """Notes actions by what was seen when they were played, and adds a line about them to an observation's text."""

    def __init__(self) -> None:
        self._done: dict[str, Counter[str]] = {}
        self._seen = ""
        self.read = ""
        """What the player has read, which is told again in all later texts."""

    def note(self, action: str) -> None:
        """Note an action in what was seen last."""
        self._done.setdefault(self._seen, Counter())[action] += 1

    def told(self, text: str, seen: str) -> str:
        """Return an observation's text with what was read, and what was done before where all that is `seen` was the same."""
        self._seen = seen
        if self.read and self.read != text:
            text += f"\nRead before: {self.read}"
        if done := self._done.get(seen):
            text += "\nDone here before: " + ", ".join(f"{name} {count}" for name, count in sorted(done.items())) + "."
        return text
