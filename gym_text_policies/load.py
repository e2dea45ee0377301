"""`load_policy`: from one string, or a `PolicyConfig`, to a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from gym_text.errors import UsageError
from gym_text.experts import check_expert
from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.local.adapters import warn_without_record
from gym_text_policies.backends.threads import settle_threads
from gym_text_policies.policies.baselines import GoldPolicy, RandomPolicy
from gym_text_policies.policies.config import DEFAULTS, FIELDS, PolicyConfig, settings_of
from gym_text_policies.policies.examples import FewShot, Retrieval, gold_examples
from gym_text_policies.policies.llm import LLMPolicy
from gym_text_policies.policies.lookahead import LookAhead, SearchSettings
from gym_text_policies.policies.mixed import ActionRate, MixedPolicy
from gym_text_policies.policies.parametric import load_searched
from gym_text_policies.policies.stable_baselines import StableBaselinesPolicy
from gym_text_policies.policies.user_policies import load_own
from gym_text_policies.policy import Policy, text_spec
from gym_text_policies.prompts import Prompt

_TO_SEARCH = 50
"""Number of the expert's episodes among whose steps strategy ``retrieval`` looks for similar ones."""


def load_policy(model: str | PolicyConfig | Backend, env: gym.Env[Any, Any], **settings: Any) -> Policy:
    """Return a policy for an environment.

    Args:
        model: ``random`` or ``gold`` (the environment's expert). A policy of your own, ``module:Name`` (see `load_own`); a model of
            stable-baselines3, ``sb3:FILE``. Or a language model: ``smollm2`` (the embedded one), ``hf:OWNER/NAME``, a folder (of a
            model or an adapter), ``adapters/NAME`` (one that ships), ``openai:MODEL`` or another provider's, ``module:Name`` of a
            `Backend` of your own, or a `Backend`: see `load_backend`. Or the ``policy.json`` of a search. Or a `PolicyConfig`.
        env: The environment to play.
        settings: Fields of `PolicyConfig`, such as `mode`, `history` and `seed`; they replace those of `model`, if that is one.
            A setting that is not given has the value with which the adapter was trained, else the value of `DEFAULTS`. All other
            settings are options of the backend: `dtype`, `base_url`, `timeout`, `cache` …; or of the class of your own policy.

    Returns:
        The policy; play it in ``policy.wrap(env)``.

    Raises:
        UsageError: If there is no such model, or it does not take the settings.
        MissingDependencyError: If the model's package is not installed.
    """
    settle_threads()
    if not isinstance(model, str | PolicyConfig | Backend):
        raise UsageError(
            f"model: expected a name, a PolicyConfig or a Backend; got {model!r}. "
            "as_policy(player, env) makes a policy of a function."
        )
    backend = model if isinstance(model, Backend) else None
    if isinstance(model, PolicyConfig):
        config = PolicyConfig.of(model.model, **{**model.given, **model.options, **settings})
    else:
        config = PolicyConfig.of(model if isinstance(model, str) else "backend", **settings)
    return _made(_complete(config, env), env, backend)


def load_to_measure(config: PolicyConfig, env: gym.Env[Any, Any], backend: Backend | None = None) -> Policy:
    """Return a policy of which nobody reads more than what it plays, as a run or a dev fold needs it.

    It is as that of `load_policy`, but its model is loaded when it is first asked. And where it plays the most probable action in
    mode ``choose``, the probabilities of the others are left out, unless ``config.probabilities`` is True. `backend` replaces the
    config's model, and the model's own settings.
    """
    if backend is not None:
        config = dataclasses.replace(config, model="backend", options={})
    return _made(_complete(config, env), env, backend, to_measure=True)


def _complete(config: PolicyConfig, env: gym.Env[Any, Any]) -> PolicyConfig:
    """Check a policy's settings, and return them with a value for every setting that matters in an environment."""
    config.check_used()
    if config.mode is None and config.strategy is None:
        warn_without_record(config.model)
    complete = resolved(config, {} if text_spec(env).lists_actions else {"strategy": "words"})
    if complete.lookahead and complete.asks_model and complete.mode != "choose":
        raise UsageError(f"lookahead: expected mode='choose', whose probabilities lead the search; got mode={complete.mode!r}.")
    return complete


def _made(config: PolicyConfig, env: gym.Env[Any, Any], backend: Backend | None, *, to_measure: bool = False) -> Policy:
    settings = config.settings
    if config.lookahead:  # its player draws nothing, and says all probabilities, unless that is refused
        nothing: dict[str, Any] = dict.fromkeys(("lookahead", "noise", "expert_share", "action_rate"))
        player = dataclasses.replace(config, temperature=0.0, probabilities=config.probabilities is not False, **nothing)
        policy: Policy = LookAhead(_made(player, env, backend, to_measure=to_measure), SearchSettings.of(settings))
    elif config.asks_model:
        policy = _language_model(config, env, backend, to_measure)
    else:
        policy = _without_model(config, env)
    if settings["expert_share"]:
        check_expert(env, "expert_share")
    if settings["noise"] or settings["expert_share"]:
        policy = MixedPolicy(policy, noise=settings["noise"], expert_share=settings["expert_share"])
    return policy if settings["action_rate"] == 1 else ActionRate(policy, settings["action_rate"])


def resolved(config: PolicyConfig, usual: Mapping[str, Any] | None = None) -> PolicyConfig:
    """Return a policy's settings with a value for every setting that matters.

    A missing setting has the value in the adapter's record, else in `usual`, the environment's defaults, else in `DEFAULTS`.

    Raises:
        UsageError: If the model is an adapter that does not exist, or whose record is damaged.
    """
    asked = config.with_defaults(settings_of(config.model))
    return asked.with_defaults({**(usual or {}), **asked.usual}).with_defaults(DEFAULTS).for_any()


def _without_model(config: PolicyConfig, env: gym.Env[Any, Any]) -> Policy:
    seed = config.settings["seed"]
    if config.model == "random":
        return RandomPolicy(text_spec(env), seed=seed)
    if config.model == "gold":
        check_expert(env, "policy 'gold'")
        return GoldPolicy(text_spec(env), seed=seed)
    if config.model.startswith("sb3:"):
        drawn = config.deterministic is False
        return StableBaselinesPolicy(config.model.removeprefix("sb3:"), env, deterministic=not drawn, seed=seed if drawn else 0)
    if config.model.endswith(".json"):
        return load_searched(config.model, env)
    return load_own(config.model, env, seed, config.options)


def _language_model(config: PolicyConfig, env: gym.Env[Any, Any], backend: Backend | None, to_measure: bool) -> Policy:
    backend = load_backend(backend or config.model, others=FIELDS, when_asked=to_measure, **config.options)
    settings = config.settings
    examples = None
    if Prompt(settings["strategy"]).uses_examples:
        nearest, shots = settings["strategy"] == "retrieval", settings["shots"]
        examples = (Retrieval if nearest else FewShot)(shots, gold_examples(env, _TO_SEARCH if nearest else shots))
    return LLMPolicy(backend, text_spec(env), config, examples=examples, to_measure=to_measure)
