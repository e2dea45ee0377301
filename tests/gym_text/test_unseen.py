"""Copies of BabyAI in which what the player has not seen is drawn anew."""

import random

import numpy as np
import pytest

from gym_text import UsageError
from gym_text.babyai.expert import Advisor
from gym_text.copies import fork

ID = "BabyAIText-v0"
LEVELS = [
    *({"task": task} for task in ("goto", "open", "putnext")),
    *({"level": f"BabyAI-{level}-v0"} for level in ("PickupLoc", "UnlockPickup", "BossLevel")),
]


def in_progress(env, seed):
    """Begin an episode and play a few steps at random; return the last text, or None if the episode has ended."""
    obs, _ = env.reset(seed=seed)
    rng = random.Random(seed)
    for _ in range(seed % 4 * 2):
        obs, _, terminated, truncated, _ = env.step(rng.choice([0, 1, 2, 2]))
        if terminated or truncated:
            return None
    return obs["text"]


def wins(game):
    """Return whether minigrid's bot wins a game from here."""
    advisor, action = Advisor(game), None
    while (action := advisor.advise(action)) is not None:
        _, reward, terminated, truncated, _ = game.step(action)
        if terminated or truncated:
            return terminated and reward > 0
    return False


def things(game):
    """Return the objects of a game with their places, except walls."""
    places = [(x, y) for x in range(game.grid.width) for y in range(game.grid.height)]
    found = [((x, y), thing) for x, y in places if (thing := game.grid.get(x, y)) is not None and thing.type != "wall"]
    assert all(thing.cur_pos is None or tuple(thing.cur_pos) == place for place, thing in found)
    return [(place, *thing.encode()) for place, thing in found]


@pytest.mark.parametrize("arguments", LEVELS, ids=lambda arguments: next(iter(arguments.values())))
def test_what_the_player_has_seen_stays_and_the_rest_is_drawn(arguments, make):
    env = make(ID, expert="off", **arguments)
    played = drawn_levels = won = 0
    for seed in range(8):
        if (text := in_progress(env, seed)) is None:
            continue
        true = things(env.unwrapped._game)
        seen = {cell for view in env.unwrapped._views for cell in view.cells()}
        drawn = [fork(env, unseen=np.random.default_rng(number)) for number in range(2)]
        found = [things(copied.unwrapped._game) for copied in drawn]
        for copied, there in zip(drawn, found, strict=True):
            assert copied.unwrapped._observation()["text"] == text
            assert [thing for thing in there if thing[0] in seen] == [thing for thing in true if thing[0] in seen]
            assert sorted(thing[1:] for thing in there) == sorted(thing[1:] for thing in true)
        assert things(env.unwrapped._game) == true
        played += 1
        drawn_levels += found[0] != found[1] and found[0] != true
        won += wins(drawn[0].unwrapped._game)
    assert drawn_levels >= 2 and won >= played - 1 >= 5


def test_a_copy_goes_on_by_the_places_that_its_generator_has_drawn(make):
    env, differ = make(ID, expert="off", level="BabyAI-GoToLocal-v0"), 0
    for seed in range(5):
        env.reset(seed=seed)
        first, second = (fork(env, unseen=np.random.default_rng(7)) for _ in range(2))
        for _ in range(3):
            texts = [copied.step(0)[0]["text"] for copied in (first, second, env)]
            assert texts[0] == texts[1]
            differ += texts[0] != texts[2]
    assert differ >= 3


def test_other_environments_draw_nothing_anew(make):
    for name in ("MountainCarContinuousLLM-v0", "CartPole-v1"):
        env = make(name)
        env.reset(seed=0)
        with pytest.raises(UsageError, match=r"expected unseen=None, as .*C.* cannot draw anew what the player has not seen"):
            fork(env, unseen=np.random.default_rng(0))
