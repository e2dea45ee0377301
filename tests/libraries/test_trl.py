"""TRL's GRPO by `environment_factory`: the model plays by calls of a tool."""

import json
import runpy
import sys

import numpy as np
import pytest
import torch
from datasets import concatenate_datasets
from libraries.trl_trainers import (
    CALL,
    GOTO,
    PLAYED_AS,
    RESPONSE,
    TEMPLATES,
    WITH_TOOLS,
    length_reward,
    load,
    lora,
    weights,
    with_markers,
)
from transformers import AutoTokenizer
from trl import GRPOTrainer

from gym_text import UsageError
from gym_text_policies import EpisodeStore, cli, load_policy, rollout
from gym_text_policies.backends.call_format import with_tool
from gym_text_policies.backends.local.rendering import calls_of
from gym_text_policies.backends.local.tokens import prompt_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.bridges.trl import trl_dataset, trl_environment, trl_record
from gym_text_policies.bridges.trl_rollout import episode_reward, trl_rollout
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import settings_of
from gym_text_policies.prompts.tools import call_of, tool_function

pytest_plugins = ["libraries.trl_trainers"]


@pytest.fixture(scope="module")
def caller(tiny_model):
    """Return a small model that has learnt to call the tool, with one of two actions."""
    model, tokenizer = load(tiny_model)
    tokenizer.chat_template = WITH_TOOLS
    environment = trl_environment("BabyAIText-v0?task=goto&max_episode_steps=3")()
    dataset = trl_dataset("BabyAIText-v0?task=goto", "train", range(2))
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
    environment = trl_environment("BabyAIText-v0?task=goto&max_episode_steps=3")
    trainer = GRPOTrainer(
        model=model,
        args=config(
            num_generations=4, temperature=0.7, max_completion_length=400, learning_rate=1e-3, max_tool_calling_iterations=2
        ),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", range(2)),
        peft_config=lora(),
        environment_factory=environment,
        reward_funcs=[length_reward],
    )
    before = weights(trainer)
    trainer.train()
    assert any(not torch.equal(before[name], after) for name, after in weights(trainer).items())
    (logged,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert logged["tools/call_frequency"] > 0 and logged["tools/failure_frequency"] == 0
    assert len(trainer.environments) == 4 and max(one.game.steps for one in trainer.environments) == 2
    assert logged["rewards/BabyAIText_task_goto/mean"] == pytest.approx(np.mean([one.get_reward() for one in trainer.environments]))


@pytest.mark.parametrize(("template", "strategy"), [("llama3_1", "tool"), ("qwen3", "tool_short")])
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
    place = calls_of(players, with_tool({}, tool_function(policy.spec)), think=False).answer_start
    without = [prompt_tokens(players, step.decision.messages, place) for step in episode.steps]
    trainer = GRPOTrainer(
        model=model,
        args=config(max_completion_length=2000, chat_template_kwargs={"enable_thinking": False}),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", [1], strategy=strategy),
        environment_factory=trl_environment("BabyAIText-v0?task=goto&max_episode_steps=3", strategy=strategy),
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
    # an earlier call is tokenised anew: the text is the same, but a tokenizer may join the white space before it
    assert [tokenizer.decode(ids[0]) for ids in read[:3]] == list(map(players.decode, played))
    assert template == "llama3_1" or [ids[0] for ids in read[:3]] == played
    assert list(map(players.decode, without)) == list(map(players.decode, played))
    assert [environment.game.steps for environment in trainer.environments] == [3, 3]


def test_a_recorded_policy_reads_the_calls_as_the_model_wrote_them(tiny_model, config, tmp_path):
    model, tokenizer = load(tiny_model)
    with_markers(tokenizer, "qwen2_5")
    model.resize_token_embeddings(len(tokenizer))
    environment = trl_environment("BabyAIText-v0?task=goto&max_episode_steps=3")
    trainer = GRPOTrainer(
        model=model,
        args=config(max_completion_length=2000),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", [1]),
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
    place = calls_of(tokenizer, with_tool({}, tool_function(policy.spec)), think=False).answer_start
    asked = [tokenizer.decode(prompt_tokens(tokenizer, step.decision.messages, place)) for step in episode.steps]
    assert asked == read[:3] and '"Go forward."' in asked[1]


def test_a_folder_that_trl_saved_is_measured_as_it_was_trained_where_its_record_says_how(caller, config, tmp_path):
    model, tokenizer = caller
    environment = trl_environment("BabyAIText-v0?task=goto")
    trainer = GRPOTrainer(
        model=model,
        args=config(max_tool_calling_iterations=1),
        processing_class=tokenizer,
        train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", [1]),
        environment_factory=environment,
    )
    trainer.save_model(tmp_path / "model")
    assert settings_of(str(tmp_path / "model")) == {}
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
        train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", [1]),
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


def test_the_tool_says_what_is_possible_and_never_raises():
    environment = trl_environment("BabyAIText-v0?task=goto&max_episode_steps=2")()
    told = environment.reset(seed=0, fold="train", prompt=[])
    assert told.startswith("Task: go to") and told.endswith("- pick up\n- drop\n- toggle")
    for nonsense in ("fly", "", 7, None):
        assert "nothing has happened. Name exactly one of these actions: turn left, turn right" in environment.act(nonsense)
    assert (environment.game.metrics, environment.game.end) == ({"success": 0, "steps": 0, "unusable": 4}, None)
    assert "you have not done the task" in environment.act(["go forward", "drop"]) and environment.game.end, "the fifth in a row"
    environment.reset(seed=0)
    environment.act(" Turn LEFT")
    assert "you have not done the task" in environment.act("turn left") and environment.game.end and environment.game.steps == 2
    assert environment.act("turn left") == "The game is over. Do not act any more." and environment.game.steps == 2
    with pytest.raises(UsageError, match="seed"):
        environment.reset(fold="train")


def test_a_row_names_its_level_and_another_environment_or_strategy_refuses_it():
    (row,) = trl_dataset("BabyAIText-v0?max_episode_steps=9&task=goto", "dev", [3], strategy="tool_short")
    level = {"environment": "BabyAIText-v0?task=goto", "fold": "dev", "seed": 3}
    assert {key: row[key] for key in row if key != "prompt"} == {
        **level,
        "id": "BabyAIText-v0?task=goto dev 3",
        "strategy": "tool_short",
    }
    assert all(message.items() >= level.items() for message in row["prompt"])
    short = trl_environment("BabyAIText-v0?task=goto&max_episode_steps=3", strategy="tool_short")()
    assert short.reset(**row).startswith("Task: go to")
    for arguments, strategy, wrong in (
        ("task=goto", "tool", "strategy: expected rows of trl_dataset for 'tool', which is played; got one for 'tool_short'"),
        ("task=pickup", "tool_short", "environment: expected rows .* for 'BabyAIText-v0.task=pickup'"),
        ("task=goto&num_dists=2", "tool_short", "environment: expected rows .*num_dists=2&task=goto'"),
    ):
        with pytest.raises(UsageError, match=wrong):
            trl_environment(f"BabyAIText-v0?{arguments}", strategy=strategy)().reset(**row)


def test_trl_plays_several_environments_by_the_names_in_their_rows(caller, config):
    model, tokenizer = caller
    tasks = ("goto", "pickup")
    trainer = GRPOTrainer(
        model=model,
        args=config(max_tool_calling_iterations=1, temperature=0.7),
        processing_class=tokenizer,
        train_dataset=concatenate_datasets([trl_dataset(f"BabyAIText-v0?task={task}", "train", [1]) for task in tasks]),
        environment_factory={name: trl_environment(name) for name in (f"BabyAIText-v0?task={task}" for task in tasks)},
    )
    assert trainer.reward_func_names == ["BabyAIText_task_goto", "BabyAIText_task_pickup"], "each has figures of its own in the log"
    trainer._generate_and_score_completions([trainer.train_dataset[place] for place in (0, 0, 1, 1)])
    assert [game.game.obs["goal"].split()[:2] for game in trainer.environments] == [["go", "to"]] * 2 + [["pick", "up"]] * 2


@pytest.mark.parametrize("reward", [None, "nan"])
def test_a_game_that_fails_has_no_reward_and_the_others_have(failing, reward):
    environment = trl_environment(f"{failing}?task=goto&failing=(1,)&reward={reward}")()
    for seed, expected in ((0, 0.0), (1, None), (0, 0.0)):  # a dead engine is replaced
        environment.reset(seed=seed)
        replies = [environment.act("turn left") for _ in range(4)]
        assert environment.get_reward() == expected and environment.game.end
    assert replies[1].startswith("Task")


def test_an_episode_that_trl_ends_is_logged_once(caplog):
    environment = trl_environment("BabyAIText-v0?task=goto&max_episode_steps=3")()
    environment.reset(seed=1)
    environment.act("drop")
    for _ in range(2):
        assert environment.get_reward() == 0.0
    assert caplog.text.count("an episode was not over when its reward was asked for, after 1 steps") == 1


def test_the_script_of_the_docs_learns_the_experts_calls_and_then_by_tools(tiny_model, tmp_path, monkeypatch):
    sizes = {"expert-levels": 2, "steps": 2, "levels": 2, "group": 2, "episodes-per-pass": 2, "max-episode-steps": 2, "rank": 2}
    options = {"model": tiny_model, "folder": tmp_path / "tools", "max-completion-length": 24} | sizes
    monkeypatch.setattr(sys, "argv", ["trl_tools.py", *(f"--{name}={value}" for name, value in options.items())])
    script = runpy.run_path("docs/trl_tools.py", run_name="__main__")
    logged = [entry for entry in json.loads((tmp_path / "tools/metrics.json").read_text()) if "success" in entry]
    assert len(logged) == 2
    for name in ("start", "model"):
        assert settings_of(str(tmp_path / "tools" / name)) == {
            "strategy": "tool_short",
            "history": "all",
            "mode": "tool",
            "own_words": True,
            "with_reward": False,
        }
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tools/start")
    environment, levels = trl_environment(**script["LEVELS"]), trl_dataset(fold="train", seeds=[7], **script["LEVELS"])
    (chat,) = script["expert_chats"](environment, levels)
    assert chat["messages"][-1]["content"].endswith("The game is over: you have done the task.")
    (cut,) = script["expert_chats"](
        trl_environment(f"{script['LEVELS']['environment']}&max_episode_steps=2", strategy="tool_short"), levels
    )
    assert cut["messages"][:-1] == chat["messages"][:5] and len(chat["messages"]) > 6, "no call follows the end"
    assert cut["messages"][-1]["content"].endswith("The game is over: you have not done the task.")
    game = environment()
    messages = [levels[0]["prompt"][0], {**levels[0]["prompt"][1], "content": game.reset(**levels[0])}]
    asked = tokenizer.apply_chat_template(messages, tools=[game.act], add_generation_prompt=True, tokenize=False)
    learnt = tokenizer.apply_chat_template(chat["messages"][:3], tools=chat["tools"], tokenize=False)
    action = chat["messages"][2]["tool_calls"][0]["function"]["arguments"]["action"]
    assert learnt == f'{asked}<tool_call>\n{{"name": "act", "arguments": {{"action": "{action}"}}}}\n</tool_call><|im_end|>\n'
