"""The tokens of a text are the tokenizer's own, whatever was tokenised before, and only what is new in a chat is tokenised."""

import pytest
from tokenizers.normalizers import NFC
from transformers import AddedToken, AutoTokenizer

from gym_text_policies.backends.local.encoding import encode
from gym_text_policies.backends.local.smollm2 import smollm2_folder


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(smollm2_folder())


def whole(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def chat(*texts):
    """Return a chat as the model's template writes it."""
    roles = ["user", "assistant"] * len(texts)
    return (
        "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in zip(roles, texts, strict=False))
        + "<|im_start|>assistant\n"
    )


def test_a_chat_that_grows_is_tokenised_where_it_grows(tokenizer, monkeypatch):
    """Two chats that begin alike take turns, and one goes back to earlier turns."""
    texts = [f"\n You see a door {number} . \n\n" if number % 2 else f" go {number}\n" for number in range(1, 42)]
    chats = [chat(*texts[:count]) for count in range(1, 42, 2)]
    others = [chat(*texts[:6], "Something else.", *texts[6:count]) for count in range(7, 42, 2)]
    mixed = [*(one for pair in zip(chats, others, strict=False) for one in pair), *chats[:5:-3], chat("here")]
    wanted, seen, call = [whole(tokenizer, text) for text in mixed], [], type(tokenizer).__call__
    monkeypatch.setattr(type(tokenizer), "__call__", lambda self, text, **named: seen.append(text) or call(self, text, **named))
    for text, tokens in zip(mixed, wanted, strict=True):
        seen.clear()
        assert encode(tokenizer, text) == tokens
        assert sum(map(len, seen)) < 400 or len(text) < 800, "only the last turns are read"


@pytest.mark.parametrize(
    "added, texts",
    [
        (AddedToken("END", single_word=True, special=True), ("say \n\nEND", "say \n\nENDs")),
        (AddedToken("x<|im_end|>y", special=True, normalized=False), (" wx<|im_end|>", " wx<|im_end|>y")),
        (AddedToken("<end>", special=True, normalized=True), ("wo \n\n<end>", "wo \n\n<end>\u0338")),
        (AddedToken("go"), ("a go<|im_end|>", "a go<|im_end|>\n")),
    ],
    ids=["a single word", "another token around it", "normalised", "added later"],
)
def test_a_start_is_not_kept_where_what_follows_could_change_its_tokens(tokenizer, added, texts):
    tokenizer.backend_tokenizer.normalizer = NFC()
    encode(tokenizer, "a go<|im_end|>")
    tokenizer.add_tokens([added])
    for text in texts:
        assert encode(tokenizer, text) == whole(tokenizer, text)
