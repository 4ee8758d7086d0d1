#!/usr/bin/env python3
"""quire's attention beside PyTorch's: both in one run, in turns (with PyPI torch).

usage: compare.py QUIRE [--rounds N] [--threads N] [--iters N] [--kv-cache-dtype NAME] [--output-json FILE]

Each round measures all rows with quire, then all with PyTorch (sdpa.py), with as many layers of keys and values. A
row's ratio is PyTorch's median over quire's, above 1 where quire is faster: the median of the rounds, with the least
and the largest. PyTorch's keys and values are f32; quire's are what --kv-cache-dtype says, f32 by default.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import sdpa
import torch


def quire_rows(args: argparse.Namespace) -> dict[str, dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        command = [args.quire, "bench", "attention", "--device", "cpu", "--preset", "sdpa"]
        command += ["--kv-cache-dtype", args.kv_cache_dtype, "--threads", str(args.threads), "--iters", str(args.iters), "--output-json", str(out)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return {row["name"]: row for row in json.loads(out.read_text(encoding="utf-8"))["rows"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="quire's attention beside PyTorch's, in turns")
    parser.add_argument("quire", help="the program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--iters", type=int, default=10)
    parser.add_argument("--kv-cache-dtype", default="float32")
    parser.add_argument("--output-json", default="")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    rows = sdpa.make_rows()
    ours: dict[str, list[float]] = {row.name: [] for row in rows}
    theirs: dict[str, list[float]] = {row.name: [] for row in rows}
    ways: dict[str, list[str]] = {row.name: [] for row in rows}
    for _ in range(args.rounds):
        measured = quire_rows(args)
        for row in rows:
            own = measured[row.name]
            ours[row.name].append(float(own["median_seconds"]))  # type: ignore[arg-type]
            peer = sdpa.measure(row, int(own["layers"]), args.iters)  # type: ignore[call-overload]
            theirs[row.name].append(float(peer["median_seconds"]))  # type: ignore[arg-type]
            ways[row.name].append(str(peer["way"]))

    print(f"torch {torch.__version__}, {args.threads} threads, {args.rounds} rounds of {args.iters} runs, "
          f"quire's cache {args.kv_cache_dtype}")
    print(f"{'step, one layer':<34} {'quire ms':>9} {'torch ms':>9} {'ratio':>6} {'least':>6} {'most':>6}  torch's way")
    results = []
    for row in rows:
        ratios = [peer / own for own, peer in zip(ours[row.name], theirs[row.name], strict=True)]
        result = {
            "name": row.name,
            "quire_seconds": ours[row.name],
            "torch_seconds": theirs[row.name],
            "ratio": statistics.median(ratios),
            "way": statistics.mode(ways[row.name]),
        }
        results.append(result)
        print(f"{row.name:<34} {statistics.median(ours[row.name]) * 1e3:>9.2f} "
              f"{statistics.median(theirs[row.name]) * 1e3:>9.2f} {result['ratio']:>6.2f} {min(ratios):>6.2f} "
              f"{max(ratios):>6.2f}  {result['way']}")
    if args.output_json:
        text = json.dumps({"torch": torch.__version__, "threads": args.threads, "rows": results}, indent=4)
        pathlib.Path(args.output_json).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
