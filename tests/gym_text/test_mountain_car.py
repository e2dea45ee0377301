"""The car: described truthfully, and pushed as the action says."""

import numpy as np
import pytest

from gym_text import mountain_car

CAR = "MountainCarContinuousLLM-v0"


def car_obs(position, velocity):
    return {"car": np.array([position, velocity], dtype=np.float32)}


@pytest.mark.parametrize(
    ("obs", "text"),
    [
        (
            car_obs(-0.8, 0.0123),
            "The car is at -0.800, on the left slope, 1.250 from the flag, and moves right at 0.0123 per step.",
        ),
        (car_obs(0.2, -0.01), "The car is at 0.200, on the right slope, 0.250 from the flag, and moves left at 0.0100 per step."),
        (car_obs(-0.5, 0.0), "The car is at -0.500, on the right slope, 0.950 from the flag, and stands still."),
    ],
    ids=["right", "left", "still"],
)
def test_car_is_described_truthfully(obs, text):
    assert mountain_car.describe(obs) == text


def test_car_is_pushed_as_the_action_is_named(make):
    env, spec, velocity = make(CAR, expert="off"), mountain_car.MOUNTAIN_CAR_SPEC, {}
    for action in spec.actions:
        obs, _ = env.reset(seed=0)
        obs, reward, *_ = env.step(spec.encode(action.name, obs))
        velocity[action.name] = float(obs["car"][1])
        assert reward == pytest.approx(-0.1 * action.value**2)
    assert [action.name for action in spec.actions] == sorted(velocity, key=lambda name: velocity[name])
