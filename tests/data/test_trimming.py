"""Trimming: what it takes to win, by exact copies alone."""

import gymnasium as gym
import pytest
from gymnasium.utils import EzPickle
from training_data import GOTO

from gym_text import Action, Field, TextSpec, UsageError
from gym_text.wrappers import DescribeObservation, ExchangeNames
from gym_text_policies import load_policy, rollout
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.targets import targets_of
from gym_text_policies.data.trimming import check_trims, trimmed
from gym_text_policies.environments import environment_maker, fold_arguments
from gym_text_policies.store import EpisodeStore
from gym_text_policies.training import trajectories
from gym_text_policies.training.expert_iteration import ExpertIterationConfig, play_ahead
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.saving import Progress

COOKING = "CookingWorldText-v0"
FOODS = ("carrot", "red apple", "block of cheese", "purple potato", "white onion", "banana")


def maker(name, expert="off"):
    return environment_maker(name, **fold_arguments(name, "train", expert=expert))


def noisy_wins(make_env, seeds, noise):
    """Return what an expert wins whose actions are at random with a probability."""
    env = make_env()
    played = rollout(make_env, load_policy("gold", env, noise=noise, seed=1), seeds)
    return [episode for episode in played if episode.outcome == "won"]


def play(env, episode, number, actions):
    """Play an episode's first actions and then others; return whether these win, and the texts of all."""
    spec = env.get_wrapper_attr("text_spec")
    obs, info = env.reset(seed=episode.seed)
    texts = [obs["text"]]
    for action in (*(step.decision.action for step in episode.steps[:number]), *actions):
        obs, _, _, _, info = env.step(spec.encode(action, obs))
        texts.append(obs["text"])
    return info["success"], texts


def recipe_is_read(texts):
    return any("Directions:" in text for text in texts)


@pytest.mark.parametrize("exchanged", [False, True])
def test_in_each_state_of_a_noisy_win_the_plan_wins_and_no_action_of_it_can_be_left_out(exchanged):
    def make_env(expert="off"):
        env = maker(COOKING, expert)()
        return ExchangeNames(env, FOODS) if exchanged else env

    shorter, env = 0, make_env()
    for episode in noisy_wins(lambda: make_env("replan"), range(2), 0.3):
        plans = [step.decision.plan for step in trimmed(episode, make_env).steps]
        shorter += episode.length - len(plans[0])
        for number in range(0, episode.length, 6):
            plan = plans[number]
            won, texts = play(env, episode, number, plan)
            assert won and recipe_is_read(texts), "the recipe is not needed to win, but to know how"
            for left_out in range(len(plan)):
                won, texts = play(env, episode, number, plan[:left_out] + plan[left_out + 1 :])
                assert not won or not recipe_is_read(texts), f"{plan[left_out]} of {plan}"
        for step, plan, rest in zip(episode.steps, plans, plans[1:], strict=False):
            assert len(plan) <= 1 + len(rest), "a state is one action away from the next"
            assert plan == (step.decision.action, *rest) or step.decision.action != plan[0] or plan[1:] != rest
    assert shorter > 10


def test_in_babyai_turns_there_and_back_are_left_out():
    make_env = maker(GOTO)
    env, episodes = make_env(), noisy_wins(maker(GOTO, "replan"), range(6), 0.6)
    turned = [(episode, [step.decision.plan for step in trimmed(episode, make_env).steps]) for episode in episodes]
    assert sum(episode.length - len(plans[0]) for episode, plans in turned) > 10
    opposite = {("turn left", "turn right"), ("turn right", "turn left")}
    for episode, plans in turned:
        assert play(env, episode, 0, plans[0])[0]
        assert not opposite & set(zip(plans[0], plans[0][1:], strict=False))


def test_what_is_not_won_is_finished_by_random_play_in_copies_and_teaches_up_to_where_it_can_still_be_won():
    kitchen = f"{COOKING}?num_locations=1"
    limited, env = maker(f"{kitchen}&max_episode_steps=16"), maker(kitchen)()
    player = load_policy("gold", maker(kitchen, "replan")(), noise=0.5, seed=1)
    outcomes, finished = set(), 0
    for episode in rollout(maker(f"{kitchen}&max_episode_steps=16", "replan"), player, range(5)):
        if episode.outcome == "won":
            continue
        assert trimmed(episode, limited) == episode, "nothing wins yet"
        plans = [step.decision.plan for step in trimmed(episode, limited, playouts=2000).steps]
        outcomes.add(episode.outcome)
        learnt = sum(map(bool, plans))
        assert all(plans[:learnt]) and not any(plans[learnt:]) and learnt < episode.length + (episode.outcome == "truncated")
        assert all(play(env, episode, number, plan)[0] for number, plan in enumerate(plans[:learnt]))
        finished += bool(learnt)
    assert "truncated" in outcomes and finished >= 3


def test_collect_labels_each_state_of_a_win_with_the_first_action_that_it_takes(tmp_path):
    config = CollectConfig(str(tmp_path), (COOKING,), ("3",), model="gold", noise=0.3, trim=True)
    rows = collect(config)
    won = {
        episode.key: trimmed(episode, maker(COOKING)) for episode in EpisodeStore(tmp_path).episodes() if episode.outcome == "won"
    }
    assert {row.episode for row in rows} == set(won)
    for row in rows:
        said = [(message["content"], label) for message, label in zip(row.messages, row.labels, strict=True) if label]
        steps = won[row.episode].steps
        assert [label for _, label in said] == [step.decision.plan[0] for step in steps]
        assert [action for action, _ in said[:-1]] == [step.decision.action for step in steps[:-1]], "the chat is the player's"
        assert sum(action != label for action, label in said) > 3


@pytest.mark.usefixtures("one_thread", "corridor")
def test_expert_iteration_aims_at_the_trimmed_plan_of_what_is_won_and_else_at_what_the_search_found(
    tiny_model, tmp_path, monkeypatch
):
    usual = {"environments": ("Corridor-v0?length=2",), "model": tiny_model, "simulations": 4, "uniform_share": 0.9, "dev_every": 0}
    config = ExpertIterationConfig(folder=str(tmp_path), episodes_per_iteration=12, trim=True, **usual)
    played = play_ahead(config, Actor(tiny_model), Progress())
    monkeypatch.setattr(trajectories, "trimmed", lambda episode, make_env: episode)
    plain = play_ahead(config, Actor(tiny_model), Progress())
    assert {one.episode.outcome for one in played} == {"won", "lost"}
    for one, before in zip(played, plain, strict=True):
        for step, old, candidates in zip(one.episode.steps, before.episode.steps, one.candidates, strict=True):
            if one.episode.outcome == "won":
                assert targets_of(step.decision) == {"right": 1.0} and "right" in candidates
            else:
                assert targets_of(step.decision) == targets_of(old.decision)


class NoCopies(EzPickle, gym.Env):
    """A game whose copies begin anew."""

    observation_space = gym.spaces.Dict({"text": gym.spaces.Text(9)})
    action_space = gym.spaces.Discrete(2)


def test_what_cannot_be_trimmed_is_refused_in_a_sentence(tmp_path, tiny_model):
    spec = TextSpec("Win.", {"text": Field("what you see")}, (Action("left", "go left"), Action("right", "go right")), "discrete")
    with pytest.raises(
        UsageError, match=r"trim: expected an environment with exact copies\. fork: expected .* Give its class a method"
    ):
        check_trims(DescribeObservation(NoCopies(), spec))
    with pytest.raises(UsageError, match="trim: expected labels='own'"):
        CollectConfig(str(tmp_path), (COOKING,), labels="expert", trim=True)
    with pytest.raises(UsageError, match=r"playouts: expected trim, .* Add --trim"):
        CollectConfig(str(tmp_path), (COOKING,), playouts=9)
