#!/usr/bin/env python3
"""Converts a Llama GGUF file with a byte-level BPE vocabulary into a Hugging Face folder that transformers loads.

usage: gguf_to_hf.py MODEL.gguf FOLDER [--dtype float32|float16|bfloat16] [--shards N] [--layers N]

Weights are dequantized; Q and K are brought from GGUF's order of rows (neighbouring pairs rotate) back to transformers' (halves rotate).
Needs PyPI gguf and numpy.
"""

import argparse
import json
import pathlib
import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
SAFETENSORS_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
CONTROL, USER_DEFINED = 3, 4  # token types of GGUF that no merge makes
DIGIT_PRE_TOKENIZERS = {"smollm", "starcoder", "refact", "command-r"}  # each digit is a token of its own


class Metadata:
    """The typed values of a GGUF file."""

    def __init__(self, reader: GGUFReader) -> None:
        self.reader = reader

    def get(self, key: str, default: Any = None) -> Any:
        field = self.reader.get_field(key)
        return default if field is None else field.contents()

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            sys.exit(f"{key} is missing")
        return value


def model_config(meta: Metadata, layers: int, tied: bool, dtype: str, vocab: int) -> dict[str, Any]:
    heads = meta.need("llama.attention.head_count")
    hidden = meta.need("llama.embedding_length")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
        "head_dim": meta.get("llama.attention.key_length", hidden // heads),
        "intermediate_size": meta.need("llama.feed_forward_length"),
        "vocab_size": vocab,
        "max_position_embeddings": meta.need("llama.context_length"),
        "rms_norm_eps": plain_number(meta.need("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": plain_number(meta.get("llama.rope.freq_base", 10000.0)),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "torch_dtype": dtype,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
    }
    return config


def plain_number(x: float) -> float:
    """The shortest decimal of a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(x)))


def unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    """[heads * head_dim, in]: row 2i + j of a head goes to row i + j * head_dim / 2."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def weights(reader: GGUFReader, config: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for tensor in reader.tensors:
        name = GLOBAL_NAMES.get(tensor.name)
        if name is None:
            parts = tensor.name.split(".")
            if parts[0] != "blk" or parts[2] not in LAYER_NAMES or parts[3] != "weight":
                sys.exit(f"tensor {tensor.name} is none of Llama's")
            if int(parts[1]) >= config["num_hidden_layers"]:
                continue
            name = f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(d) for d in reversed(tensor.shape)])
        if name.endswith("q_proj.weight"):
            values = unpermute(values, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            values = unpermute(values, config["num_key_value_heads"])
        yield name, np.ascontiguousarray(values)


def to_bytes(values: np.ndarray, dtype: str) -> bytes:
    if dtype == "float32":
        return bytes(values.astype("<f4").tobytes())
    if dtype == "float16":
        return bytes(values.astype("<f2").tobytes())
    bits = values.astype("<f4").view("<u4")
    return bytes(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes())  # to nearest even


def write_safetensors(path: pathlib.Path, tensors: list[tuple[str, np.ndarray]], dtype: str) -> int:
    size = 2 if dtype != "float32" else 4
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors:
        end = offset + values.size * size
        header[name] = {"dtype": SAFETENSORS_DTYPES[dtype], "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for _, values in tensors:
            file.write(to_bytes(values, dtype))
    return offset


def write_weights(folder: pathlib.Path, tensors: list[tuple[str, np.ndarray]], dtype: str, shards: int) -> None:
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return
    weight_map: dict[str, str] = {}
    total = 0
    for shard in range(shards):
        part = tensors[len(tensors) * shard // shards : len(tensors) * (shard + 1) // shards]
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        total += write_safetensors(folder / name, part, dtype)
        weight_map |= {tensor: name for tensor, _ in part}
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def added_token(token_id: int, content: str, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": token_id, "content": content} | flags


def write_tokenizer(folder: pathlib.Path, meta: Metadata) -> None:
    if meta.need("tokenizer.ggml.model") != "gpt2":
        sys.exit("only byte-level BPE vocabularies (tokenizer.ggml.model = gpt2) are converted")
    pre = meta.get("tokenizer.ggml.pre", "default")
    if pre not in DIGIT_PRE_TOKENIZERS | {"gpt-2"}:
        sys.exit(f"tokenizer.ggml.pre {pre} is not converted")
    tokens, types = meta.need("tokenizer.ggml.tokens"), meta.need("tokenizer.ggml.token_type")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    stages: list[dict[str, Any]] = [{"type": "Digits", "individual_digits": True}] if pre in DIGIT_PRE_TOKENIZERS else []
    added = [added_token(i, tokens[i], t == CONTROL) for i, t in enumerate(types) if t in (CONTROL, USER_DEFINED)]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*stages, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta.need("tokenizer.ggml.merges")],
        },
    }
    write_json(folder / "tokenizer.json", tokenizer)

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(meta.get("tokenizer.ggml.add_bos_token", False)),
        "model_max_length": meta.need("llama.context_length"),
        "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added},
    }
    for key, name in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")):
        token_id = meta.get(f"tokenizer.ggml.{name}_token_id")
        if token_id is not None:
            config[key] = tokens[token_id]
    template = meta.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    write_json(folder / "tokenizer_config.json", config)


def write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dtype", choices=SAFETENSORS_DTYPES, default="float32")
    parser.add_argument("--shards", type=int, default=1, help="number of safetensors files")
    parser.add_argument("--layers", type=int, help="keep the first N layers only")
    args = parser.parse_args()
    reader = GGUFReader(args.gguf)
    meta = Metadata(reader)
    if meta.need("general.architecture") != "llama":
        parser.error(f"architecture {meta.need('general.architecture')} is not llama")
    all_layers = meta.need("llama.block_count")
    layers = all_layers if args.layers is None else args.layers
    if not 1 <= layers <= all_layers:
        parser.error(f"--layers {layers}: the model has {all_layers}")
    shapes = {tensor.name: tensor.shape for tensor in reader.tensors}
    if "rope_freqs.weight" in shapes or meta.get("llama.rope.scaling.type", "none") != "none":
        parser.error("rope scaling is not converted")
    config = model_config(meta, layers, "output.weight" not in shapes, args.dtype, int(shapes["token_embd.weight"][1]))
    tensors = list(weights(reader, config))
    if not 1 <= args.shards <= len(tensors):
        parser.error(f"--shards {args.shards}: there are {len(tensors)} tensors")

    args.folder.mkdir(parents=True, exist_ok=True)
    write_json(args.folder / "config.json", config)
    generation = {key: config[key] for key in ("bos_token_id", "eos_token_id") if config[key] is not None}
    write_json(args.folder / "generation_config.json", generation)
    write_tokenizer(args.folder, meta)
    write_weights(args.folder, tensors, args.dtype, args.shards)
    print(f"{args.folder}: {len(tensors)} tensors, {layers} layers, {args.dtype}, {args.shards} file(s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
