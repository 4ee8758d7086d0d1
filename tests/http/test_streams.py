"""tests/gpu_server/streams.py: a few streams against the real server, and what it says of servers that are wrong."""

import asyncio
import contextlib
import io
import json
import pathlib
import sys
import unittest

from common import Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gpu_server"))
import streams  # noqa: E402


def measured(port, pid, count, seconds, idle):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        totals = asyncio.run(streams.measure("127.0.0.1", port, pid, count, seconds, idle))
    return totals, out.getvalue()


def event(text, finish=None, usage=None):
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": finish}] if usage is None else []
    return "data: " + json.dumps({"choices": choices, "usage": usage}) + "\n\n"


def usage(n):
    return {"prompt_tokens": 3, "completion_tokens": n, "total_tokens": n + 3}


# What an answer of 2 tokens may lack, and what is said then.
GOOD = [event("a"), event("b", "length"), event("", usage=usage(2)), "data: [DONE]\n\n"]
ANSWERS = {
    None: GOOD,
    "no [DONE]": GOOD[:3],
    "no usage": [GOOD[0], GOOD[1], GOOD[3]],
    "finish_reason": [GOOD[0], event("b", "stop"), GOOD[2], GOOD[3]],
    "2 tokens were asked for": [GOOD[0], GOOD[1], event("", usage=usage(1)), GOOD[3]],
    "3 pieces of text": [GOOD[0], *GOOD],
    "error": [GOOD[0], 'data: {"error": {"code": 500}}\n\n'],
    "after [DONE]": [*GOOD, GOOD[0]],
}


class Streams(unittest.TestCase):
    def test_against_the_server(self):
        with Server("--max-model-len", "512") as server:
            totals, out = measured(server.port, server.process.pid, 6, 2, 1)
            self.assertFalse(totals.failures, f"{totals.failures}\n{out}")
            self.assertGreaterEqual(totals.streams, 6)
            self.assertRegex(out, r"idle: 0\.0[01] s")

    def test_a_request_that_runs_on_is_seen(self):
        with Server("--max-model-len", "4096") as server:
            connection, answer = server.stream("/v1/completions", model="m", prompt="Once", max_tokens=4000, ignore_eos=True)
            answer.readline()
            totals, _ = measured(server.port, server.process.pid, 1, 0, 0.5)
            connection.close()
            said = " ".join(totals.failures)
            for what in ("num_requests_running is 1", "kv_cache_usage_perc is 0.", "of CPU time in 0.5 idle seconds"):
                self.assertIn(what, said)

    def test_wrong_answers(self):
        async def ask(parts):
            async def serve(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + "".join(parts).encode())
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            async with server:
                port = server.sockets[0].getsockname()[1]
                return await streams.one_stream("127.0.0.1", port, {}, 2, streams.Totals())

        for expected, parts in ANSWERS.items():
            with self.subTest(expected):
                failure = asyncio.run(ask(parts))
                if expected is None:
                    self.assertIsNone(failure)
                else:
                    self.assertIn(expected, failure or "")


if __name__ == "__main__":
    unittest.main()
