"""Symbolic modules: actions that ask a small program, not the game, and get its answer as the observation.

The idea and the four modules are those of "Behavior Cloned Transformers are Neurosymbolic Reasoners" (EACL 2023,
https://arxiv.org/abs/2210.07382). ``modules="calculator"`` gives one to any of the games. A call costs a step of the episode; the
game does not notice it.
"""

from __future__ import annotations

import functools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from gym_text.errors import check_choice
from gym_text.spec import Action, Observation
from gym_text.textworld_express.engine import check_installed

Plan = tuple[str, ...]
NAMED: dict[str, type[Module]] = {}
"""All modules by their names; defining a subclass of `Module` with a name adds it."""


class Module(ABC):
    """A program that a player can ask. It knows what the player has seen in this episode; each episode has a new module.

    A subclass sets `name`, `actions` and `most_calls`, and implements `calls` and `answer`. The observations that it gets are those
    of the game, so ``text`` is the game's last answer. It must be copyable by `copy.deepcopy`, as `gym_text.fork` copies it.
    """

    name: ClassVar[str]
    """What the argument ``modules`` calls it."""
    actions: ClassVar[tuple[Action, ...]]
    """Its actions, or their patterns, for the `TextSpec`."""
    most_calls: ClassVar[int] = 1
    """Its share of the index space (``actions="index"``): how many calls it may offer at once."""

    def __init_subclass__(cls) -> None:
        """Enter the module into `NAMED`."""
        if hasattr(cls, "name"):
            NAMED[cls.name] = cls

    def see(self, obs: Observation) -> None:  # noqa: B027  most modules remember nothing
        """Note an observation of the game: called once at the start and once after each of the game's actions."""

    @abstractmethod
    def calls(self, obs: Observation) -> Plan:
        """Return the names of the calls that can be made now."""

    @abstractmethod
    def answer(self, call: str, obs: Observation) -> str:
        """Return the answer to one of `calls`."""

    def helps(self, obs: Observation, plan: Plan) -> str | None:
        """Return the call that the expert makes now, before the first of the game's actions in its plan; by default None."""
        return None


class Calculator(Module):
    """Calculates with the two numbers of Arithmetic's problem, once it has been read, by any of the four operations."""

    name = "calculator"
    actions = (
        Action("add {number} and {number}", "ask the calculator; also multiply {number} and {number}"),
        Action("subtract {number} from {number}", "ask the calculator"),
        Action("divide {number} by {number}", "ask the calculator"),
    )
    most_calls = 6
    _problem = ""

    def see(self, obs: Observation) -> None:
        """Note the problem's words, such as add 3 and 5, when the player reads them."""
        if found := re.search(r"math problem: (\w+ \d+ \w+ \d+)", obs["text"]):
            self._problem = found[1]

    def calls(self, obs: Observation) -> Plan:
        """Return six calls: two operations whose order does not matter, and two in either order."""
        if not self._problem:
            return ()
        a, b = re.findall(r"\d+", self._problem)
        either = [call for m, n in ((a, b), (b, a)) for call in (f"subtract {m} from {n}", f"divide {m} by {n}")]
        return (f"add {a} and {b}", f"multiply {a} and {b}", *either)

    def answer(self, call: str, obs: Observation) -> str:
        """Return the result; a quotient has at most six digits."""
        a, b = map(int, re.findall(r"\d+", call))
        if call.startswith("divide") and b == 0:
            return "There is no result."
        operations = {"add": a + b, "multiply": a * b, "subtract": b - a, "divide": a / (b or 1)}
        result = operations[call.partition(" ")[0]]
        return f"The result is {result if isinstance(result, int) else format(result, '.6g')}."

    def helps(self, obs: Observation, plan: Plan) -> str | None:
        """Return the problem before the expert takes a number of things."""
        return self._problem if self._problem and re.match(r"take \d", plan[0]) else None


class Sorter(Module):
    """Sorts the things that the player sees or carries by their quantities, and knows the units."""

    name = "sorter"
    actions = (Action("sort ascending", "ask for the things in order of their quantities, the smallest first"),)
    _units: ClassVar = {"mg": 1e-6, "g": 1e-3, "kg": 1.0, "ml": 1e-3, "l": 1.0, "mm": 1e-3, "cm": 1e-2, "m": 1.0}
    """What a unit is in kilograms, litres or metres. All things of a level have one of the three, or are counted: 6 bananas."""
    _quantity: ClassVar = re.compile(r"(?:take|put) ((\d+)(?:(mg|g|kg|ml|l|mm|cm|m) of)? .+?)(?: in .+)?")

    def _sorted(self, obs: Observation) -> list[str]:
        found = {
            match[1]: int(match[2]) * self._units.get(match[3], 1.0)
            for match in map(self._quantity.fullmatch, obs["valid_actions"])
            if match
        }
        return sorted(found, key=lambda thing: (found[thing], thing))

    def calls(self, obs: Observation) -> Plan:
        """Return the call if there is something to sort."""
        return ("sort ascending",) if len(self._sorted(obs)) > 1 else ()

    def answer(self, call: str, obs: Observation) -> str:
        """Return the things in their order, those in the box too."""
        return f"In order of quantity, the smallest first: {', '.join(self._sorted(obs))}."

    def helps(self, obs: Observation, plan: Plan) -> str | None:
        """Return the call before the expert takes a thing with a quantity."""
        return "sort ascending" if self.calls(obs) and self._quantity.fullmatch(plan[0]) and plan[0].startswith("take ") else None


class Navigator(Module):
    """Tells the next room on a shortest way to a room that the player has seen, or has read of in a map."""

    name = "navigator"
    actions = (Action("next step to {room}", "ask for the next room on the way to a room; read the map first, if there is one"),)
    most_calls = 47  # Map Reader's largest building has 48 rooms

    def __init__(self) -> None:
        self._doors: dict[str, set[str]] = {}
        """The rooms next to each known room."""
        self._here = ""
        self._next_to_here: dict[str, str] = {}
        """The room in each direction in which one is seen."""

    def see(self, obs: Observation) -> None:
        """Note where the player is, and which rooms are connected."""
        self._here = found[1] if (found := re.match(r"You are in the ([^.]+)\.", obs["look"])) else ""
        ways = re.findall(r"o the (North|South|East|West) you see the ([^.]+)\.", obs["look"])  # To, or behind a door: to
        self._next_to_here = {direction.lower(): room for direction, room in ways}
        self._connect(self._here, *self._next_to_here.values())
        for room, others in re.findall(r"The ([^.:]+) connects to the ([^.]+)\.", obs["text"]):
            self._connect(room, *re.split(", | and ", others))

    def _connect(self, room: str, *others: str) -> None:
        for other in others:
            self._doors.setdefault(room, set()).add(other)
            self._doors.setdefault(other, set()).add(room)

    def calls(self, obs: Observation) -> Plan:
        """Return a call for each known room."""
        return tuple(f"next step to {room}" for room in self._doors if room != self._here)

    def _next_rooms(self, room: str) -> list[str]:
        """Return the rooms next to the player from which the way to a room is shortest; none if no way is known."""
        reached, edge = {room}, {room}
        while edge:
            if found := edge & self._doors[self._here]:
                return sorted(found)
            edge = {other for one in edge for other in self._doors[one]} - reached
            reached |= edge
        return []

    def answer(self, call: str, obs: Observation) -> str:
        """Return the next room; several if they are equally near."""
        rooms = self._next_rooms(call.removeprefix("next step to "))
        return f"The next room is the {' or the '.join(rooms)}." if rooms else "No way is known."

    def helps(self, obs: Observation, plan: Plan) -> str | None:
        """Return the call before the expert moves to the next room of the way to the coin, or with the coin to the box."""
        verb, _, direction = plan[0].partition(" ")
        aims = re.search(r"coin that is located in the ([^.]+), .* box found in the ([^.]+)\.", obs["goal"])
        if verb != "move" or not aims:
            return None
        aim = aims[2] if "a coin" in obs["inventory"] else aims[1]
        known = aim != self._here and aim in self._doors
        return f"next step to {aim}" if known and self._next_to_here.get(direction) in self._next_rooms(aim) else None


class KnowledgeBase(Module):
    """Tells where the things of TextWorld Commonsense usually belong: those that the player sees or carries.

    Its facts are the table by which the game scores, so that it is never wrong. It does not know where things and furniture are.
    """

    name = "knowledge"
    actions = (Action("query {thing}", "ask where people usually keep a thing"),)
    most_calls = 12

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def calls(self, obs: Observation) -> Plan:
        """Return a call for each thing in reach that the knowledge base has."""
        things = (re.fullmatch(r"(?:take|put) (.+?)(?: in .+)?", action) for action in obs["valid_actions"])
        return tuple(dict.fromkeys(f"query {thing[1]}" for thing in things if thing and thing[1] in _usual_places()))

    def answer(self, call: str, obs: Observation) -> str:
        """Return the thing's usual places."""
        thing = call.removeprefix("query ")
        self._asked.add(thing)
        return f"The usual place of {thing} is the {' or the '.join(_usual_places()[thing])}."

    def helps(self, obs: Observation, plan: Plan) -> str | None:
        """Return the call for a thing that the expert has just taken to put it away."""
        things = (action[4:].partition(" in ")[0] for action in plan if action.startswith("put "))
        new = (f"query {thing}" for thing in things if thing not in self._asked and f"take {thing}" not in obs["valid_actions"])
        return next((call for call in new if call in self.calls(obs)), None)


@functools.cache
def _usual_places() -> Mapping[str, Plan]:
    """Return the places of each thing of all folds, from the engine's file, in the words of the game."""
    folds = json.loads((check_installed().parent / "twc_objects.folds.json").read_text("utf-8"))
    words = {"armchair": "arm chair", "bathtub": "bath tub", "bookcase": "book case", "clothesline": "clothes line"}
    words["nightstand"] = "night stand"
    return {
        thing: tuple(words.get(place, place) for place in facts["locations"])
        for fold in folds.values()
        for thing, facts in fold.items()
    }


class Modules:
    """The modules of one episode, and the game's last observation.

    Args:
        names: Names of modules, with commas between them.

    Raises:
        UsageError: If there is no module of such a name.
    """

    def __init__(self, names: str) -> None:
        wanted = dict.fromkeys(name.strip() for name in names.split(","))
        for name in wanted:
            check_choice("modules", name, tuple(NAMED))
        self._modules = [NAMED[name]() for name in wanted]
        self._obs: Observation = {}
        self.calls: dict[str, Module] = {}
        """The calls that can be made now, and who answers them."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The patterns of all calls."""
        return tuple(action for module in self._modules for action in module.actions)

    @property
    def most_calls(self) -> int:
        """How many calls there may be at once."""
        return sum(module.most_calls for module in self._modules)

    def see(self, obs: Observation) -> Observation:
        """Show an observation of the game to all modules; return it with their calls among the valid actions."""
        for module in self._modules:
            module.see(obs)
        self._obs = obs
        self.calls = {call: module for module in self._modules for call in module.calls(obs) if call not in obs["valid_actions"]}
        return obs | {"valid_actions": tuple(sorted((*obs["valid_actions"], *self.calls)))}

    def answer(self, call: str) -> Observation | None:
        """Return what the player sees after a call: the answer as ``text``; None if no module has this call now."""
        module = self.calls.get(call)
        if module is None:
            return None
        valid_actions = tuple(sorted((*self._obs["valid_actions"], *self.calls)))
        return self._obs | {"text": module.answer(call, self._obs), "valid_actions": valid_actions}

    def with_calls(self, plan: Plan, play: Callable[[str], Observation]) -> Plan:
        """Play a plan of the game's actions, and return it with the calls that help the expert.

        Args:
            plan: The game's actions from here.
            play: Plays one of them and returns the game's observation.
        """
        steps: list[str] = []
        called: set[str] = set()  # since the last action of the game
        while plan:
            helping = (module.helps(self._obs, plan) for module in self._modules)
            call = next((call for call in helping if call in self.calls and call not in called), None)
            if call is None:
                steps.append(plan[0])
                self.see(play(plan[0]))
                plan = plan[1:]
                called.clear()
            else:
                self.answer(call)
                steps.append(call)
                called.add(call)
        return tuple(steps)
