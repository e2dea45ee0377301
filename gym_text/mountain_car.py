"""Gymnasium's MountainCarContinuous, in words."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces

from gym_text.experts import ControlTaskEnv
from gym_text.spaces import FreeText
from gym_text.spec import Action, Field, Observation, Quantity, TextSpec
from gym_text.text_env import Expert, Fold, Outcome, TextEnv

_MAX_TEXT = 1024
_LEFT, _FASTEST = float(np.float32(-1.2)), float(np.float32(0.07))
"""Bounds, rounded to float32 like the numbers of the observation."""

MOUNTAIN_CAR_SPEC = TextSpec(
    goal=(
        "Drive the car from the bottom of the valley up to the flag on the right hill, at position 0.45. The engine is too weak to "
        "climb in one go: swing to and fro to gather speed. Push no harder than you must."
    ),
    fields={
        "text": Field("the state in words"),
        "goal": Field("the task"),
        "car": Field(
            "the state in numbers",
            (
                Quantity("position", "place along the track; the valley's bottom is at -0.52, the flag at 0.45", _LEFT, 0.6),
                Quantity("velocity", "change of the position in a step, positive to the right", -_FASTEST, _FASTEST),
            ),
        ),
    },
    actions=(
        Action("push left hard", "force -1", -1.0),
        Action("push left", "force -0.5", -0.5),
        Action("coast", "no force", 0.0),
        Action("push right", "force 0.5", 0.5),
        Action("push right hard", "force 1", 1.0),
    ),
    encoding="box",
    reward="100 for reaching the flag; every step costs 0.1 x force squared.",
)


def controller(obs: Observation) -> str:
    """Return the name of the expert's action: half the force, in the direction in which the car already moves.

    Pushing with the motion adds energy at every step. Of the forces 0.1, 0.2 … 1.0 the force 0.5 has the highest return: 95.8 on
    average over the seeds 0 to 99. The force 1 has 89.4.
    """
    return "push right" if float(obs["car"][1]) >= 0 else "push left"


def describe(obs: Observation, flag: float = 0.45) -> str:
    """Return the state in words.

    Args:
        obs: An observation whose ``car`` is position and velocity.
        flag: The flag's position.
    """
    position, velocity = (float(value) for value in obs["car"])
    side = "left" if position < -np.pi / 6 else "right"  # the bottom: the slope is cos(3 x position)
    direction = "left" if velocity < 0 else "right"
    motion = "stands still" if abs(velocity) < 0.00005 else f"moves {direction} at {abs(velocity):.4f} per step"
    return f"The car is at {position:.3f}, on the {side} slope, {flag - position:.3f} from the flag, and {motion}."


class MountainCarContinuousEnv(ControlTaskEnv):
    """Swing a weak car up a hill: Gymnasium's MountainCarContinuous, with the state in words.

    ## Description

    A car stands in a valley between two hills. It must reach the flag on the right hill; its engine is too weak to climb directly.
    The dynamics are `MountainCarContinuous-v0`'s
    (https://gymnasium.farama.org/environments/classic_control/mountain_car_continuous/), unchanged: this environment holds a
    MountainCarContinuous and describes it.

    ## Action Space

    `Box(-1, 1, (1,), float32)`: the force. Its named values are push left hard (-1), push left (-0.5), coast (0), push right (0.5)
    and push right hard (1); ``text_spec.encode`` takes these or any number as text. ``info["action_was_valid"]`` is always True.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | the state in words, position to 3 and velocity to 4 digits |
    | `goal` | `Text` | the task |
    | `car` | `Box(2)` | position (-1.2 to 0.6) and velocity (-0.07 to 0.07 per step) |

    ## Rewards

    100 for reaching the flag, -0.1 x force squared at every step. An episode without any force has the return 0.

    ## Starting State

    The car is at rest, at a random position between -0.6 and -0.4.

    ## Episode End

    Terminated when the car reaches position 0.45 (``info["success"]``); ``info["failure"]`` is always False, as the task cannot
    fail. Truncated after 999 steps.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `fold` | None, train, dev, test | None | None keeps the seed; a fold shifts it into a range that begins at 1, 2 or 3 million |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or MountainCar's picture; for human in a window |

    ## Info

    The expert pushes with half the force in the direction of motion. At reset it plays the episode on a second game, and the names
    of its actions are `gold_path`. With ``expert="replan"`` the same rule gives `gold_action` in every state; following it always
    reaches the flag.

    ## Version History

    * v0: first version, on `MountainCarContinuous-v0`.
    """

    metadata: ClassVar[dict[str, Any]] = TextEnv.metadata | {"render_fps": 30}  # type: ignore[misc]
    controller = staticmethod(controller)
    most_steps = 999

    def __init__(self, *, fold: Fold | None = None, expert: Expert = "path", render_mode: str | None = None) -> None:
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv

        self._game = Continuous_MountainCarEnv(render_mode="rgb_array" if render_mode == "rgb_array" else None)
        self.text_spec = MOUNTAIN_CAR_SPEC
        self.action_space = spaces.Box(-1.0, 1.0, (1,), dtype=np.float32)
        low, high = self._game.low_state, self._game.high_state
        self.observation_space = spaces.Dict(
            {"text": FreeText(_MAX_TEXT), "goal": FreeText(_MAX_TEXT), "car": spaces.Box(low, high, dtype=np.float32)}
        )

    def _play(self, action: np.ndarray) -> Outcome:
        state, reward, terminated, _, _ = self._game.step(action)
        self._seen = self._observation(state)
        return Outcome(self._seen, float(reward), bool(terminated), success=bool(terminated))

    def _fork_game(self, twin: Self) -> bool:
        twin._game.state = self._game.state.copy()
        return True

    def _observation(self, state: np.ndarray) -> Observation:
        obs: Observation = {"text": "", "goal": MOUNTAIN_CAR_SPEC.goal, "car": np.array(state, dtype=np.float32)}
        obs["text"] = describe(obs)
        return obs
