"""The values of the states that the episodes of one level reached: equal states are one, and copies of the game try other actions.

Two decisions of a level have the same state if they have the same observation, as in GiGPO (Feng et al. 2025,
https://arxiv.org/abs/2505.10978). `reached_states` plays the episodes again. In each new state it tries each action that no episode
has taken there, for one step in a copy of the game (`gym_text.copies.fork`). So it knows where nearly every action leads, and it
asks no model. From that `action_values` computes what the actions are worth.

An action is known if it ended the game, or led to a state in which an episode acted. The other actions lead out of what the
episodes reached: nothing is learnt about them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.copies import fork
from gym_text.errors import UsageError
from gym_text_policies.drawing import evened
from gym_text_policies.json_data import plain
from gym_text_policies.policy import text_spec
from gym_text_policies.training.targets import UNIFORM_SHARE
from gym_text_policies.training.trajectories import Trajectory

_MOST_SWEEPS, _PRECISION = 1000, 1e-5
"""The values are computed to this precision, in at most so many sweeps over the states."""


@dataclass(frozen=True)
class Consequence:
    """What an action led to, once."""

    reward: float
    next_state: str | None
    """The state after the action; None if the game was over."""


@dataclass(frozen=True)
class State:
    """A state in which an episode acted."""

    prior: Mapping[str, float]
    """The candidates of the first decision in this state, with their probabilities in play."""
    consequences: dict[str, list[Consequence]] = field(default_factory=dict)
    """By the action. A game with hidden parts may have several consequences of one action in states that look alike."""


States = dict[str, State]
"""The states of one level in which an episode acted, by their observations."""


def state_of(observation: Any) -> str:
    """Return the name of a state: equal observations, and their records, have equal names."""
    return json.dumps(plain(observation if isinstance(observation, Mapping) else {"observation": observation}), sort_keys=True)


def reached_states(env: gym.Env[Any, Any], trajectories: Sequence[Trajectory]) -> tuple[States, int]:
    """Return the states that the episodes of one level reached, and the number of steps played in the game and in its copies.

    Args:
        env: The environment of the episodes, without a policy's wrappers. The function plays them again in it.
        trajectories: The episodes of one level.

    Raises:
        UsageError: If an episode goes another way when it is played again.
    """
    states: States = {}
    spec, steps = text_spec(env), 0
    for trajectory in trajectories:
        obs, _ = env.reset(seed=trajectory.episode.seed)
        for step, candidates in zip(trajectory.episode.steps, trajectory.candidates, strict=True):
            if (name := state_of(obs)) != state_of(step.observation):
                raise UsageError(f"{trajectory.environment}: expected an environment that plays an episode twice in the same way.")
            state, taken = states.setdefault(name, State(candidates)), step.decision.action
            untried = [action for action in state.prior if action != taken and action not in state.consequences]
            for action in untried:
                copied = fork(env)
                state.consequences[action] = [_consequence(copied.step(spec.encode(action, obs)))]
                copied.close()
            answer = env.step(spec.encode(taken, obs))
            state.consequences.setdefault(taken, []).append(_consequence(answer))
            obs, steps = answer[0], steps + 1 + len(untried)
    return states, steps


def _consequence(answer: tuple[Any, Any, bool, bool, dict[str, Any]]) -> Consequence:
    """Return what `step` has answered, as a consequence. A truncated game is not over."""
    obs, reward, terminated, *_ = answer
    return Consequence(float(reward), None if terminated else state_of(obs))


# ---------------------------------------------------------------- values

Values = dict[str, dict[str, float]]
"""For each state the values of its known actions."""


def action_values(states: States, discount: float, temperature: float) -> Values:
    """Return what the known actions of some states are worth, if the soft maximum plays from then on.

    The value of a state is the soft maximum of its known actions' values, weighted by the prior. This is the value of the policy
    with the greatest return less `temperature` times its KL divergence from the prior (Todorov 2006, linearly solvable Markov
    decision problems). At a temperature of 0 it would be the best way through the states, at an infinite one the prior's value.

    Args:
        states: The states of one level.
        discount: Discount factor (gamma).
        temperature: In units of the return.
    """
    number = {name: index for index, name in enumerate(states)}
    known = _known_actions(states)
    source = np.array([number[name] for name, _, _ in known], dtype=int)  # (K,) for K known actions
    prior = np.array([with_floor(states[name].prior)[action] for name, action, _ in known])  # (K,)
    rewards = np.array([np.mean([one.reward for one in consequences]) for _, _, consequences in known])  # (K,)
    leads_to = np.zeros((len(known), len(states)))  # the share of an action's consequences that are this state
    for row, (_, _, consequences) in enumerate(known):
        for one in consequences:
            if one.next_state is not None:
                leads_to[row, number[one.next_state]] += 1 / len(consequences)
    values, of_actions = np.zeros(len(states)), rewards
    for _ in range(_MOST_SWEEPS if known else 0):
        of_actions = rewards + discount * leads_to @ values
        before, values = values, soft_maxima(of_actions, prior, source, len(states), temperature)
        if np.abs(values - before).max() < _PRECISION:
            break
    found: Values = {name: {} for name in states}
    for (name, action, _), value in zip(known, of_actions.tolist(), strict=True):
        found[name][action] = value
    return found


def _known_actions(states: States) -> list[tuple[str, str, list[Consequence]]]:
    """Return the known actions: the state, the action, and those of its consequences that are known."""
    known = []
    for name, state in states.items():
        for action in state.prior:
            consequences = [one for one in state.consequences.get(action, ()) if one.next_state is None or one.next_state in states]
            if consequences:
                known.append((name, action, consequences))
    return known


def soft_maxima(values: np.ndarray, weights: np.ndarray, groups: np.ndarray, count: int, temperature: float) -> np.ndarray:
    """Return temperature * log of the weighted mean of exp(value / temperature) of each group; 0 for an empty group.

    Args:
        values: Shape (K,).
        weights: Shape (K,), above 0.
        groups: The number of the group of each value, from 0 on; shape (K,).
        count: Number of groups.
        temperature: Above 0.
    """
    greatest = np.full(count, -np.inf)
    np.maximum.at(greatest, groups, values)
    sums = np.bincount(groups, weights * np.exp((values - greatest[groups]) / temperature), count)
    totals = np.bincount(groups, weights, count)
    is_empty = totals == 0
    means = np.where(is_empty, 1.0, sums) / np.where(is_empty, 1.0, totals)
    return np.where(is_empty, 0.0, greatest + temperature * np.log(means))


def with_floor(prior: Mapping[str, float]) -> dict[str, float]:
    """Return a decision's probabilities with a share of them spread evenly over its candidates."""
    return evened(prior, UNIFORM_SHARE)


def target_probabilities(prior: Mapping[str, float], values: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Return a decision's probabilities, with the floor, times exp(advantage / temperature): they sum to 1.

    The advantage of an action is its value less the soft maximum of the known actions' values. An action of unknown value has an
    advantage of 0.

    Args:
        prior: The candidates of the decision, with their probabilities in play.
        values: The values of the known ones.
        temperature: In units of the return.
    """
    floored = with_floor(prior)
    known = [action for action in prior if action in values]
    of_known, weights = (np.array([numbers[action] for action in known]) for numbers in (values, floored))
    (state,) = soft_maxima(of_known, weights, np.zeros(len(known), dtype=int), 1, temperature)
    return floored | {action: floored[action] * float(np.exp((values[action] - state) / temperature)) for action in known}
