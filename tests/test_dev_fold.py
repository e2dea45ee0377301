"""The dev fold, as training plays it."""

from training_data import GOTO

from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.policies.config import TRAINED, PolicyConfig
from gym_text_policies.training import dev_fold
from gym_text_policies.training.dev_fold import play_dev_fold


def test_each_environments_dev_episodes_are_played_as_the_model_is_trained(monkeypatch):
    played, rollout = [], dev_fold.rollout

    def noted(*arguments, **options):
        for episode in rollout(*arguments, **options):
            played.append(episode)
            yield episode

    monkeypatch.setattr(dev_fold, "rollout", noted)
    names = (f"{GOTO}&max_episode_steps=3", "BabyAIText-v0?task=open&max_episode_steps=2")
    won = play_dev_fold(ScriptedBackend(["go forward"]), names, 2, TRAINED)
    assert won == [episode.outcome == "won" for episode in played] and len(won) == 4
    assert [episode.seed for episode in played] == [0, 1, 0, 1]
    assert {episode.environment["kwargs"]["fold"] for episode in played} == {"dev"}
    assert all(episode.policy["mode"] == "choose" and episode.policy["history"] == "all" for episode in played)
    assert {episode.length for episode in played} <= {1, 2, 3} and PolicyConfig() != TRAINED
