#!/usr/bin/env python3
"""The server of the CUDA build on a machine without a GPU: --device auto says so and serves on the CPU, --device cuda
refuses."""

import os
import re
import subprocess
import sys
import time

MODEL = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "sluice",
                     "SmolLM2-135M-Instruct.Q4_1.gguf")


def main():
    server, client = sys.argv[1:]
    if os.path.exists("/proc/driver/nvidia/version"):
        print("skipped: there is an NVIDIA driver")
        sys.exit(77)
    if not os.path.exists(MODEL):
        print(f"skipped: there is no {MODEL}")
        sys.exit(77)
    ports = ["--host", "127.0.0.1", "--grpc-port", "0", "--http-port", "0", "--admin-port", "0"]

    refused = subprocess.run([server, "--model", MODEL, "--device", "cuda", *ports], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0, "--device cuda started without a GPU"
    assert "--device cuda: no GPU" in refused.stderr, refused.stderr
    # With --device auto, too: what the flag asks for cannot be had.
    refused = subprocess.run([server, "--model", MODEL, "--gemm-library-from", "2048", *ports], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0, "--gemm-library-from started without a GPU"
    assert "--gemm-library-from: found '2048', expected never but on a GPU" in refused.stderr, refused.stderr

    log = open("without_gpu.log", "w+")
    process = subprocess.Popen([server, "--model", MODEL, *ports], stdout=log, stderr=log)
    try:
        address = None
        for _ in range(600):
            text = open(log.name).read()
            if match := re.search(r"^listening grpc=\S*:(\d+)", text, re.MULTILINE):
                address = f"127.0.0.1:{match.group(1)}"
                break
            assert process.poll() is None, text
            time.sleep(0.05)
        assert address, "not ready within 30 s"
        assert "device: the CPU, for there is no GPU" in text, text
        answer = subprocess.run([client, "complete", "--server", address, "--prompt", "The capital of France is",
                                 "--max-tokens", "8", "--temperature", "0"], capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0 and "Paris" in answer.stdout, (answer.stdout, answer.stderr)
    finally:
        process.terminate()
        process.wait()
    print("served on the CPU, refused the GPU")


main()
