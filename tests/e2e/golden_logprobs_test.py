"""Every tiny model of tests/goldens/models is served, and the log-probabilities of its whole vocabulary at every position
are those of transformers.

usage: golden_logprobs_test.py SERVER_BINARY [MODEL...]
"""

import json
import math
import os
import struct
import sys
import tempfile

import harness

try:
    import grpc
    from grpc_tools import protoc
except ImportError as error:
    harness.skip(f"Python module missing: {error.name}")

MODELS = os.path.join(harness.ROOT, "tests", "goldens", "models")
TOLERANCE = 1e-4  # of the largest |logit|
FLAGS = ["--activations", "f32", "--kv-dtype", "f32", "--max-logprobs", "-1", "--kv-memory", "64MiB", "--threads", "1"]


def generate_stubs():
    out = tempfile.mkdtemp()
    protos = os.path.join(harness.ROOT, "proto")
    files = [f"sluice/v1/{name}" for name in os.listdir(os.path.join(protos, "sluice/v1")) if name.endswith(".proto")]
    well_known = os.path.join(os.path.dirname(protoc.__file__), "_proto")
    assert protoc.main(["protoc", f"-I{protos}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}", *files]) == 0
    return out


sys.path.insert(0, generate_stubs())
from sluice.v1 import generation_pb2, generation_pb2_grpc  # noqa: E402


def log_softmax(row):
    largest = max(row)
    total = largest + math.log(sum(math.exp(v - largest) for v in row))
    return [v - total for v in row]


def golden_rows(folder, golden, sequence):
    vocab, count = golden["vocab_size"], len(sequence["tokens"])
    with open(os.path.join(folder, "golden.bin"), "rb") as file:
        file.seek(sequence["logits_offset"])
        values = struct.unpack(f"<{count * vocab}f", file.read(4 * count * vocab))
    return [log_softmax(values[i * vocab:(i + 1) * vocab]) for i in range(count)]


def position(entry, vocab):
    values = {top.token_id: top.logprob for top in entry.top}
    assert sorted(values) == list(range(vocab)), f"{len(values)} of {vocab} tokens were reported"
    return values


def check(binary, name):
    """The largest difference, relative to the largest |logit|."""
    folder = os.path.join(MODELS, name)
    with open(os.path.join(folder, "golden.json")) as file:
        golden = json.load(file)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config = config.get("text_config", config)
    context = config.get("max_position_embeddings") or config["n_positions"]
    worst, served = 0.0, 0
    with harness.Server(binary, *FLAGS, model=folder) as server, grpc.insecure_channel(server.grpc) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        for sequence in golden["sequences"]:
            # The last token is left to be generated, so that prompt + max_tokens, which chooses the RoPE table of some
            # models, is the length of the golden.
            prompt = sequence["tokens"][:-1]
            if len(prompt) + 1 > context:
                continue
            served += 1
            options = generation_pb2.GenerateOptions(max_tokens=1, temperature=0, ignore_eos=True, logprobs=-1, prompt_logprobs=-1)
            request = generation_pb2.CompleteRequest(prompt_ids=generation_pb2.TokenIds(ids=prompt), options=options)
            answer = stub.Complete(request, timeout=60).generated
            entries = list(answer.prompt_logprobs) + list(answer.choices[0].logprobs)
            assert len(entries) == len(prompt), f"{len(entries)} positions for {len(prompt)} rows"
            for entry, expected in zip(entries, golden_rows(folder, golden, sequence)):
                for token, logprob in position(entry, golden["vocab_size"]).items():
                    difference = abs(logprob - expected[token]) / golden["max_abs"]
                    worst = difference if not difference <= worst else worst
    assert served, "no sequence fits into the context"
    return worst


def main():
    binary, names = sys.argv[1], sys.argv[2:]
    failed = []
    for name in names or sorted(n for n in os.listdir(MODELS) if os.path.isdir(os.path.join(MODELS, n))):
        try:
            worst = check(binary, name)
            print(f"{name}: {worst:.1e}", flush=True)
            if not worst <= TOLERANCE:
                failed.append(name)
        except (AssertionError, RuntimeError, grpc.RpcError) as error:
            print(f"{name}: {error}", flush=True)
            failed.append(name)
    if failed:
        sys.exit(f"{len(failed)} failed: {' '.join(failed)}")


if __name__ == "__main__":
    main()
