"""/metrics after known requests, read by Prometheus' own parser; the dashboard's names are there; no work while idle."""

import json
import pathlib
import re
import time
import unittest

from common import Server

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

DASHBOARD = pathlib.Path(__file__).resolve().parents[2] / "docs" / "grafana" / "quire.json"


@unittest.skipIf(text_string_to_metric_families is None, "the prometheus-client package is not installed")
class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "512", "--kv-cache-dtype", "float16").__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.started = time.time()
        cls.drive()
        cls.families = {family.name: family for family in text_string_to_metric_families(cls.text())}

    @classmethod
    def text(cls):
        status, headers, body = cls.server.request("GET", "/metrics")
        assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return body.decode()

    @classmethod
    def drive(cls):
        post = cls.server.post
        prompt = list(range(1000, 1040))
        for _ in range(2):  # 40 + 5 tokens, the second time 32 of them from the cache
            assert post("/v1/completions", prompt=prompt, max_tokens=5, ignore_eos=True, temperature=0)[0] == 200
        # Two choices of 10 + 3 tokens, the first of them too short to be found in the cache by the second.
        assert post("/v1/completions", prompt=prompt[:10], max_tokens=3, ignore_eos=True, n=2, seed=1)[0] == 200
        connection, answer = cls.server.stream("/v1/completions", prompt=prompt[5:13], max_tokens=2, ignore_eos=True)
        answer.read()
        answer.close()
        connection.close()
        assert post("/v1/embeddings", input=[prompt[:7], prompt[20:23]])[0] == 200
        assert post("/v1/completions", prompt=prompt, temperature=3)[0] == 400
        assert post("/v1/nowhere")[0] == 404
        assert cls.server.request("GET", "/v1/models")[0] == 200
        cls.server.wait_quiet()

    def value(self, name, **labels):
        values = [sample.value for family in self.families.values() for sample in family.samples
                  if sample.name == name and labels.items() <= sample.labels.items()]
        self.assertEqual(len(values), 1, f"{name} {labels}")
        return values[0]

    def test_tokens_and_sequences(self):
        for name, value in {
                "num_requests_running": 0, "num_requests_waiting": 0, "kv_cache_usage_perc": 0, "num_preemptions_total": 0,
                "prompt_tokens_total": 40 + 40 + 10 + 10 + 8 + 10, "prompt_tokens_cached_total": 32,
                "generation_tokens_total": 5 + 5 + 3 + 3 + 2, "prefix_cache_queries_total": 118, "prefix_cache_hits_total": 32,
        }.items():
            self.assertEqual(self.value("vllm:" + name, engine="0", model_name="m"), value, name)
        self.assertEqual(self.value("vllm:prompt_tokens_by_source_total", source="local_cache_hit"), 32)
        self.assertEqual(self.value("vllm:prompt_tokens_by_source_total", source="local_compute"), 118 - 32)
        self.assertEqual(self.value("vllm:prompt_tokens_cached_by_source_total", source="device"), 32)
        for reason, count in {"length": 5, "stop": 2, "abort": 0, "error": 0}.items():
            self.assertEqual(self.value("vllm:request_success_total", finished_reason=reason), count)
        for reason in ("capacity", "deferred"):
            self.assertEqual(self.value("vllm:num_requests_waiting_by_reason", reason=reason), 0)
        for reason in ("max_num_queued_reqs", "shutdown"):
            self.assertEqual(self.value("vllm:admission_rejections_total", model_name="m", reason=reason), 0)

    def test_histograms(self):
        def check(name, count, total):
            self.assertEqual(self.value(f"vllm:{name}_count", engine="0"), count, name)
            if total is not None:
                self.assertEqual(self.value(f"vllm:{name}_sum"), total, name)

        check("request_prompt_tokens", 7, 118)
        check("request_generation_tokens", 5, 18)
        check("request_max_num_generation_tokens", 4, 5 + 5 + 3 + 2)
        check("request_params_max_tokens", 4, 5 + 5 + 3 + 2)
        check("request_params_n", 4, 1 + 1 + 2 + 1)
        check("request_prefill_kv_computed_tokens", 7, 118 - 32)
        check("request_num_preemptions", 7, 0)
        check("time_to_first_token_seconds", 5, None)
        check("inter_token_latency_seconds", 18 - 5, None)
        check("request_time_per_output_token_seconds", 5, None)
        for name in ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
                     "request_prefill_time_seconds"):
            check(name, 7, None)
        check("request_decode_time_seconds", 5, None)
        self.assertGreater(self.value("vllm:e2e_request_latency_seconds_sum"), self.value("vllm:time_to_first_token_seconds_sum"))
        # Prompt tokens that were computed, and each generated token but the last of a sequence.
        self.assertEqual(self.value("vllm:iteration_tokens_total_sum"), 118 - 32 + 18 - 5)

    def test_histograms_are_cumulative(self):
        buckets = {"vllm:request_params_n": [1, 2, 5, 10, 20], "vllm:request_prompt_tokens": [1, 2, 5, 10, 20, 50, 100, 200, 500],
                   "http_request_duration_seconds": [.1, .5, 1]}
        seen = 0
        for family in self.families.values():
            self.assertTrue(family.documentation, family.name)
            keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
            self.assertEqual(len(keys), len(set(keys)), family.name)
            if family.type != "histogram":
                continue
            seen += 1
            series = {}
            for sample in family.samples:
                labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                series.setdefault(labels, {}).setdefault(sample.name[len(family.name):], []).append(sample)
            for parts in series.values():
                bounds = [float(sample.labels["le"]) for sample in parts["_bucket"]]
                counts = [sample.value for sample in parts["_bucket"]]
                self.assertEqual(bounds, sorted(bounds))
                self.assertEqual(counts, sorted(counts))
                self.assertEqual((bounds[-1], counts[-1]), (float("inf"), parts["_count"][0].value))
                if family.name in buckets:
                    self.assertEqual(bounds[:-1], buckets[family.name])
        self.assertGreater(seen, 15)

    def test_http(self):
        def requests(handler, method, status):
            return self.value("http_requests_total", handler=handler, method=method, status=status)

        self.assertEqual(requests("/v1/completions", "POST", "2xx"), 4)
        self.assertEqual(requests("/v1/completions", "POST", "4xx"), 1)
        self.assertEqual(requests("/v1/embeddings", "POST", "2xx"), 1)
        self.assertEqual(requests("none", "POST", "4xx"), 1)
        self.assertEqual(requests("/v1/models", "GET", "2xx"), 1)
        self.assertEqual(self.value("http_request_duration_highr_seconds_count"), 8)
        self.assertEqual(self.value("http_request_duration_seconds_count", handler="/v1/completions", method="POST"), 5)
        self.assertEqual(self.value("http_request_size_bytes_count", handler="/v1/completions"), 5)
        self.assertGreater(self.value("http_request_size_bytes_sum", handler="/v1/completions"), 500)
        self.assertGreater(self.value("http_response_size_bytes_sum", handler="/v1/embeddings"), 2 * 576 * 8)
        handlers = {sample.labels["handler"] for sample in self.families["http_requests"].samples}
        self.assertFalse(handlers & {"/metrics", "/health"})

    def test_process_and_settings(self):
        self.assertGreater(self.value("process_resident_memory_bytes"), 50 << 20)
        self.assertEqual(self.value("process_open_fds"), self.server.descriptors() + 1)  # and the connection that asked
        self.assertGreater(self.value("process_cpu_seconds_total"), 0.05)
        self.assertLess(abs(self.value("process_start_time_seconds") - self.started), 60)
        info = self.families["vllm:cache_config_info"].samples[0]
        self.assertEqual(info.value, 1)
        for label, value in {"attention_backend": "PHASED", "block_size": "16", "cache_dtype": "F16", "device": "CPU",
                             "kv_cache_layout": "plain", "enable_prefix_caching": "True"}.items():
            self.assertEqual(info.labels[label], value)

    def test_dashboard_names_what_there_is(self):
        dashboard = json.loads(DASHBOARD.read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(expressions), 15)
        names = {sample.name for family in self.families.values() for sample in family.samples}
        for expression in expressions:
            used = re.findall(r"\b((?:vllm:|http_|process_)\w+)", expression)
            self.assertTrue(used, expression)
            for name in used:
                self.assertIn(name, names, expression)

    def test_a_full_queue_is_counted(self):
        flags = ("--max-num-queued-reqs", "1", "--max-num-seqs", "1")
        with Server("--max-model-len", "4096", *flags) as server:
            streams = [server.stream("/v1/completions", prompt="a", max_tokens=4000, ignore_eos=True) for _ in range(2)]
            self.assertEqual(server.post("/v1/completions", prompt="a")[0], 503)
            self.expect_soon(server, 'admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 1')
            self.expect_soon(server, 'num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1')
            for connection, answer in streams:
                answer.close()
                connection.close()
            self.expect_soon(server, 'request_success_total{engine="0",model_name="m",finished_reason="abort"} 2')

    def expect_soon(self, server, line):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if f"\nvllm:{line}\n" in server.request("GET", "/metrics")[2].decode():
                return
            time.sleep(0.02)
        self.fail(f"{line} is not in /metrics")


if __name__ == "__main__":
    unittest.main()
