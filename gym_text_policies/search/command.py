"""`gym-text search`: a search with a progress bar, its pictures, and a summary."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.search.evaluations import Evaluation, Found
from gym_text_policies.search.run import search
from gym_text_policies.search.search_config import SearchConfig
from gym_text_policies.search.search_plots import draw_all
from gym_text_policies.terminal.bars import bar_class, is_watched


def command(config: SearchConfig) -> str:
    """Search with a progress bar, draw pictures, and return a summary."""
    if not config.folder:
        raise UsageError("folder: expected the name of a run folder; got an empty name.")
    interval = 0.2 if is_watched() else 15.0
    bar: Any = None

    def watch(evaluation: Evaluation, top: Evaluation) -> None:
        nonlocal bar
        if bar is None:  # made at the first evaluation: an error in the settings is printed without a bar
            name = f"{config.environment} {config.optimiser}"
            bar = bar_class()(total=config.evaluations, desc=name, mininterval=interval, initial=evaluation.index)
        bar.set_postfix_str(f"last {evaluation.value:.2f}, best {top.value:.2f}", refresh=False)
        bar.update()

    try:
        result = search(config, watch=watch)
    finally:
        if bar is not None:
            bar.close()
    lines = [_summary(config, result), f"Pictures: {', '.join(draw_all(config, result))}."]
    arguments = ["--models", str(Path(config.folder) / "policy.json"), "--environments", config.environment]
    lines.append(f"Run folder: {config.folder}. Evaluate the best policy: gym-text bench {shlex.join(arguments)}")
    return "\n".join(lines)


def _summary(config: SearchConfig, result: Found) -> str:
    top, sources = result.best, [evaluation.proposal.source for evaluation in result.evaluations]
    counts = ", ".join(f"{sources.count(source)} {source}" for source in dict.fromkeys(sources))
    rejected = sum(len(evaluation.proposal.rejections) for evaluation in result.evaluations)
    tokens = sum(e.proposal.tokens_in for e in result.evaluations), sum(e.proposal.tokens_out for e in result.evaluations)
    shown = ", ".join(f"{name} = {value:.4g}" for name, value in list(result.policy["parameters"].items())[:12])
    lines = [
        f"Best of {len(result.evaluations)} evaluations on {config.environment}: {top.value:.2f} (mean return of "
        f"{len(top.returns)} rollouts, {top.successes} of them successes), by evaluation {top.index + 1}.",
        f"{shown}{', …' if len(top.parameters) > 12 else ''}",
        f"Proposals: {counts}; {rejected} answers could not be used. Tokens: {tokens[0]} in, {tokens[1]} out. "
        f"Cost: {sum(e.proposal.cost for e in result.evaluations):.4f} US dollars.",
    ]
    return "\n".join(lines)
