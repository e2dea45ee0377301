"""How an episode shows itself in a notebook: its facts, and a row for each step with the probabilities of the actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from gym_text.html import bar, block, joined, line, picture, shown, table

MOST_STEPS = 60
"""Most steps of an episode that are shown: the first ones, and the last one."""
_BARS = 5
"""Most bars of a step: those of the best actions and of the action that was taken."""


def player_within(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the policy that plays within policies that mix actions or look ahead."""
    while isinstance(policy.get("player"), Mapping):
        policy = policy["player"]
    return policy


def player(policy: Mapping[str, Any]) -> str:
    """Return the model of a policy, or of the policy that it asks; else its name or kind."""
    policy = player_within(policy)
    return str(policy.get("model") or policy.get("name") or policy.get("kind", ""))


def episode_html(episode: Any, pictures: Mapping[int, str] | None = None, gold: Mapping[int, str] | None = None) -> Markup:
    """Return an episode as HTML.

    Args:
        episode: An `Episode`.
        pictures: Number of a step -> the picture before it, as PNG or WebP in base64. The last picture follows the last step.
        gold: Number of a step -> the expert's action, where the record lacks it.
    """
    pictures, gold, last = pictures or {}, gold or {}, episode.length
    facts = f"return {episode.total_reward:.4g}, {last} steps, seed {episode.seed}. {episode.environment.get('id')}, "
    facts += f"played by {player(episode.policy)}."
    parts = [line(Markup("<b>{}</b>, {}").format(episode.outcome, shown(facts)))]
    parts += [line(Markup("<b>Error:</b> {}").format(shown(episode.error)))] * (episode.error is not None)
    first = episode.steps[0].observation if episode.steps else episode.last_observation
    parts += [line(Markup("<b>Goal:</b> {}").format(shown(first["goal"])))] * ("goal" in first)
    chosen = [*range(min(last, MOST_STEPS - 1)), *range(max(last - 1, MOST_STEPS - 1), last)]
    rows = []
    for number in chosen:
        step = episode.steps[number]
        before = (picture(pictures[number]) if number in pictures else "",) * bool(pictures)
        expert = step.gold_action or gold.get(number)
        rows.append((number + 1, *before, _seen(step.observation), _decision(step.decision, expert), f"{step.reward:.3g}"))
    if episode.last_observation:
        before = (picture(pictures[last]) if last in pictures else "",) * bool(pictures)
        rows.append(("end", *before, _seen(episode.last_observation), "", ""))
    headings = ("step", *("picture",) * bool(pictures), "what the player sees", "what it does", "reward")
    left_out = last - len(chosen)
    note = [line(f"{left_out} steps before the last one are left out.", faint=True)] * (left_out > 0)
    return block(*parts, table(headings, rows, height="32em"), *note)


def _seen(observation: Mapping[str, Any]) -> Markup:
    """Return what the player sees: the text, or the whole observation where there is none."""
    text = observation.get("text")
    return shown(text if isinstance(text, str) else {key: observation[key] for key in observation if key != "goal"})


def _decision(decision: Any, expert: str | None) -> Markup:
    """Return the action, the thought before it, and bars of the actions' probabilities, or of the search's visits."""
    parts: list[object] = []
    if not decision.valid:
        parts.append(line(f"its answer could not be used{f': {decision.invalid}' if decision.invalid else ''}", faint=True))
    thought = decision.reasoning or (decision.completion if decision.completion != decision.action else "")
    parts += [line(shown(thought, 300), faint=True)] * bool(thought)
    shares, what = decision.probabilities or {}, ""
    if decision.visits:
        total = max(sum(decision.visits.values()), 1)
        shares, what = {name: count / total for name, count in decision.visits.items()}, f"share of {total} simulations"
    if not shares:
        parts.append(Markup("<b>{}</b>{}").format(shown(decision.action), " (as the expert)" if expert == decision.action else ""))
        return joined(parts)
    best = sorted(shares, key=lambda name: -shares[name])[:_BARS]
    if decision.action not in best:
        best[-1:] = [decision.action]
    parts += [line(what, faint=True)] * bool(what)
    parts += [bar(name, shares.get(name, 0.0), taken=name == decision.action, expert=name == expert) for name in best]
    return joined(parts)
