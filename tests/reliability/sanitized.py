#!/usr/bin/env python3
"""64 clients against a server built with a sanitizer: mixed requests, hang-ups, metrics; then SIGTERM under load. No report may appear.

Usage: sanitized.py --build build/tsan --tiny-model FILE.gguf [--seconds 300] [--clients 64]
"""

import argparse
import asyncio
import json
import re
import signal
import sys
import time

from harness import Connection, Context, Report, call, complete, greedy, random_ids, stream


async def client(server, rng, until, counts):
    while time.monotonic() < until:
        kind = rng.randrange(8)
        prompt, tokens = random_ids(rng, rng.randrange(1, 120)), rng.randrange(1, 40)
        try:
            if kind < 2:
                good = (await stream(server, greedy(prompt, tokens)))["done"] == 1
            elif kind == 2:
                good = isinstance(await complete(server, {"prompt": prompt, "max_tokens": tokens, "n": 2, "logprobs": 3, "seed": 1}), str)
            elif kind == 3:
                body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, "stop": ["e"]}
                good = (await stream(server, body, path="/v1/chat/completions"))["done"] == 1
            elif kind == 4:
                connection = await Connection.open(server)
                connection.send("/v1/completions", greedy(prompt, 500, stream=True))
                await asyncio.sleep(rng.random() * 0.2)
                connection.close(reset=rng.random() < 0.5)
                good = True
            elif kind == 5:
                good = (await call(server, rng.choice(["/metrics", "/health", "/v1/models", "/load"])))[0] == 200
            elif kind == 6:
                good = (await call(server, "/tokenize", {"prompt": "some words"}))[0] == 200
            else:
                good = (await complete(server, {"prompt": prompt, "max_tokens": -1}))[0] == 400
        except (OSError, asyncio.IncompleteReadError, json.JSONDecodeError):
            good = False
        counts[good] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--tiny-model", required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--port", type=int, default=21400)
    args = parser.parse_args()
    args.text_model, args.quick, args.seed = None, False, 1
    context = Context(args, Report())

    async def load():
        env = {"TSAN_OPTIONS": "halt_on_error=0 exitcode=66 history_size=4"}
        flags = ("--max-model-len", 1024, "--num-gpu-blocks-override", 600)  # few enough for preemptions
        with context.server(*flags, env=env, wait=False) as server:
            server.wait_ready(300)
            counts = {True: 0, False: 0}
            until = time.monotonic() + args.seconds
            await asyncio.gather(*(client(server, context.random, until, counts) for _ in range(args.clients)))
            last = [asyncio.create_task(stream(server, greedy(f"last {i}", 900))) for i in range(16)]
            await asyncio.sleep(0.5)
            server.signal(signal.SIGTERM)
            await asyncio.gather(*last, return_exceptions=True)
            code, _ = await asyncio.to_thread(server.ended_within, 30)
            log = server.log_text()
            reports = len(re.findall(r"(WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:)", log))
            print(f"{args.clients} clients, {args.seconds:g} s: {counts[True]} good answers, {counts[False]} others, exit code {code}, {reports} reports")
            if reports:
                print(log[:20000])
            return 1 if reports or counts[False] or code != 0 else 0

    return asyncio.run(load())


if __name__ == "__main__":
    sys.exit(main())
