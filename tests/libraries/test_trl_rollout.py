"""TRL's GRPO by `rollout_func`: an episode is a completion, and what is learnt is what was played."""

import itertools
import json
import runpy
import sys

import pytest
import torch
from libraries.trl_trainers import GOTO, TEMPLATES, length_reward, load, lora, weights
from trl import GRPOTrainer
from trl.chat_template_utils import get_training_chat_template

from gym_text import UsageError
from gym_text.errors import RunError
from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.local.tokens import end_of_turn, fitting_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.bridges.trl import trl_dataset
from gym_text_policies.bridges.trl_rollout import episode_reward, trl_rollout
from gym_text_policies.environments import environment_maker
from gym_text_policies.records import Tokens

pytest_plugins = ["libraries.trl_trainers"]


@pytest.fixture
def rollout_trainer(tiny_model, config):
    model, tokenizer = load(tiny_model)
    return GRPOTrainer(
        model=model,
        args=config(temperature=1.5, learning_rate=1e-3),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", range(2)),
        peft_config=lora(),
        rollout_func=trl_rollout(GOTO, max_tokens=4),
        reward_funcs=[episode_reward, length_reward],
    )


def test_a_step_of_grpo_by_rollout_func(rollout_trainer):
    before = weights(rollout_trainer)
    rollout_trainer.train()
    assert any(not torch.equal(before[name], after) for name, after in weights(rollout_trainer).items())
    (logged,) = [entry for entry in rollout_trainer.state.log_history if "reward" in entry]
    assert logged["success"] == logged["rewards/episode_reward/mean"] == 0 and logged["reward_std"] > 0 and logged["grad_norm"] > 0


def test_what_the_trainer_learns_from_is_what_was_played(rollout_trainer):
    trainer = rollout_trainer
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    rows = [trainer.train_dataset[place] for place in (0, 0, 1, 1)]
    batch = trainer._generate_and_score_completions(rows)
    mask = (batch["tool_mask"] * batch["completion_mask"]).bool()
    assert 0 < mask.sum() < batch["completion_mask"].sum()
    # groups have one level each, and are drawn apart
    assert batch["prompt_ids"][0].equal(batch["prompt_ids"][1]) and not batch["prompt_ids"][1].equal(batch["prompt_ids"][2])
    assert not batch["completion_ids"][0].equal(batch["completion_ids"][1])

    trainer.model.eval()  # no dropout, as at play
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    size = batch["completion_ids"].shape[1]
    with torch.no_grad():
        theirs, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, attention, size)
        logits = trainer.model(ids, attention_mask=attention).logits[:, -size - 1 : -1] / trainer.args.temperature
    plain = logits.log_softmax(-1).gather(2, batch["completion_ids"][..., None])[..., 0]
    played = batch["sampling_per_token_logps"]
    torch.testing.assert_close(played[mask], theirs[mask], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(played[mask], plain[mask], atol=1e-3, rtol=1e-3)
    assert not played[~mask].any()


def test_the_player_learns_with_the_model(rollout_trainer):
    play, trainer = trl_rollout(GOTO, max_tokens=4), rollout_trainer
    prompts = [trainer.train_dataset[0]["prompt"]] * 2
    trainer.args.temperature = 1e-4  # all but greedy
    first = play(prompts, trainer)
    for parameter in trainer.model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=2.0)
    second = play(prompts, trainer)
    said = [played["completion_ids"][place][:4] for played, place in ((first, 0), (first, 1), (second, 0))]
    assert said[0] == said[1] != said[2]
    assert first["completion_ids"][0] == first["completion_ids"][1], "nothing else is drawn"


def test_the_script_of_the_docs_trains_and_draws_the_start_beside(tiny_model, tmp_path, monkeypatch):
    sizes = {"steps": 2, "levels": 2, "group": 2, "episodes-per-pass": 2, "max-episode-steps": 2, "start-draws": 1, "rank": 2}
    options = {"start": tiny_model, "folder": tmp_path / "grpo"} | sizes
    monkeypatch.setattr(sys, "argv", ["trl_babyai.py", *(f"--{name}={value}" for name, value in options.items())])
    runpy.run_path("docs/trl_babyai.py", run_name="__main__")
    record = json.loads((tmp_path / "grpo" / "curve.json").read_text())
    assert record["episodes"] == [4, 8]
    assert {label: len(values) for label, values in record["success"].items()} == {
        "in training": 2,
        "the start, on the same levels": 2,
    }
    levels = [json.loads(line)["levels"] for line in (tmp_path / "grpo" / "metrics.jsonl").read_text().splitlines()]
    assert [len(own) for own in levels] == [2, 2] and not {*levels[0]} & {*levels[1]}
    assert (tmp_path / "grpo" / "curve.png").exists() and load(tmp_path / "grpo" / "model")


def test_what_cannot_be_learnt_from_is_refused(rollout_trainer):
    prompts = [rollout_trainer.train_dataset[0]["prompt"]]
    rollout_trainer.args.top_k = 5
    with pytest.raises(UsageError, match="top_k=0"):
        trl_rollout(GOTO)(prompts, rollout_trainer)
    rollout_trainer.args.top_k = 0
    with pytest.raises(UsageError, match="a row of trl_dataset"):
        trl_rollout(GOTO)([[{"role": "user", "content": "x"}]], rollout_trainer)
    with pytest.raises(UsageError, match="fold"):
        trl_rollout(GOTO + "&fold='dev'")
    with pytest.raises(
        UsageError, match=r"expected rows of trl_dataset for '\S+task=pickup', which is played; got one for '\S+=goto'"
    ):
        trl_rollout("BabyAIText-v0?task=pickup")(prompts, rollout_trainer)


def test_a_model_in_4_bits_plays_itself_and_goes_on_training(rollout_trainer, monkeypatch):
    trainer, model, read = rollout_trainer, rollout_trainer.model, []
    monkeypatch.setattr(model.get_base_model(), "hf_quantizer", "bitsandbytes", raising=False)  # as such models look
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    layer = model.get_base_model().model.layers[0]
    layer.register_forward_hook(lambda module, *_: read.append(module))
    model.train()
    played = trainer.rollout_func([trainer.train_dataset[0]["prompt"]], trainer)
    assert len(read) > 3 and all(module is layer for module in read), "such a model cannot be copied"
    assert model.training and all(module.training for module in model.modules())
    (prompt,), (completion,), (mask,) = (played[name] for name in ("prompt_ids", "completion_ids", "env_mask"))
    with torch.no_grad():
        logits = model.eval()(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1] / 1.5
    plain, drawn = logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0], torch.tensor(mask, dtype=torch.bool)
    torch.testing.assert_close(torch.tensor(played["logprobs"][0])[drawn], plain[drawn], atol=1e-3, rtol=1e-3)
    assert drawn.sum() > 3


def test_an_answer_that_is_no_action_is_told_and_never_replaced_by_one(rollout_trainer, monkeypatch):
    trainer, said = rollout_trainer, ["a camel", "turn left", "", "a camel and a drop, or toggle", "turn left", *["camel"] * 5]
    numbers = iter(range(100))

    def answer(backend, requests):
        (request,) = requests
        text = said[next(numbers)]
        prompt = fitting_tokens(backend._tokenizer, request.messages, 10_000, "tiny", read=request.read)[0]
        own = [*backend.tokens(text), end_of_turn(backend._tokenizer)]
        tokens = {text: Tokens(tuple(prompt), tuple(own), (-1.0,) * len(own))}
        return [Answer(text, tokens=tokens)]

    monkeypatch.setattr(TransformersBackend, "answer", answer)
    played = trl_rollout(GOTO + "0")([trainer.train_dataset[0]["prompt"]], trainer)
    assert [played[name] for name in ("steps", "invalid", "reward", "success")] == [[2], [8], [0.0], [False]]
    (completion,), (mask,) = played["completion_ids"], played["env_mask"]
    runs = [(own, [*pairs]) for own, pairs in itertools.groupby(zip(mask, completion, strict=True), lambda pair: pair[0])]
    texts = [trainer.processing_class.decode([token for _, token in pairs], skip_special_tokens=True) for own, pairs in runs if own]
    assert texts == said, "the model learns from all that it has said, as it said it"
    between = trainer.processing_class.decode([token for own, pairs in runs if not own for _, token in pairs])
    assert between.count("That cannot be used, and nothing has happened. Name exactly one of these actions: turn left") == 7


@pytest.mark.parametrize(
    ("template", "arguments", "asked"), [("qwen3", {}, {"think": False}), ("qwen3_5_think", {}, {"think_tokens": 4})]
)
def test_a_template_that_rewrites_the_past_is_refused_and_trls_training_template_keeps_it(
    tiny_model, config, template, arguments, asked
):
    think = "think_tokens" in asked
    model, tokenizer = load(tiny_model)
    tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    trainer = GRPOTrainer(
        model=model,
        args=config(temperature=1.5, chat_template_kwargs=arguments),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", range(2)),
        rollout_func=trl_rollout(GOTO, max_tokens=4, **asked),
        reward_funcs=episode_reward,
    )
    prompts = [trainer.train_dataset[0]["prompt"]] * 2
    with pytest.raises(UsageError, match="expected a chat template that writes earlier answers as the model generated them"):
        trainer.rollout_func(prompts, trainer)
    tokenizer.chat_template = get_training_chat_template(tokenizer)
    played = trainer.rollout_func(prompts, trainer)
    rows = zip(*(played[name] for name in ("prompt_ids", "completion_ids", "env_mask", "logprobs")), strict=True)
    for prompt, completion, mask, log_probs in rows:
        answers = sum(after > before for before, after in zip([0, *mask], mask, strict=False))
        assert answers >= 3, "several answers in one sequence"
        opened = "<|im_start|>assistant\n<think>\n" + ("" if think else "\n</think>\n\n")
        assert tokenizer.decode(prompt).endswith(opened) and tokenizer.decode(completion).count(opened) >= 2
        with torch.no_grad():
            logits = trainer.model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1] / 1.5
        plain = logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
        drawn = torch.tensor(mask, dtype=torch.bool)
        torch.testing.assert_close(torch.tensor(log_probs)[drawn], plain[drawn], atol=1e-3, rtol=1e-3)
        written = tokenizer.decode([token for token, own in zip(completion, mask, strict=True) if not own])
        closed = tokenizer.decode(completion).count(opened) + think
        assert written.count("</think>") == closed >= 2, "also what closes a thought that was cut is not learnt"
    tokenizer.chat_template, trainer.args.chat_template_kwargs = (TEMPLATES / "qwen3_training.jinja").read_text(), None
    with pytest.raises(RunError, match="answered without a thought"):
        trl_rollout(GOTO, max_tokens=4, think=True)(prompts, trainer)


def test_nothing_is_learnt_from_episodes_that_fail(failing, rollout_trainer, caplog, monkeypatch):
    monkeypatch.setattr("gym_text_policies.policies.llm.parse_action", lambda *_, **__: "turn left")  # whatever is said
    trainer = rollout_trainer
    name = f"{failing}?task=goto&failing=[1]&at_start=True"
    trainer.rollout_func, dataset = trl_rollout(name, max_tokens=4), trl_dataset(name, "train", range(2))
    trainer.reward_funcs[1] = lambda reward, steps, **_: [None if value is None else 1.0 for value in reward]
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    rows = [dataset[place] for place in (0, 0, 1, 1)]
    with caplog.at_level("WARNING"):
        batch = trainer._generate_and_score_completions(rows)
    assert "trl_rollout: 2 of 4 episodes ended in an error; of Failing-v0, seed 1: EngineError: the engine has died" in caplog.text
    assert not batch["advantages"].any() and batch["advantages"].isfinite().all()
    assert trainer._metrics["train"]["rewards/episode_reward/mean"] == [0.0], "of those that did not fail"
    assert trainer.compute_loss(trainer.model, {**batch, "num_items_in_batch": batch["completion_mask"].sum()}).isfinite()


def test_an_episode_longer_than_the_window_ends_alone(rollout_trainer, monkeypatch, caplog):
    trainer = rollout_trainer
    prompts = [trainer.train_dataset[0]["prompt"], trainer.train_dataset[1]["prompt"]]
    with environment_maker(GOTO, fold="train")() as env:
        goal = env.reset(seed=0)[0]["goal"]
    monkeypatch.setattr(
        "gym_text_policies.policies.llm.parse_action", lambda said, spec, obs, **_: "turn left" if obs["goal"] == goal else None
    )
    monkeypatch.setattr("gym_text_policies.backends.local.transformers.window_of", lambda config: 600)
    played = trl_rollout(f"{GOTO}0", max_tokens=4)(prompts, trainer)
    assert played["reward"] == [None, 0.0] and "trl_rollout: 1 of 2 episodes ended in an error" in caplog.text
    assert "longer than the model's window" in caplog.text
