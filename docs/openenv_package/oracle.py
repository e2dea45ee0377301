"""OpenEnv's oracle: the expert's path, found here and played on the server. ``python oracle.py [URL] [EPISODES]``."""

import sys

import gymnasium as gym
from openenv.core import GenericEnvClient

import gym_text  # noqa: F401  registers the environments


def play(url: str, episodes: int) -> list[float]:
    """Return the score of each episode: the tasks 0, 1, … of the split test."""
    scores = []
    expert = gym.make("CookingWorldText-v0", fold="test")
    with GenericEnvClient(base_url=url).sync() as game:
        for index in range(episodes):
            _, info = expert.reset(seed=index)
            result = game.reset(split="test", index=index)
            for action in info["gold_path"]:
                result = game.step({"action": action})
            scores.append(result.observation["score"])
    return scores


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    scores = play(given.get(0, "http://127.0.0.1:8000"), int(given.get(1, "10")))
    print(f"mean score {sum(scores) / len(scores):.3f} of {len(scores)} episodes")
    sys.exit(min(scores) < 1)
