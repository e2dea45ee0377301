"""Policies on the same levels, from stored episodes: `gym-text compare`, and the pairs of policies of a report."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gym_text import html
from gym_text.errors import UsageError, import_extra, unknown_choice
from gym_text.registration import RETURNS
from gym_text_policies.report import calibration
from gym_text_policies.report.runs import Variant, read_runs
from gym_text_policies.report.statistics import (
    STEPS_OF_WINS,
    PairedTest,
    Result,
    Run,
    bootstrap,
    by_level,
    common_levels,
    holm,
    iqm,
    paired_test,
    percentiles,
    result_of,
    table_of,
    tests_of_means,
    wilson_interval,
)
from gym_text_policies.report.table import aligned, interval, number

_MOST_PAIRED = 12
"""Most policies of an environment that a report compares in pairs: the best ones."""
_FIGURES: dict[str, tuple[int, Callable[..., Any]]] = {
    "success": (0, np.mean),
    "return": (1, np.mean),
    "IQM of return": (1, iqm),
    "steps": (2, np.mean),
}
"""Figure -> its column in a table of results, and the statistic of its values by level."""
_OF_RETURNS = ("return", "IQM of return")
NOTE = """\
Differences: a policy less the first one, on the mean. p: McNemar's exact test of wins, Wilcoxon's signed-rank test of
all else; they ask whether a difference holds on other levels. Intervals (95 %): stratified bootstrap over levels and
training runs; Wilson's for the success of a single run. IQM: interquartile mean, without the lowest and the highest
quarter of the levels. Returns of several environments are pooled only where the least and the greatest are the same."""


@dataclass(frozen=True)
class CompareConfig:
    """Compare stored episodes of policies on the same levels: paired tests, interquartile means, intervals. Nothing is played."""

    policies: tuple[str, ...] = field(metadata={"positional": True})
    """Two or more rows of a table, by their names; the others are compared with the first. A name with * stands for all rows that
    it fits, as in 'grpo-*': training runs of one policy."""
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
    failed: tuple[tuple[int, int], ...]
    """Number of episodes of each policy that ended in an error and are left out, and of all its episodes."""
    figures: tuple[Mapping[str, Estimate], ...]
    """Of each policy: success, if the environment says what that is, return, IQM of return, steps. Over several environments
    return and IQM are left out unless the same returns are possible in all."""
    tests: tuple[Mapping[str, PairedTest], ...]
    """How each policy but the first differs from the first: success, return, steps, and steps of the levels that both win."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """The figures of each training run on all of its levels, in one environment: what its probabilities are worth."""

    def to_text(self) -> str:
        """Return the tables: the figures of the policies, their differences, and their probabilities if they have any."""
        return "\n\n".join(["\n".join(self._titles()), *map(aligned, self._tables())])

    def _repr_html_(self) -> str:
        """Return the tables for a notebook."""
        titles = [html.line(html.shown(title)) for title in self._titles()]
        tables = [html.table(heads, lines) for heads, *lines in self._tables()]
        note = html.line(html.shown(" ".join(NOTE.split()), 1000), faint=True)
        return str(html.block(*titles, *tables, note))

    def _titles(self) -> Iterator[str]:
        """Yield what stands above the tables: the environment, and each policy with its number."""
        yield f"{self.environment}: {self.levels} levels" + f", {self.left_out} more left out" * bool(self.left_out)
        for i, (name, runs, (errors, episodes)) in enumerate(zip(self.policies, self.runs, self.failed, strict=True), 1):
            left_out = f": {errors} of {episodes} episodes ended in an error and are left out" if errors else ""
            yield f"{i}. {name}" + f" ({runs} training runs)" * (runs > 1) + left_out

    def _tables(self) -> Iterator[list[tuple[str, ...]]]:
        """Yield the cells of the tables, the headings first."""
        figures = [
            (str(i), *(number(one.value, ".2f") + interval(one[1:], ".2f") for one in figure.values()))
            for i, figure in enumerate(self.figures, 1)
        ]
        yield [("", *(f"{name} [95 %]" for name in self.figures[0])), *figures]
        tests = [cells for i, tests in enumerate(self.tests, 2) for cells in _cells_of_tests(i, tests)]
        yield [("", "measure", "difference [95 %]", "p", "test"), *tests]
        if probabilities := calibration.lines(self.rows):
            yield [line[1:] for line in probabilities]


def _cells_of_tests(i: int, tests: Mapping[str, PairedTest]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the tests of policy i."""
    for row, (name, test) in enumerate(tests.items()):
        how = f"Wilcoxon; {test.levels} levels that both win" if name == STEPS_OF_WINS else "Wilcoxon"
        if test.alone:
            how = f"McNemar; {i} alone wins {test.alone[0]} levels, 1 alone {test.alone[1]}"
        difference = number(test.difference, "+.2f") + interval(test.interval, ".2f")
        yield "" if row else f"{i} less 1", name, difference, f"{test.p:.2g}", how


def run(config: CompareConfig) -> str:
    """Return the comparisons as text."""
    found = compare_policies(config.policies, config.folder)
    notes = [NOTE, calibration.NOTES.strip()] if any(calibration.lines(one.rows) for one in found) else [NOTE]
    return "\n\n".join([*(one.to_text() for one in found), *notes])


def compare_policies(policies: Sequence[str], folder: str | Path = CompareConfig.folder) -> list[Comparison]:
    """Compare stored episodes of two or more policies on the same levels.

    Args:
        policies: Names of rows; the others are compared with the first. A name with ``*`` stands for all rows that it fits, as
            training runs of one policy.
        folder: Run folder with the rows, or a folder that contains run folders.

    Returns:
        A comparison in each environment that all have played, and if there are several, one over all of them, in which each level
        counts once. Their returns are pooled only if the least and the greatest possible return are known and the same in all: a
        mean over other scales would be that of the environment with the largest numbers.

    Raises:
        UsageError: If a name is no row, or no level was played by all.
        MissingDependencyError: If scipy is not installed.
    """
    import_extra("scipy", "bench")
    if len(set(policies)) < 2:
        raise UsageError(f"policies: expected two or more rows; got {', '.join(policies) or 'none'}.")
    rows = read_runs([folder]).variants
    chosen = [_rows(name, rows, folder) for name in policies]
    titles = {variant.game: variant.environment for variants in chosen[0].values() for variant in variants}
    parts: dict[str, list[dict[str, Run]]] = {}
    for game in (game for game in titles if all(game in one for one in chosen)):
        runs = [{variant.policy: _run_of(variant) for variant in one[game]} for one in chosen]
        if common_levels(run for one in runs for run in one.values()):
            parts[game] = runs
    if not parts:
        played = "; ".join(f"{name}: {_environments(one)}" for name, one in zip(policies, chosen, strict=True))
        raise UsageError(f"policies: expected levels that all have played without an error; they played {played}.")
    found = []
    for game, runs in parts.items():
        compared = _compared(titles[game], policies, [runs], _failed(chosen, [game]))
        found.append(replace(compared, rows=tuple(variant.row for one in chosen for variant in one[game])))
    if len(parts) > 1:
        bounds = {RETURNS.get(json.loads(game)["id"]) for game in parts}
        alike = len(bounds) == 1 and None not in bounds
        title = f"all {len(parts)} environments"
        found.append(_compared(title, policies, list(parts.values()), _failed(chosen, parts), with_returns=alike))
    return found


Chosen = dict[str, list[Variant]]
"""Game -> the training runs of one policy."""


def _rows(name: str, variants: Iterable[Variant], folder: str | Path) -> Chosen:
    """Return the rows of a name, which may have asterisks, by their game."""
    pattern = re.compile(".*".join(map(re.escape, name.split("*"))))
    chosen: Chosen = {}
    for variant in variants:
        if pattern.fullmatch(variant.policy):
            chosen.setdefault(variant.game, []).append(variant)
    if not chosen:
        raise unknown_choice(f"{folder}: policies", name, dict.fromkeys(variant.policy for variant in variants))
    return chosen


def _environments(chosen: Chosen) -> str:
    return ", ".join(dict.fromkeys(variant.environment for variants in chosen.values() for variant in variants))


def _run_of(variant: Variant) -> Run:
    """Return what a policy reached in each level; an episode that ended in an error is left out."""
    played = [episode for episode in variant.episodes if episode.error is None]
    return {level: Result(*result) for level, result in by_level(played, result_of).items()}


def _failed(chosen: Iterable[Chosen], games: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Return for each policy how many of its episodes in some games ended in an error, and how many it has."""
    episodes = [[episode for game in games for variant in one[game] for episode in variant.episodes] for one in chosen]
    return tuple((sum(episode.error is not None for episode in own), len(own)) for own in episodes)


def _compared(
    title: str,
    names: Sequence[str],
    parts: Sequence[Sequence[Mapping[str, Run]]],
    failed: tuple[tuple[int, int], ...],
    *,
    with_returns: bool = True,
) -> Comparison:
    """Compare policies in one environment or in several: `parts` has their runs in each."""
    levels = [common_levels(run for runs in part for run in runs.values()) for part in parts]
    played = sum(len({level for runs in part for run in runs.values() for level in run}) for part in parts)
    tables = [
        [(tuple(part[i]), table_of(part[i].values(), chosen)) for part, chosen in zip(parts, levels, strict=True)]
        for i in range(len(names))
    ]
    means = [np.concatenate([table.mean(axis=0) for _, table in one]) for one in tables]  # each (levels, measures)
    runs = tuple(max(len(runs) for runs, _ in one) for one in tables)
    tests = [tests_of_means(other, means[0]) for other in means[1:]]
    figures: list[dict[str, Estimate]] = [{} for _ in names]
    for name, (column, statistic) in _FIGURES.items():
        if np.isnan([one[:, column] for one in means]).any() or (name in _OF_RETURNS and not with_returns):
            continue  # the environment does not say what a success is
        samples = bootstrap([[(runs, table[..., column]) for runs, table in one] for one in tables], statistic)
        for i, drawn in enumerate(samples):
            values = means[i][:, column]
            single = name == "success" and runs[i] == 1
            bounds = wilson_interval(float(values.sum()), len(values)) if single else None
            figures[i][name] = Estimate(float(statistic(values)), *(bounds or percentiles(drawn)))
            if i and name in tests[i - 1]:
                tests[i - 1][name] = replace(tests[i - 1][name], interval=percentiles(drawn - samples[0]))
    if not with_returns:
        tests = [{name: test for name, test in one.items() if name not in _OF_RETURNS} for one in tests]
    return Comparison(title, len(means[0]), played - len(means[0]), tuple(names), runs, failed, tuple(figures), tuple(tests))


@dataclass(frozen=True)
class PairTable:
    """The best policies of an environment, each compared with each other one."""

    policies: tuple[str, ...]
    """Names of the policies, the best first."""
    pairs: Mapping[tuple[int, int], PairedTest]
    """(i, j) with i < j -> how the returns of policy i differ from those of policy j; p is corrected for the number of pairs. Two
    policies without a common level are missing."""
    left_out: int
    """Number of policies that are not compared."""


def pairs_of(variants: Sequence[Variant]) -> PairTable | None:
    """Compare the best policies of an environment. Return None if there are fewer than two."""
    ranked = sorted(
        (variant for variant in variants if variant.row["return"] is not None),
        key=lambda variant: (variant.row["success"] or 0.0, variant.row["return"]),
        reverse=True,
    )
    best = ranked[:_MOST_PAIRED]
    if len(best) < 2:
        return None
    runs = [_run_of(variant) for variant in best]
    pairs: dict[tuple[int, int], PairedTest] = {}
    for i, j in itertools.combinations(range(len(best)), 2):
        if levels := common_levels([runs[i], runs[j]]):
            own, other = table_of([runs[i], runs[j]], levels)[..., 1]
            bounds = percentiles(bootstrap([[(("",), (own - other)[None])]])[0])
            pairs[i, j] = replace(paired_test(own, other), interval=bounds)
    corrected = holm([test.p for test in pairs.values()])
    pairs = {pair: replace(test, p=p) for (pair, test), p in zip(pairs.items(), corrected, strict=True)}
    return PairTable(tuple(variant.policy for variant in best), pairs, len(ranked) - len(best))
