#!/usr/bin/env python3
"""A Python library as a peer: loads a model, then times what it is asked for, line by line.

usage: python_peer.py transformers|ctranslate2 FOLDER --threads N [--compute-type TYPE]

Reads "BATCH INPUT OUTPUT" and answers with the seconds that BATCH prompts of INPUT random tokens took to get OUTPUT greedy tokens each, and
with those since the first token. The first line written is the library's version. compare.py is the other end of the pipe.
"""

import argparse
import pathlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any

LARGEST_ID = 10000  # exclusive; as `quire bench latency` has it

Generate = Callable[[list[list[int]], int], float]  # of prompts and tokens to generate: when the first token was there


def transformers(folder: str, threads: int) -> tuple[str, Generate]:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers import __version__ as version

    torch.set_num_threads(threads)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()

    class FirstToken:
        """A streamer: it gets the prompt, then each token."""

        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, _: object) -> None:
            self.times.append(time.perf_counter())

        def end(self) -> None:
            pass

    def generate(prompts: list[list[int]], tokens: int) -> float:
        first = FirstToken() if len(prompts) == 1 else None  # of one prompt only
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                                 pad_token_id=0, streamer=first)
        if out.shape[1] != ids.shape[1] + tokens:
            sys.exit(f"transformers made {out.shape[1] - ids.shape[1]} tokens instead of {tokens}")
        return first.times[1] if first else time.perf_counter()

    return f"transformers {version}, torch {torch.__version__}", generate


def ctranslate2(folder: str, threads: int, compute_type: str) -> tuple[str, Generate]:
    import json

    import ctranslate2 as library

    words = json.loads((pathlib.Path(folder) / "vocabulary.json").read_text(encoding="utf-8"))
    generator: Any = library.Generator(folder, device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=threads)

    def generate(prompts: list[list[int]], tokens: int) -> float:
        times: list[float] = []

        def note(_: object) -> bool:
            times.append(time.perf_counter())
            return False

        results = generator.generate_batch([[words[i] for i in ids] for ids in prompts], max_length=tokens, min_length=tokens,
                                           sampling_topk=1, include_prompt_in_result=False, callback=note)
        for result in results:
            if len(result.sequences_ids[0]) != tokens:
                sys.exit(f"CTranslate2 made {len(result.sequences_ids[0])} tokens instead of {tokens}")
        return times[0]

    return f"CTranslate2 {library.__version__} {compute_type}", generate


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", choices=("transformers", "ctranslate2"))
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compute-type", default="float32")
    args = parser.parse_args()
    if args.library == "transformers":
        version, generate = transformers(args.folder, args.threads)
    else:
        version, generate = ctranslate2(args.folder, args.threads, args.compute_type)
    print(version, flush=True)
    ids = random.Random(0)
    for line in sys.stdin:
        batch, length, tokens = map(int, line.split())
        prompts = [[ids.randrange(LARGEST_ID) for _ in range(length)] for _ in range(batch)]
        begin = time.perf_counter()
        first = generate(prompts, tokens)
        end = time.perf_counter()
        print(end - begin, end - first, flush=True)


if __name__ == "__main__":
    main()
