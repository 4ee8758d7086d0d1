"""The process and what is around it: signals, kills, full disks, cut files, little memory, other clocks, starts."""

import asyncio
import contextlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time

from harness import SIGNALS, Connection, complete, greedy, percentile, stream


async def start_streams(server, count, tokens):
    tasks = [asyncio.create_task(stream(server, greedy(f"stream {i}", tokens))) for i in range(count)]
    for _ in range(500):
        if server.metrics()["vllm:num_requests_running"] >= count:
            break
        await asyncio.sleep(0.01)
    return tasks


async def drain(context):
    """SIGTERM with 16 streams under way."""
    with context.server("--max-model-len", 4096, "--shutdown-timeout", 0, faulty=("--step-interval-us", "3000")) as server:
        tasks = await start_streams(server, 16, 4000)
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        results = await asyncio.gather(*tasks)
        context.report.at_most("timeout 0: all streams closed after", time.monotonic() - start, 2, " s")
        context.report.equal("timeout 0: streams with an error event", sum(r["error"] is not None for r in results), 16)
        context.report.equal("timeout 0: exit code", server.ended_within(2)[0], 0)
    with context.server("--max-model-len", 4096, "--shutdown-timeout", 30, faulty=("--step-interval-us", "3000")) as server:
        tasks = await start_streams(server, 16, 800)
        server.signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        refused = await complete(server, greedy("new", 4))
        context.report.equal("timeout 30: new request", refused[0], 503)
        results = await asyncio.gather(*tasks)
        context.report.equal("timeout 30: streams complete with [DONE]", sum(r["finish"] == ["length"] and r["done"] == 1 for r in results), 16)
        context.report.equal("timeout 30: exit code", server.ended_within(5)[0], 0)


async def second_signal(context):
    """A second signal during the drain ends the process."""
    for first in ("SIGTERM", "SIGINT"):
        with context.server("--max-model-len", 4096, "--shutdown-timeout", 60, faulty=("--step-interval-us", "3000")) as server:
            tasks = await start_streams(server, 16, 4000)
            server.signal(SIGNALS[first])
            await asyncio.sleep(0.3)
            alive = server.alive()
            server.signal(SIGNALS[first])
            code, seconds = await asyncio.to_thread(server.ended_within, 5)
            context.report.check(f"{first} twice: draining, then ended after", f"{seconds:.2f} s, code {code}", "<= 2 s", alive and code is not None and seconds <= 2)
            await asyncio.gather(*tasks, return_exceptions=True)


def leftovers():
    return {path for folder in ("/tmp", "/dev/shm") for path in pathlib.Path(folder).glob("*quire*") if "quire-reliability" not in path.name}


async def kills(context):
    """SIGKILL under load; the next start on the same port serves in the usual time."""
    count, port, times, bad = context.size(50, 10), context.port(), [], 0
    before = leftovers()
    for _ in range(count):
        with context.server(port=port, wait=False) as server:
            times.append(server.wait_ready())
            tasks = [asyncio.create_task(stream(server, greedy(f"k{i}", 2000))) for i in range(16)]
            await asyncio.sleep(0.15)
            server.signal(signal.SIGKILL)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            bad += sum(isinstance(r, BaseException) and not isinstance(r, OSError) for r in results)
    context.report.equal("starts that served", len(times), count)
    context.report.at_most("slowest start / median", max(times) / percentile(times, 0.5), 3)
    context.report.equal("files left in /tmp and /dev/shm", len(leftovers() - before), 0)


async def other_signals(context):
    """SIGPIPE, SIGHUP, a log that nobody reads, closed outputs."""
    with context.server() as server:
        server.signal(signal.SIGPIPE)
        server.signal(signal.SIGHUP)
        await asyncio.sleep(0.2)
        context.report.check("serves after SIGPIPE and SIGHUP", await complete(server, greedy("x", 4)) != "", True, server.alive())
    reader, writer = os.pipe()
    server = context.server("--log-level", "debug", "--enable-log-requests", stderr=writer)
    with server:
        os.close(writer)
        os.read(reader, 200)
        os.close(reader)  # as `| head -1` does
        good = [isinstance(await complete(server, greedy("x", 4)), str) for _ in range(20)]
        context.report.equal("requests served with the log's reader gone", sum(good), 20)
    with context.server("--log-level", "debug", before=("sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh")) as server:
        good = [isinstance(await complete(server, greedy("x", 4)), str) for _ in range(20)]
        context.report.equal("requests served with outputs closed", sum(good), 20)


async def full_disk(context):
    """A log on a full file system; results that can't be written."""
    with tempfile.TemporaryDirectory(prefix="quire-reliability-") as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode == 0
        try:
            log = pathlib.Path(folder, "log") if mounted else pathlib.Path("/dev/full")
            with open(log, "ab", buffering=0) as output, contextlib.suppress(OSError):
                while mounted and output.write(b"x" * 4096):
                    pass
            with open(log, "ab", buffering=0) as output, context.server("--log-level", "debug", "--enable-log-requests", stderr=output) as server:
                good = [isinstance(await complete(server, greedy("x", 4)), str) for _ in range(50)]
                context.report.equal(f"requests served, log on a full {'tmpfs' if mounted else 'device'}", sum(good), 50)
            for name, target in (("full", pathlib.Path(folder, "out") if mounted else "/dev/full"), ("missing folder", "/no/such/folder/out")):
                run = subprocess.run([context.build / "quire", "bench", "latency", "--model", context.model, "--input-len", "4", "--output-len", "4",
                                      "--num-iters", "1", "--num-iters-warmup", "0", "--output-json", target], capture_output=True, text=True, timeout=120)
                last = (run.stderr.strip().splitlines() or [""])[-1]
                context.report.check(f"--output-json, {name}", f"code {run.returncode}: {last[-90:]}", "error that names the file",
                                     run.returncode in (1, 2) and str(target) in last)
        finally:
            if mounted:
                subprocess.run(["umount", folder], check=False)


async def cut_model_file(context):
    """A model file shortened before, while and after it is loaded."""
    source = context.text_model or context.model
    with tempfile.TemporaryDirectory(prefix="quire-reliability-") as folder:
        path = pathlib.Path(folder, "model.gguf")

        shutil.copy(source, path)
        os.truncate(path, path.stat().st_size // 2)
        with context.server(model=path, wait=False) as server:
            code, _ = server.ended_within(30)
            named = str(path) in server.log_text()
            context.report.check("cut before loading", f"code {code}, file named: {named}", "error that names the file", code in (1, 2) and named)

        shutil.copy(source, path)
        question = greedy("The capital of France is", 8)
        with context.server("--max-model-len", 256, model=path, wait=False) as server:
            usual = server.wait_ready()
            right = await complete(server, question)
        outcomes, count = {}, context.size(60, 20)
        for i in range(count):
            shutil.copy(source, path)
            with context.server("--max-model-len", 256, model=path, wait=False) as server:
                time.sleep(usual * i / count)
                os.truncate(path, 4096 if i % 2 else path.stat().st_size // 2)
                with contextlib.suppress(AssertionError):
                    server.wait_ready(20)
                if server.alive():
                    key = "serves" if await complete(server, question) == right else "another answer"
                else:
                    code = server.process.returncode
                    key = f"code {code}, file named: {str(path) in server.log_text()}"
                outcomes[key] = outcomes.get(key, 0) + 1
        good = {"serves", "code 1, file named: True", "code 2, file named: True"}
        context.report.check("cut while loading", outcomes, "serves or an error that names the file", set(outcomes) <= good)

        shutil.copy(source, path)
        with context.server("--max-model-len", 256, model=path) as server:
            os.truncate(path, 4096)
            context.report.equal("cut after loading: answers as before", await complete(server, question) == right, True)


async def low_memory(context):
    """An address space too small for the cache."""
    for limit_mib, flags in ((1500, ("--kv-cache-memory-bytes", 4 << 30)), (300, ())):
        with context.server(*flags, wait=False, limits=[(resource.RLIMIT_AS, limit_mib << 20)]) as server:
            with contextlib.suppress(AssertionError):
                server.wait_ready(20)
            if server.alive():
                text = await complete(server, greedy("x", 4))
                context.report.check(f"ulimit -v {limit_mib} MiB", "serves", "serves or a clear error", isinstance(text, str))
                continue
            code = server.process.returncode
            last = (server.log_text().strip().splitlines() or [""])[-1]
            context.report.check(f"ulimit -v {limit_mib} MiB {' '.join(map(str, flags))}", f"code {code}: {last[:150]}", "an error with bytes needed and available",
                                 code in (1, 2) and ("MiB" in last or "GiB" in last or "bytes" in last or "memory" in last))


async def clock_jump(context):
    """The wall clock jumps by a day and back while clients wait."""
    with tempfile.NamedTemporaryFile(prefix="quire-reliability-clock-") as control:
        control.write(b"\0" * 8)
        control.flush()
        env = {"LD_PRELOAD": str(context.build / "tests/libquire_shifted_clock.so"), "QUIRE_SHIFTED_CLOCK": control.name}
        with context.server(env=env, faulty=("--step-interval-us", "3000")) as server:
            idle = [await Connection.open(server) for _ in range(20)]
            for connection in idle:
                connection.send("/health")
                await connection.answer()
            tasks = await start_streams(server, 16, 600)
            dates = []
            for days in (1, -1, 0):
                pathlib.Path(control.name).write_bytes((days * 86400).to_bytes(8, "little", signed=True))
                await asyncio.sleep(0.4)
                connection = await Connection.open(server)
                connection.send("/health")
                dates.append((await connection.answer())[1]["date"])
                connection.close()
            context.report.equal("the server has seen the jumps (different dates)", len({d[:16] for d in dates}), 3)
            results = await asyncio.gather(*tasks)
            context.report.equal("streams complete", sum(r["finish"] == ["length"] for r in results), 16)
            alive = 0
            for connection in idle:
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    connection.send("/health")
                    alive += (await connection.answer())[0] == 200
                connection.close()
            context.report.equal("idle connections that are still open", alive, 20)


async def starts(context):
    """A hundred starts and stops, the time to the first 200 of /health."""
    count = context.size(100, 20)
    for name, model in (("tiny model", context.model), ("SmolLM2", context.text_model)):
        if not model:
            continue
        times, codes = [], []
        runs = count if name == "tiny model" else context.size(20, 5)
        for _ in range(runs):
            with context.server(model=model, wait=False) as server:
                times.append(server.wait_ready())
                server.signal(signal.SIGTERM)
                codes.append(server.ended_within(5)[0])
        context.report.equal(f"{name}: clean stops", codes.count(0), runs)
        middle = percentile(times, 0.5)
        context.report.at_most(f"{name}: ready after (median)", middle, 0.5, " s")
        context.report.note(f"{name}: fastest and slowest start", f"{min(times):.3f} and {max(times):.3f} s")
        if name == "tiny model":
            context.report.at_most("spread of the middle half", (percentile(times, 0.75) - percentile(times, 0.25)) / middle * 100, 20, " %")


async def idle(context):
    """CPU time of a server that has nothing to do, without and with idle connections."""
    seconds = context.size(60, 10)
    with context.server() as server:
        await complete(server, greedy("x", 8))
        for count in (0, 1000):
            connections = [await Connection.open(server) for _ in range(count)]
            for connection in connections:
                connection.send("/health")
                await connection.answer()
            await asyncio.sleep(12 if count == 0 else 1)  # the periodic line on what was served is over
            before = server.cpu_seconds()
            await asyncio.sleep(seconds)
            used = server.cpu_seconds() - before
            context.report.check(f"CPU over {seconds} s with {count} idle connections", f"{100 * used / seconds:.2f} %", "0.0 %", used <= 0.01)
            for connection in connections:
                connection.close()


SCENARIOS = [drain, second_signal, kills, other_signals, full_disk, cut_model_file, low_memory, clock_jump, starts, idle]
