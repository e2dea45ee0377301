"""Thoughts of models behind servers that take tokens: the real llama.cpp, and the forms of vLLM and SGLang, beside this process."""

import contextlib
import json
import threading
from dataclasses import replace

import llama_server
import pytest
import torch
from json_server import JSONServer
from serving import serving
from thinking_models import TEMPLATES, THOUGHTS, chat, taught

from gym_text import UsageError
from gym_text.errors import BudgetError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.local.transformers import TransformersBackend

CHOICES = ("turn left", "go forward", "pick up")


@pytest.fixture(scope="module", params=TEMPLATES)
def llama(request, tmp_path_factory):
    """Return the address of a real llama.cpp that serves a model which has learnt to think, and the same model in this process."""
    pytest.importorskip("xllamacpp", reason="there is no wheel of xllamacpp for this machine")
    folder = tmp_path_factory.mktemp("llama")
    model, tokenizer = taught(request.param)
    file = llama_server.write_model(model, tokenizer, folder / "thinker.gguf")
    command = ["python", llama_server.__file__, "--model", str(file), "--float32", "--ctx-size", "1024"]
    with serving(command, "/health", folder / "log") as url:
        yield url, TransformersBackend(model, tokenizer, "thinker")


@pytest.fixture
def backend_of(monkeypatch):
    """Return a function that makes a backend of a server's address."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with contextlib.ExitStack() as stack:

        def make(url, **options):
            return stack.enter_context(contextlib.closing(load_backend("openai:m", base_url=f"{url}/v1", retries=0, **options)))

        yield make


def assert_equal(served, local, request):
    """Check that a server's answer is that of this process; return it."""
    (answer,), (own,) = served.answer([request]), local.answer([request])
    names = ("text", "reasoning", "thought_cut", "tokens_reasoning", "tokens_out", "finish", "tokens_in")
    assert {name: getattr(answer, name) for name in names} == {name: getattr(own, name) for name in names}
    if request.choices:
        assert answer.probabilities == pytest.approx(dict(own.probabilities), abs=1e-3)
    for text, tokens in (answer.tokens or {}).items():
        assert (tokens.prompt, tokens.said) == (own.tokens[text].prompt, own.tokens[text].said)
        assert tokens.written == own.tokens[text].written
        assert tokens.log_probs == pytest.approx(own.tokens[text].log_probs, abs=2e-3)
    assert bool(answer.tokens) == request.tokens
    return answer


@pytest.mark.parametrize("text", THOUGHTS)
def test_llama_cpp_chooses_behind_the_thought_as_this_process_does(llama, backend_of, text):
    url, local = llama
    backend, (thought, action) = backend_of(url), THOUGHTS[text]
    answer = assert_equal(backend, local, Request(chat(text), CHOICES))
    assert (answer.reasoning, answer.thought_cut) == (thought, False)
    assert max(answer.probabilities, key=answer.probabilities.get) == action
    tokens = assert_equal(backend, local, Request(chat(text), CHOICES, tokens=True)).tokens
    end = "<|return|>" if "<|return|>" in local._tokenizer.chat_template else "<|im_end|>"
    assert {row.said[-1] for row in tokens.values()} == {local._tokenizer.convert_tokens_to_ids(end)}, "as the template ends a turn"
    cut = assert_equal(backend, local, Request(chat(text), CHOICES, think_tokens=3))
    assert cut.thought_cut and cut.tokens_reasoning <= 3
    none = assert_equal(backend, local, Request(chat(text), CHOICES, think_tokens=0))
    assert none.thought_cut and none.tokens_reasoning == 0
    off = assert_equal(backend, local, Request(chat(text), CHOICES, think=False))
    assert (off.reasoning, off.thought_cut) == (None, False)


def test_llama_cpp_says_the_tokens_of_thought_and_answer(llama, backend_of):
    url, local = llama
    backend = backend_of(url)
    answer = assert_equal(backend, local, Request(chat("A wall."), max_tokens=8, tokens=True))
    assert (answer.text, answer.reasoning) == ("turn left", THOUGHTS["A wall."][0])
    for settings in ({"think_tokens": 3}, {"think": False}, {"max_tokens": 1}):
        assert_equal(backend, local, Request(chat("A ball."), **({"max_tokens": 8, "tokens": True} | settings)))


class TokenServer(JSONServer):
    """Answers as vLLM 0.32 (by its protocol) and as SGLang 0.5.23 (by its source), with the numbers of a model that thinks."""

    def __init__(self, kind, form, folder):
        super().__init__()
        self.kind, self.folder = kind, str(folder)
        self.model, self.tokenizer = taught(form)
        self.tokenizer.save_pretrained(folder)
        self.bodies = []

    def reply(self, path, body):
        self.bodies.append((path, body))
        if path == "/v1/models":
            row = {"id": "m", "object": "model", "owned_by": self.kind, "root": self.folder, "parent": None, "max_model_len": 1024}
            return 200, {"object": "list", "data": [row]}
        if path == "/model_info":
            return 200, {"tokenizer_path": self.folder}
        if path == "/tokenize":
            arguments = body.get("chat_template_kwargs", {})
            chat = self.tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, return_dict=True, **arguments)
            return 200, {"tokens": chat["input_ids"]}
        if path == "/v1/completions":
            return 200, {"choices": self.rows(body) if "logprob_token_ids" in body else [self.written(body)]}
        if path == "/generate":
            return 200, self.scored(body) if body.get("return_logprob") else self.generated(body)
        return 404, {"detail": "Not Found"}

    @torch.inference_mode()
    def log_probs(self, tokens):
        return self.model(torch.tensor([tokens])).logits[0].log_softmax(-1)

    def rows(self, body):
        wanted = body["logprob_token_ids"]
        for index, tokens in enumerate(body["prompt"]):
            row = self.log_probs(tokens)[-1]
            yield {"index": index, "logprobs": {"top_logprobs": [{f"token_id:{token}": float(row[token]) for token in wanted}]}}

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
        choice = {"text": self.tokenizer.decode(tokens), "token_ids": tokens, "finish_reason": finish}
        return choice | ({"logprobs": {"token_logprobs": values}} if "logprobs" in body else {})

    def scored(self, body):
        for tokens in body["input_ids"]:
            start, found = body["logprob_start_len"], self.log_probs(tokens)
            values = [None, *(float(found[index, tokens[index + 1]]) for index in range(start, len(tokens) - 1))]
            rows = [[value, token, None] for value, token in zip(values, tokens[start:], strict=True)]
            yield {"meta_info": {"input_token_logprobs": rows, "prompt_tokens": len(tokens), "cached_tokens": start}}

    def generated(self, body):
        settings = body["sampling_params"]
        assert not settings.get("stop") or (settings["no_stop_trim"] and not settings["skip_special_tokens"])
        tokens, finish = self.said(body["input_ids"], settings["max_new_tokens"], settings.get("stop", ()))
        info = {"prompt_tokens": len(body["input_ids"]), "cached_tokens": 0, "finish_reason": {"type": finish}}
        return {"text": self.tokenizer.decode(tokens), "output_ids": tokens, "meta_info": info}


@pytest.fixture
def token_server(request, tmp_path):
    """Return a server of a kind, with a model that has learnt to think in a form."""
    server = TokenServer(*request.param, tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "token_server", [("vllm", "switch"), ("vllm", "channels"), ("sglang", "opened"), ("sglang", "switch")], indirect=True, ids=str
)
def test_vllms_and_sglangs_forms_choose_behind_the_thought_as_this_process_does(token_server, backend_of):
    local = TransformersBackend(token_server.model, token_server.tokenizer, "thinker")
    backend = backend_of(f"http://127.0.0.1:{token_server.server_address[1]}", decide="logprobs")
    for text, (thought, action) in THOUGHTS.items():
        answer = assert_equal(backend, local, Request(chat(text), CHOICES))
        assert (answer.reasoning, max(answer.probabilities, key=answer.probabilities.get)) == (thought, action)
    for settings in ({"think": False}, {"think_tokens": 3}, {"think_tokens": 0}):
        assert_equal(backend, local, Request(chat("A wall."), CHOICES, **settings))
    compared = [body for path, body in token_server.bodies if path == "/tokenize"]
    assert len(compared) == len({json.dumps(body) for body in compared}), "the tokens of a setting are compared once"


@pytest.mark.parametrize("token_server", [("vllm", "switch")], indirect=True, ids=str)
def test_vllms_form_says_the_tokens_of_thought_and_answer(token_server, backend_of):
    local = TransformersBackend(token_server.model, token_server.tokenizer, "thinker")
    backend = backend_of(f"http://127.0.0.1:{token_server.server_address[1]}")
    assert_equal(backend, local, Request(chat("A wall."), max_tokens=8, tokens=True))
    with pytest.raises(UsageError, match=r"temperature: expected 0 or 1 with tokens=True and vLLM"):
        backend.answer([Request(chat("A wall."), max_tokens=8, tokens=True, temperature=1.0, top_p=0.9, seed=1)])


@pytest.mark.parametrize("token_server", [("vllm", "switch")], indirect=True, ids=str)
def test_template_arguments_and_the_end_of_turn_are_the_users_and_part_of_the_identity(token_server, backend_of):
    url = f"http://127.0.0.1:{token_server.server_address[1]}"
    request = Request(chat("A wall."), CHOICES)
    off = backend_of(url, template_kwargs={"enable_thinking": False})
    assert off.answer([request])[0].probabilities == pytest.approx(
        dict(backend_of(url).answer([Request(chat("A wall."), CHOICES, think=False)])[0].probabilities)
    )
    assert off.config["template_kwargs"] == {"enable_thinking": False} and "template_kwargs" not in backend_of(url).config
    other = backend_of(url, end_of_turn="<|im_start|>")
    assert other.answer([request])[0].probabilities != backend_of(url).answer([request])[0].probabilities
    assert other.config["end_of_turn"] == "<|im_start|>"
    with pytest.raises(UsageError, match="end_of_turn: expected the text of one token"):
        backend_of(url, end_of_turn="the end").answer([request])


@pytest.mark.parametrize("token_server", [("vllm", "switch"), ("sglang", "opened")], indirect=True, ids=str)
def test_a_model_that_is_asked_to_think_takes_half_of_its_window_at_most_as_in_this_process(token_server, backend_of):
    local = TransformersBackend(token_server.model, token_server.tokenizer, "thinker")
    backend = backend_of(f"http://127.0.0.1:{token_server.server_address[1]}", decide="logprobs")
    answer = assert_equal(backend, local, Request(chat("A wall."), CHOICES, think=True))
    assert answer.reasoning == THOUGHTS["A wall."][0]


@pytest.mark.parametrize("token_server", [("vllm", "switch")], indirect=True, ids=str)
def test_the_longest_thought_that_the_window_allows_is_reserved(token_server, backend_of):
    url = f"http://127.0.0.1:{token_server.server_address[1]}"
    for request in (Request(chat("A wall."), CHOICES), Request(chat("A wall."), max_tokens=8, tokens=True)):
        with pytest.raises(BudgetError, match=r"the next call may take up to (7|8)\d\d"):
            backend_of(url, max_total_tokens=700).answer([request])
        for settings in ({"think_tokens": 20}, {"think": False}):
            backend_of(url, max_total_tokens=700).answer([replace(request, **settings)])
