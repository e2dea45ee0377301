"""The mean of adapters that continue one another."""

# ruff: noqa: F811 (arguments are fixtures of test_models)

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from test_models import REQUEST, adapter, asked, base, change, embedded, made  # noqa: F401

from gym_text import UsageError
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.local.adapters import read_adapter
from gym_text_policies.training.model.average import AverageConfig, average


@pytest.fixture
def pair(adapter, tmp_path):
    """Return two adapters, the second with three times the weights of the first."""
    other = shutil.copytree(adapter, tmp_path / "other")
    weights = load_file(other / "adapter_model.safetensors")
    save_file({name: 3 * weight for name, weight in weights.items()}, other / "adapter_model.safetensors")
    for folder in (adapter, other):
        asked(folder)
    return str(adapter), str(other)


def test_a_mean_of_adapters_plays_with_the_mean_of_their_weights(pair, adapter, tmp_path, embedded):
    mean = average(AverageConfig(pair, str(tmp_path / "mean")))
    record = json.loads((mean / "training.json").read_text())
    assert record["asked"] == {"strategy": "chat", "history": "all", "with_reward": False} and record["template"] == "0123"
    assert record["made_by"]["digests"] == {name: read_adapter(name)[1] for name in pair}
    with pytest.raises(UsageError, match="expected a new folder"):
        average(AverageConfig(pair, str(mean)))
    found = load_backend(str(mean)).answer([REQUEST])[0].probabilities
    change(adapter, lora_alpha=4 * json.loads((adapter / "adapter_config.json").read_text())["lora_alpha"])  # 2 A x 2 B
    assert found == pytest.approx(load_backend(str(adapter)).answer([REQUEST])[0].probabilities, abs=1e-4)


def test_a_mean_has_the_template_that_is_known_of_any_or_none(pair, tmp_path):
    first, second = (Path(folder) / "training.json" for folder in pair)
    first.unlink()
    second.write_text(json.dumps({"template": "0123"}))
    assert json.loads((average(AverageConfig(pair, str(tmp_path / "one"))) / "training.json").read_text())["template"] == "0123"
    second.unlink()
    assert "template" not in json.loads((average(AverageConfig(pair, str(tmp_path / "none"))) / "training.json").read_text())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: change(folder, lora_alpha=3),
        lambda folder: asked(folder, history="0"),
        lambda folder: asked(folder, template="4567"),
    ],
    ids=["alpha", "history", "template"],
)
def test_adapters_that_did_not_go_on_from_one_another_have_no_mean(spoil, pair, tmp_path):
    spoil(tmp_path / "other")
    with pytest.raises(UsageError, match=r"other': expected the base, rank, alpha and prompt of .*adapter'"):
        average(AverageConfig(pair, str(tmp_path / "mean")))
    assert not (tmp_path / "mean").exists()
    with pytest.raises(UsageError, match="adapters: expected two or more"):
        AverageConfig(pair[:1])


def test_adapters_of_different_games_have_no_mean(tmp_path):
    names = ("adapters/babyai-sft", "adapters/cookingworld-sft")
    with pytest.raises(UsageError, match=r"expected one that learnt BabyAIText-v0, .* it learnt CookingWorldText-v0"):
        average(AverageConfig(names, str(tmp_path / "mean")))
    assert not (tmp_path / "mean").exists()
    same = average(AverageConfig(("adapters/cookingworld-sft", "adapters/cookingworld-aggrevate"), str(tmp_path / "same")))
    assert json.loads((same / "training.json").read_text())["made_by"]["environments"] == ["CookingWorldText-v0"]
