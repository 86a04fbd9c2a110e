"""OpenVINO GenAI's continuous batching behind the line protocol of peer_llama_cpp.py, on the same GGUF file.

usage: peer_openvino.py MODEL.gguf THREADS
Its pipeline takes whole requests only, so a decode rate is (tokens of a long answer - tokens of a short one) over the
difference of their times, with the same prompts.
"""

import random
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai

import cases

PROBE = 8  # tokens of the short answer


class Engine:
    def __init__(self, path, threads):
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = 512
        scheduler.max_num_seqs = 64
        scheduler.cache_size = 2
        scheduler.enable_prefix_caching = False
        self.pipe = genai.LLMPipeline(
            path, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads, PERFORMANCE_HINT="LATENCY"
        )
        self.rng = random.Random(1)

    def time(self, prompts, new_tokens):
        config = genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        ids = ov.Tensor(np.array(prompts, dtype=np.int64))
        mask = ov.Tensor(np.ones_like(np.array(prompts, dtype=np.int64)))
        start = time.perf_counter()
        result = self.pipe.generate(genai.TokenizedInputs(ids, mask), config)
        elapsed = time.perf_counter() - start
        assert all(len(t) == new_tokens for t in result.tokens)
        return elapsed

    def run(self, case):
        prompts = [[self.rng.randrange(40000) + 20 for _ in range(case.prompt)] for _ in range(case.sequences)]
        if case.kind == "prompt":
            return case.prompt * case.sequences / self.time(prompts, 1)
        long = self.time(prompts, PROBE + case.steps)
        short = self.time(prompts, PROBE)
        return case.sequences * case.steps / (long - short)


def main():
    engine = Engine(sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            print(f"{engine.run(cases.parse(line)):.2f}", flush=True)
        except Exception as error:  # one failed case must not lose the others
            print(f"error {str(error).splitlines()[0]}", flush=True)


main()
