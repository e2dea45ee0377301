"""Films for a report: in each environment an episode that a language model has won."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

from gym_text_policies.files.safe_files import subfolder
from gym_text_policies.remake import remake_environment
from gym_text_policies.report.gif import write_gif
from gym_text_policies.report.runs import Variant, read_runs

_MOST_STEPS = 100
"""Most steps of an episode that is filmed."""
_logger = logging.getLogger(__name__)


def film_wins(folder: Path, *, imports: Sequence[str] = ()) -> list[Path]:
    """Film in each environment an episode that a language model has won: the shortest one of the policy that wins most often.

    Args:
        folder: A run folder. The films are in its folder ``gifs``; each has its episode's key as its name.
        imports: Modules whose environments may be played again, beside those that ship.

    Returns:
        The films.
    """
    films = []
    for variants in read_runs([folder]).environments.values():
        for variant in sorted((one for one in variants if one.asked), key=_success, reverse=True)[:1]:
            won = [summary for summary in variant.episodes if summary.won and summary.length <= _MOST_STEPS]
            for summary in sorted(won, key=lambda summary: summary.length)[:1]:
                path = subfolder(folder, "gifs") / f"{summary.key}.gif"
                if path.exists() or _filmed(path, variant, summary.key, imports):
                    films.append(path)
    return films


def _success(variant: Variant) -> float:
    return variant.row["success"] or 0.0


def _filmed(path: Path, variant: Variant, key: str, imports: Sequence[str]) -> bool:
    """Play an episode again and film it; return whether that was possible."""
    (episode,) = variant.stores[key].episodes([key])
    try:
        write_gif(
            path,
            episode,
            functools.partial(remake_environment, episode.environment, imports=imports, render_mode="rgb_array"),
            fps=2,
        )
    except Exception as error:  # an environment that a record describes may raise anything
        _logger.warning("%s, %s: no film: %s: %s", variant.environment, variant.policy, type(error).__name__, error)
        return False
    return True
