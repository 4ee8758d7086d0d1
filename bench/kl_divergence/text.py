#!/usr/bin/env python3
"""KL divergence to fp32 and perplexity over a text, teacher-forced, on one GGUF file: quire and llama.cpp.

usage: text.py QUIRE QUIRE_LOGITS MODEL.gguf TEXT.jsonl [--positions N] [--chunk N] [--limit RATIO]

The text is the strings of each line's object ("question" and "answer" of GSM8K, say), cut into chunks of as many tokens, until there are
enough positions. The reference is `quire_logits cpu MODEL float32`. Caches are f16 in both programs. The last line is the ratio of quire's
mean divergence, and of its perplexity, to llama.cpp's; where one is beyond --limit, the exit status is 1. Needs PyPI numpy and
llama-cpp-python.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np
from compare import llama_cpp, log_softmax, quire


def chunks(program: str, model: str, text: str, size: int, positions: int) -> list[list[int]]:
    command = [program, "tokenize", "--model", model, "--ids", "--no-add-special-tokens"]
    ids: list[int] = json.loads(subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout)
    count = -(-positions // size)
    if len(ids) < count * size:
        sys.exit(f"the text has {len(ids)} tokens; {count * size} are needed")
    return [ids[i * size : (i + 1) * size] for i in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("quire")
    parser.add_argument("quire_logits")
    parser.add_argument("model")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--chunk", type=int, default=500)
    parser.add_argument("--limit", type=float)
    args = parser.parse_args()
    items = [json.loads(line) for line in args.text.read_text(encoding="utf-8").splitlines()]
    text = "\n\n".join("\n".join(value for value in item.values() if isinstance(value, str)) for item in items[:500])

    fp32 = quire(args.quire_logits, "cpu", args.model, "float32")
    candidates = {"quire auto": quire(args.quire_logits, "cpu", args.model, "auto")}
    llama = llama_cpp(args.model)
    if llama is None:
        sys.exit("llama-cpp-python is missing")
    candidates["llama.cpp"] = llama
    divergence: dict[str, list[float]] = {name: [] for name in candidates}
    surprise: dict[str, list[float]] = {name: [] for name in ["quire float32", *candidates]}
    for ids in chunks(args.quire, args.model, text, args.chunk, args.positions):
        following = (np.arange(len(ids) - 1), ids[1:])
        reference = log_softmax(fp32(ids))
        surprise["quire float32"] += list(-reference[following])
        for name, logits in candidates.items():
            ours = log_softmax(logits(ids))
            divergence[name] += list((np.exp(reference) * (reference - ours)).sum(axis=-1))
            surprise[name] += list(-ours[following])
    perplexity = {name: float(np.exp(np.mean(values))) for name, values in surprise.items()}
    for name, value in perplexity.items():
        kl = divergence.get(name)
        print(f"{name:14s} perplexity {value:.4f}" + (f", mean KL {np.mean(kl):.3e}, median {np.median(kl):.3e}, {len(kl)} positions" if kl else ""))
    kl_ratio = float(np.mean(divergence["quire auto"]) / np.mean(divergence["llama.cpp"]))
    perplexity_ratio = perplexity["quire auto"] / perplexity["llama.cpp"]
    print(f"quire / llama.cpp: mean KL {kl_ratio:.3f}, perplexity {perplexity_ratio:.4f}")
    return 1 if args.limit is not None and max(kl_ratio, perplexity_ratio) > args.limit else 0


if __name__ == "__main__":
    sys.exit(main())
