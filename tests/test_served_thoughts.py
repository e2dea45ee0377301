"""Thoughts of models behind servers that take tokens: the real llama.cpp, and the forms of vLLM and SGLang, beside this process."""

import contextlib

import llama_server
import pytest
from serving import serving
from thinking_models import TEMPLATES, THOUGHTS, chat, taught

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
    assert_equal(backend, local, Request(chat(text), CHOICES, tokens=True))
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
