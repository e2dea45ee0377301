"""The expert of TextWorldExpress's games: it wins, also from the middle of an episode."""

import random

import pytest

ID = "CookingWorldText-v0"
GAMES = {
    "CookingWorldText-v0": (10, 25),
    "CommonsenseText-v0": (10, 21),
    "CoinCollectorText-v0": (2, 36),
    "MapReaderText-v0": (7, 13),
    "ArithmeticText-v0": (5, 5),
    "SortingText-v0": (6, 10),
    "SimonSaysText-v0": (5, 5),
    "SimonSaysMemoryText-v0": (5, 5),
    "PeckingOrderText-v0": (9, 9),
}
"""The games, and the fewest and most steps of the expert, as the docstrings say."""
REVERSIBLE = ("CommonsenseText-v0", "CoinCollectorText-v0", "MapReaderText-v0")
every_game = pytest.mark.parametrize("game", GAMES)


# ---------------------------------------------------------------- from the start


@every_game
@pytest.mark.parametrize("fold", ["train", "dev", "test"])
def test_expert_wins_with_valid_steps_in_as_many_as_documented(game, fold, make):
    env = make(game, fold=fold)
    least, most = GAMES[game]
    assert (str(least) if least == most else f"{least} to {most}") in type(env.unwrapped).__doc__
    for seed in range(25):
        _, info = env.reset(seed=seed)
        path = info["gold_path"]
        assert least <= len(path) <= most
        for action in path:
            assert info["gold_action"] == action
            _, _, terminated, truncated, info = env.step(action)
            assert info["action_was_valid"]
        assert terminated and not truncated and info["success"] and info["score"] == pytest.approx(1.0)


# ---------------------------------------------------------------- from the middle of an episode


@every_game
@pytest.mark.parametrize("distance", [1, 10])
def test_replanning_expert_wins_whatever_is_not_lost(game, distance, make, follow_gold_action):
    env = make(game, expert="replan")
    for seed in range(6):
        rng, (obs, info), over = random.Random(seed), env.reset(seed=seed), False
        for _ in range(distance):
            obs, _, over, _, info = env.step(rng.choice(obs["valid_actions"]))
            if over:
                break
        if over:
            assert "gold_action" not in info
            assert game not in REVERSIBLE or info["success"]
        else:
            assert info["gold_action"] in obs["valid_actions"]
            assert follow_gold_action(env, obs, info)[1]["success"]


def test_replanning_expert_puts_things_down_where_hands_are_full_of_others(make, follow_gold_action):
    env = make(ID, expert="replan", num_distractor_items=8, max_episode_steps=200)
    for seed in range(10):
        _, info = env.reset(seed=seed)
        path = info["gold_path"]
        for action in ("look around", "take cookbook", "read cookbook", "open fridge", "open cutlery drawer"):
            obs, *_ = env.step(action)
        for action in obs["valid_actions"]:
            if action.startswith("take ") and action not in path:
                obs, *_, info = env.step(action)
        assert info["gold_action"].startswith("put ")
        assert follow_gold_action(env, obs, info)[1]["success"]


def test_replanning_expert_goes_on_where_the_engines_agent_fails(make):
    env = make(ID, num_locations=1, num_ingredients=1, expert="replan")
    _, info = env.reset(seed=2)
    assert info["gold_steps"] == len(info["gold_path"])
    *_, info = env.step("take salt")
    assert info["gold_steps"] == 4
    plan = []
    while "gold_action" in info:
        plan.append(info["gold_action"])
        *_, info = env.step(info["gold_action"])
    assert plan == ["take cookbook", "read cookbook", "prepare meal", "eat meal"] and info["success"]


def test_replanning_expert_does_not_read_again_what_it_knows(make):
    env = make("MapReaderText-v0", expert="replan")
    for seed in range(5):
        env.reset(seed=seed)
        env.step("task")
        env.step("read map")
        *_, info = env.step("look around")
        while "gold_action" in info:
            assert info["gold_action"] not in ("task", "read map", "look around")
            *_, info = env.step(info["gold_action"])
        assert info["success"]
