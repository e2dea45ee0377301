"""TRL's `GRPOTrainer` with ``use_vllm=True``: TRL's own code, with a model of transformers in place of vLLM's engine."""

import dataclasses
import json
import math
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import trl
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import get_training_chat_template
from trl.generation import vllm_generation

from gym_text.errors import PolicyError, UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.decoding import Generation
from gym_text_policies.backends.local.rendering import set_format
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.bridges import trl_rollout as bridge
from gym_text_policies.bridges.trl import trl_dataset, trl_environment
from gym_text_policies.bridges.trl_rollout import episode_reward, trl_rollout
from gym_text_policies.bridges.trl_vllm import VLLMBackend
from gym_text_policies.policies.config import settings_of

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=3"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"


@dataclass(kw_only=True)
class SamplingParams:
    """The part of vLLM's class that TRL and the backend use."""

    n: int
    max_tokens: int
    temperature: float
    logprobs: int
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False

    def __post_init__(self):
        drawn_from = (self.n, self.logprobs, self.top_p, self.top_k, self.min_p, self.repetition_penalty)
        assert drawn_from == (1, 0, 1.0, 0, 0.0, 1.0), "all that a draw depends on, but the temperature"


class LLM:
    """Samples as vLLM's class does, from a model of transformers, with as many forward passes as a text has tokens.

    `script` has the token that is drawn behind given tokens; behind others it is drawn at random.
    """

    def __init__(self, *, model, max_model_len, logprobs_mode, **_):
        assert logprobs_mode == "processed_logprobs"
        self.model = AutoModelForCausalLM.from_pretrained(model).eval()
        worker = SimpleNamespace(model_runner=SimpleNamespace(model=self))
        executor, config = SimpleNamespace(driver_worker=worker), SimpleNamespace(max_model_len=max_model_len)
        self.llm_engine = SimpleNamespace(model_executor=executor, model_config=config)
        self.script, self.calls, self.unknown = {}, [], set()
        self.generator = torch.Generator().manual_seed(0)

    def load_weights(self, weights):
        assert not self.model.load_state_dict(dict(weights), strict=False).unexpected_keys

    def reset_prefix_cache(self):
        """Do nothing: there is no cache."""

    def generate(self, prompts, sampling_params, use_tqdm):
        self.calls.append(len(prompts))
        return [self._text(prompt["prompt_token_ids"], sampling_params) for prompt in prompts]

    @torch.inference_mode()
    def _text(self, prompt, params):
        text, rows = [], []
        ends = {*params.stop_token_ids, *(() if params.ignore_eos else [self.model.generation_config.eos_token_id])}
        while len(text) < params.max_tokens and (not text or text[-1] not in ends):
            tokens = [*prompt, *text]
            log_probs = (self.model(torch.tensor([tokens])).logits[0, -1] / params.temperature).log_softmax(-1)
            drawn = self.script.get(tuple(tokens))
            token = int(torch.multinomial(log_probs.exp(), 1, generator=self.generator)) if drawn is None else drawn
            log_prob = math.nan if token in self.unknown else float(log_probs[token])
            text.append(token)
            rows.append({token: SimpleNamespace(rank=1, logprob=log_prob)})
        output = SimpleNamespace(token_ids=text, logprobs=rows)
        return SimpleNamespace(prompt_token_ids=prompt, outputs=[output])


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    """Put `LLM` into the place of vLLM's engine."""
    monkeypatch.setattr(vllm_generation, "LLM", LLM, raising=False)
    monkeypatch.setattr(vllm_generation, "SamplingParams", SamplingParams, raising=False)
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda *_: True)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)  # TRL sets them: delete them again afterwards


@pytest.fixture
def trainer_of(tmp_path):
    """Return a function that makes a trainer on the CPU."""

    def make(folder, *, template=None, play=None, **settings):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        if template is not None:
            tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
        sizes = {"per_device_train_batch_size": 2, "num_generations": 2, "max_completion_length": 256, "logging_steps": 1}
        quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
        cpu = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "use_vllm": True}
        return GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder),
            args=GRPOConfig(output_dir=str(tmp_path), **(sizes | quiet | cpu | settings)),
            processing_class=tokenizer,
            train_dataset=trl_dataset("BabyAIText-v0?task=goto", "train", range(4)),
            peft_config=LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]),
            rollout_func=play or trl_rollout(GOTO, max_tokens=4),
            reward_funcs=[episode_reward, lambda completion_ids, **_: [float(sum(ids) % 1009) for ids in completion_ids]],
        )

    return make


@pytest.fixture
def drawn(monkeypatch):
    """Return a dictionary that gets each token that a model in this process draws, behind the tokens before it."""
    tokens, read = {}, Generation.read

    def recording(self, branch, logits):
        known = len(self.tokens)
        read(self, branch, logits)
        tokens.update({(*self._prompt, *self.tokens[:place]): self.tokens[place] for place in range(known, len(self.tokens))})

    monkeypatch.setattr(Generation, "read", recording)
    return tokens


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return the folder of the embedded model's first layers."""
    folder = tmp_path_factory.mktemp("start")
    AutoModelForCausalLM.from_pretrained(smollm2_folder(), num_hidden_layers=4).save_pretrained(folder)
    AutoTokenizer.from_pretrained(smollm2_folder()).save_pretrained(folder)
    return folder


def test_grpo_learns_from_what_the_synchronised_model_has_sampled_and_copies_no_model(start, trainer_of, monkeypatch):
    monkeypatch.setattr(bridge, "player_of", None)
    trainer = trainer_of(start, max_steps=2, learning_rate=3e-3, play=trl_rollout(f"{GOTO[:-1]}2", max_tokens=4))
    llm = trainer.vllm_generation.llm
    before = {name: weight.clone() for name, weight in llm.model.named_parameters()}
    trainer.train()
    assert max(llm.calls) == 2, "the episodes that wait are sampled together"
    assert any(not torch.equal(before[name], weight) for name, weight in llm.model.named_parameters())
    first, second = (entry for entry in trainer.state.log_history if "reward" in entry)
    for logged in (first, second):
        assert logged["reward_std"] > 0 and logged["grad_norm"] > 0
        assert logged["sampling/sampling_logp_difference/max"] < 1e-3, "its log-probabilities are the trainer's"
        assert logged["sampling/importance_sampling_ratio/min"] == pytest.approx(1, abs=1e-2)
    trainer.vllm_generation.sync_weights()  # what the second step has learnt is not in vLLM yet
    moved = dict(llm.model.named_parameters())["model.layers.0.self_attn.q_proj.weight"]
    layer = trainer.model.get_base_model().model.layers[0].self_attn.q_proj
    torch.testing.assert_close(moved, layer.base_layer.weight + layer.get_delta_weight("default"), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("template", "asked"),
    [(None, {}), ("qwen3", {"think": False}), ("qwen3_5_think", {"think_tokens": 4})],
)
def test_the_tokens_that_the_trainer_learns_from_are_those_of_play_in_this_process(tiny_model, trainer_of, drawn, template, asked):
    play = trl_rollout(GOTO, max_tokens=4, **asked)
    trainer = trainer_of(tiny_model, template=template, temperature=1.5, play=play)
    if template:
        trainer.processing_class.chat_template = get_training_chat_template(trainer.processing_class)
    prompts = [trainer.train_dataset[place]["prompt"] for place in range(4)]
    trainer.args.use_vllm = False
    here = play(prompts, trainer)
    llm = trainer.vllm_generation.llm
    llm.script = dict(drawn)
    trainer.args.use_vllm = True
    settings = {name: getattr(trainer.vllm_generation, name) for name in ("max_completion_length", "generation_kwargs")}
    there = play(prompts, trainer)
    assert settings == {name: getattr(trainer.vllm_generation, name) for name in settings}, "as they were before"
    assert len(llm.script) > 20 and max(llm.calls) == 4
    log_probs = there.pop("logprobs"), here.pop("logprobs")
    assert there == here
    for one, other in zip(*log_probs, strict=True):
        assert one == pytest.approx(other, abs=1e-4) and min(one) < -1


@pytest.mark.parametrize("template", [None, "qwen3_training", "qwen3_5_think"])
def test_an_answer_is_that_of_the_same_model_in_this_process(tiny_model, trainer_of, drawn, template):
    trainer = trainer_of(tiny_model, template=template)
    tokenizer, llm = trainer.processing_class, trainer.vllm_generation.llm
    set_format(tokenizer, {})
    llm.script = drawn
    thinking = [{}] if template is None else [{"think": False}, {"think_tokens": 0}, {"think_tokens": 3}, {"think_tokens": 40}]
    messages = ({"role": "user", "content": "Turn left or right?"},)
    asked = [
        Request(messages, max_tokens=size, temperature=1.0, seed=seed, tokens=True, **think)
        for think in thinking
        for seed, size in enumerate((1, 3, 9))
    ]
    local = TransformersBackend(AutoModelForCausalLM.from_pretrained(tiny_model), tokenizer, "tiny")
    backend = VLLMBackend.of_trainer(trainer)
    kinds = set()
    for request in asked:  # one by one: several have the same prompt
        drawn.clear()
        (here,) = local.answer([request])
        (tokens,) = here.tokens.values()
        (there,) = backend.answer([request])
        close = dataclasses.replace(here, tokens=None, tokens_cached=0), dataclasses.replace(there, tokens=None)
        assert close[0] == close[1]
        (others,) = there.tokens.values()
        assert (others.prompt, others.said, others.written) == (tokens.prompt, tokens.said, tokens.written)
        assert others.log_probs == pytest.approx(tokens.log_probs, abs=1e-4)
        kinds.add((here.reasoning is None, here.thought_cut))
    assert len(kinds) == {None: 1, "qwen3_training": 2, "qwen3_5_think": 2}[template], kinds
    together = backend.answer(asked)
    assert all(answer.tokens_out <= request.most_tokens for answer, request in zip(together, asked, strict=True))


def test_a_log_probability_that_vllm_does_not_know_is_left_to_trl(tiny_model, trainer_of):
    trainer = trainer_of(tiny_model)
    llm, prompts = trainer.vllm_generation.llm, [trainer.train_dataset[place]["prompt"] for place in range(2)]
    play = trl_rollout(f"{GOTO[:-1]}1", max_tokens=1)
    starts = play(prompts, trainer)["prompt_ids"]
    llm.script, llm.unknown = {tuple(starts[0]): 20, tuple(starts[1]): 21}, {21}
    known, unknown = (log_probs[0] for log_probs in play(prompts, trainer)["logprobs"])
    assert known < 0 and math.isnan(unknown)


def test_settings_with_which_vllm_cannot_play_are_refused(tiny_model, trainer_of, monkeypatch):
    trainer = trainer_of(tiny_model)
    prompts = [trainer.train_dataset[0]["prompt"]]
    for name, value in (
        ("vllm_enable_sleep_mode", True),
        ("generation_kwargs", {"seed": 1}),
        ("vllm_structured_outputs_regex", "a"),
    ):
        with monkeypatch.context() as patch, pytest.raises(UsageError, match=f"{name}="):
            patch.setattr(trainer.args, name, value)
            trainer.rollout_func(prompts, trainer)
    backend = VLLMBackend.of_trainer(trainer)
    with pytest.raises(UsageError, match="expected 'text'"):
        backend.answer([Request(({"role": "user", "content": "Left?"},), choices=("yes", "no"))])
    with monkeypatch.context() as patch, pytest.raises(UsageError, match="vllm_mode='colocate'"):
        patch.setattr(type(trainer.accelerator), "num_processes", 2)
        patch.setattr(trainer.args, "vllm_tensor_parallel_size", 2)
        trainer.rollout_func(prompts, trainer)
    trainer.args.vllm_max_model_length = 100
    with pytest.raises(PolicyError, match="at most"):
        VLLMBackend.of_trainer(trainer).answer([Request(({"role": "user", "content": "left " * 200},))])


@pytest.mark.parametrize("option", [(), ("--use-vllm",)])
def test_the_script_of_the_docs_learns_the_experts_calls_and_then_by_tools(tiny_model, tmp_path, monkeypatch, option):
    sizes = {"expert-levels": 2, "steps": 2, "levels": 2, "group": 2, "episodes-per-pass": 2, "max-episode-steps": 2, "rank": 2}
    options = {"model": tiny_model, "folder": tmp_path / "tools", "max-completion-length": 24} | sizes
    monkeypatch.setattr(sys, "argv", ["trl_tools.py", *(f"--{name}={value}" for name, value in options.items()), *option])
    script = runpy.run_path("docs/trl_tools.py", run_name="__main__")
    logged = [entry for entry in json.loads((tmp_path / "tools/metrics.json").read_text()) if "success" in entry]
    assert len(logged) == 2 and all(("sampling/importance_sampling_ratio/mean" in entry) == bool(option) for entry in logged)
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
