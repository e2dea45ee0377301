"""Models that are small enough to be made by the tests, and their tokenizer."""

import json
from pathlib import Path

from gym_text_policies.backends.local.smollm2 import smollm2_folder

FIRST_TOKENS = 4096
"""Of the embedded model's 49,152: with all of them, a small model would spend nearly all its time on their probabilities."""
WORDS = ("left", "right", "stay", "turn", "go", "Ġforward", "pick", "Ġup", "drop", "oggle")
"""Kept whole, for a small model draws the shortest action far more often than one of twice its tokens."""


def save_tokenizer(folder):
    """Write the embedded model's tokenizer, with the first of its tokens and some words alone, into a folder; return how many."""
    source, target = smollm2_folder(), Path(folder)
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        (target / name).write_bytes((source / name).read_bytes())
    tokenizer = json.loads((source / "tokenizer.json").read_text("utf-8"))
    model = tokenizer["model"]
    halves = {"".join(merge): merge for merge in model["merges"]}
    kept = {token for token, number in model["vocab"].items() if number < FIRST_TOKENS}
    missing = [word for word in WORDS if word in model["vocab"]]
    while missing:
        token = missing.pop()
        missing += [half for half in halves.get(token, ()) if half not in kept]
        kept.add(token)
    model["vocab"] = {token: number for number, token in enumerate(sorted(kept, key=model["vocab"].__getitem__))}
    model["merges"] = [merge for merge in model["merges"] if "".join(merge) in kept]
    (target / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    return len(kept)


def small_llama(tokens, **options):
    """Return a Llama of some thousand random weights, drawn from seed 0; the end of a turn is the embedded model's."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**{"vocab_size": tokens, "bos_token_id": 1, "eos_token_id": 2, **sizes, **options}))
