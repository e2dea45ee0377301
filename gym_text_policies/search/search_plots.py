"""Pictures of a search: returns, the path through the parameters, an episode as plots, and the same episode as a GIF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import import_extra
from gym_text.screen import prepare_pygame
from gym_text_policies.files.safe_files import subfolder
from gym_text_policies.report.films import write_frames
from gym_text_policies.search.evaluate import Evaluator
from gym_text_policies.search.evaluations import Evaluation, Found
from gym_text_policies.search.search_config import SearchConfig

_COLOURS = {"model": "#1a5276", "cma": "#b9770e", "gp": "#117864", "random": "#7b7d7d", "random instead": "#c0392b"}
_FRAMES = 200
"""With twice as many frames a GIF shows every second one, with three times as many every third, and so on."""
_FRAME_MS = 40
"""Milliseconds for which a frame is shown."""


def draw_all(config: SearchConfig, result: Found) -> list[str]:
    """Draw all pictures of a search into its folder and return their paths.

    There is no GIF if the environment cannot be rendered on this machine.
    """
    folder = subfolder(Path(config.folder), "pictures")
    import_extra("matplotlib", "search").use("Agg")
    names = list(result.policy["parameters"])
    draw_returns(result.evaluations, folder / "returns.png", f"{config.environment}, {config.optimiser}")
    pictures = ["returns.png"]
    if len(names) >= 2:
        draw_path(result.evaluations, names, folder / "path.png")
        pictures.append("path.png")
    draw_trajectory(config, result.best, folder / "trajectory.png")
    pictures.append("trajectory.png")
    if draw_gif(config, result.best, folder / "best.gif"):
        pictures.append("best.gif")
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
    _save(figure, path)


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
    _save(figure, path)


def draw_trajectory(config: SearchConfig, evaluation: Evaluation, path: Path) -> None:
    """Draw the observed numbers and the actions over the first rollout of an evaluation."""
    evaluator = Evaluator(config.task)
    try:
        ((rollout, *_),) = evaluator([evaluation.parameters])
        names = [quantity.name for key in evaluator.form.keys for quantity in evaluator.spec.fields[key].quantities]
        actions = rollout.actions.reshape(rollout.length, -1)
    finally:
        evaluator.close()
    rows = [(name, rollout.observations[:, i]) for i, name in enumerate(names)]
    rows += [("action" + (f" {i + 1}" if actions.shape[1] > 1 else ""), actions[:, i]) for i in range(actions.shape[1])]
    figure, axes = _figure(len(rows), height=max(3.2, 1.3 * len(rows)))
    for axis, (name, values) in zip(np.atleast_1d(axes), rows, strict=True):
        axis.plot(values, color="#1a5276" if "action" not in name else "#b9770e", linewidth=1)
        axis.set_ylabel(name, fontsize=7)
    np.atleast_1d(axes)[-1].set_xlabel("step")
    title = f"evaluation {evaluation.index + 1}, seed {rollout.seed}: return {rollout.total_reward:.2f}"
    np.atleast_1d(axes)[0].set_title(title, fontsize=9)
    _save(figure, path)


def draw_gif(config: SearchConfig, evaluation: Evaluation, path: Path) -> bool:
    """Write the first rollout of an evaluation as a GIF. Return False if the environment cannot be rendered here."""
    try:
        prepare_pygame("box2d")
        env = config.task.make(render_mode="rgb_array")
    except (ImportError, gym.error.Error):
        return False
    try:
        frames = _frames(config, env, evaluation)
    except Exception:  # renderers raise errors of many kinds where there is no display
        return False
    finally:
        env.close()
    shown = frames[:: max(1, len(frames) // _FRAMES)]
    write_frames(path, shown, [_FRAME_MS] * len(shown), extra="search")
    return True


def _frames(config: SearchConfig, env: gym.Env[Any, Any], evaluation: Evaluation) -> list[np.ndarray]:
    form = config.task.form(env)
    weights = np.array([evaluation.parameters])
    obs, _ = env.reset(seed=config.task.seeds[0])
    frames, over = [np.asarray(env.render())], False
    while not over:
        action = form.act(weights, form.numbers(obs)[None])[0]
        obs, _, terminated, truncated, _ = env.step(action if action.ndim else int(action))
        frames.append(np.asarray(env.render()))
        over = bool(terminated or truncated)
    return frames


def _figure(rows: int = 1, height: float = 4.0) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, height), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=True)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
