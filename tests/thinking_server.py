"""Servers of a model that thinks, by the protocols of vLLM, llama.cpp, OpenAI and Ollama. A game's expert answers in its place.

The model's tokens are words with the space before them. A thought and an answer share one limit of tokens.
"""

import contextlib
import json
import re
from dataclasses import dataclass

import ollama
import openai
from openai.types.chat import ChatCompletion
from provider_server import ProviderServer, Refused, call_of, called_by, running

from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.connection import Connection

THOUGHT = (
    "Okay, I do not want to pick up anything, nor to drop it. First I could turn left, or toggle the door, but then I would answer "
    '{"action": "drop"} and that is wrong. Wait. If I turn right, the goal is behind me; if I go forward, it may be a wall. So the '
    "letter could be A: or B: or C: but I am not sure yet, and so I look again at what I see and compare it with what is asked of "
    "me in this game, step by step, until I know which of the actions brings me nearer to the goal."
)
OPENAI_EFFORTS = ("none", "low", "medium", "high")
KINDS = ("vllm", "vllm without a parser", "llama.cpp", "openai", "ollama")
_PIECES = re.compile(r"\s*\S+")


def expert_of(make, seeds):
    """Return a player that knows the expert's action for each goal and text that are seen in these episodes."""
    known = {}
    for seed in seeds:
        env = make(expert="replan")
        obs, info = env.reset(seed=seed)
        over = False
        while not over:
            known[obs["goal"], obs["text"]] = info["gold_action"]
            spec = env.get_wrapper_attr("text_spec")
            obs, _, terminated, truncated, info = env.step(spec.encode(info["gold_action"], obs))
            over = terminated or truncated
        env.close()

    def player(asked, chat=""):
        met = [(len(goal + text), action) for (goal, text), action in known.items() if goal in asked + chat and text in asked]
        return max(met, default=(0, None))[1]

    return player


@dataclass
class Said:
    """What the model generated within its limit."""

    thought: str | None
    answer: str
    pieces: list[str]
    thought_pieces: int
    closed: bool
    cut: bool


class ThinkingServer(ProviderServer):
    """A server of a model that thinks.

    Args:
        kind: One of `KINDS`.
        player: Returns the action for a prompt's text.
        thought: What the model thinks.
        opens: Whether the model writes the opening marker itself; else its chat template does.
    """

    def __init__(self, kind, player=lambda *chat: "go forward", *, thought=THOUGHT, opens=False):
        super().__init__()
        self.kind, self.player, self.thought, self.opens = kind, player, thought, opens
        self.answered = []  # the requests of chats that were not refused

    def generate(self, messages, schema, limit, *, thinks):
        """Return what the model says to a chat."""
        asked, chat = messages[-1]["content"], "\n".join(message.get("content") or "" for message in messages)
        thought = [*(["<think>\n"] if self.opens else []), *_PIECES.findall(self.thought), "\n</think>"] if thinks else []
        action = self.player(asked, chat) or "yes"
        answer = action
        if schema is not None:
            allowed = schema["properties"].get("action", {}).get("enum", [action])
            action = action if action in allowed else allowed[0]
            answer = json.dumps({name: action if name == "action" else "" for name in schema["properties"]})
        pieces = [*thought, *_PIECES.findall(("\n\n" if thinks else "") + answer)]
        kept = pieces[:limit]
        closed = len(kept) >= len(thought)
        inner = kept[: len(thought) - 1 if closed else None]
        return Said(
            "".join(inner).removeprefix("<think>").strip() if thinks else None,
            "".join(kept[len(thought) :]).strip(),
            kept,
            min(len(kept), len(thought)),
            closed,
            len(kept) < len(pieces),
        )

    def _completion(self, body):
        super()._completion({name: value for name, value in body.items() if name not in self._more(body)} | self._plain(body))
        schema = body["response_format"]["json_schema"]["schema"] if "response_format" in body else None
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        said = self.generate(body["messages"], schema, limit, thinks=self._thinks(body))
        message = {"role": "assistant", "content": said.answer or None}
        if said.thought is not None and self.kind in ("vllm", "llama.cpp"):
            message["reasoning_content"] = said.thought
        elif said.thought is not None and self.kind == "vllm without a parser":
            message["content"] = "".join(said.pieces)
        finish = "length" if said.cut else "stop"
        if not said.cut and (call := called_by(body, said.answer)):
            before = "".join(said.pieces[: said.thought_pieces]) if self.kind == "vllm without a parser" else None
            finish, message = "tool_calls", message | {"content": before, "tool_calls": [call_of(*call)]}
        choice = {"index": 0, "finish_reason": finish, "message": message}
        words = len(json.dumps(body["messages"]).split())
        self.answered.append(body)
        usage = {"prompt_tokens": words, "completion_tokens": len(said.pieces), "total_tokens": words + len(said.pieces)}
        if self.kind == "openai":
            usage["completion_tokens_details"] = {"reasoning_tokens": said.thought_pieces}
        completion = {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
        return ChatCompletion.model_validate(completion).model_dump()

    def _more(self, body):
        """Return the fields that OpenAI's protocol does not have and this server takes; refuse what OpenAI's models do."""
        if self.kind != "openai":
            return ("chat_template_kwargs", "top_k", "min_p")
        for name in ("max_tokens", "temperature", "seed", "top_p"):
            if name in body:
                instead = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
                words = f"Unsupported parameter: '{name}' is not supported with this model.{instead}"
                raise Refused(words, param=name, code="unsupported_parameter")
        if "chat_template_kwargs" in body:
            raise Refused("Unrecognized request argument supplied: chat_template_kwargs")
        if (effort := body.get("reasoning_effort", "low")) not in OPENAI_EFFORTS:
            words = f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this model. Supported values are: "
            raise Refused(words + ", ".join(OPENAI_EFFORTS), param="reasoning_effort", code="unsupported_value")
        return ()

    def _plain(self, body):
        """Return the messages without the field in which these servers take earlier thoughts."""
        if self.kind == "openai":
            return {}
        rows = [{name: text for name, text in message.items() if name != "reasoning_content"} for message in body["messages"]]
        return {"messages": rows}

    def _thinks(self, body):
        if self.kind == "openai":
            return body.get("reasoning_effort") != "none"
        return body.get("chat_template_kwargs", {}).get("enable_thinking", True)

    def _decision(self, body):
        decision = super()._decision(body)
        asked = body["input"][-1]["content"]
        rows = decision["answers"][0]["probabilities"]
        best = max(rows, key=lambda row: row["probability"])
        wanted = next(row for row in rows if row["value"] == (self.player(asked) or best["value"]))
        best["probability"], wanted["probability"] = wanted["probability"], best["probability"]
        return decision

    def _systemone(self, body):
        response = super()._systemone(body)
        probabilities = response["answers"]["action"]["probabilities"]
        best, wanted = (
            max(probabilities, key=probabilities.get),
            self.player(body["state"]) or max(probabilities, key=probabilities.get),
        )
        probabilities[best], probabilities[wanted] = probabilities[wanted], probabilities[best]
        return response

    def _ollama_chat(self, body):
        super()._ollama_chat(body)
        limit, thinks = body["options"]["num_predict"], body.get("think") is not False
        said = self.generate(body["messages"], body.get("format"), limit, thinks=thinks)
        self.answered.append(body)
        message = {"role": "assistant", "content": said.answer, "thinking": said.thought}
        if not said.cut and (call := called_by(body, said.answer)):
            message |= {"content": "", "tool_calls": [{"function": {"name": call[0], "arguments": call[1]}}]}
        response = {"model": body["model"], "message": message, "done": True, "done_reason": "length" if said.cut else "stop"}
        return ollama.ChatResponse.model_validate(response | {"prompt_eval_count": 20, "eval_count": len(said.pieces)}).model_dump()


@contextlib.contextmanager
def served(kind, *args, provider=None, options=None, **settings):
    """Yield a server of a kind, and a model behind it; one of OpenAI is asked as at OpenAI's own address."""
    with running(ThinkingServer(kind, *args, **settings)) as server:
        provider = provider or ("ollama" if kind == "ollama" else "openai")
        url = f"{server.url}/v1" if provider == "openai" else server.url
        address = {} if kind == "openai" else {"base_url": url}
        with contextlib.closing(load_backend(f"{provider}:m", **address, **(options or {}))) as backend:
            if kind == "openai":
                backend._client = Connection(openai.OpenAI(base_url=url, api_key="none", max_retries=0), "m")
            yield server, backend
