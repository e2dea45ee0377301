"""`gym-text search`: the loop of a search. It continues after the last evaluation in its run folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from gym_text.errors import import_extra
from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.load import load_backend
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.search.evaluations import Evaluation, Evaluator, Found, best, open_evaluations, summarise
from gym_text_policies.search.model import ModelOptimiser
from gym_text_policies.search.optimisers import CmaOptimiser, GpOptimiser, Optimiser, RandomOptimiser
from gym_text_policies.search.search_config import SearchConfig
from gym_text_policies.store import RecordStore

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
    bounds = config.bounds[0], config.bounds[1]
    with ExitStack() as stack:
        evaluator = stack.enter_context(closing(Evaluator(config.environment, config.seeds, bias=config.bias, bounds=bounds)))
        optimisers = _optimisers(config, evaluator, backend)
        store = stack.enter_context(open_evaluations(config.folder, config.identity())) if config.folder else None
        return _loop(config, evaluator, optimisers, store, watch)


def _optimisers(config: SearchConfig, evaluator: Evaluator, backend: Backend | None) -> list[tuple[int, Optimiser]]:
    """Return the optimisers in order, each with the number of evaluations after which the next takes over."""
    form, seed, start = evaluator.form, config.seed, config.warmup_evaluations
    optimisers: list[tuple[int, Optimiser]] = [(start, RandomOptimiser(form, seed))]
    for name, end in zip(config.stages, [*[config.takes_over_at] * (len(config.stages) - 1), config.evaluations], strict=True):
        if name == "model":
            backend = backend or load_backend(config.model, **config.options)
            optimisers.append((end, ModelOptimiser(form, seed, start, backend, config, evaluator.spec)))
        elif name == "cma":
            sigma = 0.05 if len(config.stages) > 1 else 0.3  # a smaller first step if it follows another optimiser
            optimisers.append((end, CmaOptimiser(form, seed, start, sigma=sigma)))
        else:
            optimisers.append((end, GpOptimiser(form, seed, start) if name == "gp" else RandomOptimiser(form, seed)))
        start = end
    return optimisers


def _loop(
    config: SearchConfig,
    evaluator: Evaluator,
    optimisers: list[tuple[int, Optimiser]],
    store: RecordStore[Evaluation] | None,
    watch: Watch | None,
) -> Found:
    history = list(store) if store is not None else []
    top = best(history) if history else None
    quantities = [q.name for key in evaluator.form.keys for q in evaluator.spec.fields[key].quantities]
    while len(history) < config.evaluations:
        end, optimiser = next(stage for stage in optimisers if len(history) < stage[0])
        proposals = optimiser.propose(history)[: min(evaluator.at_once, end - len(history), config.evaluations - len(history))]
        for proposal, rollouts in zip(proposals, evaluator([p.parameters for p in proposals]), strict=True):
            evaluation = Evaluation(
                len(history),
                proposal,
                tuple(rollout.total_reward for rollout in rollouts),
                tuple(rollout.length for rollout in rollouts),
                sum(rollout.success for rollout in rollouts),
                summarise(rollouts, quantities),
            )
            if store is not None:
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


def command(config: SearchConfig) -> str:
    """Search with a progress bar, and return a summary."""
    bar: Any = None

    def watch(evaluation: Evaluation, top: Evaluation) -> None:
        nonlocal bar
        if bar is None:  # made at the first evaluation: an error in the settings is printed without a bar
            name = f"{config.environment} {config.optimiser}"
            tqdm = import_extra("tqdm.auto", "bench").tqdm
            bar = tqdm(total=config.evaluations, desc=name, mininterval=1.0, initial=evaluation.index)
        bar.set_postfix_str(f"last {evaluation.value:.2f}, best {top.value:.2f}", refresh=False)
        bar.update()

    try:
        result = search(config, watch=watch)
    finally:
        if bar is not None:
            bar.close()
    arguments = ["--models", str(Path(config.folder) / "policy.json"), "--environments", config.environment]
    play = f"Run folder: {config.folder}. Evaluate the best policy: gym-text bench {shlex.join(arguments)}"
    return f"{_summary(config, result)}\n{play}"


def _summary(config: SearchConfig, result: Found) -> str:
    top, proposals = result.best, [evaluation.proposal for evaluation in result.evaluations]
    sources = [proposal.source for proposal in proposals]
    tokens = sum(proposal.tokens_in for proposal in proposals), sum(proposal.tokens_out for proposal in proposals)
    counts = ", ".join(f"{sources.count(source)} {source}" for source in dict.fromkeys(sources))
    shown = ", ".join(f"{name} = {value:.4g}" for name, value in list(result.policy["parameters"].items())[:12])
    return (
        f"Best of {len(proposals)} evaluations on {config.environment}: {top.value:.2f} (mean return of "
        f"{len(top.returns)} rollouts, {top.successes} of them successes), by evaluation {top.index + 1}.\n"
        f"{shown}{', …' if len(top.parameters) > 12 else ''}\n"
        f"Proposals: {counts}; {sum(len(proposal.rejections) for proposal in proposals)} answers could not be used. "
        f"Tokens: {tokens[0]} in, {tokens[1]} out. "
        f"Cost: {sum(proposal.cost for proposal in proposals):.4f} US dollars."
    )
