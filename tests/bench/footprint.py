"""How soon the server is ready and how much memory it holds, measured from outside.

usage: footprint.py --bin DIR --model FILE.gguf [--rounds 5]
ready     from exec to the first OK of /health/ready, asked every 2 ms; the file is in the page cache
resident  VmRSS once every KV block of --kv-memory 256MiB has held tokens, against packed weights + 256 MiB + 150 MiB
"""

import argparse
import os
import re
import statistics
import subprocess
import time
import urllib.error
import urllib.request

MIB = 1 << 20
KV = 256 * MIB
READY_PROMISE_S = 0.5
OVERHEAD_PROMISE = 150 * MIB


class Server:
    def __init__(self, args, *flags):
        self.start = time.monotonic()
        command = [os.path.join(args.bin, "sluice-server"), "--model", args.model, "--host", "127.0.0.1"]
        command += ["--grpc-port", "0", "--http-port", "0", "--admin-port", "0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = ""
        for line in self.process.stdout:
            self.log += line
            if found := re.search(r"listening grpc=(\S+) http=(\S+) admin=(\S+)", line):
                self.grpc, self.http, self.admin = found.groups()
                break
        else:
            raise RuntimeError(f"sluice-server did not start:\n{self.log}")

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            return answer.read().decode()

    def wait_ready(self):
        while True:
            try:
                self.get("/health/ready")
                return time.monotonic() - self.start
            except urllib.error.URLError:
                time.sleep(0.002)

    def metric(self, name, labels=""):
        for line in self.get("/metrics").splitlines():
            if line.startswith(f"sluice_{name}{{") and labels in line:
                return float(line.rsplit(" ", 1)[1])
        raise RuntimeError(f"no metric {name} {labels}")

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) * 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def use_every_block(args, server):
    """Sequences that together need more than the pool has; returns the most blocks that were seen in use, and all."""
    capacity = server.metric("kv_blocks_capacity")
    sequences, generated = 4, 160
    prompt = int(capacity * 16 / sequences) - 64
    command = [os.path.join(args.bin, "sluice"), "complete", "--server", server.grpc, "--ignore-eos", "--max-tokens", str(generated)]
    command += ["--prompt-ids", ",".join(str(1000 + i % 40000) for i in range(prompt))]
    clients = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(sequences)]
    most = 0
    while any(client.poll() is None for client in clients):
        most = max(most, server.metric("kv_blocks", 'state="live"'))
        time.sleep(0.02)
    if any(client.returncode != 0 for client in clients):
        raise RuntimeError("a request failed")
    return most, capacity


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of sluice-server and sluice")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    times = []
    for _ in range(args.rounds):
        with Server(args) as server:
            times.append(server.wait_ready())
    ready = statistics.median(times)
    print(f"{'met   ' if ready <= READY_PROMISE_S else 'MISSED'} ready after {ready:.3f} s (median of {len(times)}; promised {READY_PROMISE_S})")

    with Server(args, "--kv-memory", "256MiB") as server:
        server.wait_ready()
        idle = server.resident()
        most, capacity = use_every_block(args, server)
        weights, resident = server.metric("model_weight_bytes"), server.resident()
    if most < capacity:
        raise RuntimeError(f"only {most:.0f} of {capacity:.0f} blocks were in use at once")
    limit = weights + KV + OVERHEAD_PROMISE
    print(f"{'met   ' if resident <= limit else 'MISSED'} resident {resident / MIB:.0f} MiB with all {capacity:.0f} blocks used (idle {idle / MIB:.0f});"
          f" weights {weights / MIB:.0f} + KV 256 + {(resident - weights - KV) / MIB:.0f} MiB (promised at most 150)")


if __name__ == "__main__":
    main()
