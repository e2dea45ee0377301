"""Models of many architectures play by the probabilities of their own plain forward pass, in ``choose`` and in words."""

import copy
import math
from pathlib import Path

import pytest
import torch
from training_data import plain_log_probs, with_random_adapter
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from gym_text import UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local import exactness
from gym_text_policies.backends.local.exactness import exact_prefixes, narrow_windows, packs, window_of
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.data.rows import Example
from gym_text_policies.files import user_cache
from gym_text_policies.training.model.layouts import answer_losses
from gym_text_policies.training.model.lora import add_lora
from gym_text_policies.training.model.player import player_of
from gym_text_policies.training.model.sequences import Conversation

SIZE = {
    **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "max_position_embeddings": 512},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.2},
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WINDOW = {"sliding_window": 16}
MAMBA = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_d_head": 16}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
ARCHITECTURES = {
    "cohere2": (WINDOW, "packed"),
    "ernie4_5": ({}, "packed"),
    "exaone4": (WINDOW, "packed"),
    "gemma": ({}, "packed"),
    "gemma2": (WINDOW, "packed"),
    "gemma3_text": (WINDOW, "packed"),
    "glm4": ({}, "packed"),
    "gpt_oss": (WINDOW | EXPERTS, "packed"),
    "granite": ({}, "packed"),
    "hunyuan_v1_dense": ({}, "packed"),
    "llama": ({}, "packed"),
    "ministral": (WINDOW, "packed"),
    "ministral3": ({}, "packed"),
    "mistral": (WINDOW, "packed"),
    "mixtral": (EXPERTS, "packed"),
    "nanochat": ({}, "packed"),
    "olmo2": ({}, "packed"),
    "olmo3": (WINDOW, "packed"),
    "phi3": ({}, "packed"),
    "qwen2": (WINDOW | {"use_sliding_window": True, "max_window_layers": 2}, "packed"),
    "qwen3": ({}, "packed"),
    "qwen3_moe": (EXPERTS, "packed"),
    "seed_oss": ({}, "packed"),
    "smollm3": ({}, "packed"),
    "bamba": (MAMBA | {"attn_layer_indices": [1, 3]}, "cached"),
    "bloom": ({"n_head": 4, "n_layer": 4}, "cached"),
    "falcon_h1": (MAMBA | {"mamba_d_ssm": 64, "mamba_n_heads": 4}, "cached"),
    "gemma4_text": (
        WINDOW | {"vocab_size_per_layer_input": 49152, "hidden_size_per_layer_input": 8, "global_head_dim": 32},
        "cached",
    ),
    "gpt2": ({"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512}, "packed"),
    "gpt_neox": ({}, "packed"),
    "granitemoehybrid": (EXPERTS | MAMBA | {"layer_types": ["mamba", "attention"] * 2, "shared_intermediate_size": 64}, "cached"),
    "lfm2": ({"layer_types": ["conv", "full_attention"] * 2}, "cached"),
    "lfm3": ({}, "cached"),
    "llama4_text": (EXPERTS | {"intermediate_size_mlp": 128, "attention_chunk_size": 16}, "cached"),
    "opt": ({"ffn_dim": 128, "word_embed_proj_dim": 64}, "packed"),
    "qwen3_5_text": (DELTA, "cached"),
    "qwen3_next": (EXPERTS | DELTA | {"shared_expert_intermediate_size": 32}, "cached"),
    "stablelm": ({}, "cached"),
    "mamba": ({}, "reread"),
}
"""`model_type` of transformers -> settings beside `SIZE`, and the way in which it is read."""


@pytest.fixture(scope="module")
def tokenizer():
    """Return the embedded model's tokenizer."""
    return AutoTokenizer.from_pretrained(smollm2_folder())


@pytest.fixture(scope="module", params=ARCHITECTURES)
def made(request, tokenizer):
    """Return a random model of an architecture, the tokenizer, and the way in which it is read."""
    torch.manual_seed(0)
    own, way = ARCHITECTURES[request.param]
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": tokenizer.eos_token_id}
    config = AutoConfig.for_model(request.param, **SIZE | special | {"vocab_size": len(tokenizer)} | own)
    return AutoModelForCausalLM.from_config(config).eval(), tokenizer, way


def chat(*texts):
    roles = ("user", "assistant")
    return tuple({"role": roles[index % 2], "content": text} for index, text in enumerate(texts))


def plain_probabilities(model, tokenizer, request):
    """Return the probability of each choice, from one plain forward pass per choice."""
    prompt, scores = prompt_tokens(tokenizer, request.messages), []
    for choice in request.choices:
        answer = [*text_tokens(tokenizer, choice), tokenizer.eos_token_id]
        with torch.inference_mode():
            log_probs = model(torch.tensor([prompt + answer]), use_cache=False).logits[0].float().log_softmax(-1)
        scores.append(sum(float(log_probs[len(prompt) + place - 1, token]) for place, token in enumerate(answer)))
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


def test_choose_and_words_are_those_of_the_plain_forward_pass(made):
    model, tokenizer, way = made
    backend = TransformersBackend(copy.deepcopy(model), tokenizer, "small", max_cached_tokens=4096)
    long = "the red ball is left of the door and the key is right of the box " * 2
    choices = ("go left", "go right", "go", "take the red ball")
    first, other = chat(long + "now"), chat(long + "then what")
    later = chat(long + "now", "go left", "a door")
    requests = [Request(first, choices), Request(other, choices), Request(chat("a box"), choices), Request(later, choices)]
    answers = backend.answer(requests[:3]) + backend.answer(requests[3:])
    for request, answer in zip(requests, answers, strict=True):
        expected = plain_probabilities(model, tokenizer, request)
        assert list(answer.probabilities.values()) == pytest.approx(expected, abs=1e-5)
    assert backend.way == way
    assert way == "reread" or answers[3].tokens_cached > len(prompt_tokens(tokenizer, first)) - 10, (
        "an append-only chat computes what is new"
    )

    words = backend.answer([Request(later, max_tokens=6), Request(other, max_tokens=6)])
    for request, answer in zip((later, other), words, strict=True):
        tokens = prompt_tokens(tokenizer, request)
        size = len(tokens)
        for _ in range(answer.tokens_out):
            with torch.inference_mode():
                tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
        assert answer.text == tokenizer.decode(tokens[size:], skip_special_tokens=True)


def test_a_step_of_sft_has_the_losses_and_gradients_of_plain_passes(made):
    model, tokenizer, way = made
    base = copy.deepcopy(model).requires_grad_(False)
    base.base_name, base.packs = "small", packs(base)
    assert base.packs == (way == "packed")
    learner = with_random_adapter(add_lora(base, rank=2))
    long = "the red ball is left of the door and the key is right of the box "
    said = [(chat(long), "go left"), (chat(long, "go left", "a door"), "go")], [(chat(long + "then"), "take the red ball")]
    chats = [[Example(*words) for words in of_chat] for of_chat in said]
    weights = [weight for weight in learner.parameters() if weight.requires_grad]

    losses = answer_losses(learner, [Conversation.of(tokenizer, examples) for examples in chats])
    gradients = torch.autograd.grad(losses.sum(), weights, allow_unused=True)
    plain = torch.cat([-plain_log_probs(learner, tokenizer, *example) for examples in chats for example in examples])
    expected = torch.autograd.grad(plain.sum(), weights, allow_unused=True)
    assert losses.tolist() == pytest.approx(plain.tolist(), abs=1e-4)
    for found, wanted in zip(gradients, expected, strict=True):
        if wanted is None:  # an expert that no token is sent to
            assert found is None
        else:
            assert (found - wanted).norm() <= 1e-4 * (1 + wanted.norm())

    request = Request(chat(long), ("go left", "go"))
    (answer,) = player_of(learner, tokenizer).answer([request])
    assert list(answer.probabilities.values()) == pytest.approx(plain_probabilities(learner, tokenizer, request), abs=1e-4)


def test_windows_are_narrow_only_while_ways_are_compared():
    config = AutoConfig.for_model("mistral", **SIZE, sliding_window=16, vocab_size=128)
    model = AutoModelForCausalLM.from_config(config).eval()
    with narrow_windows(model):
        assert model.config.sliding_window == 8
    assert model.config.sliding_window == 16


def test_a_window_ends_where_the_encoding_of_positions_would_change():
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0, "original_max_position_embeddings": 256}
    assert window_of(AutoConfig.for_model("llama", **SIZE)) == 512
    assert window_of(AutoConfig.for_model("llama", **SIZE, rope_parameters=rope)) == 256


def test_a_model_whose_probabilities_depend_on_chance_is_refused():
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SIZE, vocab_size=128)).eval()
    model.lm_head.register_forward_hook(lambda module, inputs, output: output + torch.randn_like(output))
    with pytest.raises(UsageError, match="in every way"):
        exact_prefixes(model, 100)


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """Return the types of the models that are compared with their plain forward pass; nothing is remembered at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(user_cache, "_recalled", {})
    found, usual = [], exactness._Probe
    monkeypatch.setattr(exactness, "_Probe", lambda model: found.append(type(model).__name__) or usual(model))
    return found


def small(kind="llama", **settings):
    config = AutoConfig.for_model(kind, **SIZE, vocab_size=128, **settings)
    return AutoModelForCausalLM.from_config(config).eval()


def test_the_way_that_is_exact_for_weights_is_found_once_for_a_user(compared, tmp_path):
    assert exact_prefixes(small(), 100, optimise=True, weights="a").way == "packed" and len(compared) == 1
    user_cache._recalled.clear()  # as another process has it
    again = exact_prefixes(small(), 100, optimise=True, weights="a")
    assert again.way == "packed" and len(compared) == 1
    exact_prefixes(small(), 100, optimise=True, weights="b")
    assert len(compared) == 2, "other weights"
    exact_prefixes(small(), 100, weights="a")
    exact_prefixes(small().to(torch.bfloat16), 100, optimise=True, weights="a")
    assert len(compared) == 4, "another layout, another precision"
    exact_prefixes(small(), 100, optimise=True)
    assert len(compared) == 5, "weights of no name"


def test_other_code_or_another_number_of_threads_is_compared_anew(compared, monkeypatch):
    exact_prefixes(small(), 100, weights="a")
    monkeypatch.setattr(exactness, "digest_of", lambda files: "edited")
    exact_prefixes(small(), 100, weights="a")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    exact_prefixes(small(), 100, weights="a")
    assert len(compared) == 3


@pytest.mark.parametrize("value", ["PackedPrefixes", "Prefixes", None, 3, ["packed"], {}])
def test_a_remembered_way_that_the_model_cannot_be_read_in_is_no_answer(compared, monkeypatch, value):
    monkeypatch.setattr(exactness, "recall", lambda kind, facts: value)
    assert exact_prefixes(small("mamba"), 100, weights="a").way == "reread" and len(compared) == 1


def test_a_model_that_is_refused_is_refused_again(compared):
    for count in (1, 2):
        model = small()
        model.lm_head.register_forward_hook(lambda module, inputs, output: output + torch.randn_like(output))
        with pytest.raises(UsageError, match="in every way"):
            exact_prefixes(model, 100, weights="a")
        assert len(compared) == count


def test_the_page_lists_the_architectures_of_the_table():
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text("utf-8")
    for way in ("packed", "cached", "reread"):
        names = ", ".join(sorted(name for name, (_, own) in ARCHITECTURES.items() if own == way))
        assert f"| `{way}` | {names} |" in page
