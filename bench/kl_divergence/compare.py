#!/usr/bin/env python3
"""Mean KL divergence of quantized arithmetic to fp32, teacher-forced: quire --dtype auto and llama.cpp on the same GGUF file.

usage: compare.py QUIRE_LOGITS MODEL.gguf [ORACLE.json]    (with PyPI numpy and llama-cpp-python)

For the generated tokens of every prompt in the oracle file the distribution at each of their positions is compared with that of
`quire_logits MODEL float32`, whose own distance to transformers' top-5 log-probabilities is printed too.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def quire_logits(program: str, model: str, dtype: str, ids: list[int]) -> np.ndarray:
    out = subprocess.run([program, model, dtype, *map(str, ids)], stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(out, np.float32).reshape(len(ids), -1)


def llama_cpp_logits(llama: object, ids: list[int]) -> np.ndarray:
    llama.reset()  # type: ignore[attr-defined]
    llama.eval(ids)  # type: ignore[attr-defined]
    return np.array(llama.scores[: len(ids)], np.float32)  # type: ignore[attr-defined]


def main() -> None:
    program, model = sys.argv[1:3]
    default = pathlib.Path(__file__).resolve().parents[2] / "tests/data/oracle/smollm2.json"
    oracle = json.loads(pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else default).read_text(encoding="utf-8"))

    try:
        from llama_cpp import Llama

        llama = Llama(model, n_ctx=1024, n_batch=1024, logits_all=True, verbose=False, n_threads=2)
    except ImportError:
        llama = None
        print("llama-cpp-python is not installed: quire only")

    sums: dict[str, list[float]] = {"quire auto": [], "quire bfloat16": [], "llama.cpp": []}
    worst = 0.0
    for item in oracle["items"]:
        ids = item["prompt_ids"] + item["generated_ids"]
        first, n = len(item["prompt_ids"]) - 1, len(item["generated_ids"])
        rows = slice(first, first + n)
        reference = log_softmax(quire_logits(program, model, "float32", ids)[rows])
        for position, top in enumerate(item["top5_logprobs"]):
            worst = max(worst, *(abs(reference[position, token] - value) for token, value in top))
        candidates = {f"quire {d}": quire_logits(program, model, d, ids) for d in ("auto", "bfloat16")}
        if llama is not None:
            candidates["llama.cpp"] = llama_cpp_logits(llama, ids)
        for name, logits in candidates.items():
            q = log_softmax(logits[rows])
            sums[name] += list((np.exp(reference) * (reference - q)).sum(axis=-1))
    print(f"fp32 against transformers' top-5 log-probabilities: largest difference {worst:.2e}")
    for name, values in sums.items():
        if values:
            print(f"{name:15s} mean KL {np.mean(values):.6f}  median {np.median(values):.6f}  max {np.max(values):.4f}  ({len(values)} positions)")


if __name__ == "__main__":
    main()
