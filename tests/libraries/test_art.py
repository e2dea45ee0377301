"""The code of the page on ART, run with ART's own trajectories, groups, log and tokenization; a player by rules answers."""

import asyncio
import json
import re
import threading
from pathlib import Path

import art
import pytest
from art.preprocessing.tokenize import tokenize_trajectory_groups
from json_server import JSONServer
from libraries.walking import walk
from transformers import AutoTokenizer

from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.bridges.levels import level_rows
from gym_text_policies.cli import main
from gym_text_policies.store import EpisodeStore

PAGE = (Path(__file__).parents[2] / "docs/levels.md").read_text("utf-8").partition("\n## ART\n")[2]
GOTO = "BabyAIText-v0?task=goto&max_episode_steps=8"
"""The walker wins three of the first four levels of the test fold within these steps."""


class Model(JSONServer):
    """A server of chats: it gives the script's answers, or those of the walker, each with log-probabilities of its tokens."""

    def __init__(self):
        super().__init__()
        self.script, self.asked = [], []
        self.tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())

    def reply(self, path, body):
        self.asked.append(body["messages"])
        text = self.script.pop(0) if self.script else walk([message["content"] for message in body["messages"]])
        tokens = [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]
        content = [{"token": f"token_id:{token}", "logprob": -0.5, "bytes": [], "top_logprobs": []} for token in tokens]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        choice["logprobs"] = {"content": content if body["logprobs"] else None, "refusal": None}
        return 200, {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}


class Backend:
    """In place of ART's: it serves `server`, and notes the groups on which it should train."""

    def __init__(self, server):
        self.server, self.trained = server, []

    async def register(self, model):
        pass

    async def _prepare_backend_for_training(self, model, config):
        return f"http://127.0.0.1:{self.server.server_port}/v1", "none"

    def _model_inference_name(self, model, step=None):
        return model.name

    async def _get_step(self, model):
        return len(self.trained)

    async def train(self, model, groups, **arguments):
        self.trained.append(groups)
        return art.TrainResult(step=len(self.trained), metrics={"loss": 0.0})


@pytest.fixture(scope="module")
def server():
    with Model() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def page():
    """Return what the page's first two blocks define."""
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]:
        exec(compile(block, "art.md", "exec"), names)
    return names


def played(page, server, row):
    """Return the trajectory of an episode, and the chats that the model was asked."""
    server.asked.clear()
    where = {"inference_base_url": f"http://127.0.0.1:{server.server_port}/v1", "inference_api_key": "none"}
    model = art.Model(name="walker", project="test", inference_model_name="walker", **where)
    return asyncio.run(page["rollout"](model, row)), list(server.asked)


def test_the_pages_rollout_and_bench_give_equal_prompts_answers_and_returns(page, server, tmp_path):
    command = ["bench", "--environments", GOTO, "--models", "libraries.walking:walker", "--modes", "text", "--strategy", "chat"]
    command += ["--history", "all", "--options", "own_words=true"]
    command += ["--fold", "test", "--llm-episodes", "4", "--baselines", "none"]
    assert main([*command, "--folder", str(tmp_path)]) == 0
    with EpisodeStore(tmp_path) as store:
        episodes = sorted((episode for episode in store if "model" in episode.policy), key=lambda episode: episode.seed)
    for row, episode in zip(level_rows(GOTO, "test", range(4)), episodes, strict=True):
        trajectory, asked = played(page, server, row)
        assert asked == [list(step.decision.messages) for step in episode.steps]
        said = [message["content"] for message in trajectory.messages() if message["role"] == "assistant"]
        assert said == [step.decision.completion for step in episode.steps]
        assert trajectory.reward == episode.total_reward and trajectory.metadata == {"level": row["id"]}
        assert trajectory.metrics == {"success": episode.outcome == "won", "steps": episode.length, "unusable": 0}
    assert {episode.outcome for episode in episodes} == {"won", "truncated"} and "I go forward." in str(asked)


def test_the_pages_loop_trains_on_groups_of_one_level_and_learns_from_the_answers_alone(page, server, tmp_path):
    server.script.clear()
    model = art.TrainableModel(name="goto", run_name="goto", project="test", base_model="none", base_path=str(tmp_path))
    backend = Backend(server)
    asyncio.run(page["train"](model, backend, GOTO, 1))
    (groups,) = backend.trained
    assert [{trajectory.metadata["level"] for trajectory in group} for group in groups] == [
        {f"BabyAIText-v0?task=goto train {seed}"} for seed in range(4)
    ]
    assert [len(group) for group in groups] == [8] * 4
    (history,) = tmp_path.rglob("history.jsonl")
    assert json.loads(history.read_text("utf-8").splitlines()[-1])["train/reward"] == pytest.approx(
        sum(trajectory.reward for group in groups for trajectory in group) / 32
    )
    rows = tokenize_trajectory_groups(server.tokenizer, groups[:1], False, True, False, False)
    for row, trajectory in zip(rows, groups[0], strict=True):
        learnt = [token for token, own in zip(row.token_ids, row.assistant_mask, strict=True) if own]
        answers = [message["content"] for message in trajectory.messages() if message["role"] == "assistant"]
        assert server.tokenizer.decode(learnt) == "".join(f"{answer}<|im_end|>" for answer in answers)
        assert {p for p, own in zip(row.logprobs, row.assistant_mask, strict=True) if own} == {-0.5}
