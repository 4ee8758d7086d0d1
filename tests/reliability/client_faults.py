"""Clients that misbehave: they hang up, read or write slowly, send too much or nonsense."""

import asyncio
import contextlib
import json
import resource
import select
import socket
import time

from harness import MIB, Connection, Quiet, call, complete, gather_limited, greedy, percentile, random_ids, stream


async def disconnects(context):
    """Streams closed after 0 to 20 chunks, with FIN and RST; a closed stream is computed for two steps at most."""
    count, rng = context.size(1000, 200), context.random
    with context.server() as server:
        quiet = Quiet(context, server, count)

        async def one(i):
            connection = await Connection.open(server)
            connection.send("/v1/completions", greedy(f"client {i}", 2000, stream=True))
            after = rng.randrange(21)
            if after:
                await connection.head()
                async for _ in connection.events():
                    after -= 1
                    if after <= 0:
                        break
            connection.close(reset=i % 2 == 1)

        await gather_limited([one(i) for i in range(count)], 64)
        await quiet.check()

    with context.server(faulty=("--step-interval-us", "20000")) as server:
        most = 0
        for i in range(context.size(40, 10)):
            before = server.metrics()["vllm:generation_tokens_total"]
            connection = await Connection.open(server)
            connection.send("/v1/completions", greedy("x", 2000, stream=True))
            await connection.head()
            seen, wanted = 0, rng.randrange(1, 8)
            async for _ in connection.events():
                seen += 1
                if seen == wanted:
                    break
            connection.close(reset=i % 2 == 1)
            await asyncio.sleep(0.15)
            most = max(most, server.metrics()["vllm:generation_tokens_total"] - before - seen)
        context.report.at_most("most tokens computed after the close", most, 2)


async def early_disconnects(context):
    """Hanging up while the request is queued and while its prompt is computed."""
    count, rng = context.size(500, 100), context.random
    with context.server("--max-num-seqs", 1, "--max-model-len", 4096, "--max-num-queued-reqs", 2000) as server:
        quiet = Quiet(context, server, count)
        running = asyncio.create_task(stream(server, greedy("long", 4000)))
        await asyncio.sleep(0.1)

        async def queued(i):
            connection = await Connection.open(server)
            connection.send("/v1/completions", greedy(f"waits {i}", 4000, stream=i % 3 == 0))
            await asyncio.sleep(rng.uniform(0.01, 0.2))
            connection.close(reset=i % 2 == 1)

        await gather_limited([queued(i) for i in range(count)], 100)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await quiet.check()
    with context.server("--max-num-batched-tokens", 64, "--max-model-len", 4096, "--no-enable-prefix-caching") as server:
        quiet = Quiet(context, server, count)

        async def in_prefill(i):
            connection = await Connection.open(server)
            connection.send("/v1/completions", greedy(random_ids(rng, 3000), 16, stream=i % 3 == 0))
            await asyncio.sleep(rng.uniform(0.001, 0.05))
            connection.close(reset=i % 2 == 1)

        await gather_limited([in_prefill(i) for i in range(count)], 16)
        await quiet.check()


async def slow_readers(context):
    """Clients that read a byte a second beside eight that read; their memory is bounded, and they are dropped."""
    slow_count = context.size(200, 50)
    body = greedy("slow", 1500, stream=True, logprobs=5)  # about 1.3 MB of events
    with context.server("--max-write-buffer", MIB, "--max-model-len", 2048, "--write-timeout", 20) as server:
        async def normal():
            got = await stream(server, greedy("normal", 300))
            assert got["finish"] == ["length"], got
            return [b - a for a, b in zip(got["times"], got["times"][1:])]

        async def background(rate):
            connection = await Connection.open(server, receive_buffer=4096 if rate else None)
            connection.send("/v1/completions", body)
            try:
                while await connection.reader.read(rate or 1 << 16):
                    if rate:
                        await asyncio.sleep(1)
            except ConnectionError:
                pass
            finally:
                connection.close(reset=True)

        async def gaps(rate):
            others = [asyncio.create_task(background(rate)) for _ in range(slow_count)]
            await asyncio.sleep(1)
            results = await asyncio.gather(*(normal() for _ in range(8)))
            return others, [gap for one in results for gap in one]

        quiet = Quiet(context, server, slow_count)
        others, baseline = await gaps(None)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.5)
        rss = server.rss()
        others, gaps_beside_slow = await gaps(1)
        ratio = percentile(gaps_beside_slow, 0.99) / percentile(baseline, 0.99)
        context.report.at_most("p99 of normal clients' token gaps, beside slow / beside fast readers", ratio, 1.5)
        deadline, peak = time.monotonic() + 60, 0
        while time.monotonic() < deadline:
            peak = max(peak, server.rss())
            metrics = server.metrics()
            if not metrics["vllm:num_requests_running"] and not metrics["vllm:num_requests_waiting"]:
                break
            await asyncio.sleep(0.2)
        context.report.at_most("memory per slow reader", (peak - rss) / MIB / slow_count, 1.25, " MiB")
        context.report.equal("blocks in use while they still hang on", server.metrics()["vllm:kv_cache_usage_perc"], 0)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await quiet.check(memory=False)


async def slow_requests(context):
    """Connections that send a byte every five seconds, within the head and within the body."""
    count = context.size(1000, 100)
    body_timeout = context.size(30, 12)
    with context.server("--body-timeout", body_timeout) as server:
        quiet = Quiet(context, server, count)
        head_times, body_times, answers = [], [], []

        async def one(i):
            connection = await Connection.open(server)
            in_body = i % 2 == 1
            text = request_start(in_body)
            start = time.monotonic()
            connection.writer.write(text)
            reader = asyncio.create_task(connection.reader.read(4096))
            while not reader.done():
                await asyncio.wait([reader], timeout=5)
                if not reader.done():
                    with contextlib.suppress(ConnectionError):
                        connection.writer.write(b"x")
            with contextlib.suppress(ConnectionError):
                answers.append(reader.result()[9:12])
            (body_times if in_body else head_times).append(time.monotonic() - start)
            connection.close()

        async def normal():
            times = []
            for _ in range(10):
                start = time.monotonic()
                assert isinstance(await complete(server, greedy("n", 20)), str)
                times.append(time.monotonic() - start)
                await asyncio.sleep(0.2)
            return times

        alone = [t for one in await asyncio.gather(*(normal() for _ in range(8))) for t in one]
        slow = asyncio.gather(*(one(i) for i in range(count)))
        await asyncio.sleep(1)
        beside = [t for one in await asyncio.gather(*(normal() for _ in range(8))) for t in one]
        await slow
        context.report.equal("connections answered 408", answers.count(b"408"), count)
        context.report.at_most("longest with a slow head", max(head_times), 12, " s")
        context.report.at_most("longest with a slow body", max(body_times), body_timeout + 5, " s")
        context.report.note("p50 of normal requests alone / beside", f"{percentile(alone, .5) * 1e3:.1f} / {percentile(beside, .5) * 1e3:.1f} ms")
        await quiet.check()


def request_start(in_body):
    if in_body:
        return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{"
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


async def idle_connections(context):
    """Thousands of keep-alive connections that do nothing, and more than the limit."""
    count = context.size(5000, 1000)
    with context.server() as server:
        quiet = Quiet(context, server, count)
        rss = server.rss()
        connections = []
        for begin in range(0, count, 250):
            batch = await asyncio.gather(*(Connection.open(server) for _ in range(min(250, count - begin))))
            for connection in batch:
                connection.send("/health")
            for connection in batch:
                assert (await connection.answer())[0] == 200
            connections += batch
        context.report.at_most("RSS per idle connection", (server.rss() - rss) / count / 1024, 16, " KiB")
        times = []
        for _ in range(20):
            start = time.monotonic()
            assert (await call(server, "/health"))[0] == 200
            times.append(time.monotonic() - start)
        context.report.at_most("slowest new request", max(times) * 1e3, 100, " ms")
        for connection in connections:
            connection.close()
        await quiet.check(memory=False)
    with context.server("--max-connections", 100) as server:
        connections = [await Connection.open(server) for _ in range(100)]
        refused = 0
        for _ in range(50):
            status = 0
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                status = (await call(server, "/health"))[0]
            refused += status in (0, 503)
        context.report.equal("of 50 beyond the limit: 503 or refused", refused, 50)
        for connection in connections:
            connection.close()
        await asyncio.sleep(0.2)
        context.report.equal("status after they have gone", server.get("/health")[0], 200)


async def descriptor_exhaustion(context):
    """More clients than descriptors: no spinning, and back at once."""
    with context.server(limits=[(resource.RLIMIT_NOFILE, 128)]) as server:
        connections = await asyncio.gather(*(Connection.open(server) for _ in range(500)))
        await asyncio.sleep(0.5)
        before, start = server.cpu_seconds(), time.monotonic()
        await asyncio.sleep(context.size(5, 2))
        share = (server.cpu_seconds() - before) / (time.monotonic() - start) * 100
        context.report.at_most("CPU while no descriptor is left", share, 10, " %")
        for connection in connections:
            connection.close()
        start = time.monotonic()
        status = 0
        while status != 200 and time.monotonic() < start + 10:
            with contextlib.suppress(OSError):
                status = (await asyncio.to_thread(server.get, "/health", 1))[0]
        context.report.at_most("answers again after", time.monotonic() - start, 1, " s")


def send_until_answered(server, start, piece):
    """(status or 0, bytes sent until the answer was there)"""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(start)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 30 and not select.select([client], [], [], 0.002)[0]:
                client.sendall(piece)
                sent += len(piece)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while b"\r\n\r\n" not in answer and (data := client.recv(4096)):
                answer += data
        return int(answer[9:12] or 0), sent


async def huge_bodies(context):
    """A gigabyte announced by Content-Length and by a chunk; many small chunks past the limit."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    with context.server() as server:
        quiet = Quiet(context, server, 10)
        for name, start in (("Content-Length", head + b"Content-Length: 1073741824\r\n\r\n"), ("one chunk", chunked + b"40000000\r\n")):
            rss = server.rss()
            status, sent = await asyncio.to_thread(send_until_answered, server, start, b"x" * 1024)
            context.report.equal(f"1 GB by {name}: status", status, 413)
            context.report.at_most(f"1 GB by {name}: sent before the answer", sent / 1024, 64, " KiB")
            context.report.at_most(f"1 GB by {name}: RSS growth", (server.rss() - rss) / MIB, 1, " MiB")
        rss = server.rss()
        status, sent = await asyncio.to_thread(send_until_answered, server, chunked, b"10000\r\n" + b"x" * 65536 + b"\r\n")
        context.report.equal("1 GB in chunks of 64 KiB: status", status, 413)
        context.report.at_most("1 GB in chunks of 64 KiB: sent before the answer (limit 32 MiB and buffers)", sent / MIB, 40, " MiB")
        await asyncio.sleep(0.3)
        context.report.at_most("1 GB in chunks of 64 KiB: RSS growth afterwards", (server.rss() - rss) / MIB, 10, " MiB")
        await quiet.check(memory=False)


async def flood(context):
    """Far more requests at once than the queue holds."""
    count = 2000
    with context.server("--max-num-queued-reqs", 256, "--max-num-seqs", 64) as server:
        await asyncio.gather(*(call(server, "/v1/completions", greedy(f"first {i}", 32)) for i in range(count)))
        quiet = Quiet(context, server, count)
        results = await asyncio.gather(*(call(server, "/v1/completions", greedy(f"flood {i}", 32)) for i in range(count)))
        accepted = [r for r in results if r[0] == 200]
        refused = [r for r in results if r[0] == 503]
        context.report.equal("answers that are 200 or 503", len(accepted) + len(refused), count)
        context.report.equal("503 with Retry-After", sum("retry-after" in r[1] for r in refused), len(refused))
        whole = sum(json.loads(r[2])["usage"]["completion_tokens"] == 32 for r in accepted)
        context.report.check("accepted and finished", whole, len(accepted), whole == len(accepted) and whole >= 256)
        await quiet.check()


def mutate(rng, seed):
    data = bytearray(seed)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        kind = rng.randrange(6)
        at = rng.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif kind == 2:
            del data[at:at + rng.randrange(1, 20)]
        elif kind == 3:
            data[at:at] = rng.choice([b"\r\n", b"\n", b"\r", b"\0", b": ", b"\r\n\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
                                      b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"HTTP/1.1", b"[[[[[[", b'"\\ud800"', b"1e999", b"-1"])
        elif kind == 4 and len(data) > 10:
            begin = rng.randrange(len(data) - 5)
            data[at:at] = data[begin:begin + rng.randrange(1, 60)]
        else:
            data = data[:at]
    return bytes(data)


async def malformed(context):
    """Mutated requests over 64 connections at a time; /health is asked all the while."""
    count, rng = context.size(10000, 2000), context.random
    chat = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
    text = json.dumps({"prompt": "x", "max_tokens": 2, "stream": True, "temperature": 0.5, "stop": ["a"]}).encode()
    head = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    seeds = [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"]
    for path, body in (("/v1/chat/completions", chat), ("/v1/completions", text), ("/tokenize", b'{"prompt":"abc"}'), ("/detokenize", b'{"tokens":[1,2]}')):
        start = head.format(path).encode()
        seeds.append(start + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        seeds.append(start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
    with context.server("--header-timeout", 0.3, "--body-timeout", 0.3, "--keep-alive-timeout", 0.3) as server:
        quiet = Quiet(context, server, count)
        statuses = {}

        async def one():
            connection = await Connection.open(server)
            with contextlib.suppress(ConnectionError):
                connection.writer.write(mutate(rng, rng.choice(seeds)))
                if rng.random() < 0.3:
                    connection.writer.write_eof()
                data = await asyncio.wait_for(connection.reader.read(65536), 20)
                key = data[9:12].decode("latin-1") if data.startswith(b"HTTP/1.1 ") else ("closed" if not data else "other")
                if key[0] == "5":
                    statuses.setdefault("examples", []).append(data[:300])
                statuses[key] = statuses.get(key, 0) + 1
            connection.close()

        async def probe():
            times = []
            while True:
                start = time.monotonic()
                assert (await call(server, "/health"))[0] == 200
                times.append(time.monotonic() - start)
                probes[:] = times
                await asyncio.sleep(0.05)

        probes = []
        prober = asyncio.create_task(probe())
        await gather_limited([one() for _ in range(count)], 64)
        failed = prober.done()
        prober.cancel()
        examples = statuses.pop("examples", [])
        context.report.note("answers", ", ".join(f"{k}: {v}" for k, v in sorted(statuses.items())))
        # 501 is for an unknown transfer coding or method, 505 for an unknown version of HTTP.
        bad = sum(n for k, n in statuses.items() if k == "other" or (k[0] == "5" and k not in ("501", "505")))
        context.report.equal("answers that are no HTTP, or 5xx but 501 and 505", bad, 0)
        for example in [e for e in examples if e[9:12] not in (b"501", b"505")][:3]:
            print("   ", example)
        context.report.check("server lives and /health was 200 all the time", server.alive() and not failed, True, server.alive() and not failed)
        context.report.at_most("p99 of /health meanwhile", percentile(probes, 0.99) * 1e3, 100, " ms")
        await quiet.check()


SCENARIOS = [disconnects, early_disconnects, slow_readers, slow_requests, idle_connections, descriptor_exhaustion, huge_bodies, flood, malformed]
