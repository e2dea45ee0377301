"""The expert of TextWorldExpress's games: plans that win, from the start of a level or from the middle of an episode.

The engine's gold agent solves a level from its start. In the middle of an episode the planner tries candidate paths on a second
game: first the paths that the engine's agent would take from there, then ways back to the level's gold path. It keeps a path only
if that path wins when it is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gym_text.errors import EngineError
from gym_text.textworld_express.engine import ExpressGame, ExpressState

Plan = tuple[str, ...]

_MOST_WALKS = 50
"""Number of seeds to try with an agent that searches the house at random, as it gives up after 25 or 35 moves."""
_OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}


@dataclass(frozen=True)
class PlannerConfig:
    """What the planner must know about a game."""

    agent: str = ""
    """Class name of the engine's gold agent, if it can plan from the middle of an episode."""
    agent_plans: int = 0
    """Number of plans to ask the agent for, each with a different seed."""
    agent_searches: bool = False
    """Whether the agent searches the house at random; its path is then reproducible only with a seed."""
    instructions_change: bool = False
    """Whether the player must read the instructions again after each change of the score."""


@dataclass(frozen=True)
class Situation:
    """The part of an episode's state on which planning depends."""

    level: int
    gold_path: Plan
    """The level's verified solution; empty if there is none."""
    look: str
    valid_actions: tuple[str, ...]
    score: float = 0.0
    history: tuple[str, ...] = ()
    """All actions since the start."""
    undo: tuple[str, ...] = ()
    """Actions that undo the player's actions, the latest first."""
    read: frozenset[str] = frozenset()
    """Reading actions that were played and whose answer still holds."""

    def after(self, action: str, state: ExpressState, config: PlannerConfig) -> Situation:
        """Return the situation after an action, given the state in the engine's answer."""
        name, undo, read = action.strip(), self.undo, self.read  # stripped, as the engine reads it
        if name in self.valid_actions:
            if config.instructions_change and state.score != self.score:
                read = frozenset()
            if _is_reading(name):
                read |= {name}
            if inverse := _inverse(name):
                undo = (inverse, *undo)
        return replace(
            self,
            look=state.look,
            valid_actions=state.valid_actions,
            score=state.score,
            history=(*self.history, action),
            undo=undo,
            read=read,
        )


class Planner:
    """Makes plans for one environment. It keeps no state of the episode: the caller passes the `Situation`.

    Args:
        config: What the planner must know about the game.
        fold: The fold of the levels.
        new_game: Makes the game on which the planner tries plans; called when the first plan is needed.
    """

    def __init__(self, config: PlannerConfig, fold: str, new_game: Callable[[], ExpressGame]) -> None:
        self._config = config
        self._fold = fold
        self._new_game = new_game
        self._game: ExpressGame | None = None

    def close(self) -> None:
        """Release the planner's game; the next plan makes another."""
        self._game = None

    def gold_path(self, game: ExpressGame, level: int) -> Plan | None:
        """Return the engine's solution of a level, without its invalid steps, or None if it does not win when replayed.

        Args:
            game: A loaded game, in which the level is played.
            level: The engine's seed of the level.
        """
        if not self._config.agent_searches:
            return game.winning(*game.gold_path(level, self._fold))
        for walk in range(_MOST_WALKS):
            game.start(level, self._fold)
            path = game.plan(self._config.agent, 0, walk)
            if plan := game.winning(path, game.start(level, self._fold)):
                return plan
        return None

    def plan(self, situation: Situation) -> Plan:
        """Return a new plan that wins from here, or an empty plan if the planner finds none."""
        plans = [plan for path in self._agent_paths(situation) if (plan := self._checked(situation, path))]
        if plans:
            return min(plans, key=len)
        return next((plan for path in _ways_back(situation) if (plan := self._checked(situation, path))), ())

    def game_at(self, situation: Situation) -> ExpressGame:
        """Return the planner's game, played up to a situation."""
        self._replay(situation)
        return self._trial_game()

    def _agent_paths(self, situation: Situation) -> Iterator[Plan]:
        """Yield the paths that the engine's gold agent would take from here: one for each seed, as some agents walk at random."""
        for seed in range(self._config.agent_plans):
            self._replay(situation)
            try:
                yield self._trial_game().plan(self._config.agent, len(situation.history), seed)
            except EngineError as error:
                if "IndexOutOfBounds" not in str(error):  # CookingWorld's agent raises it when no thing is left to search for
                    raise

    def _checked(self, situation: Situation, path: Plan) -> Plan | None:
        """Return the steps of a path that win from here, or None. If possible the plan first reads the unread instructions."""
        unread = [
            index
            for index, action in enumerate(situation.gold_path)
            if _is_reading(action) and action not in situation.read and action not in path
        ]
        if unread and not self._config.instructions_change:
            to_read = situation.gold_path[: unread[-1] + 1]
            if plan := self._shortened(situation, to_read + path):
                return plan
        return self._shortened(situation, path)

    def _shortened(self, situation: Situation, path: Plan) -> Plan | None:
        """Return the steps of a path that win from here, without walks in a circle and without reading again, or None."""
        while path and (path[0] in situation.read or path[0] == "look around"):
            path = path[1:]
        if not self._config.instructions_change:
            path = tuple(action for action in path if action not in situation.read)
        plan = self._winning(situation, path)
        if plan is None:
            return None
        state = self._replay(situation)
        shorter = _without_circles(self._trial_game(), plan, state)
        return (self._winning(situation, shorter) if len(shorter) < len(plan) else None) or plan

    def _winning(self, situation: Situation, path: Plan) -> Plan | None:
        """Return the valid steps of a path, up to the win, or None if it does not win from here."""
        state = self._replay(situation)
        return self._trial_game().winning(path, state)

    def _replay(self, situation: Situation) -> ExpressState:
        """Play the planner's game up to a situation, and return its state."""
        first_state = self._trial_game().start(situation.level, self._fold)
        return self._trial_game().play(situation.history) or first_state

    def _trial_game(self) -> ExpressGame:
        if self._game is None:
            self._game = self._new_game()
        return self._game


def _ways_back(situation: Situation) -> Iterator[Plan]:
    """Yield ways back to the gold path, those that enter it latest first.

    A way begins with one of these, and then enters the path: no action, actions that undo all moves, actions that undo everything
    since the start, or actions that put things down.
    """
    path = situation.gold_path
    moves = tuple(action for action in situation.undo if action.startswith("move "))
    puts = _ways_to_put_down(situation)
    for first in dict.fromkeys(((), moves, situation.undo, *puts, *(put + moves for put in puts))):
        for entry in reversed(range(len(path))):
            if first or path[entry] in situation.valid_actions:
                while entry and _is_reading(path[entry - 1]):
                    entry -= 1
                yield first + path[entry:]


def _ways_to_put_down(situation: Situation) -> tuple[Plan, ...]:
    """Return ways to carry less: put down one thing, in the order of taking, or all things that the gold path does not take."""
    taken = dict.fromkeys(action.removeprefix("take ") for action in situation.history if action.startswith("take "))
    valid = situation.valid_actions
    puts = {thing: action for thing in taken for action in reversed(valid) if action.startswith(f"put {thing} in ")}
    unneeded = tuple(put for thing, put in puts.items() if f"take {thing}" not in situation.gold_path)
    return (*((put,) for put in puts.values()), unneeded)


def _without_circles(game: ExpressGame, path: Plan, state: ExpressState) -> Plan:
    """Play a path from `state`; return it without walks in a circle."""
    steps: list[tuple[str, str]] = []  # each action, and the description of the room before it
    for action in path:
        walk = next((n for n, (step, _) in enumerate(reversed(steps)) if not step.startswith("move ")), len(steps))
        begins = [n for n in range(len(steps) - walk, len(steps)) if steps[n][1] == state.look]
        del steps[begins[0] if begins else len(steps) :]
        steps.append((action, state.look))
        state = game.step(action)
    return tuple(action for action, _ in steps)


def _is_reading(action: str) -> bool:
    """Return whether an action only gives information, which the player needs to win."""
    return action == "task" or action.startswith("read ")


def _inverse(action: str) -> str | None:
    """Return the action that undoes an action, or None if the action's name does not say enough."""
    verb, _, rest = action.partition(" ")
    if verb == "move":
        return f"move {_OPPOSITE[rest]}"
    if verb == "close":
        return f"open {rest}"
    return f"take {rest.partition(' in ')[0]}" if verb == "put" else None
