"""What all benchmarks share: options, contenders that take turns, tables in Markdown, and the two files of a result."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from gym_text.errors import GymTextError
from gym_text_policies.commands.parser import add_fields
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore

RESULTS = Path(__file__).parent.parent / "results"
"""The committed results."""
_written = [RESULTS]
"""Folders of the results; the last one counts."""
T = TypeVar("T")


def options(config: type[T], about: str | None = None, **defaults: Any) -> T:
    """Return a config dataclass with what the command line says; ``--results`` names another folder for `write`.

    Args:
        config: The dataclass; the string under a field is the option's help.
        about: What ``--help`` says first; None is the dataclass's docstring.
        defaults: Values in place of the dataclass's own defaults.
    """
    parser = argparse.ArgumentParser(description=about or config.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_fields(parser, config)
    parser.add_argument("--results", type=Path, default=RESULTS, help="Folder of the results. Default: benchmarks/results.")
    given = vars(parser.parse_args())
    _written.append(given.pop("results"))
    return config(**defaults | given)


def run(main: Callable[[], object]) -> None:
    """Run a script and exit: with 1 if `main` returns something true, with a sentence after Ctrl-C or an error of the project."""
    try:
        sys.exit(1 if main() else 0)
    except KeyboardInterrupt:
        sys.exit("Stopped. What a run folder keeps of finished work is not done again.")
    except GymTextError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


def command() -> str:
    """Return the command line of this run, as in ``python benchmarks/experts.py --levels 3``."""
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def by_turns(contenders: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 0) -> dict[str, list[float]]:
    """Let contenders take turns, so that a machine whose speed drifts favours none; return the seconds of each round by contender.

    Args:
        contenders: Each does its work once and returns the seconds that count.
        rounds: Rounds that count.
        warm_up: Rounds before them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    with tqdm(total=warm_up + rounds, unit=" rounds", disable=None) as bar:
        for number in range(warm_up + rounds):
            for name, contender in contenders.items():
                spent = contender()
                bar.set_postfix_str(f"{name}: {spent:.3g} s")
                if number >= warm_up:
                    seconds[name].append(spent)
            bar.update()
    return seconds


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown, without a line break at its end.

    >>> print(table(("way", "steps/s"), [("ours", 12)]))
    | way | steps/s |
    |---|---|
    | ours | 12 |
    """
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def write(name: str, text: str, record: Mapping[str, Any] | None = None, folder: Path | None = None) -> Path:
    """Print a result, write it as ``NAME.md`` and, with all its figures, as ``NAME.json``, and return the folder of both."""
    print(text)
    folder = folder or _written[-1]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{name}.md", text.rstrip("\n") + "\n")
    if record is not None:
        write_atomically(folder / f"{name}.json", json.dumps(record, indent=1) + "\n")
    return folder


def earlier(name: str) -> dict[str, Any]:
    """Return the figures that ``NAME.json`` has from an earlier run; empty if there is none."""
    path = _written[-1] / f"{name}.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def with_argument(environment: str, name: str, value: object) -> str:
    """Return an environment's name with one more argument."""
    return f"{environment}{'&' if '?' in environment else '?'}{name}={value}"


def play_plan(rows: Mapping[str, Mapping[str, Any]], **bench: Any) -> tuple[str, dict[str, Any], EpisodeStore]:
    """Play the rows of a plan as ``gym-text bench --plan`` does.

    Args:
        rows: Name -> settings, as in a plan's file.
        bench: Other fields of `BenchConfig`.

    Returns:
        The table in Markdown, its record (``table.json``), and the store of the episodes.

    Raises:
        RunError: If all episodes of a row ended in an error.
    """
    from gym_text_policies.run.bench import BenchConfig, run
    from gym_text_policies.run.play import check_some_played

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(rows, file)  # JSON is YAML
        file.flush()
        text, store = run(BenchConfig(plan=file.name, **bench))
    record = json.loads((store.folder / "table.json").read_text("utf-8"))
    for row in record["rows"]:
        check_some_played(f"{store.folder}: {row['environment']}, {row['policy']}", [row])
    return text, record, store


Levels = dict[tuple[str, int | str], Episode]
"""Environment, and its level if the record has one, else its seed -> episode."""


def levels_of_rows(store: EpisodeStore, rows: Sequence[Mapping[str, Any]]) -> dict[str, Levels]:
    """Return the episodes of each policy of a table, one of each level; the folder may have more.

    Episodes of other seeds, of other settings or of other weights of a model stand beside them there, maybe under the same name.
    Of several episodes of a level the first one without an error is taken.

    Args:
        store: The episodes.
        rows: The table's rows, as in the record of `play_plan`: each has the key of its first episode.
    """
    played: dict[str, list[Episode]] = {}
    for episode in sorted(store, key=lambda episode: (episode.error is not None, episode.seed)):
        played.setdefault(who(episode), []).append(episode)
    found: dict[str, Levels] = {row["policy"]: {} for row in rows}
    firsts = {episode.key: episode for episodes in played.values() for episode in episodes}
    for row in rows:
        first = firsts[row["key"]]
        for episode in played[who(first)]:
            if first.seed <= episode.seed < first.seed + row["episodes"]:
                level = episode.seed if episode.level is None else f"level {episode.level}"
                found[row["policy"]].setdefault((row["environment"], level), episode)
    return found


def who(episode: Episode) -> str:
    """Return what identifies the row of an episode."""
    return repr((episode.environment, episode.policy))
