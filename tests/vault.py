"""A game for tests of looking ahead, in which the right search is known by hand, and a policy with known probabilities."""

import gymnasium as gym
from gymnasium import spaces
from training_data import Corridor

from gym_text import Action, Field, TextEnv, TextSpec
from gym_text.spaces import FreeText
from gym_text.text_env import Outcome
from gym_text_policies import Decision, Policy, rollout
from gym_text_policies.policies.lookahead import LookAhead, SearchSettings

CODE = ("right", "left", "right")


class Vault(TextEnv):
    """Turn the knob by `CODE`. A wrong turn has no effect. Who breaks the door has half of the points at once, and has lost."""

    def __init__(self, *, fold=None, expert="off", render_mode=None):
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        fields = {"text": Field("how many locks are open"), "goal": Field("the task")}
        actions = tuple(Action(name, name) for name in ("left", "right", "break"))
        self.text_spec = TextSpec("Open the vault.", fields, actions, "discrete")
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Dict({"text": FreeText(64), "goal": FreeText(64)})
        self.opened = 0

    def _start(self, seed):
        self.opened = 0
        return {"text": "Open locks: 0.", "goal": "Open the vault."}

    def _play(self, action):
        name = self.text_spec.actions[action].name
        right, broken = name == CODE[self.opened], name == "break"
        self.opened += right
        won = self.opened == len(CODE)
        reward = right / len(CODE) + 0.5 * broken
        return Outcome(
            {"text": f"Open locks: {self.opened}.", "goal": "Open the vault."}, reward, won or broken, success=won, failure=broken
        )


class Coins(TextEnv):
    """Three turns. Who begins with a small coin gets one in each; who begins with a large one gets ten, in the last."""

    def __init__(self, *, fold=None, expert="off", render_mode=None):
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        fields = {"text": Field("what was taken"), "goal": Field("the task")}
        self.text_spec = TextSpec("Get rich.", fields, (Action("small", "small"), Action("large", "large")), "discrete")
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Dict({"text": FreeText(64), "goal": FreeText(64)})

    def _start(self, seed):
        self.taken = ()
        return {"text": "", "goal": "Get rich."}

    def _play(self, action):
        self.taken += (self.text_spec.actions[action].name,)
        last = len(self.taken) == 3
        reward = 1.0 if self.taken[0] == "small" else 10.0 * last
        return Outcome({"text": " ".join(self.taken), "goal": "Get rich."}, reward, last)


class Prefers(Policy):
    """Gives the same probabilities in each state, and counts the states."""

    def __init__(self, spec, **prior):
        super().__init__(spec)
        self.prior, self.asked = prior, 0

    @property
    def config(self):
        return {"kind": "prefers", "prior": self.prior}

    def decide(self, turns):
        self.asked += len(turns)
        return [Decision(max(self.prior, key=self.prior.get), probabilities=self.prior) for _ in turns]


def looking_ahead(player, **settings):
    """Return a policy that looks ahead, with settings for which any player will do."""
    usual = {"method": "puct", "simulations": 8, "exploration": 1.5}
    mixed = {"prior_temperature": 1.0, "uniform_share": 0.0, "temperature": 0.0}
    return LookAhead(player, SearchSettings(**usual | mixed | settings))


def decisions(env_id, player, rewarded=lambda reward: reward, **settings):
    """Return what a policy that looks ahead decides in the first episode of an environment, whose rewards a function changes."""
    (episode,) = rollout(lambda: gym.wrappers.TransformReward(gym.make(env_id), rewarded), looking_ahead(player, **settings), [0])
    assert episode.error is None
    return [step.decision for step in episode.steps]


def prefers(env_id="Vault-v0", **prior):
    """Return a policy with the same probabilities in each state of an environment."""
    return Prefers(gym.make(env_id).get_wrapper_attr("text_spec"), **prior or {"left": 0.6, "right": 0.3, "break": 0.1})


for _name, _game in (("Vault-v0", Vault), ("VaultCorridor-v0", Corridor), ("Coins-v0", Coins)):
    if _name not in gym.registry:
        gym.register(_name, _game, max_episode_steps=8)
