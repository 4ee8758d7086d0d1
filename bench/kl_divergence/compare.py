#!/usr/bin/env python3
"""Mean KL divergence of narrow arithmetic to fp32, teacher-forced, on one GGUF file: quire, llama.cpp and transformers.

usage: compare.py QUIRE_LOGITS MODEL.gguf [--device cpu|cuda] [--transformers FOLDER [--transformers-device cpu|cuda]]
                  [--oracle ORACLE.json] [--limit RATIO]

For every prompt in the oracle file, with the tokens generated after it, the distributions at the positions of the generated tokens and at
all positions are compared with those of `quire_logits cpu MODEL float32`, whose own distance to the file's top-5 log-probabilities
is printed too. Needs PyPI numpy; llama-cpp-python is used if it is there; --transformers wants torch, transformers and the model as
tools/gguf_to_hf.py makes it. The last line is the ratio of quire's bfloat16 to transformers'; beyond --limit the exit status is 1.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Logits = Callable[[list[int]], np.ndarray]  # of ids: [ids, vocab]
GENERATED, ALL = "generated", "all"


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    result: np.ndarray = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return result


def quire(program: str, device: str, model: str, dtype: str) -> Logits:
    def logits(ids: list[int]) -> np.ndarray:
        out = subprocess.run([program, device, model, dtype, *map(str, ids)], stdout=subprocess.PIPE, check=True).stdout
        return np.frombuffer(out, np.float32).reshape(len(ids), -1)

    return logits


def llama_cpp(model: str) -> Logits | None:
    try:
        from llama_cpp import Llama
    except ImportError:
        return None
    llama: Any = Llama(model, n_ctx=1024, n_batch=1024, logits_all=True, verbose=False, n_threads=2)

    def logits(ids: list[int]) -> np.ndarray:
        llama.reset()
        llama.eval(ids)
        return np.array(llama.scores[: len(ids)], np.float32)

    return logits


def transformers(folder: str, device: str, dtype: str) -> Logits:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    model = model.to(device).eval()

    def logits(ids: list[int]) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(model(torch.tensor([ids], device=device)).logits[0].float().cpu().numpy())

    return logits


def candidates_of(options: argparse.Namespace) -> dict[str, Logits]:
    kinds = {"cpu": ("auto", "bfloat16"), "cuda": ("float32", "bfloat16", "float16")}[options.device]
    result = {f"quire {options.device} {d}": quire(options.quire_logits, options.device, options.model, d) for d in kinds}
    llama = llama_cpp(options.model)
    if llama is not None:
        result["llama.cpp"] = llama
    if options.transformers:
        for dtype in ("float32", "bfloat16"):
            name = f"transformers {options.transformers_device} {dtype}"
            result[name] = transformers(options.transformers, options.transformers_device, dtype)
    return result


def main() -> int:
    default = pathlib.Path(__file__).resolve().parents[2] / "tests/data/oracle/smollm2.json"
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("quire_logits")
    parser.add_argument("model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--transformers", metavar="FOLDER")
    parser.add_argument("--transformers-device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--oracle", type=pathlib.Path, default=default)
    parser.add_argument("--limit", type=float)
    options = parser.parse_args()
    items = json.loads(options.oracle.read_text(encoding="utf-8"))["items"]

    fp32 = quire(options.quire_logits, "cpu", options.model, "float32")
    candidates = candidates_of(options)
    divergence: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    worst = 0.0
    for item in items:
        ids = item["prompt_ids"] + item["generated_ids"]
        first, n = len(item["prompt_ids"]) - 1, len(item["generated_ids"])
        reference = log_softmax(fp32(ids))
        for position, top in enumerate(item["top5_logprobs"]):
            worst = max(worst, *(abs(reference[first + position, token] - value) for token, value in top))
        for name, logits in candidates.items():
            kl = (np.exp(reference) * (reference - log_softmax(logits(ids)))).sum(axis=-1)
            divergence[name, GENERATED] += list(kl[first : first + n])
            divergence[name, ALL] += list(kl)
    print(f"quire cpu float32 against the oracle's top-5 log-probabilities: largest difference {worst:.2e}")
    for (name, where), values in divergence.items():
        print(f"{name:27s} {where:9s} {len(values):5d} positions: mean KL {np.mean(values):.3e}  "
              f"median {np.median(values):.3e}  max {np.max(values):.3e}")
    if not options.transformers:
        return 0
    ours, theirs = f"quire {options.device} bfloat16", f"transformers {options.transformers_device} bfloat16"
    ratios = {w: float(np.mean(divergence[ours, w]) / np.mean(divergence[theirs, w])) for w in (GENERATED, ALL)}
    print("mean KL of quire's bfloat16 to transformers': " + ", ".join(f"{w} {r:.3f}" for w, r in ratios.items()))
    return 1 if options.limit is not None and max(ratios.values()) > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
