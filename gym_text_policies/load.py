"""`load_policy`: from one string to a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym

from gym_text.errors import UsageError, unknown_choice
from gym_text_policies.backends.base import Backend
from gym_text_policies.baselines import ControllerPolicy, GoldPolicy, RandomPolicy
from gym_text_policies.llm import LLMPolicy
from gym_text_policies.policy import Policy, text_spec


def load_policy(model: str | Backend, env: gym.Env[Any, Any], *, seed: int = 0, **options: Any) -> Policy:
    """Return a policy for an environment.

    Args:
        model: ``random``, ``gold`` (the environment's expert) or ``controller`` (of a control task). Or a language model:
            ``smollm2`` (the embedded one), ``hf:OWNER/NAME``, a folder, or a `Backend`.
        env: The environment to play.
        seed: Seed of all that the policy draws at random.
        options: Of a language model: strategy, mode, on_invalid, max_tokens; see `LLMPolicy`.

    Returns:
        The policy; play it in ``policy.wrap(env)``.

    Raises:
        UsageError: If there is no such model, or the options are not its own.
        MissingDependencyError: If the model's package is not installed.
    """
    if model in ("random", "gold", "controller"):
        if options:
            raise UsageError(f"policy {model!r}: expected no options; got {', '.join(sorted(options))}.")
        if model == "controller":
            return ControllerPolicy.of(env)
        return RandomPolicy(text_spec(env), seed=seed) if model == "random" else GoldPolicy(text_spec(env))
    try:
        return LLMPolicy(_backend(model), text_spec(env), seed=seed, **options)
    except TypeError as error:
        raise UsageError(f"policy {model!r}: {error}. Options: strategy, mode, on_invalid, max_tokens.") from error


def _backend(model: str | Backend) -> Backend:
    if isinstance(model, Backend):
        return model
    if model == "smollm2" or model.startswith("hf:") or Path(model).is_dir():
        from gym_text_policies.backends.transformers import load_transformers

        return load_transformers(model)
    raise unknown_choice("model", model, ["random", "gold", "controller", "smollm2", "hf:OWNER/NAME", "a folder"])
