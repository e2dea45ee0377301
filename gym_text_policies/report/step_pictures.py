"""A recorded episode with pictures and the expert's actions, which come from playing it again; a notebook shows it."""

from __future__ import annotations

import base64
import functools
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from markupsafe import Markup

from gym_text.errors import import_extra
from gym_text.html import bar, block, joined, line, picture, shown, table
from gym_text_policies.environments.stored import make_stored_environment, owner_of
from gym_text_policies.files.json_data import plain
from gym_text_policies.policies.seen_pictures import picture_digest
from gym_text_policies.records import Decision, Episode, player_within
from gym_text_policies.report.replay import replay

_MOST_PICTURES = 40
"""Most pictures of an episode. A longer one shows every second step, or every third, and so on; and each that the model saw."""
_MOST_WIDTH = 720
"""Pixels."""
_COLOURS = 32
"""Colours of a picture. The games use few, so that no loss is seen."""
_MOST_REASON = 300
"""Most characters of a reason."""
_MOST_STEPS = 60
"""Most steps of an episode that a notebook shows: the first ones, and the last one."""
_BARS = 5
"""Most bars of a step in a notebook: those of the best actions and of the action that was taken."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of an episode, and the expert's actions."""

    pictures: tuple[str, ...] = ()
    """WebP without loss in base64; equal pictures are kept once."""
    shown: tuple[int | None, ...] = ()
    """For each observation the index of its picture, or None if the picture before it stays."""
    gold_actions: tuple[str | None, ...] = ()
    """For each step the expert's action, or None if it is unknown."""
    missing: str = ""
    """Why there are no pictures."""

    @property
    def size(self) -> int:
        """Number of characters of the pictures."""
        return sum(map(len, self.pictures))


def draw_pictures(episode: Episode) -> Pictures:
    """Play an episode again and draw it. Its record names the environment; see `make_stored_environment`.

    Returns:
        The pictures. There are none if the environment cannot be made, or if what it shows differs from the record.
    """
    try:
        return _draw(episode)
    except Exception as error:  # an environment that a record describes may raise anything
        reason = " ".join(str(error).split())[:_MOST_REASON]
        return Pictures(missing=reason or type(error).__name__)


def _draw(episode: Episode) -> Pictures:
    pictures: dict[str, int] = {}  # picture -> its index
    shown: list[int | None] = []
    gold: list[str | None] = []
    stride = math.ceil((episode.length + 1) / _MOST_PICTURES)
    for state in replay(episode, functools.partial(_make, episode)):
        number = state.number
        seen = episode.steps[number].decision.picture if number < episode.length else None
        if number % stride and number != episode.length and not seen:
            shown.append(None)
        else:
            frame = state.picture()
            if seen and seen != picture_digest(frame):
                raise ValueError("expected the pictures that the model saw; the game draws others when it is played again")
            shown.append(pictures.setdefault(_encode(frame), len(pictures)))
        if number < episode.length:
            step = episode.steps[number]
            _check(state.obs, step.observation)
            gold.append(step.gold_action or state.info.get("gold_action"))
    return Pictures(tuple(pictures), tuple(shown), tuple(gold))


def _make(episode: Episode) -> gym.Env[Any, Any]:
    """Make the episode's environment with pictures. If the record lacks an expert's action, the expert is on in every state."""
    record = dict(episode.environment)
    if owner_of(record["id"]).startswith("gym_text."):
        known = all(step.gold_action for step in episode.steps)
        record["kwargs"] = {**record["kwargs"], "expert": "off" if known else "replan"}
    return make_stored_environment(record, render_mode="rgb_array")


def _check(obs: Any, recorded: Mapping[str, Any]) -> None:
    """Raise ValueError unless an observation equals the recorded one in the keys that both have."""
    if plain({key: obs[key] for key in recorded if key in obs}) != {key: recorded[key] for key in recorded if key in obs}:
        raise ValueError("expected the recorded observations; the game shows others when it is played again")


def _encode(frame: np.ndarray) -> str:
    """Return a picture in base64: as WebP without loss, which is a quarter to a half smaller than PNG."""
    image = import_extra("PIL.Image", "experiments").fromarray(frame)
    if image.width > _MOST_WIDTH:
        image = image.resize((_MOST_WIDTH, round(image.height * _MOST_WIDTH / image.width)))
    buffer = io.BytesIO()
    few = image.quantize(_COLOURS, method=2).convert("RGB")  # by an octree
    few.save(buffer, "WEBP", lossless=True, quality=60, method=4)  # of Pillow's settings those that cost no more time than PNG
    return base64.b64encode(buffer.getvalue()).decode("ascii")


@dataclass(frozen=True)
class Illustrated:
    """An episode with its pictures. A notebook shows it: its facts, and a row for each step."""

    episode: Episode = field(repr=False)
    """The episode."""
    drawn: Pictures = field(repr=False)
    """Its pictures, and the expert's actions that its record lacks."""

    def _repr_html_(self) -> str:
        """Return the episode for a notebook; if there are no pictures, it says why."""
        episode, drawn, last = self.episode, self.drawn, self.episode.length
        facts = f"return {episode.total_reward:.4g}, {last} steps, seed {episode.seed}. {episode.environment.get('id')}, "
        player = player_within(episode.policy)
        facts += f"played by {player.get('model') or player.get('name') or player.get('kind', '')}."
        parts = [line(Markup("<b>{}</b>, {}").format(episode.outcome, shown(facts)))]
        parts += [line(Markup("<b>Error:</b> {}").format(shown(episode.error)))] * (episode.error is not None)
        first = episode.steps[0].observation if episode.steps else episode.last_observation
        parts += [line(Markup("<b>Goal:</b> {}").format(shown(first["goal"])))] * ("goal" in first)
        chosen = [*range(min(last, _MOST_STEPS - 1)), *range(max(last - 1, _MOST_STEPS - 1), last)]
        rows: list[tuple[object, ...]] = []
        for number in chosen:
            step = episode.steps[number]
            expert = step.gold_action or (drawn.gold_actions[number] if number < len(drawn.gold_actions) else None)
            seen, done = _seen(step.observation), _decision(step.decision, expert)
            rows.append((number + 1, *self._picture(number), seen, done, f"{step.reward:.3g}"))
        if episode.last_observation:
            rows.append(("end", *self._picture(last), _seen(episode.last_observation), "", ""))
        headings = ("step", *("picture",) * bool(drawn.pictures), "what the player sees", "what it does", "reward")
        left_out = last - len(chosen)
        note = [line(f"{left_out} steps before the last one are left out.", faint=True)] * (left_out > 0)
        note += [line(f"No pictures: {drawn.missing}", faint=True)] * bool(drawn.missing)
        return str(block(*parts, table(headings, rows, height="32em"), *note))

    def _picture(self, number: int) -> tuple[object, ...]:
        """Return the cell of a picture; nothing if no step has one."""
        index = self.drawn.shown[number] if number < len(self.drawn.shown) else None
        return ("" if index is None else picture(self.drawn.pictures[index]),) * bool(self.drawn.pictures)


def illustrated(episode: Episode) -> Illustrated:
    """Play an episode again for its pictures.

    Args:
        episode: The recorded episode. Its record chooses one of the environments that ship with this package or with Gymnasium.
    """
    return Illustrated(episode, draw_pictures(episode))


def _seen(observation: Mapping[str, Any]) -> Markup:
    """Return what the player sees: the text, or the whole observation where there is none."""
    text = observation.get("text")
    return shown(text if isinstance(text, str) else {key: observation[key] for key in observation if key != "goal"})


def _decision(decision: Decision, expert: str | None) -> Markup:
    """Return the action, the thought before it, and bars of the actions' probabilities, or of the search's visits."""
    parts: list[object] = []
    if not decision.valid:
        parts.append(line(f"its answer could not be used{f': {decision.invalid}' if decision.invalid else ''}", faint=True))
    thought = decision.reasoning or (decision.completion if decision.completion != decision.action else "")
    parts += [line(shown(thought, 300), faint=True)] * bool(thought)
    shares: Mapping[str, float] = decision.probabilities or {}
    if decision.visits:
        total = max(sum(decision.visits.values()), 1)
        shares = {name: count / total for name, count in decision.visits.items()}
        parts.append(line(f"share of {total} simulations", faint=True))
    if not shares:
        parts.append(Markup("<b>{}</b>{}").format(shown(decision.action), " (as the expert)" if expert == decision.action else ""))
    best = sorted(shares, key=lambda name: -shares[name])[:_BARS]
    if shares and decision.action not in best:
        best[-1:] = [decision.action]
    parts += [bar(name, shares.get(name, 0.0), taken=name == decision.action, expert=name == expert) for name in best]
    return joined(parts)
