"""grpcurl and Python's grpcio use the server; nothing of our own client takes part.

usage: foreign_clients_test.py SERVER_BINARY
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import harness

try:
    import grpc
    from google.protobuf import json_format  # noqa: F401  (proves that protobuf is there)
    from grpc_tools import protoc
except ImportError as error:
    harness.skip(f"Python module missing: {error.name}")

GRPCURL = harness.need_program("grpcurl")
QUESTION = "What is the capital of France?"


def generate_stubs():
    """Stubs from the published .proto files, as any user would make them."""
    out = tempfile.mkdtemp()
    protos = os.path.join(harness.ROOT, "proto")
    files = []
    for folder in ("sluice/v1", "grpc/health/v1", "google/rpc"):
        files += [f"{folder}/{name}" for name in os.listdir(os.path.join(protos, folder)) if name.endswith(".proto")]
    well_known = os.path.join(os.path.dirname(protoc.__file__), "_proto")
    assert protoc.main(["protoc", f"-I{protos}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}", *files]) == 0
    return out


STUBS = generate_stubs()


def grpcurl(*arguments, data=None, expect=0):
    command = [GRPCURL, "-plaintext", *(["-d", json.dumps(data)] if data is not None else []), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == expect, f"{command}: exit {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout if expect == 0 else result.stderr


def json_values(text):
    decoder, at, values = json.JSONDecoder(), 0, []
    while at < len(text.rstrip()):
        value, end = decoder.raw_decode(text[at:].lstrip())
        values.append(harness.snake(value))
        at = len(text) - len(text[at:].lstrip()) + end
    return values


class Grpcurl(unittest.TestCase):
    def test_reflection_lists_and_describes_every_service(self):
        services = grpcurl(SERVER.grpc, "list").split()
        for service in ("GenerationService", "TokenizerService", "ModelService"):
            self.assertIn(f"sluice.v1.{service}", services)
        self.assertIn("grpc.health.v1.Health", services)
        self.assertNotIn("sluice.v1.AdminService", services)
        self.assertIn("temperature", grpcurl(SERVER.grpc, "describe", "sluice.v1.GenerateOptions"))

    def test_admin_service_is_on_the_admin_port(self):
        load = harness.snake(json.loads(grpcurl(SERVER.admin, "sluice.v1.AdminService/GetLoad")))
        self.assertGreater(load["kv_blocks_total"], 0)
        self.assertEqual(load["kv_blocks_free"] + load.get("kv_blocks_cached", 0), load["kv_blocks_total"])

    def test_health(self):
        for service in ("", "liveness", "readiness", "sluice.v1.GenerationService"):
            answer = grpcurl(SERVER.grpc, "grpc.health.v1.Health/Check", data={"service": service})
            self.assertEqual(json.loads(answer), {"status": "SERVING"}, service)

    def test_a_stream_has_its_events_in_order(self):
        request = {"prompt": "Once upon a time", "options": {"max_tokens": 12, "temperature": 0, "ignore_eos": True}}
        responses = json_values(grpcurl(SERVER.grpc, "sluice.v1.GenerationService/StreamComplete", data=request))
        events = [response["event"] for response in responses]
        kinds = [next(iter(event)) for event in events]
        self.assertEqual(kinds[0], "started")
        self.assertEqual(kinds[-2:], ["choice_finished", "completed"])
        self.assertTrue(all(kind == "delta" for kind in kinds[1:-2]), kinds)
        self.assertEqual(events[-2]["choice_finished"]["finish_reason"], "FINISH_REASON_LENGTH")
        self.assertEqual(events[-1]["completed"]["usage"]["completion_tokens"], 12)
        streamed = "".join(event["delta"].get("text", "") for event in events[1:-2])
        unary = harness.snake(json.loads(grpcurl(SERVER.grpc, "sluice.v1.GenerationService/Complete", data=request)))
        self.assertEqual(streamed, unary["generated"]["choices"][0]["text"])

    def test_an_error_names_the_field(self):
        error = grpcurl(SERVER.grpc, "sluice.v1.GenerationService/Complete", data={"prompt": "a", "options": {"top_p": 0}}, expect=67)
        self.assertIn("InvalidArgument", error)
        self.assertIn("top_p", error)


class Grpcio(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, STUBS)
        from google.rpc import error_details_pb2, status_pb2
        from sluice.v1 import chat_pb2, generation_pb2, generation_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc

        cls.chat_pb, cls.pb, cls.tokenizer_pb = chat_pb2, generation_pb2, tokenizer_pb2
        cls.status_pb, cls.details_pb = status_pb2, error_details_pb2
        cls.channel = grpc.insecure_channel(SERVER.grpc)
        cls.generation = generation_pb2_grpc.GenerationServiceStub(cls.channel)
        cls.tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(cls.channel)

    def options(self, **fields):
        return self.pb.GenerateOptions(**fields)

    def message(self, text):
        return self.chat_pb.ChatMessage(role=self.chat_pb.ROLE_USER, content=[self.chat_pb.ContentPart(text=text)])

    def test_chat_answers_the_question(self):
        request = self.pb.ChatRequest(messages=[self.message(QUESTION)], options=self.options(temperature=0, max_tokens=32))
        answer = self.generation.Chat(request, timeout=60).generated
        self.assertIn("Paris", answer.choices[0].text)
        self.assertEqual(answer.choices[0].finish_reason, self.pb.FINISH_REASON_STOP)
        streamed = ""
        stream = self.pb.StreamChatRequest(messages=[self.message(QUESTION)], options=self.options(temperature=0, max_tokens=32))
        for response in self.generation.StreamChat(stream, timeout=60):
            if response.event.WhichOneof("event") == "delta":
                streamed += response.event.delta.text
        self.assertEqual(streamed, answer.choices[0].text)

    def test_a_seed_gives_the_same_text_again(self):
        def text(seed):
            request = self.pb.CompleteRequest(prompt="My favourite animal is", options=self.options(seed=seed, max_tokens=24))
            return self.generation.Complete(request, timeout=60).generated.choices[0].text

        self.assertEqual(text(5), text(5))
        self.assertNotEqual(text(5), text(6))

    def test_cancelling_a_stream_frees_its_blocks(self):
        request = self.pb.StreamCompleteRequest(prompt="Count: one, two,", options=self.options(max_tokens=4000, ignore_eos=True))
        stream = self.generation.StreamComplete(request)
        next(stream)
        stream.cancel()
        for _ in range(100):
            load = harness.snake(json.loads(grpcurl(SERVER.admin, "sluice.v1.AdminService/GetLoad")))
            if load.get("kv_blocks_live", 0) == 0 and load.get("running", 0) == 0:
                return
        self.fail(f"blocks are still held: {load}")

    def test_rich_error_details(self):
        request = self.pb.CompleteRequest(prompt_ids=self.pb.TokenIds(ids=[1] * 9000), options=self.options(max_tokens=1))
        with self.assertRaises(grpc.RpcError) as caught:
            self.generation.Complete(request, timeout=60)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        trailers = dict(caught.exception.trailing_metadata())
        status = self.status_pb.Status.FromString(trailers["grpc-status-details-bin"])
        info = self.details_pb.ErrorInfo()
        self.assertTrue(any(detail.Unpack(info) for detail in status.details))
        self.assertEqual((info.reason, info.domain), ("CONTEXT_LENGTH_EXCEEDED", "sluice"))

    def test_tokenize_and_back(self):
        text = "Naïve café — 東京 🗼 <|im_start|>"
        ids = list(self.tokenizer.Tokenize(self.tokenizer_pb.TokenizeRequest(text=text, parse_special=False)).token_ids)
        self.assertNotIn(1, ids)
        self.assertEqual(self.tokenizer.Detokenize(self.tokenizer_pb.DetokenizeRequest(token_ids=ids)).text, text)


if __name__ == "__main__":
    with harness.Server(sys.argv.pop(1)) as SERVER:
        unittest.main(exit=False, verbosity=2).result.wasSuccessful() or sys.exit(1)
