"""Adapters: made, saved, merged, and as they play."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from training_data import with_random_adapter
from transformers import AutoModelForCausalLM

from gym_text import UsageError
from gym_text_policies.backends.local.adapters import TOOLS, read_adapter, read_template, template_of
from gym_text_policies.backends.local.models import Source, load_model
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.training.model.lora import add_lora, load_base
from gym_text_policies.training.model.saving import save_adapter
from gym_text_policies.training.sft import SFTConfig

pytestmark = [pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def adapter(tiny_model, tmp_path):
    """Return the folder of an adapter that changes what the small model says."""
    base, _ = load_base(tiny_model)
    save_adapter(with_random_adapter(add_lora(base)), tmp_path / "adapter", {})
    return tmp_path / "adapter"


def test_an_adapter_of_another_base_or_without_weights_is_refused(tiny_model, adapter):
    base, _ = load_base(tiny_model)
    base.base_name = "smollm2"
    with pytest.raises(UsageError, match="expected one for 'smollm2'"):
        add_lora(base, adapter=adapter)
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"expected weights in adapter_model\.safetensors; got none"):
        read_adapter(adapter)


def test_an_adapter_keeps_a_chat_template_of_its_own_which_is_part_of_its_identity(tiny_model, tmp_path):
    _, tokenizer = load_base(tiny_model)
    template = "{# new #}" + tokenizer.chat_template
    for name, text in (("plain", ""), ("new", template)):
        torch.manual_seed(0)
        base, tokenizer = load_base(tiny_model, chat_template=text)
        save_adapter(add_lora(base), tmp_path / name, {})
    assert tokenizer.chat_template == template_of(tmp_path / "new") == template and not template_of(tmp_path / "plain")
    plain, new = (Source.of(str(tmp_path / name)) for name in ("plain", "new"))
    assert load_model(new)[1].chat_template == template != load_model(plain)[1].chat_template
    assert new.digest != plain.digest
    (tmp_path / "new" / "chat_template.jinja").write_text(" ")
    with pytest.raises(UsageError, match=r"expected a template in .*chat_template\.jinja; it is empty"):
        Source.of(str(tmp_path / "new"))


def test_the_template_that_ships_has_a_name_and_a_file_of_that_name_is_named_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools").write_text("{# mine #}")
    assert read_template("tools") == TOOLS.read_text("utf-8") and read_template("./tools") == "{# mine #}"


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_that_other_trainers_made_on_the_embedded_models_folder_is_one_for_smollm2(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(smollm2_folder(), num_hidden_layers=2)
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "here")
    settings = json.loads((tmp_path / "here/adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(smollm2_folder())
    shutil.copytree(tmp_path / "here", tmp_path / "elsewhere")
    elsewhere = {**settings, "base_model_name_or_path": "/home/ada/.cache/gym-text/smollm2-135m-instruct-0.1.2"}
    (tmp_path / "elsewhere/adapter_config.json").write_text(json.dumps(elsewhere))
    for folder in ("here", "elsewhere"):
        assert read_adapter(tmp_path / folder)[0] == "smollm2"
        model = AutoModelForCausalLM.from_pretrained(smollm2_folder(), num_hidden_layers=2)
        model.base_name = "smollm2"  # as `load_base` calls it
        assert add_lora(model, adapter=tmp_path / folder).peft_config["default"].r == 2


def test_an_adapter_that_is_trained_further_keeps_its_rank(tiny_model, tmp_path):
    save_adapter(add_lora(load_base(tiny_model)[0], rank=4), tmp_path / "adapter", {})
    settings = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"]) == (4, 32)
    assert {name.rpartition("_")[2] for name in settings["target_modules"]} == {"proj"}, "all linear layers but the last"
    for rank in (None, 4):
        assert add_lora(load_base(tiny_model)[0], adapter=tmp_path / "adapter", rank=rank).peft_config["default"].r == 4
    with pytest.raises(UsageError, match=r"rank: expected none, because .*adapter' is trained further and keeps its own, 4"):
        add_lora(load_base(tiny_model)[0], adapter=tmp_path / "adapter", rank=16)
    with pytest.raises(UsageError, match="rank: expected"):
        SFTConfig(rank=0)
