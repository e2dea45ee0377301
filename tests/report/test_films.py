"""An episode as a GIF: its frames, how long they stay, and a file that is whole or absent."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from gym_text_policies import load_policy, rollout
from gym_text_policies.report import films as gif

make_env = functools.partial(gym.make, "BabyAIText-v0", max_episode_steps=9)


@pytest.fixture(scope="module")
def episode():
    with make_env() as env:
        policy = load_policy("scripted:go forward|turn left", env, mode="choose")
    return next(rollout(make_env, policy, [0]))


def read(path):
    """Return the durations of a GIF's frames, and its last frame."""
    with Image.open(path) as image:
        durations = []
        for number in range(image.n_frames):
            image.seek(number)
            durations.append(image.info["duration"])
        assert image.info["loop"] == 0
        return durations, np.asarray(image.convert("RGB"), dtype=int)


def test_every_state_is_a_frame_and_the_last_one_stays(episode, tmp_path):
    gif.write_gif(tmp_path / "a.gif", episode, functools.partial(make_env, render_mode="rgb_array"), fps=20)
    durations, last = read(tmp_path / "a.gif")
    assert durations == [50] * episode.length + [2000]
    with make_env(render_mode="rgb_array") as env:
        env.reset(seed=0)
        height, width, _ = env.render().shape
    shown = round(width * gif.HEIGHT / height)
    assert last.shape[0] == gif.HEIGHT and abs(last.shape[1] - shown - gif.PANEL) <= 1  # the picture, and the panel beside it
    assert last.shape[1] % 2 == 0  # as video codecs need
    assert np.ptp(last[:, shown:]) > 100  # the panel says something


def test_a_failing_game_leaves_the_earlier_file(episode, tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"earlier")

    class Broken(gym.Wrapper):
        def step(self, action):
            raise RuntimeError("the game broke")

    with pytest.raises(RuntimeError, match="the game broke"):
        gif.write_gif(path, episode, lambda: Broken(make_env(render_mode="rgb_array")))
    assert path.read_bytes() == b"earlier" and list(tmp_path.iterdir()) == [path]
