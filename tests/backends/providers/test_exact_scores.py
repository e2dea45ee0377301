"""Servers that take tokens give the probabilities, tokens and thoughts of the same model in this process."""

import contextlib
import json
from dataclasses import replace

import llama_server
import pytest
from serving import serving
from thinking_models import chat, taught
from vllm_server import CHOICES, assert_thinks_as_this_process_does, serving_vllm

from gym_text import UsageError
from gym_text.errors import BudgetError
from gym_text_policies import PolicyError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.backends.providers.connection import CallError
from gym_text_policies.backends.providers.vllm import VLLM

pytestmark = [pytest.mark.usefixtures("no_addresses_of_the_environment")]


@pytest.fixture
def backend_of():
    """Return a function that makes a backend of a server's address."""
    with contextlib.ExitStack() as stack:

        def make(url, **options):
            return stack.enter_context(contextlib.closing(load_backend("openai:m", base_url=f"{url}/v1", retries=0, **options)))

        yield make


@pytest.fixture
def vllm(tmp_path):
    """Return a server of a model that has learnt to think where a switch in its template says so."""
    with serving_vllm("switch", tmp_path) as server:
        yield server


def test_vllms_form_chooses_and_writes_behind_the_thought_as_this_process_does(vllm, backend_of):
    local = TransformersBackend(vllm.model, vllm.tokenizer, "thinker")
    assert_thinks_as_this_process_does(backend_of(vllm.url, decide="logprobs"), local)
    compared = [body for path, body in vllm.bodies if path == "/tokenize"]
    assert len(compared) == len({json.dumps(body) for body in compared}), "the tokens of a setting are compared once"
    assert [path for path, _ in vllm.bodies].count("/v1/models") == 1, "the server is asked once what it is"


def test_the_real_llama_cpp_chooses_and_writes_behind_the_thought_as_this_process_does(tmp_path, backend_of):
    pytest.importorskip("xllamacpp", reason="there is no wheel of xllamacpp for this machine")
    model, tokenizer = taught("switch")
    file = llama_server.write_model(model, tokenizer, tmp_path / "thinker.gguf")
    command = ["python", llama_server.__file__, "--model", str(file), "--float32", "--ctx-size", "1024"]
    with serving(command, "/health", tmp_path / "log") as url:
        assert_thinks_as_this_process_does(backend_of(url), TransformersBackend(model, tokenizer, "thinker"))
        with pytest.raises(UsageError, match=r"mode 'choose'.*HTTP 404.*decide='auto' or 'logprobs'.*Mode 'json'"):
            backend_of(url, decide="decisions").check(Request(chat("A wall."), ("yes", "no")))


def test_template_arguments_and_the_end_of_turn_are_the_users_and_part_of_the_identity(vllm, backend_of):
    request = Request(chat("A wall."), CHOICES)
    off = backend_of(vllm.url, template_kwargs={"enable_thinking": False})
    plain = backend_of(vllm.url)
    expected = plain.answer([replace(request, think=False)])[0].probabilities
    assert off.answer([request])[0].probabilities == pytest.approx(dict(expected))
    assert off.config["template_kwargs"] == {"enable_thinking": False} and "template_kwargs" not in plain.config
    other = backend_of(vllm.url, end_of_turn="<|im_start|>")
    assert other.answer([request])[0].probabilities != plain.answer([request])[0].probabilities
    assert other.config["end_of_turn"] == "<|im_start|>"
    with pytest.raises(UsageError, match="end_of_turn: expected the text of one token"):
        backend_of(vllm.url, end_of_turn="the end").answer([request])


def test_a_thought_without_a_limit_of_its_own_is_reserved(vllm, backend_of):
    for request in (Request(chat("A wall."), CHOICES), Request(chat("A wall."), max_tokens=8, tokens=True)):
        with pytest.raises(BudgetError, match=r"the next call may take up to 2\d\d\d"):
            backend_of(vllm.url, max_total_tokens=700).answer([request])
        for settings in ({"think_tokens": 20}, {"think": False}):
            backend_of(vllm.url, max_total_tokens=700).answer([replace(request, **settings)])


def test_answers_with_tokens_and_probabilities_are_read_from_the_cache(vllm, tmp_path, backend_of):
    for request in (Request(chat("A wall."), CHOICES), Request(chat("A wall."), max_tokens=8, tokens=True)):
        first = backend_of(vllm.url, cache=str(tmp_path)).answer([request])[0]
        asked = len(vllm.bodies)
        again = backend_of(vllm.url, cache=str(tmp_path)).answer([request])[0]
        assert again == replace(first, tokens_cached=first.tokens_in) and len(vllm.bodies) == asked


@pytest.mark.parametrize("value", [0.5, float("nan"), float("-inf")])
def test_numbers_that_are_no_log_probabilities_are_refused(vllm, backend_of, value):
    vllm.value = value
    with pytest.raises(PolicyError, match="expected log-probabilities, finite and none above 0; got"):
        backend_of(vllm.url).answer([Request(chat("A wall."), CHOICES, think=False)])


def test_a_server_that_gives_no_log_probabilities_decides_or_says_so(server, backend_of):
    request = Request(chat("A wall."), CHOICES[:2])
    assert backend_of(server.url).answer([request])[0].probability_kind == "decision"
    with pytest.raises(UsageError, match=r"decide='logprobs': expected llama.cpp or vLLM.*decide='systemone'"):
        backend_of(server.url, decide="logprobs").check(request)


def test_another_tokenizer_than_the_servers_is_refused(vllm, tmp_path, backend_of):
    other = taught("channels")[1]
    other.save_pretrained(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    for folder, message in (
        ("other", "the tokens that vLLM gives a chat"),
        ("empty", "which vLLM leaves to its client; got .*empty"),
    ):
        with pytest.raises(UsageError, match=f"tokenizer: expected .*{message}.*tokenizer='hf:OWNER/NAME'"):
            backend_of(vllm.url, tokenizer=str(tmp_path / folder)).answer([Request(chat("A wall."), CHOICES)])


def test_vllm_gives_no_log_probabilities_of_limited_draws(vllm, backend_of):
    with pytest.raises(UsageError, match=r"temperature: expected 0 or 1 with tokens=True and vLLM.*got 1, top_p\."):
        backend_of(vllm.url).answer([Request(chat("A wall."), tokens=True, temperature=1.0, top_p=0.9, seed=1)])


class Recorded:
    """A connection to a vLLM that answers requests of logprob_token_ids with a log-probability for each sequence and token."""

    model = "m"

    def __init__(self):
        self.sizes = []

    def post(self, path, body):
        assert path == "/v1/completions" and len(body["logprob_token_ids"]) == body["logprobs"] <= 128
        self.sizes.append((len(body["prompt"]), body["logprobs"]))
        rows = [{f"token_id:{t}": -float(len(tokens) * 1000 + t) for t in body["logprob_token_ids"]} for tokens in body["prompt"]]
        choices = [{"index": i, "logprobs": {"top_logprobs": [row]}} for i, row in enumerate(rows)]
        return {"choices": choices[::-1]}


def test_vllm_is_asked_for_at_most_128_tokens_at_once_and_only_where_they_may_follow():
    server, candidates = Recorded(), [[token, token + 500, 2] for token in range(300)]
    log_probs, _ = VLLM(server, {}, None).score([7] * 5, candidates)
    assert log_probs == [[-(5000.0 + t), -(6500.0 + t), -7002.0] for t in range(300)]
    assert sum(size for size, _ in server.sizes) == 3 + 600 and max(tokens for _, tokens in server.sizes) == 128


def test_other_tokens_than_were_sent_are_refused():
    server = Recorded()
    server.post = lambda path, body: {"choices": [{"text": "go", "token_ids": [5], "prompt_token_ids": [9]}]}
    with pytest.raises(CallError, match="the tokens that were sent"):
        VLLM(server, {}, None).generate([7, 8], Request((), max_tokens=6))
