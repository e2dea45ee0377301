"""From episodes to data to a tuned adapter."""

import dataclasses
import json
import re
import shutil
from functools import partial

import gymnasium as gym
import pytest
import torch
from safetensors.torch import load_file

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.models import read_adapter
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.engines import base as engines
from gym_text_policies.policy import text_spec
from gym_text_policies.store import EpisodeStore
from gym_text_policies.training import sequences
from gym_text_policies.training.collect import CollectConfig, collect
from gym_text_policies.training.lora import add_lora, as_it_plays, load_base, merge_adapter, set_precision
from gym_text_policies.training.rows import Asked, Row, exchange_names, read_rows, rows_of, write_rows
from gym_text_policies.training.sequences import Reading, answer_losses, pack
from gym_text_policies.training.sft import SFTConfig, asked_in, last_checkpoint, play_dev_fold, sft

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"),
]
GOTO = "BabyAIText-v0?task=goto"


def tokenised(tokenizer, rows):
    """Return the rows as readings."""
    return [Reading.of(tokenizer, row.examples()) for row in rows]


def plain_losses(model, tokenizer, rows):
    """Return -log P of each answer's tokens, from one plain forward pass for each decision."""
    losses = []
    for row in rows:
        for messages, answer in row.examples():
            prompt, tokens = prompt_tokens(tokenizer, messages), [*text_tokens(tokenizer, answer), tokenizer.eos_token_id]
            logs = model(input_ids=torch.tensor([prompt + tokens])).logits[0].detach().log_softmax(-1)
            losses += [-float(logs[len(prompt) + i - 1, token]) for i, token in enumerate(tokens)]
    return losses


def shaken(model):
    """Return the model with an adapter that does something."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.1
    return model


@pytest.fixture(scope="module")
def noisy_rows(tmp_path_factory):
    """Return rows whose labels are not always what was played."""
    return collect(CollectConfig(str(tmp_path_factory.mktemp("noisy") / "data"), (GOTO,), ("6",), noise=0.4))


@pytest.mark.parametrize(("strategy", "history"), [("chat", "all"), ("zero_shot", 2), ("balrog", 0)])
@pytest.mark.parametrize("env_id", ["BabyAIText-v0", "CookingWorldText-v0"])
def test_a_prompt_in_the_data_is_the_prompt_at_play_byte_for_byte(env_id, strategy, history):
    make_env = partial(gym.make, env_id, fold="train", max_episode_steps=5)
    env = make_env()
    model = "scripted:go forward|turn left|look around|inventory|no action at all"
    policy = load_policy(model, env, strategy=strategy, history=history)
    (episode,) = rollout(make_env, policy, [3])
    asked = Asked(strategy, history)
    rows = rows_of(dataclasses.replace(episode, steps=tuple(map(valid, episode.steps))), text_spec(env), asked, "own")
    prompts = [messages for row in rows for messages, _ in row.examples()]
    assert prompts == [step.decision.messages for step in episode.steps]
    assert len(rows) == (1 if strategy == "chat" else 5), "an append-only episode is one conversation"


def valid(step):
    """Return the step with a decision that counts, and nothing said."""
    return dataclasses.replace(step, decision=dataclasses.replace(step.decision, valid=True, completion=None))


def test_with_noise_the_experts_answer_is_learnt_and_the_played_one_shown(noisy_rows):
    differing = 0
    for row in noisy_rows:
        assert [bool(label) for label in row.labels] == [message["role"] == "assistant" for message in row.messages]
        said = [(message["content"], label) for message, label in zip(row.messages, row.labels, strict=True) if label]
        differing += sum(played != label for played, label in said[:-1])
    assert differing > 3


def test_an_episode_in_which_the_expert_has_no_plan_any_more_is_learnt_up_to_there(tmp_path, caplog):
    # noise opens the box that is to be picked up: it is gone, and the mission with it
    environment = "BabyAIText-v0?task=pick_up_seq_go_to"
    config = CollectConfig(str(tmp_path), (environment,), ("1",), first_seed=100, noise=0.2, policy="gold")
    with caplog.at_level("INFO"):
        (row,) = collect(config)
    (episode,) = EpisodeStore(tmp_path).episodes()
    assert episode.error and "The expert has no action here" in episode.error and episode.steps[-1].decision.action == "toggle"
    assert [label for label in row.labels if label] == [step.gold_action for step in episode.steps]
    assert "1 kept up to an error" in caplog.text


def test_gold_data_is_won_and_resumed_and_duplicates_are_dropped(tmp_path, monkeypatch):
    config = CollectConfig(str(tmp_path), ("CookingWorldText-v0",), ("6",), first_seed=998)  # the fold has 1,000 levels
    rows = collect(config)
    episodes = list(EpisodeStore(tmp_path).episodes())
    kept = [episode for episode in episodes if not episode.invalid]
    assert {row.episode for row in rows} == {episode.key for episode in kept if episode.outcome == "won"}
    again = CollectConfig(str(tmp_path), ("CookingWorldText-v0",), ("1002",), first_seed=998)
    monkeypatch.setattr(engines, "rollout", lambda make_env, policy, seeds, **_: iter(()))
    assert collect(again) == rows, "nothing is played twice"
    assert read_rows(tmp_path / "rows", Asked()) == rows
    assert [label for label in rows[0].labels if label] == [m["content"] for m in rows[0].messages if m["role"] == "assistant"]
    twice = [*rows, dataclasses.replace(rows[0], episode="another")]
    assert len({(row.messages[-1]["content"], row.labels) for row in twice}) <= len(rows)


def test_own_episodes_are_filtered_and_none_left_is_said(tmp_path):
    config = CollectConfig(str(tmp_path / "a"), (GOTO,), ("12",), policy="random", threshold=0.7)
    rows = collect(config)
    assert 0 < len(rows) < 12 and all(row.success for row in rows)
    with pytest.raises(UsageError, match="none is left"):
        collect(dataclasses.replace(config, folder=str(tmp_path / "b"), policy="scripted:drop", mode="text", episodes=("2",)))
    with pytest.raises(UsageError, match="train fold alone"):
        CollectConfig(environments=(f"{GOTO}&fold=test",))
    with pytest.raises(UsageError, match="dev_environments: expected the dev fold alone"):
        SFTConfig(dev_environments=(f"{GOTO}&fold=test",))


def test_whether_the_reward_is_said_is_kept_with_the_rows(tmp_path, noisy_rows):
    write_rows([dataclasses.replace(noisy_rows[0], with_reward=True)], tmp_path / "rows")
    assert asked_in(read_rows(tmp_path / "rows")) == Asked(with_reward=True)
    with pytest.raises(UsageError, match="expected rows with the prompt"):
        read_rows(tmp_path / "rows", Asked())


def test_names_are_exchanged_in_prompts_and_labels_alike(tiny_model, tmp_path, noisy_rows):
    names = ("key", "ball", "box", "grey")

    def stripped(row, pattern=re.compile(r"\b(key|ball|box|grey)\b")):
        """Return the row without the names, and the names in the order in which they stand there."""
        texts = [*(message["content"] for message in row.messages), *row.labels]
        return [pattern.sub("", text) for text in texts], [name for text in texts for name in pattern.findall(text)]

    exchanged = exchange_names(noisy_rows, names, 0)
    maps = []
    for before, after in zip(noisy_rows, exchanged, strict=True):
        (plain, old), (others, new) = stripped(before), stripped(after)
        assert plain == others
        pairs = set(zip(old, new, strict=True))
        assert len({name for name, _ in pairs}) == len({name for _, name in pairs}) == len(pairs), "one for one"
        maps.append(frozenset(pairs))
    assert len(set(maps)) > 1, "each row has its own"
    assert exchanged == exchange_names(noisy_rows, names, 0) != exchange_names(noisy_rows, names, 1)
    for wrong in ((), ("key",), ("key", "key"), ("key=ball", "box"), ("key=ball", "box=")):
        with pytest.raises(UsageError, match=r"^interchangeable: expected two or more different names, each beside others with as"):
            exchange_names(noisy_rows, wrong, 0)
    with pytest.raises(UsageError, match=r"^interchangeable: expected names that stand in the data; these do not: \['banana'\]"):
        exchange_names(noisy_rows, ("key", "banana"), 0)

    def first_loss(folder, rows, **options):
        config = settings(tiny_model, tmp_path / folder, max_steps=1, **options)
        return json.loads((sft(config, rows) / "training.json").read_text())["curve"][0]["loss"]

    asked, by_hand, plain = (
        first_loss("a", noisy_rows, interchangeable=names),
        first_loss("b", exchanged),
        first_loss("c", noisy_rows),
    )
    assert asked == by_hand != plain


def test_names_of_one_thing_are_exchanged_together(noisy_rows):
    asked, answer = {"role": "user", "content": "fry apple: stove, roast carrot: oven"}, {"role": "assistant", "content": "stove"}
    row = dataclasses.replace(noisy_rows[0], messages=(asked, answer), labels=("", "stove"))
    exchanged = exchange_names([row] * 40, ("apple", "carrot", "fry=stove", "roast=oven"), 0)
    assert {(row.messages[0]["content"], row.labels[1]) for row in exchanged} == {
        ("fry apple: stove, roast carrot: oven", "stove"), ("fry carrot: stove, roast apple: oven", "stove"),
        ("roast apple: oven, fry carrot: stove", "oven"), ("roast carrot: oven, fry apple: stove", "oven"),
    }  # fmt: skip


def test_a_dataset_of_another_prompt_version_is_refused(tmp_path, noisy_rows):
    write_rows([dataclasses.replace(noisy_rows[0], template="0" * 16)], tmp_path / "rows")
    with pytest.raises(UsageError, match="The template has changed"):
        read_rows(tmp_path / "rows", Asked())
    with pytest.raises(UsageError, match="there already"):
        write_rows(noisy_rows, tmp_path / "rows")
    with pytest.raises(UsageError, match="gym-text collect has made"):
        read_rows(tmp_path / "nothing")


@pytest.mark.parametrize("block", [384, 32])
def test_packed_losses_are_those_of_one_plain_pass_for_each_decision(tiny_model, noisy_rows, block, monkeypatch):
    monkeypatch.setattr(sequences, "_BLOCK", block)
    base, tokenizer = load_base(tiny_model)
    model = shaken(add_lora(base)).eval()
    make_env = partial(gym.make, "BabyAIText-v0", max_episode_steps=4)
    policy = load_policy("scripted:go forward|turn left", make_env(), strategy="zero_shot", history=1)
    steps = [rows_of(e, text_spec(make_env()), Asked("zero_shot", 1), "own") for e in rollout(make_env, policy, range(3))]
    for rows in (noisy_rows[:4], noisy_rows[4:5], [row for episode in steps for row in episode]):
        with torch.no_grad():
            packed = answer_losses(model, tokenised(tokenizer, rows))
            assert packed.tolist() == pytest.approx(plain_losses(model, tokenizer, rows), abs=1e-4)
    readings = tokenised(tokenizer, noisy_rows[:4])
    first, second, *_ = pack(model, readings).places
    shared = len({*first} & {*second})
    assert shared > 100, "what the prompts begin with is read once"
    assert len(pack(model, readings).tokens) == sum(len(reading.tree.tokens) for reading in readings) - 3 * shared


def test_packed_losses_of_the_real_model_and_their_gradients(noisy_rows):
    base, tokenizer = load_base("smollm2")
    model = shaken(add_lora(base))
    row = min(noisy_rows, key=lambda row: len(row.labels))
    losses = answer_losses(model, tokenised(tokenizer, [row]))
    assert losses.tolist() == pytest.approx(plain_losses(model, tokenizer, [row]), abs=1e-3)
    losses.sum().backward()
    moved = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert moved == {name for name, parameter in model.named_parameters() if "lora_" in name}


def test_a_row_longer_than_the_window_is_refused(tiny_model):
    reading = Reading()
    reading.tree.grow(-1, range(3000))
    with pytest.raises(UsageError, match="at most 2048 tokens"):
        reading.check_window(2048)


def examples(count=8):
    """Return rows of one question each."""
    words = ["turn left", "turn right", "go forward", "pick up", "drop", "toggle"]
    asked = Asked()
    origin = {"environment": '{"id": "x", "kwargs": {}}', "episode": "e", "seed": 0, "episode_return": 1.0, "success": True}
    prompt = {"strategy": "chat", "history": "all", "template": asked.prompt().config["template"]}
    rows = []
    for i in range(count):
        seen = " ".join(4 * [["ball", "key", "box", "door", "wall", "lamp", "hall", "room"][i]])
        messages = ({"role": "user", "content": seen}, {"role": "assistant", "content": "x"})
        rows.append(Row(messages, ("", words[i % 6]), **origin, **prompt))
    return rows


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


def test_products_in_bfloat16_learn_nearly_the_same(tiny_model, tmp_path):
    learnt = {}
    for precision in ("float32", "bfloat16"):
        config = settings(tiny_model, tmp_path / precision, max_steps=8, epochs=20, precision=precision)
        curve = json.loads((sft(config, examples()) / "training.json").read_text())["curve"]
        learnt[precision] = [line["loss"] for line in curve]
    assert learnt["bfloat16"] != learnt["float32"]  # it was not left out
    assert learnt["bfloat16"] == pytest.approx(learnt["float32"], rel=0.05)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch's own, while it compiles
def test_compiled_layers_learn_the_same_from_rows_of_any_length(tiny_model, tmp_path, noisy_rows, monkeypatch):
    monkeypatch.setattr(sequences, "_BLOCK", 64)
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


def test_a_merged_adapter_is_a_model_that_needs_none(tiny_model, tmp_path):
    folder = sft(settings(tiny_model, tmp_path / "run", max_steps=2, merge_to=str(tmp_path / "merged")), examples())
    base, tokenizer = load_base(tiny_model)
    merged, _ = load_base(str(tmp_path / "merged"))
    tuned = plain_losses(add_lora(base, adapter=folder).eval(), tokenizer, examples())
    assert tuned == pytest.approx(plain_losses(merged.eval(), tokenizer, examples()), abs=1e-3)
    with pytest.raises(UsageError, match="there already"):
        merge_adapter(folder, tmp_path / "merged")


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


def test_an_adapter_of_another_base_or_without_weights_is_refused(tiny_model, tmp_path):
    folder = sft(settings(tiny_model, tmp_path / "run", max_steps=1), examples())
    base, _ = load_base(tiny_model)
    base.base_name = "smollm2"
    with pytest.raises(UsageError, match="expected one for 'smollm2'"):
        add_lora(base, adapter=folder)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"expected weights in adapter_model\.safetensors; got none"):
        read_adapter(folder)
    with pytest.raises(UsageError, match="expected a CUDA device") if not torch.cuda.is_available() else pytest.raises(UsageError):
        load_base(tiny_model if not torch.cuda.is_available() else "nothing", four_bit=True)


def test_the_checkpoint_that_plays_best_is_kept(tiny_model, tmp_path, monkeypatch):
    from gym_text_policies.training import sft as module

    successes = iter([[True, False], [True, True], [False, False]])
    monkeypatch.setattr(module, "play_dev_fold", lambda *_: next(successes))
    folder = sft(settings(tiny_model, tmp_path / "run", max_steps=3, epochs=9, save_steps=1, dev_environments=(GOTO,)), examples())
    best = load_file(tmp_path / "run/checkpoint-2/adapter_model.safetensors")
    saved = load_file(folder / "adapter_model.safetensors")
    assert all(torch.equal(best[name].half(), saved[name]) for name in saved)
    curve = json.loads((folder / "training.json").read_text())["curve"]
    assert [line["eval_success"] for line in curve if "eval_success" in line] == [0.5, 1.0, 0.0]


def test_logits_are_in_float32_where_the_last_layer_has_a_bias_as_well(tiny_model):
    base, _ = load_base(tiny_model)
    base.lm_head.bias = torch.nn.Parameter(torch.arange(base.config.vocab_size).float(), requires_grad=False)
    model = add_lora(base)
    expected = model(input_ids=torch.tensor([[1, 2, 3]])).logits.detach()
    set_precision(model, "bfloat16")
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=torch.tensor([[1, 2, 3]])).logits.detach()
    assert logits.dtype == torch.float32 and base.lm_head.bias.dtype == torch.bfloat16
    assert torch.allclose(logits, expected, rtol=0.01, atol=0.1)


def test_the_dev_fold_is_played_by_the_model_as_it_is(tiny_model):
    base, tokenizer = load_base(tiny_model)
    model = shaken(add_lora(base)).train()
    player = as_it_plays(model, tokenizer)
    assert model.training
    plain = TransformersBackend(model, tokenizer, "plain")
    question = Request(messages=({"role": "user", "content": "Which way?"},), choices=("left", "right", "on"))
    (answer,), (expected,) = player.answer([question]), plain.answer([question])
    assert answer.probabilities == pytest.approx(expected.probabilities, abs=1e-4)
    won = play_dev_fold(player, (f"{GOTO}&max_episode_steps=3",), range(2), Asked())
    assert len(won) == 2 and 0 <= sum(won) / len(won) <= 1
