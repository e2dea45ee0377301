"""Rows whose answers are calls: the tokens that are learnt are the tokens of play."""

import dataclasses
import json

import datasets
import pytest
import torch
from small_models import small_llama
from tool_templates import AS_JSON, AS_SERVED, AS_TEXT, THINKING, give
from training_data import GOTO, plain_log_probs
from transformers import AutoTokenizer

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.local.grammars import call_tokens
from gym_text_policies.backends.local.rendering import rendered
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.data.calls import row_calls
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import read_rows, write_rows
from gym_text_policies.data.exchange import exchange_names
from gym_text_policies.data.export import completions, openai_chats
from gym_text_policies.data.preferences import preference_pairs
from gym_text_policies.data.rows import learner_of, policy_of, prompt_record, rows_of
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import TRAINED, PolicyConfig, settings_of
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts.tools import call_of, called_action
from gym_text_policies.training.model.layouts import answer_losses
from gym_text_policies.training.model.lora import load_base
from gym_text_policies.training.model.sequences import Conversation
from gym_text_policies.training.sft import SFTConfig, sft

SHORT = f"{GOTO}&max_episode_steps=6"
COOKING = "CookingWorldText-v0?max_episode_steps=6"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def gold(tmp_path_factory):
    """Return rows of the expert's calls, some of them after another action than the expert's."""
    folder = str(tmp_path_factory.mktemp("gold"))
    return collect(CollectConfig(folder, (GOTO,), ("6",), strategy="tool_short", noise=0.3, options={"mode": "tool"}))


def path_to(conversation, node):
    """Return the tokens from the beginning of a conversation to a node."""
    tokens = []
    while node >= 0:
        tokens.append(conversation.tree.tokens[node])
        node = conversation.tree.parents[node]
    return tuple(tokens[::-1])


@pytest.mark.parametrize(
    ("strategy", "template", "environment", "history"),
    [("tool", AS_JSON, SHORT, "all"), ("tool_short", AS_TEXT, SHORT, 2), ("tool", AS_SERVED, COOKING, "all")],
    ids=["json", "text", "ships"],
)
def test_the_tokens_of_a_row_are_those_of_play_one_by_one(tiny_model, environment, template, strategy, history):
    tokenizer = give(AutoTokenizer.from_pretrained(tiny_model), template)
    backend = TransformersBackend(
        small_llama(len(tokenizer), initializer_range=0.3, max_position_embeddings=8192), tokenizer, "tiny"
    )
    make_env = environment_maker(environment, fold="train")
    asked = PolicyConfig(strategy=strategy, mode="tool", history=history, with_reward=False)
    asked = learner_of(asked, tokenizer)
    with make_env() as env:
        spec, policy = text_spec(env), load_policy(backend, env, tokens=True, **asked.given)
        (episode,) = rollout(make_env, policy, [3])
    assert episode.error is None and len(episode.steps) == 6 and not episode.invalid
    rows = rows_of(episode, spec, asked, "own")
    assert len(rows) == (1 if history == "all" else 4), "an append-only part of an episode is one conversation"
    assert policy_of(rows) == dataclasses.replace(asked, model=TRAINED.model, think=None)
    conversations = [Conversation.of(tokenizer, row.examples()) for row in rows]
    learnt = [
        (path_to(conversation, decision.prompt_end), tuple(token for _, token in decision.answers[0]))
        for conversation in conversations
        for decision in conversation.decisions
    ]
    assert learnt == [(step.decision.tokens.prompt, step.decision.tokens.said) for step in episode.steps]


@pytest.mark.parametrize("template", [AS_JSON, THINKING], ids=["json", "thinking"])
def test_a_thought_stands_before_the_call_as_the_template_has_it(gold, tiny_model, template):
    tokenizer = give(AutoTokenizer.from_pretrained(tiny_model), template)
    row = dataclasses.replace(gold[0], thoughts=tuple(label and "It is near." for label in gold[0].labels))
    assert learner_of(policy_of([row]), tokenizer, [row.tool]).think is True
    conversation = Conversation.of(tokenizer, row.examples())
    for (messages, call, thought, _), decision in zip(row.examples(), conversation.decisions, strict=True):
        answer_start = row_calls(tokenizer, row.tool, think=True).answer_start
        chat = [*messages, {"role": "assistant", "content": "", "reasoning": thought, "call": call}]
        whole = rendered(tokenizer, chat, answer_start).removesuffix("<|a|>").removesuffix("<|a|><think>")
        read, said = path_to(conversation, decision.prompt_end), [token for _, token in decision.answers[0]]
        learnt = said[len(said) - len(call_tokens(tokenizer, row_calls(tokenizer, row.tool, think=True), called_action(call))) :]
        assert tokenizer.decode([*read, *learnt]) == whole and thought in tokenizer.decode(said)


def test_the_experts_calls_are_the_labels_and_later_prompts_have_the_calls_that_were_played(gold):
    assert any(label and label != said.get("call") for row in gold for said, label in zip(row.messages, row.labels, strict=True))
    for row in gold:
        roles = [message["role"] for message in row.messages]
        assert roles == ["system", "user", *["assistant", "tool"] * ((len(roles) - 2) // 2), *["assistant"] * (len(roles) % 2)]
        assert json.loads(row.tool)["name"] == "act"
        for message, label in zip(row.messages, row.labels, strict=True):
            assert ("call" in message) == (message["role"] == "assistant")
            assert not label or label == call_of(called_action(label))
    record = prompt_record(policy_of(gold))
    assert record["asked"] == {"mode": "tool", "strategy": "tool_short", "history": "all", "with_reward": False}


def test_rows_with_calls_are_written_and_read_and_wrong_ones_are_one_sentence(gold, tmp_path):
    write_rows(gold, tmp_path / "rows")
    assert read_rows(tmp_path / "rows") == list(gold)
    with pytest.raises(UsageError, match=r"expected rows of one prompt; .* Collect them with one strategy and mode\."):
        policy_of([gold[0], dataclasses.replace(gold[1], tool="")])
    record = dataclasses.asdict(gold[0])
    for number, (changes, said) in enumerate(
        (
            ({"tool": "[]"}, "tool: expected a function with name and description, texts, and"),
            ({"tool": ""}, "messages: expected texts of system, user, assistant;"),
            (
                {"labels": [label and "turn left" for label in record["labels"]]},
                "expected calls with an action, as JSON; got 'turn",
            ),
            (
                {"messages": [{**message, "call": 5} for message in record["messages"]]},
                "expected role and content, as texts",
            ),
            (
                {"messages": [{**message, "call": message.get("call", "no JSON")} for message in record["messages"]]},
                "expected calls of the role assistant alone; got {'role': 'system'",
            ),
            *(
                ({"tool": json.dumps(json.loads(record["tool"]) | wrong)}, "tool: expected a function with name and description")
                for wrong in ({"name": 5}, {"parameters": {}}, {"parameters": {"properties": {"action": "x"}}})
            ),
        )
    ):
        datasets.Dataset.from_list([record | changes]).save_to_disk(tmp_path / str(number))
        with pytest.raises(UsageError) as refused:
            read_rows(tmp_path / str(number))
        assert said in str(refused.value)


def test_names_are_exchanged_in_calls_as_in_labels(gold):
    names = ("left", "right")
    for before, after in zip(gold, exchange_names(gold, names, 3), strict=True):
        swap = before.tool != after.tool
        exchange = {"turn left": "turn right", "turn right": "turn left"} if swap else {}
        for said, label, new, other in zip(before.messages, before.labels, after.messages, after.labels, strict=True):
            for one, two in ((said.get("call"), new.get("call")), (label, other)):
                action = called_action(one or "")
                assert called_action(two or "") == exchange.get(action, action)


def test_the_loss_is_that_of_the_calls_tokens_in_a_plain_pass(gold, tiny_model):
    model, tokenizer = load_base(tiny_model, chat_template=AS_SERVED)
    rows = gold[:2]
    with torch.no_grad():
        losses = answer_losses(model, [Conversation.of(tokenizer, row.examples()) for row in rows])
        plain = torch.cat([plain_log_probs(model, tokenizer, *each) for row in rows for each in row.examples()])
    assert len(plain) > 20 and torch.allclose(losses, -plain, atol=1e-4)


def test_a_model_without_tools_is_refused_and_one_with_the_template_that_ships_plays_as_it_learnt(gold, tiny_model, tmp_path):
    settings = {"model": tiny_model, "max_steps": 1, "rows_per_step": 2, "warmup": 0}
    with pytest.raises(UsageError, match=r"^data: expected a model that can call, .* --chat-template tools, or a file\.$"):
        sft(SFTConfig(folder=str(tmp_path / "without"), **settings), gold)
    folder = sft(SFTConfig(folder=str(tmp_path / "with"), chat_template="tools", **settings), gold)
    assert settings_of(str(folder)) == {"mode": "tool", "strategy": "tool_short", "history": "all", "with_reward": False}
    make_env = environment_maker(SHORT, fold="train")
    with make_env() as env:
        policy = load_policy(str(folder), env, tokens=True)
        (episode,) = rollout(make_env, policy, [0])
        (row,) = rows_of(episode, text_spec(env), policy_of(gold), "own")
    assert episode.error is None and (policy.config["mode"], policy.config["strategy"]) == ("tool", "tool_short")
    _, tokenizer = load_base(tiny_model, chat_template=AS_SERVED)
    conversation = Conversation.of(tokenizer, row.examples())
    for step, decision in zip(episode.steps, conversation.decisions, strict=True):
        assert path_to(conversation, decision.prompt_end) == step.decision.tokens.prompt
        assert tuple(token for _, token in decision.answers[0]) == step.decision.tokens.said


def test_the_rows_for_trl_have_the_calls_and_the_tool(gold):
    lines = completions(gold)
    examples = [(row, example) for row in gold for example in row.examples()]
    for line, (row, example) in zip(lines, examples, strict=True):
        (said,) = line["completion"]
        function = {"name": "act", "arguments": json.loads(example.answer)}
        assert said == {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
        assert json.loads(line["tools"]) == [{"type": "function", "function": json.loads(row.tool)}]
        for message, ours in zip(line["prompt"], example.messages, strict=True):
            assert (message["role"], message["content"]) == (ours["role"], ours["content"]) and "call" not in message
            calls = [call_of(call["function"]["arguments"]["action"]) for call in message.get("tool_calls", ())]
            assert calls == ([ours["call"]] if "call" in ours else []) and message.get("name") in (None, "act")
    other, worse = (dataclasses.replace(gold[0], episode_return=worth) for worth in (1.0, 0.0))
    first = next(number for number, label in enumerate(other.labels) if label)
    pair = [
        dataclasses.replace(row, messages=(*row.messages[:first], said), labels=(*[""] * first, said["call"]), own_labels=True)
        for row, name in ((other, "go forward"), (worse, "drop"))
        for said in ({"role": "assistant", "content": "", "call": call_of(name)},)
    ]
    (line,) = preference_pairs(pair)
    better = [line[kind][0]["tool_calls"][0]["function"]["arguments"]["action"] for kind in ("chosen", "rejected")]
    assert better == ["go forward", "drop"] and json.loads(line["tools"])[0]["function"]["name"] == "act"


def test_the_chats_for_openai_have_its_calls_and_tools(gold):
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
    from pydantic import TypeAdapter

    learnt = 0
    for chat in openai_chats(gold):
        assert chat["parallel_tool_calls"] is False
        TypeAdapter(list[ChatCompletionFunctionToolParam]).validate_python(chat["tools"])
        learnt += sum(message.get("weight", 0) for message in chat["messages"])
        TypeAdapter(list[ChatCompletionMessageParam]).validate_python(chat["messages"])
        calls = [call["id"] for message in chat["messages"] for call in message.get("tool_calls", ())]
        results = [message["tool_call_id"] for message in chat["messages"] if message["role"] == "tool"]
        assert len(set(calls)) == len(calls) and calls[: len(results)] == results
    assert learnt == sum(row.decisions for row in gold)
