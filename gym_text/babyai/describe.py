"""From what the agent sees to sentences.

The wording and its order are those of the text form of BabyAI that the language-model literature uses (Carta et al. 2023,
"Grounding Large Language Models in Interactive Environments with Online Reinforcement Learning"; BALROG).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from minigrid.core.grid import Grid

_SCENERY = ("wall", "unseen", "empty", "floor", "goal", "lava")


def describe_view(grid: Grid, visible: np.ndarray, carrying: Any) -> str:
    """Say what the agent carries, the walls straight ahead and beside it, and every object in view.

    Args:
        grid: The agent's view as minigrid's ``gen_obs_grid`` cuts it out, the agent in the middle of the last row, facing up.
        visible: Which cells of it are seen, bool of shape (width, height).
        carrying: What the agent carries.

    Returns:
        One sentence a line; empty where there is nothing to say.
    """
    column, row = grid.width // 2, grid.height - 1  # where the agent stands
    lines = [f"You carry a {carrying.color} {carrying.type}"] if carrying else []
    for direction, dx, dy in (("forward", 0, -1), ("left", -1, 0), ("right", 1, 0)):
        distance = _wall(grid, visible, column, row, dx, dy)
        if distance:
            lines.append(f"a wall {_steps(distance)} {direction}")
    for x in range(grid.width):
        for y in range(grid.height):
            cell = grid.get(x, y)
            if cell is not None and visible[x, y] and cell.type not in _SCENERY and (x, y) != (column, row):
                lines.append(f"a {_name(cell)} {_place(x - column, row - y)}")
    return "\n".join(lines)


def _wall(grid: Grid, visible: np.ndarray, x: int, y: int, dx: int, dy: int) -> int:
    """Return how far the wall is in one direction; 0 where something else, or nothing, comes first."""
    distance = 1
    while 0 <= x + dx * distance < grid.width and 0 <= y + dy * distance < grid.height:
        cell = grid.get(x + dx * distance, y + dy * distance)
        if cell is not None and visible[x + dx * distance, y + dy * distance]:
            return distance if cell.type == "wall" else 0
        distance += 1
    return 0


def _name(cell: Any) -> str:
    if cell.type != "door":
        return f"{cell.color} {cell.type}"
    state = "open" if cell.is_open else "locked" if cell.is_locked else "closed"
    return f"{state} {cell.color} door"


def _place(right: int, forward: int) -> str:
    """Say where a cell is; `right` is negative to the left, `forward` never."""
    side = f"{_steps(abs(right))} {'right' if right > 0 else 'left'}" if right else ""
    ahead = f"{_steps(forward)} forward" if forward else ""
    return " and ".join(part for part in (side, ahead) if part)


def _steps(number: int) -> str:
    return f"{number} step" if number == 1 else f"{number} steps"
