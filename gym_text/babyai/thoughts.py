"""What a player of BabyAI thinks before an action: a sentence by rules, from the mission and what the player has seen.

A thought says where each thing of the mission is, and which action comes next::

    purple ball: carried; yellow ball: 3 steps right. now: turn right
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gym_text.spec import Observation

_THING = re.compile(r"\b(?:(red|green|blue|purple|yellow|grey) )?(ball|box|key|door)\b")
_WORD = r"\w+"


def thought(observations: Sequence[Observation], actions: Sequence[str]) -> str:
    """Return the thought before an action.

    Args:
        observations: All observations of the episode so far.
        actions: The names of the actions that followed each of them. The last one is the action that is thought about.
    """
    texts = [str(observation["text"]) for observation in observations]
    wanted = list(dict.fromkeys(_THING.findall(str(observations[-1]["goal"]))))
    for color, kind in tuple(wanted):
        if kind == "door" and (locked := re.search(rf"^a locked ({color or _WORD}) door ", texts[-1], re.MULTILINE)):
            wanted.append((locked[1], "key"))
    places = (f"{color} {kind}".strip() + f": {_place(color, kind, texts)}" for color, kind in dict.fromkeys(wanted))
    return f"{'; '.join(places)}. now: {actions[-1]}"


def _place(color: str, kind: str, texts: Sequence[str]) -> str:
    """Return where a thing is: carried, a number of steps away, out of view, or not seen."""
    name = rf"{color} {kind}" if color else rf"{_WORD} {kind}"
    if re.search(rf"^You carry a {name}$", texts[-1], re.MULTILINE):
        return "carried"
    line = re.compile(rf"^a (?:open |closed |locked )?{name} (\d.*)$", re.MULTILINE)
    if here := line.search(texts[-1]):
        return here[1]
    return "out of view" if any(map(line.search, texts)) else "not seen"
