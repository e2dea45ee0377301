"""vLLM as a `TokenServer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.providers.chat_answers import finish_of
from gym_text_policies.backends.providers.connection import CallError
from gym_text_policies.backends.providers.token_server import Candidates, Generated, TokenServer, along, draw_settings, next_tokens
from gym_text_policies.records import Message

_MOST_TOKENS = 128
"""vLLM's limit of `logprob_token_ids` in a request (`MAX_LOGPROB_TOKEN_IDS` of 0.32)."""


class VLLM(TokenServer):
    """vLLM: one request has all beginnings of the candidates as prompts, and asks for the wanted tokens by `logprob_token_ids`.

    `prompt_logprobs` would need only one sequence for each candidate, but would compute the prompt anew. The number of cached
    tokens is unknown, as the server tells it for one sequence of a request only. Tried with 0.32 on a CPU.
    """

    name, owner = "vLLM", "vllm"

    @property
    def window(self) -> int:
        """The most tokens that the model reads."""
        return int(self._row["max_model_len"])

    @property
    def path(self) -> str:
        """The server's name for the model, which is a folder or a name on the hub."""
        return str(self._row["root"])

    def chat_tokens(self, chat: Sequence[Message], arguments: Mapping[str, Any]) -> list[int]:
        """Ask for the tokens of the chat."""
        body = {"model": self._server.model, "messages": list(chat), "add_generation_prompt": True}
        body |= {"chat_template_kwargs": dict(arguments)} if arguments else {}
        return list(self._server.post("/tokenize", body)["tokens"])

    def score(self, prompt: Sequence[int], candidates: Candidates) -> tuple[list[list[float]], int | None]:
        """Ask for the tokens behind all beginnings at once; more than 128 different tokens take several requests."""
        following = next_tokens(candidates)
        wanted = list(dict.fromkeys(token for tokens in following.values() for token in tokens))
        found: dict[tuple[int, ...], dict[int, float]] = {beginning: {} for beginning in following}
        for start in range(0, len(wanted), _MOST_TOKENS):
            part = wanted[start : start + _MOST_TOKENS]
            beginnings = [beginning for beginning, tokens in following.items() if not set(part).isdisjoint(tokens)]
            body = {
                "model": self._server.model,
                "prompt": [[*prompt, *beginning] for beginning in beginnings],
                "max_tokens": 1,
                "temperature": 1.0,
                "logprobs": len(part),
                "logprob_token_ids": part,
                "return_tokens_as_token_ids": True,
            }
            choices = sorted(self._server.post("/v1/completions", body)["choices"], key=lambda choice: choice["index"])
            for beginning, choice in zip(beginnings, choices, strict=True):
                rows = choice["logprobs"]["top_logprobs"][0]
                if any(f"token_id:{token}" not in rows for token in part):
                    raise CallError(
                        "expected the log-probabilities of logprob_token_ids, which vLLM 0.32 gives; this server does not"
                    )
                found[beginning] |= {token: float(rows[f"token_id:{token}"]) for token in part}
        return along(candidates, found), None

    def generate(self, prompt: Sequence[int], request: Request, stop: str = "") -> Generated:
        """Ask for a completion with `return_token_ids`, which vLLM has since 0.10.2.

        By default vLLM gives log-probabilities before the temperature and the limits are applied. Only at temperature 1 and without
        limits are these the ones of the draws. At temperature 0 nothing is drawn.

        Raises:
            UsageError: If the log-probabilities are needed, and would be those of another distribution.
        """
        limits = draw_settings(request).keys() - {"seed"}
        if request.tokens and (request.temperature not in (0, 1) or limits):
            raise UsageError(
                "temperature: expected 0 or 1 with tokens=True and vLLM, and no top_p, top_k or min_p: it gives log-probabilities "
                f"at 1 without limits; got {', '.join([f'{request.temperature:g}', *sorted(limits)])}."
            )
        body: dict[str, Any] = {
            "model": self._server.model,
            "prompt": list(prompt),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "repetition_penalty": 1.0,
            "return_token_ids": True,
            **draw_settings(request),
        }
        if request.tokens:
            body["logprobs"] = 0
        elif stop:
            body |= {"stop": [stop], "include_stop_str_in_output": True, "skip_special_tokens": False}
        if request.schema is not None:
            body["structured_outputs"] = {"json": dict(request.schema)}
        choice = self._server.post("/v1/completions", body)["choices"][0]
        tokens = [int(token) for token in choice["token_ids"]]
        log_probs = [float(value) for value in choice["logprobs"]["token_logprobs"]] if request.tokens else []
        if list(choice.get("prompt_token_ids") or prompt) != list(prompt) or (request.tokens and len(tokens) != len(log_probs)):
            raise CallError("expected the tokens that were sent, and a log-probability for each that was drawn; got others")
        return Generated(tokens, log_probs, None, finish_of(choice.get("finish_reason")))
