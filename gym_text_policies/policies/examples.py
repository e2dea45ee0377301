"""Examples of an expert's play for prompts: whole episodes, or the steps that are most similar to the present one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError, import_extra
from gym_text.experts import check_expert
from gym_text_policies.policies.baselines import GoldPolicy
from gym_text_policies.policy import text_spec
from gym_text_policies.records import Episode
from gym_text_policies.rollouts import rollout


@dataclass(frozen=True)
class Example:
    """Steps of an episode that a prompt shows as an example."""

    goal: str
    """The episode's task."""
    steps: tuple[tuple[str, str], ...]
    """Pairs (text of the observation, name of the action)."""


class FewShot:
    """The examples of a prompt: always the first `count` demonstrations, so that the beginning of the prompt never changes.

    Raises:
        UsageError: If there are no demonstrations.
    """

    def __init__(self, count: int, demonstrations: Iterable[Example]) -> None:
        self._count = count
        self._demonstrations = tuple(demonstrations)
        if not self._demonstrations:
            raise UsageError("examples: expected at least one demonstration; got none. Is there an expert for this environment?")

    def of(self, obs: Mapping[str, Any]) -> Sequence[Example]:
        """Return the examples for an observation."""
        return self._demonstrations[: self._count]

    @property
    def config(self) -> dict[str, Any]:
        """The number of examples, and a hash of the demonstrations."""
        text = json.dumps([asdict(example) for example in self._demonstrations])
        return {"examples": self._count, "demonstrations": hashlib.sha256(text.encode()).hexdigest()[:16]}


class Retrieval(FewShot):
    """Shows single steps with the most similar goal and text, the most similar first. Similarity is BM25 (the package bm25s)."""

    def __init__(self, count: int, demonstrations: Iterable[Example]) -> None:
        super().__init__(count, demonstrations)
        self._bm25s = import_extra("bm25s", "retrieval")
        single = [Example(example.goal, (step,)) for example in self._demonstrations for step in example.steps]
        self._steps = list(dict.fromkeys(single))
        self._index = self._bm25s.BM25()
        self._index.index(self._tokens([f"{step.goal} {step.steps[0][0]}" for step in self._steps]), show_progress=False)

    def _tokens(self, texts: list[str]) -> list[list[str]]:
        tokens: list[list[str]] = self._bm25s.tokenize(texts, stopwords=None, return_ids=False, show_progress=False)
        return tokens

    def of(self, obs: Mapping[str, Any]) -> Sequence[Example]:
        """Return the steps most similar to the observation. Of equally similar steps the earlier comes first."""
        words = self._tokens([f"{obs['goal']} {obs['text']}"])[0]
        scores = self._index.get_scores(words) if words else np.zeros(len(self._steps))
        return [self._steps[index] for index in np.argsort(-scores, kind="stable")[: self._count]]


def gold_examples(env: gym.Env[Any, Any], count: int) -> list[Example]:
    """Return the expert's first `count` won episodes of the environment's train fold, or fewer if it seldom wins.

    Raises:
        UsageError: If the environment was not made by ``gym.make``.
    """
    spec = env.spec
    if spec is None:
        raise UsageError(f"env: expected one made by gym.make, so that its train fold can be played; got {env}.")
    check_expert(env, "examples", on=False)
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"} | {"fold": "train", "expert": "path"}
    make_env = partial(gym.make, spec.id, max_episode_steps=spec.max_episode_steps, **kwargs)
    gold = GoldPolicy(text_spec(env))
    won: list[Episode] = []
    for start in range(0, 4 * count, count):  # at most four times as many levels are played
        won += [episode for episode in rollout(make_env, gold, range(start, start + count)) if episode.outcome == "won"]
        if len(won) >= count:
            break
    examples = []
    for episode in sorted(won, key=lambda episode: episode.seed)[:count]:
        steps = tuple((str(step.observation["text"]), step.decision.action) for step in episode.steps)
        examples.append(Example(str(episode.steps[0].observation["goal"]), steps))
    return examples
