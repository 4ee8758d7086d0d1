"""Start, idle, stop: signals both ways, ports in use, no work while idle, port free at once after a kill."""

import signal
import threading
import time
import unittest

from common import Server, events, free_port

LONG = {"model": "m", "prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


def start_streams(server, count, max_tokens):
    results, threads = [], []

    def client():
        connection, answer = server.stream("/v1/completions", **LONG, max_tokens=max_tokens)
        results.append(list(events(answer)))
        connection.close()

    for _ in range(count):
        threads.append(threading.Thread(target=client))
        threads[-1].start()
    deadline = time.monotonic() + 10
    while server.metric("vllm:num_requests_running") < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return results, threads


class Lifecycle(unittest.TestCase):
    def test_terminate_aborts(self):
        with Server("--max-model-len", "4096") as server:
            results, threads = start_streams(server, 8, 4000)
            start = time.monotonic()
            server.signal(signal.SIGTERM)
            for thread in threads:
                thread.join(5)
            self.assertLess(time.monotonic() - start, 2)
            self.assertEqual(server.wait(2), 0, server.log_text())
            self.assertEqual(len(results), 8)
            for got in results:
                self.assertEqual(got[-1], "[DONE]")
                self.assertEqual(got[-2]["error"]["code"], 503)

    def test_terminate_drains(self):
        with Server("--max-model-len", "4096", "--shutdown-timeout", "60") as server:
            results, threads = start_streams(server, 4, 150)
            server.signal(signal.SIGTERM)
            time.sleep(0.1)
            status, answer = server.post("/v1/completions", **LONG, max_tokens=1)
            self.assertEqual(status, 503, answer)
            self.assertEqual(server.request("GET", "/health")[0], 503)
            for thread in threads:
                thread.join(60)
            self.assertEqual(server.wait(3), 0, server.log_text())
            for got in results:
                self.assertEqual(got[-1], "[DONE]")
                self.assertEqual(got[-2]["choices"][0]["finish_reason"], "length")

    def test_second_signal_ends_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server("--max-model-len", "4096", "--shutdown-timeout", "60") as server:
                connection, answer = server.stream("/v1/completions", **LONG, max_tokens=4000)
                answer.readline()
                server.signal(number)
                time.sleep(0.3)
                self.assertIsNone(server.process.poll())
                server.signal(number)
                self.assertNotEqual(server.wait(2), 0)
                connection.close()

    def test_interrupt_when_idle(self):
        with Server() as server:
            server.signal(signal.SIGINT)
            self.assertEqual(server.wait(2), 0, server.log_text())
            self.assertIn("Application startup complete.", server.log_text())

    def test_port_in_use(self):
        with Server() as first:
            second = Server(port=first.port)
            self.assertEqual(second.wait(20), 1)
            lines = [line for line in second.log_text().splitlines() if str(first.port) in line]
            self.assertEqual(len(lines), 1, second.log_text())
            second.log.close()

    def test_port_is_free_after_a_kill(self):
        port = free_port()
        for _ in range(2):
            with Server(port=port) as server:
                server.post("/v1/completions", **LONG, max_tokens=2)
                server.signal(signal.SIGKILL)
                server.wait(5)

    def test_idle_takes_no_time(self):
        with Server() as server:
            server.post("/v1/completions", **LONG, max_tokens=8)
            time.sleep(0.5)
            before = server.cpu_seconds()
            time.sleep(2)
            self.assertLessEqual(server.cpu_seconds() - before, 0.01)


if __name__ == "__main__":
    unittest.main()
