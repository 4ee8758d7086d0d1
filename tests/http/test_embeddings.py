"""/v1/embeddings through the OpenAI client: every shape of input, encodings, dimensions, truncation, limits, --runner pooling."""

import array
import math
import unittest

from common import Server

try:
    import openai
except ImportError:
    openai = None

LONG_TEXT = "The quick brown fox jumps over the lazy dog. " * 60


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)


@unittest.skipIf(openai is None, "the openai package is not installed")
class Embeddings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "256", "--dtype", "float32", "--enable-prompt-tokens-details").__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="EMPTY", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def embed(self, value, **options):
        """The vectors as float32: what JSON has are the fewest digits that give these back."""
        answer = self.client.embeddings.create(model="m", input=value, **options)
        return [array.array("f", item.embedding) for item in answer.data]

    def refused(self, **body):
        status, answer = self.server.post("/v1/embeddings", **body)
        self.assertEqual(status, 400, answer)
        return answer["error"]

    def test_alone_is_in_a_batch_and_texts_are_ids(self):
        texts = ["The sky is blue.", "Paris is the capital of France.", "1 + 1", "naïve café 東京 🎉"]
        batch = self.embed(texts, encoding_format="float")
        for text, vector in zip(texts, batch):
            self.assertEqual(len(vector), 576)
            self.assertAlmostEqual(math.hypot(*vector), 1, places=6)
            self.assertEqual(self.embed(text, encoding_format="float"), [vector])
            self.assertEqual(self.embed(text), [vector])  # this client asks for base64 and decodes it
            ids = self.server.post("/tokenize", prompt=text)[1]["tokens"]
            self.assertEqual(self.embed([ids], encoding_format="float"), [vector])
            self.assertEqual(self.embed(ids, encoding_format="float"), [vector])
        answer = self.client.embeddings.create(model="m", input=texts[:2])
        self.assertEqual([item.index for item in answer.data], [0, 1])
        counts = [self.server.post("/tokenize", prompt=text)[1]["count"] for text in texts[:2]]
        self.assertEqual(answer.usage.prompt_tokens, sum(counts))
        self.assertEqual(answer.usage.total_tokens, sum(counts))

    def test_conversation_goes_through_the_template(self):
        messages = [{"role": "user", "content": "Name three colours."}]
        status, answer = self.server.post("/v1/embeddings", messages=messages)
        self.assertEqual(status, 200, answer)
        ids = self.server.post("/tokenize", messages=messages, add_generation_prompt=False)[1]["tokens"]
        self.assertEqual(self.embed(ids), [array.array("f", answer["data"][0]["embedding"])])
        answer = self.server.post("/v1/embeddings", messages=messages, truncate_prompt_tokens=5)[1]
        self.assertEqual(self.embed(ids[:5]), [array.array("f", answer["data"][0]["embedding"])])

    def test_dimensions_and_normalization(self):
        whole = self.embed("Hello there", extra_body={"normalize": False})[0]
        self.assertGreater(abs(math.hypot(*whole) - 1), 0.1)
        short = self.embed("Hello there", dimensions=16)[0]
        self.assertEqual(len(short), 16)
        self.assertAlmostEqual(math.hypot(*short), 1, places=6)
        self.assertGreater(cosine(short, whole[:16]), 1 - 1e-6)
        for dimensions in (0, -1, 577, "8"):
            self.assertEqual(self.refused(input="a", dimensions=dimensions)["param"], "dimensions")

    def test_truncation(self):
        self.assertIn("256", self.refused(input=LONG_TEXT)["message"])
        ids = self.server.post("/tokenize", prompt=LONG_TEXT)[1]["tokens"]
        for tokens, kept in ((-1, ids[:256]), (10, ids[:10])):
            body = {"truncate_prompt_tokens": tokens}
            self.assertEqual(self.embed(LONG_TEXT, extra_body=body), self.embed(kept))
        body = {"truncate_prompt_tokens": 10, "truncation_side": "left"}
        self.assertEqual(self.embed(LONG_TEXT, extra_body=body), self.embed(ids[-10:]))

    def test_cached_beginnings_give_the_same_vector(self):
        ids = self.server.post("/tokenize", prompt=LONG_TEXT)[1]["tokens"][7:107]
        first = self.client.embeddings.create(model="m", input=ids, encoding_format="float")
        second = self.client.embeddings.create(model="m", input=ids, encoding_format="float")
        self.assertEqual(second.usage.prompt_tokens_details["cached_tokens"], 96)
        self.assertEqual(second.data[0].embedding, first.data[0].embedding)

    def test_many_inputs_at_once(self):
        texts = [f"text number {i}" for i in range(300)]
        vectors = self.embed(texts, dimensions=8)
        self.assertEqual(len(vectors), 300)
        self.assertEqual(vectors[299:], self.embed(texts[299], dimensions=8))

    def test_bad_requests_are_named(self):
        for body, param in (({}, "input"), ({"input": []}, "input"), ({"input": [[]]}, "prompt"), ({"input": ""}, "prompt"),
                            ({"input": [1 << 20]}, "prompt"), ({"input": "a", "encoding_format": "hex"}, "encoding_format")):
            self.assertEqual(self.refused(**body)["param"], param, body)
        self.assertEqual(self.server.post("/v1/embeddings", input="a", model="other")[0], 404)

    def test_pooling_server_gives_means_and_no_text(self):
        config = '{"pooling_type": "MEAN", "normalize": false}'
        with Server("--max-model-len", "256", "--dtype", "float32", "--runner", "pooling", "--pooler-config", config) as server:
            ids = server.post("/tokenize", prompt="One two three four")[1]["tokens"]
            status, answer = server.post("/v1/embeddings", input=[ids[:n + 1] for n in range(len(ids))])
            self.assertEqual(status, 200, answer)
            means = [item["embedding"] for item in answer["data"]]
            # State n of a causal model does not change with what follows, so means give the states back.
            for n in range(1, len(ids)):
                last = self.embed(ids[:n + 1], extra_body={"normalize": False})[0]
                ours = [(n + 1) * x - n * y for x, y in zip(means[n], means[n - 1])]
                self.assertGreater(cosine(ours, last), 1 - 1e-6)
            for path, body in (("/v1/completions", {"prompt": "a"}),
                               ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
                status, answer = server.post(path, **body)
                self.assertEqual((status, answer["error"]["type"]), (501, "NotImplementedError"))


if __name__ == "__main__":
    unittest.main()
