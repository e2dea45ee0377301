"""What is measured after play, in stored states: whether the options' order matters to a model, and which actions are the best.

The language model is asked again. The expert says, in exact copies of the game, how many steps it takes to win after each valid
action, so that a policy is not blamed for another action that is as good as the expert's.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from gym_text.errors import UsageError
from gym_text.experts import replanning
from gym_text_policies.environments import environment_maker
from gym_text_policies.game import MakeEnv
from gym_text_policies.load import load_policy
from gym_text_policies.policies.llm import LLMPolicy
from gym_text_policies.policy import Policy
from gym_text_policies.records import Decision, Episode, Turn
from gym_text_policies.report.calibration import Judged, judge, read_measured, scores, write_measured
from gym_text_policies.report.replay import best_actions_in, replay
from gym_text_policies.report.statistics import mean
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import Run

STATES = 50
"""Most states of a row about which its model or the expert is asked."""
_MOST_ACTIONS = 400
"""Most actions of a row after which the expert plays on."""
_AT_ONCE = 8
"""Most turns of a call."""
_logger = logging.getLogger(__name__)


def measure(run: Run, orders: int, by_plans: bool) -> None:
    """Measure what is asked of each row, and keep the figures in the run folder. What is kept already is not measured again.

    Args:
        run: The rows, with their stored episodes.
        orders: Number of drawn orders of the options in which a language model is asked again about each state; not one that looks
            ahead or whose actions are partly another's.
        by_plans: Whether probabilities are compared with all best actions, where the environment has an expert that replans.
    """
    if orders < 1 and not by_plans:
        return
    kept = read_measured(run.store.folder)
    for row in run.rows:
        key, episodes = next(iter(row.keys.values()), ""), list(run.episodes(row))
        known = kept.get(key, {})
        if known.get("episodes") != len(episodes):
            known = {"episodes": float(len(episodes))}
        found: dict[str, float] = {}
        if orders > 0 and row.plan.policy.asks_model and known.get("orders") != orders:
            found |= _of_orders(row.plan, episodes, orders)
        if by_plans and "best_judged" not in known:
            found |= {f"best_{name}": value for name, value in scores(list(_by_plans(row.plan, episodes))).items()}
        if found:
            kept[key] = known | found
            write_measured(run.store.folder, kept)


def _by_plans(row: PlanRow, episodes: Sequence[Episode]) -> Iterator[Judged]:
    """Yield the decisions of some drawn states, judged by the actions after which the expert needs the fewest steps."""
    try:
        make_env = environment_maker(row.environment, **dict(row.arguments) | {"expert": "replan"})
        with closing(make_env()) as env:
            replanning(env)
    except UsageError as error:
        _logger.warning("%s: no best actions. %s", row.environment, error)
        return
    places = [
        (index, number)
        for index, episode in enumerate(episodes)
        for number, step in enumerate(episode.steps)
        if episode.error is None and len(step.decision.probabilities or ()) > 1
    ]
    drawn: defaultdict[int, dict[int, Mapping[str, float]]] = defaultdict(dict)
    tried = 0
    for place in np.random.default_rng(0).permutation(len(places))[:STATES]:
        index, number = places[place]
        shares = episodes[index].steps[number].decision.probabilities or {}
        tried += len(shares)
        if tried > _MOST_ACTIONS:
            break
        drawn[index][number] = shares
    for index, states in drawn.items():
        for number, best in best_actions_in(episodes[index], make_env, states).items():
            if best:
                yield judge(states[number], best)


def _of_orders(row: PlanRow, episodes: Sequence[Episode], orders: int) -> dict[str, float]:
    """Return the figures of a row: ``same_choice``, ``variation`` if probabilities are known, ``states`` and ``orders``."""
    make_env = environment_maker(row.environment, **row.policy.rendering | dict(row.arguments))
    with closing(make_env()) as env:
        policy = load_policy(row.policy, env)
    if not isinstance(policy, LLMPolicy):
        return {}
    turns = [turn for episode in episodes if episode.error is None for turn in _turns(episode, lambda: policy.wrap(make_env()))]
    turns = [turn for turn in turns if len(policy.spec.names(dict(turn.obs))) > 1]
    rng = np.random.default_rng(0)
    turns = [turns[i] for i in sorted(rng.choice(len(turns), min(STATES, len(turns)), replace=False))]
    first = _decisions(policy, turns)
    pairs: list[tuple[Decision, Decision]] = []
    for _ in range(orders):
        pairs += zip(first, _decisions(policy, [_reordered(policy, turn, rng) for turn in turns]), strict=True)
    figures = {
        "same_choice": mean([_choice(one) == _choice(other) for one, other in pairs]),
        "variation": mean([_variation(one, other) for one, other in pairs if one.probabilities]),
    }
    return {name: value for name, value in figures.items() if value is not None} | {"states": len(turns), "orders": orders}


def _turns(episode: Episode, make_env: MakeEnv) -> Iterator[Turn]:
    """Yield the turn of each recorded decision, by playing the episode again in an environment with the policy's wrappers."""
    turn: Turn | None = None
    for state in replay(episode, make_env):
        if state.number < episode.length:
            before = episode.steps[state.number - 1].decision
            turn = turn.after(before, state.obs) if turn else Turn(state.obs, np.random.default_rng(0))
            yield turn


def _reordered(policy: Policy, turn: Turn, rng: np.random.Generator) -> Turn:
    """Return a turn whose valid actions stand in another order, drawn at random. The rules of the game stay as they are."""
    names = policy.spec.names(dict(turn.obs))
    return replace(turn, obs={**turn.obs, "valid_actions": tuple(names[i] for i in rng.permutation(len(names)))})


def _decisions(policy: Policy, turns: Sequence[Turn]) -> list[Decision]:
    """Ask about each turn; what a turn draws, as for a thought, does not depend on its order."""
    asked = [replace(turn, rng=np.random.default_rng(0)) for turn in turns]
    return [decision for i in range(0, len(asked), _AT_ONCE) for decision in policy.decide(asked[i : i + _AT_ONCE])]


def _choice(decision: Decision) -> str | None:
    """Return the most probable action, else the action that the model named; None if its answer could not be used."""
    if shares := decision.probabilities:
        return max(shares, key=shares.__getitem__)
    return decision.action if decision.valid else None


def _variation(one: Decision, other: Decision) -> float:
    """Return the total variation distance between the probabilities of two decisions about the same actions, 0 to 1."""
    shares, others = one.probabilities or {}, other.probabilities or {}
    return sum(abs(share - others.get(name, 0.0)) for name, share in shares.items()) / 2
