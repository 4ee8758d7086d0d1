#!/usr/bin/env python3
"""Many concurrent streaming chat completions against `quire serve` for a while; then nothing may be left of them.

usage: streams.py [--url http://127.0.0.1:8000 --pid PID | --serve QUIRE MODEL [FLAG...]] [--streams N] [--seconds S] [--idle S]

Each of the N clients asks again as soon as its answer has ended, until S seconds are over. Every stream has to end with [DONE], a finish
reason and a usage that fits what came: completion_tokens = max_tokens, one event for each token at most. Then /metrics
has to show nothing running or waiting, all KV blocks free, and the server's CPU time must not move by more than a tick over the idle seconds. Exit status 1
and one line for each failure. Standard library only.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

QUIET = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
WORDS = "a gathering of pages is bound into one book that nobody has read from its first line to the last one".split()


@dataclass
class Totals:
    streams: int = 0
    tokens: int = 0
    first_token_seconds: list[float] = field(default_factory=list)
    failures: collections.Counter[str] = field(default_factory=collections.Counter)


async def open_request(host: str, port: int, method: str, path: str, body: object = None) -> tuple[
        int, asyncio.StreamReader, asyncio.StreamWriter]:
    """The status; the reader is at the body. The connection is closed after the answer."""
    reader, writer = await asyncio.open_connection(host, port)
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    return int(lines[0].split()[1]), reader, writer


async def whole(host: str, port: int, path: str) -> tuple[int, str]:
    status, reader, writer = await open_request(host, port, "GET", path)
    text = (await reader.read()).decode("utf-8", "replace")
    writer.close()
    return status, text


async def one_stream(host: str, port: int, body: dict[str, object], wanted: int, totals: Totals) -> str | None:
    """What is wrong with the answer of `wanted` tokens; None: nothing."""
    start = time.monotonic()
    status, reader, writer = await open_request(host, port, "POST", "/v1/chat/completions", body)
    try:
        if status != 200:
            return f"status {status}: {(await reader.read(500)).decode('utf-8', 'replace')!r}"
        texts, finish, usage, done = 0, None, None, False
        # Events are lines; sizes of chunks are lines of their own.
        async for raw in reader:
            line = raw.decode("utf-8").strip()
            if not line.startswith("data: "):
                continue
            if done:
                return "data after [DONE]"
            if line == "data: [DONE]":
                done = True
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                return f"error {event['error']}"
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                finish = choice["finish_reason"] or finish
                if choice["delta"].get("content"):
                    if texts == 0:
                        totals.first_token_seconds.append(time.monotonic() - start)
                    texts += 1
    finally:
        writer.close()
    if not done:
        return "no [DONE]"
    if finish != "length":
        return f"finish_reason {finish}, expected length"
    if usage is None:
        return "no usage"
    if usage["completion_tokens"] != wanted or usage["total_tokens"] != usage["prompt_tokens"] + wanted:
        return f"usage {usage}, {wanted} tokens were asked for"
    if texts > wanted or (texts == 0 and wanted >= 16):  # single tokens may have no text
        return f"{texts} pieces of text for {wanted} tokens"
    totals.tokens += usage["completion_tokens"]
    return None


async def client(number: int, host: str, port: int, model: str, end: float, totals: Totals) -> None:
    rng = random.Random(number)
    first = True  # even a client that came late asks once
    while first or time.monotonic() < end:
        first = False
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 100)))
        wanted = rng.randint(1, 128)
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": wanted, "stream": True,
                "stream_options": {"include_usage": True}, "ignore_eos": True, "seed": number,
                "temperature": rng.choice([0.0, 0.7, 1.0]), "top_p": rng.choice([1.0, 0.9]),
                "logprobs": rng.random() < 0.1}
        try:
            failure = await one_stream(host, port, body, wanted, totals)
        except (OSError, asyncio.IncompleteReadError, ValueError, KeyError) as error:
            failure = f"{type(error).__name__}: {error}"
        totals.streams += 1
        if failure:
            totals.failures[failure] += 1
            await asyncio.sleep(0.1)


async def metric_values(host: str, port: int) -> dict[str, float]:
    _, text = await whole(host, port, "/metrics")
    values: dict[str, float] = {}
    for line in text.splitlines():
        name = line.split("{")[0].split(" ")[0]
        if not line.startswith("#") and name in QUIET:
            values[name] = values.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
    return values


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(host: str, port: int, pid: int | None, streams: int, seconds: float, idle: float) -> Totals:
    totals = Totals()
    _, models = await whole(host, port, "/v1/models")
    model = json.loads(models[models.index("{") : models.rindex("}") + 1])["data"][0]["id"]
    start = time.monotonic()
    await asyncio.gather(*(client(i, host, port, model, start + seconds, totals) for i in range(streams)))
    took = time.monotonic() - start
    times = sorted(totals.first_token_seconds) or [0.0]
    print(f"{streams} clients, {took:.1f} s: {totals.streams} streams, {totals.tokens} tokens, {totals.tokens / took:.0f} tokens/s, "
          f"first text after {times[len(times) // 2]:.3f} s (median), {times[-1]:.3f} s (longest)")
    await asyncio.sleep(0.5)
    values = await metric_values(host, port)
    for name in QUIET:
        if values.get(name) != 0:
            totals.failures[f"{name} is {values.get(name)} when all is done"] += 1
    print("when all is done: " + ", ".join(f"{name} {value:g}" for name, value in values.items()))
    if pid is not None:
        before = cpu_seconds(pid)
        await asyncio.sleep(idle)
        used = cpu_seconds(pid) - before
        print(f"idle: {used:.2f} s of CPU time in {idle:g} s")
        if used > 1.5 / os.sysconf("SC_CLK_TCK"):  # one tick may be the end of what came before
            totals.failures[f"{used:.2f} s of CPU time in {idle:g} idle seconds"] += 1
    return totals


async def wait_until_ready(host: str, port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}")
        try:
            if (await whole(host, port, "/health"))[0] == 200:
                return
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(0.1)
    sys.exit("the server is not ready after 120 s")


async def served(command: list[str], streams: int, seconds: float, idle: float) -> Totals:
    quire, model, *flags = command
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([quire, "serve", model, "--host", "127.0.0.1", "--port", str(port), *flags])
    try:
        await wait_until_ready("127.0.0.1", port, process)
        totals = await measure("127.0.0.1", port, process.pid, streams, seconds, idle)
        process.terminate()
        if process.wait(timeout=30) != 0:
            totals.failures[f"the server ended with {process.returncode}"] += 1
        return totals
    finally:
        process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--pid", type=int, help="of the server at --url, to see its CPU time")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--idle", type=float, default=5)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, metavar="QUIRE MODEL [FLAG...]",
                        help="start a server and stop it; must be the last option")
    options = parser.parse_args()
    if options.serve is not None:
        if len(options.serve) < 2:
            parser.error("--serve wants the program and a model")
        work = served(options.serve, options.streams, options.seconds, options.idle)
    else:
        url = urlsplit(options.url)
        work = measure(url.hostname or "127.0.0.1", url.port or 80, options.pid, options.streams, options.seconds, options.idle)
    totals = asyncio.run(work)
    for failure, times in totals.failures.most_common(20):
        print(f"FAILED {times} times: {failure}")
    print("failed" if totals.failures else "all streams are right, nothing is left")
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
