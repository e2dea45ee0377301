"""A `rollout_func` for TRL's `GRPOTrainer` (TRL 1.16), for models whose chat template has no tools.

TRL hands over the prompts of a batch and takes back tokens. One completion is a whole episode: what the model said, and between it
what it read, which the mask leaves out of the loss. Play is this package's own (`rollout`, the renderer of prompts, the model in
this process with what it has read kept), by a copy of the model as it is now; its tokens and log-probabilities reach the trainer as
they were drawn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.data.token_rows import TokenRow, token_rows
from gym_text_policies.environments import check_no_fold, environment_maker, fold_arguments
from gym_text_policies.load import load_policy
from gym_text_policies.old_names import old_names
from gym_text_policies.policy import Policy
from gym_text_policies.records import Decision, Episode, Turn
from gym_text_policies.rollouts import rollout
from gym_text_policies.training.trajectories import log_failures

RolloutFunc = Callable[[Sequence[Any], Any], dict[str, list[Any]]]
_FREE = {"top_p": (1.0, None), "top_k": (0, None), "min_p": (0.0, None), "repetition_penalty": (1.0, None)}
"""Settings of GRPOConfig by which a token is drawn from the model's own probabilities; the temperature may differ from 1."""


@old_names(batch="num_envs")
def trl_rollout(environment: str, *, num_envs: int = 16, **settings: Any) -> RolloutFunc:
    """Return a `rollout_func`: it plays a level for each prompt of `gym_text_policies.bridges.trl.trl_dataset`.

    Prompts of one level are episodes of their own: the level is equal, what the model draws is not. The trainer's temperature
    holds; answers are words, drawn token by token, as the trainer computes their probabilities. Beside TRL's ``prompt_ids``,
    ``completion_ids``, ``logprobs`` and ``env_mask`` it returns ``reward`` (the return), ``success``, ``steps`` and ``invalid``
    (steps with an unusable answer), which TRL hands to its reward functions: see `episode_reward`. Of an episode that ended in an
    error the reward is None, and the log says why.

    Args:
        environment: Its name, with arguments as in ``BabyAIText-v0?task=goto&max_episode_steps=24``; the fold is the rows'. TRL's
            `max_completion_length` does not bound an episode; the step limit does.
        num_envs: Episodes that run at once; the model decides for them together.
        settings: Of `PolicyConfig`: ``max_tokens`` of an answer (by default 16), ``on_invalid``, ``with_reward`` …

    Raises:
        UsageError: If there is no such environment, or `settings` asks in a way that does not give one growing conversation of
        words.
    """
    check_no_fold("environment", [environment], "rows'")
    environment_maker(environment)
    settings = {"strategy": "chat", "history": "all", "mode": "text"} | settings
    if settings["history"] != "all" or settings["mode"] != "text" or "temperature" in settings:
        raise UsageError("trl_rollout: expected history='all', mode='text' and the trainer's temperature; they cannot be changed.")
    calls = 0

    def play(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        nonlocal calls
        calls += 1
        seed = [trainer.args.seed, trainer.state.global_step, trainer.accelerator.process_index, calls]
        model, options = _player(trainer), settings | {"temperature": trainer.args.temperature, "tokens": True}
        levels = [_level(prompt) for prompt in prompts]
        played: dict[int, Episode] = {}
        for fold in dict.fromkeys(fold for fold, _ in levels):
            make_env = environment_maker(environment, **fold_arguments(environment, fold))
            with make_env() as env:
                policy = _Apart(load_policy(model, env, **options), [*seed, len(played)])
            places = [place for place, level in enumerate(levels) if level[0] == fold]
            for episode in rollout(make_env, policy, [levels[place][1] for place in places], num_envs=num_envs):
                place = next(place for place in places if levels[place][1] == episode.seed and place not in played)
                played[place] = episode
        return _fields([played[place] for place in range(len(prompts))], trainer.processing_class.eos_token_id)

    return play


def episode_reward(
    reward: Sequence[float | None], success: Sequence[bool], log_metric: Any = None, **others: Any
) -> list[float | None]:
    """Return each episode's return, as a reward function of TRL; the share of episodes that were won is logged as ``success``.

    An episode that ended in an error has none: it counts in no mean of a group, and nothing is learnt from it.
    """
    whole = [won for won, value in zip(success, reward, strict=True) if value is not None]
    if log_metric is not None and whole:
        log_metric("success", float(np.mean(whole)))
    return [None if value is None else float(value) for value in reward]


class _Apart(Policy):
    """A policy whose episodes are drawn apart, also those of one level.

    Args:
        policy: The policy.
        seed: Of what is drawn.
    """

    def __init__(self, policy: Policy, seed: Sequence[int]) -> None:
        super().__init__(policy.spec)
        self._policy = policy
        self._entropy = seed
        self._numbers: dict[str, int] = {}  # of episodes, as they begin

    @property
    def config(self) -> dict[str, Any]:
        return self._policy.config

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        return self._policy.wrap(env)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        return self._policy.decide([replace(turn, rng=self._rng(turn)) for turn in turns])

    def _rng(self, turn: Turn) -> np.random.Generator:
        """Return the generator of a turn: of the seed, the episode's number and the step."""
        number = self._numbers.setdefault(turn.episode, len(self._numbers))
        return np.random.default_rng([*self._entropy, number, turn.step])


def _player(trainer: Any) -> TransformersBackend:
    """Return a backend that plays as the trainer's model does now: a copy, its adapter merged.

    Raises:
        UsageError: If the trainer draws in another way than from the model's own probabilities.
    """
    for name, free in _FREE.items():
        if (value := getattr(trainer.args, name, None)) not in free:
            raise UsageError(
                f"GRPOConfig: expected {name}={free[0]!r}, so that what is drawn has the model's probability; got {value!r}."
            )
    player = copy.deepcopy(trainer.accelerator.unwrap_model(trainer.model))
    if hasattr(player, "merge_and_unload"):
        player = player.merge_and_unload()
    player.__dict__.pop("forward", None)  # TRL has put its own there, which calls the model that is being trained
    return TransformersBackend(player.eval(), trainer.processing_class, "trl", optimise=True)


def _level(prompt: Any) -> tuple[str, int]:
    """Return the fold and the seed of a prompt."""
    try:
        return str(prompt[-1]["fold"]), int(prompt[-1]["seed"])
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"prompt: expected a row of trl_dataset, whose messages carry fold and seed; got {str(prompt)[:80]}."
        ) from error


def _fields(episodes: Sequence[Episode], end: int) -> dict[str, list[Any]]:
    """Return what TRL takes of episodes, one entry for each.

    Args:
        episodes: The episodes.
        end: Token that stands, out of the mask, where nobody was asked: an episode failed before, or had no choice to make.
    """
    log_failures("trl_rollout", episodes)
    rows: list[TokenRow | None] = []
    for episode in episodes:
        own = token_rows([episode])
        if len(own) > 1:
            raise UsageError(
                "trl_rollout: expected episodes within the model's window, each of them one growing conversation; one is longer. "
                "Lower the environment's max_episode_steps."
            )
        rows.append(own[0] if own else None)
    return {
        "prompt_ids": [list(row.prompt) if row else [end] for row in rows],
        "completion_ids": [list(row.completion) if row else [end] for row in rows],
        "logprobs": [list(row.log_probs) if row else [0.0] for row in rows],
        "env_mask": [list(row.mask) if row else [0] for row in rows],
        "reward": [None if episode.error is not None else episode.total_reward for episode in episodes],
        "success": [episode.outcome == "won" for episode in episodes],
        "steps": [episode.length for episode in episodes],
        "invalid": [episode.invalid for episode in episodes],
    }
