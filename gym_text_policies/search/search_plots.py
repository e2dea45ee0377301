"""Pictures of a search: the returns, and the path through the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gym_text.errors import import_extra
from gym_text_policies.files.safe_files import subfolder
from gym_text_policies.search.evaluations import Evaluation, Found
from gym_text_policies.search.search_config import SearchConfig

_COLOURS = {"model": "#1a5276", "cma": "#b9770e", "gp": "#117864", "random": "#7b7d7d", "random instead": "#c0392b"}


def draw_all(config: SearchConfig, result: Found) -> list[str]:
    """Draw all pictures of a search into its folder and return their paths."""
    folder = subfolder(Path(config.folder), "pictures")
    import_extra("matplotlib", "search").use("Agg")
    names = list(result.policy["parameters"])
    draw_returns(result.evaluations, folder / "returns.png", f"{config.environment}, {config.optimiser}")
    pictures = ["returns.png"]
    if len(names) >= 2:
        draw_path(result.evaluations, names, folder / "path.png")
        pictures.append("path.png")
    return [str(folder / name) for name in pictures]


def draw_returns(history: Sequence[Evaluation], path: Path, title: str) -> None:
    """Draw the value of each evaluation, coloured by the source of its proposal, and the best value so far."""
    figure, axes = _figure()
    values = np.array([evaluation.value for evaluation in history])
    for source in dict.fromkeys(evaluation.proposal.source for evaluation in history):
        indices = [i for i, evaluation in enumerate(history) if evaluation.proposal.source == source]
        axes.scatter(np.array(indices) + 1, values[indices], s=14, label=source, color=_COLOURS.get(source, "#5b2c6f"), alpha=0.8)
    axes.plot(np.arange(len(values)) + 1, np.maximum.accumulate(values), color="black", linewidth=1.2, label="best so far")
    axes.set(xlabel="evaluation", ylabel="mean return", title=title)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def draw_path(history: Sequence[Evaluation], names: Sequence[str], path: Path) -> None:
    """Draw the first two parameters of each evaluation, connected in their order and coloured by value."""
    figure, axes = _figure()
    points = np.array([evaluation.parameters[:2] for evaluation in history])
    values = [evaluation.value for evaluation in history]
    axes.plot(*points.T, color="#bbbbbb", linewidth=0.5, zorder=1)
    shown = axes.scatter(*points.T, c=values, s=16, cmap="viridis", zorder=2)
    top = int(np.argmax(values))
    axes.scatter(*points[top], s=140, facecolors="none", edgecolors="#c0392b", linewidths=1.5, zorder=3, label="best")
    more = f" (the first two of {len(names)} parameters)" if len(names) > 2 else ""
    axes.set(xlabel=names[0], ylabel=names[1], title=f"search path{more}")
    axes.legend(fontsize=8)
    figure.colorbar(shown, label="mean return")
    figure.savefig(path, dpi=110)


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    return figure, figure.subplots()
