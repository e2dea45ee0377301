"""What makes the model in this process faster and changes no answer: packed weights, a forward pass, guesses at what comes next."""

import copy
import json

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from gym_text_policies.backends import Request
from gym_text_policies.backends.local.guesses import Guesser
from gym_text_policies.backends.local.llama import PackedLlama
from gym_text_policies.backends.local.packed import PackedLinear, pack
from gym_text_policies.backends.local.prefixes import Branch, Prefixes
from gym_text_policies.backends.local.transformers import TransformersBackend


@pytest.mark.parametrize("bias", [False, True])
def test_packed_sums_are_the_same(bias):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(192, 576, bias=bias), nn.ReLU(), nn.Linear(576, 96, bias=bias))
    packed = pack(copy.deepcopy(plain))
    assert isinstance(packed[0], PackedLinear) and isinstance(packed[2], PackedLinear)
    with torch.inference_mode():
        for tokens in (1, 2, 7, 8, 9, 64, 65, 300):
            inputs = torch.randn(1, tokens, 192)
            expected = plain(inputs)
            assert packed(inputs).shape == expected.shape
            assert float((packed(inputs) - expected).abs().max() / expected.abs().max()) < 1e-5


def read(model):
    """Return what a model predicts after trees, lines and single tokens, behind nothing and behind what it has read."""
    prefixes = Prefixes(model, 1000)
    one, two = prefixes.open([(1, 2, 3, 4, 5), (7,) * 30])
    branches = [Branch.line(one, [1, 2, 3, 4, 5], [2, 4]), Branch(two, [7] * 30, [*range(-1, 28), 20], [29, 3, 28])]
    logits = prefixes.compute(branches)
    for branch in branches:
        branch.keep(len(branch.tokens) - 1)
    logits += prefixes.compute([Branch.line(one, [8], [0]), Branch(two, [8, 9, 10], [-1, 0, 0], [1, 2])])
    prefixes.compute([Branch.line(one, [11, 12], [])])  # no prediction is asked for
    return torch.cat(logits)


def closeness(model, other):
    expected = read(model)
    return float((read(other) - expected).abs().max() / expected.abs().max())


def tiny(kind, **options):
    """Return a random model, its weights and biases of a size that matters."""
    sizes = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 64}
    config = transformers.AutoConfig.for_model(kind, **{"num_key_value_heads": 2, **sizes, **options})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.data.normal_(0, 0.3, generator=generator)
    return model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_key_value_heads": 6, "tie_word_embeddings": True},
        {"num_key_value_heads": 1, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}, "rms_norm_eps": 0.1},
    ],
    ids=["grouped heads", "tied head", "biases", "scaled positions"],
)
def test_a_packed_llama_predicts_as_the_module_does(options):
    model = tiny("llama", **options)
    packed = pack(copy.deepcopy(model))
    assert isinstance(packed, PackedLlama)
    assert closeness(model, packed) < 1e-5


@pytest.mark.parametrize("kind, options", [("qwen2", {}), ("mistral", {"sliding_window": None}), ("llama", {"hidden_act": "gelu"})])
def test_what_is_no_plain_llama_keeps_its_own_forward_pass(kind, options):
    model = tiny(kind, **options)
    packed = pack(copy.deepcopy(model))
    assert type(packed) is type(model) and isinstance(packed.lm_head, PackedLinear)
    assert closeness(model, packed) < 1e-5


def test_a_packed_model_answers_as_before(small_model):
    network, tokenizer = small_model
    packed = pack(copy.deepcopy(network))
    question = Request(({"role": "user", "content": "one two three one two"},), max_tokens=40)
    choice = Request(question.messages, ("turn left", "go forward", "pick up"))
    one, other = (TransformersBackend(model, tokenizer, "m").answer([question, choice]) for model in (network, packed))
    assert one[0].text == other[0].text
    assert one[1].probabilities == pytest.approx(other[1].probabilities, abs=1e-4)


@pytest.mark.parametrize("room", [0, 3, 7])
def test_guesses_change_no_answer(small_model, room, monkeypatch):
    network, tokenizer = small_model
    monkeypatch.setattr("gym_text_policies.backends.local.transformers._GUESSED", room)
    messages = ({"role": "user", "content": "A B C D A B C D A B"},)
    prompt = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True)
    expected = network.generate(**prompt, max_new_tokens=30, do_sample=False, pad_token_id=2)[0, prompt["input_ids"].shape[1] :]
    backend = TransformersBackend(network, tokenizer, "m")
    answer = backend.answer([Request(messages, max_tokens=30)])[0]
    assert answer.text == tokenizer.decode(expected, skip_special_tokens=True) and answer.tokens_out == len(expected)


def test_what_a_schema_leaves_no_choice_about_is_read_in_few_passes(small_model, monkeypatch):
    network, tokenizer = small_model
    fields = {"action": {"type": "string", "enum": ["turn to the left hand side", "go forward"]}, "sure": {"enum": ["yes"]}}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    question = Request(({"role": "user", "content": "A red ball."},), schema=schema, max_tokens=60)

    def ask(room):
        monkeypatch.setattr("gym_text_policies.backends.local.transformers._GUESSED", room)
        backend, passes = TransformersBackend(network, tokenizer, "m"), []
        compute = backend._prefixes.compute
        monkeypatch.setattr(backend._prefixes, "compute", lambda branches: passes.append(1) or compute(branches))
        answer = backend.answer([question])[0]
        return answer.text, answer.tokens_out, len(passes)

    (one, tokens, single), (other, same, guessed) = ask(0), ask(7)
    assert one == other and json.loads(one)["sure"] == "yes" and tokens == same == single
    assert guessed <= single / 2


def test_a_guess_is_what_followed_last_time():
    guesser = Guesser([1, 2, 3, 4, 1, 2, 5, 9, 9, 1, 2])
    assert guesser.guess(2) == [5, 9] and guesser.guess(1) == [5]
    assert guesser.guess(0) == []
    guesser.say([3])
    assert guesser.guess(2) == [4, 1], "three tokens that are the same count for more than one"
    guesser.say([7])
    assert guesser.guess(3) == [], "7 was never said before"
    assert Guesser([5, 6, 5, 6, 5]).guess(5) == [6, 5, 6, 5, 6], "a line that repeats goes on repeating"
    assert Guesser([]).guess(3) == [] and Guesser([1]).guess(3) == []


def test_what_was_answered_to_other_prompts_is_guessed_first():
    earlier = Guesser()
    earlier.remember([8, 8, 1, 2, 3], [4, 5, 0])
    assert Guesser([1, 2, 3, 9, 1, 2, 3], earlier).guess(3) == [4, 5, 0]
    assert Guesser([1, 2, 3, 9, 6, 2, 3], earlier).guess(3) == [4, 5, 0], "a run of two tokens"
    assert Guesser([7, 2, 3, 9, 7, 2, 3], earlier).guess(1) == [9], "a longer run counts for more"
    assert Guesser([7, 2, 3, 9, 7, 2, 3]).guess(1) == [9]
    for _ in range(5000):
        earlier.remember([1, 2, 3], [4, 5, 6, 0])
    assert len(earlier) < 20_020 and Guesser([1, 2, 3], earlier).guess(2) == [4, 5]


def test_guesses_are_runs_of_what_was_said():
    rng = np.random.default_rng(0)
    for _ in range(50):
        said = rng.integers(0, 4, size=rng.integers(1, 30)).tolist()
        guesser = Guesser(said[: len(said) // 2])
        guesser.say(said[len(said) // 2 :])
        guess = guesser.guess(3)
        places = [
            place
            for size in (3, 2, 1)
            if size < len(said)
            for place in range(len(said) - 1, size - 1, -1)
            if said[place - size : place] == said[-size:]
        ]
        expected = said[places[0] : places[0] + 3] if places else []
        assert guess[: len(expected)] == expected and len(guess) == (3 if places else 0)
