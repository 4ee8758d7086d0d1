"""What a request says decides its text: whatever its form (stream or not), its neighbours and the pool's size. On a tiny model, whose tokens are
mostly pieces of characters."""

import concurrent.futures
import json
import random
import tempfile
import unittest

import sampling_table
from common import Server, events
from tiny_model import write_tiny_model

PROMPTS = ["The neighbour", "Schreibe: Größe, Übung", "日本語で書いてください:", "emoji 😀 👩‍👩‍👧", "עברית و العربية", "e\u0301 \u1100\u1161", "\U0001F1E9\U0001F1EA", "x"]


class TinyServer(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.server = Server("--load-format", "dummy", "--disable-access-log", *cls.flags, model=write_tiny_model(folder.name)).__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def complete(self, **body):
        status, answer = self.server.post("/v1/completions", model="m", **body)
        self.assertEqual(status, 200, answer)
        return answer

    def texts(self, **body):
        return [choice["text"] for choice in self.complete(**body)["choices"]]

    def at_once(self, bodies):
        """The texts of each, all running together."""
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(lambda body: self.texts(**body), bodies))


def pieces(server, path, body):
    """What a stream says: {choice: text}, {choice: finish}."""
    texts, finishes = {}, {}
    connection, answer = server.stream(path, model="m", **body)
    for event in events(answer):
        if event == "[DONE]":
            continue
        if path == "/v1/messages":
            texts[0] = texts.get(0, "") + event.get("delta", {}).get("text", "")
            if event["type"] == "message_delta":
                finishes.setdefault(0, []).append(event["delta"]["stop_reason"])
        elif path == "/v1/responses":
            texts[0] = texts.get(0, "") + (event["delta"] if event["type"] == "response.output_text.delta" else "")
            if event["type"] == "response.completed":
                finishes.setdefault(0, []).append(event["response"]["status"])
        else:
            for choice in event["choices"]:
                text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
                texts[choice["index"]] = texts.get(choice["index"], "") + text
                if choice["finish_reason"]:
                    finishes.setdefault(choice["index"], []).append(choice["finish_reason"])
    connection.close()
    return texts, finishes


def whole(server, path, body):
    status, answer = server.post(path, model="m", **body)
    assert status == 200, answer
    if path == "/v1/messages":
        return {0: answer["content"][0]["text"]}, {0: [answer["stop_reason"]]}
    if path == "/v1/responses":
        return {0: answer["output"][0]["content"][0]["text"]}, {0: [answer["status"]]}
    return ({c["index"]: c["text"] if "text" in c else c["message"]["content"] for c in answer["choices"]},
            {c["index"]: [c["finish_reason"]] for c in answer["choices"]})


def random_bodies(rng):
    """(path, body) of one request for each endpoint."""
    prompt = "".join(rng.choice(PROMPTS) for _ in range(rng.randint(1, 3)))
    sampling = {"temperature": rng.choice([0.5, 1.0, 1.5]), "seed": rng.randrange(2**31), "top_p": rng.choice([1.0, 0.9])}
    stop = rng.choice([[], ["e"], ["th", "\ufffd"], ["\u00e9", "in", "zz"]])
    include = {"include_stop_str_in_output": rng.random() < 0.3}
    chat = [{"role": "user", "content": prompt}]
    limit = rng.randint(1, 32)
    yield "/v1/completions", {"prompt": prompt, "n": 2, "max_tokens": limit, "stop": stop, **include, **sampling}
    yield "/v1/chat/completions", {"messages": chat, "n": 2, "max_tokens": limit, "stop": stop, **include, **sampling}
    yield "/v1/messages", {"messages": chat, "max_tokens": limit, "stop_sequences": stop, **include, **sampling}
    yield "/v1/responses", {"input": prompt, "max_output_tokens": limit, "stop": stop, **include, **sampling}


class Texts(TinyServer):
    flags = ("--max-model-len", "512")

    def test_joined_deltas_are_the_whole_text(self):
        rng = random.Random(4)
        for _ in range(25):
            for path, body in random_bodies(rng):
                self.assertEqual(pieces(self.server, path, body), whole(self.server, path, body), (path, body))

    def test_seeds_alone_and_under_load(self):
        body = {"prompt": "Once", "max_tokens": 24, "n": 4, "seed": 11, "temperature": 1.0}
        alone = self.texts(**body)
        self.assertEqual(len(set(alone)), 4)
        load = [{"prompt": PROMPTS[i % len(PROMPTS)] * 3, "max_tokens": 40, "seed": i} for i in range(12)]
        together = self.at_once([*load, body, body, *load])
        self.assertEqual(together[len(load)], alone)
        self.assertEqual(together[len(load) + 1], alone)

    def test_seed_values(self):
        for seed in (0, 2**63 - 1, -2**63, 7):
            self.assertEqual(*(self.texts(prompt="a", seed=seed, n=2) for _ in range(2)))
        for seed in (2**63, 2**64, -2**63 - 1, 1.5, "7", True, 10**30):
            status, answer = self.server.post("/v1/completions", prompt="a", seed=seed)
            self.assertEqual((status, answer["error"]["param"]), (400, "seed"))
        self.complete(prompt="a", seed=None)

    def test_kinds_of_sampling_in_one_batch(self):
        kinds = [{"temperature": 0}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}, {"top_k": 9999999}, {"top_k": 511},
                 {"repetition_penalty": 1.5}, {"allowed_token_ids": [5, 6, 7, 8]}, {"logit_bias": {"9": 100}, "top_k": 3}]
        bodies = [{"prompt": "Same", "max_tokens": 16, "seed": 3, "ignore_eos": True, **kind} for kind in kinds]
        self.assertEqual(self.at_once(bodies), [self.texts(**body) for body in bodies])
        status, answer = self.server.post("/v1/completions", prompt="a", top_k=-2)
        self.assertEqual((status, answer["error"]["param"]), (400, "top_k"))

    def test_rules_on_tokens(self):
        def ids(**body):
            return self.complete(prompt="a", max_tokens=8, ignore_eos=True, return_token_ids=True, seed=1, **body)["choices"][0]["token_ids"]
        self.assertLessEqual(set(ids(allowed_token_ids=[40, 41])), {40, 41})
        self.assertEqual(set(ids(logit_bias={"77": 100})), {77})
        stopped = self.complete(prompt="a", max_tokens=8, logit_bias={"77": 100}, stop_token_ids=[77], min_tokens=0)["choices"][0]
        self.assertEqual((stopped["finish_reason"], stopped["stop_reason"], stopped["text"]), ("stop", 77, ""))
        late = self.complete(prompt="a", max_tokens=8, allowed_token_ids=[77, 78], logit_bias={"77": 100}, stop_token_ids=[77], min_tokens=3)
        self.assertEqual(late["usage"]["completion_tokens"], 4)
        status, answer = self.server.post("/v1/completions", prompt="a", allowed_token_ids=[77], stop_token_ids=[77], min_tokens=1)
        self.assertEqual(status, 400, "the request leaves no token")
        self.assertIn("allowed_token_ids", answer["error"]["message"])
        status, answer = self.server.post("/v1/completions", prompt="a", repetition_penalty=5e-324)  # 0 in single precision
        self.assertEqual((status, answer["error"]["param"]), (400, "repetition_penalty"))

    def test_chosen_log_probabilities(self):
        body = {"prompt": "a", "max_tokens": 3, "seed": 1, "ignore_eos": True, "return_tokens_as_token_ids": True}
        every = self.server.post("/v1/completions", logprobs=20, **body)[1]["choices"][0]["logprobs"]
        chosen = [int(name.removeprefix("token_id:")) for name in list(every["top_logprobs"][0])[:3]]
        some = self.complete(logprob_token_ids=chosen, **body)["choices"][0]["logprobs"]
        self.assertEqual(some["token_logprobs"], every["token_logprobs"])
        for i, name in enumerate(f"token_id:{id}" for id in chosen):
            self.assertEqual(some["top_logprobs"][0][name], every["top_logprobs"][0][name])
            self.assertEqual(list(some["top_logprobs"][0])[i], name)
        chat = self.server.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}], max_tokens=1, logprobs=True, logprob_token_ids=[5, 7])
        self.assertEqual([bytes(t["bytes"]) for t in chat[1]["choices"][0]["logprobs"]["content"][0]["top_logprobs"]], [b"\x05", b"\x07"])

    def test_scores_of_prompts(self):
        for limit in (0, 1):
            for stream in (False, True):
                body = {"prompt": [[1, 2, 3, 4], [5, 6]], "max_tokens": limit, "echo": True, "logprobs": 5, "temperature": 0}
                if stream:
                    connection, answer = self.server.stream("/v1/completions", **body)
                    choices = [event["choices"][0] for event in events(answer) if event != "[DONE]"]
                    connection.close()
                else:
                    choices = self.complete(**body)["choices"]
                for index, length in ((0, 4), (1, 2)):
                    parts = [c["logprobs"] for c in choices if c["index"] == index]
                    values = [v for part in parts for v in part["token_logprobs"]]
                    offsets = [v for part in parts for v in part["text_offset"]]
                    self.assertEqual(len(values), length + limit)
                    self.assertIsNone(values[0])
                    self.assertTrue(all(v < 0 for v in values[1:]))
                    self.assertEqual(offsets, sorted(offsets))

    def test_shapes_of_requests(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "return_prompt_text": True}
        text = self.server.post("/v1/chat/completions", **chat)[1]["prompt_text"]
        shown = self.server.post("/v1/chat/completions", **chat, tools=[tool], tool_choice="none")[1]["prompt_text"]
        self.assertNotIn('"name"', text)
        self.assertIn('"name": "f"', shown)
        counted = self.server.post("/tokenize", messages=chat["messages"], tools=[tool])[1]["count"]
        self.assertGreater(counted, self.server.post("/tokenize", messages=chat["messages"])[1]["count"])
        for param, more in [("tools", {"tools": [tool]}), ("tools", {"tools": []}), ("tool_choice", {"tool_choice": "required"}),
                            ("tool_choice", {"tool_choice": 5}), ("reasoning_effort", {"reasoning_effort": "huge"}),
                            ("structured_outputs", {"structured_outputs": {"regex": "a"}}), ("max_tokens", {"max_tokens": 0, "max_completion_tokens": 1})]:
            status, answer = self.server.post("/v1/chat/completions", **{**chat, **more})
            self.assertEqual((status, answer["error"]["param"]), (400, param), answer)

    def test_two_bos_are_logged_once(self):
        # This tokenizer adds none, so a text with one BOS is as it should be.
        self.complete(prompt="<|endoftext|>a", max_tokens=1)
        self.assertNotIn("BOS twice", self.server.log_text())
        for _ in range(2):
            self.complete(prompt="<|endoftext|><|endoftext|>a", max_tokens=1)
        self.assertEqual(self.server.log_text().count("BOS twice"), 1)


class SmallPool(TinyServer):
    flags = ("--max-model-len", "160", "--block-size", "16", "--num-gpu-blocks-override", "10", "--scheduling-policy", "priority")

    def test_priorities_in_a_pool_that_is_too_small(self):
        for n in (1, 2):
            bodies = [{"prompt": list(range(i, i + 20)), "max_tokens": 28, "n": n, "seed": i, "temperature": 1.0, "ignore_eos": True, "priority": 5}
                      for i in range(3)]
            bodies.append({**bodies[0], "seed": 9, "priority": -10})
            alone = [self.texts(**body) for body in bodies]
            for _ in range(3):
                self.assertEqual(self.at_once(bodies), alone)
        self.assertGreater(self.server.metric("vllm:num_preemptions_total"), 0)
        self.assertTrue(self.server.wait_quiet())


class Table(unittest.TestCase):
    def test_odd_values(self):
        outcomes = sampling_table.run(400, seed=2)
        self.assertGreater(outcomes["400"], 50)
        self.assertGreater(outcomes["200"], 50)
        self.assertGreater(outcomes["streams beside them, unchanged"], 0)


class Description(TinyServer):
    flags = ("--enable-tokenizer-info-endpoint",)

    def test_routes_are_those_of_the_log(self):
        status, _, data = self.server.request("GET", "/openapi.json")
        self.assertEqual(status, 200)
        described = json.loads(data)
        logged = {line.split("Route: ")[1].split(",")[0] for line in self.server.log_text().splitlines() if "Route: " in line}
        self.assertEqual(set(described["paths"]), logged)
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                self.assertIn("summary", operation, f"{method} {path} is not in openapi.json")
        page = self.server.request("GET", "/docs")[2].decode()
        for path in logged:
            self.assertIn(f"<code>{path}</code>", page)
        self.assertNotIn("<script", page)

    def test_tokenizer_info(self):
        info = json.loads(self.server.request("GET", "/tokenizer_info")[2])
        self.assertEqual((info["eos_token"], info["pad_token"]), ("<|endoftext|>", "<|pad|>"))
        self.assertIn("<|im_start|>", info["chat_template"])


if __name__ == "__main__":
    unittest.main()
