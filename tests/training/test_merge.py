"""An adapter and its base as one model."""

import json

import pytest
from training_data import examples, plain_losses, with_random_adapter

from gym_text import UsageError
from gym_text.errors import StoreError
from gym_text_policies import cli
from gym_text_policies.backends.local.adapters import content_of
from gym_text_policies.policies.config import settings_of
from gym_text_policies.training.model.lora import add_lora, load_base
from gym_text_policies.training.model.merge import MergeConfig, merge
from gym_text_policies.training.model.saving import save_adapter

ASKED = {"mode": "choose", "strategy": "zero_shot", "history": 2, "with_reward": True, "think": False}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def adapter(tiny_model, tmp_path):
    """Return the folder of an adapter that changes what the small model says."""
    base, _ = load_base(tiny_model)
    save_adapter(with_random_adapter(add_lora(base)), tmp_path / "adapter", {"asked": ASKED})
    return tmp_path / "adapter"


def test_a_merged_adapter_is_a_model_that_needs_none(tiny_model, adapter, tmp_path, capsys):
    assert cli.main(["merge", str(adapter), str(tmp_path / "merged")]) == 0
    assert f"The model: {tmp_path / 'merged'}" in capsys.readouterr().out
    base, tokenizer = load_base(tiny_model)
    merged, _ = load_base(str(tmp_path / "merged"))
    tuned = plain_losses(add_lora(base, adapter=adapter).eval(), tokenizer, examples())
    assert tuned == pytest.approx(plain_losses(merged.eval(), tokenizer, examples()), abs=1e-3)
    assert tuned != pytest.approx(plain_losses(load_base(tiny_model)[0].eval(), tokenizer, examples()), abs=1e-1)


def test_a_merged_model_is_asked_as_its_adapter_was_and_its_record_is_no_part_of_its_identity(adapter, tmp_path):
    folder = merge(MergeConfig(str(adapter), str(tmp_path / "merged")))
    assert settings_of(str(folder)) == settings_of(str(adapter)) == ASKED
    content = content_of(str(folder))
    (folder / "training.json").write_text(json.dumps({"asked": {**ASKED, "on_invalid": "play"}}))
    assert content_of(str(folder)) == content
    with pytest.raises(UsageError, match=r"expected under 'asked' only how the model is asked .* got on_invalid"):
        settings_of(str(folder))


def test_a_folder_that_exists_a_base_and_a_full_disk_are_one_sentence_and_change_nothing(tiny_model, adapter, tmp_path, full_disk):
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="there: expected a new folder; it is there already"):
        merge(MergeConfig(str(adapter), str(tmp_path / "there")))
    with pytest.raises(UsageError, match=r"model: expected an adapter, as gym-text sft makes it; .*tiny.* is none"):
        merge(MergeConfig(tiny_model, str(tmp_path / "merged")))
    with full_disk(10_000), pytest.raises(StoreError, match="Make room"):
        merge(MergeConfig(str(adapter), str(tmp_path / "merged")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "there"]
