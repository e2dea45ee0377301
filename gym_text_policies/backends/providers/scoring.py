"""Servers that give log-probabilities of tokens: one class for each kind of server.

A server is asked for the log-probability of each token of several paths behind a prompt: the candidates of mode ``choose``, each
with the end of turn. Requests are made so that the server computes the prompt once, and uses its cache of earlier prompts.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gym_text.errors import UsageError
from gym_text_policies.backends.providers.chats import finish_of
from gym_text_policies.backends.providers.checks import count
from gym_text_policies.backends.providers.connection import Connection
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.paths import Paths, Reading, ToWrite, Writing, along, followers, parted
from gym_text_policies.backends.providers.tokenizers import load_tokenizer

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
        """Return the model's tokenizer.

        Raises:
            UsageError: If it cannot be loaded.
        """
        name = self._tokenizer_name(server)
        why = f"tokenizer: expected that of the model {server.model!r}, which {self.name} leaves to its client; got {name!r}."
        return load_tokenizer(name, why=why)

    def compare(self, server: Connection, tokenizer: Any, arguments: Mapping[str, Any]) -> None:
        """Check that the server gives a chat the same tokens as this process, with these template arguments.

        Raises:
            UsageError: If the tokens differ.
        """
        messages = list(_CHECKED)
        own = list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, **arguments)["input_ids"])
        body = {"model": server.model, "messages": messages, "add_generation_prompt": True}
        tokens = server.post("/tokenize", body | ({"chat_template_kwargs": dict(arguments)} if arguments else {}))["tokens"]
        if own != tokens:
            name = self._tokenizer_name(server)
            given = f" with the template arguments {dict(arguments)}" if arguments else ""
            raise UsageError(
                f"tokenizer: expected the tokens that {self.name} gives a chat{given}; {name!r} gives {own}, the server "
                f"{tokens}. Name the served model's tokenizer: tokenizer='hf:OWNER/NAME', or the folder of its files."
            )

    def _tokenizer_name(self, server: Connection) -> str:
        return self._tokenizer or self._model_path(server)

    @abstractmethod
    def read(self, server: Connection, prompt: Sequence[int], paths: Paths) -> Reading:
        """Return the log-probabilities of paths behind a prompt."""

    @abstractmethod
    def write(self, server: Connection, prompt: Sequence[int], wanted: ToWrite) -> Writing | None:
        """Generate tokens behind a prompt; None if this kind of server does not tell their exact log-probabilities."""

    def _model_path(self, server: Connection) -> str:
        """Return the server's name for the model: a folder, or a name on the hub."""
        return str(self._row["root"])


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

    def write(self, server: Connection, prompt: Sequence[int], wanted: ToWrite) -> Writing:
        """Ask for a completion with `return_token_ids`, which vLLM has since 0.10.2.

        By default vLLM gives log-probabilities before the temperature and the limits are applied. Only at temperature 1 and without
        limits are these the ones of the draws. At temperature 0 nothing is drawn.

        Raises:
            UsageError: If the log-probabilities are needed, and would be those of another distribution.
        """
        if wanted.exact and (wanted.temperature not in (0, SAMPLED) or wanted.limits):
            raise UsageError(
                "temperature: expected 0 or 1 with tokens=True and vLLM, and no top_p, top_k or min_p: it gives log-probabilities "
                f"at 1 without limits; got {wanted.temperature:g} {wanted.limits or ''}".rstrip()
                + "."
            )
        body = {
            "model": server.model,
            "prompt": list(prompt),
            "max_tokens": wanted.most,
            "temperature": wanted.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "repetition_penalty": 1.0,
            "return_token_ids": True,
            **wanted.limits,
            **wanted.drawn,
        }
        if wanted.exact:
            body["logprobs"] = 0
        elif wanted.stop:
            body |= {"stop": [wanted.stop], "include_stop_str_in_output": True, "skip_special_tokens": False}
        if wanted.schema is not None:
            body["structured_outputs"] = {"json": dict(wanted.schema)}
        choice = server.post("/v1/completions", body)["choices"][0]
        tokens = [int(token) for token in choice["token_ids"]]
        log_probs = [float(value) for value in choice["logprobs"]["token_logprobs"]] if wanted.exact else []
        if list(choice.get("prompt_token_ids") or prompt) != list(prompt) or (wanted.exact and len(tokens) != len(log_probs)):
            raise CallError("expected the tokens that were sent, and a log-probability for each that was drawn; got others")
        return Writing(choice["text"], tokens, log_probs, None, finish_of(choice.get("finish_reason")))


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

    def write(self, server: Connection, prompt: Sequence[int], wanted: ToWrite) -> Writing | None:
        """Ask for a completion. Its log-probabilities depend on how the server was started, so they are not asked for."""
        if wanted.exact:
            return None
        settings: dict[str, Any] = {"max_new_tokens": wanted.most, "temperature": wanted.temperature, **wanted.limits}
        if wanted.drawn:
            settings["sampling_seed"] = wanted.seed
        if wanted.stop:
            settings |= {"stop": [wanted.stop], "no_stop_trim": True, "skip_special_tokens": False}
        if wanted.schema is not None:
            settings["json_schema"] = json.dumps(wanted.schema)
        answer = server.post("/generate", {"input_ids": list(prompt), "sampling_params": settings})
        info = answer["meta_info"]
        computed = count(info["prompt_tokens"]) - count(info["cached_tokens"])
        finish = finish_of((info.get("finish_reason") or {}).get("type"))
        return Writing(answer["text"], [int(token) for token in answer["output_ids"]], [], computed, finish)

    def _model_path(self, server: Connection) -> str:
        return str(server.get("/model_info")["tokenizer_path"])
