#!/usr/bin/env python3
"""Writes what the reference readers say of checkpoints, for tests/checkpoint.

usage: make_checkpoint_golden.py MODEL.gguf

tests/data/checkpoint/smollm2.json: tensors and vocabulary of the small model as PyPI gguf reads them. Also checks that the verdicts of
tests/data/checkpoint/safetensors_cases.json are still those of PyPI safetensors. Needs PyPI gguf, numpy and safetensors.
"""

import base64
import json
import pathlib
import sys
from typing import Any

import numpy as np
import safetensors
from gguf import GGUFReader
from gguf_to_hf import GLOBAL_NAMES, LAYER_NAMES, Metadata

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "checkpoint"


def hugging_face_name(name: str) -> str:
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"


def byte_sums(data: np.ndarray) -> tuple[int, int]:
    """Sum of the bytes, and of the bytes weighted by their place in a period of 251: moved bytes change it."""
    values = np.frombuffer(data.tobytes(), np.uint8).astype(np.uint64)
    places = np.arange(values.size, dtype=np.uint64) % np.uint64(251)
    return int(values.sum()), int((values * places).sum())


def vocabulary(meta: Metadata) -> dict[str, Any]:
    tokens, merges = meta.need("tokenizer.ggml.tokens"), meta.need("tokenizer.ggml.merges")
    return {
        "tokens": len(tokens),
        "token_sums": byte_sums(np.frombuffer("\0".join(tokens).encode(), np.uint8)),
        "merges": len(merges),
        "merge_sums": byte_sums(np.frombuffer("\0".join(merges).encode(), np.uint8)),
        "control_tokens": [i for i, kind in enumerate(meta.need("tokenizer.ggml.token_type")) if kind == 3],
    }


def golden(path: str) -> dict[str, Any]:
    reader = GGUFReader(path)
    meta = Metadata(reader)
    last = f"blk.{meta.need('llama.block_count') - 1}."
    tensors = {}
    for tensor in reader.tensors:
        if tensor.name.startswith("blk.") and not tensor.name.startswith(("blk.0.", last)):
            continue
        tensors[hugging_face_name(tensor.name)] = {
            "dtype": tensor.tensor_type.name,
            "shape": [int(d) for d in reversed(tensor.shape)],
            "byte_sums": byte_sums(tensor.data),
        }
    count = len(reader.tensors)
    size = sum(int(tensor.n_bytes) for tensor in reader.tensors)
    return {"tensor_count": count, "weight_bytes": size, "tensors": tensors, "vocabulary": vocabulary(meta)}


def check_safetensors_verdicts() -> int:
    wrong = 0
    for case in json.loads((DATA / "safetensors_cases.json").read_text(encoding="utf-8")):
        try:
            safetensors.deserialize(base64.b64decode(case["base64"]))
            verdict = "accept"
        except safetensors.SafetensorError:
            verdict = "reject"
        if verdict != case["reference_0_x"]:
            print(f"{case['id']}: safetensors {safetensors.__version__} says {verdict}, the table {case['reference_0_x']}")
            wrong += 1
    return wrong


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text = json.dumps(golden(sys.argv[1]), indent=1)
    (DATA / "smollm2.json").write_text(text + "\n", encoding="utf-8")
    return 1 if check_safetensors_verdicts() else 0


if __name__ == "__main__":
    sys.exit(main())
