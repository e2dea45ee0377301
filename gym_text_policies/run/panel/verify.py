"""Verify a result file: its form, its version and digests, and, on request, its episodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from gym_text.errors import GymTextError, RunError, UsageError
from gym_text_policies.files.json_data import is_finite
from gym_text_policies.policy import text_spec
from gym_text_policies.records import player_within
from gym_text_policies.run.panel.reference import Reference, the_reference, walk
from gym_text_policies.run.panel.results import EpisodeResult, Result, WorldResult, action_names, read_result, terminal_table
from gym_text_policies.run.panel.worlds import Panel, the_panel

_SAME = 1e-5
"""Greatest difference of two returns."""


def verify(path: Path, *, again: bool = False) -> str:
    """Return the table that follows from the episodes of a result file, which may come from anybody.

    Args:
        path: The file.
        again: Whether the actions of all episodes are played again.

    Raises:
        RunError: If anything does not fit; the message says what.
    """
    panel, reference = the_panel(), the_reference()
    try:
        result = read_result(path)
    except UsageError as error:
        raise RunError(str(error)) from None
    faults = list(_faults(result, panel, reference))
    if again and not faults:
        faults += [fault for name, world in result.worlds.items() for fault in _played_again(name, world, panel)]
    if faults:
        more = [f"and {len(faults) - 20} more"] if len(faults) > 20 else []
        raise RunError("\n".join([f"{path} does not hold:", *faults[:20], *more]))
    how = "and its actions lead to these returns" if again else "; with --check its actions are also played again"
    return f"{terminal_table([result], panel, reference)}\n\n{path} holds: version and digests are right{' ' * again}{how}."


def _faults(result: Result, panel: Panel, reference: Reference) -> Iterator[str]:
    """Yield what does not fit the panel."""
    if result.panel != panel.version:
        yield f"panel: expected version {panel.version}, which this package has; got {result.panel}."
        return
    for name, world in result.worlds.items():
        if name not in panel.worlds:
            yield f"worlds: expected {', '.join(panel.worlds)}; got {name[:60]!r}."
            continue
        levels = panel.levels(name, result.size)
        if world.environment != panel.worlds[name].environment:
            yield f"{name}: expected the environment {panel.worlds[name].environment}; got {world.environment!r}."
        if world.digest != (known := reference.worlds[name].digest(levels)):
            yield f"{name}: expected the digest {known}, that of the panel; got {world.digest}."
        asked, fixed = player_within(world.policy).get("history"), panel.worlds[name].history
        if fixed is not None and asked not in (None, fixed):
            yield f"{name}: expected history {fixed}, with which every language model plays there; got {str(asked)[:20]}."
        played = [episode.level for episode in world.episodes]
        if played != sorted(set(played) & set(levels)):
            yield f"{name}: expected levels from 0 to {len(levels) - 1}, in order, each once; got {str(played)[:60]}."
        for episode in world.episodes:
            if episode.length != len(episode.actions) or not 0 <= episode.invalid <= episode.length:
                yield f"{name}, level {episode.level}: expected an action for each of {episode.length} steps."
            if not is_finite(episode.total_reward):
                yield f"{name}, level {episode.level}: expected a finite return; got {episode.total_reward}."


def _played_again(name: str, world: WorldResult, panel: Panel) -> Iterator[str]:
    """Play the actions of each episode, and yield which lead to another return or another length."""
    with closing(panel.maker(name, expert="off")()) as env:
        for episode in world.episodes:
            try:
                played = walk(env, episode.level, _by_actions(episode, env))
            except (GymTextError, IndexError) as error:
                yield f"{name}, level {episode.level}: its actions cannot be played; {error}."
                continue
            if not played.over and episode.outcome != "error":
                yield f"{name}, level {episode.level}: expected actions to the end of the episode; it goes on after the last one."
            same = abs(played.total_reward - episode.total_reward) <= _SAME and played.length == episode.length
            won = episode.outcome == "won"
            if not same or played.won != won:
                found, said = _end(played.total_reward, played.length, played.won), _end(episode.total_reward, episode.length, won)
                yield f"{name}, level {episode.level}: its actions lead to {found}; the file says {said}."


def _end(total_reward: float, length: int, won: bool) -> str:
    return f"the return {total_reward:.6g} in {length} steps, {'won' if won else 'not won'}"


def _by_actions(episode: EpisodeResult, env: Any) -> Any:
    """Return a function that chooses the actions of an episode, one after the other."""
    left, spec = iter(episode.actions), text_spec(env)

    def choose(obs: Any, info: Any) -> str | None:
        action = next(left, None)
        return action_names(spec, obs)[action] if isinstance(action, int) else action

    return choose
