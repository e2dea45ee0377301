"""ScienceWorld's engine: its calls, and its answers as Python values.

The engine is the Scala program in the ``scienceworld`` wheel (https://github.com/allenai/ScienceWorld); it runs inside this
process, in the JVM that `gym_text.java.jvm` starts. A separate class loader loads it, as its version of Scala is not that of
TextWorldExpress. `gym_text.science_world.engine_classes` says which classes are changed, and why. The engine's global state, such
as the next object's number, is replaced by the game's own whenever another game plays.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gym_text.errors import EngineError, import_extra
from gym_text.java.jvm import check_java, encodable, engine_jar, enter, full_heap, numbers, start, strings
from gym_text.science_world.actions import GENERATORS, canonical, considered_actions
from gym_text.science_world.engine_classes import OBJECT, EngineClasses
from gym_text.science_world.tasks import is_electrical

EXTRA = "scienceworld"
"""The extra of pip that installs the engine and what it needs."""
_UNUSABLE = ("location/Location", "portal/Portal", "agent/Agent", "substance/Air")
"""Classes of the objects that an agent cannot use: places, doors, the agent itself, the air."""
_COMMANDS = ("help", "objects", "task")
"""Commands that the engine answers without a step of the game."""
_UNKNOWN = "Unknown action.  Type 'help' for a list of actions, and 'objects' for a list of possible object referents. "
"""The engine's answer to an action for which it has no other answer."""
_lock = threading.RLock()
_engine: _Engine | None = None


def check_installed() -> Path:
    """Return the path of the engine's jar, without starting Java; raise `MissingDependencyError` if a package is not installed."""
    check_java(EXTRA)
    return engine_jar("scienceworld", "scienceworld.jar", EXTRA)


class _Engine(EngineClasses):
    """The engine's global state, and the classes that playing needs."""

    def __init__(self) -> None:
        start()
        super().__init__(check_installed(), import_extra("jpype", EXTRA))
        types = self.module("util/UniqueTypeID")
        self._setter("util/UniqueTypeID$", "FILENAME_IDS")(types, os.devnull)  # else the engine would write a useless table
        self.interface = self.of("scienceworld/runtime/pythonapi/PythonInterface")
        self._numbers = self.module("util/UniqueIdentifier")
        self._set_numbers = getattr(self._numbers, "count_$eq")  # Scala's name of a setter
        self._simplifier = self.module("main/scala/scienceworld/runtime/SimplifierProcessor")
        self._set_generator = self._setter("scala/util/Random", "self")
        self._random, self._choice = self.module("scala/util/Random"), self.module("scala/util/Choice")
        self.new_generator = self.jpype.JClass("java.util.Random")
        self._playing_game: ScienceWorldGame | None = None
        self.input_parser = self.module("scienceworld/input/InputParser")
        self.path_finder = self.module("scienceworld/goldagent/PathFinder")
        self.generators = {kind: self.module(f"scienceworld/actions/Action{name}") for kind, name in GENERATORS.items()}
        components = "scienceworld/objects/electricalcomponent"
        self.Terminal, self.Wire = self.of(f"{components}/Terminal"), self.of(f"{components}/Wire")
        self.unusable_classes = tuple(self.of(f"scienceworld/objects/{name}") for name in _UNUSABLE)
        self.Place = self.unusable_classes[0]
        self._thing = self.of(OBJECT).class_
        arrays = self.jpype.JClass("java.lang.reflect.Array")
        self._new_array, self._set_in_array = arrays.newInstance, arrays.set
        self._no_names = self.module("scala/collection/immutable/Map").empty()
        self._pair = self.of("scala/Tuple2")
        self._arrays = self.jpype.JClass("java.util.Arrays")

    def play(self, game: ScienceWorldGame) -> None:
        """Let a game play: the engine's global state becomes the game's. The caller holds the lock."""
        if self._playing_game is not game:
            if self._playing_game is not None:
                self._playing_game.numbers = self._numbers.count()
            self._set_numbers(game.numbers)
            self._set_generator(self._random, game.generator)
            self._simplifier.parseSimplificationStr(game.simplifications)
            game.enter_interface()
            self._playing_game = game

    def can_teleport(self) -> bool:
        """Return whether the playing game has the simplification that lets the agent teleport."""
        return bool(self._simplifier.isSimplificationEnabled(self._simplifier.SIMPLIFICATION_TELEPORT_ACTION()))

    def in_reach(self, room: Any, agent: Any, *, hidden: bool) -> dict[int, Any]:
        """Return the things in a room and those that the agent carries, by number; the engine collects them separately."""
        things = {}
        for container in (room, agent):
            accessible = self.input_parser.collectAccessibleObjects(container, hidden)
            array = self._new_array(self._thing, int(accessible.size()))
            accessible.copyToArray(array)
            things.update({int(thing.uuid()): thing for thing in array})
        return things

    def array_of(self, things: Sequence[Any]) -> Any:
        """Return Java's array of things."""
        array = self._new_array(self._thing, len(things))
        for index, thing in enumerate(things):
            self._set_in_array(array, index, thing)
        return array

    def referents(self, thing: Any, room: Any) -> tuple[str, ...]:
        """Return the names by which the engine understands a thing in a room."""
        return self.texts(self.input_parser.getObjectReferents(thing, room))

    def names_of(self, names: Mapping[int, str]) -> Any:
        """Return Scala's map of the things' names, by their numbers."""
        scala = self._no_names
        for number, name in names.items():
            scala = getattr(scala, "$plus")(self._pair(number, name))
        return scala

    def texts(self, array: Any) -> tuple[str, ...]:
        """Return the elements of a Java array as strings."""
        return tuple(str(self._arrays.toString(array))[1:-1].split(", ")) if len(array) else ()

    def reset_choices(self) -> None:
        """Reset the generator that draws names and the expert's random steps."""
        self._choice.setSeed(0)


def engine() -> _Engine:
    """Return the engine, after starting Java if this is the first call."""
    global _engine
    with _lock:
        enter()
        if _engine is None:
            _engine = _Engine()
        return _engine


class ScienceWorldState(NamedTuple):
    """The engine's answer to a step, or at the start of a game."""

    observation: str
    look: str
    inventory: str
    score: float
    """From 0 to 1; negative if the task is lost."""
    is_over: bool


class ScienceWorldGame:
    """One game in the engine.

    Args:
        task: The engine's name of the task, such as ``boil``.
        simplifications: The engine's names, with commas between.
        interface: The engine's interface of another game of this task, to be shared; None makes one.

    Raises:
        EngineError: If the engine refuses; the message has the task, its variation and the simplifications.
    """

    def __init__(self, task: str, simplifications: str, interface: Any = None) -> None:
        self.task, self.simplifications = task, simplifications
        self.variation: int | None = None
        self._engine = engine()
        self.numbers = 0
        self.generator = self._engine.new_generator(0)
        self._java = interface
        self._world: Any = None
        self._agent: Any = None
        with self._playing():
            if interface is None:
                self._java = self._engine.interface()
                getattr(self._java, "taskStr_$eq")(task)  # Scala's name of a setter; `variations` depends on the task

    def __str__(self) -> str:
        """Return the name of the game for error messages."""
        return f"{self.task}, variation {self.variation}" + (f", {self.simplifications}" if self.simplifications else "")

    def start(self, variation: int, *, with_gold: bool = False) -> ScienceWorldState:
        """Begin a variation of the task; with `with_gold` the engine also finds the solution that `gold` returns."""
        with self._playing():
            return self._state(str(self._load(variation, with_gold=with_gold)._1()), 0.0, False)

    def _load(self, variation: int, *, with_gold: bool) -> Any:
        """Begin a variation; return the engine's answer to the first step."""
        self.variation = variation
        self._engine.reset_choices()
        complaint = str(self._java.load(self.task, variation, self.simplifications, with_gold))
        if complaint:
            raise EngineError(f"ScienceWorld: {self}: {complaint}")
        self._world = self._java.agentInterface(), self._java.agent()
        self._agent = self._world[0].get()
        return self._agent.step("look around")  # as the official client begins

    def enter_interface(self) -> None:
        """Put this game's world into the interface, as games that are copies share their interface."""
        if self._world is not None:
            getattr(self._java, "agentInterface_$eq")(self._world[0])
            getattr(self._java, "agent_$eq")(self._world[1])

    def fork(self, actions: Sequence[str]) -> ScienceWorldGame:
        """Return a new game in the state of this one. The engine cannot copy its world, so the new game plays the actions.

        Args:
            actions: All actions that this game has played since its start.
        """
        assert self.variation is not None
        twin = ScienceWorldGame(self.task, self.simplifications, self._java)
        with twin._playing():
            twin._load(self.variation, with_gold=False)
            for action in actions:
                twin._play(action)
        return twin

    def gold(self) -> tuple[str, ...]:
        """Return the engine's own solution of the present variation, unverified."""
        with self._playing():
            return tuple(str(action) for action in self._java.getGoldActionSequence())

    def step(self, action: str) -> ScienceWorldState:
        """Play an action. An action that the engine does not understand costs no time in the game."""
        with self._playing():
            answer = str(self._play(action))
            if _is_command(action):
                goals = self._agent.task().goalSequence()
                return self._state(answer, float(goals.score()), bool(goals.isCompleted()))
            text, score, over = answer[1:-1].rsplit(",", 2)  # a tuple in brackets: text, score and whether the game is over
            return self._state(text or _UNKNOWN, float(score), over == "true")

    def _play(self, action: str) -> Any:
        """Play an action; return the engine's answer."""
        return self._java.step(action) if _is_command(action) else self._agent.step(encodable(action))

    def goal(self) -> str:
        """Return the task's description."""
        with self._playing():
            return str(self._java.getTaskDescription())

    def variations(self, fold: str) -> tuple[int, ...]:
        """Return the variations of a fold."""
        with self._playing():
            return numbers(getattr(self._java, f"getVariations{fold.capitalize()}")())

    def all_actions(self) -> tuple[str, ...]:
        """Return the engine's whole list of valid actions, sorted."""
        with self._playing():
            self._engine.reset_choices()
            return tuple(sorted(set(strings(self._java.getValidActionObjectCombinations()))))

    def considered_actions(self) -> tuple[str, ...]:
        """Return the actions that a player would consider, sorted."""
        with self._playing():
            return considered_actions(self._engine, self._agent, electrical=is_electrical(self.task))

    def place(self) -> str:
        """Return the name of the place where the agent is."""
        with self._playing():
            return str(self._agent.agent().getContainer().get().name())

    def way_to(self, place: str) -> tuple[str, ...]:
        """Return the actions that lead from here to a place, unverified; none if there is no way, or the agent is there."""
        here = self.place()
        if here == place:
            return ()
        with self._playing():
            way = self._engine.path_finder.createActionSequence(self._agent.universe(), self._agent.agent(), here, place)
            return tuple(str(action) for action in way._2())

    def canonical(self, action: str) -> str:
        """Return an action in the words of `considered_actions`."""
        with self._playing():
            return canonical(self._engine, self._agent, action)

    @contextlib.contextmanager
    def _playing(self) -> Iterator[None]:
        enter()
        with _lock:
            self._engine.play(self)
            try:
                yield
            except self._engine.jpype.JException as error:
                raise full_heap(f"ScienceWorld: {self}", error) or EngineError(f"ScienceWorld: {self}: {error}") from error

    def _state(self, observation: str, score: float, is_over: bool) -> ScienceWorldState:
        look, inventory = str(self._agent.freeActionLook()), str(self._agent.freeActionInventory())
        return ScienceWorldState(observation, look, inventory, score, is_over or score < 0)


def _is_command(action: str) -> bool:
    return action.strip().lower() in _COMMANDS
