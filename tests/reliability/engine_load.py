"""Load on the engine: too little cache, other company in the batch, seeds, cached prefixes, texts cut anywhere."""

import asyncio
import json
import time

from harness import Connection, Quiet, Sampler, complete, gather_limited, greedy, percentile, random_ids, stream


async def alone_and_together(server, bodies, rounds=1, limit=1000, rng=None):
    """Texts of the requests one by one, and how many differ when they are sent together."""
    alone = [await complete(server, body) for body in bodies]
    differ = 0
    for _ in range(rounds):
        order = list(range(len(bodies)))
        if rng:
            rng.shuffle(order)
        together = await gather_limited([complete(server, bodies[i]) for i in order], limit)
        differ += sum(together[at] != alone[i] for at, i in enumerate(order))
    return alone, differ


async def overcommit_2x(context):
    """A cache of half the need: all finish with the same text, none is preempted often."""
    rng = context.random
    bodies = [greedy(random_ids(rng, 64), 192) for _ in range(32)]  # 16 blocks each
    with context.server("--max-model-len", 512, "--no-enable-prefix-caching") as roomy:
        alone = [await complete(roomy, body) for body in bodies]
    with context.server("--max-model-len", 512, "--num-gpu-blocks-override", 256) as server:
        quiet = Quiet(context, server, 32)
        got = await asyncio.gather(*(complete(server, body) for body in bodies))
        context.report.equal("outputs equal to unloaded ones", sum(a == b for a, b in zip(alone, got)), 32)
        few, all_ = server.bucket("vllm:request_num_preemptions", "5.0")
        context.report.equal("requests preempted more than 5 times", all_ - few, 0)
        preemptions = int(server.metrics()["vllm:num_preemptions_total"])
        context.report.check("preemptions (there must be some)", preemptions, "> 0", preemptions > 0)
        await quiet.check()


async def overcommit_10x(context):
    """A tenth of the need, mixed lengths: all finish, tokens keep coming."""
    rng = context.random
    bodies = [greedy(random_ids(rng, rng.randrange(1, 251)), rng.randrange(50, 250)) for _ in range(200)]
    need = sum((len(b["prompt"]) + b["max_tokens"] + 15) // 16 for b in bodies)
    with context.server("--max-model-len", 512) as roomy:
        alone = await gather_limited([complete(roomy, body) for body in bodies], 8)
    with context.server("--max-model-len", 512, "--num-gpu-blocks-override", need // 10) as server:
        await asyncio.gather(*(complete(server, body) for body in bodies))
        quiet = Quiet(context, server, 200)
        async with Sampler(lambda: server.metrics()["vllm:generation_tokens_total"], 0.05) as tokens:
            results = await asyncio.gather(*(stream(server, body) for body in bodies))
        context.report.equal("finished or 400", sum(r["finish"] == ["length"] or r["status"] == 400 for r in results), 200)
        context.report.equal("texts equal to those with room", sum(r["text"] == a for r, a in zip(results, alone)), 200)
        stall, since, last = 0.0, tokens.values[0][0], -1
        for at, value in tokens.values:
            if value != last:
                last, since = value, at
            stall = max(stall, at - since)
        context.report.at_most("longest time without a token", stall, 5, " s")
        context.report.note("preemptions", int(server.metrics()["vllm:num_preemptions_total"]))
        await quiet.check()


async def batch_invariance(context):
    """Greedy texts alone and in random batches, float32, on the tiny and on the real model."""
    rng = context.random
    with context.server("--dtype", "float32", "--max-model-len", 1024) as server:
        bodies = [greedy(random_ids(rng, rng.randrange(1, 400)), rng.randrange(1, 100)) for _ in range(64)]
        _, differ = await alone_and_together(server, bodies, context.size(5, 2), rng=rng)
        context.report.equal("tiny model: texts that differ in batches", differ, 0)
    if context.text_model:
        with context.server("--dtype", "float32", "--max-model-len", 1024, model=context.text_model) as server:
            words = "the river was cold and a small light moved over its banks while nobody spoke of what had come".split()
            count = context.size(64, 12)
            bodies = [greedy(" ".join(rng.choices(words, k=rng.randrange(1, 40))), 16) for _ in range(count)]
            _, differ = await alone_and_together(server, bodies, rng=rng)
            context.report.equal(f"SmolLM2, {count} prompts: texts that differ in a batch", differ, 0)


async def seeds(context):
    """Four choices with a seed, alone and under load."""
    rng = context.random
    with context.server("--max-model-len", 1024) as server:
        async def four(seed):
            status, data = await asyncio.to_thread(
                server.post, "/v1/completions", {"prompt": f"seed {seed}", "max_tokens": 64, "temperature": 1, "seed": seed, "n": 4, "ignore_eos": True})
            assert status == 200, data
            return [choice["text"] for choice in sorted(json.loads(data)["choices"], key=lambda c: c["index"])]

        count = context.size(32, 8)
        alone = [await four(seed) for seed in range(count)]
        noise = [asyncio.create_task(stream(server, {"prompt": random_ids(rng, 50), "max_tokens": 300, "temperature": 1})) for _ in range(48)]
        loaded = await asyncio.gather(*(four(seed) for seed in range(count)))
        await asyncio.gather(*noise)
        context.report.equal("answers of 4 choices that differ under load", sum(a != b for a, b in zip(alone, loaded)), 0)
        context.report.equal("answers whose choices are not four texts", sum(len(set(a)) != 4 for a in alone), 0)


async def prefix_cache(context):
    """Every prompt length from 1 to 64, twice, blocks of 16."""
    rng = context.random
    with context.server("--block-size", 16, "--max-model-len", 512) as server:
        wrong_text = wrong_hits = 0
        for length in range(1, 65):
            body = greedy(random_ids(rng, length), 8)
            first = await complete(server, body)
            before = server.metrics()["vllm:prefix_cache_hits_total"]
            second = await complete(server, body)
            hits = server.metrics()["vllm:prefix_cache_hits_total"] - before
            wrong_text += first != second or not isinstance(first, str)
            wrong_hits += hits != (length - 1) // 16 * 16
        context.report.equal("lengths whose second text differs", wrong_text, 0)
        context.report.equal("lengths with a wrong count of hits", wrong_hits, 0)


async def event_streams(context):
    """Random texts with characters cut between tokens: joined deltas equal the whole text; every event is valid."""
    count = context.size(1000, 200)
    with context.server("--max-model-len", 512) as server:
        quiet = Quiet(context, server, 2 * count)
        wrong = {"text": 0, "finish": 0, "done": 0}

        async def one(seed):
            rng_stop = ["e", "é", "。"][seed % 3]
            body = {"prompt": f"say {seed}", "max_tokens": 1 + seed % 97, "temperature": 1.5, "seed": seed, "ignore_eos": seed % 2 == 0}
            if seed % 5 == 0:
                body["stop"] = [rng_stop, "zq"]
            whole = await complete(server, body)
            got = await stream(server, body)  # strict about UTF-8 and JSON
            wrong["text"] += got["text"] != whole
            wrong["finish"] += len(got["finish"]) != 1
            wrong["done"] += got["done"] != 1

        await gather_limited([one(seed) for seed in range(count)], 32)
        context.report.equal(f"of {count} streams: text is not that of the whole answer", wrong["text"], 0)
        context.report.equal("not exactly one finish_reason", wrong["finish"], 0)
        context.report.equal("not exactly one [DONE]", wrong["done"], 0)
        await quiet.check()


async def soak(context):
    """Twenty requests a second with mixed faults for ten minutes."""
    seconds, rate, rng = context.size(600, 30), 20, context.random
    with context.server("--max-model-len", 1024, "--max-num-queued-reqs", 256) as server:
        total = seconds * rate
        quiet = Quiet(context, server, total)
        tasks, latencies, odd = [], [], {}

        async def one(i, at):
            kind = rng.choices(["whole", "stream", "chat", "close", "bad", "n"], [40, 25, 15, 10, 6, 4])[0]
            prompt, tokens = random_ids(rng, rng.randrange(1, 200)), rng.randrange(1, 64)
            start = time.monotonic()
            if kind == "whole":
                good = isinstance(await complete(server, greedy(prompt, 32)), str)
                latencies.append((at, time.monotonic() - start))
            elif kind == "stream":
                good = (await stream(server, greedy(prompt, tokens)))["done"] == 1
            elif kind == "chat":
                body = {"messages": [{"role": "user", "content": "hello " * (i % 30)}], "max_tokens": tokens, "temperature": 0.8}
                good = (await stream(server, body, path="/v1/chat/completions"))["done"] == 1
            elif kind == "close":
                connection = await Connection.open(server)
                connection.send("/v1/completions", greedy(prompt, 500, stream=True))
                await asyncio.sleep(rng.random() * 0.1)
                connection.close(reset=i % 2 == 1)
                good = True
            elif kind == "bad":
                good = (await complete(server, rng.choice([{"prompt": 1.5}, greedy(prompt, -1), greedy([999999], 1), {}])))[0] == 400
            else:
                status, _ = await asyncio.to_thread(server.post, "/v1/completions", {"prompt": prompt, "max_tokens": 8, "n": 4, "seed": i})
                good = status == 200
            if not good:
                odd[kind] = odd.get(kind, 0) + 1

        begin = time.monotonic()
        for i in range(total):
            await asyncio.sleep(max(0.0, begin + i / rate - time.monotonic()))
            tasks.append(asyncio.create_task(one(i, i / rate)))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        raised = [repr(r) for r in results if isinstance(r, BaseException)]
        context.report.check(f"{total} requests: unexpected answers", f"{odd or 0}, {len(raised)} exceptions {raised[:1] or ''}", 0, not odd and not raised)
        half = seconds / 2
        first = percentile([t for at, t in latencies if at < half], 0.99)
        last = percentile([t for at, t in latencies if at >= half], 0.99)
        context.report.note("p99 of whole answers, first and last half", f"{first * 1e3:.1f} and {last * 1e3:.1f} ms")
        context.report.at_most("p99 last half / first half", last / first, 1.2)
        await quiet.check()


SCENARIOS = [overcommit_2x, overcommit_10x, batch_invariance, seeds, prefix_cache, event_streams, soak]
