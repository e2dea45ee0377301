"""TextArena's games beside TextArena itself: the same actions, in seconds of one core; and the scores of random play.

``python benchmarks/arena.py`` writes ``benchmarks/results/textarena.md``, in about a minute.
"""

from __future__ import annotations

import random
import time
from typing import Any

import gymnasium as gym
import numpy as np
from helpers.harness import run, table, write

import gym_text  # noqa: F401  registers the environments
from gym_text.textarena.games import ONE_PLAYER, TWO_PLAYERS

SLOW = {"RushHour": 4, "Sokoban": 8}
"""Episodes of games that take long to begin; of all others `EPISODES` are played."""
EPISODES = 20
WORDS = {
    "Mastermind": ("[1 2 3 4]", "[2 3 4 5]", "[3 4 5 6]", "[6 5 4 3]", "[5 1 6 2]", "[4 6 1 5]"),
    "Sudoku": tuple(f"[{row} {column} {digit}]" for row in range(1, 10) for column in range(1, 10) for digit in range(1, 10)),
    "ColonelBlotto": ("[A20 B0 C0]", "[A7 B7 C6]", "[A1 B9 C10]"),
    "IteratedPrisonersDilemma": ("Let us cooperate.", "[Defect]", "[Cooperate]"),
    "IteratedTwoThirdsAverage": ("[0]", "[33]", "[66]"),
    "SimpleNegotiation": ("[Accept]", "[Deny]", "[Offer: 1 Wheat -> 1 Ore]"),
    "TruthAndDeception": ("[Fact 1]", "[Fact 2]"),
}
"""What is said where no moves are listed."""


def ours(env_id: str, name: str, seeds: range) -> tuple[list[list[str]], float, list[float], float]:
    """Play random actions.

    Returns:
        The actions of each episode, both players' in turn; seconds of the steps; scores; seconds of a start.
    """
    rng, played, log = np.random.default_rng(0), [], []

    def act(obs: dict[str, Any]) -> str:
        names = obs.get("valid_actions") or WORDS[name]
        log.append(str(names[rng.integers(len(names))]))
        return log[-1]

    more = {"opponent": act} if env_id == "TextArenaTwoPlayers-v0" else {}
    env = gym.make(env_id, game=f"{name}-v0", max_episode_steps=2000, disable_env_checker=True, **more)
    scores, steps, starts = [], 0.0, 0.0
    for seed in seeds:
        begun = time.process_time()
        obs, info = env.reset(seed=seed)
        starts += time.process_time() - begun
        over, begun = False, time.process_time()
        while not over:
            obs, _, terminated, truncated, info = env.step(act(obs))
            over = terminated or truncated
        steps += time.process_time() - begun
        scores.append(info["score"])
        played.append(log[:])
        log.clear()
    return played, steps, scores, starts / len(seeds)


def theirs(name: str, players: int, seeds: range, played: list[list[str]]) -> float:
    """Return the seconds of TextArena's own loop, as its manual has it, on the same actions."""
    import textarena

    seconds = 0.0
    for seed, actions in zip(seeds, played, strict=True):
        env = textarena.make(f"{name}-v0")
        env.reset(num_players=players, seed=seed)
        begun = time.process_time()
        for action in actions:
            env.get_observation()
            env.step(action=action)
        seconds += time.process_time() - begun
    return seconds


def main() -> None:
    """Measure all games and write the table."""
    lines = []
    state = random.getstate()
    for players, env_id, names in ((1, "TextArenaText-v0", ONE_PLAYER), (2, "TextArenaTwoPlayers-v0", TWO_PLAYERS)):
        for name in names:
            seeds = range(SLOW.get(name, EPISODES))
            played, seconds, scores, start = ours(env_id, name, seeds)
            count, own = sum(map(len, played)), theirs(name, players, seeds, played)
            rates = f"{count / seconds:,.0f}", f"{count / own:,.0f}", f"{start * 1000:.1f}"
            lines.append((f"`{name}-v0`", *rates, max(map(len, played)), f"{np.mean(scores):.2f}"))
            print(*lines[-1], flush=True)
    random.setstate(state)
    columns = ("game", "steps/s", "TextArena's", "a start, ms", "longest episode", "score of chance")
    write("textarena", table(columns, lines))


if __name__ == "__main__":
    run(main)
