#!/usr/bin/env python3
"""quire on a GPU beside the figures of peers.json, as one markdown table.

usage: compare.py QUIRE [--model NAME] [--only model,attention] [--output FILE]

Runs every row: `quire bench latency` and `quire bench throughput` with dummy weights, `quire bench attention --preset
h200`. A row's ratio is the peer's time over quire's, above 1 where quire is faster. The share is of the limit that the
card set in the same run: what quire measures of reading and of products, over the bytes and operations that the work
can't do without. The peers' figures were measured once, on the card that peers.json names, not in this run.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

Json = dict[str, Any]

LIMIT = re.compile(r"^Limit: ([\d.]+) seconds, ([\d.]+) % reached", re.MULTILINE)


@dataclasses.dataclass
class Row:
    """One line of the table; times in seconds."""

    name: str
    source: str
    peer: float
    ours: float | None = None
    share: str = ""
    note: str = ""
    rates: tuple[float, float] | None = None  # quire's and the peer's, where their work is not quite the same

    def ratio(self) -> str:
        if self.ours is None:
            return ""
        return f"{self.rates[0] / self.rates[1] if self.rates else self.peer / self.ours:.2f}"


class Failed(Exception):
    """A command that did not do its work."""


def seconds_text(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1e6:,.1f} us"
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.2f} s"


def run(command: list[str], timeout: float) -> str:
    """The command's stdout."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"took more than {timeout:.0f} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"exit code {done.returncode}: {lines[-1]}")
    return done.stdout


def work_name(peer: Json) -> str:
    if peer["work"] == "latency":
        return "{batch} x {input:,} in, {output} out".format(**peer)
    if peer["work"] == "throughput":
        return "{requests} requests at once, {input:,} in, {output} out, each +-{spread:.0%}".format(**peer)
    return "start to the first token"


class Engine:
    """Rows of a whole engine; equal commands run once."""

    def __init__(self, args: argparse.Namespace, folder: pathlib.Path) -> None:
        self.common = ["--model", args.model, "--load-format", "dummy", "--device", "cuda", "--log-level", "warning"]
        self.quire = args.quire
        self.out = folder / "engine.json"
        self.done: dict[tuple[str, ...], tuple[Json, str]] = {}

    def result(self, what: str, flags: list[str]) -> tuple[Json, str]:
        key = (what, *flags)
        if key not in self.done:
            command = [self.quire, "bench", what, *self.common, *flags, "--output-json", str(self.out)]
            text = run(command, timeout=60)
            limit = LIMIT.search(text)
            share = f"{limit[2]} %" if limit else "not measured"
            self.done[key] = (json.loads(self.out.read_text(encoding="utf-8")), share)
        return self.done[key]

    def latency(self, peer: Json) -> Row:
        row = Row(work_name(peer), peer["source"], peer["seconds"])
        rounds = max(3, min(6, round(4 / peer["seconds"])))
        flags = ["--batch-size", peer["batch"], "--input-len", peer["input"], "--output-len", peer["output"]]
        flags += ["--num-iters-warmup", 1 if peer["seconds"] > 1 else 2, "--num-iters", rounds]
        json_result, row.share = self.result("latency", [str(flag) for flag in flags])
        row.ours = json_result["avg_latency"] if peer["measure"] == "mean" else json_result["percentiles"]["50"]
        row.note = f"{peer['measure']} of {rounds}"
        return row

    def throughput(self, peer: Json) -> Row:
        row = Row(work_name(peer), peer["source"], peer["seconds"])
        flags = ["--dataset-name", "random", "--num-prompts", peer["requests"], "--random-input-len", peer["input"]]
        flags += ["--random-output-len", peer["output"], "--random-range-ratio", peer["spread"]]
        json_result, row.share = self.result("throughput", [str(flag) for flag in flags])
        row.ours = json_result["elapsed_time"]
        row.rates = (json_result["tokens_per_second"], peer["tokens_per_second"])
        row.note = "{:,.0f} tokens/s in all, the peer's {:,.0f}; the ratio is theirs".format(*row.rates)
        return row

    def start(self, peer: Json) -> Row:
        """From the start of the process to the first token."""
        row = Row(work_name(peer), peer["source"], peer["seconds"], note="1 run")
        command = [self.quire, "bench", "latency", *self.common, "--batch-size", "1", "--output-len", "1"]
        command += ["--num-iters-warmup", "0", "--num-iters", "1"]
        begin = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("Avg latency"):
                    row.ours = time.monotonic() - begin
        if row.ours is None:
            raise Failed("no token came")
        return row


def model_rows(args: argparse.Namespace, peers: Json, folder: pathlib.Path) -> list[Row]:
    engine = Engine(args, folder)
    rows = []
    for peer in peers["model"]:
        try:
            row = getattr(engine, peer["work"])(peer)
        except Failed as error:
            row = Row(work_name(peer), peer["source"], peer["seconds"], note=str(error))
        print(f"{row.name}: {seconds_text(row.ours) if row.ours else row.note}", file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def limits_text(limits: Json) -> str:
    parts = [f"{limits['card']}: read {limits['read_memory_gb_s']['best']:,.0f} GB/s"]
    for product in limits["products_bf16"]:
        shape = "{m:,} x {n:,} x {k:,}".format(**product)
        parts.append(f"bf16 product {shape} {product['gflop_s']['best'] / 1000:,.0f} TFLOP/s")
    return ", ".join(parts)


def attention_rows(args: argparse.Namespace, peers: Json, folder: pathlib.Path) -> tuple[list[Row], str]:
    out = folder / "attention.json"
    measured: dict[str, Json] = {}
    failure, limits = "", ""
    try:
        run([args.quire, "bench", "attention", "--device", "cuda", "--preset", "h200", "--output-json", str(out)], 120)
        result = json.loads(out.read_text(encoding="utf-8"))
        measured = {row["name"]: row for row in result["rows"]}
        limits = limits_text(result["limits"])
    except Failed as error:
        failure = str(error)
    rows = []
    for peer in peers["attention"]:
        row = Row(f"attention {peer['row']}", peers["attention_source"], peer["us"] * 1e-6, note=failure)
        if own := measured.get(peer["row"]):
            row.ours = own["median_seconds"]
            row.share = f"{own['share'] * 100:.1f} %"
            reads = own["bound"] == "read"
            row.note = f"{own['kv_gb_s'] / 1000:.2f} TB/s" if reads else f"{own['gflop_s'] / 1000:.0f} TFLOP/s"
        elif not failure:
            row.note = "quire has no such row"
        rows.append(row)
    return rows, limits


def markdown(rows: list[Row], sources: dict[str, str], limits: str) -> str:
    lines = [f"quire beside peers, {datetime.datetime.now():%Y-%m-%d %H:%M}", ""]
    if limits:
        lines += [f"Measured in this run: {limits}.", ""]
    lines += ["| work | peer | peer's time | quire's time | ratio | share of limit | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        ours = seconds_text(row.ours) if row.ours else "failed"
        cells = [row.name, row.source, seconds_text(row.peer), ours, row.ratio(), row.share, row.note]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Peers (not measured in this run):"]
    lines += [f"- {name}: {source}" for name, source in sources.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="quire on a GPU beside the figures of peers.json")
    parser.add_argument("quire", help="the program, built for CUDA")
    parser.add_argument("--model", default="meta-llama/Llama-3.1-8B", help="hub id or folder with its config.json")
    parser.add_argument("--only", default="model,attention", help="which rows")
    parser.add_argument("--output", default="", help="file for the table, beside stdout")
    args = parser.parse_args()
    parts = args.only.split(",")
    if unknown := set(parts) - {"model", "attention"}:
        parser.error(f"--only {unknown.pop()}: there are model and attention")
    peers = json.loads((pathlib.Path(__file__).parent / "peers.json").read_text(encoding="utf-8"))
    rows: list[Row] = []
    limits = ""
    with tempfile.TemporaryDirectory() as folder:
        if "model" in parts:
            rows += model_rows(args, peers, pathlib.Path(folder))
        if "attention" in parts:
            more, limits = attention_rows(args, peers, pathlib.Path(folder))
            rows += more
    text = markdown(rows, peers["sources"], limits)
    print(text, end="")
    if args.output:
        pathlib.Path(args.output).write_text(text, encoding="utf-8")
    return 0 if all(row.ours for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
