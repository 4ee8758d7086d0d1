"""The OpenAI client against the server, streaming and not; and what it has no call for."""

import json
import unittest

from common import Server, events

try:
    import openai
except ImportError:
    openai = None

GREEDY = {"model": "m", "temperature": 0}
MESSAGES = [{"role": "user", "content": "Name three colours."}]


@unittest.skipIf(openai is None, "the openai package is not installed")
class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "1024", "--enable-prompt-tokens-details", "--enable-tokenizer-info-endpoint",
                            "--enable-request-id-headers").__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="EMPTY", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([m.id for m in models], ["m"])
        self.assertEqual(models[0].max_model_len, 1024)

    def test_chat_stream_is_whole(self):
        whole = self.client.chat.completions.create(**GREEDY, messages=MESSAGES, max_tokens=40)
        self.assertTrue(whole.id.startswith("chatcmpl-"))
        self.assertIn(whole.choices[0].finish_reason, ("stop", "length"))
        text, finishes, usage = "", [], None
        for chunk in self.client.chat.completions.create(**GREEDY, messages=MESSAGES, max_tokens=40, stream=True,
                                                         stream_options={"include_usage": True}):
            self.assertEqual(chunk.object, "chat.completion.chunk")
            for choice in chunk.choices:
                text += choice.delta.content or ""
                if choice.finish_reason:
                    finishes.append(choice.finish_reason)
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(finishes, [whole.choices[0].finish_reason])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)

    def test_chat_default_is_the_rest_of_the_context(self):
        answer = self.client.chat.completions.create(**GREEDY, messages=MESSAGES, extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.total_tokens, 1024)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_completion_prompts_of_every_shape(self):
        ids = self.server.post("/tokenize", prompt="The sky is")[1]["tokens"]
        kwargs = {**GREEDY, "max_tokens": 6}
        first = self.client.completions.create(**kwargs, prompt="The sky is").choices[0].text
        self.assertEqual(self.client.completions.create(**kwargs, prompt=ids).choices[0].text, first)
        several = self.client.completions.create(**kwargs, prompt=["The sky is", "One plus one"])
        self.assertEqual([c.index for c in several.choices], [0, 1])
        self.assertEqual(several.choices[0].text, first)
        lists = self.client.completions.create(**kwargs, prompt=[ids, ids])
        self.assertEqual([c.text for c in lists.choices], [first, first])
        self.assertEqual(lists.usage.completion_tokens, 12)

    def test_seeds(self):
        def texts():
            answer = self.client.completions.create(model="m", prompt="Once", max_tokens=12, n=3, seed=11, temperature=1.0)
            return [c.text for c in answer.choices]
        first = texts()
        self.assertEqual(len(set(first)), 3)
        self.assertEqual(texts(), first)

    def test_stop(self):
        full = self.client.completions.create(**GREEDY, prompt="1, 2, 3, 4,", max_tokens=24)
        self.assertIn("7", full.choices[0].text)
        cut = self.client.completions.create(**GREEDY, prompt="1, 2, 3, 4,", max_tokens=24, stop=["7", "never"])
        self.assertEqual(cut.choices[0].text, full.choices[0].text.split("7")[0])
        self.assertEqual(cut.choices[0].finish_reason, "stop")
        self.assertEqual(cut.choices[0].stop_reason, "7")

    def test_logprobs(self):
        answer = self.client.completions.create(**GREEDY, prompt="The capital of France is", max_tokens=4, logprobs=3)
        found = answer.choices[0].logprobs
        self.assertEqual("".join(found.tokens), answer.choices[0].text)
        for token, value, top in zip(found.tokens, found.token_logprobs, found.top_logprobs):
            self.assertEqual(max(top.values()), value)
            self.assertIn(token, top)
            self.assertEqual(len(top), 3)
        chat = self.client.chat.completions.create(**GREEDY, messages=MESSAGES, max_tokens=3, logprobs=True, top_logprobs=2)
        content = chat.choices[0].logprobs.content
        self.assertEqual(len(content), 3)
        self.assertEqual(bytes(content[0].bytes).decode(), content[0].token)
        self.assertEqual(content[0].top_logprobs[0].logprob, content[0].logprob)

    def test_likelihoods(self):
        ids = self.server.post("/tokenize", prompt="The capital of France is Paris.")[1]["tokens"]
        with_token = self.client.completions.create(**GREEDY, prompt=[ids], max_tokens=1, logprobs=1, echo=True).choices[0]
        self.assertEqual(len(with_token.logprobs.tokens), len(ids) + 1)
        for _ in range(2):  # a cached prompt has them too
            only = self.client.completions.create(**GREEDY, prompt=[ids], max_tokens=0, logprobs=1, echo=True)
            choice = only.choices[0]
            self.assertEqual(choice.text, "The capital of France is Paris.")
            self.assertEqual(choice.finish_reason, "length")
            self.assertEqual(only.usage.completion_tokens, 0)
            self.assertIsNone(choice.logprobs.token_logprobs[0])
            self.assertIsNone(choice.logprobs.top_logprobs[0])
            self.assertEqual(choice.logprobs.text_offset, sorted(choice.logprobs.text_offset))
            for a, b in zip(choice.logprobs.token_logprobs[1:], with_token.logprobs.token_logprobs[1:]):
                self.assertAlmostEqual(a, b, places=3)

    def test_prompt_logprobs(self):
        answer = self.server.post("/v1/completions", model="m", prompt="a b c", max_tokens=1, prompt_logprobs=1)[1]
        rows = answer["choices"][0]["prompt_logprobs"]
        self.assertEqual(len(rows), answer["usage"]["prompt_tokens"])
        self.assertIsNone(rows[0])
        self.assertTrue(all("decoded_token" in entry for entry in rows[1].values()))

    def test_cached_tokens(self):
        prompt = "A long shared beginning. " * 12
        self.client.completions.create(**GREEDY, prompt=prompt, max_tokens=1)
        again = self.client.completions.create(**GREEDY, prompt=prompt, max_tokens=1)
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, 16)

    def test_token_ids(self):
        answer = self.server.post("/v1/completions", **GREEDY, prompt="x", max_tokens=3, return_token_ids=True)[1]
        self.assertEqual(len(answer["choices"][0]["token_ids"]), 3)
        text = self.server.post("/detokenize", tokens=answer["choices"][0]["token_ids"])[1]["prompt"]
        self.assertEqual(text, answer["choices"][0]["text"])

    def test_multilingual_streams_are_whole(self):
        for prompt in ("Schreibe: Größe, Übung", "日本語で書いてください:", "emoji 😀 😀 😀"):
            body = {"model": "m", "prompt": prompt, "max_tokens": 40, "temperature": 1.3, "seed": 5}
            whole = self.server.post("/v1/completions", **body)[1]["choices"][0]["text"]
            connection, answer = self.server.stream("/v1/completions", **body)
            all_events = list(events(answer))
            connection.close()
            self.assertEqual(all_events[-1], "[DONE]")
            self.assertEqual("".join(e["choices"][0]["text"] for e in all_events[:-1]), whole)

    def test_tokenizer_routes(self):
        status, info = 0, {}
        status, _, data = self.server.request("GET", "/tokenizer_info")
        info = json.loads(data)
        self.assertEqual(status, 200)
        self.assertTrue(info["eos_token"])
        text = "Hello, wörld! 😀"
        tokens = self.server.post("/tokenize", prompt=text, return_token_strs=True)[1]
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(len(tokens["token_strs"]), tokens["count"])
        self.assertEqual(self.server.post("/detokenize", tokens=tokens["tokens"])[1]["prompt"], text)
        chat = self.server.post("/tokenize", messages=MESSAGES)[1]
        used = self.client.chat.completions.create(**GREEDY, messages=MESSAGES, max_tokens=1).usage.prompt_tokens
        self.assertEqual(chat["count"], used)

    def test_request_id(self):
        _, headers, data = self.server.request("POST", "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 1},
                                               {"X-Request-Id": "abc-7"})
        self.assertEqual(json.loads(data)["id"], "cmpl-abc-7")
        self.assertEqual(headers["X-Request-Id"], "abc-7")

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.completions.create(model="nope", prompt="x")
        self.assertIn("`m`", str(caught.exception))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="m", prompt="x", temperature=7)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError):
            self.client.completions.create(model="m", prompt="word " * 5000)
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model="m", messages=MESSAGES, response_format={"type": "json_object"})


if __name__ == "__main__":
    unittest.main()
