#!/usr/bin/env python3
"""quire beside llama.cpp, transformers and CTranslate2 on one GGUF file and the same cores, in turns.

usage: compare.py QUIRE MODEL.gguf WORK_FOLDER [--llama-cpp BUILD] [--python PYTHON] [--peers LIST] [--rounds N] [--threads N]
                  [--prefix COMMAND] [--output-json FILE] [--output-markdown FILE]

Makes what is missing in the work folder (prepare.py: builds llama.cpp for this processor, an environment with PyPI's torch, transformers and
ctranslate2, and the files they read); --llama-cpp and --python name such a build and interpreter that are there already. Then, for each
measure, a round times quire, then each peer once; rounds take turns at who begins. A ratio is the median of the rounds' ratios, above 1 where
quire is faster. The machine's limits are measured in the same run. --prefix is put before every command alike, e.g. "taskset -c 0,1".
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import statistics
import tempfile
from typing import Any

import prepare
from peers import MEASURES, LlamaCpp, Measure, Peer, PythonPeer, Quire, run

# Least ratios of quire to llama.cpp on the same file, and to its best file.
GOALS = {"prefill 512": 3.5, "prefill 2,048": 3.2, "decode at 0": 1.4, "decode at 2,048": 2.4, "batch 8, 32 in, 128 out": 3.0}
SAME_FILE, BEST_FILE, BEST_GOAL = "llama.cpp", "llama.cpp Q4_0", 1.7


def make_peers(args: argparse.Namespace, prefix: list[str]) -> list[Peer]:
    peers: list[Peer] = []
    wanted = args.peers.split(",")
    if "llama.cpp" in wanted:
        build = args.llama_cpp or prepare.llama_cpp(args.work)
        peers.append(LlamaCpp(SAME_FILE, build, str(args.model), args.threads, prefix, args.runs))
        for kind in ("Q8_0", "Q4_0"):
            model = prepare.requantized(build, args.model, args.work, kind)
            peers.append(LlamaCpp(f"llama.cpp {kind}", build, str(model), args.threads, prefix, args.runs))
    if "transformers" in wanted or "ctranslate2" in wanted:
        python = args.python or prepare.python(args.work)
        folder = prepare.hugging_face(python, args.model, args.work)
        if "transformers" in wanted:
            peers.append(PythonPeer("transformers float32", python, "transformers", folder, args.threads, prefix))
        if "ctranslate2" in wanted:
            model = prepare.ctranslate2(python, folder, args.work)
            for kind in ("int8", "float32"):
                peers.append(PythonPeer(f"CTranslate2 {kind}", python, "ctranslate2", model, args.threads, prefix, "--compute-type", kind))
    return peers


def limits(quire: str, threads: int, prefix: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "device.json"
        run([*prefix, quire, "bench", "device", "--device", "cpu", "--threads", str(threads), "--output-json", str(out)])
        result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return result


def shares(quire: Quire) -> dict[str, Any]:
    """Of the machine's limits, by `quire bench latency --breakdown`: of one long prefill, and of decodes of one request."""
    prefill = quire.latency(1, 2048, 1, "--breakdown")["breakdown"]
    decode = quire.latency(1, 1, 64, "--breakdown")["breakdown"]
    return {"prefill 2,048": prefill, "decode at 0": decode}


def measure_rounds(quire: Quire, peers: list[Peer], rounds: int) -> dict[str, dict[str, list[float]]]:
    every: list[Peer] = [quire, *peers]
    seconds: dict[str, dict[str, list[float]]] = {m.name: {p.name: [] for p in every} for m in MEASURES}
    for i in range(rounds):
        for measure in MEASURES:
            for peer in peers:  # quire beside each one: what is compared lies seconds apart
                pair: list[Peer] = [quire, peer] if i % 2 == 0 else [peer, quire]
                for one in pair:
                    seconds[measure.name][one.name].append(one.seconds(measure))
        print(f"round {i + 1} of {rounds} is done", flush=True)
    return seconds


def pairs(seconds: dict[str, list[float]], peers: list[Peer], index: int) -> list[float]:
    """The peer's seconds over quire's, round by round."""
    ours, theirs = seconds["quire"][index :: len(peers)], seconds[peers[index].name]
    return [their / our for our, their in zip(ours, theirs, strict=True)]


def rate(measure: Measure, seconds: list[float]) -> str:
    return f"{measure.tokens / statistics.median(seconds):,.0f} tok/s"


def table(seconds: dict[str, dict[str, list[float]]], peers: list[Peer]) -> str:
    lines = ["| measure | quire | " + " | ".join(p.name for p in peers) + " |", "|---" * (len(peers) + 2) + "|"]
    for measure in MEASURES:
        of = seconds[measure.name]
        cells = [rate(measure, of["quire"])]
        for index, peer in enumerate(peers):
            ratios = pairs(of, peers, index)
            cells.append(f"{rate(measure, of[peer.name])}: {statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})")
        lines.append(f"| {measure.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(seconds: dict[str, dict[str, list[float]]], peers: list[Peer]) -> list[str]:
    lines = []
    for measure in MEASURES:
        for index, peer in enumerate(peers):
            goal = GOALS[measure.name] if peer.name == SAME_FILE else 1.0
            if peer.name == BEST_FILE and measure.batch > 1:
                goal = BEST_GOAL
            ratio = statistics.median(pairs(seconds[measure.name], peers, index))
            if ratio < goal:
                lines.append(f"missed: {measure.name} beside {peer.name}: {ratio:.2f}, the goal is {goal}")
    return lines or ["every ratio reaches its goal"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("quire")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--llama-cpp", type=pathlib.Path)
    parser.add_argument("--python")
    parser.add_argument("--peers", default="llama.cpp,transformers,ctranslate2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3, help="within a measurement, after one that warms up")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prefix", default="")
    parser.add_argument("--output-json", type=pathlib.Path)
    parser.add_argument("--output-markdown", type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    prefix = shlex.split(args.prefix)

    quire = Quire(args.quire, str(args.model), args.threads, prefix, args.runs)
    peers = make_peers(args, prefix)
    device = limits(args.quire, args.threads, prefix)
    seconds = measure_rounds(quire, peers, args.rounds)
    breakdown = shares(quire)
    for peer in peers:
        if isinstance(peer, PythonPeer):
            peer.close()

    date = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    text = [
        f"{date}, {args.model.name}, {args.threads} threads, {args.rounds} rounds; tokens per second, then how many times as fast quire is:",
        "median (least, most) of the rounds.",
        "",
        table(seconds, peers),
        "",
        *(p.version for p in peers if isinstance(p, PythonPeer)),
        *verdicts(seconds, peers),
        "",
        f"limits: read {device['read_memory_gb_s']['best']:.1f} GB/s, inside L3 {device['read_cache_gb_s']['best']:.1f} GB/s, "
        f"f32 {device['fma_f32_gflop_s']['best']:.0f} GFLOP/s, int8 {device['dot_int8_gop_s']['best']:.0f} GOP/s",
        f"linear products of prefill 2,048: {breakdown['prefill 2,048']['prefill']['products_share']:.1%} of the rate of their arithmetic",
        f"decode at 0: {breakdown['decode at 0']['decode']['memory_share']:.1%} of the rate of reading memory",
    ]
    print("\n".join(text))
    if args.output_markdown:
        args.output_markdown.write_text("\n".join(text) + "\n", encoding="utf-8")
    if args.output_json:
        result = {"date": date, "model": args.model.name, "threads": args.threads, "limits": device, "seconds": seconds, "shares": breakdown}
        args.output_json.write_text(json.dumps(result, indent=4), encoding="utf-8")


if __name__ == "__main__":
    main()
