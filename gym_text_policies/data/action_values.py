"""Actions of one state, valued by playing on in copies of the game.

This is the vine of TRPO (Schulman et al. 2015, https://arxiv.org/abs/1502.05477, section 5.2). A recorded episode is played again,
action for action. In each of its states two actions are tried in copies of the game, and a policy plays on from there to the end.
The return of an action is the sum of the rewards from its step on. Both actions of a state are played on with the same random
numbers, which so add little to the differences.

If the expert plays on, a copy also ends where the expert knows no action, as no way to win is left. The return then lacks the
rewards that another player could still get there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from gym_text.copies import Replayable, deep_copy, fork
from gym_text.errors import UsageError
from gym_text.experts import experts_of
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.environments import takes
from gym_text_policies.load import load_policy
from gym_text_policies.policies.config import TRAINED
from gym_text_policies.policy import Policy, check_lists_actions, turn_rngs
from gym_text_policies.records import Decision, Episode, Message, Turn
from gym_text_policies.stored_environment import check_owner, make_stored_environment


class ValuedState(NamedTuple):
    """A state of an episode, and what some of its actions return."""

    prompt: tuple[Message, ...]
    """What the player saw. A player without a model saw no prompt: then it is that of a new adapter, see `TRAINED`."""
    returns: dict[str, list[float]]
    """Action -> the return of each time that it was played on, in units of the reward. The player's action comes first."""
    copies: int
    """Number of copies of the game."""
    steps: int
    """Number of steps in them."""


def valued_states(
    episodes: Iterable[Episode], continue_with: str, *, continuations: int = 1, discount: float = 1.0
) -> Iterator[ValuedState]:
    """Yield the states of episodes with the returns of two actions: the player's, and another one.

    The other action is the one that `continue_with` would take or, if the player took that one, one that is drawn at random.

    Args:
        episodes: Stored episodes.
        continue_with: Who plays on after an action: gold (the expert), random, or a language model.
        continuations: How often each action is played on.
        discount: Discount factor (gamma) of the rewards in the copies.

    States with a single valid action are left out, and those in which the player's action was not valid or, if a model played, was
    not the model's answer.

    Raises:
        UsageError: If an episode's environment cannot be made or copied, or does not list its actions; if the game goes on
            otherwise than recorded; or if the player's answers are more than names of actions.
    """
    with contextlib.ExitStack() as stack:
        players: dict[str, tuple[Policy, gym.Env[Any, Any]]] = {}
        for episode in episodes:
            _check_answers(episode)
            game = json.dumps(dict(episode.environment), sort_keys=True)
            if game not in players:
                env = _environment(episode, by_expert=continue_with == "gold")
                stack.callback(env.close)
                policy = load_policy(continue_with, env)
                check_lists_actions(policy.spec, "continue_with")
                players[game] = policy, policy.wrap(env)
            yield from _valued(episode, *players[game], continuations, discount)


def _check_answers(episode: Episode) -> None:
    """Raise `UsageError` if the player's answers are more than names of actions, or its prompts more than texts."""
    asked = episode.policy.get("player", episode.policy)
    decisions = [step.decision for step in episode.steps]
    if asked.get("mode") in ("json", "tool") or any(decision.reasoning or decision.picture for decision in decisions):
        raise UsageError(
            "runs: expected players that answer by an action's name alone (mode choose or text, without thoughts and pictures), as "
            f"the answers of a pair are names; got mode {asked.get('mode')!r} in episode {episode.key}."
        )


def _environment(episode: Episode, *, by_expert: bool) -> gym.Env[Any, Any]:
    """Return an episode's environment, with an expert in every state if the expert plays on."""
    record = dict(episode.environment)
    check_owner(record)  # before `takes`, which imports the environment's class
    if takes(record["id"], "expert"):
        record["kwargs"] = {**record["kwargs"], "expert": "replan" if by_expert else "off"}
    env = make_stored_environment(record)
    if by_expert and "replan" not in experts_of(env):
        env.close()
        raise UsageError(
            f"continue_with='gold': expected an environment whose expert knows an action in every state; {record['id']} has no "
            "such expert. Let another policy play on."
        )
    return env


def _valued(episode: Episode, policy: Policy, env: gym.Env[Any, Any], continuations: int, discount: float) -> Iterator[ValuedState]:
    """Play an episode again in `env`, which has the policy's wrappers, and yield its states."""
    prompts: Iterable[Sequence[Message]] = [step.decision.messages for step in episode.steps]
    if not any(prompts):
        prompts = prompts_of(episode, policy.spec, TRAINED, training_prompt(TRAINED))
    rngs = turn_rngs(episode.environment, policy.seed, episode.seed)
    obs, _ = env.reset(seed=episode.seed)
    turn = Turn(obs, rngs(0), episode.key)
    for number, (step, prompt) in enumerate(zip(episode.steps, prompts, strict=False)):  # one more prompt after the last step
        if turn.obs["text"] != step.observation["text"]:
            raise UsageError(
                f"runs: expected episodes that go on as they are recorded; played again, seed {episode.seed} of "
                f"{episode.environment['id']} shows another text before step {number + 1}. The game has changed: play them anew."
            )
        turn = replace(turn, rng=rngs(number))
        names, played = policy.spec.names(dict(turn.obs)), step.decision.action
        if prompt and step.decision.valid and played in names and len(names) > 1:
            actions = [played, _another(policy, turn, played, names)]
            copies = _played_on(policy, env, turn, actions, continuations, discount)
            values = iter(copied.value for copied in copies)
            returns = {action: [next(values) for _ in range(continuations)] for action in actions}
            yield ValuedState(tuple(prompt), returns, len(copies), sum(copied.steps for copied in copies))
        turn = turn.after(step.decision, env.step(policy.spec.encode(played, dict(turn.obs)))[0])


def _another(policy: Policy, turn: Turn, played: str, names: Sequence[str]) -> str:
    """Return another valid action than the player's: the policy's own, or one that is drawn."""
    preferred = None if _is_lost(turn) else policy.decide([turn])[0].action
    drawn = [names[place] for place in turn.rng.permutation(len(names)) if names[place] != played]
    return preferred if preferred is not None and preferred in drawn else drawn[0]


def _is_lost(turn: Turn) -> bool:
    """Whether the expert would play on, and finds no way to win."""
    return turn.obs.get("gold_action") == ""


class _Copy:
    """A copy of the game in which the policy plays on."""

    def __init__(self, env: gym.Env[Any, Any], turn: Turn, discount: float) -> None:
        hints = getattr(env.unwrapped, "expert", "off") != "off"  # `fork` gives no hints, a deep copy gives those of this env
        self.env = deep_copy(env, {}, str(env)) if hints and isinstance(env.unwrapped, Replayable) else fork(env)
        self.turn = turn
        self.value = 0.0
        self.steps = 0
        self.over = False
        self._discount = discount

    def play(self, decision: Decision, encoded: Any) -> None:
        """Play an action, and count its reward."""
        obs, reward, terminated, truncated, _ = self.env.step(encoded)
        self.value += self._discount**self.steps * float(reward)
        self.steps += 1
        self.turn = self.turn.after(decision, obs)
        self.over = bool(terminated or truncated) or _is_lost(self.turn)


def _played_on(
    policy: Policy, env: gym.Env[Any, Any], turn: Turn, actions: Sequence[str], continuations: int, discount: float
) -> list[_Copy]:
    """Play each action in copies of the game and play on to the end, all copies step by step, so that a model is asked together."""
    copies: list[_Copy] = []
    seeds = turn.rng.integers(2**63, size=continuations)
    with contextlib.ExitStack() as stack:
        for _ in actions:
            for seed in seeds:
                copies.append(_Copy(env, replace(turn, rng=np.random.default_rng(seed)), discount))
                stack.callback(copies[-1].env.close)
        decisions = [Decision(action) for action in actions for _ in seeds]
        waiting = copies
        while waiting:
            for copied, decision in zip(waiting, decisions, strict=True):
                copied.play(decision, policy.spec.encode(decision.action, dict(copied.turn.obs)))
            waiting = [copied for copied in waiting if not copied.over]
            decisions = policy.decide([copied.turn for copied in waiting]) if waiting else []
    return copies
