"""Servers that give log-probabilities of tokens: one class for each kind of server.

A server is asked for the log-probability of each token of several paths behind a prompt: the candidates of mode ``choose``, each
with the end of turn. Requests are made so that the server computes the prompt once, and uses its cache of earlier prompts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gym_text.errors import UsageError
from gym_text_policies.backends.providers.chats import finish_of
from gym_text_policies.backends.providers.checks import count
from gym_text_policies.backends.providers.connection import Connection
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.paths import Paths, Reading, Writing, along, followers, parted
from gym_text_policies.backends.providers.tokenizers import LlamaCppTokenizer, load_tokenizer

_FORCED = 1e4
"""Bias in nats with which a token is always taken."""
_PREFERRED = 100.0
"""Bias in nats for several tokens. All other tokens get a negligible probability. The probabilities of the biased tokens relative
to each other keep their digits."""
_LEAST_SHARE = 1e-30
"""Least relative probability that has all digits of a float32."""
_MOST_TOKENS = 128
"""vLLM's limit of `logprob_token_ids` in a request (`MAX_LOGPROB_TOKEN_IDS` of 0.32)."""
_CHECKED = ({"role": "user", "content": "You see a red ball.\n\nGo to it."},)
"""A chat whose tokens are compared with the server's."""
SAMPLED = 1.0
"""The temperature at which vLLM's log-probabilities are those of the distribution that it draws from."""


class ScoringServer(ABC):
    """One kind of server that gives log-probabilities.

    Args:
        row: The model's entry in ``/v1/models``.
        tokenizer: Name of the model's tokenizer, if the user gave one.
    """

    name: ClassVar[str]
    owner: ClassVar[str]
    """The owner of the models in this kind of server's ``/v1/models``."""

    def __init__(self, row: Mapping[str, Any], tokenizer: str | None) -> None:
        self._row = row
        self._tokenizer = tokenizer

    def window(self, server: Connection) -> int:
        """Return the most tokens that the model reads."""
        return int(self._row["max_model_len"])

    def tokenizer(self, server: Connection) -> Any:
        """Return the model's tokenizer, after a comparison of its tokens of a chat with the server's.

        Raises:
            UsageError: If it cannot be loaded, or differs from the server's.
        """
        name = self._tokenizer or self._model_path(server)
        why = f"tokenizer: expected that of the model {server.model!r}, which {self.name} leaves to its client; got {name!r}."
        tokenizer = load_tokenizer(name, why=why)
        tokens = list(tokenizer.apply_chat_template(list(_CHECKED), add_generation_prompt=True, return_dict=True)["input_ids"])
        answer = server.post("/tokenize", {"model": server.model, "messages": list(_CHECKED), "add_generation_prompt": True})
        if tokens != answer["tokens"]:
            raise UsageError(
                f"tokenizer: expected the tokens that {self.name} gives a chat; {name!r} gives {tokens}, the server "
                f"{answer['tokens']}. Name the served model's tokenizer: tokenizer='hf:OWNER/NAME', or the folder of its files."
            )
        return tokenizer

    @abstractmethod
    def read(self, server: Connection, prompt: Sequence[int], paths: Paths) -> Reading:
        """Return the log-probabilities of paths behind a prompt."""

    def write(self, server: Connection, prompt: Sequence[int], most: int, temperature: float, seed: int | None) -> Writing | None:
        """Generate at most `most` tokens behind a prompt; None if this kind of server does not tell its tokens."""
        return None

    def _model_path(self, server: Connection) -> str:
        """Return the server's name for the model: a folder, or a name on the hub."""
        return str(self._row["root"])


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
        return LlamaCppTokenizer(server.post, properties["bos_token"] or "", properties["eos_token"], template)

    def read(self, server: Connection, prompt: Sequence[int], paths: Paths) -> Reading:
        """Ask for the tokens behind each beginning of the paths, one beginning after the other."""
        questions = _Questions(server)
        following = sorted(followers(paths).items())
        log_probs_behind = {beginning: questions.log_probs([*prompt, *beginning], tokens) for beginning, tokens in following}
        return Reading(along(paths, log_probs_behind), questions.computed)

    def write(self, server: Connection, prompt: Sequence[int], most: int, temperature: float, seed: int | None) -> Writing:
        """Ask for a completion. If tokens are drawn, the probabilities are those after the temperature, the only sampler."""
        drawn = temperature > 0
        body = {
            "prompt": list(prompt),
            "n_predict": most,
            "temperature": temperature,
            "samplers": ["temperature"],
            "n_probs": 1,
            "post_sampling_probs": drawn,
            "return_tokens": True,
            "cache_prompt": True,
        }
        answer = server.post("/completion", body | ({"seed": seed} if drawn and seed is not None else {}))
        rows = answer["completion_probabilities"]
        tokens = [int(token) for token in answer["tokens"]]
        if [row["id"] for row in rows] != tokens:
            raise CallError(f"expected probabilities of the tokens {tokens}; got those of {[row['id'] for row in rows]}")
        log_probs = [math.log(row["prob"]) if drawn else float(row["logprob"]) for row in rows]
        computed, finish = count(answer["timings"]["prompt_n"]), finish_of(answer.get("stop_type"))
        return Writing(answer["content"], tokens, log_probs, computed, finish)


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


class VLLM(ScoringServer):
    """vLLM: one request has all beginnings of the paths as prompts, and asks for the wanted tokens by `logprob_token_ids`.

    `prompt_logprobs` would need only one sequence for each candidate, but would compute the prompt anew. The number of cached
    tokens is unknown, as the server tells it for one sequence of a request only. Tried with 0.32 on a CPU.
    """

    name, owner = "vLLM", "vllm"

    def read(self, server: Connection, prompt: Sequence[int], paths: Paths) -> Reading:
        """Ask for the tokens behind all beginnings at once; more than 128 different tokens take several requests."""
        log_probs_behind: dict[tuple[int, ...], dict[int, float]] = {}
        for part in parted(followers(paths), _MOST_TOKENS):
            wanted = sorted({token for _, tokens in part for token in tokens})
            body = {
                "model": server.model,
                "prompt": [[*prompt, *beginning] for beginning, _ in part],
                "max_tokens": 1,
                "temperature": 1.0,
                "logprobs": len(wanted),
                "logprob_token_ids": wanted,
                "return_tokens_as_token_ids": True,
            }
            answer = server.post("/v1/completions", body)
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            for (beginning, tokens), choice in zip(part, choices, strict=True):
                rows = choice["logprobs"]["top_logprobs"][0]
                if any(f"token_id:{token}" not in rows for token in tokens):
                    raise CallError(
                        "expected the log-probabilities of logprob_token_ids, which vLLM 0.32 gives; this server does not"
                    )
                log_probs_behind.setdefault(beginning, {}).update({token: float(rows[f"token_id:{token}"]) for token in tokens})
        return Reading(along(paths, log_probs_behind), None)

    def write(self, server: Connection, prompt: Sequence[int], most: int, temperature: float, seed: int | None) -> Writing:
        """Ask for a completion with `return_token_ids`, which vLLM has since 0.10.2.

        By default vLLM gives log-probabilities before the temperature is applied. Only at temperature 1 are these the ones of the
        draws. At temperature 0 nothing is drawn.

        Raises:
            UsageError: If the temperature is neither 0 nor 1.
        """
        if temperature not in (0, SAMPLED):
            raise UsageError(
                f"temperature: expected 0 or 1 with tokens=True and vLLM, which gives log-probabilities at 1; got {temperature:g}."
            )
        body = {
            "model": server.model,
            "prompt": list(prompt),
            "max_tokens": most,
            "temperature": temperature,
            "top_p": 1.0,
            "top_k": 0,
            "repetition_penalty": 1.0,
            "logprobs": 0,
            "return_token_ids": True,
        }
        answer = server.post("/v1/completions", body | ({"seed": seed} if seed is not None else {}))
        choice = answer["choices"][0]
        tokens = [int(token) for token in choice["token_ids"]]
        log_probs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
        finish = finish_of(choice.get("finish_reason"))
        if list(choice.get("prompt_token_ids") or prompt) != list(prompt) or len(tokens) != len(log_probs):
            raise CallError("expected the tokens that were sent, and a log-probability for each that was drawn; got others")
        return Writing(choice["text"], tokens, log_probs, None, finish)


class SGLang(ScoringServer):
    """SGLang: one request has the prompt with each path behind it, and asks for log-probabilities from the prompt's last token on.

    SGLang's radix cache keeps the prompt, and `logprob_start_len` is the number of its tokens that need not be computed. According
    to the source of 0.5.23 (`python/sglang/srt/managers/io_struct.py`, `scheduler_output_processor_mixin.py`), the first entry has
    no log-probability, and each further entry has that of its token.
    """

    name, owner = "SGLang", "sglang"

    def read(self, server: Connection, prompt: Sequence[int], paths: Paths) -> Reading:
        """Ask for all paths at once."""
        body = {
            "input_ids": [[*prompt, *path] for path in paths],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": len(prompt) - 1,
        }
        answers = server.post("/generate", body)
        log_probs = []
        for path, answer in zip(paths, answers, strict=True):
            rows = answer["meta_info"]["input_token_logprobs"][1:]
            if [token for _, token, *_ in rows] != list(path):
                raise CallError("expected log-probabilities of the tokens that were sent; got those of others")
            log_probs.append([float(value) for value, *_ in rows])
        infos = [answer["meta_info"] for answer in answers]
        return Reading(log_probs, sum(count(info["prompt_tokens"]) - count(info["cached_tokens"]) for info in infos))

    def _model_path(self, server: Connection) -> str:
        return str(server.get("/model_info")["tokenizer_path"])


FORMS: tuple[type[ScoringServer], ...] = (LlamaCpp, VLLM, SGLang)
