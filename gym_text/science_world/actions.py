"""The actions that a player of ScienceWorld would consider. Each thing in reach has a name that no other thing has.

The engine's own list pairs every thing with every other: about 1,600 actions, most of them absurd. This list has at most `MOST`,
the most useful first: actions on one thing, then actions on two things of which the agent carries one, then all other pairs. The
engine's rules decide which of these are possible. The list connects terminals only if the task is about electricity.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

MOST = 300
"""Most actions of the list."""
ALWAYS = ("inventory", "look around", "task", "wait", "wait1")
SINGLE = {
    **{"open door": "open {}", "close door": "close {}", "move through door": "go to {}", "pick up": "pick up {}"},
    **{"put down": "put down {}", "activate": "activate {}", "deactivate": "deactivate {}", "focus on": "focus on {}"},
    **{"look at": "look at {}", "look in": "look in {}", "read": "read {}", "eat": "eat {}", "flush": "flush {}", "mix": "mix {}"},
    "disconnect electrically": "disconnect {}",
}
"""Actions on one thing: the engine's name of the action, and its words."""
PAIRS = {
    "use object": ("use {} on {}", ("device", "patient")),
    "move object": ("move {} to {}", ("obj", "moveTo")),
    "pour object": ("pour {} into {}", ("obj", "moveTo")),
    "dunk object": ("dunk {} into {}", ("moveTo", "moveFrom")),
    "connect electrically": ("connect {} to {}", ("terminalA", "terminalB")),
}
"""Actions on two things: the engine's name of the action, its words, and the engine's names of the two things."""
PLAIN = {
    "look around": "look around",
    "view inventory": "inventory",
    "task description": "task",
    "wait1": "wait1",
    "wait10": "wait",
}
"""Actions without a thing: the engine's name of the action, and its words."""
GENERATORS = {
    **{"open door": "OpenDoor", "close door": "CloseDoor", "move through door": "MoveThroughDoor", "activate": "Activate"},
    **{"pick up": "PickUpObjectIntoInventory", "put down": "PutDownObjectIntoInventory", "deactivate": "Deactivate"},
    **{"focus on": "Focus", "look at": "LookAt", "look in": "LookIn", "read": "Read", "eat": "Eat", "flush": "Flush", "mix": "Mix"},
    **{"use object": "UseDevice", "move object": "MoveObject", "pour object": "PourObject", "dunk object": "DunkObject"},
    **{"connect electrically": "ConnectElectrical", "disconnect electrically": "DisconnectElectrical"},
}
"""The engine's classes that list the possible actions, by the engine's name of the action."""
_ELECTRICAL = ("connect electrically", "disconnect electrically")


class Things(NamedTuple):
    """The things in reach."""

    names: Mapping[int, str]
    """The name of each thing, by the thing's number; doors, places and the agent are things, too."""
    all: Any
    """Java's array of all things in reach except terminals."""
    usable: Any
    """Java's array of the things that an agent can use: no places, no doors, not the agent, not the air."""
    places: Any
    """Java's array of the places to which a door leads."""
    mixable: Any
    """Java's array of the things that contain several others."""
    unusable_names: tuple[str, ...]
    """Names of places, doors, the agent and the air: the list has no actions that put something there."""
    carried_names: tuple[str, ...]
    """Names of the things that the agent carries."""
    connections: tuple[str, ...]
    """Actions that connect two terminals; none unless the task is about electricity."""


def _named_things(engine: Any, agent: Any, *, hidden: bool) -> tuple[dict[int, Any], dict[int, Any], dict[int, str]]:
    """Return three dicts by number: the things in reach, the terminals in reach, and the names of both."""
    room = agent.getAgentVisibleObjects(False)._2()
    inventory = agent.agent().getInventoryContainer()
    reachable = engine.in_reach(room, agent.agent(), hidden=hidden)  # hidden: such as all terminals but those of wires
    terminals = {number: thing for number, thing in reachable.items() if isinstance(thing, engine.Terminal)}
    things = {
        number: thing
        for number, thing in reachable.items()
        if number not in terminals and thing != inventory and not (hidden and thing.isHidden())
    }
    names = choose_names({n: (str(thing.name()).lower(), engine.referents(thing, room)) for n, thing in things.items()})
    return things, terminals, names | {number: terminal_name(terminal, names) for number, terminal in terminals.items()}


def things_in_reach(engine: Any, agent: Any, *, electrical: bool) -> Things:
    """Return the things that the agent can see or reach where it is, with a name for each."""
    things, terminals, names = _named_things(engine, agent, hidden=electrical)
    inventory = agent.agent().getInventoryContainer()
    unusable = {number: thing for number, thing in things.items() if isinstance(thing, engine.unusable_classes)}
    return Things(
        names,
        engine.array_of([*things.values()]),
        engine.array_of([thing for number, thing in things.items() if number not in unusable]),
        engine.array_of([thing for thing in unusable.values() if isinstance(thing, engine.Place)]),
        engine.array_of([thing for thing in things.values() if thing.getContainedObjects(False).size() > 1]),
        tuple(names[number] for number in unusable),
        tuple(names[number] for number, thing in things.items() if inventory.contains(thing)),
        tuple(_connections(engine, terminals, names)) if electrical else (),
    )


def choose_names(things: Mapping[int, tuple[str, Iterable[str]]]) -> dict[int, str]:
    """Choose for each thing a name that no other thing has: the thing's usual name if possible, else its shortest other name.

    Args:
        things: By a thing's number, its usual name and all names that the engine understands.
    """
    count = Counter(itertools.chain.from_iterable({*names} for _, names in things.values()))
    chosen = {}
    for number, (usual, names) in things.items():
        candidates = _by_preference(usual, tuple(names))
        chosen[number] = next((name for name in candidates if count[name] == 1), candidates[0])
    return chosen


@functools.lru_cache(maxsize=10_000)
def _by_preference(usual: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Sort a thing's names: first those that begin with its usual name, then the shorter ones. Without names, the usual name."""
    stem = "door to" if usual == "door" else usual
    return tuple(sorted(names, key=lambda name: (not name.startswith(stem), name.count(" "), len(name), name))) or (usual,)


def terminal_name(terminal: Any, names: Mapping[int, str]) -> str:
    """Return the name of a terminal, which begins with the name of its thing: ``red wire terminal 1``, ``battery anode``."""
    thing = terminal.parentObject()
    return f"{names.get(int(thing.uuid()), str(thing.name()))} {terminal.name()}"


def _connections(engine: Any, terminals: Mapping[int, Any], names: Mapping[int, str]) -> Iterator[str]:
    """Yield the actions that connect a terminal of a wire.

    The other terminal belongs to another wire, to an electrical component, or to a thing that can be moved.
    """
    of_wires, of_others = [], []
    for number, terminal in terminals.items():
        thing = terminal.parentObject()
        if isinstance(thing, engine.Wire):
            of_wires.append((names[number], thing))
        elif not terminal.isHidden() or (thing.propMoveable().isDefined() and thing.propMoveable().get().isMovable()):
            of_others.append(names[number])
    for index, (name, wire) in enumerate(of_wires):
        for other_name in (*(other for other, other_wire in of_wires[index + 1 :] if other_wire != wire), *of_others):
            yield PAIRS["connect electrically"][0].format(name, other_name)


def considered_actions(engine: Any, agent: Any, *, electrical: bool) -> tuple[str, ...]:
    """Return the actions that a player would consider, sorted, at most `MOST`.

    While the game asks which of several things was meant, the actions are the numbers that answer. The list depends on the state of
    the game alone, not on the expert: the expert's next step may be missing.

    Args:
        engine: The engine, which plays this game now.
        agent: The engine's interface of the game.
        electrical: Whether the task is about electricity.
    """
    parser = agent.inputParser()
    if parser.isInAmbiguousState():
        return tuple(sorted(str(number) for number in range(parser.getNumAmbiguousMatches())))
    things = things_in_reach(engine, agent, electrical=electrical)
    actions = dict.fromkeys(ALWAYS)
    for action in _by_importance(engine, agent, things, electrical=electrical):
        if len(actions) == MOST:
            break
        actions[action] = None
    return tuple(sorted(actions))


def _by_importance(engine: Any, agent: Any, things: Things, *, electrical: bool) -> Iterator[str]:
    """Yield the possible actions, the most useful first."""
    names = engine.names_of(things.names)

    def possible(kind: str, candidates: Any) -> tuple[str, ...]:
        generator = engine.generators[kind]
        actions: tuple[str, ...] = engine.texts(generator.generatePossibleValidActions(agent.agent(), candidates, names))
        return actions

    if engine.can_teleport():
        places = agent.universe().getContainedObjects(False).iterator()
        while places.hasNext():
            yield f"teleport to {places.next().name()}"
    candidates = {"focus on": things.usable, "look at": things.usable, "mix": things.mixable, "move through door": things.places}
    for kind in SINGLE:
        if electrical or kind not in _ELECTRICAL:
            yield from possible(kind, candidates.get(kind, things.all))
    yield from things.connections
    onto_unusable = tuple(f" {name}" for name in things.unusable_names)
    kinds = [kind for kind in PAIRS if kind not in _ELECTRICAL]
    pairs = [action for kind in kinds for action in possible(kind, things.all) if not action.endswith(onto_unusable)]
    with_carried = tuple(f"{words.partition('{')[0]}{name} " for words, _ in PAIRS.values() for name in things.carried_names)
    yield from (action for action in pairs if action.startswith(with_carried))
    yield from (action for action in pairs if not action.startswith(with_carried))


def canonical(engine: Any, agent: Any, action: str) -> str:
    """Return an action in the words of `considered_actions`; unchanged if the game does not understand it or would not list it.

    If the action could mean several things, it means the first of them, as the engine's expert answers such questions with 0.
    """
    parser = agent.inputParser()
    room = agent.getAgentVisibleObjects(False)._2()
    if parser.isInAmbiguousState():
        return action
    parsed = parser.parse(action, room, agent.universe(), agent.agent(), agent.objMonitor(), agent.task().goalSequence(), room)
    if parsed._1():
        kind, assignments = str(parsed._4().get().name()), parsed._4().get().assignments()
    elif parser.isInAmbiguousState():
        match = parser.lastAmbiguousMatches().get()[0]
        kind, assignments = str(match.actionRequestDef().get().name()), match.varLUT()
        parser.clearAmbiguousState()
    else:
        return action
    if kind in PLAIN:
        return PLAIN[kind]
    words, keys = PAIRS.get(kind) or (SINGLE[kind], None)
    things = [assignments.apply(key) for key in keys or [key for key in _keys(assignments) if key not in ("agent", "moveTo")]]
    _, _, names = _named_things(engine, agent, hidden=True)
    second = things[-1]
    if kind == "connect electrically" and isinstance(second, engine.Terminal) and isinstance(second.parentObject(), engine.Wire):
        things.sort(key=lambda terminal: not isinstance(terminal.parentObject(), engine.Wire))  # the wire's terminal stands first
    thing_names = [names.get(int(thing.uuid())) for thing in things]
    return words.format(*thing_names) if None not in thing_names else action


def _keys(assignments: Any) -> list[str]:
    """Return the keys of a Scala map of strings."""
    return str(assignments.keys().mkString("\x1e")).split("\x1e")
