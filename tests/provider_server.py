"""A provider on this machine, for tests and benchmarks: OpenAI, Ollama and TensorZero, with faults and latencies on demand.

It checks each request with the client's own types and answers with them. It is bounded: so many requests, then it refuses, and it
stops with the block that started it.
"""

import argparse
import contextlib
import json
import random
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ollama
from openai.types import CompletionUsage, Decision, DecisionCreateParams
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter
from uuid_utils import uuid7

_CHAT = TypeAdapter(CompletionCreateParamsNonStreaming)
_DECISION = TypeAdapter(DecisionCreateParams)


@dataclass
class Fault:
    """What to do in place of an answer: an HTTP status with headers and a body, a late answer, or a connection that is dropped."""

    status: int = 200
    body: str | bytes = ""
    headers: dict[str, str] = field(default_factory=dict)
    late: float = 0.0
    drop: bool = False
    torn: bool = False
    """Whether the connection is closed after half of the body."""
    content_type: str = "application/json"


class Refused(ValueError):
    """A field that a server refuses in the words of the real one."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.body = {"error": {"message": message, "type": "invalid_request_error", **fields}}


class ProviderServer(ThreadingHTTPServer):
    """Answer every chat with `text`, and every decision with probabilities that fall from the first choice to the last.

    Args:
        port: To listen on; 0: any that is free.
        text: What the model says; ``{wait}`` in it is how long the answer was held back, in seconds.
        most_requests: Requests after which it answers no more.
        latency: From a request's number to the seconds for which its answer is held back.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *, port: int = 0, text: str = "go forward", most_requests: int = 5000, latency: Any = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.text = text
        self.latency = latency or (lambda number: 0.0)
        self.faults: deque[Fault | None] = deque()
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.refusal: str | None = None
        self.most_options = 255
        self.most_requests = most_requests
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that left."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def reply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Check a request and return its answer; raise ValueError if the real provider would refuse it."""
        replies = {
            "/v1/chat/completions": self._completion,
            "/v1/decisions": self._decision,
            "/v1/systemone": self._systemone,
            "/api/chat": self._ollama_chat,
            "/inference": self._inference,
            "/feedback": self._feedback,
        }
        return replies[path.removeprefix("/proxy")](body)

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        _check(_CHAT, CompletionCreateParamsNonStreaming, body)
        if "response_format" in body:
            _check_strict(body["response_format"]["json_schema"])
        for tool in body.get("tools", ()):
            _check_strict({**tool["function"], "schema": tool["function"]["parameters"]})
        words = len(json.dumps(body["messages"]).split())
        usage = CompletionUsage.model_validate(
            {
                "prompt_tokens": words,
                "completion_tokens": len(self.text.split()),
                "total_tokens": words + len(self.text.split()),
                "prompt_tokens_details": {"cached_tokens": words // 2},
            }
        )
        form = body.get("response_format", {}).get("json_schema", {}).get("schema")
        message: dict[str, Any] = {"role": "assistant", "content": _following(form, self.text)}
        finish = "stop"
        if called := called_by(body, self.text):
            message |= {"content": None, "tool_calls": [call_of(*called)]}
            finish = "tool_calls"
        _check_calls(body["messages"])
        choice = {"index": 0, "finish_reason": finish, "message": message}
        completion = {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return ChatCompletion.model_validate({**completion, "usage": usage}).model_dump()

    def _decision(self, body: dict[str, Any]) -> dict[str, Any]:
        _check(_DECISION, DecisionCreateParams, body)
        answers = []
        for question in body["questions"]:
            values = [choice["value"] for choice in question["choices"]]
            shares = self._shares(values)
            rows = [{"value": value, "probability": share} for value, share in shares.items()]
            answers.append({"type": "choice", "choice": values[0], "confidence": 0.5, "probabilities": rows})
        usage = {
            "input_tokens": 100,
            "output_tokens": 1,
            "total_tokens": 101,
            "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return Decision.model_validate({"answers": answers, "model": body["model"], "usage": usage}).model_dump()

    def _systemone(self, body: dict[str, Any]) -> dict[str, Any]:
        request = ollama._types.SystemOneRequest.model_validate(body)
        shares = {name: self._shares(list(question.criteria)) for name, question in request.questions.items()}
        answers = {
            n: {"type": "choice", "choice": max(s, key=s.get), "probabilities": s, "confidence": 0.5} for n, s in shares.items()
        }
        response = {"model": request.model, "answers": answers, "usage": {"input_tokens": 50, "output_tokens": 0}}
        return ollama._types.SystemOneResponse.model_validate(response).model_dump()

    def _shares(self, options: list[str]) -> dict[str, float]:
        """Return the probability of each option; refuse as `transformers serve` does, which has 26 letters."""
        if not 2 <= len(options) <= self.most_options or len(set(options)) < len(options):
            raise ValueError(f"this model reads at most {self.most_options} options for a choice question, got {len(options)}")
        return dict(zip(options, _falling(len(options)), strict=True))

    def _ollama_chat(self, body: dict[str, Any]) -> dict[str, Any]:
        request = ollama._types.ChatRequest.model_validate(body)
        unknown = set(body.get("options", {})) - set(ollama.Options.model_fields) - {"min_p"}  # the server takes it, too
        if unknown or request.stream:
            raise ValueError(f"unknown options {unknown}, or a stream")
        message: dict[str, Any] = {"role": "assistant", "content": _following(body.get("format"), self.text)}
        if called := called_by(body, self.text):
            message |= {"content": "", "tool_calls": [{"function": {"name": called[0], "arguments": called[1]}}]}
        response = {"model": request.model, "message": message, "done": True, "prompt_eval_count": 20, "eval_count": 3}
        return ollama.ChatResponse.model_validate(response).model_dump()

    def _inference(self, body: dict[str, Any]) -> dict[str, Any]:
        if not body["function_name"] or any(message["role"] not in ("user", "assistant") for message in body["input"]["messages"]):
            raise ValueError("expected a function, and messages of user and assistant")
        return {
            "inference_id": str(uuid7()),
            "episode_id": body.get("episode_id") or str(uuid7()),
            "variant_name": body.get("variant_name") or "plain",
            "content": [{"type": "text", "text": self.text}],
            "usage": {"input_tokens": 20, "output_tokens": 3},
            "finish_reason": "stop",
        }

    def _feedback(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["metric_name"] not in ("episode_return", "progression") or not isinstance(body["value"], float):
            raise ValueError("expected a known metric, with a float")
        return {"feedback_id": str(uuid7())}


def _check(adapter: TypeAdapter[Any], typed: Any, body: dict[str, Any]) -> None:
    """Raise ValueError unless the body is of the client's type, in all its parts, and has no other fields."""
    unknown = body.keys() - (typed.__required_keys__ | typed.__optional_keys__)
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    adapter.dump_json(adapter.validate_python(body))  # dumping reads the parts, which pydantic validates as they are read


def _check_strict(schema: dict[str, Any]) -> None:
    """Raise ValueError where OpenAI's strict mode refuses a schema: open objects, optional properties."""
    if not (schema["strict"] and schema["name"] and schema["schema"]["type"] == "object"):
        raise ValueError("expected a strict schema of an object, with a name")
    parts = [schema["schema"]]
    while parts:
        part = parts.pop()
        if part.get("type") == "object":
            properties = part.get("properties", {})
            if part.get("additionalProperties") is not False or set(part.get("required", ())) != set(properties):
                raise ValueError("expected additionalProperties: false, and every property required")
            parts += properties.values()
        parts += [part["items"]] if "items" in part else []


def call_of(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    """Return a call in OpenAI's protocol."""
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def called_by(body: dict[str, Any], text: str) -> tuple[str, dict[str, str]] | None:
    """Return the function and the arguments with which a model that says `text` calls its only tool; None if it cannot."""
    if not body.get("tools"):
        return None
    (tool,) = body["tools"]
    ((name, argument),) = tool["function"]["parameters"]["properties"].items()
    return (tool["function"]["name"], {name: text}) if text in argument.get("enum", (text,)) else None


def _following(schema: dict[str, Any] | None, text: str) -> str:
    """Return an object whose action is one that the schema allows. Other texts are those of a server that ignores schemas."""
    if not schema or not text.startswith("{") or '"action"' not in text:
        return text
    fields, part = json.loads(text), schema["properties"]["action"]
    return text if fields["action"] in part.get("enum", fields.values()) else json.dumps(fields | {"action": part["enum"][0]})


def _check_calls(messages: list[dict[str, Any]]) -> None:
    """Raise ValueError unless each result of a tool follows the call that it names, as OpenAI wants."""
    asked: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in asked:
                raise ValueError("messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
            asked.remove(message["tool_call_id"])
        elif asked:
            raise ValueError(f"expected results of the calls {asked}")
        asked += [call["id"] for call in message.get("tool_calls", ())]


def _falling(count: int) -> list[float]:
    weights = [1 / (i + 1) for i in range(count)]
    return [weight / sum(weights) for weight in weights]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ProviderServer
    disable_nagle_algorithm = True
    timeout = 60

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            number = len(server.requests)
            server.requests.append((self.path, dict(self.headers), body))
            fault = server.faults.popleft() if server.faults else None
        if number >= server.most_requests:
            fault = Fault(403, "too many requests for a test")
        if fault:
            self._fail(fault)
            return
        wait = server.latency(number)
        time.sleep(wait)
        try:
            self._send(200, json.dumps(server.reply(self.path, body)).replace("{wait}", f"{wait:.6f}"))
        except Refused as error:
            self._send(400, json.dumps(error.body))
        except (ValueError, KeyError, TypeError) as error:
            server.refusal = f"{type(error).__name__}: {error}"
            self._send(400, json.dumps({"error": {"message": server.refusal}}))

    def do_GET(self) -> None:
        """Say that the server is there."""
        self._send(200, "{}")

    def _fail(self, fault: Fault) -> None:
        time.sleep(fault.late)
        if fault.drop:
            self.close_connection = True
            self.connection.close()
            return
        with contextlib.suppress(ConnectionError):  # the client may have left
            self._send(fault.status, fault.body, fault.headers, fault.content_type, torn=fault.torn)

    def _send(
        self,
        status: int,
        body: str | bytes,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
        *,
        torn: bool = False,
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if torn else data)
        if torn:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def running(server: ProviderServer) -> Any:
    """Serve in a thread while the block runs."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def spread(number: int) -> float:
    """Return the latency of a request in seconds: 0.05 to 0.5, evenly spread."""
    return 0.05 + 0.45 * ((number * 0.6180339887) % 1)


def mischief(silence: float) -> dict[str, Fault]:
    """Return what a provider may do in place of a chat's answer, by name; saying nothing lasts so many seconds."""

    def completion(text: str) -> str:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return json.dumps({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})

    answer = completion("turn left")
    return {
        "429": Fault(429, "slow down", {"Retry-After": "0"}),
        "500": Fault(500, "oops"),
        "empty body": Fault(200, ""),
        "no choices": Fault(200, "{}"),
        "empty text": Fault(200, completion("")),
        "half a JSON": Fault(200, answer[: len(answer) // 2]),
        "10 MB of text": Fault(200, completion("turn left " * 2**20)),
        "10 MB of braces": Fault(200, "{" * (10 * 2**20)),
        "silence": Fault(late=silence, drop=True),
        "invalid UTF-8": Fault(200, answer.encode().replace(b"turn", b"\xff\xfe\x80")),
        "connection closed": Fault(drop=True),
        "closed in the middle": Fault(200, answer, torn=True),
    }


def random_mischief(requests: int, seed: int, silence: float) -> list[Fault | None]:
    """Return what happens to each of so many requests: to half of them nothing, to the others each mischief in random order."""
    kinds, rng = list(mischief(silence).values()), random.Random(seed)
    plan = [kinds[i // 2 % len(kinds)] if i % 2 else None for i in range(requests)]
    rng.shuffle(plan)
    return plan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve with latencies of 0.05 to 0.5 s, or with faults, for a time.")
    parser.add_argument("--host", choices=["127.0.0.1"], default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--mischief", type=int, default=0, help="requests, half of which meet a fault, in random order")
    options = parser.parse_args()
    server = ProviderServer(port=options.port, text="turn left {wait}", latency=None if options.mischief else spread)
    server.faults += random_mischief(options.mischief, 0, silence=20.0)
    with running(server):
        time.sleep(options.seconds)
