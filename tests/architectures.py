"""Small models of many architectures with random weights, which play and learn by the probabilities of plain forward passes."""

import copy
import math

import pytest
import torch
from training_data import plain_log_probs, with_random_adapter
from transformers import AutoConfig, AutoModelForCausalLM

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.exactness import packs
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.data.rows import Example
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
        WINDOW | {"vocab_size_per_layer_input": 4200, "hidden_size_per_layer_input": 8, "global_head_dim": 32},
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
QUICK = ("gemma2", "gpt_oss", "qwen3", "gpt2", "qwen3_5_text", "mamba")
"""Those that `make test` tries: soft caps, attention sinks, grouped heads, learnt positions, recurrent layers, no usable cache."""


def model_of(kind, tokenizer):
    """Return a random model of an architecture."""
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": tokenizer.eos_token_id}
    config = AutoConfig.for_model(kind, **SIZE | special | {"vocab_size": len(tokenizer)} | ARCHITECTURES[kind][0])
    return AutoModelForCausalLM.from_config(config).eval()


def chat(*texts):
    """Return a chat of turns."""
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


def check_play(kind, tokenizer):
    """Compare ``choose`` and words with plain forward passes."""
    model, way = model_of(kind, tokenizer), ARCHITECTURES[kind][1]
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


def check_learning(kind, tokenizer):
    """Compare losses, gradients and the learner's play with plain forward passes."""
    base, way = model_of(kind, tokenizer).requires_grad_(False), ARCHITECTURES[kind][1]
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
