"""Pictures of states: what fits, what is marked, equal pixels for equal states; the window; keys for `gymnasium.utils.play`."""

import functools

import gymnasium as gym
import numpy as np
import pygame
import pytest
from gymnasium.utils import play as gymnasium_play

from gym_text import UsageError
from gym_text.screen import HEIGHT, WIDTH, draw_caption, draw_page

DRAWN = ["CookingWorldText-v0", "BabyAIText-v0", "SokobanText-v0", "LunarLanderLLM-v2", "MountainCarContinuousLLM-v0"]
"""An environment for each kind of picture."""
PAPER = (250, 249, 246)


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    yield
    pygame.quit()


def inked(picture):
    """Return which pixels are not paper."""
    return (picture != PAPER).any(axis=2)


def follow(env, steps, seed=0):
    """Play the expert's first steps; return the pictures."""
    obs, info = env.reset(seed=seed)
    pictures = [env.render()]
    for action in info["gold_path"][:steps]:
        obs, _, over, _, _ = env.step(env.get_wrapper_attr("text_spec").encode(action, obs))
        pictures.append(env.render())
        if over:
            break
    return pictures


def page_differs(**changed):
    """Return the pixels in which a page of a small game differs from the same page with other arguments."""
    page = {"sections": [("room", "A kitchen."), ("inventory", "a knife")], "facts": "step 1", "actions": ["go", "look", "take"]}
    return (draw_page(**page) != draw_page(**(page | changed))).any(axis=2)


def test_a_page_has_texts_actions_and_facts_each_in_its_place():
    assert page_differs(facts="step 2")[:36].any() and not page_differs(facts="step 2")[40:].any()
    room = page_differs(sections=[("room", "A pantry."), ("inventory", "a knife")])
    assert room[:, :360].any() and not room[:, 360:].any()
    actions = page_differs(actions=["go", "look", "drop"])
    assert actions[:, 372:].any() and not actions[:, :360].any()


def test_the_action_taken_is_shown_and_marked_where_it_is_still_valid():
    chip = np.array((205, 225, 238))
    rows = [
        (draw_page([("room", "A kitchen.")], actions=["go", "look"], taken=taken) == chip).all(axis=2)[:, 500].sum()
        for taken in (None, "take knife", "look")
    ]
    assert rows[0] == 0 and rows[2] > rows[1] > 10  # once above the list, and once in it


@pytest.mark.parametrize(("words", "actions"), [(1, 0), (40, 3), (400, 60), (5000, 300)])
def test_nothing_leaves_the_page_and_its_size_is_the_same(words, actions):
    names = [f"put red hot chili pepper number {number} in kitchen cupboard" for number in range(actions)]
    texts = [("goal", "Win. " * min(words, 400)), ("room", "A long word. " * words), ("inventory", "x" * 200)]
    page = draw_page(texts, facts="step 3 " * 40, actions=names, taken=names[-1] if names else None, keys="123")
    assert page.shape == (HEIGHT, WIDTH, 3) and HEIGHT % 2 == WIDTH % 2 == 0 and page.dtype == np.uint8
    ink = inked(page)
    assert ink.any() and not ink[:8].any() and not ink[-4:].any() and not ink[:, :8].any() and not ink[:, -8:].any()


def test_a_caption_of_any_length_leaves_the_picture_as_it_is():
    picture = np.full((64, 256, 3), 90, dtype=np.uint8)
    for mission in ("", "go to the red ball", "pick up the grey box behind you, then go to the grey key and open a door " * 5):
        captioned = draw_caption(picture, mission, "step 0     score 0")
        assert captioned.shape == (64 + 88, 256, 3) and (captioned[:64] == picture).all()


@pytest.mark.parametrize("env_id", DRAWN)
def test_pictures_of_an_episode_have_one_even_size_and_equal_states_equal_pixels(env_id):
    with gym.make(env_id, render_mode="rgb_array") as env:
        first, second = follow(env, 4), follow(env, 4)
    assert {picture.shape for picture in first} == {first[0].shape}
    assert first[0].shape[0] % 2 == first[0].shape[1] % 2 == 0
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pictures_are_drawn_after_another_environment_has_ended_pygame():
    first = draw_page([("room", "A kitchen.")])
    pygame.quit()
    pygame.init()
    np.testing.assert_array_equal(draw_page([("room", "A kitchen.")]), first)


def test_gymnasium_shows_the_picture_in_a_window():
    with pytest.warns(UserWarning, match="HumanRendering wrapper is being applied"):
        env = gym.make("SokobanText-v0", render_mode="human")
    env.reset(seed=0)
    window = pygame.surfarray.array3d(pygame.display.get_surface()).transpose(1, 0, 2)
    np.testing.assert_array_equal(window, env.unwrapped.render())
    env.close()


@pytest.mark.parametrize(
    ("make", "key", "name"),
    [
        (functools.partial(gym.make, "LunarLanderLLM-v2"), pygame.K_UP, "fire main engine"),
        (functools.partial(gym.make, "BabyAIText-v0"), pygame.K_TAB, "pick up"),
        (functools.partial(gym.make, "CoinCollectorText-v0", actions="index"), ord("2"), None),
    ],
)
def test_gymnasium_play_takes_the_keys(make, key, name, monkeypatch):
    env = make(render_mode="rgb_array")
    actions = []

    def press(obs, obs_next, action, *rest):
        actions.append((action, obs[0]))  # before the first step it has what `reset` returned
        pygame.event.post(pygame.event.Event(pygame.QUIT))

    monkeypatch.setattr(gymnasium_play.PlayableGame, "__init__", functools.partialmethod(_with_key, key))
    gymnasium_play.play(env, callback=press, seed=0, wait_on_player=True)
    action, obs = actions[0]
    assert env.get_wrapper_attr("text_spec").decode(action, obs) == (name or obs["valid_actions"][1])


_init = gymnasium_play.PlayableGame.__init__


def _with_key(self, key, *arguments):
    """Begin `gymnasium.utils.play`'s game with a key pressed."""
    _init(self, *arguments)
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))


def test_a_game_that_takes_text_has_no_keys():
    with gym.make("CoinCollectorText-v0") as env, pytest.raises(UsageError, match="actions='index'"):
        env.get_wrapper_attr("get_keys_to_action")()
