"""TRL itself: a step of GRPO in each of its two ways, and its collators on exported episodes. Run by ``tests/test_trl.py``."""

import itertools
import json
import pickle
import re
import runpy
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import trl
from datasets import concatenate_datasets, load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from trl.chat_template_utils import get_training_chat_template
from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker
from trl.experimental.async_grpo.packing import TreeRow
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from gym_text import UsageError
from gym_text.babyai.env import BABYAI_SPEC, BabyAITextEnv
from gym_text.errors import EngineError, RunError
from gym_text_policies import EpisodeStore, cli, load_policy, rollout
from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.call_format import with_tool
from gym_text_policies.backends.local.rendering import calls_of, format_of, rendered
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.backends.local.tokens import end_of_turn, fitting_tokens, prompt_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.bridges.trl import TRLEnvironment, trl_dataset, trl_environment, trl_record
from gym_text_policies.bridges.trl_rollout import episode_reward, trl_rollout
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import settings_of
from gym_text_policies.prompts import Prompt
from gym_text_policies.prompts.tools import call_of, tool_function
from gym_text_policies.records import Tokens
from gym_text_policies.training.model.sequences import Conversation

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=3"
CALL = '<tool_call>\n{{"name": "act", "arguments": {{"action": "{}"}}}}\n</tool_call><|im_end|>'
RESPONSE = "\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
WITH_TOOLS = (TEMPLATES / "qwen2_5.jinja").read_text()


@pytest.fixture
def config(tmp_path):
    """Return a function that makes the settings of one step on the CPU, with groups of two."""

    def make(**settings):
        sizes = {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 256}
        quiet = {"report_to": "none", "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True}
        return GRPOConfig(
            output_dir=str(tmp_path), use_cpu=True, bf16=False, gradient_checkpointing=False, **(sizes | quiet | settings)
        )

    return make


def lora():
    return LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", lora_dropout=0.1)


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def path_to(tree, node):
    """Return the tokens from the beginning of a conversation to a node."""
    tokens = []
    while node >= 0:
        tokens, node = [tree.tokens[node], *tokens], tree.parents[node]
    return tokens


def length_reward(completion_ids, **_):
    """A reward that differs between the episodes of a model that wins none."""
    return [float(sum(ids) % 1009) for ids in completion_ids]


def weights(trainer):
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}


@pytest.fixture
def rollout_trainer(tiny_model, config):
    model, tokenizer = load(tiny_model)
    return GRPOTrainer(
        model=model,
        args=config(temperature=1.5, learning_rate=1e-3),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0", "train", range(2), task="goto"),
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


OTHERS = [("history", 0), ("mode", "choose"), ("on_invalid", "random"), ("temperature", 1.0), ("seed", 1), ("top_p", 0.5)]
OTHERS += [("top_k", 5), ("min_p", 0.1), ("noise", 0.5), ("expert_share", 0.5), ("lookahead", "puct"), ("tokens", False)]


@pytest.mark.parametrize(("name", "value"), OTHERS)
def test_settings_that_the_trainer_has_or_that_change_what_is_learnt_are_refused(name, value):
    with pytest.raises(UsageError, match=f"trl_rollout: got an unknown option '{name}'.*Options: max_tokens, strategy, think"):
        trl_rollout(GOTO, **{name: value})


@pytest.mark.parametrize("strategy", ["zero_shot", "few_shot", "words", "system_of_now"])
def test_a_strategy_whose_prompts_do_not_grow_is_refused_before_training(strategy, tmp_path):
    if strategy == "system_of_now":
        (tmp_path / "own.jinja").write_text(
            "{% block system %}{{ obs.text }}{% endblock %}{% block user %}{{ obs.text }}{% endblock %}"
        )
        strategy = str(tmp_path / "own.jinja")
    with pytest.raises(UsageError, match="whose later prompts begin with the earlier ones"):
        trl_rollout(GOTO, strategy=strategy)


@pytest.mark.parametrize("environment", [GOTO, "TextArenaText-v0?game=Mastermind-v0"])
def test_strategies_whose_prompts_grow_are_taken(environment):
    for strategy in ("chat", "balrog", "compact") if environment == GOTO else ("chat",):
        assert trl_rollout(environment, strategy=strategy, with_reward=True).asked.strategy == strategy


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
    ("template", "arguments", "asked"),
    [("qwen3", {}, {"think": False}), ("qwen3", {"enable_thinking": False}, {}), ("qwen3_5_think", {}, {"think_tokens": 4})],
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
        train_dataset=trl_dataset("BabyAIText-v0", "train", range(2), task="goto"),
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


@pytest.fixture(scope="module")
def caller(tiny_model):
    """Return a small model that has learnt to call the tool, with one of two actions."""
    model, tokenizer = load(tiny_model)
    tokenizer.chat_template = WITH_TOOLS
    environment = trl_environment("BabyAIText-v0", task="goto", max_episode_steps=3)()
    dataset = trl_dataset("BabyAIText-v0", "train", range(2), task="goto")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(0)

    def tokens(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    for step in range(80):
        system, user = dataset[step % 2]["prompt"]
        chat = [system, {**user, "content": environment.reset(seed=step % 2)}]
        ids = tokens(tokenizer.apply_chat_template(chat, tools=[environment.act], add_generation_prompt=True, tokenize=False))
        learnt = []
        for action in rng.choice(["go forward", "turn left"], 3):
            call = tokens(CALL.format(action))
            learnt += range(len(ids), len(ids) + len(call))
            ids += call + tokens(RESPONSE.format(environment.act(action)))
        hidden = model.model(torch.tensor([ids])).last_hidden_state[0, torch.tensor(learnt) - 1]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), torch.tensor(ids)[learnt])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.1
    return model, tokenizer


def test_a_step_of_grpo_by_environment_factory(caller, config):
    model, tokenizer = caller
    environment = trl_environment("BabyAIText-v0", task="goto", max_episode_steps=3)
    trainer = GRPOTrainer(
        model=model,
        args=config(
            num_generations=4, temperature=0.7, max_completion_length=400, learning_rate=1e-3, max_tool_calling_iterations=2
        ),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0", "train", range(2), task="goto"),
        peft_config=lora(),
        environment_factory=environment,
        reward_funcs=[length_reward],
    )
    before = weights(trainer)
    trainer.train()
    assert any(not torch.equal(before[name], after) for name, after in weights(trainer).items())
    (logged,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert logged["tools/call_frequency"] > 0 and logged["tools/failure_frequency"] == 0
    assert len(trainer.environments) == 4 and max(one.steps for one in trainer.environments) == 2
    assert logged["rewards/BabyAIText_task_goto/mean"] == pytest.approx(np.mean([one.get_reward() for one in trainer.environments]))


TEMPLATES = Path(trl.__file__).parent / "chat_templates"
PLAYED_AS = {"qwen2_5": "qwen2_5", "qwen3": "qwen3_training", "llama3_1": "llama3_1"}
"""By the model's template the one with which TRL trains: the same, if earlier turns stay as they were generated."""


def with_markers(tokenizer, template):
    """Give a tokenizer one of TRL's templates, and its markers as tokens; the end of turn is its last token."""
    end = "<|eot_id|>" if template.startswith("llama") else "<|im_end|>"
    roles = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"] if template.startswith("llama") else ["<tool_call>"]
    tokenizer.add_special_tokens({"additional_special_tokens": [*roles, end]})
    tokenizer.eos_token, tokenizer.bos_token = end, (roles[0] if template.startswith("llama") else tokenizer.bos_token)
    tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    return tokenizer


@pytest.mark.parametrize(("template", "strategy"), [*((template, "tool") for template in PLAYED_AS), ("qwen3", "tool_short")])
def test_a_policy_in_mode_tool_reads_the_tokens_that_trl_reads(tiny_model, config, template, strategy):
    model, tokenizer = load(tiny_model)
    _, players = load(tiny_model)
    with_markers(tokenizer, template), with_markers(players, PLAYED_AS[template])
    torch.manual_seed(0)
    model.resize_token_embeddings(len(tokenizer))
    make = environment_maker(GOTO, fold="train")
    with make() as env:
        backend = TransformersBackend(model, players, "tiny")
        policy = load_policy(backend, env, mode="tool", strategy=strategy, tokens=True, temperature=1.0, think=False)
    (episode,) = rollout(make, policy, [1])
    assert episode.error is None and episode.invalid == 0 and len(episode.steps) == 3
    place = calls_of(players, with_tool({}, tool_function(policy.spec)), think=False).place
    without = [prompt_tokens(players, step.decision.messages, place) for step in episode.steps]
    trainer = GRPOTrainer(
        model=model,
        args=config(max_completion_length=2000, chat_template_kwargs={"enable_thinking": False}),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0", "train", [1], strategy=strategy, task="goto"),
        environment_factory=trl_environment("BabyAIText-v0", strategy=strategy, task="goto", max_episode_steps=3),
    )
    says = [*(list(step.decision.tokens.said) for step in episode.steps), [*tokenizer("done")["input_ids"], tokenizer.eos_token_id]]
    read = []

    def generate(prompt_ids, *_, **__):
        read.append([list(ids) for ids in prompt_ids])
        return [says[len(read) - 1] for _ in prompt_ids], None

    trainer._generate_single_turn = generate
    trainer._generate_and_score_completions([trainer.train_dataset[0]] * 2)
    assert [one == other for one, other in read[:3]] == [True] * 3 and len(read) == 4
    played = [list(step.decision.tokens.prompt) for step in episode.steps]
    assert [ids[0] for ids in read[:3]] == played
    # tokenised anew, the text is the same; a tokenizer may join white space before a call with it
    assert list(map(players.decode, without)) == list(map(players.decode, played))
    assert [environment.steps for environment in trainer.environments] == [3, 3]


def test_a_recorded_policy_reads_the_calls_as_the_model_wrote_them(tiny_model, config, tmp_path):
    model, tokenizer = load(tiny_model)
    with_markers(tokenizer, "qwen2_5")
    model.resize_token_embeddings(len(tokenizer))
    environment = trl_environment("BabyAIText-v0", task="goto", max_episode_steps=3)
    trainer = GRPOTrainer(
        model=model,
        args=config(max_completion_length=2000),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0", "train", [1], task="goto"),
        environment_factory=environment,
    )
    said, read = ["Go forward.", "I turn left", "drop"], []

    def generate(prompt_ids, *_, **__):
        read.append(tokenizer.decode(prompt_ids[0]))
        text = CALL.format(said[len(read) - 1]) if len(read) <= len(said) else f"done{tokenizer.eos_token}"
        return [tokenizer(text, add_special_tokens=False)["input_ids"] for _ in prompt_ids], None

    trainer._generate_single_turn = generate
    trainer._generate_and_score_completions([trainer.train_dataset[0]] * 2)
    trainer.save_model(tmp_path / "model")
    trl_record(tmp_path / "model", environment, trainer)
    make = environment_maker(GOTO, fold="train")
    with make() as env:
        script = [json.dumps({"action": action}) for action in said]
        policy = load_policy(ScriptedBackend(script), env, **settings_of(str(tmp_path / "model")))
    (episode,) = rollout(make, policy, [1])
    assert [step.decision.action for step in episode.steps] == ["go forward", "turn left", "drop"]
    place = calls_of(tokenizer, with_tool({}, tool_function(policy.spec)), think=False).place
    asked = [tokenizer.decode(prompt_tokens(tokenizer, step.decision.messages, place)) for step in episode.steps]
    assert asked == read[:3] and '"Go forward."' in asked[1]


def test_a_folder_that_trl_saved_is_measured_as_it_was_trained_where_its_record_says_how(caller, config, tmp_path, caplog):
    model, tokenizer = caller
    environment = trl_environment("BabyAIText-v0", task="goto")
    trainer = GRPOTrainer(
        model=model,
        args=config(max_tool_calling_iterations=1),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0", "train", [1], task="goto"),
        environment_factory=environment,
    )
    trainer.save_model(tmp_path / "model")
    with caplog.at_level("WARNING"):
        assert settings_of(str(tmp_path / "model")) == {}
        with environment_maker(GOTO)() as env:
            load_policy(str(tmp_path / "model"), env)
    assert "model has no record of how it was trained (training.json)" in caplog.text
    trl_record(tmp_path / "model", environment, trainer)
    assert (tmp_path / "model/chat_template.jinja").read_text() == WITH_TOOLS
    command = ["bench", "--models", str(tmp_path / "model"), "--environments", GOTO, "--episodes", "2"]
    assert cli.main([*command, "--folder", str(tmp_path / "bench")]) == 0
    stores = [EpisodeStore(path.parent) for path in (tmp_path / "bench").rglob("episodes.jsonl")]
    episodes = [episode for store in stores for episode in store.episodes() if episode.policy["kind"] == "llm"]
    assert len(episodes) >= 2 and all(episode.error is None and episode.invalid == 0 for episode in episodes)
    assert {episode.policy["strategy"] for episode in episodes} == {"tool"}
    assert all(step.decision.completion == call_of(step.decision.action) for episode in episodes for step in episode.steps)


def test_an_adapter_that_trl_saved_is_asked_in_words_with_the_template_of_the_training(tiny_model, config, tmp_path):
    model, tokenizer = load(tiny_model)
    tokenizer.chat_template = (TEMPLATES / "qwen3_training.jinja").read_text()
    play = trl_rollout(GOTO, max_tokens=4, with_reward=True)
    trainer = GRPOTrainer(
        model=model,
        args=config(chat_template_kwargs={"enable_thinking": False}),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0", "train", [1], task="goto"),
        peft_config=lora(),
        rollout_func=play,
        reward_funcs=episode_reward,
    )
    with pytest.raises(UsageError, match="saved before"):
        trl_record(tmp_path, play, trainer)
    trainer.save_model(tmp_path / "adapter")
    with pytest.raises(UsageError, match="what trl_environment or trl_rollout has returned, or a folder"):
        trl_record(tmp_path / "adapter", episode_reward, trainer)
    trl_record(tmp_path / "adapter", play, trainer)
    asked = {"mode": "text", "strategy": "chat", "history": "all", "own_words": True, "think": False, "with_reward": True}
    assert settings_of(str(tmp_path / "adapter")) == asked
    made = environment_maker(GOTO, fold="train")
    with made() as env:
        policy = load_policy(str(tmp_path / "adapter"), env, tokens=True, max_tokens=4)
        (episode,) = rollout(made, policy, [1])
    played = play([trainer.train_dataset[0]["prompt"]], trainer)
    assert list(episode.steps[0].decision.tokens.prompt) == played["prompt_ids"][0], "the tokens of the training"
    assert "What is rewarded" in tokenizer.decode(played["prompt_ids"][0])


@pytest.mark.parametrize("thinks", [False, True])
def test_a_model_that_has_learnt_from_rows_is_measured_with_their_prompts(tiny_model, tmp_path, thinks):
    data = ["--environments", GOTO, "--episodes", "2", "--strategy", "words", "--folder", str(tmp_path / "data")]
    assert cli.main(["collect", "--model", "random", "--labels", "own", "--threshold", "-1", *data]) == 0
    rows, file = str(tmp_path / "data/rows"), str(tmp_path / "rows.jsonl")
    assert cli.main(["export", "--format", "trl-sft", "--data", rows, "--file", file]) == 0
    model, tokenizer = load(tiny_model)
    if thinks:
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
    assert asked == {"mode": "choose", "strategy": "words", "history": "all", "with_reward": False} | (
        {"think": False} if thinks else {}
    )
    make = environment_maker(GOTO, fold="train")
    with make() as env:
        policy = load_policy(str(tmp_path / "model"), env, tokens=True)
    (episode,) = rollout(make, policy, [0])
    learnt = [example["input_ids"] for example in trainer.train_dataset]
    first = list(episode.steps[0].decision.tokens.prompt)
    assert first in [ids[: len(first)] for ids in learnt], "the prompt of the training, token by token"
    trl_record(
        tmp_path / "model", trl_environment("BabyAIText-v0", task="goto"), trainer
    )  # an SFTConfig has no arguments of a template
    assert settings_of(str(tmp_path / "model"))["mode"] == "tool"


def test_each_template_of_trl_has_calls_that_are_read_from_it_or_is_refused_in_a_sentence(tiny_model):
    _, tokenizer = load(tiny_model)
    with_calls = set()
    for path in sorted(TEMPLATES.glob("*.jinja")):
        tokenizer.chat_template = path.read_text()
        try:
            calls = calls_of(tokenizer, with_tool({}, tool_function(BABYAI_SPEC)), think=False)
        except UsageError as error:
            assert "describes tools" in str(error) or "where an answer begins" in str(error)
            continue
        question = {"role": "user", "content": "A wall."}
        later = [question, {"role": "assistant", "content": "", "call": call_of('say "x"')}, {"role": "tool", "content": "A ball."}]
        text = calls.text('say "x"')
        assert "act" in text and text.endswith(calls.end) and ('say "x"' in text or 'say \\"x\\"' in text), path.stem
        if calls.continues():
            assert rendered(tokenizer, later, calls.place).startswith(rendered(tokenizer, [question], calls.place) + text), (
                path.stem
            )
        with_calls.add(path.stem)
    assert len(with_calls) >= 40 and {"qwen3_5_think", "gptoss", "glm4moe", "gemma4", "llama3_1"} <= with_calls
    assert not {"gemma3", "phi3", "llama3", "deepseekv3", "smolvlm"} & with_calls


def test_trl_refuses_a_template_without_tools(tiny_model, config):
    model, tokenizer = load(tiny_model)
    environment = trl_environment("BabyAIText-v0", task="goto")
    with pytest.raises(ValueError, match="does not support tool calling"):
        GRPOTrainer(
            model=model,
            args=config(),
            processing_class=tokenizer,
            train_dataset=trl_dataset("BabyAIText-v0", "train", range(2), task="goto"),
            environment_factory=environment,
        )


def test_the_tool_says_what_is_possible_and_never_raises():
    environment = trl_environment("BabyAIText-v0", task="goto", max_episode_steps=2)()
    told = environment.reset(seed=0, fold="train", prompt=[])
    assert told.startswith("Task: go to") and told.endswith("- pick up\n- drop\n- toggle")
    for nonsense in ("fly", "", 7, None):
        assert "nothing has happened. Name exactly one of these actions: turn left, turn right" in environment.act(nonsense)
    assert (environment.steps, environment.impossible, environment.over) == (0, 4, False)
    assert "you have not done the task" in environment.act(["go forward", "drop"]) and environment.over, "the fifth in a row"
    environment.reset(seed=0)
    environment.act(" Turn LEFT")
    assert "you have not done the task" in environment.act("turn left") and environment.over and environment.steps == 2
    assert environment.act("turn left") == "The game is over. Do not act any more." and environment.steps == 2
    with pytest.raises(UsageError, match="seed"):
        environment.reset(fold="train")


def test_a_row_names_its_level_and_another_environment_or_strategy_refuses_it():
    (row,) = trl_dataset("BabyAIText-v0?max_episode_steps=9", "dev", [3], task="goto", strategy="tool_short")
    level = {"environment": "BabyAIText-v0?task=goto", "fold": "dev", "seed": 3}
    assert {key: row[key] for key in row if key != "prompt"} == {
        **level,
        "id": "BabyAIText-v0?task=goto dev 3",
        "strategy": "tool_short",
    }
    assert all(message.items() >= level.items() for message in row["prompt"])
    short = trl_environment("BabyAIText-v0?task=goto", strategy="tool_short", max_episode_steps=3)()
    assert short.reset(**row).startswith("Task: go to")
    for arguments, wrong in (
        ({"task": "goto"}, "strategy: expected rows of trl_dataset for 'tool', which is played; got one for 'tool_short'"),
        ({"task": "pickup", "strategy": "tool_short"}, "environment: expected rows .* for 'BabyAIText-v0.task=pickup'"),
        ({"task": "goto", "num_dists": 2, "strategy": "tool_short"}, "environment: expected rows .*num_dists=2&task=goto'"),
    ):
        with pytest.raises(UsageError, match=wrong):
            trl_environment("BabyAIText-v0", **arguments)().reset(**row)


def test_trl_plays_several_environments_by_the_names_in_their_rows(caller, config):
    model, tokenizer = caller
    tasks = ("goto", "pickup")
    trainer = GRPOTrainer(
        model=model,
        args=config(max_tool_calling_iterations=1, temperature=0.7),
        processing_class=tokenizer,
        train_dataset=concatenate_datasets([trl_dataset("BabyAIText-v0", "train", [1], task=task) for task in tasks]),
        environment_factory={f"BabyAIText-v0?task={task}": trl_environment("BabyAIText-v0", task=task) for task in tasks},
    )
    assert trainer.reward_func_names == ["BabyAIText_task_goto", "BabyAIText_task_pickup"], "each has figures of its own in the log"
    trainer._generate_and_score_completions([trainer.train_dataset[place] for place in (0, 0, 1, 1)])
    assert [game._game.obs["goal"].split()[:2] for game in trainer.environments] == [["go", "to"]] * 2 + [["pick", "up"]] * 2


def test_an_unknown_strategy_is_refused():
    for make in (trl_environment, lambda name, **more: trl_dataset(name, "train", [1], **more)):
        with pytest.raises(UsageError, match="strategy: expected one of 'tool', 'tool_short'; got 'tool_shrt'"):
            make("BabyAIText-v0", strategy="tool_shrt")


def test_the_tool_tells_an_observation_in_the_words_of_zero_shot():
    told = trl_environment(GOTO)().reset(seed=3)
    with environment_maker(GOTO, fold="train")() as env:
        *_, asked = Prompt("zero_shot").render(env.get_wrapper_attr("text_spec"), env.reset(seed=3)[0])
    assert asked["content"] == f"{told}\n\nWhich action do you take? Answer with one line of the list and nothing else."


class Failing(BabyAITextEnv):
    """BabyAI whose engine dies at the start or the second step of some levels, or gives no number as a reward there."""

    def __init__(self, *, failing=(), reward=None, at_start=False, **arguments):
        super().__init__(**arguments)
        self.failing, self.worth, self.at_start, self.broken, self.dead = tuple(failing), reward, at_start, False, False

    def _start(self, seed):
        if self.dead:
            raise EngineError("the engine is dead")
        self.broken, self.played = seed % 1_000_000 in self.failing, 0
        if self.broken and self.at_start:
            self.dead = True
            raise EngineError("the engine has died")
        return super()._start(seed)

    def _play(self, action):
        self.played += 1
        if self.broken and self.played == 2:
            self.dead = True
            if self.worth is None:
                raise LookupError("the engine has died")
            return super()._play(action)._replace(reward=float(self.worth))
        return super()._play(action)


@pytest.fixture
def failing():
    """Register an environment of which some levels fail."""
    gym.register("Failing-v0", entry_point=Failing, max_episode_steps=4, disable_env_checker=True)
    yield "Failing-v0"
    del gym.registry["Failing-v0"]


@pytest.mark.parametrize("reward", [None, "nan", "inf"])
def test_a_game_that_fails_has_no_reward_and_the_others_have(failing, reward):
    environment = trl_environment(failing, task="goto", failing=(1,), reward=reward)()
    for seed, expected in ((0, 0.0), (1, None), (0, 0.0)):  # a dead engine is replaced
        environment.reset(seed=seed)
        told = [environment.act("turn left") for _ in range(4)]
        assert environment.get_reward() == expected and environment.over
    environment.reset(seed=1)
    environment.act("turn left")
    assert re.match(
        r"The game is over: (the engine has died|step 2: expected a finite reward; got (nan|inf))", environment.act("turn left")
    )
    assert told[1].startswith("Task")


@pytest.mark.parametrize("at_start", [False, True])
def test_nothing_is_learnt_from_episodes_that_fail(failing, rollout_trainer, caplog, monkeypatch, at_start):
    monkeypatch.setattr("gym_text_policies.policies.llm.parse_action", lambda *_, **__: "turn left")  # whatever is said
    trainer = rollout_trainer
    name = f"{failing}?task=goto&failing=[1]&at_start={at_start}"
    trainer.rollout_func, dataset = trl_rollout(name, max_tokens=4), trl_dataset(name, "train", range(2))
    trainer.reward_funcs[1] = lambda reward, steps, **_: [None if value is None else 1.0 for value in reward]
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    rows = [dataset[place] for place in (0, 0, 1, 1)]
    with caplog.at_level("WARNING"):
        batch = trainer._generate_and_score_completions(rows)
    error = f"{'EngineError' if at_start else 'LookupError'}: the engine has died"
    assert f"trl_rollout: 2 of 4 episodes ended in an error; of Failing-v0, seed 1: {error}" in caplog.text
    assert not batch["advantages"].any() and batch["advantages"].isfinite().all()
    assert trainer._metrics["train"]["rewards/episode_reward/mean"] == [0.0], "of those that did not fail"
    assert trainer.compute_loss(trainer.model, {**batch, "num_items_in_batch": batch["completion_mask"].sum()}).isfinite()


def test_the_class_travels_to_the_process_of_trls_async_trainer_and_an_episode_that_trl_ends_is_logged_once(caplog):
    factory = trl_environment("BabyAIText-v0", task="goto", max_episode_steps=3)
    worker = AsyncRolloutWorker.__new__(AsyncRolloutWorker)
    worker._loop_kwargs = {"environment_factory": factory, "tools": None, "reward_funcs": [episode_reward]}
    other = pickle.loads(pickle.dumps(worker._loop_kwargs))["environment_factory"]
    assert pickle.loads(pickle.dumps(TRLEnvironment)) is TRLEnvironment
    one, two = factory(), other()
    assert one.reset(seed=1) == two.reset(seed=1) and one.act.__doc__ == two.act.__doc__ and one.act("drop") == two.act("drop")
    assert type(two).__name__ == "BabyAIText_task_goto"
    for _ in range(2):
        assert two.get_reward() == 0.0
    assert caplog.text.count("an episode was not over when its reward was asked for, after 1 steps") == 1


def test_in_bfloat16_a_small_update_is_played_as_it_is_learnt(tiny_model, config, monkeypatch):
    """The merged weights in bfloat16 would have lost most of it."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16)
    trainer = GRPOTrainer(
        model=model,
        args=config(),
        processing_class=AutoTokenizer.from_pretrained(tiny_model),
        train_dataset=trl_dataset("BabyAIText-v0", "train", range(2), task="goto"),
        peft_config=lora(),
        rollout_func=trl_rollout(GOTO, max_tokens=4),
        reward_funcs=episode_reward,
    )
    for name, parameter in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=5e-5)
    players = []

    def playing(model, *_, **__):
        players.append(model)
        raise EngineError("enough")

    monkeypatch.setattr("gym_text_policies.backends.local.transformers.TransformersBackend", playing)
    with pytest.raises(EngineError):
        trainer.rollout_func([trainer.train_dataset[0]["prompt"]], trainer)
    base, player = model.get_base_model() if hasattr(model, "get_base_model") else model, players[0]
    layers = [
        (one.self_attn.q_proj, other.self_attn.q_proj) for one, other in zip(base.model.layers, player.model.layers, strict=True)
    ]
    for learnt, played in layers:
        update = learnt.get_delta_weight("default").float()
        moved = played.weight - learnt.base_layer.weight.float()
        rounded = (learnt.base_layer.weight + update.bfloat16()).float() - learnt.base_layer.weight.float()
        torch.testing.assert_close(moved, update, rtol=0.02, atol=2e-8)
        assert float((rounded == 0).float().mean()) > 0.8, "merged in bfloat16, it would be lost"


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


def test_equal_rows_are_equal_levels_and_folds_are_apart():
    environment = trl_environment("BabyAIText-v0", task="goto")
    one, other = environment(), environment()
    assert one.reset(seed=3, fold="train") == other.reset(seed=3, fold="train")
    assert len({one.reset(seed=seed, fold=fold) for seed in range(3) for fold in ("train", "dev")}) == 6


def test_an_expert_wins_by_the_tool():
    with gym.make("BabyAIText-v0", task="goto", fold="train") as env:
        _, info = env.reset(seed=1)
    environment = trl_environment("BabyAIText-v0", task="goto")()
    environment.reset(seed=1, fold="train")
    told = [environment.act(action) for action in info["gold_path"]]
    assert environment.success and environment.over and environment.get_reward() > 0 and "you have done the task" in told[-1]


@pytest.mark.parametrize("name", ["CookingWorldText-v0", "MountainCarContinuousLLM-v0", "CartPole-v1"])
def test_any_environment_has_the_tool(name):
    environment = trl_environment(name)()
    assert "Actions:\n- " in environment.reset(seed=0)
    assert "Actions:\n- " in environment.act(environment.act("zork").partition("these actions: ")[2].partition(",")[0])
    assert environment.steps == 1


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    root = tmp_path_factory.mktemp("exported")
    for seed in ("0", "1"):
        command = ["collect", "--environments", GOTO, "--episodes", "2", "--seed", seed, "--folder", str(root / seed)]
        own = ["--model", "adapters/babyai-sft", "--mode", "text", "--temperature", "1", "--tokens", "--threshold", "0"]
        assert cli.main([*command, *own]) == 0
    folders = [str(root / "0"), str(root / "1")]
    assert cli.main(["export", "--format", "trl", "--runs", *folders, "--file", str(root / "trl.jsonl")]) == 0
    return root / "trl.jsonl"


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
        prompt = prompt_tokens(tokenizer, example.messages, format_of(tokenizer).place(False))
        assert ids[: int(learnt.nonzero()[0])].tolist() == prompt, "the tokens that are played"
    trainer.train()


@pytest.mark.parametrize("template", ["qwen2_5", "llama3_1"])
def test_the_calls_of_collected_rows_and_nothing_else_count_in_trls_trainers(tiny_model, tmp_path, template):
    own = ["--environments", GOTO, "--episodes", "2", "--mode", "tool", "--strategy", "tool_short", "--folder"]
    assert cli.main(["collect", *own, str(tmp_path / "data"), "--noise", "0.6"]) == 0
    rows = read_rows(tmp_path / "data/rows")
    model, tokenizer = load(tiny_model)
    with_markers(tokenizer, template)
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
        # TRL tokenises a prompt and its call together, and so joins Llama's white space before the call with the call
        assert tokenizer.decode(ids).startswith(tokenizer.decode([*prompt, *call]))
        assert tokenizer.decode(labels[labels != -100]).strip() == tokenizer.decode(call).strip()
        if template == "qwen2_5":
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
@pytest.mark.parametrize("of_actions", [False, True], ids=["two episodes of a level", "two actions of a state"])
def test_trls_dpo_trainer_reads_the_prompts_that_are_played_and_prefers_the_better_answer(tiny_model, tmp_path, of_actions):
    seeds = ("0",) if of_actions else ("0", "1")
    for seed in seeds:
        own = ["--model", "random", "--labels", "own", "--threshold", "-1", "--seed", seed, "--folder", str(tmp_path / seed)]
        assert cli.main(["collect", "--environments", f"{GOTO}0", "--episodes", "1" if of_actions else "12", *own]) == 0
    file, data = tmp_path / "pairs.jsonl", [str(tmp_path / seed / "rows") for seed in seeds]
    source = ["--runs", str(tmp_path / "0"), "--continue-with", "gold"] if of_actions else ["--data", *data]
    assert cli.main(["export", "--format", "trl-dpo", *source, "--file", str(file)]) == 0
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    model, tokenizer = load(tiny_model)
    trainer = dpo_trainer(model, tokenizer, file)
    for pair, row in zip(pairs, trainer.train_dataset, strict=True):
        assert row["prompt_ids"] == prompt_tokens(tokenizer, pair["prompt"], format_of(tokenizer).place(False)), (
            "the tokens that are played"
        )
        for kind in ("chosen", "rejected"):
            assert tokenizer.decode(row[f"{kind}_ids"]) == f"{pair[kind][0]['content']}<|im_end|>\n"
    trainer.train()


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")  # TRL uses the old name
def test_trls_dpo_trainer_prefers_the_better_of_two_calls(tiny_model, tmp_path):
    for seed in ("0", "1"):
        own = ["--model", "random", "--labels", "own", "--threshold", "-1", "--mode", "tool", "--seed", seed]
        assert cli.main(["collect", "--environments", f"{GOTO}0", "--episodes", "12", *own, "--folder", str(tmp_path / seed)]) == 0
    file, data = tmp_path / "pairs.jsonl", [str(tmp_path / seed / "rows") for seed in ("0", "1")]
    assert cli.main(["export", "--format", "trl-dpo", "--data", *data, "--file", str(file)]) == 0
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    model, tokenizer = load(tiny_model)
    with_markers(tokenizer, "qwen2_5")
    model.resize_token_embeddings(len(tokenizer))
    trainer = dpo_trainer(model, tokenizer, file)
    place = calls_of(tokenizer, with_tool({}, tool_function(BABYAI_SPEC))).place
    read = read_rows(data[0])[0].messages[:2]
    assert prompt_tokens(tokenizer, read, place) in [row["prompt_ids"] for row in trainer.train_dataset], (
        "the tokens that are played"
    )
    for pair, row in zip(pairs, trainer.train_dataset, strict=True):
        for kind in ("chosen", "rejected"):
            (call,) = pair[kind][0]["tool_calls"]
            assert tokenizer.decode(row[f"{kind}_ids"]) == CALL.format(call["function"]["arguments"]["action"]) + "\n"


def test_trls_collator_of_supervised_data_keeps_the_mask(exported):
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    data = load_dataset("json", data_files=str(exported), split="train")
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    batch = DataCollatorForLanguageModeling(tokenizer.pad_token_id)([data[place] for place in range(len(data))])
    for line, ids, labels in zip(lines, batch["input_ids"], batch["labels"], strict=True):
        size = len(line["input_ids"])
        assert ids[:size].tolist() == line["input_ids"]
        assert labels[labels != -100].tolist() == [
            token for token, said in zip(line["completion_ids"], line["env_mask"], strict=True) if said
        ]


def test_trls_collator_of_rollouts_reads_tokens_log_probabilities_and_advantages(exported):
    samples = list(load_dataset("json", data_files=str(exported), split="train").with_format("numpy"))
    row = TreeRow()
    for sample in samples:
        row.add(sample)
    collator = DataCollatorForRollout(0)
    batch = collator([[row]])
    said = [sample["input_ids"][sample["completion_mask"] == 1] for sample in samples]
    labels = batch["shift_labels"][0][batch["token_index"][0]]
    assert labels.tolist() == np.concatenate(said).tolist()
    played = np.concatenate([sample["old_log_probs"][sample["completion_mask"] == 1] for sample in samples])
    np.testing.assert_allclose(batch["old_log_probs"][0].numpy(), played, rtol=1e-6)
    advantages = np.concatenate([np.full(len(own), sample["advantage"]) for own, sample in zip(said, samples, strict=True)])
    np.testing.assert_allclose(batch["advantages"][0].numpy(), advantages, rtol=1e-6)
    assert collator.groups_trained == {0, 1}
