"""llama.cpp's server as a `ScoringServer`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gym_text_policies.backends.providers.chats import finish_of
from gym_text_policies.backends.providers.checks import count
from gym_text_policies.backends.providers.connection import Connection
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.llama_cpp_tokenizer import MARK, LlamaCppTokenizer
from gym_text_policies.backends.providers.paths import Paths, Reading, ToWrite, Writing, along, followers
from gym_text_policies.backends.providers.scoring import ScoringServer

_FORCED = 1e4
"""Bias in nats with which a token is always taken."""
_PREFERRED = 100.0
"""Bias in nats for several tokens. All other tokens get a negligible probability. The probabilities of the biased tokens relative
to each other keep their digits."""
_LIMITS = ("top_k", "top_p", "min_p")
"""In the order in which a model in this process applies them, and transformers' `generate`."""
_LEAST_SHARE = 1e-30
"""Least relative probability that has all digits of a float32."""


class LlamaCpp(ScoringServer):
    """llama.cpp's server. It tokenises by itself. A request reuses the key-value cache of the last request in the same slot.

    A request forces a token by a bias, and the server returns the token's log-probability without the bias. If several tokens may
    follow, another request gives all of them the same bias, which does not change their probabilities relative to each other. So
    two requests give the log-probabilities of all of them. Tried with build 11549 of October 2026.
    """

    name, owner = "llama.cpp", "llamacpp"

    def window(self, server: Connection) -> int:
        """Return the number of tokens that a slot has room for."""
        return int(server.get("/props")["default_generation_settings"]["n_ctx"])

    def tokenizer(self, server: Connection) -> Any:
        """Return a tokenizer that asks the server."""
        properties = server.get("/props")
        template = properties.get("chat_template") or ""
        return LlamaCppTokenizer(server.post, properties["bos_token"] or "", properties["eos_token"] or "", template)

    def compare(self, server: Connection, tokenizer: Any, arguments: Mapping[str, Any]) -> None:
        """Check nothing: the server itself tokenises."""

    def read(self, server: Connection, prompt: Sequence[int], paths: Paths) -> Reading:
        """Ask for the tokens behind each beginning of the paths, one beginning after the other."""
        questions = _Questions(server)
        following = sorted(followers(paths).items())
        log_probs_behind = {beginning: questions.log_probs([*prompt, *beginning], tokens) for beginning, tokens in following}
        return Reading(along(paths, log_probs_behind), questions.computed)

    def write(self, server: Connection, prompt: Sequence[int], wanted: ToWrite) -> Writing:
        """Ask for a completion. If tokens are drawn, the probabilities are those after the temperature and the limits."""
        samplers = ["temperature", *(name for name in _LIMITS if name in wanted.limits)]
        body = {
            "prompt": list(prompt),
            "n_predict": wanted.most,
            "temperature": wanted.temperature,
            "samplers": samplers,
            "return_tokens": True,
            "cache_prompt": True,
            **wanted.limits,
            **wanted.drawn,
        }
        if wanted.exact:
            body |= {"n_probs": 1, "post_sampling_probs": wanted.temperature > 0}
        elif wanted.stop:
            # special tokens stand in the text, and so stop it, only if they are named here
            body |= {"stop": [wanted.stop], "preserved_tokens": MARK.findall(wanted.stop)}
        if wanted.schema is not None:
            body["json_schema"] = dict(wanted.schema)
        answer = server.post("/completion", body)
        tokens = [int(token) for token in answer["tokens"]]
        log_probs = _log_probs(answer["completion_probabilities"], tokens, drawn=wanted.temperature > 0) if wanted.exact else []
        computed, finish = count(answer["timings"]["prompt_n"]), finish_of(answer.get("stop_type"))
        return Writing(answer["content"], tokens, log_probs, computed, finish)


def _log_probs(rows: Sequence[Mapping[str, Any]], tokens: Sequence[int], *, drawn: bool) -> list[float]:
    """Return the log-probability of each generated token."""
    if [row["id"] for row in rows] != list(tokens):
        raise CallError(f"expected probabilities of the tokens {tokens}; got those of {[row['id'] for row in rows]}")
    return [math.log(row["prob"]) if drawn else float(row["logprob"]) for row in rows]


class _Questions:
    """Questions about next tokens to a llama.cpp server."""

    def __init__(self, server: Connection) -> None:
        self._server = server
        self.computed = 0

    def log_probs(self, tokens: list[int], wanted: Sequence[int]) -> dict[int, float]:
        """Return the log-probability of each wanted token behind some tokens, mostly by one or two requests."""
        shares = self._shares(tokens, wanted) if len(wanted) > 1 else {}
        best = max(wanted, key=lambda token: shares.get(token, 0.0))
        log_prob_of = {best: self._forced(tokens, best)}
        for token in wanted:
            if token not in log_prob_of:
                share = shares.get(token, 0.0)
                known = share > _LEAST_SHARE
                log_prob_of[token] = log_prob_of[best] + math.log(share / shares[best]) if known else self._forced(tokens, token)
        return log_prob_of

    def _forced(self, tokens: list[int], wanted: int) -> float:
        """Return the log-probability of one token."""
        row = self._ask(tokens, {wanted: _FORCED})
        if row["id"] != wanted:
            raise CallError(f"expected token {wanted}, which has a bias of {_FORCED:g}; got {row['id']}")
        return float(row["logprob"])

    def _shares(self, tokens: list[int], wanted: Sequence[int]) -> dict[int, float]:
        """Return the probabilities of tokens relative to each other."""
        row = self._ask(tokens, dict.fromkeys(wanted, _PREFERRED), post_sampling_probs=True)
        return {entry["id"]: float(entry["prob"]) for entry in row["top_probs"]}

    def _ask(self, tokens: list[int], bias: Mapping[int, float], **fields: Any) -> Any:
        body = {
            "prompt": tokens,
            "n_predict": 1,
            "n_probs": len(bias),
            "logit_bias": [[token, value] for token, value in bias.items()],
            "samplers": [],  # only the bias, and no sampler that leaves out tokens
            "temperature": 1.0,
            "cache_prompt": True,
            "response_fields": ["completion_probabilities", "timings"],
        }
        answer = self._server.post("/completion", body | fields)
        self.computed += count(answer["timings"]["prompt_n"])
        return answer["completion_probabilities"][0]
