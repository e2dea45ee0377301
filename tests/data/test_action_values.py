"""Actions of one state, valued by playing on in copies of the game, and the pairs that are made of them."""

import dataclasses
import json
import math
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from gym_text import UsageError
from gym_text_policies import cli, load_policy, rollout
from gym_text_policies.data.action_values import Continuing, _Copy, valued_states
from gym_text_policies.data.export import ExportConfig
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import TRAINED
from gym_text_policies.policy import Turn, text_spec
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


def test_a_model_plays_on_with_all_that_it_saw_before():
    episode = min(played(GOTO, "gold", range(8), "path"), key=lambda episode: episode.length)
    states = list(valued_states([episode], Continuing(continue_with="adapters/babyai-sft")))
    assert len(states) == episode.length > 1 and all(state.copies == 2 for state in states)
    assert any(max(values) > 0 for state in states for values in state.returns.values()), "it wins from some states"
    for number, state in enumerate(states):
        for action, values in state.returns.items():
            assert values == [pytest.approx(brute_force(GOTO, episode, number, action, "adapters/babyai-sft", 1.0))]


def test_the_prompts_are_those_that_the_model_saw():
    (episode,) = played("BabyAIText-v0?task=goto&max_episode_steps=2", "smollm2", mode="choose", history=1, strategy="zero_shot")
    states = list(valued_states([episode], Continuing(continue_with="random")))
    assert [state.prompt for state in states] == [step.decision.messages for step in episode.steps]
    assert [next(iter(state.returns)) for state in states] == [step.decision.action for step in episode.steps]


def test_all_actions_are_played_on_alike_with_the_same_random_numbers():
    episodes = played(GOTO)
    often = Continuing(continue_with="random", alternatives=9, continuations=3)
    states = list(valued_states(episodes, often))
    assert states == list(valued_states(episodes, often))
    for state in states:
        assert len(state.returns) == 6 and {len(values) for values in state.returns.values()} == {3}
        assert state.copies == 18 and state.steps >= 18
    now = list(valued_states(episodes, dataclasses.replace(often, discount=0.0)))
    for number, state in enumerate(now):
        expected = [brute_force(GOTO, episodes[0], number, action, "random", 0.0) for action in state.returns]
        assert [values[0] for values in state.returns.values()] == expected
    toggled = [state.returns["toggle"] == state.returns["pick up"] for state in states]
    assert any(toggled), "neither changes anything while nothing is in front, so the same draws follow"


def test_the_alternatives_begin_with_the_action_of_the_policy_that_plays_on():
    (episode,) = played(GOTO)
    for number, state in enumerate(valued_states([episode], Continuing(continue_with="gold"))):
        with environment_maker(GOTO, fold="train", expert="replan")() as env:
            obs, info = env.reset(seed=episode.seed)
            for step in episode.steps[:number]:
                obs, *_, info = env.step(text_spec(env).encode(step.decision.action, obs))
        first, second = state.returns
        assert first == episode.steps[number].decision.action
        assert second == info["gold_action"] or first == info["gold_action"]


def test_what_cannot_be_valued_is_told():
    (episode,) = played(GOTO)
    gold = Continuing(continue_with="gold")
    first = episode.steps[0]
    other = dataclasses.replace(first, observation={**first.observation, "text": "Another room."})
    with pytest.raises(UsageError, match=r"seed 0 of BabyAIText-v0 shows another text before step 1. The game has changed"):
        list(valued_states([dataclasses.replace(episode, steps=(other, *episode.steps[1:]))], gold))
    with pytest.raises(UsageError, match=r"answer by an action's name alone .* got mode 'json'"):
        list(valued_states([dataclasses.replace(episode, policy={**episode.policy, "mode": "json"})], gold))
    (cart,) = played("CartPole-v1?max_episode_steps=3", expert="")
    with pytest.raises(UsageError, match=r"continue_with='gold': .* CartPole-v1 has no such expert"):
        list(valued_states([cart], gold))
    assert all(
        math.isfinite(values[0])
        for state in valued_states([cart], Continuing(continue_with="random"))
        for values in state.returns.values()
    )
    (lander,) = played("LunarLander-v3?max_episode_steps=3", expert="")
    with pytest.raises(
        UsageError, match=r"whose copies begin anew, as it is a gymnasium.utils.EzPickle. Give its class a method fork"
    ):
        list(valued_states([lander], Continuing(continue_with="random")))


def test_a_record_loads_no_entry_point_of_a_module_that_nobody_named(tmp_path, monkeypatch):
    (tmp_path / "unnamed_games.py").write_text("import gymnasium\n\n\nclass Unnamed(gymnasium.Env):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(gym.registry, "Unnamed-v0", EnvSpec("Unnamed-v0", "unnamed_games:Unnamed"))
    (episode,) = played(GOTO)
    other = dataclasses.replace(episode, environment={**episode.environment, "id": "Unnamed-v0"})
    with pytest.raises(UsageError, match="Import unnamed_games in Python first"):
        list(valued_states([other], Continuing(continue_with="random")))
    assert "unnamed_games" not in sys.modules


def test_an_environment_that_cannot_be_copied_for_the_expert_is_told():
    (episode,) = played(GOTO)
    with environment_maker(GOTO, fold="train", expert="replan")() as env:
        obs, _ = env.reset(seed=episode.seed)
        env.env.handle = (step for step in ())  # no generator can be copied
        turn = Turn(obs, np.random.default_rng(0), episode.key)
        with pytest.raises(UsageError, match=r"fork: expected .* copy.deepcopy can copy; .* cannot be copied: TypeError"):
            _Copy(env, turn, 1.0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--continue-with", "gold"], "continue_with: expected it together with format='trl-dpo' and runs"),
        (["--runs", "RUN"], "continue_with: expected it together with format='trl-dpo' and runs"),
        (["--runs", "RUN", "--continue-with", "gold", "--margin", "9"], "two actions differ by 9 or more; got none"),
        (["--runs", "RUN", "--continue-with", "gold", "--discount", "2"], "discount: expected a number from 0 to 1; got 2.0"),
        (["--runs", "RUN", "--continue-with", "gold", "--alternatives", "0"], "alternatives"),
        (["--alternatives", "2"], "alternatives: expected it together with continue_with"),
        (["--continuations", "2"], "continuations: expected it together with continue_with"),
        (["--discount", "0.9"], "discount: expected it together with continue_with"),
        (["--margin", "-1"], "margin: expected a number from 0 on; got -1.0"),
        (["--timeout", "9"], "timeout: expected it together with submit_to"),
        (["--format", "openai", "--suffix", "mine"], "suffix: expected it together with submit_to"),
        (["--format", "openai", "--base-url", "http://127.0.0.1:9"], "base_url: expected it together with submit_to"),
        (["--rows", "decisions"], "rows: expected it together with format csv or parquet"),
        (
            ["--runs", "RUN", "--continue-with", "gold", "--data", "rows"],
            "data: expected it together with a format that is made of",
        ),
        (["--format", "trl-sft", "--margin", "1"], "margin: expected it together with format trl-dpo"),
    ],
)
def test_wrong_settings_are_refused(options, error, tmp_path, capsys):
    with EpisodeStore(tmp_path / "run") as store:
        store.append(played(GOTO)[0])
    file = tmp_path / "pairs.jsonl"
    given = [str(tmp_path / "run") if option == "RUN" else option for option in options]
    assert cli.main(["export", "--format", "trl-dpo", *given, "--file", str(file)]) == 2
    assert error in capsys.readouterr().err and not file.exists()


@pytest.mark.parametrize("margin", [math.nan, math.inf, -1.0])
def test_a_margin_that_no_difference_reaches_or_misses_is_refused(margin):
    with pytest.raises(UsageError, match=f"margin: expected a number from 0 on; got {margin}"):
        ExportConfig(margin=margin)
