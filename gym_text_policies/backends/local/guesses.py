"""Guesses at what a model says next: what followed the last time that the same tokens were said (prompt lookup), here or earlier.

A pass that reads a few guessed tokens costs hardly more than one that reads a single token, and each guess that the model would
have said itself saves a pass; the others are thrown away. The answer is the same, up to rounding. The idea is Apoorv Saxena's
"prompt lookup decoding" (2023, https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST = 3
"""Tokens that have to be the same for the best guess."""
_REMEMBERED = 20_000
"""Tokens of earlier answers that are kept, about."""


class Guesser:
    """Remembers where each run of one to three tokens was said last, in a prompt and in the answer as it grows.

    Args:
        prompt: The tokens said so far.
        earlier: What was answered to other prompts: a model often says the same again. It is asked first for a run
            of that length.
    """

    def __init__(self, prompt: Sequence[int] = (), earlier: Guesser | None = None) -> None:
        self._earlier = earlier
        self._said: list[int] = []
        self._followed: dict[tuple[int, ...], int] = {}  # run of tokens -> place of what followed it last
        self.say(prompt)

    def __len__(self) -> int:
        return len(self._said)

    def say(self, tokens: Sequence[int]) -> None:
        """Add tokens to what was said."""
        for token in tokens:
            place = len(self._said)  # the runs that end before it are followed by it
            for size in range(1, min(_LONGEST, place) + 1):
                self._followed[tuple(self._said[place - size : place])] = place
            self._said.append(token)

    def guess(self, most: int) -> list[int]:
        """Return at most `most` tokens that may come next; none where nothing like the end was said before.

        What follows the end of all that was said is what was guessed already: a line that repeats goes on repeating.
        """
        for size in range(min(_LONGEST, len(self._said)), 0, -1):
            for known in (self._earlier, self) if self._earlier is not None else (self,):
                place = known._followed.get(tuple(self._said[-size:]))
                if place is not None and most > 0:
                    guessed = known._said[place : place + most]
                    while len(guessed) < most:
                        guessed += guessed[: most - len(guessed)]
                    return guessed
        return []

    def remember(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Add the answer to another prompt; when there are too many of them, all are forgotten."""
        if len(self) > _REMEMBERED:
            self._said, self._followed = [], {}
        self.say([*prompt[-_LONGEST:], *answer])
