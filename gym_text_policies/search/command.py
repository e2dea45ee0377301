"""`gym-text search`: a search with a progress bar, its pictures, and what was found in words."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.search.config import SearchConfig
from gym_text_policies.search.pictures import draw_all
from gym_text_policies.search.records import Evaluation, Found
from gym_text_policies.search.run import search


def command(config: SearchConfig) -> str:
    """Search with a progress bar, draw pictures, and say what was found."""
    tqdm = import_extra("tqdm", "bench").tqdm
    if not config.folder:
        raise UsageError("folder: expected a name; got none.")
    interval = 0.2 if sys.stderr.isatty() else 15.0
    bar: Any = None

    def watch(evaluation: Evaluation, top: Evaluation) -> None:
        nonlocal bar
        if bar is None:  # not before a mistake in the settings would have come out
            name = f"{config.environment} {config.optimiser}"
            bar = tqdm(total=config.evaluations, desc=name, mininterval=interval, initial=evaluation.index)
        bar.set_postfix_str(f"last {evaluation.value:.2f}, best {top.value:.2f}", refresh=False)
        bar.update()

    try:
        found = search(config, watch=watch)
    finally:
        if bar is not None:
            bar.close()
    lines = [_report(config, found)]
    if config.pictures:
        drawn = draw_all(replace(config, pictures=False), found)
        lines.append(f"Pictures: {', '.join(drawn)}.")
    words = ["--models", str(Path(config.folder) / "policy.json"), "--environments", config.environment]
    lines.append(f"All of it: {config.folder}. Play it: gym-text bench {shlex.join(words)}")
    return "\n".join(lines)


def _report(config: SearchConfig, found: Found) -> str:
    top, sources = found.best, [evaluation.proposal.source for evaluation in found.evaluations]
    counts = ", ".join(f"{sources.count(source)} {source}" for source in dict.fromkeys(sources))
    asked = sum(len(evaluation.proposal.rejections) for evaluation in found.evaluations)
    tokens = sum(e.proposal.tokens_in for e in found.evaluations), sum(e.proposal.tokens_out for e in found.evaluations)
    shown = ", ".join(f"{name} = {value:.4g}" for name, value in list(found.policy["parameters"].items())[:12])
    lines = [
        f"Best of {len(found.evaluations)} evaluations on {config.environment}: {top.value:.2f} (mean return of {len(top.returns)} "
        f"rollouts, {top.successes} of them successes), found as number {top.index + 1}.",
        f"{shown}{', …' if len(top.parameters) > 12 else ''}",
        f"Proposals: {counts}; {asked} answers could not be used. Tokens: {tokens[0]} in, {tokens[1]} out. "
        f"Cost: {sum(e.proposal.cost for e in found.evaluations):.4f} US dollars.",
    ]
    return "\n".join(lines)
