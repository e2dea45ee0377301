"""Gymnasium's LunarLander, in words."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces

from gym_text.box2d import import_box2d
from gym_text.errors import check_int, import_extra
from gym_text.experts import ControlTaskEnv
from gym_text.spaces import FreeText
from gym_text.spec import Action, Field, Observation, Quantity, TextSpec
from gym_text.text_env import Expert, Fold, Outcome, TextEnv

PAD_HALF_WIDTH = 0.2
"""The landing pad reaches from -0.2 to 0.2 in the units of x, which is 4 of the world's 20 metres."""
_MAX_TEXT = 1024

LUNAR_LANDER_SPEC = TextSpec(
    goal=(
        "Land on the pad at x = 0, y = 0, between the flags: come down slowly and upright, and come to rest on both legs. "
        "Touching the ground with the body is a crash; leaving the screen loses."
    ),
    fields={
        "text": Field("the state in words"),
        "goal": Field("the task"),
        "lander_cartesian": Field(
            "position and velocity",
            (
                Quantity("x", "horizontal position, positive to the right of the pad", -2.5, 2.5, "half screen widths"),
                Quantity("y", "height above the pad", -2.5, 2.5, "units of 6.67 m"),
                Quantity("vx", "horizontal velocity, positive to the right", -10, 10, "units of 5 m/s"),
                Quantity("vy", "vertical velocity, negative when falling", -10, 10, "units of 7.5 m/s"),
            ),
        ),
        "lander_angular": Field(
            "tilt and its change",
            (
                Quantity("angle", "tilt, positive to the left, 0 upright", -6.2832, 6.2832, "radians"),
                Quantity("angular_velocity", "change of the tilt, positive to the left", -10, 10, "units of 2.5 radians/s"),
            ),
        ),
        "legs_contact": Field(
            "whether each leg touches the ground",
            (Quantity("left", "1 if the left leg does", 0, 1), Quantity("right", "1 if the right leg does", 0, 1)),
        ),
    },
    actions=(
        Action("do nothing", "fire no engine"),
        Action("fire left engine", "push to the left and turn to the left"),
        Action("fire main engine", "push along the lander's own up"),
        Action("fire right engine", "push to the right and turn to the right"),
    ),
    encoding="discrete",
    reward=(
        "Coming nearer, slower and more upright is rewarded, each leg's contact gives 10, a frame of the main engine costs 0.3, "
        "of a side engine 0.03; landing gives 100, crashing or leaving -100."
    ),
)


def controller(obs: Observation) -> str:
    """Return the name of the expert's action, from the observation alone.

    This is a proportional-derivative controller. It tilts the lander against its drift and towards the pad, lets it sink as fast as
    the height allows, and fires the engine with the larger error. The idea is that of
    `gymnasium.envs.box2d.lunar_lander.heuristic`; the gains come from a random search on the seeds 0 to 119 of the train fold. On
    the seeds 0 to 99 (no fold) its mean return is 284.5 and it succeeds 100 times; the heuristic has 252.8 and succeeds 86 times.
    """
    x, y, vx, vy = (float(value) for value in obs["lander_cartesian"])
    angle, spin = (float(value) for value in obs["lander_angular"])
    if any(obs["legs_contact"]):
        turn, lift = 0.0, -0.534 * vy
    else:
        wanted_angle = min(max(0.859 * x + 1.147 * vx, -0.382), 0.382)
        wanted_height = 0.229 * abs(x)
        turn = 0.575 * (wanted_angle - angle) - 0.998 * spin
        lift = 0.37 * (wanted_height - y) - 0.599 * vy
    if lift > max(abs(turn), 0.092):
        return "fire main engine"
    if abs(turn) > 0.032:
        return "fire left engine" if turn > 0 else "fire right engine"
    return "do nothing"


def describe(obs: Observation) -> str:
    """Return the state in words.

    Args:
        obs: An observation with ``lander_cartesian``, ``lander_angular`` and ``legs_contact``.
    """
    x, y, vx, vy = (round(float(value), 2) + 0.0 for value in obs["lander_cartesian"])  # adding 0 turns -0 into 0
    angle, spin = (round(float(value), 2) + 0.0 for value in obs["lander_angular"])
    left, right = (bool(value) for value in obs["legs_contact"])
    legs = {(False, False): "no leg touches", (True, True): "both legs touch", (True, False): "the left leg touches"}
    return "\n".join(
        (
            f"Position: x {x:.2f}{_side(x, 'left of the pad', 'right of the pad')}, height {y:.2f}.",
            f"Velocity: {abs(vx):.2f}{_side(vx, 'to the left', 'to the right')}, {abs(vy):.2f}{_side(vy, 'down', 'up')}.",
            f"Tilt: {abs(angle):.2f} radians{_side(-angle, 'to the left', 'to the right')}, "
            f"turning {abs(spin):.2f}{_side(-spin, 'to the left', 'to the right')}.",
            f"Legs: {legs.get((left, right), 'the right leg touches')} the ground.",
        )
    )


def _side(value: float, negative: str, positive: str) -> str:
    """Return the direction of a value in brackets; empty for 0."""
    return "" if value == 0 else f" ({negative if value < 0 else positive})"


class LunarLanderEnv(ControlTaskEnv):
    """Land a rocket on a pad: Gymnasium's LunarLander, v3 dynamics, with the state in words.

    ## Description

    A lander starts at the top of the screen with a random push. It must come to rest between two flags. The world has two
    dimensions, and each of the three engines is on or off. The dynamics are `LunarLander-v3`'s
    (https://gymnasium.farama.org/environments/box2d/lunar_lander/), unchanged: this environment holds a LunarLander and describes
    it.

    ## Action Space

    `Discrete(4)`: 0 do nothing, 1 fire left engine, 2 fire main engine, 3 fire right engine.
    ``info["action_was_valid"]`` is always True.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | the state in words, rounded to two digits |
    | `goal` | `Text` | the task |
    | `lander_cartesian` | `Box(4)` | x (half screen widths of 10 m), y (6.67 m), vx (5 m/s), vy (7.5 m/s), relative to the pad |
    | `lander_angular` | `Box(2)` | tilt (radians, positive to the left), its change (2.5 radians/s) |
    | `legs_contact` | `MultiBinary(2)` | left and right leg on the ground |

    Numbers are clipped to the ranges of `LunarLander-v3`'s observation space, as a lander that flies far away would leave them.

    ## Rewards

    `LunarLander-v3`'s: shaped by distance, speed and tilt, 10 for each leg's contact, -0.3 a frame of the main engine,
    -0.03 a frame of a side engine, 100 for coming to rest, -100 for a crash or for leaving the screen.
    A return of 200 usually counts as a solution.

    ## Starting State

    The lander is at the top centre. The seed determines its first push and the terrain.

    ## Episode End

    Terminated when the body touches the ground, or the lander leaves the screen to a side, or it comes to rest.
    ``info["success"]``: it came to rest without a crash and with its centre over the pad (abs(x) at most 0.2). ``info["failure"]``:
    the episode was terminated in any other way. Truncated after 1000 steps.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `decimals` | None, 0 to 6 | None | decimals of the observation's numbers; the expert gets the rounded numbers, too |
    | `fold` | None, train, dev, test | None | None keeps the seed; a fold shifts it into a range that begins at 1, 2 or 3 million |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or LunarLander's picture; for human in a window |

    ## Info

    The expert is the module's function `controller`. At reset it plays the episode on a second game, and the names of its actions
    are `gold_path`. With ``expert="replan"`` it gives `gold_action` in every state. On the seeds 0 to 99 its mean return is 284.5
    and it always succeeds.

    ## Version History

    * v2: `LunarLander-v3`'s dynamics. The version in the name is that of earlier work with language models, which used v2.
    """

    metadata: ClassVar[dict[str, Any]] = TextEnv.metadata | {"render_fps": 50}  # type: ignore[misc]
    controller = staticmethod(controller)
    most_steps = 1000

    def __init__(
        self,
        *,
        decimals: int | None = None,
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        import_box2d()
        from gymnasium.envs.box2d.lunar_lander import LunarLander

        if decimals is not None:
            check_int("decimals", decimals, 0, 6)
        self._decimals = decimals
        self._game = LunarLander(render_mode="rgb_array" if render_mode == "rgb_array" else None)
        self.text_spec = LUNAR_LANDER_SPEC
        self.action_space = spaces.Discrete(len(LUNAR_LANDER_SPEC.actions))
        limits: Any = self._game.observation_space
        self.observation_space = spaces.Dict(
            {
                "text": FreeText(_MAX_TEXT),
                "goal": FreeText(_MAX_TEXT),
                "lander_cartesian": spaces.Box(limits.low[:4], limits.high[:4], dtype=np.float32),
                "lander_angular": spaces.Box(limits.low[4:6], limits.high[4:6], dtype=np.float32),
                "legs_contact": spaces.MultiBinary(2),
            }
        )

    def _play(self, action: int) -> Outcome:
        state, reward, terminated, _, _ = self._game.step(action)
        success = terminated and self._at_rest_on_pad(state)
        self._seen = self._observation(state)
        return Outcome(self._seen, float(reward), bool(terminated), success=success, failure=terminated and not success)

    def _fork_game(self, twin: Self) -> bool:
        level, actions = self._episode_so_far() or (0, ())
        twin._game.reset(seed=level)
        for action in actions:  # Box2D's worlds cannot be copied; nothing is described on the way
            twin._game.step(action)
        return True

    def _at_rest_on_pad(self, state: np.ndarray) -> bool:
        return not self._game.game_over and not self._game.lander.awake and abs(float(state[0])) <= PAD_HALF_WIDTH

    def _observation(self, state: np.ndarray) -> Observation:
        space = self._game.observation_space
        if self._decimals is not None:
            state = np.round(state, self._decimals) + np.float32(0)  # adding 0 turns -0 into 0
        state = np.clip(state, space.low, space.high)
        obs: Observation = {
            "text": "",
            "goal": LUNAR_LANDER_SPEC.goal,
            "lander_cartesian": state[:4].copy(),
            "lander_angular": state[4:6].copy(),
            "legs_contact": state[6:].astype(np.int8),
        }
        obs["text"] = describe(obs)
        return obs

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Return the arrow keys and their actions, for `gymnasium.utils.play.play`: each fires the engine of its direction."""
        pygame = import_extra("pygame", "box2d")
        return {(pygame.K_LEFT,): 1, (pygame.K_UP,): 2, (pygame.K_RIGHT,): 3}
