"""llama.cpp's server as a `TokenServer`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.chat_format import MARKER
from gym_text_policies.backends.providers.answer_checks import count
from gym_text_policies.backends.providers.chat_answers import finish_of
from gym_text_policies.backends.providers.connection import CallError
from gym_text_policies.backends.providers.token_server import Candidates, Generated, TokenServer, along, draw_settings, next_tokens
from gym_text_policies.records import Message

_FORCED = 1e4
"""Bias in nats with which a token is always taken."""
_PREFERRED = 100.0
"""Bias in nats for several tokens. All other tokens get a negligible probability. The probabilities of the biased tokens relative
to each other keep their digits."""
_LEAST_SHARE = 1e-30
"""Least relative probability that has all digits of a float32."""


class LlamaCpp(TokenServer):
    """llama.cpp's server. A request reuses the key-value cache of the last request in the same slot.

    A request forces a token by a bias, and the server returns the token's log-probability without the bias. If several tokens may
    follow, another request gives all of them the same bias, which does not change their probabilities relative to each other. So
    two requests give the log-probabilities of all of them. Tried with build 11549 of October 2026.
    """

    name, owner = "llama.cpp", "llamacpp"

    @cached_property
    def _properties(self) -> dict[str, Any]:
        return dict(self._server.get("/props"))

    @property
    def window(self) -> int:
        """The number of tokens that a slot has room for."""
        return int(self._properties["default_generation_settings"]["n_ctx"])

    @property
    def path(self) -> str:
        """The file of the model, on the server's machine."""
        return str(self._properties["model_path"])

    @property
    def template(self) -> str | None:
        """The chat template that the server was started with, or that of the model's file."""
        return self._properties.get("chat_template") or None

    def chat_tokens(self, chat: Sequence[Message], arguments: Mapping[str, Any]) -> list[int]:
        """Ask for the chat as text, and for the text's tokens."""
        body = {"messages": list(chat), "chat_template_kwargs": dict(arguments)}
        text = self._server.post("/apply-template", body)["prompt"]
        return list(self._server.post("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"])

    def score(self, prompt: Sequence[int], candidates: Candidates) -> tuple[list[list[float]], int | None]:
        """Ask for the tokens behind each beginning of the candidates, one beginning after the other."""
        found, computed = {}, 0
        for beginning, wanted in sorted(next_tokens(candidates).items()):
            found[beginning], read = self._log_probs([*prompt, *beginning], wanted)
            computed += read
        return along(candidates, found), computed

    def generate(self, prompt: Sequence[int], request: Request, stop: str = "") -> Generated:
        """Ask for a completion. If tokens are drawn, the probabilities are those after the temperature and the limits."""
        # a model in this process applies the limits in the same order, as transformers' `generate` does
        samplers = ["temperature", *(name for name in ("top_k", "top_p", "min_p") if name in draw_settings(request))]
        body: dict[str, Any] = {
            "prompt": list(prompt),
            "n_predict": request.max_tokens,
            "temperature": request.temperature,
            "samplers": samplers,
            "return_tokens": True,
            "cache_prompt": True,
            **draw_settings(request),
        }
        if request.tokens:
            body |= {"n_probs": 1, "post_sampling_probs": request.temperature > 0}
        elif stop:
            # special tokens stand in the text, and so stop it, only if they are named here
            body |= {"stop": [stop], "preserved_tokens": MARKER.findall(stop)}
        if request.schema is not None:
            body["json_schema"] = dict(request.schema)
        answer = self._server.post("/completion", body)
        tokens, log_probs = [int(token) for token in answer["tokens"]], []
        if request.tokens:
            rows = answer["completion_probabilities"]
            if [row["id"] for row in rows] != tokens:
                raise CallError(f"expected probabilities of the tokens {tokens}; got those of {[row['id'] for row in rows]}")
            log_probs = [math.log(row["prob"]) if request.temperature else float(row["logprob"]) for row in rows]
        computed, finish = count(answer["timings"]["prompt_n"]), finish_of(answer.get("stop_type"))
        return Generated(tokens, log_probs, computed, finish)

    def _log_probs(self, tokens: list[int], wanted: Sequence[int]) -> tuple[dict[int, float], int]:
        """Return the log-probability of each wanted token behind some tokens, and how many tokens the server computed."""
        shares, computed = {}, 0
        if len(wanted) > 1:
            row, computed = self._next(tokens, dict.fromkeys(wanted, _PREFERRED), post_sampling_probs=True)
            shares = {entry["id"]: float(entry["prob"]) for entry in row["top_probs"]}
        best = max(wanted, key=lambda token: shares.get(token, 0.0))
        found: dict[int, float] = {}
        for token in (best, *wanted):
            share = shares.get(token, 0.0)
            if token != best and share > _LEAST_SHARE:
                found[token] = found[best] + math.log(share / shares[best])
            elif token not in found:
                row, read = self._next(tokens, {token: _FORCED})
                if row["id"] != token:
                    raise CallError(f"expected token {token}, which has a bias of {_FORCED:g}; got {row['id']}")
                found[token], computed = float(row["logprob"]), computed + read
        return found, computed

    def _next(self, tokens: list[int], bias: Mapping[int, float], **fields: Any) -> tuple[Any, int]:
        """Return the probabilities of the next token with a bias, and how many tokens the server computed."""
        body = {
            "prompt": tokens,
            "n_predict": 1,
            "n_probs": len(bias),
            "logit_bias": [[token, value] for token, value in bias.items()],
            "samplers": [],  # only the bias, and no sampler that leaves out tokens
            "temperature": 1.0,
            "cache_prompt": True,
            "response_fields": ["completion_probabilities", "timings"],
            **fields,
        }
        answer = self._server.post("/completion", body)
        return answer["completion_probabilities"][0], count(answer["timings"]["prompt_n"])
