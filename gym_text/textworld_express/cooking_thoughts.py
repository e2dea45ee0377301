"""What a player of CookingWorld thinks before an action: a sentence by rules, from what the player has read and seen.

A thought says for each food of the recipe where it is and what is still to be done with it, and then what comes next::

    red apple: done; purple potato: slice, roast in oven; knife: here. now: take knife
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gym_text.spec import Observation

_APPLIANCES = {"fry": "stove", "roast": "oven", "grill": "barbeque"}
_VERBS = {appliance: verb for verb, appliance in _APPLIANCES.items()}
_CUTS = ("chop", "dice", "slice")
_ROOM = re.compile(r"You are in (?:the |a |an )?([^.]+)\.")
_PREPARED = re.compile(rf"You ({'|'.join((*_CUTS, *_APPLIANCES))}) the (.+?)(?: with the \w+)?\.")
_CARRIED_ANYWAY = ("cookbook", "knife", "meal")
_UNREAD = "recipe: unread. now: read cookbook"


def thought(observations: Sequence[Observation], actions: Sequence[str]) -> str:
    """Return the thought before an action.

    Args:
        observations: All observations of the episode so far.
        actions: The names of the actions that followed each of them. The last one is the action that is thought about.
    """
    seen = _Seen()
    for observation, before in zip(observations, ("", *actions), strict=False):
        seen.learn(str(observation["text"]), before)
    return seen.thought(actions[-1])


@dataclass
class _Seen:
    """What a player has read and seen in an episode."""

    recipe: dict[str, list[str]] = field(default_factory=dict)
    """Each food of the recipe, with its preparations. Empty before the recipe is read."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """The descriptions of rooms and containers, each with its room."""
    taken: dict[str, bool] = field(default_factory=dict)
    """Things that were taken: whether the player carries them now."""
    left: dict[str, str] = field(default_factory=dict)
    """Rooms in which things were put down."""
    done: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of a food and a preparation."""
    room: str = ""

    def learn(self, text: str, action: str) -> None:
        """Read the game's answer to an action."""
        thing = action.partition(" ")[2].partition(" in ")[0]
        if "Ingredients:" in text and "Directions:" in text:
            self.recipe = _recipe(text)
        elif text.startswith("You take "):
            self.taken[thing] = True
        elif text.startswith(("You put ", "You eat ")) and self.taken.get(thing):
            self.taken[thing] = False
            self.left[thing] = self.room if action.startswith("put ") else ""
        elif prepared := _PREPARED.match(text):
            self.done.add((prepared[2], prepared[1]))
        elif text.startswith("Adding the meal"):
            self.taken["meal"] = True
        elif not text.startswith("Inventory"):
            if place := _ROOM.match(text):
                self.room = place[1]
            self.texts.append((self.room, text))

    def thought(self, action: str) -> str:
        """Return the thought before an action."""
        if not self.recipe:
            return _UNREAD
        if self.taken.get("meal"):
            return "meal: ready. now: eat meal"
        parts = [f"{food}: {', '.join(self._state(food)) or 'done'}" for food in self.recipe]
        if self._needs_knife:
            parts.append(f"knife: {self._place('knife')}")
        useless = [thing for thing, carried in self.taken.items() if carried and not self._is_of_use(thing)]
        if useless:
            parts.append(f"not needed: {', '.join(useless)}")
        return f"{'; '.join(parts)}. now: {self._next(action)}"

    @property
    def _needs_knife(self) -> bool:
        """Whether something has to be cut, and the player does not carry a knife."""
        to_cut = any(verb in _CUTS for food in self.recipe for verb in self._undone(food))
        return to_cut and not self.taken.get("knife")

    def _is_of_use(self, thing: str) -> bool:
        return thing in self.recipe or thing in _CARRIED_ANYWAY

    def _undone(self, food: str) -> list[str]:
        return [verb for verb in self.recipe[food] if (food, verb) not in self.done]

    def _state(self, food: str) -> list[str]:
        """Return where a food is, unless the player carries it, and what has to be done with it."""
        place = [] if self.taken.get(food) else [self._place(food)]
        return [*place, *(_in_words(verb) for verb in self._undone(food))]

    def _place(self, thing: str) -> str:
        """Return where a thing was seen last; ``find`` if it was not seen."""
        if self.taken.get(thing) is False:
            room = self.left[thing]
        else:
            pattern = re.compile(rf"\b{re.escape(thing)}\b")
            room = next((room for room, text in reversed(self.texts) if pattern.search(text)), "")
        return "find" if not room else "here" if room == self.room else f"in {room}"

    def _next(self, action: str) -> str:
        """Return what comes next: what an action does, or what a walk or a search is for."""
        verb, _, rest = action.partition(" ")
        food, _, appliance = rest.partition(" in ")
        if verb == "cook":
            return f"{_VERBS.get(appliance, verb)} {rest}"
        if verb == "put":
            return f"put away {food}"
        if verb not in ("look", "open", "close", "move"):
            return action
        things = [*self.recipe, *(["knife"] if self._needs_knife else [])]
        places = {thing: self._place(thing) for thing in things if not self.taken.get(thing)}
        for thing in sorted(places, key=lambda thing: places[thing] == "find"):  # what was seen comes first
            return f"find {thing}" if places[thing] == "find" else f"get {thing}"
        for food in self.recipe:
            for undone in self._undone(food)[:1]:
                return _in_words(undone, food)
        return "prepare meal"


def _recipe(text: str) -> dict[str, list[str]]:
    """Return each food that a recipe names, with its preparations in their order."""
    foods, _, directions = text.partition("Ingredients:")[2].partition("Directions:")
    recipe: dict[str, list[str]] = {food.strip(): [] for food in foods.splitlines() if food.strip()}
    for line in directions.splitlines():
        verb, _, food = line.strip().partition(" the ")
        if food in recipe:
            recipe[food].append(verb)
    return recipe


def _in_words(verb: str, food: str = "") -> str:
    """Return a preparation with its appliance, as in ``fry in stove``."""
    return " ".join(filter(None, (verb, food, f"in {_APPLIANCES[verb]}" if verb in _APPLIANCES else "")))
