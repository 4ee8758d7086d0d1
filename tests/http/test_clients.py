"""quire's own clients against quire's own server, and a batch in a file."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from common import Server


def quire(*args, code=0):
    done = subprocess.run([os.environ["QUIRE_TEST_BINARY"], *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


class BenchServe(unittest.TestCase):
    def test_counts_are_what_was_asked_for(self):
        with Server("--max-model-len", "512") as server, tempfile.TemporaryDirectory() as folder:
            for backend in ("openai", "openai-chat"):
                quire("bench", "serve", "--backend", backend, "--port", str(server.port), "--random-input-len", "24", "--random-output-len", "6",
                      "--random-range-ratio", "0.5", "--num-prompts", "12", "--max-concurrency", "4", "--temperature", "0",
                      "--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", f"{backend}.json")
                result = json.loads(pathlib.Path(folder, f"{backend}.json").read_text(encoding="utf-8"))
                self.assertEqual((result["completed"], result["failed"]), (12, 0))
                self.assertEqual(sum(result["output_lens"]), result["total_output_tokens"])
                self.assertTrue(all(3 <= n <= 9 for n in result["output_lens"]), result["output_lens"])
                if backend == "openai":  # chat adds its template
                    self.assertTrue(all(12 <= n <= 36 for n in result["input_lens"]), result["input_lens"])
                self.assertLess(result["median_ttft_ms"], result["duration"] * 1000)


class RunBatch(unittest.TestCase):
    def setUp(self):
        for name in ("QUIRE_TEST_BINARY", "QUIRE_TEST_MODEL"):
            if not os.environ.get(name):
                self.skipTest(f"{name} is not set")

    def test_answers_come_in_the_order_of_the_lines(self):
        def line(name, url, **body):
            return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body})

        say = [{"role": "user", "content": "Count to ten."}]
        lines = [
            line("long", "/v1/chat/completions", messages=say, max_tokens=24, temperature=0),
            line("short", "/v1/completions", prompt="The sky is", max_tokens=1, temperature=0),
            "not JSON",
            "",
            line("stream", "/v1/completions", prompt="x", stream=True),
            line("bad", "/v1/completions", prompt="x", max_tokens=-1),
            line("unknown", "/v1/nothing"),
            json.dumps({"custom_id": "get", "method": "GET", "url": "/health"}),
            line("deep", "/v1/completions", prompt="x").replace('"x"', "[" * 200000 + "]" * 200000),
            line("last", "/v1/completions", prompt="The sky is", max_tokens=1, temperature=0),
        ]
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder, "in.jsonl"), pathlib.Path(folder, "out.jsonl")
            source.write_text("\n".join(lines), encoding="utf-8")
            target.write_text("what was there before", encoding="utf-8")
            quire("run-batch", "-i", str(source), "-o", str(target), "--model", os.environ["QUIRE_TEST_MODEL"], "--max-model-len", "256",
                  "--max-inflight", "3")
            entries = [json.loads(text) for text in target.read_text(encoding="utf-8").splitlines()]
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir() if path.suffix == ".tmp"], [])
        self.assertEqual([e["custom_id"] for e in entries], ["long", "short", None, "stream", "bad", "unknown", "get", None, "last"])
        self.assertEqual([e["response"]["status_code"] for e in entries], [200, 200, 400, 400, 400, 404, 400, 400, 200])
        self.assertEqual(entries[0]["response"]["body"]["usage"]["completion_tokens"], 24)
        self.assertEqual(entries[1]["response"]["body"]["choices"], entries[8]["response"]["body"]["choices"])
        for entry in entries:
            self.assertEqual(entry["error"] is None, entry["response"]["status_code"] == 200)
        self.assertIn("max_tokens", entries[4]["error"]["message"])
        self.assertEqual(len({e["id"] for e in entries}), len(entries))

    def test_files_that_are_not_there(self):
        model = os.environ["QUIRE_TEST_MODEL"]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "in.jsonl")
            source.write_text("", encoding="utf-8")
            self.assertIn("--input-file /nonexistent: cannot be read", quire("run-batch", "-i", "/nonexistent", "-o", "x", "--model", model, code=2).stderr)
            self.assertIn("--output-file /nonexistent/x: cannot be written",
                          quire("run-batch", "-i", str(source), "-o", "/nonexistent/x", "--model", model, code=2).stderr)
            self.assertIn("--output-file: is needed", quire("run-batch", "-i", str(source), "--model", model, code=2).stderr)


if __name__ == "__main__":
    unittest.main()
