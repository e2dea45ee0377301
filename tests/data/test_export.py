"""Data for other trainers, checked by the client's own types."""

import dataclasses
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from openai.types import FileObject
from openai.types.fine_tuning import FineTuningJob
from openai.types.fine_tuning.job_create_params import JobCreateParams
from pydantic import TypeAdapter

from gym_text_policies import PolicyError
from gym_text_policies.data import export
from gym_text_policies.data.export import completions, openai_chats, submit
from gym_text_policies.data.rows import Row

ROW = Row(
    messages=(
        {"role": "system", "content": "Play."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "drop"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "toggle"},
    ),
    labels=("", "", "pick up", "", "toggle"),
    environment="{}",
    episode="e",
    seed=0,
    episode_return=1.0,
    success=True,
    strategy="chat",
    history="all",
    template="t",
)


class Handler(BaseHTTPRequestHandler):
    """OpenAI's files and fine-tuning jobs, which end in the status that the model's name says."""

    uploaded = b""

    def log_message(self, *_):
        """Say nothing."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/files"):
            Handler.uploaded = body
            part = {"id": "file-1", "bytes": len(body), "created_at": 0, "filename": "x", "object": "file", "purpose": "fine-tune"}
            return self.send(FileObject.model_validate({**part, "status": "processed"}).model_dump())
        if b"unknown" in body:
            return self.send({"error": {"message": f"no such model for {self.headers['Authorization']}"}}, 400)
        asked = TypeAdapter(JobCreateParams).validate_python(json.loads(body))
        Handler.model = asked["model"]
        return self.send(self.job("running"))

    def do_GET(self):
        self.send(self.job(Handler.model))

    def job(self, status):
        fields = {"id": "ftjob-1", "created_at": 0, "hyperparameters": {}, "model": "m", "object": "fine_tuning.job", "seed": 0}
        fields |= {"organization_id": "o", "result_files": [], "status": status, "training_file": "file-1"}
        tuned = "ft:m:gym-text" if status == "succeeded" else None
        failure = {"code": "c", "message": "too few examples"} if status == "failed" else None
        return FineTuningJob.model_validate({**fields, "fine_tuned_model": tuned, "error": failure}).model_dump()

    def send(self, data, status=200):
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def test_only_what_is_to_be_learnt_has_weight_1():
    other, played = (chat["messages"] for chat in openai_chats([ROW]))
    assert [message.get("weight") for message in played] == [None, None, 0, None, 1]
    assert other[-1] == {"role": "assistant", "content": "pick up", "weight": 1} and len(other) == 3


def test_the_players_own_words_are_one_chat_an_episode():
    said = dataclasses.replace(ROW, labels=("", "", "I drop it.", "", "toggle"), own_labels=True)
    (chat,) = (chat["messages"] for chat in openai_chats([said]))
    assert [(message["content"], message.get("weight")) for message in chat[2::2]] == [("I drop it.", 1), ("toggle", 1)]


def test_each_answer_has_a_prompt_and_a_completion_without_what_the_player_did_instead():
    thoughts = dataclasses.replace(ROW, thoughts=("", "", "It is near.", "", ""))
    first, second = completions([thoughts])
    assert first["prompt"] == [*ROW.messages[:2]] and second["prompt"] == [*ROW.messages[:4]]
    said = {"role": "assistant", "content": "pick up", "reasoning_content": "It is near."}
    assert (first["completion"], second["completion"]) == ([said], [{"role": "assistant", "content": "toggle"}])


def test_a_file_is_submitted_and_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789")
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, openai_chats([ROW]))))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setattr(export, "POLL", 0.01)
    try:
        assert submit(path, "succeeded") == "ft:m:gym-text"
        assert path.read_bytes() in Handler.uploaded
        with pytest.raises(PolicyError, match="too few examples"):
            submit(path, "failed")
        with pytest.raises(PolicyError, match="no such model") as caught:
            submit(path, "unknown")
        assert "sk-planted" not in str(caught.value) and caught.value.__cause__ is None
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
