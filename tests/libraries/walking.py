"""A player by rules, who knows only the last message: as a model for `gym-text bench`, and for the models of other libraries."""

import json
import re

from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.own_models import backend


def walk(texts):
    """Return the answer to the texts of a chat: to walk to the object that the task names, or else to look around."""
    goal = re.search(r"go to (?:a|the) (\w+ )?(\w+)", "\n".join(texts))
    seen = re.search(rf"{goal[1] or ''}{goal[2]} .*", texts[-1])
    if seen and "forward" in seen[0]:
        return "I go forward." if "a wall 1 step forward" not in texts[-1] else "turn right"
    return "turn left" if seen and "left" in seen[0] else "`turn right`"


@backend
def walker(requests):
    """Answer in words, or by a call if there is a tool."""
    said = [walk([message["content"] for message in request.messages]) for request in requests]
    called = [json.dumps({"action": text}) if request.tool else None for text, request in zip(said, requests, strict=True)]
    return [Answer("" if call else text, arguments=call) for text, call in zip(said, called, strict=True)]
