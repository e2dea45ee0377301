"""A small copy of a language model in LunarLander: the game's rewards improve the copy, and the model learns what it then does.

The model decides 30 times in a second of a core, where the game plays 20,000 steps. So a small network learns what the model does
in its own drawn episodes. Rollouts in copies of the game then find what each action is worth where the small network plays on after
it (Tesauro and Galperin 1996, https://arxiv.org/abs/2501.05407). A second network learns how much better or worse than the mean of
the actions each is; the policy is multiplied by its exponential, and rolls out again. It sees what the model's prompt shows: eight
numbers, fractions in tenths.

``python -m helpers.small_copy RUN SEED LEVEL`` makes ``small_copy-SEED.npz`` from the folder of a ``gym-text collect`` whose
decisions have probabilities, on the levels from LEVEL on. ``gym-text collect --model helpers.small_copy:Improved`` then plays
with it, where ``--options run=SEED`` names it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gym_text import TextSpec
from gym_text.box2d import import_box2d
from gym_text.lunar_lander import LUNAR_LANDER_SPEC
from gym_text_policies import load_policy
from gym_text_policies.files.digests import file_digest
from gym_text_policies.policy import Policy
from gym_text_policies.records import Decision, Turn
from gym_text_policies.store import EpisodeStore

FILE = "small_copy-{}.npz"
PLAYER = "player-{}/adapter"
"""The adapter whose episodes are labelled, where there is one."""
NAMES = [action.name for action in LUNAR_LANDER_SPEC.actions]
ROUNDS, LEVELS, STATES = 5, 100, 20
"""Improvements; levels in each; states of a level in which all actions are tried."""
HELD, LONGEST, DISCOUNT = 4, 400, 0.995
"""An action is tried for so many frames, as one alone changes little; most steps of a rollout; the discount of its rewards."""
COPYING, LEARNING = 6000, 3000
"""Gradient steps of the policy's network, and of an advantage's."""
FLOOR = 0.05
"""Weight of an action that the model never takes, so that a round may find it good."""
UNIT = 30.0
"""So many points of return more multiply an action's probability by e."""

Numbers = NDArray[np.float32]
Layers = list[NDArray[np.float32]]


def seen(state: Sequence[float]) -> Numbers:
    """Return what the prompt shows of the game's eight numbers: fractions in tenths, the legs as 0 or 1."""
    return np.array([*(round(10 * value) for value in np.clip(state[:6], -10, 10)), *state[6:]], np.float32)


def numbers_of(obs: Mapping[str, Any]) -> list[float]:
    """Return the game's eight numbers."""
    return [*obs["lander_cartesian"], *obs["lander_angular"], *obs["legs_contact"]]


def output(layers: Layers, inputs: Numbers) -> Numbers:
    """Return a network's four numbers."""
    found: Numbers = np.arcsinh(inputs / 2)
    for weights, bias in zip(layers[::2], layers[1::2], strict=True):
        found = (np.tanh(found) if weights is not layers[0] else found) @ weights + bias
    return found


def fitted(
    inputs: Numbers, targets: Numbers, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], steps: int, seed: int
) -> Layers:
    """Fit a network of two hidden layers with 64 units each."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    x, y = torch.asinh(torch.tensor(inputs) / 2), torch.tensor(targets)
    for _ in range(steps):
        drawn = torch.randint(len(x), (256,))
        optimizer.zero_grad()
        torch.autograd.backward(loss(network(x[drawn]), y[drawn]))
        optimizer.step()
        schedule.step()
    return [weights.detach().numpy().T.copy() for weights in network.parameters()]


class Played(NamedTuple):
    """An episode, step by step."""

    actions: list[int]
    states: list[Numbers]
    rewards: list[float]


class SmallCopy:
    """The copied policy, and an advantage network of each round.

    Args:
        networks: The policy's network, and the others.
        seed: Of all that is drawn at random to make more of them.
    """

    def __init__(self, networks: list[Layers], seed: int = 0) -> None:
        self.networks = networks
        self.seed = seed
        self.rng = np.random.default_rng(seed)

    @classmethod
    def of(cls, inputs: Numbers, probabilities: Numbers, seed: int) -> SmallCopy:
        """Fit the policy to a model's probabilities."""
        return cls([fitted(inputs, probabilities, nn.functional.cross_entropy, COPYING, seed)], seed)

    @classmethod
    def load(cls, file: str) -> SmallCopy:
        """Read the networks from a file."""
        with np.load(file) as stored:
            layers = list(stored.values())
        return cls([layers[begin : begin + 6] for begin in range(0, len(layers), 6)])

    def save(self, file: str) -> None:
        """Write the networks into a file, layer after layer: three weights and three biases each."""
        np.savez(file, *(layer for layers in self.networks for layer in layers))

    def probabilities(self, inputs: Numbers) -> Numbers:
        """Return the probability of each action."""
        policy, *advantages = self.networks
        logits = np.log(_softmax(output(policy, inputs)) + FLOOR)
        return _softmax(logits + sum((output(layers, inputs) for layers in advantages), np.zeros(4)))

    def play(self, game: Any, level: int, begun: Sequence[int] = ()) -> Played:
        """Play a level: greedily after given actions, the last HELD of which are tried, else drawn; LONGEST steps of it count."""
        state, over, played = game.reset(seed=level)[0], False, Played([], [], [])
        while not over and len(played.actions) < max(len(begun) - HELD, 0) + LONGEST:
            number = len(played.actions)
            played.states.append(seen(state))
            if number < len(begun):
                action = begun[number]
            else:
                shares = self.probabilities(played.states[-1])
                action = int(shares.argmax()) if begun else int(self.rng.choice(4, p=shares))
            state, reward, over, _, _ = game.step(action)
            played.actions.append(action)
            played.rewards.append(float(reward))
        return played

    def improve(self, levels: Sequence[int]) -> int:
        """Try all actions in some states of each level, and learn what they are worth; return the number of the game's steps."""
        import_box2d()
        game = gym.make("LunarLander-v3").unwrapped
        inputs, worth, steps = list[Numbers](), list[list[float]](), 0
        for level in levels:
            own = self.play(game, level)
            for number in self.rng.choice(len(own.actions), min(STATES, len(own.actions)), replace=False):
                tried = [self.play(game, level, [*own.actions[:number], *[action] * HELD]) for action in range(4)]
                inputs.append(own.states[number])
                worth.append([sum(reward * DISCOUNT**k for k, reward in enumerate(one.rewards[number:])) for one in tried])
                steps += sum(len(one.actions) for one in tried)
        found = np.array(worth, np.float32)
        advantages = np.clip(found - found.mean(1, keepdims=True), -100, 100) / np.float32(UNIT)
        self.networks.append(fitted(np.array(inputs), advantages, nn.functional.huber_loss, LEARNING, self.seed))
        return steps


def _softmax(logits: Numbers) -> Numbers:
    weights = np.exp(logits - logits.max())
    shares: Numbers = weights / weights.sum()
    return shares


class Improved(Policy):
    """Says which action is the most probable to the small copy, which is what is learnt, and plays one that it draws.

    Where there is a folder PLAYER, its adapter plays, and the copy says what it would do.

    Args:
        run: The number in the names of FILE and PLAYER.
    """

    def __init__(self, spec: TextSpec, *, seed: int = 0, run: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._file, player = FILE.format(run), PLAYER.format(run)
        self._copy = SmallCopy.load(self._file)
        self._player = load_policy(player, gym.make("LunarLanderLLM-v2"), dtype="bfloat16") if Path(player).exists() else None

    @property
    def config(self) -> dict[str, Any]:
        """The file's digest, the model that plays, and the seed."""
        player = self._player.config if self._player else None
        return {"kind": "small copy", "file": file_digest(self._file), "player": player, "seed": self.seed}

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Decide for each turn."""
        found = [self._copy.probabilities(seen(numbers_of(turn.obs))) for turn in turns]
        if self._player:
            played = [decision.action for decision in self._player.decide(turns)]
        else:
            played = [NAMES[turn.rng.choice(4, p=each)] for turn, each in zip(turns, found, strict=True)]
        return [Decision(action, completion=NAMES[each.argmax()]) for action, each in zip(played, found, strict=True)]


def main(run: str, seed: str, level: str) -> None:
    """Copy the model of a run, improve the copy on levels that the run has not, and write it."""
    decided = [step for episode in EpisodeStore(run).episodes() for step in episode.steps]
    states = [seen(numbers_of(step.observation)) for step in decided]
    wanted = [[(step.decision.probabilities or {})[name] for name in NAMES] for step in decided]
    copy, began = SmallCopy.of(np.array(states), np.array(wanted, np.float32), int(seed)), time.perf_counter()
    for number in range(ROUNDS):
        first = int(level) + number * LEVELS
        steps = copy.improve(range(first, first + LEVELS))
        print(f"round {number}: {steps} steps in copies, {(time.perf_counter() - began) / 60:.1f} minutes", flush=True)
    copy.save(FILE.format(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
