"""Decisions of episodes as arrays, for a trainer of your own.

>>> from gym_text_policies.data.arrays import decisions_of
>>> decisions_of([], tokenizer=None).rewards.shape
(0,)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gym_text.errors import UsageError
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.tokens import end_of_turn, prompt_tokens, text_tokens
from gym_text_policies.policy import tempered
from gym_text_policies.records import Episode


@dataclass(frozen=True)
class Decisions:
    """N decisions, episode by episode, step by step."""

    prompts: list[np.ndarray]
    """Token ids of each prompt, up to where the model's answer begins."""
    candidates: list[list[np.ndarray]]
    """Token ids of each valid action, with the end of turn. The model scored these tokens after the prompt."""
    actions: np.ndarray
    """Index, among the candidates, of the action that was taken; int64 of shape (N,)."""
    log_probs: np.ndarray
    """Log-probability, in play, of the action that was taken, at the temperature of play, in nats; float64 of shape (N,)."""
    rewards: np.ndarray
    """Reward of each step; float64 of shape (N,)."""
    returns: np.ndarray
    """Sum of the rewards of each decision's episode; float64 of shape (N,)."""
    episodes: np.ndarray
    """Index of each decision's episode among the given episodes; int64 of shape (N,)."""
    groups: np.ndarray
    """Seed of each decision's episode. Episodes of the same level have the same seed. int64 of shape (N,)."""

    def __len__(self) -> int:
        return len(self.prompts)


def decisions_of(episodes: Iterable[Episode], tokenizer: Any) -> Decisions:
    """Return the decisions of episodes that a language model has played in ``choose`` as arrays.

    Prompts and candidates are tokenised separately, as they were at play. So the tokens of a prompt never depend on the answer.

    Args:
        episodes: Episodes of one environment, as `rollout` yields them.
        tokenizer: The model's tokenizer, of transformers.

    Raises:
        UsageError: If a decision has no prompt, or no probabilities, or a thought of the model stood before it.
    """
    prompts, candidates, rows = [], [], []
    for number, episode in enumerate(episodes):
        arguments = episode.policy.get("template_kwargs")
        temperature = float(episode.policy.get("temperature") or 1.0)  # greedy play has temperature 0: take the probabilities at 1
        answer_start, end = (
            format_of(tokenizer, arguments).answer_start(episode.policy.get("think")),
            end_of_turn(tokenizer, arguments),
        )
        if answer_start.thinks:
            raise UsageError("episodes: expected decisions without thoughts, of which no array has room. Play with think=False.")
        for step in episode.steps:
            chances, action = step.decision.probabilities, step.decision.action
            if not step.decision.messages or not chances or action not in chances or step.decision.probability_kind == "letter":
                raise UsageError(
                    "episodes: expected decisions of a language model in mode 'choose', with a prompt and probabilities; "
                    f"got the action {action!r} without. Play with load_policy(model, env, mode='choose', temperature=1.0)."
                )
            index = list(chances).index(action)
            log_prob = np.log(tempered(list(chances.values()), temperature)[index])
            prompts.append(np.array(prompt_tokens(tokenizer, step.decision.messages, answer_start)))
            candidates.append([np.array([*text_tokens(tokenizer, name), end]) for name in chances])
            rows.append((index, log_prob, step.reward, episode.total_reward, number, episode.seed))
    actions, log_probs, rewards, returns, numbers, seeds = np.array(rows, dtype=float).reshape(-1, 6).T
    whole = (column.astype(np.int64) for column in (actions, numbers, seeds))
    return Decisions(prompts, candidates, next(whole), log_probs, rewards, returns, next(whole), next(whole))
