#!/usr/bin/env python3
"""Requests with odd values in every combination of fields, beside a stream that must not notice.

    sampling_table.py REQUESTS [SEED]

Starts `quire serve` (QUIRE_TEST_BINARY) on a tiny model, sends REQUESTS random requests to every endpoint that generates and checks that each
answer is 200 or a 400 that names a field of the request, that nothing fails in the server, and that a stream beside them has the text that it
has alone. Prints how many of each there were.
"""

import collections
import json
import random
import sys
import tempfile
import threading

from common import Server, events
from tiny_model import write_tiny_model

VOCAB = 512
BIG = [2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, -1, -2, -2**63, -2**63 - 1]
WRONG = ["7", "", [], {}, [None], True, False, None, 1.5]
NUMBERS = [0, 0.0, -0.0, 1, 2, -2, 2.0001, 1e-4, 1e-8, 1e-45, 5e-324, 1e308, -1e308, 0.5, *WRONG]
IDS = [[], [0], [VOCAB - 1], [VOCAB], [-1], [10**12], [5, 5, 5], [508], list(range(VOCAB)), ["a"], [1.0], [1.5]]
FIELDS = {
    "temperature": NUMBERS, "top_p": NUMBERS, "min_p": NUMBERS, "presence_penalty": NUMBERS, "frequency_penalty": NUMBERS,
    "repetition_penalty": NUMBERS, "top_k": [0, -1, 1, VOCAB - 1, VOCAB, 9999999, *BIG, *WRONG], "n": [1, 2, 3, 5, 0, 129, *BIG, *WRONG],
    "seed": [0, 7, *BIG, *WRONG], "stop": ["a", ["a", "b"], ["a"] * 5, "", [""], "\u00e9", ["e", 3], *WRONG],
    "stop_token_ids": IDS, "allowed_token_ids": IDS, "logprob_token_ids": [*IDS, list(range(129))],
    "bad_words": ["a", ["a"], ["a"] * 129, [""], [" "], ["ab cd", "\u65e5\u672c"], *WRONG],
    "logit_bias": [{}, {"5": 100}, {"5": -1e9}, {"511": 1}, {"512": 1}, {"-1": 5}, {"99999999999": 1}, {"abc": 1}, {"5": "x"}, {"5": None}, *WRONG],
    "min_tokens": [0, 1, 4, 5, *BIG, *WRONG], "ignore_eos": WRONG, "include_stop_str_in_output": WRONG, "skip_special_tokens": WRONG,
    "logprobs": [0, 1, 20, 21, *BIG, *WRONG], "top_logprobs": [0, 1, 20, 21, *BIG, *WRONG], "prompt_logprobs": [0, 1, 20, 21, *BIG, *WRONG],
    "echo": WRONG, "truncate_prompt_tokens": [1, 5, -1, 0, 65, *BIG, *WRONG], "truncation_side": ["left", "right", "up", *WRONG],
    "add_special_tokens": WRONG, "priority": [0, *BIG, *WRONG], "cache_salt": ["s", "", "a@b", "x" * 129, *WRONG],
    "return_token_ids": WRONG, "return_tokens_as_token_ids": WRONG, "stream_options": [{}, {"include_usage": True}, {"include_usage": 1}, *WRONG],
    "suffix": ["x", *WRONG], "use_beam_search": WRONG, "response_format": [{"type": "text"}, {"type": "json_object"}, {"type": "x"}, *WRONG],
    "user": WRONG, "request_id": ["id", "bad id\n", *WRONG], "best_of": BIG, "length_penalty": NUMBERS, "nonsense": WRONG,
}
ENDPOINTS = {
    "/v1/completions": ("max_tokens", [{"prompt": "Hello"}, {"prompt": ["a", "b"]}, {"prompt": [1, 2, 3]}, {"prompt": [[1], [2, 3]]},
                                       {"prompt": ""}, {"prompt": []}, {"prompt": [[]]}, {"prompt": [VOCAB]}, {"prompt": [-1]}, {"prompt": 5}]),
    "/v1/chat/completions": ("max_completion_tokens", [{"messages": [{"role": "user", "content": "Hello"}]}]),
    "/v1/responses": ("max_output_tokens", [{"input": "Hello"}]),
    "/v1/messages": ("max_tokens", [{"messages": [{"role": "user", "content": "Hello"}]}]),
}
NEIGHBOUR = {"prompt": "The neighbour", "max_tokens": 48, "temperature": 1.0, "seed": 3, "ignore_eos": True}


def random_request(rng):
    path = rng.choice(list(ENDPOINTS))
    limit, bodies = ENDPOINTS[path]
    body = dict(rng.choice(bodies)) if rng.random() < 0.3 else dict(bodies[0])
    body.update({"model": "m", limit: rng.choice([4, 4, 4, 0, 1, -1, 65, *BIG, *WRONG]) if rng.random() < 0.15 else 4})
    for name in rng.sample(list(FIELDS), rng.choice([1, 1, 1, 2, 3, 6])):
        body[name] = rng.choice(FIELDS[name])
    if rng.random() < 0.3:
        body["stream"] = True if rng.random() < 0.8 else rng.choice(WRONG)
    return path, body


def check(server, path, body):
    """The status; raises AssertionError if the answer is not one that the interface allows."""
    status, headers, data = server.request("POST", path, body)
    text = data.decode("utf-8")
    assert status in (200, 400), (status, path, body, text)
    if status == 400:
        error = json.loads(text)["error"]
        assert path == "/v1/messages" or error["param"], (path, body, error)
        return "400"
    if not headers["Content-Type"].startswith("text/event-stream"):
        answer = json.loads(text)
        assert "error" not in answer or answer["error"] is None, (path, body, answer)
        return "200"
    failed = [line for line in text.split("\n") if line.startswith("data: {") and '"error":{' in line]
    for line in failed:  # what the engine alone can find
        assert '"code":500' not in line and "api_error" not in line and "server_error" not in line, (path, body, line)
    return "200 stream"


class Neighbour(threading.Thread):
    """Streams the same request again and again until stopped."""

    def __init__(self, server, expected):
        super().__init__()
        self.server, self.expected, self.count, self.stop, self.wrong = server, expected, 0, False, None

    def run(self):
        while not self.stop and self.wrong is None:
            text = stream_text(self.server, NEIGHBOUR)
            self.count += 1
            if text != self.expected:
                self.wrong = text


def stream_text(server, body):
    connection, answer = server.stream("/v1/completions", model="m", **body)
    parts = list(events(answer))
    connection.close()
    assert parts.pop() == "[DONE]"
    return "".join(part["choices"][0]["text"] for part in parts)


def run(requests, seed=1):
    """{outcome: how often}; raises AssertionError on the first wrong answer."""
    rng = random.Random(seed)
    outcomes = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_model(folder)
        with Server("--load-format", "dummy", "--max-model-len", "64", "--disable-access-log", "--log-level", "warning", model=model) as server:
            neighbour = Neighbour(server, stream_text(server, NEIGHBOUR))
            neighbour.start()
            try:
                for _ in range(requests):
                    outcomes[check(server, *random_request(rng))] += 1
            finally:
                neighbour.stop = True
                neighbour.join()
            assert neighbour.wrong is None, (neighbour.wrong, neighbour.expected)
            assert server.wait_quiet(), "something is left in the engine"
            assert "ERROR" not in server.log_text(), server.log_text()
            outcomes["streams beside them, unchanged"] = neighbour.count
    return outcomes


if __name__ == "__main__":
    for outcome, count in run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1).items():
        print(f"{count:7} {outcome}")
