#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention on the rows of `quire bench attention --preset sdpa` (with PyPI torch).

usage: sdpa.py [--threads N] [--iters N] [--layers N]

f32, keys and values contiguous, no paging. Grouped heads are given in both ways that PyTorch has, enable_gqa=True and
keys and values that were expanded to all query heads before the clock starts; the faster one counts. Keys and values
of several layers are visited in turn, as quire does, so that they do not all come from the caches. Prints one JSON
object a row.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import statistics
import time

import torch
import torch.nn.functional as functional

MOST_LAYERS = 32


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    heads: int
    kv_heads: int
    head_dim: int
    batch: int
    query_len: int
    kv_len: int

    def kv_bytes(self) -> int:
        return 2 * 4 * self.batch * self.kv_len * self.kv_heads * self.head_dim


def make_rows() -> list[Row]:
    rows = []
    for heads, kv_heads, head_dim in ((9, 3, 64), (32, 8, 128)):
        group = f"{heads}/{kv_heads}x{head_dim}"
        # A decode's own key is the last of its 2,049.
        rows.append(Row(f"{group} decode 8 x 1 on 2048", heads, kv_heads, head_dim, 8, 1, 2049))
        rows.append(Row(f"{group} prefill 1 x 2048", heads, kv_heads, head_dim, 1, 2048, 2048))
    return rows


def l3_bytes() -> int:
    """Size of the first processor's third-level cache; 0 if it is not known."""
    for folder in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (folder / "level").read_text().strip() == "3":
            return int((folder / "size").read_text().strip().removesuffix("K")) * 1024
    return 0


def default_layers(row: Row) -> int:
    """Enough to exceed the L3 cache twice."""
    return max(1, min(MOST_LAYERS, math.ceil(2 * l3_bytes() / row.kv_bytes())))


def measure(row: Row, layers: int, iters: int) -> dict[str, object]:
    """Times of `iters` calls each way, after one that is not counted."""
    generator = torch.Generator().manual_seed(1)
    q = torch.rand(row.batch, row.heads, row.query_len, row.head_dim, generator=generator) * 2 - 1
    shape = (row.batch, row.kv_heads, row.kv_len, row.head_dim)
    k, v = (torch.rand(shape, generator=generator) * 2 - 1 for _ in range(2))
    share = row.heads // row.kv_heads
    causal = row.query_len > 1

    seconds: dict[str, list[float]] = {}
    for way in ("enable_gqa", "expanded"):
        expanded = way == "expanded"
        caches = []
        for _ in range(layers):
            caches.append(tuple(x.repeat_interleave(share, dim=1) if expanded else x.clone() for x in (k, v)))
        seconds[way] = []
        with torch.inference_mode():
            for i in range(-1, iters):
                keys, values = caches[i % layers]
                begin = time.perf_counter()
                functional.scaled_dot_product_attention(q, keys, values, is_causal=causal, enable_gqa=not expanded)
                if i >= 0:
                    seconds[way].append(time.perf_counter() - begin)
    medians = {way: statistics.median(times) for way, times in seconds.items()}
    best = min(medians, key=medians.__getitem__)
    return {
        "name": row.name,
        "heads": row.heads,
        "kv_heads": row.kv_heads,
        "head_dim": row.head_dim,
        "threads": torch.get_num_threads(),
        "layers": layers,
        "iters": iters,
        "median_seconds": medians[best],
        "way": best,
        "median_seconds_by_way": medians,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="PyTorch's attention on the rows of quire's preset sdpa")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--iters", type=int, default=10)
    parser.add_argument("--layers", type=int, default=0, help="0: enough to exceed the L3 cache twice, at most 32")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for row in make_rows():
        print(json.dumps(measure(row, args.layers or default_layers(row), args.iters)), flush=True)


if __name__ == "__main__":
    main()
