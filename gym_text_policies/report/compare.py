"""`gym-text compare`: stored episodes of two or more policies on the same levels, with paired tests and intervals."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gym_text import html
from gym_text.errors import UsageError, import_extra, unknown_choice
from gym_text.registration import RETURNS
from gym_text_policies.report.bootstrap import bootstrap, iqm, percentiles, pooled
from gym_text_policies.report.runs import Variant, read_runs
from gym_text_policies.report.statistics import (
    STEPS_OF_WINS,
    PairedTest,
    Run,
    common_levels,
    levels_of,
    run_by_level,
    table_of,
    tests_of_means,
    wilson_interval,
)
from gym_text_policies.report.table import aligned, interval, number

_WIDTH = 120
_FIGURES: dict[str, tuple[int, Callable[..., Any]]] = {
    "success": (0, np.mean),
    "return": (1, np.mean),
    "IQM of return": (1, iqm),
    "steps": (2, np.mean),
}
"""Figure -> its column in a table of results, and the statistic of its values."""
_OF_RETURNS = ("return", "IQM of return")
NOTE = """\
Differences: a policy less the first one, on the mean. p: McNemar's exact test of wins, Wilcoxon's signed-rank test of
all else; they ask whether a difference holds on other levels. Intervals (95 %): stratified bootstrap over levels and
training runs; Wilson's for the success of a single run. IQM: interquartile mean, without the lowest and the highest
quarter of the episodes. Returns of several environments are pooled only where the least and the greatest are the same."""


@dataclass(frozen=True)
class CompareConfig:
    """Compare stored episodes of policies on the same levels: paired tests, interquartile means, intervals. Nothing is played."""

    policies: tuple[str, ...] = field(metadata={"positional": True})
    """Two or more rows of a table, or run folders; the others are compared with the first. The beginning of a row's name is enough
    if no other row has it, as 'gold'. A name with * stands for all rows that it fits, as in 'grpo-*': training runs of one policy.
    The run folders within a folder are training runs of one policy, too."""
    folder: str = "runs/policies"
    """Run folder with the rows, or a folder that contains run folders."""


class Estimate(NamedTuple):
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Policies in one environment, or in all of them, on the levels that all have played without an error."""

    environment: str
    """Name of the environment."""
    levels: int
    """Number of levels that all have played."""
    left_out: int
    """Number of levels that only some have played."""
    policies: tuple[str, ...]
    """The policies' names."""
    runs: tuple[int, ...]
    """Number of training runs of each policy."""
    figures: tuple[Mapping[str, Estimate], ...]
    """Of each policy: success, if the environment says what that is, return, IQM of return, steps. Over several environments
    return and IQM are left out unless the same returns are possible in all."""
    tests: tuple[Mapping[str, PairedTest], ...]
    """How each policy but the first differs from the first: success, return, steps, and steps of the levels that both win."""

    def to_text(self) -> str:
        """Return two tables, at most 120 characters wide: the figures of the policies, and their differences."""
        titles = [
            part
            for i, title in enumerate(self._titles())
            for part in textwrap.wrap(title, _WIDTH, subsequent_indent="   " * (i > 0))
        ]
        return "\n\n".join(["\n".join(titles), *map(aligned, self._tables())])

    def _repr_html_(self) -> str:
        """Return the two tables for a notebook."""
        titles = [html.line(html.shown(title)) for title in self._titles()]
        tables = [html.table(heads, lines) for heads, *lines in self._tables()]
        note = html.line(html.shown(" ".join(NOTE.split()), 1000), faint=True)
        return str(html.block(*titles, *tables, note))

    def _titles(self) -> Iterator[str]:
        """Yield what stands above the tables: the environment, and each policy with its number."""
        yield f"{self.environment}: {self.levels} levels" + f", {self.left_out} more left out" * bool(self.left_out)
        for i, (name, runs) in enumerate(zip(self.policies, self.runs, strict=True), 1):
            yield f"{i}. {name}" + f" ({runs} training runs)" * (runs > 1)

    def _tables(self) -> Iterator[list[tuple[str, ...]]]:
        """Yield the cells of the two tables, the headings first."""
        figures = [
            (str(i), *(number(one.value, ".2f") + interval(one[1:], ".2f") for one in figure.values()))
            for i, figure in enumerate(self.figures, 1)
        ]
        yield [("", *(f"{name} [95 %]" for name in self.figures[0])), *figures]
        tests = [cells for i, tests in enumerate(self.tests, 2) for cells in self._cells(i, tests)]
        yield [("", "measure", "difference [95 %]", "p", "test"), *tests]

    def _cells(self, i: int, tests: Mapping[str, PairedTest]) -> Iterator[tuple[str, ...]]:
        """Yield the cells of the tests of policy i."""
        for row, (name, test) in enumerate(tests.items()):
            how = "Wilcoxon"
            if test.alone:
                how = f"McNemar; {i} alone wins {test.alone[0]} levels, 1 alone {test.alone[1]}"
            elif name == "return":
                how += f"; better with probability {test.better_text}"
            elif name == STEPS_OF_WINS:
                how += f"; {test.levels} levels that both win"
            difference = number(test.difference, "+.2f") + interval(test.interval, ".2f")
            yield "" if row else f"{i} less 1", name, difference, f"{test.p:.2g}", how


def run(config: CompareConfig) -> str:
    """Return the comparisons as text."""
    return "\n\n".join([*(one.to_text() for one in compare_policies(config.policies, config.folder)), NOTE])


def compare_policies(policies: Sequence[str | Path], folder: str | Path = CompareConfig.folder) -> list[Comparison]:
    """Compare stored episodes of two or more policies on the same levels.

    Args:
        policies: Names of rows or their unique beginnings, or run folders; the others are compared with the first. A name with
            ``*`` stands for all rows that it fits, as training runs of one policy. So do the run folders within a folder.
        folder: Run folder with the rows, or a folder that contains run folders.

    Returns:
        A comparison in each environment that all have played, and if there are several, one over all of them, in which each level
        counts once. Their returns are pooled only if the least and the greatest possible return are known and the same in all: a
        mean over other scales would be that of the environment with the largest numbers.

    Raises:
        UsageError: If a name is no row and no run folder, or is the beginning of several rows, or no level was played by all.
        MissingDependencyError: If scipy is not installed.
    """
    import_extra("scipy", "bench")
    names = _two_or_more([str(policy) for policy in policies])
    is_folder = [Path(name).is_dir() and any(Path(name).rglob("episodes.jsonl")) for name in names]
    rows = () if all(is_folder) else read_runs([folder]).variants
    names = _two_or_more([name if whole else _whole_name(name, rows) for name, whole in zip(names, is_folder, strict=True)])
    chosen = [_of_folder(name) if whole else _rows(name, rows, folder) for name, whole in zip(names, is_folder, strict=True)]
    games = [game for game in chosen[0] if all(game in one for one in chosen)]
    titles = {variant.game: variant.environment for variants in chosen[0].values() for variant in variants}
    parts = {titles[game]: _runs([one[game] for one in chosen]) for game in games}
    parts = {title: runs for title, runs in parts.items() if common_levels(run for one in runs for run in one.values())}
    if not parts:
        played = "; ".join(f"{name}: {_environments(one)}" for name, one in zip(names, chosen, strict=True))
        raise UsageError(f"policies: expected levels that all have played without an error; they played {played}.")
    found = [_compared(title, names, [runs]) for title, runs in parts.items()]
    if len(parts) > 1:
        alike = _same_returns(game for game in games if titles[game] in parts)
        found.append(_compared(f"all {len(parts)} environments", names, list(parts.values()), with_returns=alike))
    return found


def _two_or_more(names: list[str]) -> list[str]:
    if len(set(names)) < 2:
        raise UsageError(f"policies: expected two or more rows or run folders; got {', '.join(names) or 'none'}.")
    return names


def _same_returns(games: Iterable[str]) -> bool:
    """Return whether the least and the greatest return are known and the same in all games, so that their mean has a meaning."""
    known = {RETURNS.get(json.loads(game)["id"]) for game in games}
    return len(known) == 1 and None not in known


Chosen = dict[str, list[Variant]]
"""Game -> the training runs of one policy."""


def _whole_name(name: str, variants: Iterable[Variant]) -> str:
    """Return the name of the row that has this name, or whose name alone begins with these words, as the expert's with gold."""
    known = list(dict.fromkeys(variant.policy for variant in variants))
    if "*" in name or name in known:
        return name
    begun = [row for row in known if re.match(rf"{re.escape(name)}(?!\w)", row)]
    if len(begun) > 1:
        raise UsageError(
            f"policies: expected a name that only one row begins with; {', '.join(map(repr, begun))} begin with {name!r}. "
            "Write one of them in full."
        )
    return begun[0] if begun else name


def _rows(name: str, variants: Iterable[Variant], folder: str | Path) -> Chosen:
    """Return the rows of a name, which may have asterisks, by their game."""
    variants = list(variants)
    pattern = re.compile(".*".join(map(re.escape, name.split("*"))))
    chosen: Chosen = {}
    for variant in variants:
        if pattern.fullmatch(variant.policy):
            chosen.setdefault(variant.game, []).append(variant)
    if not chosen:
        raise unknown_choice(f"{folder}: policies", name, dict.fromkeys(variant.policy for variant in variants))
    return chosen


def _of_folder(folder: str) -> Chosen:
    """Return the policies of a folder by their game: one, or one of each run folder in it."""
    chosen: Chosen = {}
    for variant in read_runs([folder]).variants:
        chosen.setdefault(variant.game, []).append(variant)
    for variants in chosen.values():
        folders = [{store.folder for store in variant.stores.values()} for variant in variants]
        if len(set().union(*folders)) < sum(map(len, folders)):
            names = ", ".join(variant.policy for variant in variants)
            raise UsageError(f"{folder}: expected one policy in each run folder; got {names}. Name rows, with folder={folder!r}.")
    return chosen


def _environments(chosen: Chosen) -> str:
    return ", ".join(dict.fromkeys(variant.environment for variants in chosen.values() for variant in variants))


def _runs(policies: Sequence[Sequence[Variant]]) -> list[dict[str, Run]]:
    """Return the runs of each policy in one environment, by the names of their rows."""
    levels = levels_of(episode for variants in policies for variant in variants for episode in variant.episodes)
    return [{variant.policy: run_by_level(variant.episodes, levels) for variant in variants} for variants in policies]


Table = tuple[tuple[str, ...], np.ndarray]
"""The names of a policy's training runs in an environment, and their results (runs, levels, measures)."""


def _compared(
    title: str, names: Sequence[str], parts: Sequence[Sequence[Mapping[str, Run]]], *, with_returns: bool = True
) -> Comparison:
    """Compare policies in one environment or in several: `parts` has their runs in each."""
    levels = [common_levels(run for runs in part for run in runs.values()) for part in parts]
    played = sum(len({level for runs in part for run in runs.values() for level in run}) for part in parts)
    tables = [
        [(tuple(part[i]), table_of(part[i].values(), chosen)) for part, chosen in zip(parts, levels, strict=True)]
        for i in range(len(names))
    ]
    figures, intervals = _figures(tables)
    base, *others = (np.concatenate([table.mean(axis=0) for _, table in one]) for one in tables)  # (levels, measures)
    tests = [
        {name: replace(test, interval=bounds.get(name)) for name, test in tests_of_means(other, base).items()}
        for other, bounds in zip(others, intervals, strict=True)
    ]
    if not with_returns:
        figures = [{name: value for name, value in one.items() if name not in _OF_RETURNS} for one in figures]
        tests = [{name: test for name, test in one.items() if name not in _OF_RETURNS} for one in tests]
    runs = tuple(max(len(runs) for runs, _ in one) for one in tables)
    return Comparison(title, len(base), played - len(base), tuple(names), runs, tuple(figures), tuple(tests))


def _figures(tables: Sequence[Sequence[Table]]) -> tuple[list[dict[str, Estimate]], list[dict[str, tuple[float, float]]]]:
    """Return the figures of each policy, and the intervals of the differences between each other policy and the first."""
    figures: list[dict[str, Estimate]] = [{} for _ in tables]
    intervals: list[dict[str, tuple[float, float]]] = [{} for _ in tables[1:]]
    for name, (column, statistic) in _FIGURES.items():
        measured = [[(runs, table[..., column]) for runs, table in one] for one in tables]
        values = [pooled([table for _, table in one]) for one in measured]
        if np.isnan(np.concatenate(values)).any():
            continue  # the environment does not say what a success is
        samples = bootstrap(measured, statistic)
        for bounds, drawn in zip(intervals, samples[1:], strict=True):
            bounds[name] = percentiles(drawn - samples[0])
        for figure, value, drawn, one in zip(figures, values, samples, measured, strict=True):
            single = name == "success" and all(len(runs) == 1 for runs, _ in one)
            wilson = wilson_interval(float(value.sum()), len(value)) if single else None
            figure[name] = Estimate(float(statistic(value)), *(wilson or percentiles(drawn)))
    return figures, intervals
