"""A `rollout_func` for TRL's `GRPOTrainer` (TRL 1.16), for models whose chat template has no tools.

TRL passes the prompts of a batch to the function and takes token ids back. One completion is a whole episode: the model's answers
and, between them, the observations, which the mask excludes from the loss. `rollout` plays the episodes with a copy of the model as
it is now, in this process and with a key-value cache. The trainer gets the tokens and log-probabilities that were sampled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError, check_options
from gym_text.folds import Fold
from gym_text_policies.answers import TellUnusable, Unusable
from gym_text_policies.backends.base import THINKING, Backend
from gym_text_policies.backends.chat_format import Think
from gym_text_policies.backends.local.rendering import format_of, set_format
from gym_text_policies.backends.local.tokens import end_of_turn
from gym_text_policies.bridges.levels import level_maker
from gym_text_policies.bridges.trl import check_row
from gym_text_policies.environments import levels_of
from gym_text_policies.game import MakeEnv
from gym_text_policies.load import load_policy
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policies.mixed import SeparateDraws
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Decision, Episode, Turn
from gym_text_policies.rollouts import rollout
from gym_text_policies.training.model.player import player_of
from gym_text_policies.training.trajectories import log_failures

SETTINGS = ("max_tokens", "strategy", *THINKING, "with_reward")
"""Settings of `PolicyConfig` that `trl_rollout` takes."""
RolloutFunc = Callable[[Sequence[Any], Any], dict[str, list[Any]]]
_SAMPLING: dict[str, tuple[Any, ...]] = {
    **{"top_p": (1.0, None), "top_k": (0, None), "min_p": (0.0, None), "repetition_penalty": (1.0, None)},
    "generation_kwargs": (None, {}),
}
"""Settings of GRPOConfig by which a token is drawn from the model's own probabilities; the temperature may differ from 1."""
_TOO_LONG = (
    "The episode is longer than the model's window, so that it is no sequence of tokens. Lower the environment's max_episode_steps."
)
_NO_THOUGHT = (
    "A model that can think answered without a thought, which this chat template writes in another way in later prompts. So the "
    "episode is no sequence of tokens. Set think=False if the model seldom thinks."
)


def trl_rollout(environment: str, *, num_envs: int = 16, **settings: Any) -> RolloutFunc:
    """Return a `rollout_func`: it plays a level for each prompt of `gym_text_policies.bridges.trl.trl_dataset`.

    Equal prompts give different episodes of the same level: the model samples independently in each. The model answers with words.
    They are sampled token by token at the trainer's temperature, so that the trainer computes the same probabilities. About an
    answer that cannot be used the model is told, see `gym_text_policies.answers`. Beside TRL's ``prompt_ids``,
    ``completion_ids``, ``logprobs`` and ``env_mask`` the function returns ``reward`` (the return), ``success``, ``steps`` (the
    number of actions that were played) and ``invalid`` (the number of unusable answers). TRL passes these to its reward functions,
    see `episode_reward`. If an episode ends in an error, its reward is None, and the log has the error.

    An episode is one sequence of tokens. So the chat template has to write earlier answers as the model generated them. A template
    that rewrites them is refused. TRL has others for many models, which keep the past: `get_training_chat_template`. A model that
    thinks by itself reads its earlier thoughts again, unless ``think=False`` asks it not to think. The template gets the trainer's
    ``chat_template_kwargs``.

    Args:
        environment: The environment's name, with arguments as in ``BabyAIText-v0?task=goto&max_episode_steps=24``. The fold comes
            from the rows. Only the step limit limits the length of an episode; TRL's `max_completion_length` does not.
        num_envs: Episodes that run at once; the model decides for them together.
        settings: Settings of `PolicyConfig`: ``max_tokens`` of an answer (by default 16), ``strategy`` (by default ``chat``; one
            whose later prompts begin with the earlier ones, as `Prompt` renders them), ``think``, ``think_tokens``,
            ``with_reward``. Others are refused: the mode is text, the history is whole, and temperature and seed are the trainer's.

    Raises:
        UsageError: If there is no such environment, or `settings` has another setting or another kind of strategy. The function
            that is returned also raises it, if a prompt is a row for another environment, the chat template rewrites earlier
            answers, or the trainer has settings with which the model's own probabilities are not those that are drawn from, or
            plays with vLLM.
    """
    check_options("trl_rollout", settings, SETTINGS)
    settings = {"strategy": "chat", "history": "all", "mode": "text", "with_reward": False} | settings
    asked = PolicyConfig.of("trl", **settings, own_words=True)
    with level_maker(environment, "train")() as env:
        _check_grows(str(asked.strategy), env)
    calls = 0

    def play(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        nonlocal calls
        calls += 1
        seed = [trainer.args.seed, trainer.state.global_step, trainer.accelerator.process_index, calls]
        options = {**settings, **_past_kept(trainer, asked.think), "temperature": trainer.args.temperature, "tokens": True}
        levels = [_level(prompt, environment) for prompt in prompts]
        episodes: dict[int, Episode] = {}  # by the index of the prompt
        with _player(trainer) as model:
            for fold in dict.fromkeys(fold for fold, _ in levels):
                make_env = _telling(level_maker(environment, fold))
                with make_env() as env:
                    indices = [index for index, level in enumerate(levels) if level[0] == fold]
                    policy = _Marking(load_policy(model, env, **options), [[*seed, index] for index in indices])
                for episode in rollout(make_env, policy, [levels[index][1] for index in indices], num_envs=num_envs):
                    index = next(index for index in indices if levels[index][1] == episode.seed and index not in episodes)
                    episodes[index] = episode
        return _fields([episodes[index] for index in range(len(prompts))], end_of_turn(trainer.processing_class))

    play.asked = asked  # type: ignore[attr-defined]  # for `trl_record`
    return play


class TokenRow(NamedTuple):
    """A sequence of exactly the tokens that the model read and generated at play. No text is tokenised again."""

    prompt: list[int]
    """Tokens of the first prompt."""
    completion: list[int]
    """Tokens that the model generated, and those that it read in between or that were written in its place."""
    mask: list[int]
    """For each token of the completion, 1 if the model generated the token, 0 if the model read it."""
    log_probs: list[float]
    """Log-probability at play of each token of the completion, in nats; 0 for tokens that were read."""


def token_rows(episode: Episode) -> list[TokenRow]:
    """Return the sequences of an episode that was played with ``tokens=True``; none if the model was never asked.

    An episode is one sequence if each prompt begins with the prompt and the answer before it. Where one does not, a new one begins.
    """
    rows: list[TokenRow] = []
    for step in episode.steps:
        tokens = step.decision.tokens
        if tokens is None:  # only one action was valid, and the model was not asked
            continue
        read = [*rows[-1].prompt, *rows[-1].completion] if rows else []
        if not rows or list(tokens.prompt[: len(read)]) != read:
            rows.append(TokenRow(list(tokens.prompt), [], [], []))
            read = rows[-1].prompt
        between = tokens.prompt[len(read) :]
        rows[-1].completion.extend((*between, *tokens.said))
        rows[-1].mask.extend([0] * len(between) + [int(number not in tokens.written) for number in range(len(tokens.said))])
        rows[-1].log_probs.extend([0.0] * len(between) + list(tokens.log_probs))
    return rows


def episode_reward(
    reward: Sequence[float | None], success: Sequence[bool], log_metric: Any = None, **others: Any
) -> list[float | None]:
    """Return the return of each episode, as a reward function of TRL, and log the share of won episodes as ``success``.

    The value of an episode that ended in an error is None. TRL leaves it out of the group's mean and learns nothing from it.
    """
    wins = [won for won, value in zip(success, reward, strict=True) if value is not None]
    if log_metric is not None and wins:
        log_metric("success", float(np.mean(wins)))
    return [None if value is None else float(value) for value in reward]


def _check_grows(strategy: str, env: gym.Env[Any, Any]) -> None:
    """Raise `UsageError` unless a strategy's later prompts begin with its earlier ones."""
    prompt, spec, (obs, _) = Prompt(strategy), text_spec(env), env.reset(seed=0)
    first = prompt.render(spec, obs)
    later = {**obs, "text": "Something else.", "history": ((obs["text"], "an action"),)}
    if prompt.uses_examples or prompt.render(spec, later)[: len(first)] != first:
        raise UsageError(
            "trl_rollout: expected a strategy whose later prompts begin with the earlier ones and that shows no examples, such as "
            f"'chat'; got {strategy!r}."
        )


def _telling(make_env: MakeEnv) -> MakeEnv:
    """Return what makes an environment that tells about unusable answers."""
    return lambda: TellUnusable(make_env())


class _Marking(SeparateDraws):
    """A policy whose answers that cannot be used become `Unusable`."""

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Let the other policy decide, and mark unusable answers."""
        return [one if one.valid else replace(one, action=Unusable(one.completion or "")) for one in super().decide(turns)]


@contextlib.contextmanager
def _player(trainer: Any) -> Iterator[Backend]:
    """Give what `player_of` makes of the trainer's model as it is now.

    Raises:
        UsageError: If the trainer does not sample from the model's own probabilities, or plays with vLLM.
    """
    if trainer.args.use_vllm:
        raise UsageError(
            "GRPOConfig: expected use_vllm=False with trl_rollout, by which a copy of the model plays in the trainer's process. "
            "With vLLM a model plays by tools: environment_factory=trl_environment(...)."
        )
    for name, allowed in _SAMPLING.items():
        if (value := getattr(trainer.args, name, None)) not in allowed:
            raise UsageError(
                f"GRPOConfig: expected {name}={allowed[0]!r}, so that what is drawn has the model's probability; got {value!r}."
            )
    model = trainer.accelerator.unwrap_model(trainer.model)
    training = model.training
    try:
        yield player_of(model, trainer.processing_class, name="trl")
    finally:
        if model.training != training:  # a model in 4 bits plays itself
            model.train(training)


def _past_kept(trainer: Any, think: Think) -> dict[str, Any]:
    """Return the settings with which each prompt begins with the tokens of the prompt and the answer before it.

    Raises:
        UsageError: If the chat template rewrites earlier answers.
    """
    set_format(trainer.processing_class, trainer.args.chat_template_kwargs or {})
    known = format_of(trainer.processing_class)
    answer_start = known.answer_start(think)
    if not known.continues(answer_start, thought=answer_start.thinks):
        raise UsageError(
            "trl_rollout: expected a chat template that writes earlier answers as the model generated them; this one does not, "
            "so that an episode is no sequence of tokens. Give the tokenizer one that keeps them: "
            "tokenizer.chat_template = trl.chat_template_utils.get_training_chat_template(tokenizer)."
        )
    return {"history_thoughts": "all"} if answer_start.thinks else {}


def _level(prompt: Any, environment: str) -> tuple[Fold, int]:
    """Return the fold and the seed of a prompt, which has to be of this environment."""
    try:
        level = prompt[-1]["fold"], int(prompt[-1]["seed"])
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"prompt: expected a row of trl_dataset, whose messages carry fold and seed; got {str(prompt)[:80]}."
        ) from error
    check_row(prompt[-1], environment=levels_of(environment))
    return level


def _continued(episode: Episode) -> Episode:
    """Return an episode, with an error if it is no sequence of tokens. TRL learns nothing from an episode with an error."""
    if len(token_rows(episode)) <= 1:
        return episode
    dropped = any(step.decision.turns_dropped for step in episode.steps)
    return replace(episode, error=_TOO_LONG if dropped else _NO_THOUGHT)


def _fields(episodes: Sequence[Episode], end: int) -> dict[str, list[Any]]:
    """Return the fields that TRL reads, with one entry for each episode.

    Args:
        episodes: The episodes.
        end: A token that stands, outside of the mask, for an episode in which the model was never asked: the episode failed before,
            or there was never more than one action.
    """
    never_asked = TokenRow([end], [end], [0], [0.0])
    rows = [next(iter(token_rows(episode)), never_asked) for episode in episodes]
    episodes = [_continued(episode) for episode in episodes]
    log_failures("trl_rollout", episodes)
    return {
        "prompt_ids": [row.prompt for row in rows],
        "completion_ids": [row.completion for row in rows],
        "logprobs": [row.log_probs for row in rows],
        "env_mask": [row.mask for row in rows],
        "reward": [None if episode.error is not None else episode.total_reward for episode in episodes],
        "success": [episode.outcome == "won" for episode in episodes],
        "steps": [episode.length - episode.invalid for episode in episodes],
        "invalid": [episode.invalid for episode in episodes],
    }
