"""Expert iteration: a model learns what its own search finds."""

import json
import math

import pytest
import torch
from training_data import plain_log_probs, with_random_adapter

from gym_text import UsageError
from gym_text_policies.data.targets import targets_of
from gym_text_policies.records import Decision, Episode
from gym_text_policies.training import loop
from gym_text_policies.training.expert_iteration import ExpertIterationConfig, learn, play_ahead, run
from gym_text_policies.training.loop import pass_sums
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.saving import Progress

pytestmark = [pytest.mark.usefixtures("one_thread", "corridor")]


def settings(tiny_model, folder, **options):
    usual = {"environments": ("Corridor-v0?length=2",), "episodes_per_iteration": 8, "dev_every": 0}
    return ExpertIterationConfig(**{"folder": str(folder), "model": tiny_model, **usual, **options})


def test_targets_are_the_plan_or_the_visits_and_nothing_where_nothing_was_found():
    prior = {"left": 0.5, "right": 0.25, "stay": 0.25}
    found = {"visits": {"left": 2, "right": 6, "stay": 1}, "values": {"left": 0.0, "right": 0.5}}
    shares = {"left": 0.25, "right": 0.75}
    assert targets_of(Decision("left", probabilities=prior, **found, plan=("stay", "left"))) == {"stay": 1.0}
    assert targets_of(Decision("left", probabilities=prior, **found)) == shares, "stay was not worth a second look"
    once = {"left": 1, "right": 1}
    assert targets_of(Decision("left", probabilities=prior, visits=once, values=found["values"])) == {}, "one of them may lose"
    assert targets_of(Decision("left", probabilities=prior, visits=found["visits"], values={"left": 0.2, "right": 0.2})) == {}
    assert targets_of(Decision("left", probabilities=prior)) == {}, "it did not look ahead"


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_the_labels_are_those_of_the_search_whoever_plays(tiny_model, tmp_path, share):
    config = settings(tiny_model, tmp_path, expert_share=share, simulations=40, uniform_share=0.5)
    trajectories = play_ahead(config, Actor(tiny_model), Progress())
    decisions = [step.decision for one in trajectories for step in one.episode.steps]
    assert all(decision.plan[0] == "right" for decision in decisions), "in each state that was reached the search knows a win"
    assert all(decision.action == "right" for decision in decisions) == (share == 1.0)
    for one in trajectories:
        assert one.episode.outcome == ("won" if {s.decision.action for s in one.episode.steps} == {"right"} else "lost")
        assert Episode.from_json(json.loads(json.dumps(one.episode.to_json()))) == one.episode


def test_the_loss_is_the_divergence_by_plain_passes_of_the_decisions_with_targets(tiny_model, tmp_path, monkeypatch):
    config = settings(tiny_model, tmp_path, simulations=12, uniform_share=0.5)
    actor = Actor(tiny_model)
    trajectories = play_ahead(config, actor, Progress())
    targets = [[targets_of(step.decision) for step in one.episode.steps] for one in trajectories]
    objectives = []
    monkeypatch.setattr(loop, "update_policy", lambda *arguments: objectives.append(arguments[-2:]) or {})
    with_random_adapter(actor.model)
    learn(config, actor, torch.optim.AdamW(actor.parameters), Progress(), trajectories)
    ((batch, objective),) = objectives
    with torch.no_grad():
        loss = pass_sums(actor, batch, batch.conversations, objective)["policy_loss"]
    expected, learnt = 0.0, 0
    for one, of_steps in zip(trajectories, targets, strict=True):
        for messages, candidates, target in zip(one.prompts, one.candidates, of_steps, strict=False):
            scores = [plain_log_probs(actor.model, actor.tokenizer, messages, answer).sum().detach() for answer in candidates]
            log_probs = dict(zip(candidates, torch.stack(scores).log_softmax(0).tolist(), strict=True))
            expected += sum(share * (math.log(share) - log_probs[name]) for name, share in target.items() if share)
            learnt += bool(target)
    assert 0 < learnt == len(batch.actions)
    assert float(loss) == pytest.approx(expected, rel=1e-3)


def test_it_wins_alone_what_only_a_search_has_won_without_an_expert(tiny_model, tmp_path):
    folder = run(
        settings(
            tiny_model, tmp_path / "run", iterations=3, expert_share=0.5, simulations=40, uniform_share=0.5, learning_rate=1e-2
        )
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["planned"] == 1.0 and lines[0]["simulator_steps"] > lines[0]["model_calls"] > 0
    alone = play_ahead(settings(tiny_model, tmp_path, model=str(folder), expert_share=0.0), Actor(str(folder)), Progress(9))
    before = play_ahead(settings(tiny_model, tmp_path, expert_share=0.0), Actor(tiny_model), Progress(9))
    won, won_before = (sum(one.episode.outcome == "won" for one in played) for played in (alone, before))
    assert won == 8 and won_before <= 4


def test_a_search_that_finds_nothing_teaches_nothing(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path, environments=("Corridor-v0?length=9",), simulations=1)
    actor = Actor(tiny_model)
    before = [parameter.detach().clone() for parameter in actor.parameters]
    metrics = learn(config, actor, torch.optim.AdamW(actor.parameters, lr=1.0), Progress(), play_ahead(config, actor, Progress()))
    assert metrics["learnt"] == metrics["planned"] == 0.0
    assert all(torch.equal(old, new) for old, new in zip(before, actor.parameters, strict=True))


def test_wrong_settings_of_the_search_are_refused(tiny_model, tmp_path):
    with pytest.raises(UsageError, match="simulations: expected"):
        settings(tiny_model, tmp_path, simulations=0)
    with pytest.raises(UsageError, match="expert_share: expected a number from 0 to 1; got 2"):
        settings(tiny_model, tmp_path, expert_share=2)
