"""Starts `quire serve` for the end-to-end tests and talks to it. Binary and model come from QUIRE_TEST_BINARY and QUIRE_TEST_MODEL."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "server"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, *flags, port=None, tls=None, model=None):
        """tls: the ssl.SSLContext of clients, for a server started with a certificate. model: a path; QUIRE_TEST_MODEL if there is none."""
        for name in ("QUIRE_TEST_BINARY", *(() if model else ("QUIRE_TEST_MODEL",))):
            if not os.environ.get(name):
                raise unittest.SkipTest(f"{name} is not set")
        self.port = port or free_port()
        self.tls = tls
        self.log = tempfile.NamedTemporaryFile("w+", prefix="quire-serve-", suffix=".log")
        command = [os.environ["QUIRE_TEST_BINARY"], "serve", str(model or os.environ["QUIRE_TEST_MODEL"]), "--served-model-name", "m",
                   "--allowed-hosts", "x"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"server ended with {self.process.returncode}:\n{self.log_text()}")
            with contextlib.suppress(OSError):
                if self.request("GET", "/health")[0] == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError(f"server is not ready after 60 s:\n{self.log_text()}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def log_text(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds):
        return self.process.wait(timeout=seconds)

    def connection(self, timeout):
        if self.tls:
            return http.client.HTTPSConnection("localhost", self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body bytes); a dict goes as JSON."""
        headers = dict(headers or {})
        if isinstance(body, dict):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        with contextlib.closing(self.connection(timeout)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def post(self, path, **body):
        status, _, data = self.request("POST", path, body)
        return status, json.loads(data)

    def stream(self, path, **body):
        """An open streaming answer; iterate over its events' JSON with events()."""
        connection = self.connection(60)
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return connection, answer

    def metric(self, name):
        text = self.request("GET", "/metrics")[2].decode()
        values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{")]
        assert values, f"{name} is not in /metrics"
        return sum(values)

    def wait_quiet(self, seconds=2.0):
        """True once nothing runs or waits and every KV block is free."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not any(self.metric(name) for name in names):
                return True
            time.sleep(0.02)
        return False

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def events(answer):
    """Yields each event's JSON; the last one is the string [DONE] if it came. An event with a name has it as its type."""
    name = None
    for line in answer:
        line = line.decode("utf-8").rstrip("\n")
        if not line or line.startswith(":"):
            continue
        if line.startswith("event: "):
            name = line[len("event: "):]
            continue
        assert line.startswith("data: "), line
        data = line[len("data: "):]
        event = data if data == "[DONE]" else json.loads(data)
        assert name is None or event["type"] == name, line
        yield event
