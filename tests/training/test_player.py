"""The player of a model that is trained: a copy, merged layer by layer, or the model itself."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_models import small_llama
from training_data import with_random_adapter

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.training.model.lora import add_lora, load_base, set_dtype
from gym_text_policies.training.model.player import merged_copy, player_of

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_player_answers_as_the_model_in_training_and_leaves_it_in_training(tiny_model):
    base, tokenizer = load_base(tiny_model)
    model = with_random_adapter(add_lora(base)).train()
    player = player_of(model, tokenizer)
    assert model.training
    plain = TransformersBackend(model, tokenizer, "plain")
    question = Request(messages=({"role": "user", "content": "Which way?"},), choices=("left", "right", "on"))
    (answer,), (expected,) = player.answer([question]), plain.answer([question])
    assert answer.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_copy_has_bit_by_bit_the_weights_of_a_merge_in_float32_and_shares_what_has_no_adapter(tiny_model, dtype):
    base, _ = load_base(tiny_model, dtype=dtype)
    model = with_random_adapter(add_lora(base))
    set_dtype(model, dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = copy.deepcopy(model).float().merge_and_unload()
    copied = merged_copy(model, dtype)
    weights, buffers = dict(copied.named_parameters()), dict(copied.named_buffers())
    assert weights.keys() == dict(expected.named_parameters()).keys() and not hasattr(copied, "peft_config")
    for name, weight in expected.named_parameters():
        assert weights[name].dtype == getattr(torch, dtype) and torch.equal(weights[name], weight.to(weights[name].dtype)), name
    for name, buffer in expected.named_buffers():
        assert buffers[name].dtype == buffer.dtype and torch.equal(buffers[name], buffer), name
    learner = {name.replace("base_layer.", ""): weight.data_ptr() for name, weight in base.named_parameters()}
    shared = {name for name, weight in weights.items() if weight.data_ptr() == learner[name]}
    assert shared == {name for name in weights if not name.endswith("_proj.weight")}, "layers without an adapter take no memory"
    player_of(model, load_base(tiny_model)[1], dtype)  # its weights move into other layouts
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()), "the model stays as it was"


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_what_other_trainers_train_beside_an_adapter_is_copied_too():
    model = small_llama(64, tie_word_embeddings=False).to(torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"]))
    trained = with_random_adapter(model)
    trained.base_model.model.lm_head.modules_to_save.default.weight.data.mul_(2)
    expected = copy.deepcopy(trained).float().merge_and_unload().state_dict()
    copied = merged_copy(trained).state_dict()
    assert copied.keys() == expected.keys() and all(torch.equal(copied[name], expected[name]) for name in expected)
    plain = small_llama(64)
    whole = merged_copy(plain)
    plain.model.norm.weight.data.add_(1)
    assert not torch.equal(whole.model.norm.weight, plain.model.norm.weight), "weights that are trained are not shared"
