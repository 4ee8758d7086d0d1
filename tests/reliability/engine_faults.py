"""Faults put into the server: steps that throw or hang, allocations that fail."""

import asyncio
import contextlib
import pathlib
import resource
import struct
import tempfile
import time

from harness import Quiet, call, complete, greedy, stream

FAULTY = ("--step-interval-us", "0")


async def step_failures(context):
    """A request whose forward pass throws, one whose logits are not numbers, three failures in a row."""
    with context.server(faulty=("--step-interval-us", "1000")) as server:
        quiet = Quiet(context, server, 30)
        others = [asyncio.create_task(stream(server, greedy(f"other {i}", 2000))) for i in range(8)]
        await asyncio.sleep(0.2)
        status, message = await complete(server, greedy("bad", 8), {"X-Request-Id": "fault-throw-1"})
        context.report.equal("request whose step throws", status, 500)
        results = await asyncio.gather(*others)
        context.report.equal("others of that step that got an error event", sum(r["error"] is not None for r in results), 8)
        context.report.check("the error tells nothing of the inside", "injected" not in message, True, "injected" not in message)
        context.report.equal("health after one failure", server.get("/health")[0], 200)
        others = [asyncio.create_task(stream(server, greedy(f"other {i}", 200))) for i in range(8)]
        await asyncio.sleep(0.05)
        status, _ = await complete(server, greedy("bad", 8), {"X-Request-Id": "fault-nan-1"})
        context.report.equal("request without a valid logit", status, 500)
        results = await asyncio.gather(*others)
        context.report.equal("others beside it that finish", sum(r["finish"] == ["length"] for r in results), 8)
        for i in range(3):
            await complete(server, greedy("bad", 8), {"X-Request-Id": f"fault-throw-{i + 2}"})
        context.report.equal("health after three failures in a row", server.get("/health")[0], 503)
        context.report.check("a good request is served", await complete(server, greedy("good", 4)) != "", True, True)
        context.report.equal("health after it", server.get("/health")[0], 200)
        await quiet.check()


async def stuck_step(context):
    """A forward pass that takes half a minute."""
    seconds = context.size(30, 14)
    with context.server(faulty=FAULTY) as server:
        quiet = Quiet(context, server, 2)
        start = time.monotonic()
        stuck = asyncio.create_task(complete(server, greedy("x", 4), {"X-Request-Id": f"fault-sleep-{seconds}"}))
        turned = back = None
        slowest = 0.0
        while back is None and time.monotonic() < start + seconds + 10:
            asked = time.monotonic()
            status = (await asyncio.to_thread(server.get, "/health"))[0]
            slowest = max(slowest, time.monotonic() - asked)
            if status == 503 and turned is None:
                turned = time.monotonic() - start
            if status == 200 and turned is not None:
                back = time.monotonic() - start
            await asyncio.sleep(0.1)
        context.report.check("/health is 503 after", f"{turned and round(turned, 2)} s", "10 to 11 s", turned is not None and 9.9 <= turned <= 11)
        context.report.check("/health is 200 again after", f"{back and round(back, 2)} s", f"{seconds} to {seconds + 1} s", back is not None and seconds <= back <= seconds + 1)
        context.report.at_most("slowest answer of /health", slowest * 1e3, 100, " ms")
        context.report.check("the request itself", isinstance(await stuck, str), True, True)
        await quiet.check()


class FailingAllocator:
    """The preloaded allocator's controls."""

    def __init__(self, context):
        self.file = tempfile.NamedTemporaryFile(prefix="quire-reliability-allocator-")
        self.file.write(bytes(16))
        self.file.flush()
        self.env = {"LD_PRELOAD": str(context.build / "tests/libquire_failing_allocator.so"), "QUIRE_FAILING_ALLOCATOR": self.file.name}

    def arm(self, calls):
        with open(self.file.name, "r+b", buffering=0) as control:
            control.write(struct.pack("<q", calls))

    def state(self):
        """(calls still to go, failures so far)"""
        return struct.unpack("<qq", pathlib.Path(self.file.name).read_bytes())


async def allocation_failures(context):
    """One failing allocation, the k-th after a request was sent, for every k, on every path."""
    most, step = 2000, context.size(1, 20)
    text = greedy("some words of a prompt", 6)
    chat = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 6, "temperature": 0}
    paths = {"completion": ("/v1/completions", text), "stream": ("/v1/completions", {**text, "stream": True, "logprobs": 2}),
             "chat": ("/v1/chat/completions", chat), "n = 3": ("/v1/completions", {**text, "n": 3, "temperature": 1, "seed": 1}),
             "tokenize": ("/tokenize", {"prompt": "some words"}), "metrics": ("/metrics", None)}
    allocator = FailingAllocator(context)
    with context.server(env=allocator.env) as server:
        quiet = Quiet(context, server, 1)
        for name, (path, body) in paths.items():
            outcomes, later_bad, at = {}, 0, 0
            for k in range(1, most + 1, step):
                allocator.arm(k)
                outcome = "closed"
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    try:
                        status, _, data = await asyncio.wait_for(call(server, path, body), 10)
                        outcome = str(status) + (" with an error event" if b'"error"' in data and status == 200 else "")
                    except asyncio.TimeoutError:
                        outcome = "no answer in 10 s"
                left, _ = allocator.state()
                allocator.arm(0)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                if not server.alive():
                    break
                good = isinstance(await complete(server, text), str)
                later_bad += not good
                at = k
                if left > 0:  # the request took fewer allocations than k
                    break
            bad = [o for o in outcomes if o not in ("200", "500", "503", "200 with an error event")]
            context.report.check(f"{name}: answers while the k-th allocation fails, k = 1..{at}",
                                 ", ".join(f"{o}: {n}" for o, n in sorted(outcomes.items())), "200, 500, 503, error event",
                                 server.alive() and not [o for o in bad if o != "closed"])
            context.report.equal(f"{name}: later requests that failed", later_bad, 0)
            if not server.alive():
                context.report.check("server ended", f"{server.process.returncode}: {server.log_text()[-300:]}", "lives", False)
                return
        context.report.note("allocations that failed", allocator.state()[1])
        await quiet.check()


async def memory_shortage(context):
    """Address space that ends a little above what the server has, and bodies that need more than that."""
    rounds, at_once, room_mib, body_mib = context.size(10, 3), 8, 48, 12
    with context.server() as server:
        text = greedy("some words of a prompt", 6)
        expected = await complete(server, text)
        quiet = Quiet(context, server, 5000)  # 50 MiB of growth: freed bodies leave holes in the heap, and there is no more room
        pages = int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (room_mib << 20)
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
        outcomes, wrong = {}, 0
        for _ in range(rounds):
            async def one(i):
                body = {"prompt": "words and more words " * (body_mib * 50_000 + i)}
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                    return str((await call(server, "/tokenize" if i % 2 else "/v1/completions", body))[0])
                return "closed"

            for outcome in await asyncio.gather(*(one(i) for i in range(at_once))):
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
            wrong += await complete(server, text) != expected
        context.report.check(f"bodies of {body_mib} MiB, {at_once} at once, {room_mib} MiB left", ", ".join(f"{o}: {n}" for o, n in sorted(outcomes.items())),
                             "200, 400, 503 or closed, some not 200", server.alive() and set(outcomes) <= {"200", "400", "503", "closed"} and set(outcomes) != {"200"})
        context.report.equal("small requests afterwards that got another answer", wrong, 0)
        await quiet.check()


SCENARIOS = [step_failures, stuck_step, allocation_failures, memory_shortage]
