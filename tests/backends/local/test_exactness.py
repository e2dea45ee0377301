"""The fastest way of reading a model is taken among those with the probabilities of its plain forward pass."""

import pytest
import torch
from architectures import QUICK, SIZE, check_learning, check_play
from transformers import AutoConfig, AutoModelForCausalLM

from gym_text import UsageError
from gym_text_policies.backends.local.exactness import exact_prefixes, narrow_windows, window_of


@pytest.mark.parametrize("kind", QUICK)
def test_choose_and_words_are_those_of_the_plain_forward_pass(kind, small_model):
    check_play(kind, small_model[1])


@pytest.mark.parametrize("kind", [kind for kind in QUICK if kind != "mamba"])  # it reads the weight of dt_proj past an adapter
def test_a_step_of_sft_has_the_losses_and_gradients_of_plain_passes(kind, small_model):
    check_learning(kind, small_model[1])


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
