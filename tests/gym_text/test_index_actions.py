"""Games that list their valid actions: an action is its name, or its index in the list."""

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text.index_actions import GAME_FIELDS, IndexActionsEnv, game_space
from gym_text.spec import Action, TextSpec
from gym_text.text_env import Outcome


class Lamp(IndexActionsEnv):
    """A game of one step, which is won by taking the lamp."""

    def __init__(self, *, actions="text", size=4, fold=None, expert="off", render_mode=None):
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self.observation_space = game_space(100)
        self._set_actions(TextSpec("Take it.", GAME_FIELDS, (Action("take lamp", "take it"),), "text"), actions, size)
        self.heard = None

    def _state(self, text):
        texts = {"text": text, "goal": "Take it.", "look": "A room.", "inventory": "Nothing."}
        return texts | {"valid_actions": self._valid}

    def _start(self, seed):
        self._valid = ("go", "take lamp", "wait")
        return self._state("Hello.")

    def _play(self, action):
        self.heard = self._command(action)
        won = self.heard == "take lamp"
        return Outcome(self._state("Done."), float(won), True, success=won, action_was_valid=self.heard in self._valid)


def test_more_valid_actions_than_the_index_space_has_places_are_told(monkeypatch):
    told = []
    monkeypatch.setattr(gym.logger, "warn", told.append)
    env = Lamp(actions="index", size=2)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True, True] and "3 actions are valid, the index space has 2" in told[0]


def test_in_the_text_space_an_action_is_its_name_and_there_is_no_mask():
    env = Lamp()
    _, info = env.reset(seed=0)
    assert "action_mask" not in info and env.step("take lamp")[4]["success"]
    for call in (env.action_masks, env.get_keys_to_action):
        with pytest.raises(UsageError, match="expected an environment made with actions='index'"):
            call()
    with pytest.raises(UsageError, match="Did you mean 'index'"):
        Lamp(actions="indx")
