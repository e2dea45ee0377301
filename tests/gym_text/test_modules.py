"""Symbolic modules: their calls are actions, their answers are right, and the game does not notice them."""

import itertools
import re

import gymnasium as gym
import numpy as np
import pytest
from experts import ENV_IDS  # noqa: F401  registers the environments
from forks import check_forks

from gym_text import UsageError
from gym_text.experts import expert_costs
from gym_text.textworld_express.modules import Calculator, KnowledgeBase, Navigator
from gym_text_policies.environments import parse_environment
from gym_text_policies.environments.stored import check_plain

GAMES = {
    "ArithmeticText-v0": "calculator",
    "SortingText-v0": "sorter",
    "MapReaderText-v0": "navigator",
    "CommonsenseText-v0": "knowledge",
}
every_game = pytest.mark.parametrize(("game", "modules"), GAMES.items())
BEFORE = {"calculator": re.compile(r"take \d"), "sorter": re.compile("take "), "navigator": re.compile("move ")}
"""The actions before which the expert asks a module, each time."""


@every_game
@pytest.mark.parametrize("fold", ["train", "dev", "test"])
def test_the_expert_asks_where_it_helps_and_wins_by_the_same_actions_of_the_game(game, modules, fold, make):
    env, plain = make(game, fold=fold, modules=modules), make(game, fold=fold)
    for seed in range(15):
        obs, info = env.reset(seed=seed)
        path, without = info["gold_path"], plain.reset(seed=seed)[1]["gold_path"]
        asked = [action for action in path if action in set(path) - set(without)]
        assert tuple(action for action in path if action not in asked) == without and asked
        for action in path:
            assert info["gold_action"] == action and action in obs["valid_actions"]
            obs, reward, terminated, _, info = env.step(action)
            assert action not in asked or (reward == 0 and not terminated)
            assert info["action_was_valid"] and obs in env.observation_space
        assert terminated and info["success"]
        if modules in BEFORE:
            helped = [before in asked for before, action in itertools.pairwise(path) if BEFORE[modules].match(action)]
            assert all(helped) and len(helped) == len(asked)
        else:
            assert asked == [f"query {action[5:]}" for action in path if action.startswith("take ")]


@every_game
def test_the_game_does_not_notice_a_call_which_costs_a_step_of_the_episode(game, modules, make):
    env, plain = make(game, modules=modules, max_episode_steps=6), make(game)
    for seed in range(5):
        obs, _ = env.reset(seed=seed)
        expected, info = plain.reset(seed=seed)
        path, answers = iter(info["gold_path"]), 0
        for step in range(6):
            calls = sorted(set(obs["valid_actions"]) - set(expected["valid_actions"]))
            if calls and not answers:
                answered, reward, terminated, truncated, info = env.step(calls[step % len(calls)])
                assert answered["text"] != obs["text"] and (reward, terminated, info["action_was_valid"]) == (0, False, True)
                assert {**answered, "text": ""} == {**obs, "text": ""}
                answers += 1
            else:
                action = next(path)
                obs, *played, truncated, info = env.step(action)
                expected, *should = plain.step(action)
                assert played == should[:2] and {**expected, "valid_actions": ()} == {**obs, "valid_actions": ()}
                answers = 0
        assert truncated


@every_game
@pytest.mark.parametrize("actions", ["text", "index"])
def test_forks_have_modules_of_their_own_that_have_seen_the_same(game, modules, actions, make):
    arguments = {"modules": modules, "actions": actions, "expert": "off"}
    check_forks(make(game, **arguments), make(game, **arguments), 60, 4)


@every_game
def test_the_replanning_expert_asks_after_a_detour_and_wins(game, modules, make, follow_gold_action):
    env = make(game, modules=modules, expert="replan")
    rng = np.random.default_rng(0)
    for seed in range(6):
        obs, info = env.reset(seed=seed)
        for _ in range(4):
            harmless = [action for action in obs["valid_actions"] if not action.startswith("put ")]
            obs, *_, info = env.step(rng.choice(harmless))
        assert follow_gold_action(env, obs, info)[1]["success"]


def test_another_call_does_not_change_the_plan(make):
    env = make("ArithmeticText-v0", modules="calculator", expert="replan")
    _, info = env.reset(seed=0)
    *read, call, take, _ = info["gold_path"]
    for action in read:
        obs, *_, info = env.step(action)
    other = next(action for action in obs["valid_actions"] if action.startswith("add "))
    assert info["gold_steps"] == 3 and info["gold_action"] == call != other
    costs = expert_costs(env)
    assert [costs[action] for action in (call, other, take)] == [2, 3, 1]
    *_, info = env.step(other)
    assert info["gold_action"] == call and info["gold_steps"] == 3


# ---------------------------------------------------------------- the answers


@pytest.mark.parametrize(
    ("problem", "call", "answer"),
    [
        ("add 3 and 5", "add 3 and 5", "8"),
        ("multiply 3 and 5", "multiply 3 and 5", "15"),
        ("subtract 3 from 5", "subtract 3 from 5", "2"),
        ("subtract 3 from 5", "subtract 5 from 3", "-2"),
        ("divide 22 by 11", "divide 22 by 11", "2"),
        ("divide 22 by 11", "divide 11 by 22", "0.5"),
        ("divide 22 by 7", "divide 22 by 7", "3.14286"),
        ("multiply 12345 and 67890", "multiply 12345 and 67890", "838102050"),
    ],
)
def test_the_calculator_calculates_with_the_numbers_of_the_problem_alone(problem, call, answer):
    calculator, obs = Calculator(), {"text": "You see 7 plums."}
    calculator.see(obs)
    assert calculator.calls(obs) == ()
    calculator.see({"text": f"Your task is to solve the following math problem: {problem} . \nThen, pick up the item"})
    calculator.see(obs)
    assert call in calculator.calls(obs) and len(calculator.calls(obs)) == 6
    assert calculator.answer(call, obs) == f"The result is {answer}."


def test_a_number_divided_by_nothing_has_no_result():
    assert Calculator().answer("divide 3 by 0", {}) == "There is no result."


def test_the_sorter_has_the_order_in_which_the_engines_expert_puts_things_into_the_box(make):
    env = make("SortingText-v0", fold="dev", modules="sorter", expert="off")
    plain = make("SortingText-v0", fold="dev")
    units = set()
    for seed in range(60):
        path = plain.reset(seed=seed)[1]["gold_path"]
        env.reset(seed=seed)
        things = env.step("sort ascending")[0]["text"].partition(": ")[2].removesuffix(".").split(", ")
        assert things == [action.removeprefix("take ") for action in path if action.startswith("take ")]
        units |= {re.match(r"\d+(\w*)", thing)[1] for thing in things}
    assert units == {"", "mg", "g", "kg", "ml", "l", "mm", "cm", "m"}


@pytest.mark.parametrize("doors", [False, True])
def test_who_follows_the_navigator_fetches_the_coin_on_a_shortest_way(doors, make):
    env = make("MapReaderText-v0", modules="navigator", fold="test", include_doors=doors, max_episode_steps=200)
    for seed in range(10):
        obs, info = env.reset(seed=seed)
        shortest = sum(action.startswith("move ") for action in info["gold_path"])
        rooms = re.search(r"coin that is located in the (.+), and put it into the box found in the (.+)\. A map", obs["goal"])
        moves, obs = 0, env.step("read map")[0]
        for room, last in zip(rooms.groups(), ("take coin", "put coin in box"), strict=True):
            while f"You are in the {room}." not in obs["look"]:
                obs, *_ = env.step(f"next step to {room}")
                near = re.fullmatch(r"The next room is the (.+?)(?: or the .+)?\.", obs["text"])[1]
                while not (seen := re.search(rf"o the (\w+) you see the {near}\.", obs["look"])):
                    obs, *_ = env.step(next(action for action in obs["valid_actions"] if action.startswith("open door")))
                obs, *_ = env.step(f"move {seen[1].lower()}")
                moves += 1
            obs, *_, info = env.step(last)
        assert info["success"] and moves <= shortest and (doors or moves == shortest)


def test_the_navigator_knows_only_what_was_seen():
    navigator = Navigator()
    obs = {"text": "", "look": "You are in the hall. \nTo the South you see a closed door. To the East you see the den."}
    navigator.see(obs)
    assert navigator.calls(obs) == ("next step to den",)
    navigator.see({"text": "The map reads:\n  The attic connects to the loft.\n", "look": obs["look"]})
    assert set(navigator.calls(obs)) == {"next step to den", "next step to attic", "next step to loft"}
    assert navigator.answer("next step to attic", obs) == "No way is known."


def test_the_knowledge_base_has_the_places_that_win_in_words_of_the_game_and_answers_about_what_is_in_reach(make):
    for fold in ("train", "dev", "test"):
        env = make("CommonsenseText-v0", fold=fold, modules="knowledge")
        for seed in range(20):
            obs, info = env.reset(seed=seed)
            places = {}
            for action in info["gold_path"]:
                queries = {name[6:] for name in obs["valid_actions"] if name.startswith("query ")}
                assert all(thing in obs["look"] + obs["inventory"] for thing in queries)
                obs, *_ = env.step(action)
                if action.startswith("query "):
                    places[action[6:]] = re.split(" or the ", obs["text"].removesuffix(".").partition(" is the ")[2])
                elif action.startswith("put "):
                    thing, place = action[4:].split(" in ")
                    assert place in places[thing]


def test_the_knowledge_base_says_all_places_of_a_thing():
    answer = KnowledgeBase().answer("query newspaper", {})
    assert answer == "The usual place of newspaper is the end table or the side table."
    assert "arm chair" in KnowledgeBase().answer("query cushion", {})


# ---------------------------------------------------------------- how users name them


def test_modules_are_named_in_an_environments_name_which_only_chooses_a_game():
    name = "MapReaderText-v0?modules=navigator,calculator"
    env_id, arguments = parse_environment(name)
    check_plain(env_id, arguments)
    env = gym.make(env_id, **arguments)
    described = [action.name for action in env.get_wrapper_attr("text_spec").actions]
    assert "next step to {room}" in described and "add {number} and {number}" in described
    env.close()


def test_an_unknown_module_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match=r"modules: .*calculater.*calculator"):
        gym.make("ArithmeticText-v0", modules="calculater")
