"""verl's data set, agent loop and token builder, with a scripted server; SkyRL's data set and `skyrl_gym`."""

import asyncio
import importlib.util
import sys
import threading
from importlib.metadata import distribution

import hydra
import pytest
import skyrl_gym
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from gym_text import UsageError
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.bridges.levels import level_rows, write_levels
from gym_text_policies.bridges.skyrl import register
from gym_text_policies.environments import make_environment

GOTO = "BabyAIText-v0?task=goto"
SIZES = {"prompt_length": 512, "response_length": 1000}


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(smollm2_folder())


def rows_of(tmp_path, tokenizer, seeds=range(2)):
    """Return the rows that verl reads of a file."""
    write_levels(tmp_path / "train.parquet", "verl", GOTO, "train", seeds)
    config = OmegaConf.create({"max_prompt_length": 512, "return_raw_chat": True, "cache_dir": str(tmp_path / "cache")})
    return RLHFDataset(data_files=str(tmp_path / "train.parquet"), tokenizer=tokenizer, config=config)


def played(tokenizer, row, script, sizes=SIZES, ends="completed", around=None, **settings):
    """Return an episode by verl's agent loop; the server says what the script says and notes what it reads; `around` may run it."""
    answers, read = iter(script), []

    class Server:
        async def generate(self, *, request_id, prompt_ids, sampling_params):
            read.append(list(prompt_ids))
            said = [*tokenizer(next(answers), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            return TokenOutput(token_ids=said, log_probs=[-0.5] * len(said), stop_reason=ends)

    async def run():
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": sizes}, "data": {}})
        loop = hydra.utils.instantiate(
            {"_target_": "gym_text_policies.bridges.verl.GymTextAgentLoop", **settings},
            trainer_config=DictConfigWrap(config=config),
            server_manager=Server(),
            tokenizer=tokenizer,
            processor=None,
            hf_model_type="qwen2",  # whose turns end as this template's do
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
        )
        episode = loop.run({"temperature": 1.0}, **{key: value for key, value in row.items() if key != "agent_name"})
        return await (around(episode) if around else episode)

    return asyncio.run(run()), read


def test_verl_reads_the_levels_and_its_agent_loop_plays_them_token_by_token(tokenizer, tmp_path):
    data = rows_of(tmp_path, tokenizer)
    assert len(data) == 2 and [data[place]["agent_name"] for place in (0, 1)] == ["gym_text", "gym_text"]
    row = data[1]
    assert [dict(message) for message in row["raw_prompt"]] == level_rows(GOTO, "train", [1])[0]["prompt"]
    _, info = make_environment("BabyAIText-v0", task="goto", fold="train").reset(seed=1)
    script = ["a camel", *info["gold_path"]]
    output, read = played(tokenizer, row, script)
    assert output.reward_score > 0.5 and output.num_turns == 2 * len(script)
    told = output.extra_fields["reward_extra_info"]
    assert told == {"success": 1.0, "steps": len(info["gold_path"]), "unusable": 1}
    assert output.prompt_ids == read[0] and output.prompt_ids + output.response_ids[: len(read[-1]) - len(read[0])] == read[-1]
    learnt = [token for token, own in zip(output.response_ids, output.response_mask, strict=True) if own]
    assert tokenizer.decode(learnt) == "".join(f"{said}<|im_end|>" for said in script)
    assert {p for p, own in zip(output.response_logprobs, output.response_mask, strict=True) if own} == {-0.5}
    assert "nothing has happened. Name exactly one of these actions: turn left" in tokenizer.decode(output.response_ids)
    assert output.as_dict()["rm_scores"].sum() == pytest.approx(output.reward_score)


def test_an_episode_ends_with_the_responses_greatest_length_and_after_unusable_answers_in_a_row(tokenizer, tmp_path):
    row = rows_of(tmp_path, tokenizer)[0]
    output, _ = played(tokenizer, row, ["turn left"] * 100, sizes={**SIZES, "response_length": 60})
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs) <= 60
    assert output.reward_score == 0 and output.response_mask[-1] == 1, "nothing that was told is at the end"
    output, read = played(tokenizer, row, ["a camel"] * 100)
    assert len(read) == 5 and output.extra_fields["reward_extra_info"]["unusable"] == 5


@pytest.mark.parametrize(("ends", "steps"), [("completed", 1), ("length", 0)])
def test_an_answer_that_verl_cut_is_no_answer_unless_it_is_a_whole_name(tokenizer, tmp_path, ends, steps):
    row = rows_of(tmp_path, tokenizer)[0]
    output, _ = played(tokenizer, row, ["I go forward and", *["a camel"] * 9], ends=ends)
    assert output.extra_fields["reward_extra_info"]["steps"] == steps
    output, _ = played(tokenizer, row, ["go forward", *["a camel"] * 9], ends=ends)
    assert output.extra_fields["reward_extra_info"]["steps"] == 1


def prompt_dataset():
    """Return SkyRL's `PromptDataset` of its installed wheel, whose package needs what only a GPU has."""
    path = distribution("skyrl").locate_file("skyrl/train/dataset/dataset.py")
    spec = importlib.util.spec_from_file_location("skyrl_dataset", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PromptDataset


def test_skyrl_reads_the_levels_and_its_environment_plays_them(tmp_path):
    register()
    register()  # twice is once
    write_levels(tmp_path / "train.parquet", "skyrl", GOTO, "train", range(2))
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    data = prompt_dataset()(str(tmp_path / "train.parquet"), tokenizer, 512, num_workers=1)
    messages, env_class, extras, _ = data[1]
    assert (len(data), env_class, messages) == (2, "gym_text", level_rows(GOTO, "train", [1])[0]["prompt"])
    env = skyrl_gym.make(env_class, env_config={}, extras={**extras, "max_turns": 100})
    assert env.init(messages) == (messages, {})
    told = env.step("a camel")
    assert told["observations"][0]["content"].startswith("That cannot be used") and (told["reward"], told["done"]) == (0, False)
    _, info = make_environment("BabyAIText-v0", task="goto", fold="train").reset(seed=1)
    steps = [env.step(action) for action in info["gold_path"]]
    assert [step["done"] for step in steps] == [False] * (len(steps) - 1) + [True]
    assert sum(step["reward"] for step in steps) > 0.5 and steps[-1]["observations"] == []
    assert env.get_metrics() == {"success": 1.0, "steps": len(steps), "unusable": 1}
    env.close()


def test_a_rows_module_is_imported_where_the_users_own_settings_name_it(tokenizer, tmp_path):
    level = {"environment": "libraries.noting:Noting-v0?task=goto", "fold": "train", "seed": 0}
    message = r"expected one that ships .* as in imports: .libraries\.noting"
    register()
    with pytest.raises(UsageError, match=message):
        skyrl_gym.make("gym_text", env_config={}, extras=level)
    with pytest.raises(UsageError, match=message):
        played(tokenizer, {"extra_info": level}, ["turn left"])
    assert "libraries.noting" not in sys.modules
    register(["libraries.noting"])
    skyrl_gym.make("gym_text", env_config={}, extras=level).close()
    output, _ = played(tokenizer, {"extra_info": level}, ["turn left"] * 3, imports=["libraries.noting"])
    assert output.extra_fields["reward_extra_info"]["steps"] == 3


def test_a_game_begins_is_played_and_is_closed_outside_of_the_thread_of_verls_event_loop(tokenizer):
    from libraries.noting import closers, threads

    threads.clear()
    closers.clear()
    level = {"environment": "Noting-v0?task=goto", "fold": "train", "seed": 0}
    played(tokenizer, {"extra_info": level}, ["turn left"] * 3, imports=["libraries.noting"])
    assert threads and closers and threading.get_ident() not in threads | closers


def test_an_episode_that_verl_cancels_while_it_begins_is_closed(tokenizer):
    from libraries import noting

    async def cancelled(episode):
        for event in (noting.began, noting.may_begin, noting.closed):
            event.clear()
        running = asyncio.create_task(episode)
        assert await asyncio.to_thread(noting.began.wait, 60)
        running.cancel()
        noting.may_begin.set()
        await asyncio.wait([running])
        assert running.cancelled()
        assert await asyncio.to_thread(noting.closed.wait, 20)

    level = {"environment": "Noting-v0?task=goto", "fold": "train", "seed": 0}
    played(tokenizer, {"extra_info": level}, [], around=cancelled, imports=["libraries.noting"])
