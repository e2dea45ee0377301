"""`gym-text play`: a person plays in the terminal. The person is a policy, so `rollout` plays the episode."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gym_text.errors import PolicyError, UsageError, check_int, unknown_choice
from gym_text.spec import TextSpec
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.parsing import parse_action
from gym_text_policies.policy import Policy, text_spec
from gym_text_policies.records import Decision, Turn
from gym_text_policies.rollouts import rollout
from gym_text_policies.store import EpisodeStore

_HELP = "Type an action or its number in the list. ? lists the actions, quit ends."
_MANY = 12
"""Most actions that are listed at each step; more are listed on request."""


@dataclass(frozen=True)
class PlayConfig:
    """Play an environment in the terminal."""

    environment: str
    """Id of the environment, with keyword arguments as in BabyAIText-v0?task=goto. gym-text envs lists the ids."""
    first_seed: int = 0
    """Seed of the episode. The same seed gives the same game."""
    folder: str | None = None
    """Run folder that stores the episode. By default the episode is not stored."""

    def __post_init__(self) -> None:
        check_int("first_seed", self.first_seed, 0, 2**31 - 1)


class Person(Policy):
    """A person, who is asked for each action.

    `read` asks for a line and raises `EOFError` at the end of the input; `write` shows a text.
    """

    def __init__(self, spec: TextSpec, read: Callable[[], str], write: Callable[[str], None]) -> None:
        super().__init__(spec)
        self._read = read
        self._write = write

    @property
    def config(self) -> dict[str, Any]:
        """A person has no settings."""
        return {"kind": "person"}

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Show each observation and ask for an action; raise `PolicyError` if the person leaves the game."""
        return [Decision(self._ask(turn)) for turn in turns]

    def _ask(self, turn: Turn) -> str:
        obs = dict(turn.obs)
        names = self.spec.names(obs)
        if turn.step == 0:
            self._write(f"{obs['goal']}\n\n{_HELP}\n")
        self._write(f"\n[{turn.step + 1}] {obs['text']}")
        if 0 < len(names) <= _MANY:
            self._write(_listed(names))
        while True:
            try:
                line = self._read().strip()
            except (EOFError, RuntimeError):  # `input` raises the second if stdin was closed before the start
                line = "quit"
            if line in names:
                return line
            if line.lower() in ("quit", "exit"):
                raise PolicyError("The player left.")
            if line.lower() in ("", "?", "help"):
                self._write(_listed(names) if line == "?" and names else _HELP)
            elif (action := self._meant(line, obs, names)) is not None:
                return action
            else:
                self._write(str(unknown_choice("action", line, names)))

    def _meant(self, line: str, obs: dict[str, Any], names: Sequence[str]) -> str | None:
        """Return the action that a line stands for, which is none of the names; None if there is none."""
        if line.isdecimal() and _numbered(names) and 1 <= int(line) <= len(names):
            return names[int(line) - 1]
        action = parse_action(line, self.spec, obs)
        if action in names or (action is not None and self.spec.encoding == "box"):  # a box takes any number in it
            return action
        return line if self.spec.encoding == "text" else None  # a text game accepts any words


def run(config: PlayConfig) -> str:
    """Let a person play an episode, and return how it ended."""
    with contextlib.suppress(ImportError):  # Windows has no readline
        importlib.import_module("readline")  # `input` edits lines by it
    make_env = environment_maker(config.environment)
    with make_env() as env:
        person = Person(text_spec(env), lambda: input("> "), functools.partial(print, flush=True))
    (episode,) = rollout(make_env, person, [config.first_seed], num_envs=1)
    if config.folder is not None:
        with EpisodeStore(config.folder) as store:
            store.append(episode)
    if episode.error:
        if not episode.error.startswith("PolicyError: The player left"):
            raise UsageError(f"play: {episode.error}")
        return f"\nYou left after {episode.length} steps, with a return of {episode.total_reward:.4g}."
    last = str(episode.last_observation.get("text", ""))
    ending = {"won": "You won", "lost": "You lost", "ended": "The game is over", "truncated": "Out of steps"}[episode.outcome]
    return f"\n{last}\n\n{ending}: return {episode.total_reward:.4g} in {episode.length} steps."


def _numbered(names: Sequence[str]) -> bool:
    """Whether the list numbers its actions. It does not if an action's name is a number, such as 3, -3 or [3]."""
    return not any(name.strip("[]+-").isdecimal() for name in names)


def _listed(names: Sequence[str]) -> str:
    return "   ".join(f"{number} {name}" if _numbered(names) else name for number, name in enumerate(names, start=1))
