"""One adapter of several: the update of each layer that is nearest to what each adapter does with its own inputs."""

import dataclasses
import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from training_data import with_random_adapter

from gym_text import UsageError
from gym_text_policies.backends.local.adapters import read_adapter
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import read_rows, write_rows
from gym_text_policies.policies.config import settings_of
from gym_text_policies.training.model import combine as module
from gym_text_policies.training.model.combine import CombineConfig, combine
from gym_text_policies.training.model.lora import add_lora, load_base
from gym_text_policies.training.model.saving import save_adapter

pytestmark = pytest.mark.usefixtures("one_thread")
TASKS = ("goto", "pickup")


@pytest.fixture(scope="module")
def made(tiny_model, tmp_path_factory):
    """Return the settings for two random adapters of rank 2, with one-step rows of two environments."""
    folder = tmp_path_factory.mktemp("combine")
    adapters, data = [], []
    for number, task in enumerate(TASKS):
        torch.manual_seed(number)
        base, _ = load_base(tiny_model)
        model = with_random_adapter(add_lora(base, rank=2, alpha=3 + number))
        save_adapter(model, folder / task, {})
        adapters.append(str(folder / task))
        collect(CollectConfig(str(folder / f"{task}-data"), (f"BabyAIText-v0?task={task}",), ("12",), history=0))
        data.append(str(folder / f"{task}-data/rows"))
    return CombineConfig(tuple(adapters), tuple(data), str(folder / "one"), rank=64, tokens_per_dataset=10**6)


def updates_of(tiny_model, adapter):
    """Return the update that an adapter makes to each layer's weights."""
    base, _ = load_base(tiny_model)
    model = add_lora(base, adapter=adapter)
    return {name: layer.get_delta_weight("default").detach() for name, layer in model.named_modules() if hasattr(layer, "lora_A")}


def inputs_of(tiny_model, adapter, rows):
    """Return the inputs of each layer, of shape (tokens, width), in plain passes over rows; what prompts share comes once."""
    base, tokenizer = load_base(tiny_model)
    model = add_lora(base, adapter=adapter).eval()
    texts = []
    for row in read_rows(rows):
        for messages, answer, *_ in row.examples():
            texts.append([*prompt_tokens(tokenizer, messages), *text_tokens(tokenizer, answer)])
    seen, found, hooks = set(), {}, []
    fresh = []

    def watch(name):
        return lambda layer, arguments: found.setdefault(name, []).append(arguments[0][0][fresh].double())

    for name, layer in model.named_modules():
        if hasattr(layer, "lora_A"):
            hooks.append(layer.register_forward_pre_hook(watch(name)))
    for text in texts:
        fresh[:] = [place for place in range(len(text)) if tuple(text[: place + 1]) not in seen]
        seen.update(tuple(text[: place + 1]) for place in range(len(text)))
        with torch.no_grad():
            model(input_ids=torch.tensor([text]))
    return {name: torch.cat(some) for name, some in found.items()}


@pytest.fixture(scope="module")
def worlds(tiny_model, made):
    """Return for each adapter its updates and its inputs."""
    return [
        (updates_of(tiny_model, adapter), inputs_of(tiny_model, adapter, rows))
        for adapter, rows in zip(made.adapters, made.data, strict=True)
    ]


def error_of(update, layer, worlds):
    """Return the mean square of what an update of a layer misses in each world, added up."""
    return sum(float((inputs[layer] @ (update.double() - updates[layer].double()).T).square().sum() / len(inputs[layer]))
               for updates, inputs in worlds)  # fmt: skip


def test_with_enough_rank_each_layer_has_the_least_squares_solution(made, worlds, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "DIAGONAL", 0.0)
    monkeypatch.setattr(module, "RIDGE", 1e-6)
    monkeypatch.setattr(module, "_TOKENS_PER_PASS", 10**6)  # so that what all prompts share is read once
    found = updates_of(tiny_model, combine(dataclasses.replace(made, folder=str(tmp_path / "one"))))
    assert len(found) == len(worlds[0][0])
    for layer, update in found.items():
        rows = torch.cat([inputs[layer] / math.sqrt(len(inputs[layer])) for _, inputs in worlds])
        wanted = torch.cat(
            [inputs[layer] / math.sqrt(len(inputs[layer])) @ updates[layer].double().T for updates, inputs in worlds]
        )
        best = torch.linalg.lstsq(rows, wanted).solution.T
        least, all_of_it = error_of(best, layer, worlds), error_of(torch.zeros_like(best), layer, worlds)
        assert error_of(update, layer, worlds) <= least + 1e-3 * all_of_it


def test_a_low_rank_misses_less_than_a_sum_that_is_cut(made, worlds, tiny_model, tmp_path):
    found = updates_of(tiny_model, combine(dataclasses.replace(made, folder=str(tmp_path / "one"), rank=2)))
    for layer, update in found.items():
        left, singular, right = torch.linalg.svd(sum(updates[layer] for updates, _ in worlds))
        cut = left[:, :2] * singular[:2] @ right[:2]
        assert torch.linalg.matrix_rank(update.double(), rtol=1e-3) <= 2
        assert error_of(update, layer, worlds) < error_of(cut, layer, worlds)


def test_an_adapter_with_itself_is_that_adapter_and_is_asked_as_the_data_say(made, worlds, tiny_model, tmp_path):
    twice = dataclasses.replace(made, adapters=made.adapters[:1] * 2, data=made.data[:1] * 2, folder=str(tmp_path / "one"), rank=2)
    folder = combine(twice)
    for layer, update in updates_of(tiny_model, folder).items():
        zero = torch.zeros_like(update)
        assert error_of(update, layer, worlds[:1]) < 1e-3 * error_of(zero, layer, worlds[:1])
    assert settings_of(str(folder)) == {"mode": "choose", "strategy": "chat", "history": 0, "with_reward": False}
    record = json.loads((folder / "training.json").read_text())["made_by"]
    assert record["digests"] == {made.adapters[0]: read_adapter(made.adapters[0])[1]}
    assert load_file(folder / "adapter_model.safetensors")
    with pytest.raises(UsageError, match="expected a new folder"):
        combine(twice)


def test_what_does_not_fit_is_refused(made, tiny_model, tmp_path):
    with pytest.raises(UsageError, match="two or more adapters, and a dataset for each; got 2 and 1"):
        CombineConfig(made.adapters, made.data[:1])
    with pytest.raises(UsageError, match="is none"):
        combine(dataclasses.replace(made, adapters=(made.adapters[0], tiny_model), folder=str(tmp_path / "a")))
    with pytest.raises(UsageError, match="expected one for"):
        combine(dataclasses.replace(made, adapters=(made.adapters[0], "adapters/babyai-sft"), folder=str(tmp_path / "b")))
    spoilt = shutil.copytree(made.adapters[1], tmp_path / "spoilt")
    weights = load_file(spoilt / "adapter_model.safetensors")
    save_file(weights | {"base_model.model.lm_head.weight": torch.zeros(2, 2)}, spoilt / "adapter_model.safetensors")
    with pytest.raises(UsageError, match=r"products of two matrices; .* also has 'base_model\.model\.lm_head\.weight'"):
        combine(dataclasses.replace(made, adapters=(made.adapters[0], str(spoilt)), folder=str(tmp_path / "d")))
    rows = [dataclasses.replace(row, strategy="zero_shot") for row in read_rows(made.data[1])]
    write_rows(rows, tmp_path / "other")
    with pytest.raises(UsageError, match="strategy"):
        combine(dataclasses.replace(made, data=(made.data[0], str(tmp_path / "other")), folder=str(tmp_path / "c")))
