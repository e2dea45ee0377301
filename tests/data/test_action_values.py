"""Actions of one state, valued by playing on in copies of the game, and the pairs that are made of them."""

import dataclasses
import json
import math
import sys

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec

from gym_text import UsageError
from gym_text_policies import cli, load_policy, rollout
from gym_text_policies.data.action_values import valued_states
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import TRAINED
from gym_text_policies.policy import text_spec
from gym_text_policies.store import EpisodeStore

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=12"
COOKING = "CookingWorldText-v0?num_locations=1&num_ingredients=1&max_episode_steps=25"


def played(name, player="random", seeds=(0,), expert="off", **settings):
    """Return episodes of an environment's train fold."""
    make = environment_maker(name, fold="train", **({"expert": expert} if expert else {}))
    with make() as env:
        policy = load_policy(player, env, **settings)
    return list(rollout(make, policy, seeds))


def brute_force(name, episode, number, action, policy, discount):
    """Return what an action of an episode's state returns, in a new game: the actions before it, it, and then a policy's."""
    with environment_maker(name, fold="train", expert="replan" if policy == "gold" else "off")() as game:
        player = load_policy(policy, game)
        env, spec = player.wrap(game), text_spec(game)
        obs, _ = env.reset(seed=episode.seed)
        for step in episode.steps[:number]:
            obs = env.step(spec.encode(step.decision.action, obs))[0]
        obs, reward, terminated, truncated, _ = env.step(spec.encode(action, obs))
        rewards = [float(reward)]
        while not (terminated or truncated or obs.get("gold_action") == ""):
            obs, reward, terminated, truncated, _ = env.step(player(obs))
            rewards.append(float(reward))
    return sum(discount**later * reward for later, reward in enumerate(rewards))


def number_of(prompt):
    """Return how many steps a prompt with the whole history shows."""
    return sum(message["role"] == "assistant" for message in prompt)


@pytest.mark.parametrize(
    ("name", "seeds", "discount"), [(GOTO, (0, 1), 1.0), (COOKING, (3,), 0.9)], ids=["every state of BabyAI", "CookingWorld"]
)
def test_the_chosen_action_returns_more_in_a_new_game_too(name, seeds, discount, tmp_path):
    episodes = [dataclasses.replace(episode, steps=episode.steps[:10]) for episode in played(name, seeds=seeds)]
    with EpisodeStore(tmp_path / "run") as store:
        for episode in episodes:
            store.append(episode)
    file = tmp_path / "pairs.jsonl"
    command = ["export", "--format", "trl-dpo", "--runs", str(tmp_path / "run"), "--continue-with", "gold"]
    assert cli.main([*command, "--discount", str(discount), "--file", str(file)]) == 0
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    checked = 0
    for episode in episodes:
        with environment_maker(name, fold="train", expert="off")() as env:
            prompts = list(prompts_of(episode, text_spec(env), TRAINED, training_prompt(TRAINED)))
        for pair in pairs:
            number = number_of(pair["prompt"])
            if number >= episode.length or pair["prompt"] != list(prompts[number]):
                continue  # of another level
            checked += 1
            answers = [pair[kind][0]["content"] for kind in ("chosen", "rejected")]
            assert episode.steps[number].decision.action in answers, "the player's action and an alternative"
            returns = [brute_force(name, episode, number, answer, "gold", discount) for answer in answers]
            assert returns == pytest.approx([pair["chosen_return"], pair["rejected_return"]]) and returns[0] > returns[1]
    assert checked == len(pairs) > 3


def test_the_prompts_are_those_that_the_model_saw():
    (episode,) = played("BabyAIText-v0?task=goto&max_episode_steps=2", "smollm2", mode="choose", history=1, strategy="zero_shot")
    states = list(valued_states([episode], "random"))
    assert [state.prompt for state in states] == [step.decision.messages for step in episode.steps]
    assert [next(iter(state.returns)) for state in states] == [step.decision.action for step in episode.steps]


def test_both_actions_are_played_on_as_often_as_asked_and_the_draws_are_the_same_again():
    episodes = played(GOTO)
    states = list(valued_states(episodes, "random", continuations=3))
    assert states == list(valued_states(episodes, "random", continuations=3))
    for state in states:
        assert len(state.returns) == 2 and {len(values) for values in state.returns.values()} == {3}
        assert state.copies == 6 and state.steps >= 6
    now = list(valued_states(episodes, "random", discount=0.0))
    for number, state in enumerate(now):
        expected = [brute_force(GOTO, episodes[0], number, action, "random", 0.0) for action in state.returns]
        assert [values[0] for values in state.returns.values()] == expected


def test_the_alternatives_begin_with_the_action_of_the_policy_that_plays_on():
    (episode,) = played(GOTO)
    for number, state in enumerate(valued_states([episode], "gold")):
        with environment_maker(GOTO, fold="train", expert="replan")() as env:
            obs, info = env.reset(seed=episode.seed)
            for step in episode.steps[:number]:
                obs, *_, info = env.step(text_spec(env).encode(step.decision.action, obs))
        first, second = state.returns
        assert first == episode.steps[number].decision.action
        assert second == info["gold_action"] or first == info["gold_action"]


def test_what_cannot_be_valued_is_told():
    (episode,) = played(GOTO)
    gold = "gold"
    first = episode.steps[0]
    other = dataclasses.replace(first, observation={**first.observation, "text": "Another room."})
    with pytest.raises(UsageError, match=r"seed 0 of BabyAIText-v0 shows another text before step 1. The game has changed"):
        list(valued_states([dataclasses.replace(episode, steps=(other, *episode.steps[1:]))], gold))
    with pytest.raises(UsageError, match=r"answer by an action's name alone .* got mode 'json'"):
        list(valued_states([dataclasses.replace(episode, policy={**episode.policy, "mode": "json"})], gold))
    (cart,) = played("CartPole-v1?max_episode_steps=3", expert="")
    with pytest.raises(UsageError, match=r"continue_with='gold': .* CartPole-v1 has no such expert"):
        list(valued_states([cart], gold))
    assert all(math.isfinite(values[0]) for state in valued_states([cart], "random") for values in state.returns.values())
    (lander,) = played("LunarLander-v3?max_episode_steps=3", expert="")
    with pytest.raises(
        UsageError, match=r"whose copies begin anew, as it is a gymnasium.utils.EzPickle. Give its class a method fork"
    ):
        list(valued_states([lander], "random"))


def test_a_record_loads_no_entry_point_of_a_module_that_nobody_named(tmp_path, monkeypatch):
    (tmp_path / "unnamed_games.py").write_text("import gymnasium\n\n\nclass Unnamed(gymnasium.Env):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(gym.registry, "Unnamed-v0", EnvSpec("Unnamed-v0", "unnamed_games:Unnamed"))
    (episode,) = played(GOTO)
    other = dataclasses.replace(episode, environment={**episode.environment, "id": "Unnamed-v0"})
    with pytest.raises(UsageError, match="Import unnamed_games in Python first"):
        list(valued_states([other], "random"))
    assert "unnamed_games" not in sys.modules


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--continue-with", "gold"], "continue_with: expected it together with format='trl-dpo' and runs"),
        (["--runs", "RUN"], "continue_with: expected it together with format='trl-dpo' and runs"),
        (["--runs", "RUN", "--continue-with", "gold", "--discount", "2"], "discount: expected a number from 0 to 1; got 2.0"),
        (["--submit-to", "gpt"], "submit_to: expected it together with format openai"),
    ],
)
def test_wrong_settings_are_refused(options, error, tmp_path, capsys):
    with EpisodeStore(tmp_path / "run") as store:
        store.append(played(GOTO)[0])
    file = tmp_path / "pairs.jsonl"
    given = [str(tmp_path / "run") if option == "RUN" else option for option in options]
    assert cli.main(["export", "--format", "trl-dpo", *given, "--file", str(file)]) == 2
    assert error in capsys.readouterr().err and not file.exists()
