"""What the tests of training share: rows to learn from, an environment, a model as it is without packing."""

import copy
import json
import math
import shutil

import torch
from gymnasium import spaces

from gym_text import Action, Field, TextSpec
from gym_text.spaces import FreeText
from gym_text.text_env import Outcome, TextEnv
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.tokens import end_of_turn, prompt_tokens, text_tokens
from gym_text_policies.data.rows import Row, training_prompt
from gym_text_policies.policies.config import TRAINED

GOTO = "BabyAIText-v0?task=goto"


def examples(count=8):
    """Return rows of one question each."""
    words = ["turn left", "turn right", "go forward", "pick up", "drop", "toggle"]
    origin = {"environment": '{"id": "x", "kwargs": {}}', "episode": "e", "seed": 0, "episode_return": 1.0, "success": True}
    prompt = {"strategy": "chat", "history": "all", "template": training_prompt(TRAINED).config["template"]}
    rows = []
    for i in range(count):
        text = " ".join(4 * [["ball", "key", "box", "door", "wall", "lamp", "hall", "room"][i]])
        messages = ({"role": "user", "content": text}, {"role": "assistant", "content": "x"})
        rows.append(Row(messages, ("", words[i % 6]), **origin, **prompt))
    return rows


def plain_log_probs(model, tokenizer, messages, answer, thought="", tool=""):
    """Return log P of each token of an answer and its end of turn, with gradients, from one plain forward pass."""
    place = format_of(tokenizer, {"tools": [{"type": "function", "function": json.loads(tool)}]} if tool else None).answer_start(
        bool(thought)
    )
    prompt, tokens = prompt_tokens(tokenizer, messages, place), [*text_tokens(tokenizer, answer), end_of_turn(tokenizer)]
    if thought:
        closed = tokenizer(place.thought_close + answer)["input_ids"]  # the closing space as it is before a word
        tokens = [*tokenizer(place.thought_open)["input_ids"], *text_tokens(tokenizer, thought), *closed, tokens[-1]]
    if tool:
        tokens = tokenizer(f'<tool_call>\n{{"name": "act", "arguments": {answer}}}\n</tool_call><|im_end|>')["input_ids"]
    log_probs = model(input_ids=torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
    return torch.stack([log_probs[len(prompt) + i - 1, token] for i, token in enumerate(tokens)])


def plain_losses(model, tokenizer, rows):
    """Return -log P of each answer's tokens, from one plain forward pass for each decision."""
    with torch.no_grad():
        found = [plain_log_probs(model, tokenizer, *example) for row in rows for example in row.examples()]
    return (-torch.cat(found)).tolist()


def with_random_adapter(model):
    """Return a model whose adapter changes what it says: a new adapter's update is 0."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.1
    return model


class Corridor(TextEnv):
    """Go right `length` times; with a length of 1 a bandit. Any other action ends the episode, for nothing."""

    def __init__(self, *, length=3, fold=None, expert="off", render_mode=None):
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        fields = {"text": Field("where you are"), "goal": Field("the task")}
        actions = (Action("left", "go left"), Action("right", "go right"), Action("stay", "stay where you are"))
        self.text_spec = TextSpec("Walk.", fields, actions, "discrete")
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Dict({"text": FreeText(64), "goal": FreeText(64)})
        self.length, self.place = length, 0

    def _start(self, seed):
        self.place = 0
        return {"text": "Place 0.", "goal": "Walk."}

    def _play(self, action):
        self.place += 1
        over = action != 1 or self.place == self.length
        won = over and action == 1
        return Outcome({"text": f"Place {self.place}.", "goal": "Walk."}, float(won), over, success=won)


class Rich(Corridor):
    """A corridor of length 1 in which, from a seed on, every reward is `worth` more than it is."""

    def __init__(self, *, worth=math.nan, since=0, **arguments):
        super().__init__(length=1, **arguments)
        self.worth, self.since, self.more = float(worth), since, 0.0

    def _start(self, seed):
        self.more = self.worth if seed % 1_000_000 >= self.since else 0.0
        return super()._start(seed)

    def _play(self, action):
        outcome = super()._play(action)
        return outcome._replace(reward=outcome.reward + self.more * (1 if outcome.success else 0.5))


THINKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and (loop.last or KEEPS) %}<think>\n"
    "{{ m.reasoning_content or m.reasoning or '' }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if OPENS or enable_thinking is false %}<think>\n{% endif %}"
    "{% if enable_thinking is false %}{{ '\n' }}</think>\n\n{% endif %}{% endif %}"
)
"""A chat template with thoughts that a switch turns off. KEEPS stands for whether it keeps those of earlier turns, OPENS for
whether the generation prompt opens a thought."""


def thinking(tokenizer, keeps="false", opens="false"):
    """Return a tokenizer whose chat template has thoughts."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = THINKS.replace("KEEPS", keeps).replace("OPENS", opens)
    return tokenizer


def with_gemmas_ends(model, folder):
    """Copy a model with the embedded model's tokenizer, whose markers get Gemma's names. The end of text is no end of turn."""
    names = {"<|im_start|>": "<start_of_turn>", "<|im_end|>": "<end_of_turn>", "<|endoftext|>": "<eos>"}
    shutil.copytree(model, folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        text = (folder / name).read_text("utf-8")
        for old, new in names.items():
            text = text.replace(old, new)
        (folder / name).write_text(text, "utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": "<eos>", "pad_token": "<eos>"}), "utf-8")
    return folder


def thinker(model, folder):
    """Copy a model to a folder, with a chat template whose generation prompt opens a thought; return the folder."""
    from transformers import AutoTokenizer

    shutil.copytree(model, folder)
    thinking(AutoTokenizer.from_pretrained(model), opens="true").save_pretrained(folder)
    return str(folder)
