"""Rows of `gym-text export` in TRL's trainers."""

import json

import pytest
from datasets import load_dataset
from libraries.trl_trainers import GOTO, TEMPLATES, load, with_markers
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from gym_text_policies import cli, load_policy, rollout
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.tokens import prompt_tokens
from gym_text_policies.bridges.trl import trl_environment, trl_record
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import settings_of
from gym_text_policies.training.model.sequences import Conversation

pytest_plugins = ["libraries.trl_trainers"]


def path_to(tree, node):
    """Return the tokens from the beginning of a conversation to a node."""
    tokens = []
    while node >= 0:
        tokens, node = [tree.tokens[node], *tokens], tree.parents[node]
    return tokens


def test_the_answers_of_collected_rows_and_nothing_else_count_in_trls_sft_trainer(tiny_model, tmp_path):
    data = ["--environments", GOTO, "--episodes", "2", "--noise", "0.6", "--history", "all", "--folder", str(tmp_path / "data")]
    assert cli.main(["collect", *data]) == 0
    rows = read_rows(tmp_path / "data/rows")
    assert any(label and label != said["content"] for row in rows for said, label in zip(row.messages, row.labels, strict=True))
    file, examples = str(tmp_path / "rows.jsonl"), [example for row in rows for example in row.examples()]
    assert cli.main(["export", "--format", "trl-sft", "--data", str(tmp_path / "data/rows"), "--file", file]) == 0
    model, tokenizer = load(tiny_model)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(output_dir=str(tmp_path / "sft"), max_length=None, max_steps=1, use_cpu=True, bf16=False, report_to="none"),
        processing_class=tokenizer,
        train_dataset=load_dataset("json", data_files=file, split="train"),
    )
    batch = trainer.data_collator([trainer.train_dataset[place] for place in range(len(examples))])
    for example, ids, labels in zip(examples, batch["input_ids"], batch["labels"], strict=True):
        learnt = labels != -100
        assert tokenizer.decode(ids[learnt]) == f"{example.answer}<|im_end|>\n", "the expert's action, never the noise"
        prompt = prompt_tokens(tokenizer, example.messages, format_of(tokenizer).answer_start(False))
        assert ids[: int(learnt.nonzero()[0])].tolist() == prompt, "the tokens that are played"
    trainer.train()


def test_the_calls_of_collected_rows_and_nothing_else_count_in_trls_trainers(tiny_model, tmp_path):
    own = ["--environments", GOTO, "--episodes", "2", "--options", "mode=tool", "--strategy", "tool_short", "--folder"]
    assert cli.main(["collect", *own, str(tmp_path / "data"), "--noise", "0.6"]) == 0
    rows = read_rows(tmp_path / "data/rows")
    model, tokenizer = load(tiny_model)
    with_markers(tokenizer, "qwen2_5")
    model.resize_token_embeddings(len(tokenizer))
    settings = {"max_length": None, "max_steps": 1, "use_cpu": True, "bf16": False, "report_to": "none"}
    file = str(tmp_path / "rows.jsonl")
    assert cli.main(["export", "--format", "trl-sft", "--data", str(tmp_path / "data/rows"), "--file", file]) == 0
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(output_dir=str(tmp_path / "sft"), **settings),
        processing_class=tokenizer,
        train_dataset=load_dataset("json", data_files=file, split="train"),
    )
    decisions = [
        (ids, [token for _, token in decision.answers[0]])
        for row in rows
        for conversation in [Conversation.of(tokenizer, row.examples())]
        for decision in conversation.decisions
        for ids in [path_to(conversation.tree, decision.prompt_end)]
    ]
    assert len(trainer.train_dataset) == len(decisions) > 3
    batch = trainer.data_collator([trainer.train_dataset[place] for place in range(len(decisions))])
    for (prompt, call), ids, labels in zip(decisions, batch["input_ids"], batch["labels"], strict=True):
        first = int((labels != -100).nonzero()[0])
        assert tokenizer.decode(labels[labels != -100]).strip() == tokenizer.decode(call).strip()
        assert ids[:first].tolist() == prompt, "the tokens that are played"
        assert labels[first : first + len(call)].tolist() == call


def dpo_trainer(model, tokenizer, file):
    settings = {"max_steps": 1, "max_length": None, "use_cpu": True, "bf16": False, "report_to": "none"}
    return DPOTrainer(
        model=model,
        args=DPOConfig(output_dir=str(file.with_name("dpo")), **settings),
        processing_class=tokenizer,
        train_dataset=load_dataset("json", data_files=str(file), split="train"),
    )


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")  # TRL uses the old name
def test_trls_dpo_trainer_reads_the_prompts_that_are_played_and_prefers_the_better_answer(tiny_model, tmp_path):
    for seed in ("0", "1"):
        own = ["--model", "random", "--labels", "own", "--threshold", "-1", "--options", f"seed={seed}"]
        where = ["--environments", f"{GOTO}0", "--episodes", "12", "--folder", str(tmp_path / seed)]
        assert cli.main(["collect", *where, *own]) == 0
    file, data = tmp_path / "pairs.jsonl", [str(tmp_path / seed / "rows") for seed in ("0", "1")]
    assert cli.main(["export", "--format", "trl-dpo", "--data", *data, "--file", str(file)]) == 0
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    model, tokenizer = load(tiny_model)
    trainer = dpo_trainer(model, tokenizer, file)
    for pair, row in zip(pairs, trainer.train_dataset, strict=True):
        assert row["prompt_ids"] == prompt_tokens(tokenizer, pair["prompt"], format_of(tokenizer).answer_start(False)), (
            "the tokens that are played"
        )
        for kind in ("chosen", "rejected"):
            assert tokenizer.decode(row[f"{kind}_ids"]) == f"{pair[kind][0]['content']}<|im_end|>\n"
    trainer.train()


def test_a_model_that_has_learnt_from_rows_is_measured_with_their_prompts(tiny_model, tmp_path):
    data = ["--environments", GOTO, "--episodes", "2", "--strategy", "words", "--folder", str(tmp_path / "data")]
    assert cli.main(["collect", "--model", "random", "--labels", "own", "--threshold", "-1", *data]) == 0
    rows, file = str(tmp_path / "data/rows"), str(tmp_path / "rows.jsonl")
    assert cli.main(["export", "--format", "trl-sft", "--data", rows, "--file", file]) == 0
    model, tokenizer = load(tiny_model)
    tokenizer.chat_template = (TEMPLATES / "qwen3_training.jinja").read_text()
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(output_dir=str(tmp_path / "sft"), max_length=None, max_steps=1, use_cpu=True, bf16=False, report_to="none"),
        processing_class=tokenizer,
        train_dataset=load_dataset("json", data_files=file, split="train"),
    )
    trainer.save_model(tmp_path / "model")
    trl_record(tmp_path / "model", rows, trainer)
    asked = settings_of(str(tmp_path / "model"))
    assert asked == {"mode": "choose", "strategy": "words", "history": "all", "with_reward": False, "think": False}
    make = environment_maker(GOTO, fold="train")
    with make() as env:
        policy = load_policy(str(tmp_path / "model"), env, tokens=True)
    (episode,) = rollout(make, policy, [0])
    learnt = [example["input_ids"] for example in trainer.train_dataset]
    first = list(episode.steps[0].decision.tokens.prompt)
    assert first in [ids[: len(first)] for ids in learnt], "the prompt of the training, token by token"
    trl_record(
        tmp_path / "model", trl_environment("BabyAIText-v0?task=goto"), trainer
    )  # an SFTConfig has no arguments of a template
    assert settings_of(str(tmp_path / "model"))["mode"] == "tool"
