"""Files of stable-baselines3 and sb3-contrib play as they were trained."""

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from gym_text import UsageError
from gym_text.wrappers import EncodeText, History
from gym_text_policies import as_policy, load_policy, rollout
from gym_text_policies.environments import make_environment
from gym_text_policies.records import Turn


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
        (DQN, goto, 3, {"length": 200, "name_length": 12}),
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


@pytest.mark.parametrize(("history", "arguments"), [(2, {"length": 300, "names": False})])
def test_a_file_trained_on_indices_says_the_same_actions_where_the_game_takes_names(history, arguments, tmp_path):
    encoded = EncodeText(History(kitchen(), history) if history else kitchen(), **arguments)
    _, name = saved(MaskablePPO, encoded, tmp_path, n_steps=64)

    def by_name():
        return gym.make("CookingWorldText-v0", max_episode_steps=6)

    by_index, named = (
        [[step.decision.action for step in episode.steps] for episode in rollout(make, load_policy(name, make()), range(3))]
        for make in (kitchen, by_name)
    )
    assert named == by_index and {len(actions) for actions in named} == {6}


@pytest.mark.parametrize("actions", ["index", "text"])
def test_an_index_beyond_the_valid_actions_is_an_unusable_answer_in_every_loop(actions, tmp_path):
    encoded = EncodeText(kitchen(), length=300, names=False)
    model = PPO("MultiInputPolicy", encoded, device="cpu", n_steps=64)
    with torch.no_grad():
        model.policy.action_net.bias[-1] = 1000
    model.save(tmp_path / "last.zip")

    def make():
        return gym.make("CookingWorldText-v0", actions=actions, max_episode_steps=6)

    policy = load_policy(f"sb3:{tmp_path / 'last.zip'}", make())
    for player in (policy, as_policy(lambda obs: np.array(47) if actions == "index" else "", make(), name="last")):
        (episode,) = rollout(make, player, [0])
        assert (episode.outcome, episode.invalid, episode.length) == ("truncated", 6, 6)
    by_itself = evaluate_policy(model, encoded, n_eval_episodes=2, warn=False)
    assert by_itself == evaluate_policy(policy, policy.wrap(make()), n_eval_episodes=2, warn=False) == (0.0, 0.0)


def test_a_file_trained_on_gymnasiums_own_environment_plays_it_in_words(tmp_path):
    model, name = saved(DQN, gym.make("FrozenLake-v1"), tmp_path, "MlpPolicy", buffer_size=10)
    lake = make_environment("FrozenLake-v1")
    obs, _ = lake.reset(seed=0)
    assert (
        load_policy(name, lake)(obs)
        == as_policy(model, lake)(obs)
        == model.predict(np.asarray(obs["observation"]), deterministic=True)[0]
    )


@pytest.mark.parametrize(("algorithm", "own"), [(PPO, {"n_steps": 64}), (DQN, {"learning_starts": 10})])
def test_a_model_trained_behind_vec_normalize_plays_with_its_statistics_alone(algorithm, own, tmp_path):
    games = VecNormalize(DummyVecEnv([lambda: gym.make("Acrobot-v1", max_episode_steps=9)]))
    model = algorithm("MlpPolicy", games, device="cpu", seed=0, **own).learn(64)
    model.save(tmp_path / "model.zip")
    games.save(tmp_path / "statistics.pkl")
    make, bare = lambda: make_environment("Acrobot-v1", max_episode_steps=9), f"sb3:{tmp_path / 'model.zip'}"
    for player in (lambda: load_policy(bare, make()), lambda: as_policy(algorithm.load(tmp_path / "model.zip"), make())):
        with pytest.raises(UsageError, match="expected the statistics of VecNormalize, behind which it was trained"):
            player()
    with pytest.raises(UsageError, match="expected behind the comma a file that VecNormalize"):
        load_policy(f"{bare},{tmp_path / 'model.zip'}", make())
    for policy in (load_policy(f"{bare},{tmp_path / 'statistics.pkl'}", make()), as_policy(model, make())):
        (episode,) = rollout(make, policy, [0])
        seen = [np.asarray(step.observation["observation"], np.float32) for step in episode.steps]
        actions = [int(model.predict(games.normalize_obs(obs), deterministic=True)[0]) for obs in seen]
        assert [step.decision.action for step in episode.steps] == [policy.spec.actions[action].name for action in actions]
    assert len(load_policy(f"{bare},{tmp_path / 'statistics.pkl'}", make()).config["statistics"]) == 16


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


@pytest.mark.parametrize(("algorithm", "make", "arguments", "own"), [(MaskablePPO, kitchen, {"name_length": 7}, {"n_steps": 64})])
def test_drawn_play_depends_on_its_seed_and_on_no_neighbour(algorithm, make, arguments, own, tmp_path):
    _, name = saved(algorithm, EncodeText(make(), **arguments), tmp_path, **own)
    policy = load_policy(name, make(), deterministic=False, seed=3)

    def actions(policy, **arguments):
        episodes = rollout(make, policy, range(4), **arguments)
        return {episode.seed: [step.decision.action for step in episode.steps] for episode in episodes}

    before = np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()
    alone = actions(policy, num_envs=1)
    assert before == (np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist())
    torch.manual_seed(1)
    assert alone == actions(policy, num_envs=4) == actions(policy, workers=2, num_envs=1)
    usual = actions(load_policy(name, make()))
    assert alone != usual and alone != actions(load_policy(name, make(), deterministic=False, seed=4))
    assert policy.config.items() - load_policy(name, make()).config.items() == {("deterministic", False), ("seed", 3)}
    assert load_policy(name, make(), deterministic=True).config == load_policy(name, make()).config
    assert load_policy(name, make()).config.keys() == {"kind", "name", "file"}, "stored episodes are found again"


def test_drawn_play_has_the_frequencies_of_the_model(tmp_path):
    encoded = EncodeText(goto(), length=64)
    model, name = saved(PPO, encoded, tmp_path, n_steps=64)
    policy = load_policy(name, goto(), deterministic=False)
    obs, _ = goto().reset(seed=0)
    turns = [Turn(obs, np.random.default_rng(number)) for number in range(600)]
    counts = Counter(decision.action for decision in policy.decide(turns))
    with torch.no_grad():
        expected = model.policy.get_distribution(model.policy.obs_to_tensor(encoded.observation(dict(obs)))[0]).distribution.probs[
            0
        ]
    names = [action.name for action in policy.spec.actions]
    assert [counts[name] / 600 for name in names] == pytest.approx(expected.tolist(), abs=0.08)  # four standard errors
