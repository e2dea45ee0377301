"""Gymnasium's toy text tasks.

The facts are from the docstrings and the code of their classes (https://gymnasium.farama.org/environments/toy_text/).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym

from gym_text.descriptions.base import Description, fields
from gym_text.spec import Action, Quantity, TextSpec

_MOST_CLIFF_STEPS = 200
"""CliffWalking is registered without a limit; 13 steps are enough, and a random player takes thousands."""


_WAYS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


def frozen_lake(env: gym.Env[Any, Any]) -> Description:
    """Describe FrozenLake with the map it was made with."""
    lake: Any = env.unwrapped
    rows = tuple("".join(tile.decode() for tile in row) for row in lake.desc)
    # the outcomes of moving left from a tile that does not end the episode: one, or on slippery ice three, the intended second
    outcomes = next(lake.P[i][0] for i, tile in enumerate("".join(rows)) if tile in "SF")
    slips = (
        f" The ice is slippery: a step goes where you want with probability {outcomes[1][0]:.2g}, else to one of the two sides."
        if len(outcomes) > 1
        else " A step always goes where you want."
    )
    goal = (
        "Cross the frozen lake from the start S to the goal G without falling into a hole H; F is safe ice. Steps "
        f"against the edge have no effect.{slips}"
    )
    spec = _spec_of_map(rows, goal, "tile", ("left", "down", "right", "up"), "1 for reaching the goal.")
    names = {"F": "safe ice", "S": "the start", "H": "a hole", "G": "the goal"}
    goals = {i for i, tile in enumerate("".join(rows)) if tile == "G"}
    describe = partial(_place_in_words, spec, rows, names, says_tile=True)
    return Description(spec, describe, lambda end: end.terminated and int(end.observation) in goals)


def cliff_walking(env: gym.Env[Any, Any]) -> Description:
    """Describe CliffWalking."""
    cliff: Any = env.unwrapped
    rows = tuple("".join("C" if is_cliff else "." for is_cliff in row) for row in cliff._cliff)
    rows = (*rows[:-1], f"S{rows[-1][1:-1]}G")
    slips = (
        " The ground is slippery: each step goes where you want or to one of the two sides, each with probability 1/3."
        if cliff.is_slippery
        else ""
    )
    goal = (
        "Walk from the start S to the goal G in as few steps as possible. Stepping onto the cliff C puts you back to "
        f"the start. Steps against the edge have no effect.{slips}"
    )
    reward = "-1 for every step, -100 for stepping onto the cliff."
    spec = _spec_of_map(rows, goal, "cell", ("up", "right", "down", "left"), reward)
    names = {".": "free", "C": "the cliff", "S": "the start", "G": "the goal"}
    describe = partial(_place_in_words, spec, rows, names, says_tile=False)
    return Description(spec, describe, lambda end: end.terminated, limit=_MOST_CLIFF_STEPS)


def _spec_of_map(rows: tuple[str, ...], goal: str, place: str, ways: tuple[str, ...], reward: str) -> TextSpec:
    """Return the spec of a walk on a map, whose places are called tiles or cells."""
    width = len(rows[0])
    return TextSpec(
        goal=f"{goal} The map, row 0 first:\n" + "\n".join(rows),
        fields=fields(
            f"the {place} you stand on",
            [Quantity(place, f"{width} x row + column", 0, len(rows) * width - 1)],
            is_scalar=True,
        ),
        actions=tuple(Action(f"move {way}", f"one {place} {way}") for way in ways),
        encoding="discrete",
        reward=reward,
    )


def _place_in_words(spec: TextSpec, rows: tuple[str, ...], names: dict[str, str], obs: Any, *, says_tile: bool) -> str:
    """Return where on a map the player stands, and what lies in each direction, in words."""
    row, column = divmod(int(obs), len(rows[0]))
    on = f", on {names[rows[row][column]]}" if says_tile else ""
    sentences = [f"You stand in row {row}, column {column}{on}."]
    for action in spec.actions:
        way = action.name.removeprefix("move ")
        y, x = row + _WAYS[way][0], column + _WAYS[way][1]
        inside = 0 <= y < len(rows) and 0 <= x < len(rows[0])
        sentences.append(f"{way.capitalize()}: {names[rows[y][x]] if inside else 'the edge'}.")
    return " ".join(sentences)


def taxi(env: gym.Env[Any, Any]) -> Description:
    """Describe Taxi."""
    city: Any = env.unwrapped
    rows = tuple(b"".join(row).decode() for row in city.desc)
    names = ("Red", "Green", "Yellow", "Blue")
    stops = [f"{name} (row {row}, column {column})" for name, (row, column) in zip(names, city.locs, strict=True)]
    is_rainy = any(len(outcomes) > 1 for outcomes in city.P[0].values())
    surprises = " It rains: a move may go to the side." if is_rainy else ""
    if city.__dict__.get("fickle_passenger"):
        surprises += " The passenger may change the destination once."
    spec = TextSpec(
        goal=(
            f"Drive to the passenger, pick them up, drive to their destination and drop them off there. The stops are "
            f"{', '.join(stops)}. Walls "
            f"stand between some columns (| in the map); moves against them have no effect.{surprises} The map, row 0 below its "
            "upper border:\n" + "\n".join(rows)
        ),
        fields=fields(
            "the state",
            [Quantity("state", "((row x 5 + column) x 5 + passenger's stop, 4 in the taxi) x 4 + destination", 0, 499)],
            is_scalar=True,
        ),
        actions=(
            *(Action(f"move {way}", meaning) for way, meaning in _TAXI_MOVES.items()),
            Action("pick up", "take the passenger into the taxi, at their stop"),
            Action("drop off", "let the passenger out, at a stop"),
        ),
        encoding="discrete",
        reward="-1 for every step, -10 for picking up or dropping off where that is not possible, 20 for the delivery.",
    )

    return Description(spec, partial(_taxi_in_words, city, rows, stops), lambda end: end.terminated)


_TAXI_MOVES = {
    "south": "one row down, its number grows by 1",
    "north": "one row up, its number falls by 1",
    "east": "one column to the right, its number grows by 1",
    "west": "one column to the left, its number falls by 1",
}


def _taxi_in_words(city: Any, rows: tuple[str, ...], stops: list[str], obs: Any) -> str:
    """Return a state in words."""
    row, column, passenger, destination = (int(part) for part in city.decode(int(obs)))
    rider = "in the taxi" if passenger == 4 else f"waiting at {stops[passenger]}"
    free = {
        "north": row > 0,
        "south": row < city.max_row,
        "east": rows[1 + row][2 * column + 2] == ":",
        "west": rows[1 + row][2 * column] == ":",
    }
    open_ways = ", ".join(way for way in free if free[way])
    return (
        f"The taxi is in row {row}, column {column}. The passenger is {rider}. The destination is {stops[destination]}. "
        f"Free ways: {open_ways}."
    )


def blackjack(env: gym.Env[Any, Any]) -> Description:
    """Describe Blackjack."""
    table: Any = env.unwrapped
    natural = "1.5" if table.natural and not table.sab else "1"
    numbers = (
        Quantity("sum", "sum of your cards", 0, 31),
        Quantity("dealer", "the dealer's open card, 1 for an ace", 0, 10),
        Quantity("usable_ace", "1 if you hold an ace that counts 11", 0, 1),
    )
    spec = TextSpec(
        goal=(
            "Get a higher sum of cards than the dealer without going over 21. Court cards count 10, an ace 1 or 11. Cards "
            "are drawn from "
            "an endless deck. When you stick, the dealer draws until the sum is 17 or more."
        ),
        fields=fields("your sum, the dealer's card, your ace", numbers),
        actions=(Action("stick", "take no more cards"), Action("hit", "take another card")),
        encoding="discrete",
        reward=f"1 for winning ({natural} with an ace and a ten at once), -1 for losing, 0 for a draw.",
    )
    return Description(spec, _cards_in_words, lambda end: end.terminated and end.reward > 0)


def _cards_in_words(obs: Any) -> str:
    total, dealer, ace = (int(value) for value in obs)
    card = "an ace" if dealer == 1 else f"a card of value {dealer}"
    return f"Your cards sum to {total}, {'with' if ace else 'without'} an ace that counts 11. The dealer shows {card}."
