"""DAgger: the learner plays, the expert says what it would have done, both are learnt from."""

import dataclasses
import json

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import read_rows, write_rows
from gym_text_policies.policy import text_spec
from gym_text_policies.run import engine
from gym_text_policies.store import EpisodeStore
from gym_text_policies.training import dagger as module
from gym_text_policies.training.dagger import DAggerConfig, dagger
from gym_text_policies.training.sft import SFTConfig, sft

pytestmark = [pytest.mark.usefixtures("one_thread")]
GOTO = "BabyAIText-v0?task=goto&max_episode_steps=4"
SHORT = {"max_steps": 1, "rows_per_step": 2}


@pytest.fixture(scope="module")
def begun(tiny_model, tmp_path_factory):
    """Return how DAgger goes on from an adapter that has learnt gold episodes for one step."""
    folder = tmp_path_factory.mktemp("begun")
    collect(CollectConfig(str(folder / "data"), (GOTO.partition("&")[0],), ("4",)))
    data = (str(folder / "data/rows"),)
    adapter = sft(SFTConfig(data=data, folder=str(folder / "sft"), model=tiny_model, **SHORT))
    return DAggerConfig(str(folder / "dagger"), str(adapter), data, (GOTO,), iterations=1, episodes_per_iteration=2)


def experts_words(episode):
    """Return what the expert says in each state of an episode that is played again."""
    env = gym.make("BabyAIText-v0", task="goto", fold="train", expert="replan", max_episode_steps=4)
    observation, info = env.reset(seed=episode.seed)
    said = []
    for step in episode.steps:
        said.append(info["gold_action"])
        assert observation["text"] == step.observation["text"], "this is what the learner saw"
        observation, *_, info = env.step(text_spec(env).encode(step.decision.action, observation))
    env.close()
    return said


def test_a_round_plays_the_learners_own_episodes_and_learns_the_experts_words_and_a_finished_round_is_not_repeated(
    begun, monkeypatch
):
    adapter, round_1 = dagger(begun), module.Path(begun.folder) / "round-1"
    assert adapter == round_1 / "sft" / "adapter"
    episodes = list(EpisodeStore(round_1 / "data").episodes())
    assert [episode.seed for episode in episodes] == [500, 501]
    assert all(episode.environment["kwargs"]["fold"] == "train" for episode in episodes)
    assert all(begun.model in json.dumps(episode.policy) for episode in episodes), "the learner has played"
    assert all(step.decision.probabilities for episode in episodes for step in episode.steps), "each action is its own"
    labels = {row.seed: [label for label in row.labels if label] for row in read_rows(round_1 / "data/rows")}
    assert labels == {episode.seed: experts_words(episode) for episode in episodes}
    assert any(step.decision.action != step.gold_action for episode in episodes for step in episode.steps)
    record = json.loads((adapter / "training.json").read_text())
    data = record["made_by"]["sft"]["data"]
    assert data == [*begun.data, str(round_1 / "data/rows")], "nothing is forgotten"

    learn, learnt = module.sft, []
    monkeypatch.setattr(engine, "rollout", lambda make_env, policy, seeds, **_: pytest.fail("played twice") if seeds else ())
    monkeypatch.setattr(module, "sft", lambda *_: pytest.fail("learnt twice"))
    assert dagger(begun) == adapter
    monkeypatch.undo()

    def noted(config, rows):
        learnt.append((config.model, len(rows)))
        return learn(config, rows)

    monkeypatch.setattr(module, "sft", noted)
    how = {"interchangeable": ("left", "right"), "dtype": "bfloat16"}
    second = dagger(dataclasses.replace(begun, iterations=2, **how))
    assert second == round_1.with_name("round-2") / "sft" / "adapter"
    made_by = json.loads((second / "training.json").read_text())["made_by"]["sft"]
    assert {name: made_by[name] for name in how} == {"interchangeable": ["left", "right"], "dtype": "bfloat16"}
    assert learnt == [(str(adapter), 8)], "only the second round, from the first one's adapter"
    levels = [episode.seed for episode in EpisodeStore(second.parents[1] / "data").episodes()]
    assert levels == [502, 503], "new ones"


def test_data_with_thoughts_are_refused_and_an_adapter_that_thinks_plays_without(tmp_path, monkeypatch, noisy_rows):
    played = []
    monkeypatch.setattr(module, "collect", lambda config: played.append(config) or noisy_rows[:1])
    monkeypatch.setattr(module, "sft", lambda *_: None)
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "training.json").write_text(json.dumps({"asked": {"think": True}}))
    row = noisy_rows[0]
    for name, thoughts in (("without", ()), ("with", tuple("so" * bool(label) for label in row.labels))):
        write_rows([dataclasses.replace(row, thoughts=thoughts)], tmp_path / name)
    config = DAggerConfig(str(tmp_path / "run"), str(tmp_path), (str(tmp_path / "without"),), (GOTO,), iterations=1)
    dagger(config)
    assert [one.options["think"] for one in played] == [False]
    with pytest.raises(UsageError, match="data: expected rows without thoughts"):
        dagger(dataclasses.replace(config, data=(str(tmp_path / "with"),)))
    for option in ({"iterations": 0}, {"learning_rate": 0.0}):
        with pytest.raises(UsageError, match=f"{next(iter(option))}: expected"):
            DAggerConfig(**option)
