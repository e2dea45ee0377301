"""The order in which rows of several environments are learnt."""

from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest
from training_data import examples

from gym_text_policies.training.model import layouts
from gym_text_policies.training.model.lora import load_base
from gym_text_policies.training.model.sequences import Conversation
from gym_text_policies.training.order import GroupedOrder
from gym_text_policies.training.sft import SFTConfig, sft

GROUPS = [*"aaaaaaaaa", *"bbbbb", *"cc"]


def batches(order, size=4):
    indices = list(order)
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def test_batches_are_of_one_group_where_there_are_enough_rows_and_each_row_comes_once():
    order = GroupedOrder(GROUPS, 4, seed=1)
    found = batches(order)
    assert sorted(chain(*found)) == list(range(len(order)))
    kinds = Counter("".join(sorted({GROUPS[index] for index in batch})) for batch in found)
    assert kinds == {"a": 2, "b": 1, "abc": 1}


def test_an_order_is_fixed_by_seed_and_epoch():
    first, second, other = (GroupedOrder(GROUPS, 4, seed) for seed in (1, 1, 2))
    assert list(first) == list(second) == list(first) != list(other)
    second.set_epoch(1)
    assert list(first) != list(second)


@pytest.mark.usefixtures("one_thread")
def test_sft_reads_rows_of_one_environment_together_and_each_row_once_in_an_epoch(tiny_model, tmp_path, monkeypatch):
    rows = examples()
    names = ["One-v0" if place % 2 else "Two-v0" for place in range(len(rows))]
    rows = [replace(row, environment=f'{{"id": "{name}", "kwargs": {{}}}}') for row, name in zip(rows, names, strict=True)]
    _, tokenizer = load_base(tiny_model)
    row_of = {tuple(Conversation.of(tokenizer, row.examples()).tree.tokens): place for place, row in enumerate(rows)}
    passes, plain = [], layouts.answer_losses

    def watched(model, conversations):
        passes.append([row_of[tuple(conversation.tree.tokens)] for conversation in conversations])
        return plain(model, conversations)

    monkeypatch.setattr(layouts, "answer_losses", watched)
    sft(SFTConfig(folder=str(tmp_path / "run"), model=tiny_model, rows_per_pass=2, rows_per_step=4, epochs=2, warmup=0), rows)
    assert all(names[first] == names[second] for first, second in passes)
    first, second = ([*chain(*some)] for some in (passes[:4], passes[4:]))
    assert sorted(first) == sorted(second) == list(range(len(rows))) and first != second
