"""Episodes' tokens in the forms of other trainers, out of run folders; TRL's readers: see ``tests/libraries``."""

import json
from functools import partial

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.data.export import ExportConfig, run
from gym_text_policies.data.token_rows import token_rows
from gym_text_policies.store import EpisodeStore

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def folders(tiny_model, tmp_path_factory):
    """Return two run folders that each have an episode of two levels, drawn apart."""
    root = tmp_path_factory.mktemp("played")
    make_env = partial(gym.make, "BabyAIText-v0", task="goto", fold="train", expert="off", max_episode_steps=4)
    for seed in SEEDS:
        how = {"mode": "text", "strategy": "chat", "history": "all", "temperature": 1.0, "max_tokens": 5, "tokens": True}
        policy = load_policy(tiny_model, make_env(), seed=seed, **how)
        with EpisodeStore(root / str(seed)) as store:
            for episode in rollout(make_env, policy, SEEDS):
                store.append(episode)
    return [str(root / str(seed)) for seed in SEEDS]


def exported(folders, tmp_path):
    path = tmp_path / "trl.jsonl"
    assert "4 sequences" in run(ExportConfig(format="trl", runs=tuple(folders), file=str(path)))
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rows(folders):
    episodes = []
    for folder in folders:
        with EpisodeStore(folder) as store:
            episodes += store.episodes()
    return token_rows(episodes)


def test_trls_lines_have_a_group_for_each_level_and_advantages_within_it(folders, tmp_path, rows):
    lines = exported(folders, tmp_path)
    assert [line["group_id"] for line in lines] == [0, 1, 0, 1] and [line["seed"] for line in lines] == [0, 1, 0, 1]
    for group in (0, 1):
        assert sum(line["advantage"] for line in lines if line["group_id"] == group) == pytest.approx(0)
    for line, row in zip(lines, rows, strict=True):
        assert line["input_ids"] == line["prompt_ids"] + line["completion_ids"] == [*row.prompt, *row.completion]
        masked = [token if said else -100 for token, said in zip(line["input_ids"], line["completion_mask"], strict=True)]
        assert masked == line["labels"] and sum(line["completion_mask"]) == sum(line["env_mask"]) == sum(row.mask)
        assert line["old_log_probs"][len(row.prompt) :] == line["logprobs"] == list(row.log_probs)


def test_what_does_not_fit_together_is_refused(folders, tmp_path):
    for settings in ({"format": "trl"}, {"runs": ("runs/a",)}):
        with pytest.raises(UsageError, match="run folders as runs"):
            run(ExportConfig(**settings))
    with pytest.raises(UsageError, match="submit_to"):
        run(ExportConfig(format="trl", runs=("runs/a",), submit_to="gpt"))
    with pytest.raises(UsageError, match="run folders with episodes"):
        run(ExportConfig(format="trl", runs=(str(tmp_path / "none"),), file=str(tmp_path / "x")))
    assert not (tmp_path / "none").exists()
