"""What the scenarios share: a server under test, a small asynchronous HTTP client over raw sockets, the table of figures."""

import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20


class Report:
    """Figures of the scenarios: name, value, limit, whether it holds."""

    def __init__(self):
        self.rows = []
        self.scenario = ""

    def check(self, name, value, limit, passed):
        if isinstance(value, float):
            value = f"{value:.4g}"
        self.rows.append({"scenario": self.scenario, "figure": name, "value": str(value), "limit": str(limit), "pass": bool(passed)})
        print(f"  {'ok  ' if passed else 'FAIL'} {name}: {value} (limit {limit})", flush=True)

    def at_most(self, name, value, limit, unit=""):
        self.check(name, f"{value:.4g}{unit}", f"<= {limit}{unit}", value <= limit)

    def equal(self, name, value, wanted):
        self.check(name, value, wanted, value == wanted)

    def note(self, name, value):
        self.check(name, value, "-", True)

    def markdown(self):
        lines = ["| scenario | figure | measured | limit | pass |", "|---|---|---|---|---|"]
        for row in self.rows:
            lines.append(f"| {row['scenario']} | {row['figure']} | {row['value']} | {row['limit']} | {'yes' if row['pass'] else '**no**'} |")
        return "\n".join(lines) + "\n"


class Context:
    """Where things are and how long a scenario may take."""

    def __init__(self, args, report):
        self.build = pathlib.Path(args.build)
        self.model = args.tiny_model
        self.text_model = args.text_model
        self.quick = args.quick
        self.report = report
        self.ports = range(args.port, args.port + 90)
        self.next_port = 0
        self.random = random.Random(args.seed)

    def port(self):
        """The next free one of the range."""
        for _ in self.ports:
            port = self.ports[self.next_port % len(self.ports)]
            self.next_port += 1
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                return port
        raise RuntimeError("no free port")

    def size(self, full, quick):
        return quick if self.quick else full

    def server(self, *flags, faulty=(), **options):
        """A server on the tiny model; faulty: flags of quire_faulty_server, which is run then."""
        return Server(self, flags, faulty, **options)


class Server:
    def __init__(self, context, flags=(), faulty=(), model=None, port=None, env=None, limits=(), stderr=None, wait=True, before=()):
        self.port = port or context.port()
        self.flags, self.wait = flags, wait
        self.log = tempfile.NamedTemporaryFile("w+", prefix="quire-reliability-", suffix=".log")
        program = [context.build / "tests/quire_faulty_server", *faulty] if faulty else [context.build / "quire", "serve"]
        self.command = [*before, *map(str, program), str(model or context.model), "--served-model-name", "m", "--host", "127.0.0.1",
                        "--port", str(self.port), "--disable-access-log", *map(str, flags)]
        if "--log-level" not in self.command:
            self.command += ["--log-level", "warning"]
        self.env = {**os.environ, **(env or {})}
        self.limits, self.stderr = limits, stderr
        self.process = None

    def start(self):
        def set_limits():
            for kind, value in self.limits:
                resource.setrlimit(kind, (value, value))

        output = self.stderr or self.log
        self.started = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=output, stderr=output, env=self.env, preexec_fn=set_limits if self.limits else None)
        return self

    def wait_ready(self, seconds=60):
        while time.monotonic() < self.started + seconds:
            if self.process.poll() is not None:
                raise AssertionError(f"server ended with {self.process.returncode}: {self.log_text()[-2000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health", timeout=5)[0] == 200:
                    return time.monotonic() - self.started
            time.sleep(0.0005)
        raise AssertionError(f"server is not ready: {self.log_text()[-2000:]}")

    def __enter__(self):
        self.start()
        if self.wait:
            self.wait_ready()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def log_text(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def alive(self):
        return self.process.poll() is None

    def ended_within(self, seconds):
        """(exit code or None, seconds it took)"""
        start = time.monotonic()
        try:
            return self.process.wait(seconds), time.monotonic() - start
        except subprocess.TimeoutExpired:
            return None, time.monotonic() - start

    # Blocking calls, for probes.
    def get(self, path, timeout=10):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(self, path, body, headers=None, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metrics(self):
        """Name to sum over its labels."""
        out = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            name = name.split("{", 1)[0]
            out[name] = out.get(name, 0) + float(value)
        return out

    def bucket(self, name, bound):
        """(observations up to the bound, all of them) of a histogram"""
        up_to = total = 0
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith(f"{name}_bucket") and f'le="{bound}"' in line:
                up_to += float(line.rsplit(" ", 1)[1])
            if line.startswith(f"{name}_count"):
                total += float(line.rsplit(" ", 1)[1])
        return int(up_to), int(total)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def status_kib(self, field):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        return 0

    def rss(self):
        return self.status_kib("VmRSS") * 1024

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Quiet:
    """The check that ends a run: all blocks free, nothing running or waiting, descriptors as before, memory not grown."""

    def __init__(self, context, server, requests):
        self.report, self.server, self.requests = context.report, server, requests
        for _ in range(20):  # what is allocated once is there before the first measurement
            server.post("/v1/completions", {"prompt": "warm up", "max_tokens": 8, "ignore_eos": True})
        time.sleep(0.1)
        self.descriptors, self.rss = server.descriptors(), server.rss()

    async def check(self, seconds=2.0, memory=True):
        deadline = time.monotonic() + seconds
        while True:
            await asyncio.sleep(0.02)  # lets closed connections close
            metrics = await asyncio.to_thread(self.server.metrics)
            left = {name: metrics[name] for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")}
            descriptors = self.server.descriptors()
            quiet = not any(left.values()) and descriptors <= self.descriptors + 1  # one is the probe's
            if quiet or time.monotonic() > deadline:
                break
        value = "quiet" if quiet else f"{left}, {descriptors} descriptors, {self.descriptors} before"
        self.report.check(f"quiet check ({seconds:g} s)", value, "quiet", quiet)
        if memory:
            grown = (self.server.rss() - self.rss) / MIB
            self.report.at_most(f"RSS growth over {self.requests} requests", grown, max(10 * self.requests / 1000, 10), " MiB")


def request_bytes(path, body=None, headers=None, method=None):
    data = b"" if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", "Host: localhost"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Connection:
    """One client connection; requests one after the other."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server, receive_buffer=None):
        raw = socket.socket()
        raw.setblocking(False)
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", server.port))
        return cls(*await asyncio.open_connection(sock=raw, limit=receive_buffer or 1 << 20))

    def send(self, path, body=None, headers=None, method=None):
        self.writer.write(request_bytes(path, body, headers, method))

    async def head(self):
        """(status, headers with small names)"""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        return int(first.split()[1]), headers

    async def chunks(self):
        """The pieces of a chunked body."""
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            piece = (await self.reader.readexactly(size + 2))[:-2]
            if size == 0:
                return
            yield piece

    async def events(self):
        """Each server-sent event's data as text."""
        rest = b""
        async for piece in self.chunks():
            rest += piece
            *whole, rest = rest.split(b"\n\n")
            for event in whole:
                if event.startswith(b"data: "):
                    yield event[6:].decode("utf-8")  # strict: an event that is no UTF-8 is an error
        assert not rest, rest

    async def answer(self):
        """(status, headers, body)"""
        status, headers = await self.head()
        if "content-length" in headers:
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))
        return status, headers, b"".join([piece async for piece in self.chunks()])

    def close(self, reset=False):
        if reset:
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort() if reset else self.writer.close()


async def call(server, path, body=None, headers=None, method=None):
    connection = await Connection.open(server)
    try:
        connection.send(path, body, headers, method)
        return await connection.answer()
    finally:
        connection.close()


async def complete(server, body, headers=None):
    """The text of a completion, or (status, message)."""
    status, _, data = await call(server, "/v1/completions", body, headers)
    if status != 200:
        return status, data.decode()
    return json.loads(data)["choices"][0]["text"]


async def stream(server, body, headers=None, path="/v1/completions"):
    """All of a stream: {"text", "finish", "done", "error", "times", "status"}."""
    out = {"text": "", "finish": [], "done": 0, "error": None, "times": [], "status": 0}
    connection = await Connection.open(server)
    try:
        connection.send(path, {**body, "stream": True}, headers)
        out["status"], response_headers = await connection.head()
        if out["status"] != 200:
            out["headers"] = response_headers
            return out
        async for data in connection.events():
            out["times"].append(time.monotonic())
            if data == "[DONE]":
                out["done"] += 1
                continue
            event = json.loads(data)
            if "error" in event:
                out["error"] = event["error"]
                continue
            for choice in event["choices"]:
                out["text"] += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
                if choice["finish_reason"]:
                    out["finish"].append(choice["finish_reason"])
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        out["broken"] = repr(error)
    finally:
        connection.close()
    return out


async def gather_limited(tasks, limit):
    gate = asyncio.Semaphore(limit)

    async def one(task):
        async with gate:
            return await task

    return await asyncio.gather(*(one(task) for task in tasks))


def percentile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def greedy(prompt, tokens, **more):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def random_ids(rng, count, vocabulary=510):
    return [rng.randrange(vocabulary) for _ in range(count)]


class Sampler:
    """Calls a function on a thread every so often while a block runs; keeps (time, result)."""

    def __init__(self, function, period):
        self.function, self.period, self.values = function, period, []

    async def __aenter__(self):
        self.task = asyncio.create_task(self.run())
        return self

    async def run(self):
        while True:
            self.values.append((time.monotonic(), await asyncio.to_thread(self.function)))
            await asyncio.sleep(self.period)

    async def __aexit__(self, *_):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


SIGNALS = {name: getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL")}
