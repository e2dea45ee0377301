"""The fastest way of reading a model is taken among those with the probabilities of its plain forward pass."""

import pytest
import torch
from architectures import QUICK, SIZE, check_learning, check_play
from transformers import AutoConfig, AutoModelForCausalLM

from gym_text import UsageError
from gym_text_policies.backends.local import exactness
from gym_text_policies.backends.local.exactness import exact_prefixes, narrow_windows, window_of
from gym_text_policies.files import user_cache


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


@pytest.mark.parametrize("value", ["PackedPrefixes", ["packed"]])
def test_a_remembered_way_that_the_model_cannot_be_read_in_is_no_answer(compared, monkeypatch, value):
    monkeypatch.setattr(exactness, "recall", lambda kind, facts: value)
    assert exact_prefixes(small("mamba"), 100, weights="a").way == "reread" and len(compared) == 1
