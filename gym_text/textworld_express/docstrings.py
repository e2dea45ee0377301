"""What the docstrings of TextWorldExpress's environments have in common, written once."""

from __future__ import annotations

import inspect

from gym_text.parameters import Parameters

_SHARED = {
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
| argument | values | registered | meaning |
|---|---|---|---|
{parameters}| `actions` | text, index | text | the action space |
| `fold` | train, dev, test | train | the set of levels |
| `expert` | off, path, replan | path | the hints in `info` |
| `render_mode` | ansi, rgb_array, human | None | text, a picture of texts and valid actions, or that picture in a window |""",
    "info": """\
`gold_path` is the solution of the engine's gold agent, replayed at reset: steps that are not valid when they are played
are dropped, and it is left out if it does not win. With ``expert="replan"`` a new plan is made on a copy of the game
whenever the agent has left the path, and kept only if it wins when replayed. `gold_steps` is the number of
steps in the plan that begins with `gold_action`.""",
}
"""What the docstrings have in common: ``{action_space}`` and so on in a docstring stand for it."""


def docstring_of(page: str, parameters: Parameters, most_actions: int, most_actions_ever: int) -> str:
    """Fill in an environment's docstring.

    Args:
        page: The docstring as it is in the class, with names in braces such as ``{action_space}``.
        parameters: The game's own.
        most_actions: The size of the index space at the registered parameters.
        most_actions_ever: Its size at any others.
    """
    size = f"{most_actions}"
    if most_actions != most_actions_ever:
        size += f"; {most_actions_ever} at other than the registered parameters"
    rows = (f"| `{name}` | {p.values} | {p.default} | {p.meaning} |\n" for name, p in parameters.items())
    page = inspect.cleandoc(page)
    for name, text in {**_SHARED, "n": size, "parameters": "".join(rows)}.items():
        page = page.replace(f"{{{name}}}", text)
    return page
