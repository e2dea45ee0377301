"""What a player of ScienceWorld would consider: actions on the things in reach, by names that say which is meant.

The engine's own list crosses every thing with every other, about 1,600 actions in all, most of them absurd. Here what is done to a
thing stands first; then what is done with a thing that is carried; then what moves a thing that is not; wires only where the task
is about electricity. The engine's own rules say which of them are possible.
"""

from __future__ import annotations

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
PLAIN = {"look around": "look around", "view inventory": "inventory", "task description": "task", "wait1": "wait1", "wait10": "wait"}
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

    array: Any
    """Java's array of them."""
    names: Mapping[int, str]
    """By a thing's number, how it is called."""
    carried: frozenset[str]
    """Names of those that the agent carries."""


def things_in_reach(engine: Any, agent: Any) -> Things:
    """Return what the agent can see or reach in its place, with a name for each."""
    place = agent.getAgentVisibleObjects(False)._2()
    found = engine.input_parser.collectAccessibleObjects(place, False)
    array = engine.new_things(int(found.size()))
    found.copyToArray(array)
    things = [(int(thing.uuid()), str(thing.name()).lower(), thing) for thing in array]
    said = {number: engine.texts(engine.input_parser.getObjectReferents(thing, place)) for number, _, thing in things}
    names = choose_names({number: (name, said[number]) for number, name, _ in things})
    inventory = agent.agent().getInventoryContainer()
    carried = frozenset(names[number] for number, _, thing in things if inventory.contains(thing))
    return Things(array, names, carried)


def choose_names(things: Mapping[int, tuple[str, Iterable[str]]]) -> dict[int, str]:
    """Return a name for each thing: its own if nothing else is called so, else the shortest that only it has.

    Args:
        things: By a thing's number, its own name and all names that the engine understands.
    """
    count: dict[str, int] = {}
    for _, names in things.values():
        for name in set(names):
            count[name] = count.get(name, 0) + 1

    def order(own: str, name: str) -> tuple[bool, bool, int, int, str]:
        stem = "door to" if own == "door" else own
        return count[name] > 1, not name.startswith(stem), name.count(" "), len(name), name

    return {number: min(names, key=lambda name: order(own, name), default=own) for number, (own, names) in things.items()}


def considered_actions(engine: Any, agent: Any, *, electrical: bool) -> tuple[str, ...]:
    """Return the actions, sorted, at most `MOST`; while the game asks which of several was meant, the numbers that answer.

    Args:
        engine: The engine, which plays this game now.
        agent: The engine's interface of the game.
        electrical: Whether the task is about electricity.
    """
    parser = agent.inputParser()
    if parser.isInAmbiguousState():
        return tuple(sorted(str(number) for number in range(parser.getNumAmbiguousMatches())))
    things = things_in_reach(engine, agent)
    actions = dict.fromkeys(ALWAYS)
    for action in _by_importance(engine, agent, things, electrical):
        if len(actions) == MOST:
            break
        actions[action] = None
    return tuple(sorted(actions))


def _by_importance(engine: Any, agent: Any, things: Things, electrical: bool) -> Iterator[str]:
    names = engine.names_of(things.names)

    def possible(kind: str) -> tuple[str, ...]:
        found = engine.generators[kind].generatePossibleValidActions(agent.agent(), things.array, names)
        return engine.texts(found)

    for kind in SINGLE:
        if electrical or kind not in _ELECTRICAL:
            yield from possible(kind)
    pairs = [action for kind in PAIRS if electrical or kind not in _ELECTRICAL for action in possible(kind)]
    is_carried = tuple(f"{PAIRS[kind][0].partition('{')[0]}{name} " for kind in PAIRS for name in things.carried)
    yield from (action for action in pairs if action.startswith(is_carried))
    yield from (action for action in pairs if not action.startswith(is_carried))
