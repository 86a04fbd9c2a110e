"""Runs us and the peers on one model file, interleaved in one go, and prints the table of README.md.

usage: compare.py --model FILE.gguf --bin DIR [--rounds 5] [--threads 2] [--q4_0 FILE] [--only TEXT] [--json FILE]
                  [--peers llama.cpp,openvino]
Each round runs each case once on every engine, one after the other, with a memory-read probe beside each row; the table
has medians. Engines are processes that stay alive between cases and sleep while another one works. "over gRPC" is the
same engine inside sluice-server, seen from our client; "busy neighbour" is our engine while another process spins on
one of the cores.
"""

import argparse
import atexit
import json
import os
import re
import statistics
import subprocess
import sys

import cases

HERE = os.path.dirname(os.path.abspath(__file__))

# What the project promises on two AVX-512 VNNI cores: case -> (engine compared with, least ratio).
PROMISES = {
    ("decode, 1 sequence, depth 16", "llama.cpp"): 2.5,
    ("decode, 1 sequence, depth 4,096", "llama.cpp"): 2.5,
    ("prompt of 512", "llama.cpp"): 5.0,
    ("decode, 16 sequences, depth 128", "llama.cpp"): 5.0,
    ("decode, 16 sequences, depth 128", "openvino"): 1.7,
    ("prompt of 512", "openvino"): 0.7,
}
# case -> least share of our quiet engine's rate.
OVER_GRPC, NEIGHBOUR = "sluice over gRPC", "sluice, busy neighbour"
SHARES = {
    ("decode, 1 sequence, depth 16", OVER_GRPC): 0.95,
    ("decode, 16 sequences, depth 128", OVER_GRPC): 0.95,
    ("decode, 1 sequence, depth 16", NEIGHBOUR): 0.4,
}


class Process:
    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{name} did not start: {' '.join(command)}")

    def run(self, line):
        if self.process.poll() is not None:
            return None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            print(f"  {self.name}: {line}: {answer or 'died'}", file=sys.stderr)
            return None
        return float(answer)


class Neighboured:
    """Another engine's cases, run while a process of ours spins on the first core."""

    def __init__(self, engine):
        self.name = NEIGHBOUR
        self.engine = engine

    def run(self, line):
        spinner = subprocess.Popen([sys.executable, "-c", "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"])
        try:
            return self.engine.run(line)
        finally:
            spinner.kill()
            spinner.wait()


def start_server(args):
    """The server with what engine_bench gives its engine; returns the process and its gRPC address."""
    command = [os.path.join(args.bin, "sluice-server"), "--model", args.model, "--threads", str(args.threads), "--host", "127.0.0.1"]
    command += ["--grpc-port", "0", "--http-port", "0", "--admin-port", "0", "--kv-memory", "760MiB", "--max-num-seqs", "64"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in server.stdout:
        if found := re.search(r"listening grpc=(\S+)", line):
            return server, found.group(1)
    raise RuntimeError("sluice-server did not start")


def engines(args):
    ours = [os.path.join(args.bin, "engine_bench"), "--model", args.model, "--threads", str(args.threads)]
    yield "sluice", ours
    yield "sluice int8", ours + ["--activations", "int8"]
    peers = args.peers.split(",")
    if "llama.cpp" in peers:
        script = [sys.executable, os.path.join(HERE, "peer_llama_cpp.py")]
        yield "llama.cpp", script + [args.model, str(args.threads)]
        if args.q4_0:
            yield "llama.cpp Q4_0", script + [args.q4_0, str(args.threads)]
    if "openvino" in peers:
        yield "openvino", [sys.executable, os.path.join(HERE, "peer_openvino.py"), args.model, str(args.threads)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", required=True, help="folder of engine_bench, grpc_bench and sluice-server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--q4_0", help="the same weights as Q4_0, for llama.cpp's fastest format")
    parser.add_argument("--peers", default="llama.cpp,openvino")
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--json")
    args = parser.parse_args()

    running = []
    for name, command in engines(args):
        try:
            running.append(Process(name, command))
        except Exception as error:
            print(f"left out: {error}", file=sys.stderr)
    server, address = start_server(args)
    atexit.register(server.terminate)
    running.insert(1, Process(OVER_GRPC, [os.path.join(args.bin, "grpc_bench"), "--server", address]))
    running.insert(2, Neighboured(running[0]))
    assert running and running[0].name == "sluice", "our own engine did not start"
    chosen = [case for case in cases.CASES if args.only in case.name]
    rates = {(case.name, e.name): [] for case in chosen for e in running}
    probes = {case.name: [] for case in chosen}
    for round_number in range(args.rounds):
        for case in chosen:
            print(f"round {round_number + 1}/{args.rounds}: {case.name}", file=sys.stderr)
            probes[case.name].append(running[0].run("probe 0 0 0"))
            for engine in running:
                if engine.name == NEIGHBOUR and (case.name, NEIGHBOUR) not in SHARES:
                    continue
                rate = engine.run(case.line())
                if rate is not None:
                    rates[case.name, engine.name].append(rate)

    medians = {key: statistics.median(values) for key, values in rates.items() if values}
    names = [e.name for e in running]
    print("| tok/s | " + " | ".join(names) + " | memory read, GB/s |")
    print("|---" * (len(names) + 2) + "|")
    for case in chosen:
        row = [f"{medians[case.name, n]:,.0f}" if (case.name, n) in medians else "-" for n in names]
        print(f"| {case.name} | " + " | ".join(row) + f" | {statistics.median(probes[case.name]):.0f} |")
    print()
    for (case, peer), least in PROMISES.items():
        if (case, peer) in medians and (case, "sluice") in medians:
            ratio = medians[case, "sluice"] / medians[case, peer]
            print(f"{'met   ' if ratio >= least else 'MISSED'} {case}: {ratio:.2f}x {peer} (promised {least}x)")
    for (case, way), least in SHARES.items():
        if (case, way) in medians and (case, "sluice") in medians:
            share = medians[case, way] / medians[case, "sluice"]
            print(f"{'met   ' if share >= least else 'MISSED'} {case}: {way} keeps {share:.2f} of the engine alone (promised {least})")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"rates": {f"{c} / {e}": v for (c, e), v in rates.items()}, "probes": probes}, out, indent=1)


main()
