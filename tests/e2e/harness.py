"""Starts the real server on free ports for a test, and stops it again."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "sluice")
MODEL = os.path.join(CACHE, "SmolLM2-135M-Instruct.Q4_1.gguf")
SKIP = 77


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIP)


def need_program(name):
    return shutil.which(name) or skip(f"the program {name} is not installed")


def need_model():
    if not os.path.exists(MODEL):
        skip(f"{MODEL} is not there")
    return MODEL


def snake(value):
    """JSON with the field names of the .proto files: versions of grpcurl differ between promptTokens and prompt_tokens."""
    if isinstance(value, dict):
        return {re.sub(r"([A-Z])", lambda m: "_" + m.group(1).lower(), key): snake(item) for key, item in value.items()}
    if isinstance(value, list):
        return [snake(item) for item in value]
    return value


class Server:
    """with Server(binary, "--flag", ...) as server: server.grpc, server.http, server.admin are host:port."""

    def __init__(self, binary, *flags, model=None):
        self.command = [binary, "--model", model or need_model(), "--host", "127.0.0.1"]
        self.command += ["--grpc-port", "0", "--http-port", "0", "--admin-port", "0", *flags]

    def __enter__(self):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = re.search(r"^listening grpc=(\S+) http=(\S+) admin=(\S+)$", self.read_log(), re.M)
            if found:
                self.grpc, self.http, self.admin = found.groups()
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        raise RuntimeError("the server did not start:\n" + self.read_log())

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise RuntimeError("the server did not stop within 60 s of SIGTERM:\n" + self.read_log())
        if self.process.returncode != 0:
            raise RuntimeError(f"the server ended with {self.process.returncode}:\n" + self.read_log())

    def read_log(self):
        with open(self.log.name) as log:
            return log.read()
