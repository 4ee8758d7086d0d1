"""Raw HTTP cases and odd parameters against the whole server: the right answer, and the server goes on."""

import json
import re
import socket
import time
import unittest

from common import DATA, Server, events


def exchange(port, raw, timeout=6.0):
    """Sends bytes; returns (status or 0, everything received until the answer is whole or the time is over)."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as client:
        client.sendall(raw)
        received = b""
        while True:
            head, separator, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if separator and length and (len(body) >= int(length[1]) or raw.startswith(b"HEAD")):
                break
            data = client.recv(65536)
            if not data:
                break
            received += data
    status = re.match(rb"HTTP/1\.[01] (\d+)", received)
    return (int(status[1]) if status else 0), received


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "512").__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def healthy(self):
        return self.server.request("GET", "/health")[0] == 200

    def test_raw_cases(self):
        for case in json.loads((DATA / "http_cases.json").read_text()):
            with self.subTest(case["id"]):
                start = time.monotonic()
                status, received = exchange(self.server.port, case["raw"].encode("latin-1"))
                self.assertIn(status, case["expect_status"], received[:300])
                self.assertLess(time.monotonic() - start, 5)
                self.assertTrue(self.healthy())

    def test_bodies_that_are_no_object_on_one_connection(self):
        bodies = ["[]", "[1,2]", "true", "null", "123", '"str"', "", '{"model":"m","messages":"x"}', '{"messages":[1]}',
                  '{"messages":[{}]}', '{"messages":[]}', b'\xef\xbb\xbf{"x":1}', b'{"a":"\xc4\xe3\xba\xc3"}', b'{"a":"\x01"}']
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=5) as client:
            for body in bodies:
                body = body.encode() if isinstance(body, str) else body
                client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(body) + body)
                answer = client.recv(65536)
                self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), (body, answer))
                error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
                self.assertEqual(sorted(error), ["code", "message", "param", "type"])

    def test_content_types(self):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1})
        for kind, good in (("application/json; charset=utf-8", True), ("APPLICATION/JSON", True), ("text/plain", False),
                           ("application/x-www-form-urlencoded", False)):
            status, _, _ = self.server.request("POST", "/v1/chat/completions", body, {"Content-Type": kind})
            self.assertEqual(status == 200, good, kind)
            self.assertLess(status, 500)

    def test_neighbour_is_not_disturbed(self):
        body = {"model": "m", "prompt": "Count: one, two, three,", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        alone = self.server.post("/v1/completions", **body)[1]["choices"][0]["text"]
        connection, answer = self.server.stream("/v1/completions", **body)
        odd = [{"logit_bias": {"191222": -100}}, {"logit_bias": {"-1": 5}}, {"logit_bias": {"99999999999": 1}},
               {"logit_bias": {"abc": 1}}, {"logit_bias": {"5": "x"}}, {"stop_token_ids": [151645]}, {"stop_token_ids": [-1]},
               {"prompt": [128256]}, {"prompt": [-1]}, {"top_k": -2}, {"top_p": 0}, {"min_p": 2}, {"temperature": -1},
               {"repetition_penalty": 0}, {"n": 0}, {"n": 10**9}, {"logprobs": 1000}, {"max_tokens": 10**12},
               {"min_tokens": 17}, {"stop": ""}, {"stop": ["a"] * 5}, {"n": 2, "temperature": 0}, {"prompt": ""},
               {"allowed_token_ids": [10**6]}, {"bad_words": [""]}, {"cache_salt": "@"}, {"seed": 2**63}]
        for more in odd * 2:
            status, _ = self.server.post("/v1/completions", **{"model": "m", "prompt": "hi", **more})
            self.assertEqual(status, 400, more)
        for more in ({"top_k": 0}, {"top_k": 2**31 - 1}, {"temperature": 1e-45}, {"seed": -1}, {"seed": 2**63 - 1}, {"min_tokens": 2}):
            status, _ = self.server.post("/v1/completions", **{"model": "m", "prompt": "hi", "max_tokens": 3, **more})
            self.assertEqual(status, 200, more)
        text = "".join(e["choices"][0]["text"] for e in events(answer) if e != "[DONE]")
        connection.close()
        self.assertEqual(text, alone)
        self.assertTrue(self.server.wait_quiet())

    def test_no_addresses_and_no_forged_log_lines(self):
        for path in ("/v1/models\x1b[31m", "/x%0d%0aERROR"):
            exchange(self.server.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode("latin-1"))
        _, answer = self.server.post("/v1/completions", model="x\r\nerror 01-01 00:00:00 forged", prompt="a")
        self.assertNotRegex(json.dumps(answer), r"0x[0-9a-f]{6,}")
        self.assertNotRegex(self.server.log_text(), r"(?m)^error")


class Keys(unittest.TestCase):
    def test_key(self):
        with Server("--api-key", "sekret") as server:
            self.assertEqual(server.request("GET", "/metrics")[0], 401)
            self.assertEqual(server.request("GET", "/v1/models", headers={"Authorization": "Bearer sekre"})[0], 401)
            self.assertEqual(server.request("GET", "/v1/models", headers={"Authorization": "Bearer sekret"})[0], 200)
            self.assertEqual(json.loads(server.request("POST", "/v1/completions", {})[2]), {"error": "Unauthorized"})


if __name__ == "__main__":
    unittest.main()
