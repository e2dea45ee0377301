"""NeMo Gym's own servers, here, as the page sets them up: its relay, its agent and its model server; a player by rules answers."""

import asyncio
import json
import re
import socket
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
import yaml
from environment_servers.legacy_agent.app import LegacyAgentEnvironmentServer
from json_server import JSONServer
from libraries.walking import walk
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, ServerClient, set_global_aiohttp_client
from omegaconf import OmegaConf
from responses_api_agents.gymnasium_agent.app import GymnasiumAgent
from responses_api_models.vllm_model.app import VLLMModel

from gym_text_policies.bridges.levels import write_levels
from gym_text_policies.bridges.nemo_gym import GymTextServer
from gym_text_policies.cli import main
from gym_text_policies.store import EpisodeStore

PAGE = Path(__file__).parents[2] / "docs/levels.md"
GOTO = "BabyAIText-v0?task=goto&max_episode_steps=8"
"""The walker wins three of the first four levels of the test fold within these steps."""
SERVERS = {
    "resources_servers": GymTextServer,
    "responses_api_agents": GymnasiumAgent,
    "responses_api_models": VLLMModel,
    "environment_servers": LegacyAgentEnvironmentServer,
}


class Model(JSONServer):
    """A server of chats: it gives the script's answers, each with how it ended, or those of the walker; `asked` has the chats."""

    def __init__(self):
        super().__init__()
        self.script, self.asked = [], []

    def reply(self, path, body):
        self.asked.append(body["messages"])
        text, finish = self.script.pop(0) if self.script else (walk([message["content"] for message in body["messages"]]), "stop")
        if finish == "error":
            return 400, {"error": {"message": text}}
        choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
        return 200, {"id": "1", "object": "chat.completion", "created": 0, "model": "walker", "choices": [choice]}


class Run:
    """The servers of the page's configuration, each behind a port of this machine."""

    def __init__(self, model):
        self.model, self.urls, self.servers = model, {}, {}
        self.steps, self.lost = 0, set()
        config = yaml.safe_load(
            re.search(r"```yaml\n(.*?)```", PAGE.read_text("utf-8").partition("\n## NeMo Gym\n")[2], re.DOTALL)[1]
        )
        config["policy_model"] = {"responses_api_models": {"vllm_model": self.vllm()}}
        sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in config}
        for name, listening in sockets.items():
            self.given(config[name])[1].update(host="127.0.0.1", port=listening.getsockname()[1])
            self.urls[name] = f"http://127.0.0.1:{listening.getsockname()[1]}"
        nobody = BaseServerConfig(host="127.0.0.1", port=1)
        client = ServerClient(head_server_config=nobody, global_config_dict=OmegaConf.create(config))
        self.listening = [(uvicorn.Server(self.app(name, config[name], client)), sockets[name]) for name in config]
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()))
        self.thread.start()
        while not all(server.started for server, _ in self.listening):
            time.sleep(0.01)

    def vllm(self):
        url = f"http://127.0.0.1:{self.model.server_port}/v1"
        plain = {"return_token_id_information": False, "uses_reasoning_parser": False}
        return {"entrypoint": "app.py", "base_url": url, "api_key": "none", "model": "walker", **plain}

    def given(self, block):
        """Return the kind and the settings of a server."""
        ((kind, named),) = block.items()
        (settings,) = named.values()
        return kind, settings

    def app(self, name, block, client):
        kind, settings = self.given(block)
        config = SERVERS[kind].model_fields["config"].annotation.model_validate({**settings, "name": name})
        server = self.servers[name] = SERVERS[kind](config=config, server_client=client)
        app = server.setup_webserver()
        server.setup_exception_middleware(app)
        return uvicorn.Config(self.losing(app) if name == "gym_text" else app, log_level="error")

    def losing(self, app):
        """Return the app with a line that breaks before the answers to the steps in `lost`."""

        async def served(scope, receive, send):
            if scope["type"] != "http" or scope["path"] != "/step":
                return await app(scope, receive, send)
            self.steps += 1
            if self.steps not in self.lost:
                return await app(scope, receive, send)

            async def unheard(message):
                pass

            await app(scope, receive, unheard)
            send.__self__.transport.abort()

        return served

    async def serve(self):
        client = set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
        await asyncio.gather(*(server.serve(sockets=[listening]) for server, listening in self.listening))
        await client.close()

    def post(self, server, path, body):
        return httpx.post(f"{self.urls[server]}{path}", json=body, timeout=60)

    def play(self, row):
        """Play an episode of a row; return NeMo Gym's result, and the chats that the model was asked."""
        self.model.asked.clear()
        self.steps = 0
        answer = self.post("gym_text_environment_server", "/run", row)
        assert answer.status_code == 200, answer.text
        return answer.json(), list(self.model.asked)

    @property
    def games(self):
        return self.servers["gym_text"].session_state

    def close(self):
        for server, _ in self.listening:
            server.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def nemo():
    with Model() as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        run = Run(model)
        yield run
        run.close()
        model.shutdown()


def rows_of(folder, seeds=range(4), environment=GOTO):
    """Return the rows of a file of levels of the test fold."""
    write_levels(folder / "rows.jsonl", "nemo_gym", environment, "test", seeds)
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]


def test_nemo_gym_and_bench_give_equal_prompts_answers_returns_and_ends(nemo, tmp_path):
    command = ["bench", "--environments", GOTO, "--models", "libraries.walking:walker", "--modes", "text", "--strategy", "chat"]
    command += ["--history", "all", "--options", "own_words=true"]
    command += ["--fold", "test", "--llm-episodes", "4", "--baselines", "none"]
    assert main([*command, "--folder", str(tmp_path / "run")]) == 0
    with EpisodeStore(tmp_path / "run") as store:
        episodes = sorted((episode for episode in store if "model" in episode.policy), key=lambda episode: episode.seed)
    results = []
    for number, (row, episode) in enumerate(zip(rows_of(tmp_path), episodes, strict=True)):
        result, asked = nemo.play(row)
        assert asked == [list(step.decision.messages) for step in episode.steps]
        said = [item["content"][0]["text"] for item in result["response"]["output"] if item.get("role") == "assistant"]
        assert said == [step.decision.completion for step in episode.steps]
        won = episode.outcome == "won"
        assert result["info"] == {"success": won, "steps": episode.length, "unusable": 0, "end": episode.outcome}
        assert result["reward"] == pytest.approx(episode.total_reward)
        assert (result["terminated"], result["truncated"]) == (won, not won)
        results.append({key: result[key] for key in ("reward", "info")} | {"_ng_task_index": number, "_ng_rollout_index": 0})
    assert {episode.outcome for episode in episodes} == {"won", "truncated"} and nemo.games == {}
    assert "I go forward." in str(asked)
    metrics = nemo.post("gym_text_environment_server", "/aggregate_metrics", {"verify_responses": results}).json()["key_metrics"]
    assert metrics["mean/success"] == 0.75 and metrics["mean/unusable"] == 0
    assert metrics["mean/reward"] == pytest.approx(sum(episode.total_reward for episode in episodes) / 4)


def test_an_answer_that_cannot_be_used_is_told_and_costs_no_step(nemo, tmp_path):
    (row,) = rows_of(tmp_path, [0])
    nemo.model.script[:] = [
        *(("a camel", "stop"), ("turn left or turn right", "stop"), ("I turn left. Then I", "length"), ("", "stop")),
        ("turn left", "stop"),
        *[("sing", "stop")] * 5,
    ]
    result, asked = nemo.play(row)
    assert result["info"] == {"success": 0, "steps": 1, "unusable": 9, "end": "unusable_answers"}
    assert (result["reward"], result["terminated"], result["truncated"]) == (0, False, True)
    bad = [chat[-1]["content"].startswith("That cannot be used, and nothing has happened.") for chat in asked[1:]]
    assert bad == [True] * 4 + [False] + [True] * 4


def test_a_game_is_closed_when_the_agents_own_limit_or_a_failure_ends_the_episode(nemo, tmp_path, monkeypatch):
    (row,) = rows_of(tmp_path, [0])
    monkeypatch.setattr(nemo.servers["gym_text_agent"].config, "max_steps", 2)
    nemo.model.script[:] = [("turn left", "stop")] * 2
    result, _ = nemo.play(row)
    assert (result["truncated"], result["info"]["end"], result["info"]["steps"]) == (True, None, 2) and nemo.games == {}
    nemo.model.script[:] = [("turn left", "stop"), ("no such model", "error")]
    assert nemo.post("gym_text_environment_server", "/run", row).status_code == 500
    assert len(nemo.model.script) == 0 and nemo.games == {}


def test_a_step_whose_answer_is_lost_is_sent_again_and_played_once(nemo, tmp_path, monkeypatch):
    (row,) = rows_of(tmp_path, [1])
    result, asked = nemo.play(row)
    assert result["info"]["success"] == 1 and nemo.steps == len(asked) > 2
    last = nemo.steps
    monkeypatch.setattr(nemo, "lost", {1, 2, last + 2})  # the first step twice, and the last one
    again, asked_again = nemo.play(row)
    assert nemo.steps == last + 3 and nemo.games == {}
    assert asked_again == asked and {key: again[key] for key in ("reward", "info")} == {
        key: result[key] for key in ("reward", "info")
    }


def test_a_rows_module_is_imported_where_the_servers_settings_name_it(nemo, tmp_path, monkeypatch):
    row = {**rows_of(tmp_path, [0])[0], "environment": "libraries.noting:Noting-v0?task=goto"}
    refused = nemo.post("gym_text", "/reset", row)
    assert refused.status_code == 422 and "as in imports: [libraries.noting]." in refused.json()["detail"]
    assert "libraries.noting" not in sys.modules
    monkeypatch.setattr(nemo.servers["gym_text"].config, "imports", ("libraries.noting",))
    result, _ = nemo.play(row)
    assert result["info"]["steps"] == 3
