"""The table: rows of figures with intervals, and their Markdown."""

import dataclasses

import gymnasium as gym
import pytest

from gym_text.descriptions import find_description
from gym_text.wrappers import DescribeObservation
from gym_text_policies import load_policy, rollout
from gym_text_policies.records import Episode
from gym_text_policies.report.figures import Summary, how_asked, row
from gym_text_policies.report.plots import means_of
from gym_text_policies.report.runs import Variant
from gym_text_policies.report.statistics import return_interval, t_interval, wilson_interval
from gym_text_policies.report.table import fitted, markdown


def summary(seed, outcome, reward, error=None, cost=0.0, level=None):
    return Summary(str(seed), seed, outcome, error, reward, 4, 1, 10, 2, 0.5, cost, level)


def test_an_episode_with_an_error_counts_in_no_mean():
    figures = row("E", "p", [summary(0, "won", 1.0), summary(1, "lost", 0.0), summary(2, "error", 9.0, "broken")])
    assert (figures["episodes"], figures["won"], figures["lost"], figures["error"]) == (3, 1, 1, 1)
    assert (figures["return"], figures["success"], figures["length"]) == (0.5, 0.5, 4)
    assert (figures["invalid"], figures["seconds_per_decision"]) == (0.25, 0.125)
    nothing = row("E", "p", [summary(2, "error", 9.0, "broken")])
    assert nothing["return"] is nothing["success"] is nothing["success_interval"] is None


def test_a_level_that_is_played_again_makes_no_interval_narrower():
    once = [summary(seed, "won" if seed % 3 else "lost", float(seed), level=seed) for seed in range(20)]
    again = [dataclasses.replace(one, seed=one.seed + 20 * lap) for lap in range(3) for one in once]
    first, figures = row("E", "p", once), row("E", "p", again)
    for name in ("return", "return_interval", "success", "success_interval"):
        assert figures[name] == pytest.approx(first[name], rel=1e-12)
    assert (figures["episodes"], figures["levels"], figures["won"]) == (60, 20, 3 * first["won"])
    assert "| 60 of 20 levels |" in markdown([figures]) and "levels" not in markdown([first])
    few = row("E", "p", [summary(0, "won", 1.0, level=5), summary(1, "lost", 0.0, level=5), summary(2, "lost", 0.0, level=6)])
    assert few["success"] == few["return"] == 0.25  # by the mean of each level


def test_what_was_paid_is_a_column_with_its_sum_and_failures_cost_too():
    rows = [row("E", "a", [summary(0, "won", 1.0, cost=0.25), summary(1, "error", 0.0, "broken", cost=0.5)]), row("E", "b", [])]
    header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown(rows).splitlines()]
    assert header[-1] == "cost, $" and [line[-1] for line in lines] == ["0.75", "0", "0.75"] and lines[-1][1] == "total"


def test_thoughts_and_reasons_have_columns_only_where_a_model_thought_or_an_answer_was_unusable():
    thought = {"tokens_out": 40, "tokens_reasoning": 30, "thoughts_cut": 1, "invalid_reasons": {"cut": 2, "no action": 1}}
    thinking = [dataclasses.replace(summary(seed, "won", 1.0), **thought) for seed in (0, 1)]
    plain = row("E", "plain", [summary(0, "won", 1.0)])
    text = markdown([row("E", "thinks", thinking), plain])
    header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[:4]]
    cells = [dict(zip(header, line, strict=True)) for line in lines]
    assert [line["share of thoughts"] for line in cells] == ["75%", "-"]
    assert [line["thoughts cut"] for line in cells] == ["25%", "-"]
    assert [line["why invalid"] for line in cells] == ["cut 4, no action 2", "-"]
    assert "Thoughts cut: share of steps" in text and "Why invalid: number of answers" in text
    foreign = dataclasses.replace(summary(0, "won", 1.0), invalid_reasons={"a|b\n" * 999: 2})
    assert row("E", "by somebody else", [foreign])["invalid_reasons"] == {"other": 2}
    assert "thought" not in markdown([plain]) and "why" not in markdown([plain])


def test_a_policy_that_looks_ahead_is_marked_and_has_its_costs():
    searching = {"looks_ahead": True, "model_calls": 30, "simulator_steps": 90}
    ahead = row("E", "ahead", [dataclasses.replace(summary(seed, "won", 1.0), **searching) for seed in (0, 1)])
    plain = row("E", "plain", [summary(0, "won", 1.0)])
    text = markdown([plain, ahead])
    header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[:4]]
    cells = [dict(zip(header, line, strict=True)) for line in lines]
    assert [line["policy"] for line in cells] == ["plain", "ahead †"]
    assert [(line["model calls"], line["simulator steps"]) for line in cells] == [("-", "-"), ("30.0", "90.0")]
    assert "† The policy looks ahead" in text and "simulator" not in markdown([plain])
    player = {"kind": "llm", "strategy": "chat", "mode": "choose", "history": "all", "temperature": 0.0}
    searched = {"kind": "lookahead", "player": player, "method": "puct", "simulations": 8}
    assert how_asked({"kind": "mixed", "player": searched, "noise": 0.1}) == "chat, choose, history all, noise 0.1"


class Untold(gym.Env):
    """CartPole with words of its own, that does not say what a success is."""

    def __init__(self):
        self.cart = gym.make("CartPole-v1")
        self.text_spec = find_description(self.cart).spec
        self.action_space = self.cart.action_space
        self.observation_space = gym.spaces.Dict({"observation": self.cart.observation_space})

    def reset(self, *, seed=None, options=None):
        return {"observation": self.cart.reset(seed=seed)[0]}, {}

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.cart.step(action)
        return {"observation": obs}, reward, terminated, truncated, {}

    def close(self):
        self.cart.close()


@pytest.mark.parametrize("says", ["the description", "nobody", "an environment of the user's own does not"])
def test_success_is_a_dash_where_nobody_says_what_it_is(says, make, monkeypatch):
    cart = make("CartPole-v1")
    monkeypatch.setitem(gym.registry, "Untold-v0", gym.envs.registration.EnvSpec("Untold-v0", Untold, disable_env_checker=True))
    spec = None if says == "the description" else find_description(cart).spec
    env = DescribeObservation(make("Untold-v0")) if "own" in says else DescribeObservation(cart, spec)
    (episode,) = rollout(lambda: env, load_policy("random", env), [0], num_envs=1)
    variant = Variant("CartPole-v1", "random", (Summary.of(Episode.from_json(episode.to_json())),), {})
    lines = markdown([variant.row]).splitlines()
    place = [cell.strip() for cell in lines[0].split("|")].index("success [95 %]")
    shown = (lines[2].split("|")[place].strip(), bool(means_of([variant], "won")))
    assert shown == (("0.00 [0.00, 0.79]", True) if spec is None else ("-", False))
    known = spec is None
    assert episode.outcome == ("lost" if known else "ended") and ("| 0 / 1 / 0 / 0 " if known else "| 1 ended / 0 / 0 ") in lines[2]


def scored(seed, reward, **more):
    return dataclasses.replace(summary(seed, "won" if reward > 0.5 else "lost", reward), **{"invalid": 0, **more})


def figures():
    wrong = {"invalid": 3, "invalid_reasons": {"no action": 40, "cut": 2}}
    return [
        row("BabyAIText-v0?task=goto", "random", [scored(seed, float(seed % 2)) for seed in range(4)]),
        row("BabyAIText-v0?task=goto", "talks", [scored(0, 0.0, **wrong)]),
        row("LunarLanderLLM-v2", "random", [scored(seed, -190.0 - seed) for seed in range(4)]),
    ]


def test_success_comes_first_below_a_heading_for_each_environment():
    table, note = fitted(figures()).split("\n\n")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert lines[0][:5] == ["policy", "success [95 %]", "return [95 %]", "episodes", "unusable answers"]
    headings = [line[0] for line in lines[2:] if not any(line[1:])]
    assert headings == ["BabyAIText-v0?task=goto", "LunarLanderLLM-v2"]
    assert lines[4][0] == "talks" and lines[4][4] == "75%: mostly no action"
    assert lines[6][2].startswith("-192 [") and "table.md" in note


def test_what_makes_a_row_untrue_is_shown_however_wide_the_table_is():
    broken = [dataclasses.replace(one, outcome="error", error="broken") for one in map(scored, range(3), [0.0] * 3)]
    drawn = [scored(seed, -190.0 - 9 * seed, invalid=3, invalid_reasons={"several actions": 4}) for seed in range(3)]
    rows = [row("E", "a model with a long name, " * 3, episodes) for episodes in ([*drawn, *broken], broken)]
    heads, _, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in fitted(rows).splitlines()[:5]]
    cells = [dict(zip(heads, line, strict=True)) for line in lines]
    assert [line["episodes"] for line in cells] == ["6, 3 errors", "3, 3 errors"]
    assert cells[0]["unusable answers"] == "75%: > 1 action" and "| 6, 3 errors |" in markdown(rows)


def test_an_interval_of_the_return_stays_within_the_returns_that_are_possible():
    values = [0.4, 0.0, 0.03]
    low, high = t_interval(values)
    assert low < 0 and return_interval(values, (0.0, 1.0)) == (0.0, high)
    assert return_interval(values) == (low, high)
    assert return_interval([2.0, 3.0], (0.0, 1.0)) == t_interval([2.0, 3.0]), "these bounds are another game's"
    assert return_interval([1.0] * 9, (0.0, 1.0)) == wilson_interval(9, 9), "equal returns say nothing of their spread"
    assert return_interval([-1.0] * 9, (-1.0, 1.0)) == (-1.0, 2 * wilson_interval(0, 9)[1] - 1)
    assert return_interval([], (0.0, 1.0)) is None and return_interval([5.0]) is None
