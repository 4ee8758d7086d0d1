"""What the front end does beside answering requests: log lines, keys, development endpoints, a service manager's socket."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import unittest

from common import Server


class Front(unittest.TestCase):
    def test_json_log(self):
        with Server("--log-format", "json", "--enable-log-requests") as server:
            odd = "/a\"\\\xff\xc2\x9b\x1b[31m\x07"
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
                client.sendall(f"GET {odd} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1"))
                client.recv(4096)
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
                client.sendall("GET /b\"\\\xff\xc2\x9b\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1"))
                self.assertIn(b" 404 ", client.recv(4096))
            server.post("/v1/completions", model="m\r\n{\"level\":\"ERROR\"}\u2028", prompt="a")
            server.signal()
            server.wait(5)
            raw = pathlib.Path(server.log.name).read_bytes()
        lines = [json.loads(line) for line in raw.decode("utf-8", errors="strict").rstrip("\n").split("\n")]
        for line in lines:
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("INFO", "WARNING"))
            self.assertNotRegex(line["message"], "[\x00-\x1f\x7f-\x9f]")
        access = [line for line in lines if line.get("path") == '/b"\\\\xff\\xc2\\x9b\u00e9']
        self.assertEqual(len(access), 1, [line.get("path") for line in lines])
        self.assertEqual((access[0]["method"], access[0]["status"]), ("GET", 404))
        self.assertGreater(access[0]["seconds"], 0)
        self.assertIn("Application shutdown complete.", lines[-1]["message"])

    def test_keys(self):
        with Server("--api-key", "one", "two", "--metrics-without-api-key", "--server-dev-mode") as server:
            def status(path, key=None, method="GET"):
                return server.request(method, path, headers={"Authorization": f"Bearer {key}"} if key else {})[0]

            for path in ("/health", "/ping", "/metrics"):
                self.assertEqual(status(path), 200, path)
            for path in ("/v1/models", "/version", "/load", "/server_info", "/nowhere", "/v1/completions"):
                self.assertEqual(status(path), 401, path)
                self.assertEqual(status(path, "On"), 401, path)
                self.assertIn(status(path, "two"), (200, 404, 405), path)
            info = json.loads(server.request("GET", "/server_info?config_format=json", headers={"Authorization": "Bearer one"})[2])
            self.assertEqual(info["vllm_config"]["api-key"], "***")
            self.assertEqual(info["vllm_config"]["port"], server.port)

    def test_development_endpoints(self):
        body = {"model": "m", "prompt": "A prompt that is longer than a block of sixteen tokens, so that it is found again.",
                "max_tokens": 1}
        os.environ["VLLM_SERVER_DEV_MODE"] = "1"
        try:
            with Server("--enable-prompt-tokens-details") as server:
                def cached():
                    details = server.post("/v1/completions", **body)[1]["usage"]["prompt_tokens_details"]
                    return (details or {}).get("cached_tokens", 0)

                self.assertEqual(cached(), 0)
                self.assertGreater(cached(), 0)
                self.assertEqual(json.loads(server.request("POST", "/reset_prefix_cache")[2]), {"success": True})
                self.assertEqual(cached(), 0)
                text = json.loads(server.request("GET", "/server_info")[2])["vllm_config"]
                self.assertIn(f"port={server.port}", text)
                self.assertEqual(server.request("GET", "/server_info?config_format=xml")[0], 400)
        finally:
            del os.environ["VLLM_SERVER_DEV_MODE"]
        with Server() as server:
            for method, path in (("GET", "/server_info"), ("POST", "/reset_prefix_cache")):
                self.assertEqual(server.request(method, path)[0], 404)

    def test_service_manager_hears_when_it_is_ready(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{folder}/notify")
            manager.settimeout(20)
            os.environ["NOTIFY_SOCKET"] = f"{folder}/notify"
            try:
                with Server() as server:
                    self.assertEqual(manager.recv(100), b"READY=1")
                    server.signal()
                    self.assertEqual(manager.recv(100), b"STOPPING=1")
                    self.assertEqual(server.wait(5), 0)
            finally:
                del os.environ["NOTIFY_SOCKET"]

    def test_few_descriptors(self):
        with tempfile.TemporaryDirectory() as folder:
            real, limited = os.environ.get("QUIRE_TEST_BINARY", ""), pathlib.Path(folder, "limited")
            limited.write_text(f'#!/bin/sh\nulimit -n 96\nexec "{real}" "$@"\n')
            limited.chmod(0o755)
            os.environ["QUIRE_TEST_BINARY"] = str(limited) if real else ""
            try:
                with Server() as server:
                    self.assertIn("only 32, since this process may open 96 files", server.log_text())
                    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(200)]
                    self.assertTrue(clients[-1].recv(100).startswith(b"HTTP/1.1 503 "))
                    before = server.cpu_seconds()
                    time.sleep(0.5)
                    self.assertLess(server.cpu_seconds() - before, 0.05)
                    for client in clients:
                        client.close()
                    deadline = time.monotonic() + 1
                    status = 0
                    while status != 200 and time.monotonic() < deadline:
                        try:
                            status = server.request("GET", "/health", timeout=1)[0]
                        except OSError:
                            time.sleep(0.01)
                    self.assertEqual(status, 200)
            finally:
                os.environ["QUIRE_TEST_BINARY"] = real

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/quire.sock"
            server = Server("--uds", path)
            deadline = time.monotonic() + 30
            while "Application startup complete." not in server.log_text() and time.monotonic() < deadline:
                time.sleep(0.02)
            out = subprocess.run(["curl", "-s", "--unix-socket", path, "http://any.name/v1/models"], capture_output=True, text=True)
            self.assertEqual(json.loads(out.stdout)["data"][0]["id"], "m")
            server.signal()
            self.assertEqual(server.wait(5), 0)
            self.assertFalse(os.path.exists(path))
            server.log.close()


if __name__ == "__main__":
    unittest.main()
