"""What the tests of TRL share: settings of a trainer on the CPU, models with TRL's templates, a game that fails."""

from pathlib import Path

import gymnasium as gym
import pytest
import trl
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from gym_text.babyai.env import BabyAITextEnv
from gym_text.errors import EngineError

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=3"
CALL = '<tool_call>\n{{"name": "act", "arguments": {{"action": "{}"}}}}\n</tool_call><|im_end|>'
RESPONSE = "\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
WITH_TOOLS = (TEMPLATES / "qwen2_5.jinja").read_text()


PLAYED_AS = {"qwen2_5": "qwen2_5", "qwen3": "qwen3_training", "llama3_1": "llama3_1"}
"""By the model's template the one with which TRL trains: the same, if earlier turns stay as they were generated."""


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


def length_reward(completion_ids, **_):
    """A reward that differs between the episodes of a model that wins none."""
    return [float(sum(ids) % 1009) for ids in completion_ids]


def weights(trainer):
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}


def with_markers(tokenizer, template):
    """Give a tokenizer one of TRL's templates, and its markers as tokens; the end of turn is its last token."""
    end = "<|eot_id|>" if template.startswith("llama") else "<|im_end|>"
    roles = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"] if template.startswith("llama") else ["<tool_call>"]
    tokenizer.add_special_tokens({"additional_special_tokens": [*roles, end]})
    tokenizer.eos_token, tokenizer.bos_token = end, (roles[0] if template.startswith("llama") else tokenizer.bos_token)
    tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    return tokenizer


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
