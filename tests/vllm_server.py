"""A test server with vLLM's protocol and the numbers of a small model, and the comparison of a served model with this process."""

import contextlib
import threading

import pytest
import torch
from json_server import JSONServer
from thinking_models import THOUGHTS, chat, taught

from gym_text_policies.backends.base import Request

CHOICES = ("turn left", "go forward", "pick up", "turn left <|im_end|>")
NAMES = ("text", "reasoning", "thought_cut", "tokens_reasoning", "tokens_out", "finish", "tokens_in")


def assert_equal(served, local, request):
    """Check that a server's answer is that of this process; return it."""
    (answer,), (own,) = served.answer([request]), local.answer([request])
    assert {name: getattr(answer, name) for name in NAMES} == {name: getattr(own, name) for name in NAMES}
    if request.choices:
        assert answer.probabilities == pytest.approx(dict(own.probabilities), abs=1e-3)
        assert answer.probability_kind == "likelihood"
    for text, tokens in (answer.tokens or {}).items():
        assert (tokens.prompt, tokens.said, tokens.written) == (
            own.tokens[text].prompt,
            own.tokens[text].said,
            own.tokens[text].written,
        )
        assert tokens.log_probs == pytest.approx(own.tokens[text].log_probs, abs=2e-3)
    assert bool(answer.tokens) == request.tokens
    return answer


class VLLMServer(JSONServer):
    """Answers as vLLM 0.32 does by its protocol, with the numbers of a small model that thinks."""

    def __init__(self, form, folder):
        super().__init__()
        self.folder = str(folder)
        self.model, self.tokenizer = taught(form)
        self.tokenizer.save_pretrained(folder)
        self.bodies = []
        self.value = None  # in place of every log-probability

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, path, body):
        self.bodies.append((path, body))
        if path == "/v1/models":
            row = {"id": "m", "object": "model", "owned_by": "vllm", "root": self.folder, "parent": None, "max_model_len": 1024}
            return 200, {"object": "list", "data": [row]}
        if path == "/tokenize":
            arguments = body.get("chat_template_kwargs", {})
            chat = self.tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, return_dict=True, **arguments)
            return 200, {"tokens": chat["input_ids"]}
        if path == "/v1/completions":
            return 200, {"choices": self.rows(body) if "logprob_token_ids" in body else [self.written(body)]}
        return 404, {"detail": "Not Found"}

    @torch.inference_mode()
    def log_probs(self, tokens):
        return self.model(torch.tensor([tokens])).logits[0].log_softmax(-1)

    def rows(self, body):
        wanted = body["logprob_token_ids"]
        for index, tokens in enumerate(body["prompt"]):
            row = self.log_probs(tokens)[-1]
            values = {f"token_id:{token}": float(row[token]) if self.value is None else self.value for token in wanted}
            yield {"index": index, "logprobs": {"top_logprobs": [values]}}

    def said(self, prompt, most, stop):
        """Return the most probable tokens and how they ended."""
        tokens = []
        while len(tokens) < most:
            tokens.append(int(self.log_probs([*prompt, *tokens])[-1].argmax()))
            text = self.tokenizer.decode(tokens)
            if tokens[-1] == self.tokenizer.eos_token_id or any(marker in text for marker in stop):
                return tokens, "stop"
        return tokens, "length"

    def written(self, body):
        assert not body.get("stop") or (body["include_stop_str_in_output"] and not body["skip_special_tokens"])
        tokens, finish = self.said(body["prompt"], body["max_tokens"], body.get("stop", ()))
        found = self.log_probs([*body["prompt"], *tokens])[len(body["prompt"]) - 1 : -1]
        values = [float(row[token]) for row, token in zip(found, tokens, strict=True)]
        text = self.tokenizer.decode(tokens, skip_special_tokens=body.get("skip_special_tokens", True))
        choice = {"text": text, "token_ids": tokens, "finish_reason": finish}
        return choice | ({"logprobs": {"token_logprobs": values}} if "logprobs" in body else {})


@contextlib.contextmanager
def serving_vllm(form, folder):
    server = VLLMServer(form, folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def assert_thinks_as_this_process_does(backend, local):
    for text, (thought, action) in THOUGHTS.items():
        answer = assert_equal(backend, local, Request(chat(text), CHOICES))
        assert (answer.reasoning, max(answer.probabilities, key=answer.probabilities.get)) == (thought, action)
    cut = assert_equal(backend, local, Request(chat("A wall."), CHOICES, think_tokens=3))
    assert cut.thought_cut and cut.tokens_reasoning <= 3
    for settings in ({"think": False}, {"think_tokens": 0}, {"think": True}, {"tokens": True}):
        assert_equal(backend, local, Request(chat("A wall."), CHOICES, **settings))
    for settings in ({}, {"think_tokens": 3}, {"think": False}, {"max_tokens": 1}):
        assert_equal(backend, local, Request(chat("A ball."), **({"max_tokens": 8, "tokens": True} | settings)))
