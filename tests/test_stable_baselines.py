"""Files of stable-baselines3 and sb3-contrib play as they were trained."""

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO

from gym_text import UsageError
from gym_text.wrappers import EncodeText, History
from gym_text_policies import load_policy, rollout
from gym_text_policies.environments import make_environment


def goto(**arguments):
    return gym.make("BabyAIText-v0", task="goto", max_episode_steps=6, **arguments)


def kitchen():
    return gym.make("CookingWorldText-v0", actions="index", max_episode_steps=6)


def saved(algorithm, env, folder, policy="MultiInputPolicy", **arguments):
    model = algorithm(policy, env, device="cpu", seed=0, **arguments)
    model.save(folder / "model.zip")
    return model, f"sb3:{folder / 'model.zip'}"


@pytest.mark.parametrize(
    ("algorithm", "make", "history", "arguments"),
    [
        (PPO, goto, 0, {"length": 64}),
        (A2C, goto, 2, {"length": 300, "vocabulary": 512}),
        (DQN, goto, 3, {"unit": "byte", "length": 200, "name_length": 12}),
        (MaskablePPO, kitchen, 0, {"name_length": 7}),
        (MaskablePPO, kitchen, 2, {"length": 300, "names": False}),
    ],
)
def test_a_file_plays_as_its_model_in_the_encoding_it_was_trained_on(algorithm, make, history, arguments, tmp_path):
    encoded = EncodeText(History(make(), history) if history else make(), **arguments)
    own = {"buffer_size": 10} if algorithm is DQN else {"n_steps": 64}
    model, name = saved(algorithm, encoded, tmp_path, **own)
    policy = load_policy(name, make())
    assert policy.config["name"].startswith(f"sb3:{algorithm.__name__} ")
    for episode in rollout(make, policy, range(3)):
        obs, _ = encoded.reset(seed=episode.seed)
        for step in episode.steps:
            masks = {"action_masks": encoded.get_wrapper_attr("action_masks")()} if algorithm is MaskablePPO else {}
            action, _ = model.predict(obs, deterministic=True, **masks)
            names = step.observation.get("valid_actions") if masks else [a.name for a in policy.spec.actions]
            assert step.decision.action == names[int(action)]
            obs, *_ = encoded.step(action)


def test_a_file_trained_on_gymnasiums_own_environment_plays_it_in_words(tmp_path):
    model, name = saved(DQN, gym.make("FrozenLake-v1"), tmp_path, "MlpPolicy", buffer_size=10)
    lake = make_environment("FrozenLake-v1")
    obs, _ = lake.reset(seed=0)
    assert load_policy(name, lake)(obs) == model.predict(np.asarray(obs["observation"]), deterministic=True)[0]


def test_what_does_not_fit_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"expected a file that stable-baselines3's model.save wrote"):
        load_policy(f"sb3:{tmp_path}/none.zip", goto())
    (tmp_path / "text.zip").write_text("no model")
    with pytest.raises(UsageError, match=r"expected a file that stable-baselines3's model.save wrote"):
        load_policy(f"sb3:{tmp_path}/text.zip", goto())
    _, name = saved(PPO, EncodeText(goto(), length=64), tmp_path, n_steps=64)
    with pytest.raises(UsageError, match=r"expected an environment with the actions of its training, Discrete\(6\)"):
        load_policy(name, kitchen())
    _, cliff = saved(DQN, gym.make("CliffWalking-v1"), tmp_path, "MlpPolicy", buffer_size=10)
    with pytest.raises(UsageError, match=r"it was trained on Discrete\(48\)|actions of its training"):
        load_policy(cliff, make_environment("FrozenLake-v1"))
    _, name = saved(RecurrentPPO, EncodeText(goto(), length=64), tmp_path, "MultiInputLstmPolicy", n_steps=64)
    with pytest.raises(UsageError, match="expected a model without a state of its own"):
        load_policy(name, goto())
