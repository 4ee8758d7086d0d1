"""Anthropic's client against /v1/messages, streaming and not."""

import json
import unittest

from common import Server

try:
    import anthropic
except ImportError:
    anthropic = None

MESSAGES = [{"role": "user", "content": "Name three colours."}]
GREEDY = {"model": "m", "max_tokens": 16, "extra_body": {"temperature": 0}}  # the client has no such argument


@unittest.skipIf(anthropic is None, "the anthropic package is not installed")
class AnthropicClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "256").__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{cls.server.port}", api_key="EMPTY", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def test_stream_is_whole(self):
        whole = self.client.messages.create(**GREEDY, messages=MESSAGES)
        self.assertTrue(whole.id.startswith("msg_"))
        self.assertEqual((whole.type, whole.role, whole.model), ("message", "assistant", "m"))
        self.assertEqual(whole.stop_reason, "max_tokens" if whole.usage.output_tokens == 16 else "end_turn")
        with self.client.messages.stream(**GREEDY, messages=MESSAGES) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertTrue(text)
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage, whole.usage)

    def test_order_of_events(self):
        types = [event.type for event in self.client.messages.create(**GREEDY, messages=MESSAGES, stream=True)]
        self.assertEqual(types[:2], ["message_start", "content_block_start"])
        self.assertEqual(types[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(types[2:-3]) - {"ping"}, {"content_block_delta"})

    def test_is_the_chat_of_the_other_endpoint(self):
        chat = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hi"}]
        expected = self.server.post("/v1/chat/completions", messages=chat, model="m", max_tokens=16, temperature=0)[1]
        for system in ("You are brief.", [{"type": "text", "text": "You are brief."}]):
            answer = self.client.messages.create(**GREEDY, system=system, messages=[
                {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}])
            self.assertEqual(answer.content[0].text, expected["choices"][0]["message"]["content"])
            self.assertEqual(answer.usage.input_tokens, expected["usage"]["prompt_tokens"])

    def test_last_turn_of_the_assistant_is_continued(self):
        answer = self.client.messages.create(**{**GREEDY, "max_tokens": 6}, messages=[
            {"role": "user", "content": "Count to ten."}, {"role": "assistant", "content": "1, 2, 3, 4, 5, 6,"}])
        self.assertIn("7", answer.content[0].text)

    def test_stop_sequence(self):
        full = self.client.messages.create(**GREEDY, messages=MESSAGES).content[0].text
        stop = full.split()[3]
        answer = self.client.messages.create(**GREEDY, messages=MESSAGES, stop_sequences=[stop])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", stop))
        self.assertEqual(answer.content[0].text, full[:full.index(stop)])

    def test_count_tokens(self):
        counted = self.client.messages.count_tokens(model="m", system="You are brief.", messages=MESSAGES)
        used = self.client.messages.create(**{**GREEDY, "max_tokens": 1}, system="You are brief.", messages=MESSAGES)
        self.assertEqual(counted.input_tokens, used.usage.input_tokens)
        long = [{"role": "user", "content": "word " * 1000}]
        self.assertGreater(self.client.messages.count_tokens(model="m", messages=long).input_tokens, 1000)

    def test_errors(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.messages.create(**{**GREEDY, "model": "nope"}, messages=MESSAGES)
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
        tool = {"name": "f", "input_schema": {"type": "object"}}
        for name, more in [("max_tokens", {"max_tokens": 0}), ("max_tokens", {"max_tokens": 5000}),
                           ("messages", {"messages": []}), ("image", {"messages": [{"role": "user", "content": [image]}]}),
                           ("context length", {"messages": [{"role": "user", "content": "word " * 300}]}),
                           ("temperature", {"extra_body": {"temperature": 3.0}}), ("stop", {"stop_sequences": [""]}),
                           ("tools", {"tools": [tool]}), ("thinking", {"thinking": {"type": "enabled", "budget_tokens": 1024}})]:
            with self.subTest(name), self.assertRaises(anthropic.BadRequestError) as caught:
                self.client.messages.create(**{**GREEDY, "messages": MESSAGES, **more})
            error = caught.exception.body
            self.assertEqual((error["type"], error["error"]["type"]), ("error", "invalid_request_error"))
            self.assertIn(name, error["error"]["message"])
        for missing in ("model", "max_tokens", "messages"):
            body = {"model": "m", "max_tokens": 1, "messages": MESSAGES}
            del body[missing]
            status, _, data = self.server.request("POST", "/v1/messages", body)
            self.assertEqual(status, 400)
            self.assertIn(f"{missing}: field required", json.loads(data)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
