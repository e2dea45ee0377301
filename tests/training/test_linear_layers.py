"""Which linear layers of a model get an adapter."""

import pytest
from small_models import small_llama
from transformers import GPT2Config, GPT2LMHeadModel

from gym_text import UsageError
from gym_text_policies.training.model.linear_layers import adapted, linear_layers, targets_of


def test_words_stand_for_all_layers_for_those_of_attention_or_for_layers_by_name():
    model = small_llama(64)
    layers = linear_layers(model)
    assert len(layers) == 2 * 7 and "lm_head" not in layers
    assert adapted(layers, targets_of(model, ["all-linear"])) == set(layers)
    assert targets_of(model, ["attention"]) == ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert targets_of(model, ["attention", "q_proj", "mlp.up_proj"]) == ["q_proj", "k_proj", "v_proj", "o_proj", "mlp.up_proj"]
    assert adapted(layers, r".*\.0\..*(q|up)_proj") == {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj"}
    for words in (["qproj"], ["lm_head"], ["q_proj", ""], ["all-linear", "q_proj"]):
        wrong = next(word for word in words if word != "q_proj")
        names = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"
        with pytest.raises(UsageError, match=f"'attention', or some of {names}; got '{wrong}'"):
            targets_of(model, words)


def test_attention_has_longer_names_where_other_layers_have_its_short_ones():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=8, n_layer=2, n_head=2))
    assert targets_of(model, ["attention"]) == ["c_attn", "attn.c_proj"], "mlp has a c_proj, too"
