#!/usr/bin/env python3
"""What idle connections cost a running server, as figures on stdout. Not part of the tests: it takes minutes.

  QUIRE_TEST_BINARY=build/release/quire QUIRE_TEST_MODEL=model.gguf tests/http/measure_idle.py [--seconds 60]

- memory: resident bytes for each of 5,000 keep-alive connections that have sent one request, and how long a new request takes then;
- limit: what the connection after the last one allowed gets;
- descriptors: a server with `ulimit -n 128` and 500 clients: its processor time, and how soon it answers once they have gone;
- processor: time taken in --seconds without a connection, and with 1,000 idle ones.
With --tls all of it through TLS (the certificate is made by openssl).
"""

import argparse
import os
import pathlib
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from common import Server  # noqa: E402

REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Clients:
    def __init__(self, port, context=None):
        self.port, self.context, self.sockets = port, context, []

    def open(self, ask=True):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        if self.context:
            client = self.context.wrap_socket(client, server_hostname="localhost")
        if ask:
            client.sendall(REQUEST)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        return client

    def add(self, count, ask=True):
        for _ in range(count):
            self.sockets.append(self.open(ask))

    def close(self):
        for client in self.sockets:
            client.close()
        self.sockets = []


def request_ms(clients):
    start = time.monotonic()
    clients.open().close()
    return (time.monotonic() - start) * 1000


def memory(flags, tls):
    with Server("--max-connections", "5100", "--keep-alive-timeout", "3600", *flags, tls=tls) as server:
        clients = Clients(server.port, tls)
        clients.add(50)
        clients.close()
        time.sleep(0.5)
        before = resident(server.process.pid)
        clients.add(5000)
        time.sleep(1)
        each = (resident(server.process.pid) - before) / 5000
        times = sorted(request_ms(clients) for _ in range(100))
        print(f"memory: {each / 1024:.1f} KiB for each of 5,000 idle connections; a new request then takes "
              f"{times[50]:.2f} ms (median), {times[-1]:.2f} ms (worst of 100)")
        time.sleep(0.3)
        clients.add(100)
        try:
            extra = clients.open(ask=False)
            extra.sendall(REQUEST)
            first = extra.recv(4096).split(b"\r\n")[0].decode() or "closed"
        except OSError as error:
            first = type(error).__name__
        clients.close()
        time.sleep(1)
        print(f"limit: connection 5,101 of 5,100 gets: {first}; after they have gone: "
              f"{(resident(server.process.pid) - before) / 1024:.0f} KiB more than before, health {server.request('GET', '/health')[0]}")


def descriptors(flags, tls):
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)
    real = os.environ["QUIRE_TEST_BINARY"]
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "limited")
        script.write_text(f'#!/bin/sh\nulimit -n 128\nexec "{real}" "$@"\n')
        script.chmod(0o755)
        os.environ["QUIRE_TEST_BINARY"] = str(script)
        try:
            with Server(*flags, tls=tls) as server:
                clients = Clients(server.port)
                before, start = server.cpu_seconds(), time.monotonic()
                refused = 0
                for _ in range(500):
                    try:
                        clients.sockets.append(socket.create_connection(("127.0.0.1", server.port), timeout=10))
                    except OSError:
                        refused += 1
                time.sleep(5)
                share = (server.cpu_seconds() - before) / (time.monotonic() - start)
                held = server.descriptors()
                clients.close()
                start = time.monotonic()
                while True:
                    try:
                        if server.request("GET", "/health", timeout=1)[0] == 200:
                            break
                    except OSError:
                        pass
                    assert time.monotonic() - start < 30
                print(f"descriptors: limit 128, 500 clients ({refused} refused): {held} open, {100 * share:.1f} % of a processor, "
                      f"answers again {time.monotonic() - start:.2f} s after they have gone")
        finally:
            os.environ["QUIRE_TEST_BINARY"] = real
    assert soft == resource.getrlimit(resource.RLIMIT_NOFILE)


def processor(flags, tls, seconds):
    with Server("--keep-alive-timeout", "3600", *flags, tls=tls) as server:
        clients = Clients(server.port, tls)
        for count in (0, 1000):
            clients.add(count)
            time.sleep(2)
            before = server.cpu_seconds()
            time.sleep(seconds)
            print(f"processor: {100 * (server.cpu_seconds() - before) / seconds:.2f} % over {seconds} s with {count} idle connections")
        clients.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--only", choices=["memory", "descriptors", "processor"])
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        flags, tls = [], None
        if options.tls:
            key, cert = f"{folder}/key.pem", f"{folder}/cert.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out",
                            cert], check=True, capture_output=True)
            flags, tls = ["--ssl-keyfile", key, "--ssl-certfile", cert], ssl.create_default_context(cafile=cert)
        for name, measure in (("memory", memory), ("descriptors", descriptors)):
            if options.only in (None, name):
                measure(flags, tls)
        if options.only in (None, "processor"):
            processor(flags, tls, options.seconds)


if __name__ == "__main__":
    main()
