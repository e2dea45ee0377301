"""`gym-text run` and `run_experiment`: play the experiment of a YAML file, and keep everything in one run folder."""

from __future__ import annotations

import dataclasses
import json
import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gym_text import TextSpec
from gym_text.errors import UsageError, import_extra
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.files.safe_files import subfolder
from gym_text_policies.game import is_of_episode
from gym_text_policies.policies.config import SETTINGS
from gym_text_policies.policy import recorded, text_spec
from gym_text_policies.records import Episode
from gym_text_policies.report import write_report
from gym_text_policies.report.figures import Summary, how_asked, row
from gym_text_policies.report.films import write_gif
from gym_text_policies.report.table import NOTES, markdown
from gym_text_policies.run.agent import raw_answer
from gym_text_policies.run.experiment import FILE, ExperimentConfig, as_config, explain_keys, parse_config
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import Run, check_some_played, open_run, versions
from gym_text_policies.run.progress import Progress
from gym_text_policies.settings.yaml_nodes import parse_yaml

_logger = logging.getLogger(__name__)
_FREE_OPTIONS = ("timeout", "retries", "cache", "prices", "max_cost", "max_total_tokens", "key_variable")
"""Options of backends that change no answer. They may differ when a run is continued."""


@dataclass(frozen=True)
class RunConfig:
    """Run the experiment of a YAML file, or continue the run of a folder, and keep everything in one folder."""

    config: str
    """The YAML file, or a run folder whose run is continued."""
    set: tuple[str, ...] = ()
    """Values that replace those of the file, as in agent.model=smollm2 experiment.episodes=3. A list, as in
    agent.model=[smollm2,random], makes a batch. The run folder is experiment.parent/experiment.name."""

    @staticmethod
    def more_help() -> str:
        """Return the help that follows the options: all keys of a file."""
        return (
            "The file has three sections. Each key's default stands [in brackets]. A list anywhere, such as\n"
            "model: [smollm2, random], makes a batch: one experiment for each combination.\n\n" + explain_keys() + "\n\n"
            "In the folder: experiment.yaml (the configuration), versions.json, episodes.jsonl (all steps), metrics.json,\n"
            "answers/ (what the model answered, by step), gifs/, report.html."
        )


def run(config: RunConfig) -> str:
    """Run the experiment that the command line asks for; return the table and the run folder."""
    changes = {}
    for change in config.set:
        key, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"set: expected section.key=value; got {change!r}.")
        changes[key] = parse_yaml(value, f"set {key}").plain()
    path = Path(config.config)
    if path.is_dir() and not (path / FILE).is_file():
        raise UsageError(f"config: expected a YAML file or a run folder with {FILE}; {path} has none.")
    run_folder = run_experiment(parse_config(path, changes), path if path.is_dir() else None)
    metrics = json.loads((run_folder / "metrics.json").read_text("utf-8"))
    check_some_played(run_folder, metrics.get("rows", [metrics]))
    return f"{(run_folder / 'table.md').read_text('utf-8')}\nThe run folder with all results: {run_folder}"


def run_experiment(config: ExperimentConfig | Mapping[str, Any] | str | Path, folder: str | Path | None = None) -> Path:
    """Play the episodes of an experiment, or of a batch, keep everything in a folder, and return the folder.

    Stored episodes are not played again, so an interrupted run goes on.

    Args:
        config: What `parse_config` returns, nested mappings, or the path of a YAML file or run folder.
        folder: The run folder, in place of the configuration's. Each experiment of a batch has its own folder in it.

    Raises:
        UsageError: If the configuration is impossible, or the folder belongs to another configuration.
    """
    config = as_config(config)
    folder = Path(folder) if folder is not None else config.folder
    if config.experiment.verbose:
        _logger.info("Run folder: %s", folder)
    try:
        if not config.others:
            rows = [_run(config, folder)]
        else:
            folder.mkdir(parents=True, exist_ok=True)
            _write_yaml(folder / FILE, config.source)
            rows = [_run(part, subfolder(folder, part.label)) for part in config.experiments]
            _write_json(folder / "metrics.json", {"rows": rows})
    except KeyboardInterrupt:
        _logger.info("\ngym-text run %s goes on from here.", shlex.quote(str(folder)))
        raise
    write_atomically(folder / "table.md", f"{markdown(rows)}\n{NOTES}")
    write_report([folder], folder / "report.html", title=folder.name)
    return folder


def _run(config: ExperimentConfig, folder: Path) -> dict[str, Any]:
    """Run one experiment; return its row of the table."""
    options, player, environment = config.experiment, config.player, config.environment
    if player.asks_model and player.probabilities is None:
        player = dataclasses.replace(player, probabilities=True)  # for the answers and the GIFs
    if environment.kwargs.get("render_mode") == "human":  # one window: one episode at a time, in this process
        options = dataclasses.replace(options, engine="local", workers=0, num_envs=1, max_concurrency=1)
    seeds = range(options.first_seed, options.first_seed + options.episodes)
    plan = [PlanRow(player.label, environment.full_name, player, seeds, environment.kwargs)]
    with open_run(str(folder), _identity(config), plan, options) as run:
        # `waiting` raises before anything is written if they cannot be played
        again = [folder / name for row in run.waiting for seed in row.missing for name in _episode_files(seed)]
        _write_yaml(folder / FILE, config.to_dict())
        _write_json(folder / "versions.json", versions())
        for path in again:
            path.unlink(missing_ok=True)
        try:
            run.play(Progress(lines=True, shown=options.verbose))
        finally:  # the table has what was played, also if an error or Ctrl-C ends the run
            figures = _write_results(config, folder, run)
        if options.save_gif:
            _write_gifs(config, folder, run.episodes(run.rows[0]))
    return figures


def _write_results(config: ExperimentConfig, folder: Path, run: Run) -> dict[str, Any]:
    """Write metrics and answers; return the row of the table."""
    with config.environment.make(render_mode=None) as env:
        spec = text_spec(env)
    summaries = []
    for episode in run.episodes(run.rows[0]):
        _write_answers(folder / _episode_files(episode.seed)[0], episode, spec)
        summaries.append(Summary.of(episode))
    asked = how_asked(run.rows[0].policy, config.player.label)
    figures = row(config.environment.name, config.player.label, summaries, asked=asked)
    played = [summary for summary in summaries if summary.error is None]
    metrics = {
        "seeds": [episode.seed for episode in played],
        "total_rewards": [episode.total_reward for episode in played],
        "total_steps": [episode.length for episode in played],
        "avg_reward": figures["return"],
        "avg_steps": figures["length"],
        "success": figures["success"],
        "successes": [episode.won if episode.tells_success else None for episode in played],
        "errors": {summary.seed: summary.error for summary in summaries if summary.error},
        **figures,
    }
    _write_json(folder / "metrics.json", metrics)
    return figures


def _episode_files(seed: int) -> tuple[str, str]:
    """Return the paths of an episode's files in the run folder: its answers and its GIF."""
    return f"answers/seed-{seed}.json", f"gifs/seed-{seed}.gif"


def _write_gifs(config: ExperimentConfig, folder: Path, episodes: Iterable[Episode]) -> None:
    for episode in episodes:
        path = folder / _episode_files(episode.seed)[1]
        if episode.steps and not path.exists():
            subfolder(folder, path.parent.name)
            try:
                write_gif(path, episode, partial(config.environment.make, render_mode="rgb_array"), config.experiment.gif_fps)
            except Exception as error:  # raised by the environment while it draws or plays again
                if not is_of_episode(error):
                    raise
                _logger.warning("seed %d: no GIF: %s: %s", episode.seed, type(error).__name__, error)


def _write_answers(path: Path, episode: Episode, spec: TextSpec) -> None:
    """Write a JSON file from the step number, counted from 1, to the model's answer, for the steps at which the model was asked."""
    if path.exists():
        return
    answers = {}
    for number, step in enumerate(episode.steps, start=1):
        decision = step.decision
        if decision.messages or decision.probabilities is not None:
            answers[str(number)] = raw_answer(decision, spec.encode(decision.action, recorded(step.observation)))
    if answers:
        subfolder(path.parent.parent, path.parent.name)
        _write_json(path, answers)


def _identity(config: ExperimentConfig) -> dict[str, Any]:
    """Return the settings that all runs into a folder share: those that the episodes depend on."""
    player = config.player
    free = {*_FREE_OPTIONS, *(["base_url"] if player.options.get("server") else [])}  # the option `server` identifies the server
    options = {name: value for name, value in player.options.items() if name not in free}
    agent = {"model": player.model, **dict.fromkeys(SETTINGS), **player.given, "options": options}
    data = {
        "experiment": "run",
        **{f"agent.{name}": value for name, value in agent.items()},
        "environment.name": config.environment.name,
        "environment.kwargs": {name: value for name, value in config.environment.kwargs.items() if name != "render_mode"},
        "experiment.seed": config.experiment.first_seed,
    }
    return dict(without_secrets(data))


def _write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    """Write a configuration for the next run, without `fresh`: the next run goes on."""
    if "experiment" in data:
        data = {**data, "experiment": {name: value for name, value in data["experiment"].items() if name != "fresh"}}
    yaml = import_extra("yaml", "experiments")
    write_atomically(path, yaml.safe_dump(without_secrets(data), sort_keys=False, allow_unicode=True))


def _write_json(path: Path, data: Any) -> None:
    write_atomically(path, json.dumps(without_secrets(data), indent=2, ensure_ascii=False) + "\n")
