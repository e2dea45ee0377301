"""What a player of ScienceWorld would consider: actions on the things in reach, by names that say which is meant.

The engine's own list crosses every thing with every other, about 1,600 actions in all, most of them absurd. Here what is done to
a thing stands first; then what is done with a thing that is carried; then what moves one that is not. Where the task is about
electricity, the ends of wires can be connected to what has ends. The engine's own rules say which of the others are possible.
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
"""What is done to one thing: the engine's name of the action, and how it is said."""
PAIRS = {
    "use object": ("use {} on {}", ("device", "patient")),
    "move object": ("move {} to {}", ("obj", "moveTo")),
    "pour object": ("pour {} into {}", ("obj", "moveTo")),
    "dunk object": ("dunk {} into {}", ("moveTo", "moveFrom")),
    "connect electrically": ("connect {} to {}", ("terminalA", "terminalB")),
}
"""What is done with two: how it is said, and the engine's names of the two."""
PLAIN = {
    "look around": "look around",
    "view inventory": "inventory",
    "task description": "task",
    "wait1": "wait1",
    "wait10": "wait",
}
"""What is done to nothing."""
GENERATORS = {
    **{"open door": "OpenDoor", "close door": "CloseDoor", "move through door": "MoveThroughDoor", "activate": "Activate"},
    **{"pick up": "PickUpObjectIntoInventory", "put down": "PutDownObjectIntoInventory", "deactivate": "Deactivate"},
    **{"focus on": "Focus", "look at": "LookAt", "look in": "LookIn", "read": "Read", "eat": "Eat", "flush": "Flush", "mix": "Mix"},
    **{"use object": "UseDevice", "move object": "MoveObject", "pour object": "PourObject", "dunk object": "DunkObject"},
    **{"connect electrically": "ConnectElectrical", "disconnect electrically": "DisconnectElectrical"},
}
"""The engine's classes that list the possible actions of a kind."""
_ELECTRICAL = ("connect electrically", "disconnect electrically")


class Things(NamedTuple):
    """The things in reach."""

    names: Mapping[int, str]
    """By a thing's number, how it is called; doors, places and the agent are things, too."""
    all: Any
    """Java's array of them, without the ends of what is electrical."""
    plain: Any
    """Those without places, doors, the agent and the air."""
    places: Any
    """Places to which a door leads."""
    mixable: Any
    """Those that have several things in them."""
    no_things: tuple[str, ...]
    """Names of places, doors, the agent and the air: nothing is put there."""
    carried: tuple[str, ...]
    """Names of those that the agent carries."""
    connections: tuple[str, ...]
    """What can be said to connect the ends of wires; none where the task is not about electricity."""


def _named(engine: Any, agent: Any, *, hidden: bool) -> tuple[dict[int, Any], dict[int, Any], dict[int, str]]:
    """Return the things in reach and the ends of what is electrical, both by number, and how all of them are called."""
    place = agent.getAgentVisibleObjects(False)._2()
    inventory = agent.agent().getInventoryContainer()
    found = engine.in_reach(place, agent.agent(), hidden=hidden)  # hidden are, among others, the ends of what is no wire
    ends = {number: thing for number, thing in found.items() if isinstance(thing, engine.End)}
    things = {
        number: thing
        for number, thing in found.items()
        if number not in ends and thing != inventory and not (hidden and thing.isHidden())
    }
    names = choose_names({n: (str(thing.name()).lower(), engine.referents(thing, place)) for n, thing in things.items()})
    return things, ends, names | {number: end_name(end, names) for number, end in ends.items()}


def things_in_reach(engine: Any, agent: Any, *, electrical: bool) -> Things:
    """Return what the agent can see or reach in its place, with a name for each."""
    found, ends, names = _named(engine, agent, hidden=electrical)
    things, inventory = [*found.values()], agent.agent().getInventoryContainer()
    bare = {number: thing for number, thing in found.items() if isinstance(thing, engine.no_things)}
    return Things(
        names,
        engine.array_of(things),
        engine.array_of([thing for number, thing in found.items() if number not in bare]),
        engine.array_of([thing for thing in bare.values() if isinstance(thing, engine.Place)]),
        engine.array_of([thing for thing in things if thing.getContainedObjects(False).size() > 1]),
        tuple(names[number] for number in bare),
        tuple(names[number] for number, thing in found.items() if inventory.contains(thing)),
        tuple(_connections(engine, ends, names)) if electrical else (),
    )


def choose_names(things: Mapping[int, tuple[str, Iterable[str]]]) -> dict[int, str]:
    """Return a name for each thing: its own if nothing else is called so, else the shortest that only it has.

    Args:
        things: By a thing's number, its own name and all names that the engine understands.
    """
    count = Counter(itertools.chain.from_iterable({*names} for _, names in things.values()))
    found = {}
    for number, (own, names) in things.items():
        best = _by_preference(own, tuple(names))
        found[number] = next((name for name in best if count[name] == 1), best[0])
    return found


@functools.lru_cache(maxsize=10_000)
def _by_preference(own: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a thing, the best first: those that begin with its own, then the shortest; its own if there are none."""
    stem = "door to" if own == "door" else own
    return tuple(sorted(names, key=lambda name: (not name.startswith(stem), name.count(" "), len(name), name))) or (own,)


def end_name(end: Any, names: Mapping[int, str]) -> str:
    """Return how the end of a wire, or of another thing, is called, such as ``red wire terminal 1`` or ``battery anode``."""
    whole = end.parentObject()
    return f"{names.get(int(whole.uuid()), str(whole.name()))} {end.name()}"


def _connections(engine: Any, ends: Mapping[int, Any], names: Mapping[int, str]) -> Iterator[str]:
    """Yield what connects the end of a wire to another thing's: to a component's, another wire's or that of what can be moved."""
    wires, others = [], []
    for number, end in ends.items():
        whole = end.parentObject()
        if isinstance(whole, engine.Wire):
            wires.append((names[number], whole))
        elif not end.isHidden() or (whole.propMoveable().isDefined() and whole.propMoveable().get().isMovable()):
            others.append(names[number])
    for place, (wire, whole) in enumerate(wires):
        for end in (*(name for name, other in wires[place + 1 :] if other != whole), *others):
            yield PAIRS["connect electrically"][0].format(wire, end)


def considered_actions(engine: Any, agent: Any, *, electrical: bool) -> tuple[str, ...]:
    """Return the actions, sorted, at most `MOST`; while the game asks which of several was meant, the numbers that answer.

    They follow from the state of the game alone: an expert's step is among them by the same rule as any other, or is not.

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
    names = engine.names_of(things.names)

    def possible(kind: str, among: Any) -> tuple[str, ...]:
        found: tuple[str, ...] = engine.texts(engine.generators[kind].generatePossibleValidActions(agent.agent(), among, names))
        return found

    if engine.can_teleport():
        places = agent.universe().getContainedObjects(False).iterator()
        while places.hasNext():
            yield f"teleport to {places.next().name()}"
    among = {"focus on": things.plain, "look at": things.plain, "mix": things.mixable, "move through door": things.places}
    for kind in SINGLE:
        if electrical or kind not in _ELECTRICAL:
            yield from possible(kind, among.get(kind, things.all))
    yield from things.connections
    nowhere = tuple(f" {name}" for name in things.no_things)
    pairs = [one for kind in PAIRS if kind not in _ELECTRICAL for one in possible(kind, things.all) if not one.endswith(nowhere)]
    with_carried = tuple(f"{how.partition('{')[0]}{name} " for how, _ in PAIRS.values() for name in things.carried)
    yield from (action for action in pairs if action.startswith(with_carried))
    yield from (action for action in pairs if not action.startswith(with_carried))


def canonical(engine: Any, agent: Any, action: str) -> str:
    """Return an action as `considered_actions` says it; as it is where the game does not understand it, or would not list it.

    Of several things that may be meant it takes the first, as the engine's expert does with its answer 0.
    """
    parser = agent.inputParser()
    place = agent.getAgentVisibleObjects(False)._2()
    if parser.isInAmbiguousState():
        return action
    parsed = parser.parse(action, place, agent.universe(), agent.agent(), agent.objMonitor(), agent.task().goalSequence(), place)
    if parsed._1():
        kind, found = str(parsed._4().get().name()), parsed._4().get().assignments()
    elif parser.isInAmbiguousState():
        match = parser.lastAmbiguousMatches().get()[0]
        kind, found = str(match.actionRequestDef().get().name()), match.varLUT()
        parser.clearAmbiguousState()
    else:
        return action
    if kind in PLAIN:
        return PLAIN[kind]
    how, keys = PAIRS.get(kind) or (SINGLE[kind], None)
    meant = [found.apply(key) for key in keys or [key for key in _keys(found) if key not in ("agent", "moveTo")]]
    _, _, names = _named(engine, agent, hidden=True)
    if kind == "connect electrically" and isinstance(meant[1], engine.End) and isinstance(meant[1].parentObject(), engine.Wire):
        meant.sort(key=lambda end: not isinstance(end.parentObject(), engine.Wire))
    called = [names.get(int(thing.uuid())) for thing in meant]
    return how.format(*called) if None not in called else action


def _keys(found: Any) -> list[str]:
    return str(found.keys().mkString("\x1e")).split("\x1e")
