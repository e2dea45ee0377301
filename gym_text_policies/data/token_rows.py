"""Episodes as sequences of exactly the tokens that the model read and generated at play. No text is tokenised again.

An episode that was played with ``tokens=True`` and an append-only strategy (``chat`` with the whole history) is one sequence. The
sequence begins with the first prompt. After that, tokens that the model generated alternate with tokens that it read. A mask marks
the generated tokens. With any other strategy a prompt may not begin with the prompt and the answer before it. Then a new sequence
begins, and also when a chat became longer than the model's window.

Some chat templates do not write earlier answers as the model generated them; most leave out earlier thoughts. With such a template
each decision has a sequence of its own, unless the template keeps the past: see `ChatFormat.continues`.

`trl_lines` writes the sequences for TRL 1.16, by the names of its three readers:

* ``prompt_ids``, ``completion_ids``, ``logprobs``, ``env_mask``: what a `rollout_func` of `GRPOTrainer` returns.
* ``input_ids``, ``completion_mask``, ``old_log_probs``, ``advantage`` (the return less the mean of the level's episodes),
  ``group_id``, ``metrics``: what the collator of `AsyncGRPOTrainer` packs.
* ``input_ids``, ``labels``: what `SFTTrainer` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.policy import episode_key
from gym_text_policies.records import Episode
from gym_text_policies.stored_environment import levels_config

_NOT_LEARNT = -100
"""Label of a token that does not count in the loss."""


@dataclass(frozen=True)
class TokenRow:
    """A sequence: a prompt of P tokens, and a completion of C tokens, the last of which the model generated."""

    prompt: tuple[int, ...]
    """Tokens of the first prompt."""
    completion: tuple[int, ...]
    """Tokens that the model generated, and those that it read in between or that were written in its place."""
    mask: tuple[int, ...]
    """For each token of the completion, 1 if the model generated the token, 0 if the model read it."""
    log_probs: tuple[float, ...]
    """Log-probability at play of each token of the completion, in nats; 0 for tokens that were read."""
    decisions: int
    """Number of decisions in the sequence."""
    last: bool
    """Whether this is the last sequence of its episode."""
    group: str
    """Name of the level, equal for all episodes of the same environment, step limit and seed, whoever plays."""
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
        group = episode_key(levels_config(episode.environment), {}, episode.seed)
        member = members[group] = members.get(group, -1) + 1
        sequences = _sequences(episode)
        for number, fields in enumerate(sequences, 1):
            rows.append(TokenRow(**fields, last=number == len(sequences), group=group, member=member, episode=episode))
    return rows


def _sequences(episode: Episode) -> list[dict[str, Any]]:
    """Return the sequences of an episode. Each has those fields of a `TokenRow` that depend on the tokens."""
    rows: list[dict[str, Any]] = []
    for step in episode.steps:
        tokens = step.decision.tokens
        if tokens is None and len(step.decision.probabilities or ()) != 1:
            raise UsageError(
                f"episodes: expected decisions with tokens; the action {step.decision.action!r} of seed {episode.seed} has "
                "none. Play with a language model and tokens=True (gym-text collect --options tokens=true)."
            )
        if tokens is None:  # only one action was valid, and the model was not asked
            continue
        row = rows[-1] if rows else None
        read = (*row["prompt"], *row["completion"]) if row else ()
        if row is None or tokens.prompt[: len(read)] != read:
            row = {"prompt": tokens.prompt, "completion": [], "mask": [], "log_probs": [], "decisions": 0}
            rows.append(row)
            read = tokens.prompt
        between = tokens.prompt[len(read) :]
        num_generated = len(tokens.said)
        row["completion"] += [*between, *tokens.said]
        row["mask"] += [0] * len(between) + [int(number not in tokens.written) for number in range(num_generated)]
        row["log_probs"] += [0.0] * len(between) + list(tokens.log_probs)
        row["decisions"] += 1
    return [{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()} for row in rows]


def trl_lines(rows: Sequence[TokenRow]) -> list[str]:
    """Return sequences as lines of JSON by TRL's names."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(row.group for row in rows))}
    returns: dict[str, dict[int, float]] = {}
    for row in rows:
        returns.setdefault(row.group, {})[row.member] = row.episode.total_reward
    lines = []
    for row in rows:
        group, prompt = returns[row.group], len(row.prompt)
        labels = [token if generated else _NOT_LEARNT for token, generated in zip(row.completion, row.mask, strict=True)]
        reward = row.episode.total_reward
        data = {
            "prompt_ids": row.prompt,
            "completion_ids": row.completion,
            "logprobs": row.log_probs,
            "env_mask": row.mask,
            "input_ids": row.prompt + row.completion,
            "labels": [_NOT_LEARNT] * prompt + labels,
            "completion_mask": (0,) * prompt + row.mask,
            "old_log_probs": (0.0,) * prompt + row.log_probs,
            "advantage": reward - sum(group.values()) / len(group),
            "group_id": groups[row.group],
            "metrics": {"reward": reward, "success": float(row.episode.outcome == "won")},
            "seed": row.episode.seed,
        }
        lines.append(json.dumps(data))
    return lines
