"""TextWorldExpress's games as Gymnasium environments: the base class of them all, and what their pages and specs share.

The engine is Jansen and Côté's TextWorldExpress (https://arxiv.org/abs/2208.01174). Each game has a file of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from gymnasium import logger, spaces

from gym_text.errors import EngineError, StepOrderError, UsageError, check_choice, check_int
from gym_text.spaces import ActionNames, FreeText
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import FOLDS, Expert, Fold, Outcome, TextEnv
from gym_text.textworld_express.engine import Game, State, check_installed

Actions = Literal["text", "index"]

_MAX_TEXT = 32768
"""Bound of every text in characters; the longest, 1,000 commands of Simon Says to be memorised, has about 16,000."""
_NO_ACTION = ""
"""What an index beyond the valid actions plays: the engine answers it as any other string that it does not understand."""
_MOST_WALKS = 50
"""Seeds to try with an agent that searches the house at random: it gives up after 25 or 35 moves."""
_OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}

GAME_FIELDS = {
    "text": Field("what the game answers to the last action"),
    "goal": Field("the task of this game"),
    "look": Field("what the present room looks like"),
    "inventory": Field("what you carry"),
    "valid_actions": Field("the actions that the game accepts now", is_list=True),
}
LOOK_AROUND = Action("look around", "describe the present room")
INVENTORY = Action("inventory", "list what you carry")
PUT = Action("put {thing} in {container}", "put down a thing")
CONTAINERS = (Action("open {container}", "open a container"), Action("close {container}", "close a container"))
DOORS = (Action("open door to {direction}", "open a door"), Action("close door to {direction}", "close a door"))
MOVE = Action("move {direction}", "walk to the next room")

_PAGE = {
    "action_space": """\
`Text`: any string is a legal action. The game understands those in ``obs["valid_actions"]``; it answers any other
with "Unknown action", which costs a step and sets ``info["action_was_valid"]`` to False.

With ``actions="index"``: `Discrete(n)`, the place in ``obs["valid_actions"]``; a place beyond the list is an invalid action.
``info["action_mask"]`` (`np.int8`) and `action_masks` (`bool`) say which places are taken. n is the most valid actions measured:
{n}.""",
    "observation_space": """\
`Dict`:

| key | space | meaning |
|---|---|---|
| `text` | `Text` | the game's answer to the last action, unchanged |
| `goal` | `Text` | the task |
| `look` | `Text` | what the present room looks like |
| `inventory` | `Text` | what the agent carries |
| `valid_actions` | `Sequence(Text)` | a sorted tuple of the actions that the game accepts now |""",
    "starting_state": """\
Seed s plays level ``seeds[s % 1000]`` of the fold: train has the engine's seeds 0 to 999, dev 10000 to 10999, test 20000
to 20999. No level of one fold is a level of another.""",
    "arguments": """\
| `actions` | text, index | text | the action space |
| `fold` | train, dev, test | train | the set of levels |
| `expert` | off, path, replan | path | the hints in `info` |
| `render_mode` | ansi, rgb_array | None | text, or text drawn as a picture |""",
    "info": """\
`gold_path` is the solution of the engine's gold agent, replayed at reset: steps that are not valid when they are played
are dropped, and it is left out should it not win. With ``expert="replan"`` a new plan is made on a copy of the game
wherever the agent has left the path, and believed only if it wins when replayed. `gold_steps` is the length of the plan
that `gold_action` begins.""",
}
"""What the environments' docstring pages have in common; ``{action_space}`` and so on in a docstring stand for it."""


class Range(NamedTuple):
    """An integer parameter: the engine's name, and the values that it takes."""

    engine_name: str
    low: int
    high: int

    def check(self, name: str, value: object) -> int:
        """Return the value as the engine takes it, or raise `UsageError`."""
        return check_int(name, value, self.low, self.high)


class Flag(NamedTuple):
    """A parameter that is on or off, under the engine's name."""

    engine_name: str

    def check(self, name: str, value: object) -> int:
        """Return the value as the engine takes it, or raise `UsageError`."""
        if not isinstance(value, (bool, np.bool_)):
            raise UsageError(f"{name}: expected True or False; got {value!r}.")
        return int(value)


class TextWorldExpressEnv(TextEnv):
    """Base of the games: levels by fold, text in and text out, the engine's expert verified by replay.

    A subclass names the game, its spec, its parameters and its gold agent, and has the docstring of the environment. One with
    parameters has a constructor, which ends with `_set_parameters`.

    Args:
        actions: ``text``: an action is its name. ``index``: an action is its place in ``obs["valid_actions"]``.
        fold: The set of levels.
        expert: The hints in ``info``.
        render_mode: ``ansi``, ``rgb_array`` or None.
    """

    game: ClassVar[str]
    game_spec: ClassVar[TextSpec]
    most_actions: ClassVar[int]
    """The most valid actions measured at the registered parameters: the size of the index space."""
    most_actions_ever: ClassVar[int]
    """The most valid actions measured at any parameters: the size of the index space at others."""
    parameters: ClassVar[dict[str, Range | Flag]] = {}
    gold_agent: ClassVar[str] = ""
    """The engine's class that plays this game, where it can plan from the middle of an episode."""
    agent_plans: ClassVar[int] = 0
    """How many plans to ask of it."""
    agent_searches: ClassVar[bool] = False
    """Whether the agent searches the house at random, so that its path is the same only if it is asked with a seed."""
    news_changes: ClassVar[bool] = False
    """Whether what has been read must be read again after a change of the score."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Fill in what the page shares with the other games' pages."""
        super().__init_subclass__(**kwargs)
        page = inspect.cleandoc(cls.__doc__ or "")
        for name, text in _PAGE.items():
            page = page.replace(f"{{{name}}}", text)
        cls.__doc__ = page.replace("{n}", cls._size_of_index_space())

    @classmethod
    def _size_of_index_space(cls) -> str:
        """Return what the page says of the size of the index space."""
        if cls.most_actions == cls.most_actions_ever:
            return f"{cls.most_actions}"
        return f"{cls.most_actions}; {cls.most_actions_ever} at other than the registered parameters"

    def __init__(
        self, *, actions: Actions = "text", fold: Fold = "train", expert: Expert = "path", render_mode: str | None = None
    ) -> None:
        check_installed()
        check_choice("actions", actions, ("text", "index"))
        check_choice("fold", fold, FOLDS)
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self.game_parameters: dict[str, int] = {}
        self.text_spec = dataclasses.replace(self.game_spec, encoding=actions)
        self.action_space = FreeText(256) if actions == "text" else spaces.Discrete(self.most_actions)
        self.observation_space = spaces.Dict(
            {
                "text": FreeText(_MAX_TEXT),
                "goal": FreeText(_MAX_TEXT),
                "look": FreeText(_MAX_TEXT),
                "inventory": FreeText(_MAX_TEXT),
                "valid_actions": ActionNames(),
            }
        )
        self._by_index = actions == "index"
        self._fold: Fold = fold
        self._game: Game | None = None
        self._twin: Game | None = None
        self._seeds: tuple[int, ...] = ()
        self._level = 0
        self._goal = ""
        self._valid: tuple[str, ...] = ()
        self._engine_score = 0.0
        self._history: list[str] = []
        self._undo: list[str] = []
        self._known: set[str] = set()
        self._looks: set[str] = set()
        self._done: set[tuple[str, str]] = set()
        self._replanned: tuple[str, ...] = ()

    def _set_parameters(self, **values: object) -> None:
        """Set `game_parameters`, the engine's names and values, from our own; raise `UsageError` for one that cannot be meant."""
        self.game_parameters |= {
            self.parameters[name].engine_name: self.parameters[name].check(name, value) for name, value in values.items()
        }
        registered = inspect.signature(type(self)).parameters
        if self._by_index and any(value != registered[name].default for name, value in values.items()):
            self.action_space = spaces.Discrete(self.most_actions_ever)

    # ---------------------------------------------------------------- the game

    def _level_seed(self, seed: int) -> int:
        if not self._seeds:
            self._seeds = self._engine().seeds(self._fold)
        return self._seeds[seed % len(self._seeds)]

    def _start(self, seed: int) -> Observation:
        game = self._engine()
        state = game.start(seed, self._fold)
        self._level, self._goal = seed, game.task()
        self._engine_score = 0.0
        self._history, self._undo, self._known, self._replanned = [], [], set(), self._path or ()
        self._looks, self._done = {state.look}, set()
        return self._observation(state)

    def _play(self, action: Any) -> Outcome:
        spoken = self._spoken(action)
        return self._answered(spoken, self._engine().step(spoken))

    def _spoken(self, action: Any) -> str:
        """Return what an action of either space says to the engine."""
        if not self._by_index:
            return str(action)
        return self._valid[action] if action < len(self._valid) else _NO_ACTION

    def _answered(self, action: str, state: State) -> Outcome:
        """Return what became of an action, from the state that the engine answers with."""
        was_valid = action.strip() in self._valid  # as the engine reads it
        reward, self._engine_score = state.score - self._engine_score, state.score
        if self.expert == "replan":
            self._remember(action, was_valid, reward)
            self._looks.add(state.look)
            self._done.add((_room(state.look), action.strip()))
        return Outcome(
            self._observation(state),
            reward,
            terminated=state.success or state.failure or state.score >= 1.0,
            success=state.success,
            failure=state.failure,
            action_was_valid=was_valid,
        )

    def _engine(self) -> Game:
        if self._game is None:
            self._game = Game(self.game, self.game_parameters)
        return self._game

    def _observation(self, state: State) -> Observation:
        self._valid = state.valid_actions
        return {
            "text": state.observation,
            "goal": self._goal,
            "look": state.look,
            "inventory": state.inventory,
            "valid_actions": state.valid_actions,
        }

    @staticmethod
    def _copied(obs: Observation) -> Observation:
        return obs.copy()  # strings and tuples of strings

    def close(self) -> None:
        """Let go of the games; the JVM serves other environments and ends with the process."""
        self._game = self._twin = None
        super().close()

    # ---------------------------------------------------------------- the index space

    def action_masks(self) -> np.ndarray:
        """Return which indices are valid actions now, bool of shape (n,); sb3-contrib's MaskablePPO asks for it.

        Raises:
            UsageError: If the environment was not made with ``actions="index"``.
            StepOrderError: Before `reset`.
        """
        if not isinstance(self.action_space, spaces.Discrete):
            raise UsageError("action_masks: expected an environment made with actions='index'; this one has actions='text'.")
        if self._obs is None:
            raise StepOrderError("action_masks: expected an episode; there is none. Call reset() first.")
        if len(self._valid) > self.action_space.n:
            logger.warn(
                f"{self.game}: {len(self._valid)} actions are valid, the index space has {self.action_space.n} places. "
                "Pass actions='text' to reach them all."
            )
        return np.arange(self.action_space.n) < len(self._valid)

    def _more_info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks().astype(np.int8)} if self._by_index else {}

    # ---------------------------------------------------------------- the expert

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        game = self._engine()
        if not self.agent_searches:
            return game.winning(*game.gold_path(seed, self._fold))
        for walk in range(_MOST_WALKS):
            game.start(seed, self._fold)
            path = game.plan(self.gold_agent, 0, walk)
            if plan := game.winning(path, game.start(seed, self._fold)):
                return plan
        return None

    def plan_steps(self, action: Any) -> float:
        """Return how many steps a win would take after an action, which is not played; infinite where the expert has no plan.

        Those of the expert's plan, without what it would win without: it looks into what it passes, and closes what it has opened.

        Raises:
            UsageError: If the environment was not made with ``expert="replan"``.
            StepOrderError: Without a running episode.
            InvalidActionError: As `step`.
        """
        self._replanning("plan_steps")
        spoken = self._spoken(self._checked(action))
        self._replay(self._other())
        state = self._other().step(spoken)
        if state.success or state.failure or state.score >= 1.0:
            return 0.0 if state.success else math.inf
        present = self._history, self._undo, self._known, self._replanned, self._valid
        try:
            self._history, self._undo, self._known = self._history.copy(), self._undo.copy(), self._known.copy()
            self._remember(spoken, spoken.strip() in self._valid, state.score - self._engine_score)
            self._valid = state.valid_actions
            rest, self._replanned = self._replanned, ()
            self._hint()  # anew after each action, so that none is measured by an older plan alone
            plans = [plan for plan in (rest, self._replanned) if plan]
            return float(len(self._without_detours(self._other(), min(plans, key=len)))) if plans else math.inf
        finally:
            self._history, self._undo, self._known, self._replanned, self._valid = present

    def looks_further(self, action: Any) -> bool:
        """Return whether an action, which is not played, looks where nobody has looked, for a thing that nobody has seen.

        That is: the expert's plan goes for a thing that no room has shown in this episode, and the action enters a room for the
        first time, or opens what it has not opened before. The expert knows where things are: that its plan takes another way
        tells nothing against the action.

        Raises:
            UsageError: If the environment was not made with ``expert="replan"``.
            StepOrderError: Without a running episode.
            InvalidActionError: As `step`.
        """
        present = self._replanning("looks_further")["look"]
        spoken = self._spoken(self._checked(action)).strip()
        if not spoken.startswith(("move ", "open ")) or all(self._has_seen(_aim(step)) for step in self._replanned):
            return False
        self._replay(self._other())
        look = self._other().step(spoken).look
        room = _room(look)
        if room != _room(present):
            return all(room != _room(seen) for seen in self._looks)
        return look != present and (room, spoken) not in self._done

    def _replanning(self, caller: str) -> Observation:
        """Return the present observation, if there is an episode with an expert that plans anew."""
        if self.expert != "replan":
            raise UsageError(f"{caller}: expected an environment made with expert='replan'; this one has {self.expert!r}.")
        return self._running(caller)

    def _has_seen(self, thing: str) -> bool:
        return any(thing in look for look in self._looks)

    def _other(self) -> Game:
        """Return the game on which plans are made."""
        if self._twin is None:
            self._twin = Game(self.game, self.game_parameters)
        return self._twin

    def _hint(self) -> str | None:
        if not self._replanned:
            twin = self._other()
            plans = [plan for path in self._agent_paths(twin) if (plan := self._tried(twin, path))]
            if plans:
                self._replanned = min(plans, key=len)
            else:
                self._replanned = next((plan for path in self._ways_back() if (plan := self._tried(twin, path))), ())
        return self._replanned[0] if self._replanned else None

    def _steps_left(self) -> int | None:
        return len(self._replanned) if self.expert == "replan" else super()._steps_left()

    def _remember(self, action: str, was_valid: bool, reward: float) -> None:
        """Note what planning from the middle of an episode needs to know of the step."""
        self._history.append(action)
        self._replanned = self._replanned[1:] if self._replanned[:1] == (action,) else ()
        action = action.strip()
        if not was_valid:
            return
        if self.news_changes and reward:
            self._known.clear()
        if _is_news(action):
            self._known.add(action)
        if undo := _undo(action):
            self._undo.insert(0, undo)

    def _agent_paths(self, twin: Game) -> Iterator[tuple[str, ...]]:
        """Yield what the engine's gold agent would do from here; some agents walk at random, so each plan is another."""
        for seed in range(self.agent_plans):
            self._replay(twin)
            try:
                yield twin.plan(self.gold_agent, len(self._history), seed)
            except EngineError as error:
                if "IndexOutOfBounds" not in str(error):  # as of CookingWorld's agent, where it has all that it could look for
                    raise

    def _ways_back(self) -> Iterator[tuple[str, ...]]:
        """Yield ways to the gold path's end, latest entry first: from here, with what was done undone, or a thing put down."""
        path = self._path or ()
        moves = tuple(action for action in self._undo if action.startswith("move "))
        lighter = self._lighter(path)
        for first in dict.fromkeys(((), moves, tuple(self._undo), *lighter, *(puts + moves for puts in lighter))):
            for entry in reversed(range(len(path))):
                if first or path[entry] in self._valid:
                    while entry and _is_news(path[entry - 1]):
                        entry -= 1
                    yield first + path[entry:]

    def _lighter(self, path: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Return ways to carry less: without one thing, the one carried longest first, or without all that `path` does not take."""
        taken = dict.fromkeys(action.removeprefix("take ") for action in self._history if action.startswith("take "))
        puts = {thing: action for thing in taken for action in reversed(self._valid) if action.startswith(f"put {thing} in ")}
        return (*((put,) for put in puts.values()), tuple(put for thing, put in puts.items() if f"take {thing}" not in path))

    def _tried(self, twin: Game, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return what of `path` wins from here: after what is still to be read, if it can be, and without walking in circles."""
        own = self._path or ()
        unread = [n for n, action in enumerate(own) if _is_news(action) and action not in self._known and action not in path]
        if unread and not self.news_changes and (plan := self._shortest(twin, own[: unread[-1] + 1] + path)):
            return plan
        return self._shortest(twin, path)

    def _shortest(self, twin: Game, path: tuple[str, ...]) -> tuple[str, ...] | None:
        while path and (path[0] in self._known or path[0] == "look around"):
            path = path[1:]
        if not self.news_changes:
            path = tuple(action for action in path if action not in self._known)
        plan = twin.winning(path, self._replay(twin))
        if plan is None:
            return None
        shorter = _without_circles(twin, plan, self._replay(twin))
        return (twin.winning(shorter, self._replay(twin)) if len(shorter) < len(plan) else None) or plan

    def _without_detours(self, twin: Game, plan: tuple[str, ...]) -> tuple[str, ...]:
        """Return a plan without the steps that it wins without, those apart that tell what must be known."""
        for place in reversed(range(len(plan) - 1)):
            if not _is_news(plan[place]):
                plan = twin.winning(plan[:place] + plan[place + 1 :], self._replay(twin)) or plan
        return plan

    def _replay(self, game: Game) -> State:
        """Bring another game to the present state."""
        first = game.start(self._level, self._fold)
        return game.play(self._history) or first


def _without_circles(game: Game, path: tuple[str, ...], state: State) -> tuple[str, ...]:
    """Play `path` from `state` and return it without the walks that lead back to where they began."""
    kept: list[tuple[str, str]] = []  # the action, and the look of the room before it
    for action in path:
        walk = next((n for n, (step, _) in enumerate(reversed(kept)) if not step.startswith("move ")), len(kept))
        begins = [n for n in range(len(kept) - walk, len(kept)) if kept[n][1] == state.look]
        del kept[begins[0] if begins else len(kept) :]
        kept.append((action, state.look))
        state = game.step(action)
    return tuple(action for action, _ in kept)


def _room(look: str) -> str:
    """Return the sentence of a room's description that names it."""
    return look.partition(".")[0]


def _aim(action: str) -> str:
    """Return the thing that an action takes, or that it puts, or cooks, something in; empty for others."""
    return action.removeprefix("take ") if action.startswith("take ") else action.partition(" in ")[2]


def _is_news(action: str) -> bool:
    """Return whether an action tells what must be known to win, and changes nothing else."""
    return action == "task" or action.startswith("read ")


def _undo(action: str) -> str | None:
    """Return the action that takes an action back, where its name says enough to know."""
    verb, _, rest = action.partition(" ")
    if verb == "move":
        return f"move {_OPPOSITE[rest]}"
    if verb == "close":
        return f"open {rest}"
    return f"take {rest.partition(' in ')[0]}" if verb == "put" else None
