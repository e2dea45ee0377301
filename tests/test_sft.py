"""Supervised fine-tuning: from rows to a tuned adapter."""

import dataclasses
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from training_data import GOTO, examples, plain_losses

from gym_text import UsageError
from gym_text_policies.training import layouts
from gym_text_policies.training import sft as module
from gym_text_policies.training.lora import add_lora, load_base
from gym_text_policies.training.rows import exchange_names
from gym_text_policies.training.sft import SFTConfig, last_checkpoint, sft

pytestmark = pytest.mark.usefixtures("one_thread")


def settings(tiny_model, folder, **options):
    return SFTConfig(folder=str(folder), model=tiny_model, rows_per_pass=4, learning_rate=2e-2, warmup=0, **options)


def test_sft_over_fits_eight_examples_and_saves_a_small_16_bit_adapter(tmp_path):
    rows, run = examples(), tmp_path / "run"
    config = SFTConfig(folder=str(run), max_steps=16, epochs=100, save_steps=16, rows_per_pass=8, learning_rate=4e-3, warmup=0)
    folder = sft(config, rows)
    losses = [line["loss"] for line in json.loads((folder / "training.json").read_text())["curve"]]
    assert losses[0] > 2 and losses[-1] < 0.1
    weights = folder / "adapter_model.safetensors"
    assert {tensor.dtype for tensor in load_file(weights).values()} == {torch.float16} and weights.stat().st_size < 10_000_000
    base, tokenizer = load_base("smollm2")
    with torch.no_grad():
        assert max(plain_losses(add_lora(base, adapter=folder).eval(), tokenizer, rows[:2])) < 0.5
    with pytest.raises(UsageError, match="there already"):
        sft(config, rows)


def test_a_run_that_is_done_goes_on_if_max_steps_is_raised(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path / "run", max_steps=2, epochs=20, schedule="constant")
    sft(config, examples())
    folder = sft(dataclasses.replace(config, max_steps=4), examples())
    straight = sft(dataclasses.replace(config, folder=str(tmp_path / "straight"), max_steps=4), examples())
    first, second = (json.loads((made / "training.json").read_text())["curve"] for made in (folder, straight))
    assert [line["step"] for line in first] == [1, 2, 3, 4] and first == second
    weights = [load_file(made / "adapter_model.safetensors") for made in (folder, straight)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    with pytest.raises(UsageError, match=r"of 4 steps\. Name another folder, or let it go on by max_steps above 4"):
        sft(dataclasses.replace(config, max_steps=3), examples())


def test_products_in_bfloat16_learn_nearly_the_same(tiny_model, tmp_path):
    learnt = {}
    for precision in ("float32", "bfloat16"):
        config = settings(tiny_model, tmp_path / precision, max_steps=8, epochs=20, precision=precision)
        curve = json.loads((sft(config, examples()) / "training.json").read_text())["curve"]
        learnt[precision] = [line["loss"] for line in curve]
    assert learnt["bfloat16"] != learnt["float32"]  # it was not left out
    assert learnt["bfloat16"] == pytest.approx(learnt["float32"], rel=0.05)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.torch.jit")  # of torch's own, while it compiles
def test_compiled_layers_learn_the_same_from_rows_of_any_length(tiny_model, tmp_path, noisy_rows, monkeypatch):
    monkeypatch.setattr(layouts, "_BLOCK", 64)
    learnt, dev = [], (f"{GOTO}&max_episode_steps=3",)
    for compiled in (False, True):
        folder = str(tmp_path / str(compiled))
        config = SFTConfig(
            folder=folder, model=tiny_model, rows_per_step=1, rows_per_pass=1, max_steps=4, save_steps=2, compiled=compiled,
            dev_environments=dev, dev_episodes=1,
        )  # fmt: skip
        curve = json.loads((sft(config, noisy_rows) / "training.json").read_text())["curve"]
        learnt.append([line["loss"] for line in curve if "loss" in line])
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert len(learnt[1]) == 4 and learnt[1] == pytest.approx(learnt[0], rel=1e-3)
    assert graphs <= 12, "not more of them for more lengths"


def test_a_run_goes_on_from_its_last_whole_checkpoint(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path / "one", max_steps=6, epochs=20, save_steps=2)
    straight = load_file(sft(config, examples()) / "adapter_model.safetensors")
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # as a run that was killed while it wrote checkpoint-6
    shutil.rmtree(tmp_path / "two/adapter")
    (tmp_path / "two/checkpoint-6/trainer_state.json").unlink()
    assert last_checkpoint(tmp_path / "two").endswith("checkpoint-4")
    resumed = sft(dataclasses.replace(config, folder=str(tmp_path / "two")), examples())
    again = load_file(resumed / "adapter_model.safetensors")
    assert all(torch.equal(straight[name], again[name]) for name in straight)
    weights = tmp_path / "two/checkpoint-6/adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UsageError, match="expected a whole checkpoint"):
        last_checkpoint(tmp_path / "two")
    shutil.rmtree(resumed)
    with pytest.raises(UsageError, match=r"learning_rate: stored 0\.02, given 0\.1"):
        sft(dataclasses.replace(config, folder=str(tmp_path / "two"), learning_rate=0.1), examples())


def test_the_checkpoint_that_plays_best_is_kept(tiny_model, tmp_path, monkeypatch):
    successes = iter([[True, False], [True, True], [False, False]])
    monkeypatch.setattr(module, "play_dev_fold", lambda *_: next(successes))
    folder = sft(settings(tiny_model, tmp_path / "run", max_steps=3, epochs=9, save_steps=1, dev_environments=(GOTO,)), examples())
    best = load_file(tmp_path / "run/checkpoint-2/adapter_model.safetensors")
    saved = load_file(folder / "adapter_model.safetensors")
    assert all(torch.equal(best[name].half(), saved[name]) for name in saved)
    curve = json.loads((folder / "training.json").read_text())["curve"]
    assert [line["eval_success"] for line in curve if "eval_success" in line] == [0.5, 1.0, 0.0]


def test_rows_are_learnt_with_their_names_exchanged(tiny_model, tmp_path, noisy_rows):
    names = ("key", "ball", "box", "grey")

    def first_loss(folder, rows, **options):
        config = settings(tiny_model, tmp_path / folder, max_steps=1, **options)
        return json.loads((sft(config, rows) / "training.json").read_text())["curve"][0]["loss"]

    asked, by_hand, plain = (
        first_loss("a", noisy_rows, interchangeable=names),
        first_loss("b", exchange_names(noisy_rows, names, 0)),
        first_loss("c", noisy_rows),
    )
    assert asked == by_hand != plain
