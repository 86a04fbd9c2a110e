"""A real Prometheus scrapes the server; promtool and Python's parser read the exposition.

usage: prometheus_test.py SERVER_BINARY
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

import harness

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as error:
    harness.skip(f"Python module missing: {error.name}")

PROMETHEUS = harness.need_program("prometheus")
PROMTOOL = harness.need_program("promtool")
GRPCURL = harness.need_program("grpcurl")


def scrape(path="/metrics"):
    with urllib.request.urlopen(f"http://{SERVER.http}{path}", timeout=10) as answer:
        return answer.read().decode()


def samples():
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(scrape()) for s in f.samples}


def total(name):
    return sum(value for (sample, _), value in samples().items() if sample == name)


def complete(tokens):
    request = {"prompt": "The sea is", "options": {"max_tokens": tokens, "temperature": 0, "ignore_eos": True}}
    command = [GRPCURL, "-plaintext", "-d", json.dumps(request), SERVER.grpc, "sluice.v1.GenerationService/Complete"]
    return harness.snake(json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout))["generated"]


class Exposition(unittest.TestCase):
    def test_promtool_accepts_it(self):
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=scrape(), capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_counters_count_what_was_done(self):
        before, prompt_before = total("sluice_generation_tokens_total"), total("sluice_prompt_tokens_total")
        usage = complete(20)["usage"]
        self.assertEqual(total("sluice_generation_tokens_total") - before, 20)
        self.assertEqual(total("sluice_prompt_tokens_total") - prompt_before, usage["prompt_tokens"])

    def test_blocks_add_up_and_are_free_when_idle(self):
        complete(4)
        states = {dict(labels)["state"]: v for (name, labels), v in samples().items() if name == "sluice_kv_blocks"}
        self.assertEqual(sum(states.values()), total("sluice_kv_blocks_capacity"))
        self.assertEqual(states["live"], 0)
        self.assertEqual(total("sluice_kv_cache_usage_ratio"), 0)


class RealPrometheus(unittest.TestCase):
    def query(self, expression):
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]["result"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        config = os.path.join(self.folder.name, "prometheus.yml")
        with open(config, "w") as out:
            out.write("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs:\n  - job_name: sluice\n"
                      f"    static_configs: [{{targets: ['{SERVER.http}']}}]\n")
        self.port = 19000 + os.getpid() % 1000
        self.process = subprocess.Popen(
            [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={self.folder.name}/data", f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def tearDown(self):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()

    def wait_for(self, expression, accept):
        result = None
        for _ in range(300):
            try:
                result = self.query(expression)
                if result and accept(float(result[0]["value"][1])):
                    return float(result[0]["value"][1])
            except OSError:
                pass
            time.sleep(0.1)
        self.fail(f"{expression}: {result}")

    def test_it_sees_the_server_and_its_tokens(self):
        self.wait_for('up{job="sluice"}', lambda v: v == 1)
        want = total("sluice_generation_tokens_total") + 16
        complete(16)
        self.wait_for("sum(sluice_generation_tokens_total)", lambda v: v == want)
        self.wait_for("histogram_quantile(0.5, sum by (le) (sluice_time_to_first_token_seconds_bucket))", lambda v: 0 < v < 60)


if __name__ == "__main__":
    with harness.Server(sys.argv.pop(1)) as SERVER:
        unittest.main(exit=False, verbosity=2).result.wasSuccessful() or sys.exit(1)
