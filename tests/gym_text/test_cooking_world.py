"""CookingWorld: its parameters, and actions as any text game takes them."""

import pytest

import gym_text

ID = "CookingWorldText-v0"


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_locations": 11, "num_ingredients": 5, "num_distractor_items": 10},
        {"num_locations": 1, "num_ingredients": 5, "num_distractor_items": 10, "limit_inventory_size": False},
        {"num_locations": 1, "num_ingredients": 1, "num_distractor_items": 0, "include_doors": False},
        {"num_ingredients": 3},
    ],
    ids=str,
)
def test_extreme_parameters_fit_the_spaces_and_are_won(parameters, make):
    env = make(ID, max_episode_steps=200, **parameters)
    for seed in range(4):
        obs, info = env.reset(seed=seed)
        for action in info["gold_path"]:
            assert obs in env.observation_space
            obs, *_, info = env.step(action)
        assert info["success"]
        assert info["score"] == 1.0


def test_each_parameter_reaches_the_game(make):
    def recipe(**parameters):
        env = make(ID, expert="off", **parameters)
        obs, _ = env.reset(seed=0)
        env.step("take cookbook")
        recipe, *_ = env.step("read cookbook")
        inventory, *_ = env.step("inventory")
        return obs, recipe["text"].partition("Directions:")[0].count("\n  "), inventory["text"]

    obs, ingredients, inventory = recipe()
    assert any(action.startswith("open door") for action in obs["valid_actions"])
    assert ingredients == 2 and "maximum capacity" in inventory
    obs, ingredients, inventory = recipe(num_ingredients=4, include_doors=False, limit_inventory_size=False)
    assert not any("door to" in action for action in obs["valid_actions"])
    assert ingredients == 4 and "maximum capacity" not in inventory
    obs, *_ = recipe(num_locations=1)
    assert not any(action.startswith("move") for action in obs["valid_actions"])
    few, many = (len(recipe(num_locations=1, num_distractor_items=number)[0]["valid_actions"]) for number in (0, 10))
    assert few < many


def test_seeds_are_taken_modulo_the_thousand_levels_of_the_fold(make):
    env = make(ID, fold="dev", expert="off")
    start, same, far, other = (env.reset(seed=seed)[0] for seed in (3, 1003, 10**18 + 3, 503))
    assert start == same == far != other


# ---------------------------------------------------------------- memory


def test_memory_tells_what_was_read_and_done_where_all_was_the_same(make):
    env, plain = (make(ID, memory=memory, expert="off") for memory in (True, False))
    first, _ = env.reset(seed=0)
    assert first == plain.reset(seed=0)[0]
    env.step("take cookbook"), plain.step("take cookbook")
    recipe = plain.step("read cookbook")[0]["text"]
    assert env.step("read cookbook")[0]["text"] == f"{recipe}\nDone here before: read cookbook 1."
    for _ in range(2):
        obs, said = env.step("inventory")[0], plain.step("inventory")[0]
    assert obs["text"] == f"{said['text']}\nRead before: {recipe}\nDone here before: inventory 2, read cookbook 1."
    assert obs | {"text": ""} == said | {"text": ""} and obs in env.observation_space
    assert gym_text.fork(env).step("inventory")[0] == env.step("inventory")[0]
    assert env.reset(seed=0)[0] == first


# ---------------------------------------------------------------- actions


def test_valid_actions_are_sorted(make):
    obs, info = make(ID).reset(seed=0)
    assert list(obs["valid_actions"]) == sorted(obs["valid_actions"])
    assert info["gold_action"] in obs["valid_actions"]


@pytest.mark.parametrize("action", ["", "TAKE KNIFE", "knife\x00\x1e\x1f\n", "\ud800"], ids=ascii)
def test_any_string_is_answered_costs_a_step_and_is_flagged_as_invalid(action, make):
    env = make(ID, expert="off", max_episode_steps=1)
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(action)
    assert obs["text"].startswith("Unknown action") and obs in env.observation_space
    assert (reward, terminated, truncated, info["action_was_valid"]) == (0.0, False, True, False)


@pytest.mark.parametrize("action", [" take knife", "take knife ", "take knife\n"])
def test_action_with_an_effect_is_not_flagged_as_invalid(action, make):
    env = make(ID)
    env.reset(seed=0)
    obs, *_, info = env.step(action)
    assert info["action_was_valid"] == ("knife" in obs["inventory"])
