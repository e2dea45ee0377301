"""Small models that think: chat templates of three forms, and a model that learns within a second to write thoughts."""

import functools

from small_models import save_tokenizer, small_llama

TURNS = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
_OFF = "{% if enable_thinking is defined and enable_thinking is false %}"
_ANSWER = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{% if loop.last %}<think>\n"
    "{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% else %}" + TURNS + "{% endif %}"
    "{% endfor %}"
)
_CHANNELS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.role == 'assistant' %}{% if m.reasoning_content and loop.last %}"
    "<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|><|im_start|>assistant{% endif %}<|channel|>final<|message|>"
    "{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}{% else %}<|message|>{{ m.content }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
)
TEMPLATES = {
    "switch": _ANSWER
    + "{% if add_generation_prompt %}<|im_start|>assistant\n"
    + _OFF
    + "<think>\n\n</think>\n\n{% endif %}{% endif %}",
    "opened": _ANSWER
    + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
    + _OFF
    + "{{ '\n' }}</think>\n\n{% endif %}{% endif %}",
    "channels": _CHANNELS,
}
"""A switch that writes an empty thought, a prompt that ends inside a thought, and channels."""
THOUGHTS = {"A wall.": ("The way is shut here.", "turn left"), "A ball.": ("A ball lies at my feet.", "pick up")}
"""What the model learns: question, thought and answer."""


def thinking_tokenizer(folder, form):
    """Return the small tokenizer with the markers and the template of a form."""
    from transformers import AddedToken, AutoTokenizer

    save_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if form == "channels":
        markers = ["<|channel|>", "<|message|>", "<|end|>", "<|return|>"]
        tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    else:
        tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = TEMPLATES[form]
    return tokenizer


def random_model(folder, form):
    """Return a small model of random weights and its tokenizer."""
    tokenizer = thinking_tokenizer(folder, form)
    return small_llama(len(tokenizer), initializer_range=0.08, max_position_embeddings=2048).eval(), tokenizer


def chat(text):
    """Return a chat of one question."""
    return ({"role": "user", "content": text},)


def written(tokenizer, text, thought, answer):
    """Return the tokens of a chat with its last answer, as the template writes it, up to the end of turn."""
    messages = [*chat(text), {"role": "assistant", "content": answer, "reasoning_content": thought}]
    tokens = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)["input_ids"]
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
    return tokens[: -len(newline)] if tokens[-len(newline) :] == newline else tokens


def taught_model(folder, form):
    """Return a small model that has learnt THOUGHTS, and its tokenizer."""
    import torch

    model, tokenizer = random_model(folder, form)
    texts = [written(tokenizer, text, *said) for text, said in THOUGHTS.items()]
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(150):
        loss = sum(model(input_ids=torch.tensor([tokens]), labels=torch.tensor([tokens])).loss for tokens in texts)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval(), tokenizer


@functools.cache
def taught(form):
    """Return the taught model of a form; it is taught once in a process."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return taught_model(folder, form)
