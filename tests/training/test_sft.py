"""Supervised fine-tuning: from rows to a tuned adapter."""

import dataclasses
import json
import math
from itertools import chain

import pytest
import torch
from safetensors.torch import load_file
from training_data import GOTO, examples, plain_losses, with_gemmas_ends

from gym_text import UsageError
from gym_text.errors import RunError, StoreError
from gym_text_policies.backends.local.adapters import read_adapter
from gym_text_policies.backends.local.prefixes import Tree
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.data.exchange import exchange_names
from gym_text_policies.load import resolved
from gym_text_policies.policies.config import PolicyConfig, settings_of
from gym_text_policies.training import sft as run
from gym_text_policies.training.model import actor_critic, layouts
from gym_text_policies.training.model.lora import add_lora, load_base
from gym_text_policies.training.model.saving import newest_checkpoint
from gym_text_policies.training.model.sequences import Conversation
from gym_text_policies.training.sft import SFTConfig, sft

pytestmark = pytest.mark.usefixtures("one_thread")


def settings(tiny_model, folder, **options):
    return SFTConfig(folder=str(folder), model=tiny_model, learning_rate=2e-2, warmup=0, **options)


def test_sft_over_fits_eight_examples_and_saves_a_small_16_bit_adapter(tmp_path):
    rows, run = examples(), tmp_path / "run"
    config = SFTConfig(folder=str(run), max_steps=11, epochs=100, save_steps=11, learning_rate=4e-3, warmup=0)
    folder = sft(config, rows)
    losses = [line["loss"] for line in json.loads((folder / "training.json").read_text())["curve"]]
    assert losses[0] > 2 and losses[-1] < 0.1
    weights = folder / "adapter_model.safetensors"
    assert {tensor.dtype for tensor in load_file(weights).values()} == {torch.float16} and weights.stat().st_size < 10_000_000
    base, tokenizer = load_base("smollm2")
    with torch.no_grad():
        assert max(plain_losses(add_lora(base, adapter=folder).eval(), tokenizer, rows[:2])) < 0.5
    before = weights.read_bytes()
    assert sft(config, rows) == folder and weights.read_bytes() == before, "the run was done"


def test_the_end_of_turn_that_is_learnt_is_the_templates_and_not_the_tokenizers(tiny_model, tmp_path):
    folder = with_gemmas_ends(tiny_model, tmp_path / "gemma")
    adapter = sft(settings(str(folder), tmp_path / "run", max_steps=40, epochs=100, schedule="constant"), examples())
    base, tokenizer = load_base(str(folder))
    model = add_lora(base, adapter=adapter).eval()
    for row in examples():
        ((messages, answer, *_),) = row.examples()
        prompt = prompt_tokens(tokenizer, messages)
        expected = [*text_tokens(tokenizer, answer), tokenizer.convert_tokens_to_ids("<end_of_turn>")]
        with torch.no_grad():
            said = model(torch.tensor([prompt + expected])).logits[0].argmax(-1)[len(prompt) - 1 : -1]
        assert said[-1] == expected[-1] and tokenizer.eos_token == "<eos>"


def test_a_step_is_read_in_passes_which_change_nothing_and_rows_of_one_environment_go_together(tiny_model, tmp_path, monkeypatch):
    names = ["One-v0" if place % 2 else "Two-v0" for place in range(8)]
    rows = [
        dataclasses.replace(row, environment=json.dumps({"id": name, "kwargs": {}}))
        for row, name in zip(examples(), names, strict=True)
    ]
    _, tokenizer = load_base(tiny_model)
    conversations = [Conversation.of(tokenizer, row.examples()) for row in rows]
    row_of = {tuple(conversation.tree.tokens): place for place, conversation in enumerate(conversations)}
    read, plain, curves = [], layouts.answer_losses, []

    def watched(model, conversations):
        read[-1].append([row_of[tuple(conversation.tree.tokens)] for conversation in conversations])
        return plain(model, conversations)

    monkeypatch.setattr(layouts, "answer_losses", watched)
    for tokens in (70, 10**6):
        read.append([])
        config = settings(tiny_model, tmp_path / str(tokens), epochs=2, rows_per_step=8, tokens_per_pass=tokens)
        curves.append(json.loads((sft(config, rows) / "training.json").read_text())["curve"])
    parts, whole = read
    assert len(whole) == 2 and 4 < len(parts) < 16
    for part in parts:
        together = Tree()
        for place in part:
            together.graft(conversations[place].tree)
        assert len(part) == 1 or len(together.tokens) <= 70
    for step in whole:
        assert [names[place] for place in step] == sorted(names) and sorted(step) == list(range(8))
    assert list(chain(*parts)) == list(chain(*whole)) and whole[0] != whole[1]
    assert [line["loss"] for line in curves[0]] == pytest.approx([line["loss"] for line in curves[1]], rel=1e-4)


def test_a_run_that_is_done_goes_on_if_max_steps_is_raised(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path / "run", max_steps=2, epochs=20, schedule="constant")
    sft(config, examples())
    folder = sft(dataclasses.replace(config, max_steps=4, save_steps=3), examples())
    straight = sft(dataclasses.replace(config, folder=str(tmp_path / "straight"), max_steps=4), examples())
    first, second = (json.loads((made / "training.json").read_text())["curve"] for made in (folder, straight))
    assert [line["step"] for line in first] == [1, 2, 3, 4] and first == second
    weights = [load_file(made / "adapter_model.safetensors") for made in (folder, straight)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_products_in_bfloat16_learn_nearly_the_same(tiny_model, tmp_path):
    learnt = {}
    for dtype in ("float32", "bfloat16"):
        config = settings(tiny_model, tmp_path / dtype, max_steps=8, epochs=20, dtype=dtype)
        curve = json.loads((sft(config, examples()) / "training.json").read_text())["curve"]
        learnt[dtype] = [line["loss"] for line in curve]
    assert learnt["bfloat16"] != learnt["float32"]  # it was not left out
    assert learnt["bfloat16"] == pytest.approx(learnt["float32"], rel=0.05)


def test_a_run_goes_on_from_its_checkpoint_and_its_settings_stay(tiny_model, tmp_path, monkeypatch):
    config = settings(tiny_model, tmp_path / "one", max_steps=6, epochs=20, save_steps=2)
    straight = load_file(sft(config, examples()) / "adapter_model.safetensors")
    again = dataclasses.replace(config, folder=str(tmp_path / "two"))
    batches, batch_of = [], run.batch_of

    def killed(*arguments):
        batches.append(batch_of(*arguments))
        if len(batches) == 4:
            raise KeyboardInterrupt
        return batches[-1]

    with monkeypatch.context() as patch:
        patch.setattr(run, "batch_of", killed)
        with pytest.raises(KeyboardInterrupt, match="checkpoint-2 is kept; the same command goes on"):
            sft(again, examples())
    with pytest.raises(UsageError, match=r"learning_rate: stored 0\.02, given 0\.1"):
        sft(dataclasses.replace(again, learning_rate=0.1), examples())
    resumed = load_file(sft(again, examples()) / "adapter_model.safetensors")
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


@pytest.mark.parametrize(("warmup", "rates"), [(0, [1, 1, 1]), (1, [0.5, 1, 1]), (3, [0.25, 0.5, 0.75])])
def test_the_first_step_of_a_warm_up_learns(warmup, rates):
    config = SFTConfig(learning_rate=1.0, schedule="constant", warmup=warmup)
    assert [run.learning_rate(config, step, 9) for step in range(3)] == rates


def test_the_checkpoint_that_plays_best_is_kept(tiny_model, tmp_path, monkeypatch):
    successes = iter([0.5, 1.0, 0.0])
    monkeypatch.setattr(run, "dev_success", lambda *_: {"dev_success": next(successes)})
    folder = sft(settings(tiny_model, tmp_path / "run", max_steps=3, epochs=9, save_steps=1, dev_environments=(GOTO,)), examples())
    run_folder = tmp_path / "run"
    saved, best, last = (load_file(run_folder / name / "adapter_model.safetensors") for name in ("adapter", "best", "checkpoint-3"))
    assert all(torch.equal(best[name].half(), saved[name]) for name in saved)
    assert any(not torch.equal(best[name], last[name]) for name in last)
    curve = json.loads((folder / "training.json").read_text())["curve"]
    assert [line["dev_success"] for line in curve] == [0.5, 1.0, 0.0]


def test_rows_are_learnt_with_their_names_exchanged(tiny_model, tmp_path, noisy_rows):
    names = ("key", "ball", "box", "grey")

    def first_loss(folder, rows, **options):
        config = settings(tiny_model, tmp_path / folder, max_steps=1, **options)
        return json.loads((sft(config, rows) / "training.json").read_text())["curve"][0]["loss"]

    asked = first_loss("a", noisy_rows, interchangeable=names)
    assert asked == first_loss("b", exchange_names(noisy_rows, names, 0))


def test_a_loss_that_is_not_finite_ends_the_run_in_one_sentence_and_the_last_checkpoint_is_kept(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path / "run", max_steps=5, epochs=20, save_steps=1)
    with pytest.raises(RunError, match=r"step 2: expected finite numbers; loss is (inf|nan)"):
        sft(dataclasses.replace(config, learning_rate=1e20), examples())
    assert newest_checkpoint(tmp_path / "run").name == "checkpoint-1" and not (tmp_path / "run/adapter").exists()


def test_a_gradient_that_is_not_finite_changes_no_weight(tiny_model, tmp_path, monkeypatch):
    model = []

    def noted(*arguments, **options):
        model.append(add_lora(*arguments, **options))
        next(value for value in model[0].parameters() if value.requires_grad).register_hook(lambda gradient: gradient * math.inf)
        return model[0]

    monkeypatch.setattr(actor_critic, "add_lora", noted)
    with pytest.raises(RunError, match=r"step 1: expected finite numbers; gradient is (inf|nan)"):
        sft(settings(tiny_model, tmp_path / "run", max_steps=2), examples())
    assert not any(value.any() for name, value in model[0].named_parameters() if "lora_B" in name), "as a new adapter begins"


def test_a_checkpoint_is_asked_as_the_adapter_is_and_holds_no_pickle(tiny_model, tmp_path):
    adapter = sft(settings(tiny_model, tmp_path / "run", max_steps=1), examples())
    checkpoint = tmp_path / "run/checkpoint-1"
    assert settings_of(str(checkpoint)) == settings_of(str(adapter)) != {}
    assert read_adapter(checkpoint)[0] == tiny_model
    label = resolved(PolicyConfig(str(checkpoint))).label
    assert label.endswith(", chat, choose") and label[-20:] == resolved(PolicyConfig(str(adapter))).label[-20:]
    assert {path.suffix for path in checkpoint.iterdir()} == {".json", ".safetensors"}, "nothing that could run code"


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_from_its_last_checkpoint(tiny_model, tmp_path, full_disk):
    config = settings(tiny_model, tmp_path / "run", max_steps=1, epochs=20, schedule="constant")
    sft(config, examples())
    before = {path.name: path.read_bytes() for path in (tmp_path / "run/adapter").iterdir()}
    more = dataclasses.replace(config, max_steps=2)
    size = (tmp_path / "run/checkpoint-1/optimizer.safetensors").stat().st_size - 1
    with full_disk(size), pytest.raises(StoreError, match=r"expected to write there; .* Make room, and the same command goes on"):
        sft(more, examples())
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-1"]
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run/adapter").iterdir()}
    straight = sft(dataclasses.replace(more, folder=str(tmp_path / "straight")), examples())
    weights = [load_file(made / "adapter_model.safetensors") for made in (sft(more, examples()), straight)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_rows_longer_than_the_window_are_left_out_before_training_begins(tiny_model, tmp_path, caplog):
    rows = examples()
    long = dataclasses.replace(rows[0], messages=({"role": "user", "content": 3000 * "door "}, rows[0].messages[1]))
    folder = sft(settings(tiny_model, tmp_path / "run", max_steps=1), [long, *rows[1:]])
    assert json.loads((folder / "training.json").read_text())["made_by"]["data"]["rows"] == 7
    assert "1 of 8 rows are longer than the model's window of 2048 tokens: left out." in caplog.text
    with pytest.raises(UsageError, match="expected rows of at most 2048 tokens"):
        sft(settings(tiny_model, tmp_path / "other", max_steps=1), [long])
