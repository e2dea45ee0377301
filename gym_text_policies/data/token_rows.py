"""Episodes as sequences of tokens, as they were read and said at play; nothing is tokenised again.

An episode that was played with ``tokens=True`` and an append-only strategy (``chat`` with the whole history) is one sequence: the
first prompt, and behind it by turns what the model said and what it read next. The mask tells them apart. Any other strategy, or a
chat that became longer than the model's window, gives a new sequence wherever a prompt does not go on from what was read and said
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.policy import episode_key
from gym_text_policies.records import Episode


@dataclass(frozen=True)
class TokenRow:
    """A sequence: a prompt of P tokens, and a completion of C tokens, the last of which the model said."""

    prompt: tuple[int, ...]
    """Tokens of the first prompt."""
    completion: tuple[int, ...]
    """Tokens that were said, and those that were read between them."""
    mask: tuple[int, ...]
    """For each token of the completion, 1 where the model said it, 0 where it read it."""
    log_probs: tuple[float, ...]
    """Log-probability at play of each token of the completion, in nats; 0 where it was read."""
    rewards: tuple[float, ...]
    """For each token of the completion, the reward of the step that it is the last word of; else 0. They sum to the row's
    reward."""
    decisions: int
    """Number of decisions in it."""
    last: bool
    """Whether it is its episode's last."""
    group: str
    """Name of the level, equal for all episodes of the same environment and seed."""
    member: int
    """Number of the episode among those of its group."""
    episode: Episode
    """The episode."""


def token_rows(episodes: Iterable[Episode]) -> list[TokenRow]:
    """Return the sequences of episodes, episode by episode; episodes without a decision give none.

    Raises:
        UsageError: If a decision has no tokens.
    """
    members: dict[str, int] = {}
    rows = []
    for episode in episodes:
        group = episode_key(_level(episode.environment), {}, episode.seed)
        member = members[group] = members.get(group, -1) + 1
        stretches = _stretches(episode)
        for number, parts in enumerate(stretches, 1):
            rows.append(TokenRow(**parts, last=number == len(stretches), group=group, member=member, episode=episode))
    return rows


def _stretches(episode: Episode) -> list[dict[str, Any]]:
    """Return the sequences of an episode as the fields of their rows that depend on the tokens."""
    found: list[dict[str, Any]] = []
    missing = 0.0  # rewards of steps that were not asked for, before any that was
    for step in episode.steps:
        tokens = step.decision.tokens
        if tokens is None and len(step.decision.probabilities or ()) != 1:
            raise UsageError(
                f"episodes: expected decisions with tokens; the action {step.decision.action!r} of seed {episode.seed} has "
                "none. Play with a language model and tokens=True (gym-text collect --tokens)."
            )
        if tokens is None:  # there was no other action, and nobody was asked: the reward is that of the decision before
            if found:
                found[-1]["rewards"][-1] += step.reward
            else:
                missing += step.reward
            continue
        row = found[-1] if found else None
        read = (*row["prompt"], *row["completion"]) if row else ()
        if row is None or tokens.prompt[: len(read)] != read:
            row = {"prompt": tokens.prompt, "completion": [], "mask": [], "log_probs": [], "rewards": [], "decisions": 0}
            found.append(row)
            read = tokens.prompt
        between = tokens.prompt[len(read) :]
        said = len(tokens.said)
        row["completion"] += [*between, *tokens.said]
        row["mask"] += [0] * len(between) + [1] * said
        row["log_probs"] += [0.0] * len(between) + list(tokens.log_probs)
        row["rewards"] += [0.0] * (len(between) + said - 1) + [step.reward + missing]
        row["decisions"] += 1
        missing = 0.0
    return [{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()} for row in found]


def _level(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a level beside its seed: an environment without the wrappers that a policy puts on."""
    wrappers = [wrapper for wrapper in environment["wrappers"] if wrapper[0] != "History"]
    return {**environment, "wrappers": wrappers}
