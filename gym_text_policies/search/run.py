"""The loop of a search. It continues after the last evaluation in its run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.load import load_backend
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.files.safe_files import replacing, subfolder
from gym_text_policies.search.evaluate import Evaluator, Rollout
from gym_text_policies.search.evaluations import Evaluation, EvaluationStore, Found, best, summarise
from gym_text_policies.search.model import ModelOptimiser
from gym_text_policies.search.optimisers import (
    CmaOptimiser,
    GpOptimiser,
    Optimiser,
    RandomOptimiser,
    SequentialOptimiser,
    ZeroOptimiser,
)
from gym_text_policies.search.search_config import SearchConfig

Watch = Callable[[Evaluation, Evaluation], None]
"""Called after each evaluation, with this evaluation and the best so far."""


def search(config: SearchConfig, *, backend: Backend | None = None, watch: Watch | None = None) -> Found:
    """Run a search. If its run folder has evaluations already, continue after them.

    Args:
        config: All settings. With an empty folder name nothing is written to disk.
        backend: The language model, in place of ``config.model``.
        watch: Called after each evaluation.

    Raises:
        UsageError: If the folder belongs to another search, or a setting is impossible.
        PolicyError: If the model or its provider fails; the run folder keeps finished evaluations.
    """
    with ExitStack() as stack:
        evaluator = stack.enter_context(closing(Evaluator(config.task, workers=config.workers)))
        optimiser = make_optimiser(config, evaluator, backend)
        if not config.folder:
            return _loop(config, evaluator, optimiser, None, watch)
        with EvaluationStore(config.folder, config.identity()) as store:
            return _loop(config, evaluator, optimiser, store, watch)


def _loop(
    config: SearchConfig, evaluator: Evaluator, optimiser: Optimiser, store: EvaluationStore | None, watch: Watch | None
) -> Found:
    history = store.evaluations() if store is not None else []
    top = best(history) if history else None
    quantities = [q.name for key in evaluator.form.keys for q in evaluator.spec.fields[key].quantities]
    while len(history) < config.evaluations:
        proposals = optimiser.propose(history)[: min(evaluator.at_once, config.evaluations - len(history))]
        keep = store is not None or "model" in config.stages
        for proposal, rollouts in zip(proposals, evaluator([p.parameters for p in proposals], keep=keep), strict=True):
            evaluation = Evaluation(
                len(history),
                proposal,
                tuple(rollout.total_reward for rollout in rollouts),
                tuple(rollout.length for rollout in rollouts),
                sum(rollout.success for rollout in rollouts),
                summarise(rollouts, quantities) if keep else "",
            )
            if store is not None:
                save_trajectories(trajectory_path(store.folder, evaluation.index), rollouts)
                store.append(evaluation)
            history.append(evaluation)
            if top is None or evaluation.value > top.value:
                top = evaluation
                if store is not None:
                    _save_policy(store.folder, config, evaluator, top)
            if watch:
                watch(evaluation, top)
    if store is not None and top:  # a killed run may have stored the evaluation, but not the policy
        _save_policy(store.folder, config, evaluator, top)
    return Found(tuple(history), _policy_of(config, evaluator, best(history)))


def make_optimiser(config: SearchConfig, evaluator: Evaluator, backend: Backend | None = None) -> Optimiser:
    """Return the optimiser of a configuration, with its warm-up."""
    start, optimisers = config.warmup_evaluations, []
    for index, name in enumerate(config.stages):
        optimisers.append(_stage(name, config, evaluator, backend, config.takes_over_at if index else start))
    optimiser = optimisers[0] if len(optimisers) == 1 else SequentialOptimiser(optimisers[0], optimisers[1], config.takes_over_at)
    return SequentialOptimiser(RandomOptimiser(evaluator.form, config.seed), optimiser, start) if start else optimiser


def _stage(name: str, config: SearchConfig, evaluator: Evaluator, backend: Backend | None, start: int) -> Optimiser:
    form, seed = evaluator.form, config.seed
    if name == "model":
        backend = backend or load_backend(config.model, **config.options)
        return ModelOptimiser(form, seed, backend, config, evaluator.spec, start=start)
    if name == "cma":
        return CmaOptimiser(form, seed, sigma=config.first_sigma, start=start)
    if name == "gp":
        return GpOptimiser(form, seed, start=start)
    return RandomOptimiser(form, seed) if name == "random" else ZeroOptimiser(form, seed)


def trajectory_path(folder: Path, index: int) -> Path:
    """Return the file of an evaluation's trajectories."""
    return folder / "trajectories" / f"{index:06d}.npz"


def save_trajectories(path: Path, rollouts: Sequence[Rollout]) -> None:
    """Write observations and actions, compressed. The rollouts are concatenated; ``lengths`` has the number of steps of each."""
    subfolder(path.parent.parent, path.parent.name)
    with replacing(path) as file:
        np.savez_compressed(
            file,
            seeds=[rollout.seed for rollout in rollouts],
            lengths=[rollout.length for rollout in rollouts],
            returns=[rollout.total_reward for rollout in rollouts],
            observations=np.concatenate([rollout.observations for rollout in rollouts]),
            actions=np.concatenate([rollout.actions for rollout in rollouts]),
        )


def _policy_of(config: SearchConfig, evaluator: Evaluator, evaluation: Evaluation) -> dict[str, Any]:
    names = [parameter.name for parameter in evaluator.form.parameters]
    return {
        "policy": evaluator.form.kind,
        "parameters": dict(zip(names, evaluation.parameters, strict=True)),
        "environment": config.environment,
        "value": evaluation.value,
        "evaluation": evaluation.index,
        "rollouts": len(evaluation.returns),
        "optimiser": config.optimiser,
    }


def _save_policy(folder: Path, config: SearchConfig, evaluator: Evaluator, evaluation: Evaluation) -> None:
    write_atomically(folder / "policy.json", json.dumps(_policy_of(config, evaluator, evaluation), indent=1) + "\n")
