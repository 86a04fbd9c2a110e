"""Two builds of the server on the CPU, round by round in turns: the CUDA build must not be slower than the one without.

usage: builds.py --bin DIR --other DIR --model FILE.gguf [--rounds 21]
For each: ready, from exec to the first OK of /health/ready; decode, tokens/s of one stream of 96 tokens behind 16; prompt,
tokens/s of a prompt of 512. Medians of all rounds, and other / first of these (a ratio of times: above 1 is slower). Single rounds of a virtual machine differ
by 20 % and more: ask for as many as it takes.
"""

import argparse
import json
import os
import statistics
import subprocess

from footprint import Server

ALLOWED = 1.03


def bench(args, server, prompt, generated, requests):
    command = [os.path.join(args.bin, "sluice"), "bench", "--server", server.grpc, "--json", "--concurrency", "1", "--warmup", "1"]
    command += ["--requests", str(requests), "--prompt-tokens", str(prompt), "--max-tokens", str(generated)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(args, folder):
    """Seconds: to be ready, per generated token, per prompt token."""
    with Server(argparse.Namespace(bin=folder, model=args.model), "--device", "cpu") as server:
        ready = server.wait_ready()
        decode = bench(args, server, 16, 96, 4)
        prompt = bench(args, server, 512, 1, 6)
    return {"ready": ready, "decode": decode["tpot_ms"]["p50"] / 1e3, "prompt": prompt["ttft_ms"]["p50"] / 1e3 / 512}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of sluice-server and sluice")
    parser.add_argument("--other", required=True, help="folder of the other sluice-server")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()

    folders = [args.bin, args.other]
    rounds = []
    for i in range(args.rounds):
        order = folders if i % 2 == 0 else folders[::-1]
        rounds.append({folder: measure(args, folder) for folder in order})
    for what in rounds[0][args.bin]:
        first, other = ([r[folder][what] for r in rounds] for folder in folders)
        ratio = statistics.median(other) / statistics.median(first)
        verdict = "met   " if ratio <= ALLOWED else "MISSED"
        shown = (lambda s: f"{s * 1e3:.1f} ms") if what == "ready" else (lambda s: f"{1 / s:.0f} tok/s")
        print(f"{verdict} {what}: {shown(statistics.median(first))} and {shown(statistics.median(other))}, ratio of times {ratio:.3f} (allowed {ALLOWED})")


if __name__ == "__main__":
    main()
