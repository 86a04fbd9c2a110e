"""One llama.cpp engine behind a line protocol, the peer of engine_bench.

usage: peer_llama_cpp.py MODEL.gguf THREADS
Reads one case per line on stdin (see cases.py), answers one line: the rate in tokens/s, or "error TEXT".
Drives llama_decode through llama-cpp-python's ctypes layer: no sampling, no text, the cheapest loop it allows.
"""

import ctypes
import random
import sys
import time

import llama_cpp as ll

import cases

MAX_ROWS = 512


class Engine:
    def __init__(self, path, threads, sequences, context):
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        params = ll.llama_context_default_params()
        params.n_ctx = sequences * context
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = MAX_ROWS
        params.n_threads = params.n_threads_batch = threads
        self.context = ll.llama_init_from_model(self.model, params)
        self.batch = ll.llama_batch_init(MAX_ROWS, 0, 1)
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))

    def close(self):
        ll.llama_batch_free(self.batch)
        ll.llama_free(self.context)
        ll.llama_model_free(self.model)

    def decode(self, rows):
        """rows: (token, position, sequence, want_logits)"""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, want) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = want
        if ll.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        # Computation is lazy only on GPUs, but reading a logit makes sure of it.
        return ll.llama_get_logits(self.context)[0]

    def prefill(self, sequence, tokens):
        for at in range(0, len(tokens), MAX_ROWS):
            part = tokens[at : at + MAX_ROWS]
            last = at + len(part) == len(tokens)
            rows = [(t, at + i, sequence, last and i + 1 == len(part)) for i, t in enumerate(part)]
            self.decode(rows)

    def run(self, case):
        rng = random.Random(1)
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)
        prompts = [[rng.randrange(self.vocab) for _ in range(case.prompt)] for _ in range(case.sequences)]
        start = time.perf_counter()
        for s, prompt in enumerate(prompts):
            self.prefill(s, prompt)
        if case.kind == "prompt":
            return case.prompt * case.sequences / (time.perf_counter() - start)
        tokens = [[rng.randrange(self.vocab) for _ in range(case.sequences)] for _ in range(case.steps)]
        start = time.perf_counter()
        for step in range(case.steps):
            self.decode([(tokens[step][s], case.prompt + step, s, True) for s in range(case.sequences)])
        return case.sequences * case.steps / (time.perf_counter() - start)


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    log = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(log, ctypes.c_void_p(0))
    engine, shape = None, None
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            case = cases.parse(line)
            wanted = (case.sequences, case.prompt + case.steps + 8)
            if shape != wanted:
                if engine:
                    engine.close()
                engine, shape = Engine(path, threads, *wanted), wanted
            print(f"{engine.run(case):.2f}", flush=True)
        except Exception as error:  # one failed case must not lose the others
            print(f"error {error}", flush=True)


main()
