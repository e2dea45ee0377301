"""What do chat templates say of answers? Templates of many families, each asked, and compared with plain passes of a random model.

The templates are those that lie in an installed TRL. A small model with random weights gets the embedded model's tokenizer and the
markers of all templates as special tokens. The probabilities of its answers are compared with those of plain forward passes, behind
the template's own text.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.harness import options, run, table, write

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.chat_format import MARKER, ChatFormat, Place
from gym_text_policies.backends.local.rendering import format_of, rendered
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.backends.local.tokens import check_tokenizer, end_of_turn, text_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.records import Message, Tokens

WHEEL = "bridges/trl/lib/python*/site-packages/trl/chat_templates"
CHAT: tuple[Message, ...] = (
    {"role": "system", "content": "You play."},
    {"role": "user", "content": "A wall is ahead."},
    {"role": "assistant", "content": "turn left"},
    {"role": "user", "content": "A door is ahead."},
)
CHOICES = ("go forward", "turn left", "toggle")
COLUMNS = (
    *("template", "end of turn", "between a question and an answer without a thought", "around a thought", "switch", "past turns"),
    "largest difference from plain passes",
)


@dataclass(frozen=True)
class Config:
    """What is asked."""

    templates: str = ""
    """Folder of chat templates, one in each ``.jinja`` file; empty: those of TRL in this environment's ``bridges``."""


@dataclass
class Asked:
    """What one template says."""

    name: str
    refused: str = ""
    """Why no model with this template is loaded."""
    end: str = ""
    opening: str = ""
    thought: tuple[str, str] | None = None
    """What stands before a thought and behind it; None if the template shows none."""
    inside: bool = False
    """Whether the generation prompt ends inside a thought, unless thoughts are switched off."""
    switch: str | None = None
    keeps: list[bool] = field(default_factory=list)
    """Whether later prompts contain a turn as it was generated: without a thought, and with one that the chat keeps."""
    differences: list[float] = field(default_factory=list)
    """Largest difference of a log-probability: without a thought, with one, with one of no tokens."""

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        if self.refused:
            return [self.name, "refused", "", "", "", "", ""]
        thought = " … ".join(map(shown, self.thought)) if self.thought else ""
        words = ["continued" if kept else "rendered anew" for kept in self.keeps]
        past = words[0] if len(set(words)) == 1 else f"{words[0]}; with thoughts {words[1]}"
        around = f"(in the prompt) … {shown(self.thought[1])}" if self.thought and self.inside else thought
        return [self.name, shown(self.end), shown(self.opening), around, self.switch or "", past, f"{max(self.differences):.0e}"]


def shown(text: str) -> str:
    """Return a text as code in a cell of a table."""
    return "`" + text.replace("\n", "↵").replace("|", "\\|") + "`" if text else ""


@functools.cache
def model_of(markers: tuple[str, ...]) -> tuple[Any, Any]:
    """Return a small Llama with random weights, and a tokenizer that has the markers as special tokens."""
    import torch
    from transformers import AddedToken, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    tokenizer.bos_token, tokenizer.eos_token = "<BOS>", "<EOS>"
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.08, max_position_embeddings=8192, **sizes)
        return LlamaForCausalLM(config).eval(), tokenizer


def markers_of(folder: Path) -> tuple[str, ...]:
    """Return what looks like a marker in any template of a folder."""
    return tuple(
        sorted({"<BOS>", "<EOS>", *(mark for path in folder.glob("*.jinja") for mark in MARKER.findall(path.read_text()))})
    )


def plain(model: Any, prompt: Sequence[int], said: Sequence[int]) -> list[float]:
    """Return the log-probability of each token behind a prompt, from one plain pass."""
    import torch

    with torch.no_grad():
        log_probs = model(input_ids=torch.tensor([[*prompt, *said]])).logits[0].log_softmax(-1)
    return [float(log_probs[len(prompt) + index - 1, token]) for index, token in enumerate(said)]


def difference(model: Any, tokens: dict[str, Tokens]) -> float:
    """Return how far the log-probabilities of choices, and of thoughts before them, are from those of plain passes."""
    largest = 0.0
    for each in tokens.values():
        pairs = zip(each.log_probs, plain(model, each.prompt, each.said), strict=True)
        largest = max(largest, *(abs(one - other) for index, (one, other) in enumerate(pairs) if index not in each.written))
    return largest


def answer_tokens(model: Any, tokenizer: Any, **settings: Any) -> dict[str, Tokens]:
    """Return the tokens that a backend reads and scores for a request with choices."""
    backend = TransformersBackend(model, tokenizer, "random", weights="random")
    answer = backend.answer([Request(CHAT, CHOICES, tokens=True, temperature=1.0, seed=1, **settings)])[0]
    return dict(answer.tokens or {})


def ask(name: str, template: str, markers: tuple[str, ...]) -> Asked:
    """Ask one template, and compare the probabilities of answers behind it."""
    model, tokenizer = model_of(markers)
    tokenizer.chat_template = template
    try:
        check_tokenizer(tokenizer, "model:")
    except UsageError as error:
        return Asked(name, refused=str(error).removeprefix("model: "))
    chats = format_of(tokenizer)
    quiet, asked = chats.place(False), Asked(name, end=chats.end_marker, switch=chats.switch)
    tokens = answer_tokens(model, tokenizer, think=False)
    check_written(tokenizer, chats, quiet, tokens)
    asked.opening = rendered(tokenizer, CHAT, quiet).rpartition(CHAT[-1]["content"])[2]
    asked.keeps, asked.differences = [chats.continues(quiet)], [difference(model, tokens)]
    place = thinking(chats)
    if place:
        asked.thought, asked.inside = (place.thought_open, place.thought_close), place.opens_thought
        asked.keeps.append(chats.continues(place, thought=True))
        for budget in (5, 0):
            tokens = answer_tokens(model, tokenizer, think=True, think_tokens=budget)
            check_thought(tokenizer, place, tokens)
            asked.differences.append(difference(model, tokens))
    return asked


def thinking(chats: ChatFormat) -> Place | None:
    """Return the place before a thought; None if the template shows no thoughts."""
    try:
        return chats.place(True)
    except UsageError:
        return None


def check_written(tokenizer: Any, chats: ChatFormat, place: Place, tokens: dict[str, Tokens]) -> None:
    """Check that what is scored is what the template itself writes of an answer, unless it writes no empty thought."""
    for choice, each in tokens.items():
        assert list(each.said) == [*text_tokens(tokenizer, choice), end_of_turn(tokenizer)], choice
        scored = tokenizer.decode([*each.prompt, *each.said], clean_up_tokenization_spaces=False)
        answered = [*CHAT, {"role": "assistant", "content": choice}]
        written = [chats.render(chat, False, dict(place.arguments)) or "" for chat in (answered, [*answered, CHAT[1]])]
        closes = place.opening and not written[0].startswith(rendered(tokenizer, CHAT, place))  # an empty thought of ours
        assert closes or any(text.startswith(scored) for text in written), (scored[-99:], written)


def check_thought(tokenizer: Any, place: Place, tokens: dict[str, Tokens]) -> None:
    """Check that a thought stands where the template puts thoughts, and is closed before the answer."""
    prompt = rendered(tokenizer, CHAT, place)
    for choice, each in tokens.items():
        text = tokenizer.decode([*each.prompt, *each.said], clean_up_tokenization_spaces=False)
        before = text.removesuffix(tokenizer.decode(list(each.said[-1:]))).removesuffix(choice)
        assert before.startswith(prompt) and before.rstrip().endswith((place.thought_close.strip(), place.opening.strip())), before


def main() -> None:
    """Ask every template and write the table."""
    config = options(Config, __doc__)
    found = [Path(config.templates)] if config.templates else sorted(Path(sys.prefix).glob(WHEEL))
    if not found or not list(found[0].glob("*.jinja")):
        raise UsageError("templates: expected a folder of .jinja files; got none. `pytest tests/test_trl.py` makes TRL's.")
    markers = markers_of(found[0])
    asked = [ask(path.stem, path.read_text("utf-8"), markers) for path in sorted(found[0].glob("*.jinja"))]
    refused = [f"`{each.name}` is refused: {each.refused}" for each in asked if each.refused]
    text = "\n\n".join(["# Chat templates", table(COLUMNS, [each.cells for each in asked]).rstrip(), *refused])
    write("chat_templates", text + "\n", {each.name: vars(each) for each in asked})


if __name__ == "__main__":
    run(main)
