"""Clients that hang up: their work ends, their blocks come back, the others get whole answers."""

import random
import socket
import struct
import threading
import time
import unittest

from common import Server, events


class Disconnect(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "2048", "--disable-access-log").__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def test_64_streams_and_a_third_hangs_up(self):
        before = self.server.descriptors()
        results = {}

        def client(i):
            body = {"model": "m", "prompt": f"Client {i} says", "max_tokens": 48, "temperature": 0, "ignore_eos": True}
            connection, answer = self.server.stream("/v1/completions", **body)
            if i % 3:
                got = list(events(answer))
                results[i] = (len("".join(e["choices"][0]["text"] for e in got[:-1])) > 0 and got[-1] == "[DONE]"
                              and got[-2]["choices"][0]["finish_reason"] == "length")
            else:
                for count, _ in enumerate(events(answer)):
                    if count >= i % 7:
                        break
                if i % 2:  # RST instead of FIN
                    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                answer.close()
            connection.close()

        threads = [threading.Thread(target=client, args=(i,)) for i in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {i: True for i in range(64) if i % 3})
        self.assertTrue(self.server.wait_quiet(), "blocks or requests are left")
        time.sleep(0.2)
        self.assertLessEqual(self.server.descriptors(), before + 1)

    def test_whole_answer_is_cancelled_too(self):
        body = (b'{"model":"m","prompt":"x","max_tokens":2000,"ignore_eos":true}')
        client = socket.create_connection(("127.0.0.1", self.server.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
        deadline = time.monotonic() + 5
        while self.server.metric("vllm:num_requests_running") < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.server.metric("vllm:num_requests_running"), 1)
        client.close()
        self.assertTrue(self.server.wait_quiet(1.0))

    def test_random_closes(self):
        rng = random.Random(7)
        for _ in range(100):
            prompt = "word " * rng.randrange(1, 200)
            body = ('{"model":"m","prompt":"%s","max_tokens":4,"stream":%s}' % (prompt, rng.choice(["true", "false"]))).encode()
            client = socket.create_connection(("127.0.0.1", self.server.port))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(rng.random() * 0.02)
            client.close()
        self.assertTrue(self.server.wait_quiet(3.0))
        self.assertNotRegex(self.server.log_text(), r"(?m)^error")

    def test_half_a_request(self):
        for raw in (b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"):
            client = socket.create_connection(("127.0.0.1", self.server.port))
            client.sendall(raw)
            client.close()
        self.assertEqual(self.server.request("GET", "/health")[0], 200)


if __name__ == "__main__":
    unittest.main()
