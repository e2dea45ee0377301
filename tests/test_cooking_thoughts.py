"""Thoughts of CookingWorld's expert, on real episodes with actions at random among the expert's."""

import random
import re

import pytest

from gym_text.textworld_express.cooking_thoughts import thought
from gym_text.wrappers import ExchangeNames

ID = "CookingWorldText-v0"
FOODS = ("banana", "block of cheese", "carrot", "chicken leg", "red apple", "red onion", "white onion")


@pytest.fixture(scope="module")
def thoughts(make_module):
    """Return, for each state of some episodes, the expert's action, the thought before it, and the texts up to there."""
    return [entry for seed in range(8) for entry in played(make_module(ID, expert="replan", num_ingredients=3), seed)]


@pytest.fixture(scope="module")
def make_module():
    """Return `gymnasium.make`, whose environments are closed after this module's tests."""
    import gymnasium as gym

    made = []

    def make(*args, **kwargs):
        made.append(gym.make(*args, **kwargs))
        return made[-1]

    yield make
    for env in made:
        env.close()


def played(env, seed):
    """Play an episode, a tenth of it at random; yield the expert's action, the thought before it and the texts up to there."""
    rng, write = random.Random(seed), env.get_wrapper_attr("thought")
    obs, info = env.reset(seed=seed)
    observations, actions, over = [obs], [], False
    while not over and "gold_action" in info:
        action = info["gold_action"]
        written = write(observations, [*actions, action])
        assert written == thought(tuple(observations), (*actions, action)), "a thought depends on its arguments alone"
        yield action, written, [one["text"] for one in observations]
        actions.append(rng.choice(obs["valid_actions"]) if rng.random() < 0.1 else action)
        obs, _, terminated, truncated, info = env.step(actions[-1])
        observations.append(obs)
        over = terminated or truncated


def recipe_of(texts):
    """Return the text of the recipe, or None if it was not read."""
    return next((text for text in texts if "Ingredients:" in text), None)


def test_a_thought_names_nothing_that_was_not_seen(thoughts):
    unread = 0
    for action, written, texts in thoughts:
        if recipe_of(texts) is None:
            assert written == "recipe: unread. now: read cookbook"
            unread += 1
            continue
        facts = written.partition(". now:")[0]  # what comes next is the expert's, who knows more
        rooms = re.findall(r": in ([^,;]+)", facts)
        assert all(any(f"You are in the {room}." in text for text in texts) for room in rooms if not room.startswith("stove"))
        for food in re.findall(r"([a-z ]+): (?:here|in )", facts):
            told = [text for text in texts if "Ingredients:" not in text]
            assert any(food.strip() in text for text in told), (action, written)
    assert 10 < unread < len(thoughts) / 2


def test_a_thought_has_the_recipes_preparation_of_the_food_that_the_action_handles(thoughts):
    handled = 0
    for action, written, texts in thoughts:
        verb, _, rest = action.partition(" ")
        if verb not in ("chop", "dice", "slice", "cook"):
            continue
        food, _, appliance = rest.partition(" in ")
        asked = re.findall(rf"(\w+) the {food}\n", recipe_of(texts))
        done = {"stove": "fry", "oven": "roast", "barbeque": "grill"}.get(appliance, verb)
        assert done in asked and f"now: {done} {rest}" in written
        assert re.search(rf"{food}: [^;.]*\b{done}\b", written), (action, written)
        handled += 1
    assert handled > 20


def test_what_is_done_or_lies_about_is_said():
    first = {"text": "You are in the kitchen. You see a counter that has a red apple, and a cookbook on it."}
    recipe = {"text": "Ingredients:\n  red apple\n  carrot\n\nDirections:\n  slice the red apple\n  fry the red apple\n"}
    steps = [
        ("read cookbook", recipe, "red apple: here, slice, fry in stove; carrot: find; knife: find. now: take red apple"),
        (
            "take red apple",
            "You take the red apple.",
            "red apple: slice, fry in stove; carrot: find; knife: find. now: find carrot",
        ),
        ("open drawer", "You open the drawer. It contains a knife and some salt.", "; carrot: find; knife: here. now: take knife"),
        ("take knife", "You take the knife.", "red apple: slice, fry in stove; carrot: find. now: slice red apple"),
        ("slice red apple", "You slice the red apple.", "red apple: fry in stove; carrot: find. now: find carrot"),
        ("take salt", "You take the salt.", "; carrot: find; not needed: salt. now: put away salt"),
        ("put red apple in counter", "You put the red apple in the counter.", "red apple: here, fry in stove; carrot: find"),
        (
            "move east",
            "You are in the pantry. You see a shelf that has a carrot on it.",
            "red apple: in kitchen, fry in stove; carrot",
        ),
        ("dance", "Unknown action.", "carrot: here; not needed: salt. now: get red apple"),
    ]
    following = {"red apple: here, slice": "take red apple", "now: take knife": "take knife", "now: slice": "slice red apple"}
    observations, actions = [first], []
    for action, answer, expected in steps:
        actions.append(action)
        observations.append({"text": answer} if isinstance(answer, str) else answer)
        then = next((value for key, value in following.items() if key in expected), "move west")
        then = "put salt in drawer" if "put away" in expected else then
        assert expected in thought(observations, [*actions, then])


def test_thoughts_follow_the_names_of_an_episode_in_which_names_are_exchanged(make):
    renamed = 0
    for (action, written, texts), (_, plain, _) in zip(
        played(ExchangeNames(make(ID), FOODS), 0), played(make(ID), 0), strict=False
    ):
        recipe = recipe_of(texts)
        foods = re.findall(r"(?:^|; )([a-z ]+): (?!unread|ready)", written.partition(". now")[0])
        assert all(food in f"{recipe} knife not needed" for food in foods), (action, written)
        renamed += written != plain
    assert renamed > 5
