"""The OpenAI client's Responses API against /v1/responses, streaming and not."""

import unittest

from common import Server

try:
    import openai
except ImportError:
    openai = None

GREEDY = {"model": "m", "temperature": 0, "max_output_tokens": 12}


@unittest.skipIf(openai is None, "the openai package is not installed")
class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "256").__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="EMPTY", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def test_stream_is_whole(self):
        whole = self.client.responses.create(**GREEDY, input="Name three colours.", metadata={"run": "7"})
        self.assertTrue(whole.id.startswith("resp_"))
        self.assertEqual(whole.metadata, {"run": "7"})
        if whole.usage.output_tokens == 12:
            self.assertEqual((whole.status, whole.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        else:
            self.assertEqual(whole.status, "completed")
        with self.client.responses.stream(**GREEDY, input="Name three colours.") as stream:
            events = list(stream)
            final = stream.get_final_response()
        self.assertEqual([e.type for e in events[:4]], ["response.created", "response.in_progress",
                                                        "response.output_item.added", "response.content_part.added"])
        self.assertEqual([e.type for e in events[-4:]], ["response.output_text.done", "response.content_part.done",
                                                         "response.output_item.done", "response.completed"])
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual(final.output_text, whole.output_text)
        self.assertEqual(final.status, whole.status)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        self.assertEqual(final.usage.total_tokens, whole.usage.total_tokens)

    def test_is_the_chat_of_the_other_endpoint(self):
        chat = self.client.chat.completions.create(model="m", temperature=0, max_tokens=12, messages=[
            {"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Who are you?"}])
        answer = self.client.responses.create(**GREEDY, instructions="You are brief.", input=[
            {"role": "user", "content": "Hi"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "Who are you?"}]}])
        self.assertEqual(answer.output_text, chat.choices[0].message.content)
        self.assertEqual(answer.usage.input_tokens, chat.usage.prompt_tokens)
        self.assertEqual(answer.instructions, "You are brief.")

    def test_logprobs(self):
        answer = self.client.responses.create(**{**GREEDY, "max_output_tokens": 3}, input="Hi", top_logprobs=2,
                                              include=["message.output_text.logprobs"])
        logprobs = answer.output[0].content[0].logprobs
        self.assertEqual(len(logprobs), 3)
        self.assertEqual("".join(entry.token for entry in logprobs), answer.output_text)
        for entry in logprobs:
            self.assertEqual(len(entry.top_logprobs), 2)
            self.assertEqual(entry.top_logprobs[0].logprob, entry.logprob)

    def test_truncation(self):
        long = "word " * 300
        with self.assertRaises(openai.BadRequestError):
            self.client.responses.create(**GREEDY, input=long)
        answer = self.client.responses.create(**{**GREEDY, "max_output_tokens": 1}, input=long, truncation="auto")
        self.assertEqual(answer.usage.input_tokens, 255)

    def test_errors(self):
        for param, more in [("previous_response_id", {"previous_response_id": "resp_1"}), ("background", {"background": True}),
                            ("tools", {"tools": [{"type": "function", "name": "f", "parameters": {}}]}),
                            ("text", {"text": {"format": {"type": "json_object"}}}), ("temperature", {"temperature": 3}),
                            ("max_output_tokens", {"max_output_tokens": 0}), ("n", {"extra_body": {"n": 2}}),
                            ("input", {"input": []}), ("input", {"input": [{"type": "function_call_output"}]}),
                            ("messages", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
                            ("metadata", {"metadata": {str(i): "x" for i in range(17)}})]:
            with self.subTest(param), self.assertRaises(openai.BadRequestError) as caught:
                self.client.responses.create(**{**GREEDY, "input": "x", **more})
            self.assertEqual(caught.exception.param, param)


if __name__ == "__main__":
    unittest.main()
