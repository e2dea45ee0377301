"""The tasks of ScienceWorld, by the numbers of its paper (https://arxiv.org/abs/2203.07540) and by the engine's names."""

from __future__ import annotations

from gym_text.errors import unknown_choice

TASKS = {
    **{"1-1": "boil", "1-2": "melt", "1-3": "freeze", "1-4": "change-the-state-of-matter-of"},
    **{"2-1": "use-thermometer", "2-2": "measure-melting-point-known-substance", "2-3": "measure-melting-point-unknown-substance"},
    **{"3-1": "power-component", "3-2": "power-component-renewable-vs-nonrenewable-energy"},
    **{"3-3": "test-conductivity", "3-4": "test-conductivity-of-unknown-substances"},
    **{"4-1": "find-living-thing", "4-2": "find-non-living-thing", "4-3": "find-plant", "4-4": "find-animal"},
    **{"5-1": "grow-plant", "5-2": "grow-fruit"},
    **{"6-1": "chemistry-mix", "6-2": "chemistry-mix-paint-secondary-color", "6-3": "chemistry-mix-paint-tertiary-color"},
    **{"7-1": "lifespan-longest-lived", "7-2": "lifespan-shortest-lived", "7-3": "lifespan-longest-lived-then-shortest-lived"},
    **{"8-1": "identify-life-stages-1", "8-2": "identify-life-stages-2"},
    "9-1": "inclined-plane-determine-angle",
    **{"9-2": "inclined-plane-friction-named-surfaces", "9-3": "inclined-plane-friction-unnamed-surfaces"},
    **{"10-1": "mendelian-genetics-known-plant", "10-2": "mendelian-genetics-unknown-plant"},
}
"""The engine's name of each task, by its number in the paper."""
SIMPLIFICATIONS = ("easy", "teleportAction", "openDoors", "openContainers", "selfWateringFlowerPots", "noElectricalAction")
"""Simplifications of a task; ``easy`` stands alone and means several of the others."""
_VARIATIONS = 10_000
"""More than a task has variations: the greatest number is 1,386."""


def task_name(task: str) -> str:
    """Return the engine's name of a task, or raise `UsageError`."""
    name = TASKS.get(task, task)
    if name not in TASKS.values():
        raise unknown_choice("task", task, [*TASKS.values(), *TASKS, "all"])
    return name


def tasks_of(task: str) -> tuple[str, ...]:
    """Return the names of the tasks that an environment plays: one, or with ``all`` the 30 in the order of their numbers."""
    return tuple(TASKS.values()) if task == "all" else (task_name(task),)


def level_number(task: str, variation: int) -> int:
    """Return the number of a level in an environment with all tasks."""
    return _VARIATIONS * list(TASKS.values()).index(task) + variation


def task_and_variation(level: int) -> tuple[str, int]:
    """Return the task and the variation of `level_number`.

    >>> task_and_variation(level_number("boil", 21)), task_and_variation(20_015)
    (('boil', 21), ('freeze', 15))
    """
    number, variation = divmod(level, _VARIATIONS)
    return list(TASKS.values())[number], variation


def is_electrical(name: str) -> bool:
    """Return whether the task of this name is about electricity."""
    return "power-component" in name or "conductivity" in name


def simplifications_of(name: str, chosen: str) -> str:
    """Return the simplifications of a task for the engine: ``easy`` becomes the list of those that it means."""
    if chosen != "easy":
        return chosen
    return ",".join(
        ("teleportAction", *(() if is_electrical(name) else ("noElectricalAction",)), "openDoors", "selfWateringFlowerPots")
    )
