"""Models of many architectures play by the probabilities of their own plain forward pass, in ``choose`` and in words."""

import math

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gym_text import UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.exactness import exact_prefixes, narrow_windows, window_of
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.training.lora import check_trainable

SIZE = {
    **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "max_position_embeddings": 512},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.2},
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WINDOW = {"sliding_window": 16}
ARCHITECTURES = {
    "llama": ({}, "packed"),
    "mistral": (WINDOW, "packed"),
    "qwen2": (WINDOW | {"use_sliding_window": True, "max_window_layers": 2}, "packed"),
    "qwen3": ({}, "packed"),
    "phi3": ({}, "packed"),
    "olmo2": ({}, "packed"),
    "olmo3": (WINDOW, "packed"),
    "granite": ({}, "packed"),
    "gemma2": (WINDOW, "packed"),
    "gemma3_text": (WINDOW, "packed"),
    "cohere2": (WINDOW, "packed"),
    "gpt_oss": (WINDOW | EXPERTS, "packed"),
    "gpt2": ({"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512}, "packed"),
    "gpt_neox": ({}, "packed"),
    "opt": ({"ffn_dim": 128, "word_embed_proj_dim": 64}, "packed"),
    "stablelm": ({}, "cached"),
    "bloom": ({"n_head": 4, "n_layer": 4}, "cached"),
    "lfm2": ({"layer_types": ["conv", "full_attention"] * 2}, "cached"),
    "falcon_h1": ({"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_state": 16, "mamba_d_head": 16}, "cached"),
    "qwen3_next": (
        EXPERTS
        | {"shared_expert_intermediate_size": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 16},
        "cached",
    ),
    "granitemoehybrid": (
        EXPERTS
        | {"layer_types": ["mamba", "attention"] * 2, "mamba_n_heads": 8, "mamba_d_state": 16, "mamba_d_head": 16}
        | {"shared_intermediate_size": 64},
        "cached",
    ),
}


@pytest.fixture(params=ARCHITECTURES)
def made(request, small_model):
    """Return a random model of an architecture, the tokenizer, and the way in which it is read."""
    torch.manual_seed(0)
    own, way = ARCHITECTURES[request.param]
    tokenizer = small_model[1]
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": tokenizer.eos_token_id}
    config = AutoConfig.for_model(request.param, **SIZE, **special, vocab_size=len(tokenizer), **own)
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
    backend = TransformersBackend(model, tokenizer, "small", max_cached_tokens=4096)
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
    assert answers[3].tokens_cached > len(prompt_tokens(tokenizer, first)) - 10, "an append-only chat computes what is new"

    words = backend.answer([Request(later, max_tokens=6), Request(other, max_tokens=6)])
    for request, answer in zip((later, other), words, strict=True):
        tokens = prompt_tokens(tokenizer, request)
        size = len(tokens)
        for _ in range(answer.tokens_out):
            with torch.inference_mode():
                tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
        assert answer.text == tokenizer.decode(tokens[size:], skip_special_tokens=True)


def test_a_model_is_trained_only_where_packed_rows_are_exact(made):
    model, _, way = made
    model.base_name = "small"
    if way == "packed":
        check_trainable(model)
    else:
        with pytest.raises(UsageError, match="cannot be trained here"):
            check_trainable(model)


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
