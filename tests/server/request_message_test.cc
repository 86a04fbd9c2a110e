// From gRPC's bytes to a request: what protobuf reads, and why it does not read the rest, within bounds.
#include "server/request_message.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/io/gzip_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/calls/status.h"
#include "sluice/v1/generation.pb.h"

namespace sluice {
namespace {

// As gRPC hands it over: in slices of at most `slice` bytes, said to be compressed by `compression`.
grpc::ByteBuffer Bytes(const std::string& text, grpc_compression_algorithm compression = GRPC_COMPRESS_NONE,
                       size_t slice = 1 << 20) {
  std::vector<grpc_slice> slices;
  for (size_t i = 0; i < text.size(); i += slice) {
    slices.push_back(grpc_slice_from_copied_buffer(text.data() + i, std::min(slice, text.size() - i)));
  }
  grpc_byte_buffer* raw = grpc_raw_compressed_byte_buffer_create(slices.data(), slices.size(), compression);
  for (grpc_slice each : slices) grpc_slice_unref(each);
  grpc::ByteBuffer bytes;
  static_assert(sizeof bytes == sizeof raw);
  std::memcpy(static_cast<void*>(&bytes), &raw, sizeof raw);
  return bytes;
}

template <class Request>
absl::Status Read(const grpc::ByteBuffer& bytes, Request* request, const LimitOptions& limits = {}) {
  int64_t memory_bytes = 0;
  return ReadRequest(&bytes, limits, request, &memory_bytes);
}

std::string Compressed(const std::string& text, google::protobuf::io::GzipOutputStream::Format format) {
  std::string out;
  google::protobuf::io::StringOutputStream stream(&out);
  google::protobuf::io::GzipOutputStream::Options options;
  options.format = format;
  google::protobuf::io::GzipOutputStream gzip(&stream, options);
  google::protobuf::io::CodedOutputStream(&gzip).WriteString(text);
  gzip.Close();
  return out;
}
std::string Gzip(const std::string& text) {
  return Compressed(text, google::protobuf::io::GzipOutputStream::GZIP);
}

v1::ChatRequest RichChat() {
  v1::ChatRequest request;
  request.set_model("m");
  request.set_request_id("id");
  for (int i = 0; i < 3; ++i) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role(v1::ROLE_USER);
    message->add_content()->set_text("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
    message->add_content()->set_text("you");
    message->set_name("n");
  }
  request.set_chat_template_kwargs_json(R"({"list": [1.5], "text": "x"})");
  request.add_tools()->set_parameters_json("{}");
  request.mutable_options()->set_temperature(0.5F);
  request.mutable_options()->add_stop("s");
  request.mutable_options()->add_stop_token_ids(300);
  request.mutable_options()->add_stop_token_ids(7);
  (*request.mutable_options()->mutable_logit_bias())[70000] = -1;
  (*request.mutable_metadata())["k"] = "v";
  return request;
}

TEST(RequestMessage, AWholeRequestComesThroughHoweverItIsCutIntoSlices) {
  const v1::ChatRequest sent = RichChat();
  const std::string text = sent.SerializeAsString();
  for (size_t slice : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, text.size()}) {
    v1::ChatRequest read;
    const absl::Status status = Read(Bytes(text, GRPC_COMPRESS_NONE, slice), &read);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, sent)) << slice;
  }
}

// Every cut and many flipped, doubled and deleted bytes: read here if and only if protobuf reads it.
TEST(RequestMessage, ProtobufDecidesTheSameAboutEveryMutation) {
  google::protobuf::LogSilencer quiet;
  v1::CompleteRequest complete;
  complete.set_prompt("a prompt with \xc3\xa4");
  complete.mutable_options()->add_stop("stop");
  for (int i = 0; i < 40; ++i) complete.mutable_prompt_ids()->add_ids(uint32_t(i * 1000));
  const std::string wires[] = {RichChat().SerializeAsString(), complete.SerializeAsString(),
                               std::string("\x3b\x08\x01\x3c\x7b\x7b\x7c\x7c", 8)};
  std::mt19937 random(7);
  int num_bad = 0;
  const auto check = [&](const std::string& wire) {
    v1::ChatRequest chat, chat_expected;
    v1::CompleteRequest text, text_expected;
    const absl::Status as_chat = Read(Bytes(wire, GRPC_COMPRESS_NONE, 5), &chat);
    const absl::Status as_text = Read(Bytes(wire, GRPC_COMPRESS_NONE, 5), &text);
    EXPECT_EQ(as_chat.ok(), chat_expected.ParseFromString(wire)) << as_chat;
    EXPECT_EQ(as_text.ok(), text_expected.ParseFromString(wire)) << as_text;
    for (const absl::Status& status : {as_chat, as_text}) {
      if (status.ok()) continue;
      ++num_bad;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(ReasonOf(status), kReasonMalformedRequest);
    }
  };
  for (const std::string& wire : wires) {
    for (size_t cut = 0; cut <= wire.size(); ++cut) check(wire.substr(0, cut));
    for (int i = 0; i < 3000; ++i) {
      std::string mutated = wire;
      for (int change = 0; change <= i % 3; ++change) {
        const size_t at = random() % mutated.size();
        switch (random() % 3) {
          case 0:
            mutated[at] = char(random());
            break;
          case 1:
            mutated.insert(at, mutated.substr(at, random() % 9));
            break;
          default:
            if (mutated.size() > 1) mutated.erase(at, 1);
        }
      }
      check(mutated);
    }
  }
  EXPECT_GT(num_bad, 1000);
}

TEST(RequestMessage, AMalformedFieldIsNamed) {
  const auto message_of = [](const std::string& wire) {
    v1::ChatRequest request;
    return std::string(Read(Bytes(wire), &request).message());
  };
  v1::ChatRequest request = RichChat();
  std::string wire = request.SerializeAsString();
  wire[wire.find("you", wire.find("you", wire.find("you") + 1) + 1)] = '\xff';
  EXPECT_THAT(message_of(wire), testing::StartsWith("messages[2].content[1].text: found bytes that are not UTF-8"));
  wire = request.SerializeAsString();
  wire[wire.find("\x01v") + 1] = '\x80';
  EXPECT_THAT(message_of(wire), testing::StartsWith("metadata: found bytes that are not UTF-8"));
  EXPECT_EQ(message_of(std::string("\x1a\x05\x08\x01", 4)), "messages[0]: found a length of 5 bytes with 2 left");
  EXPECT_EQ(message_of("\x0f"), "model: found wire type 7, which does not exist");
  EXPECT_EQ(message_of("\xff\x07"),
            "the request is not a message of its type: found wire type 7, which does not exist");
}

// No message of ours nests by itself, but groups that nobody knows do.
TEST(RequestMessage, NestingIsTakenToProtobufsDepthAndNoDeeper) {
  for (int depth : {100, 101}) {
    std::string wire;
    for (int i = 0; i < depth; ++i) wire += "\xfb\x07";
    for (int i = 0; i < depth; ++i) wire += "\xfc\x07";
    v1::ChatRequest read;
    const absl::Status status = Read(Bytes(wire), &read);
    EXPECT_EQ(status.ok(), depth == 100) << status;
    if (depth == 101) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("more than 100 messages"));
    }
  }
}

TEST(RequestMessage, WhatBecomesTooManyObjectsIsRefusedBeforeItDoes) {
  struct Case {
    const char* name;
    std::string element;
  };
  const Case cases[] = {{"messages", std::string("\x1a\x00", 2)},
                        {"stops", std::string("\x3a\x03\x62\x01x", 5)},
                        {"unknown numbers", std::string("\xf8\x07\x01", 3)},
                        {"unknown groups", std::string("\xfb\x07\xfc\x07", 4)},
                        {"unknown texts", std::string("\xfa\x07\x00", 3)},
                        {"metadata", std::string("\x5a\x00", 2)}};
  for (const Case& each : cases) {
    std::string wire;
    for (int64_t i = 0; i <= kMaxRequestElements; ++i) wire += each.element;
    v1::ChatRequest request;
    const absl::Status status = Read(Bytes(wire), &request);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << each.name;
    EXPECT_EQ(ReasonOf(status), kReasonRequestTooLarge) << each.name;
    EXPECT_EQ(request.ByteSizeLong(), 0u);
  }
  // Numbers in lists are no objects.
  v1::CompleteRequest many, read;
  for (int i = 0; i < 500'000; ++i) many.mutable_prompt_ids()->add_ids(uint32_t(i));
  EXPECT_TRUE(Read(Bytes(many.SerializeAsString()), &read).ok());
  EXPECT_EQ(read.prompt_ids().ids_size(), 500'000);
}

TEST(RequestMessage, ALargeRequestIsToldTheFlag) {
  v1::CompleteRequest request;
  request.set_prompt(std::string(2000, 'x'));
  const std::string wire = request.SerializeAsString();
  v1::CompleteRequest read;
  EXPECT_TRUE(Read(Bytes(wire), &read, {.max_request_bytes = int64_t(wire.size())}).ok());
  for (bool compressed : {false, true}) {
    const grpc::ByteBuffer bytes = compressed ? Bytes(Gzip(wire), GRPC_COMPRESS_GZIP) : Bytes(wire);
    const absl::Status status =
        Read(bytes, &read, {.max_request_bytes = int64_t(wire.size()) - 1, .accept_compression = true});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(status), kReasonRequestTooLarge);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("--max-request-bytes"));
  }
}

TEST(RequestMessage, CompressionIsRefusedUnlessItIsAccepted) {
  using google::protobuf::io::GzipOutputStream;
  const std::string wire = RichChat().SerializeAsString();
  v1::ChatRequest read;
  for (bool gzip : {true, false}) {
    const std::string compressed = Compressed(wire, gzip ? GzipOutputStream::GZIP : GzipOutputStream::ZLIB);
    const auto algorithm = gzip ? GRPC_COMPRESS_GZIP : GRPC_COMPRESS_DEFLATE;
    const absl::Status refused = Read(Bytes(compressed, algorithm), &read);
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(ReasonOf(refused), kReasonCompressionNotAccepted);
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("--accept-compression"));
    const absl::Status taken = Read(Bytes(compressed, algorithm, 11), &read, {.accept_compression = true});
    EXPECT_TRUE(taken.ok()) << taken;
    EXPECT_EQ(read.messages_size(), 3);
  }
}

TEST(RequestMessage, WhatIsNotCompressedAsItSaysIsMalformed) {
  const std::string wire = RichChat().SerializeAsString();
  const std::string whole = Gzip(wire);
  std::string flipped = whole;
  flipped[whole.size() - 6] ^= 1;  // the checksum
  for (const std::string& bad : {wire, whole.substr(0, whole.size() - 1), whole.substr(0, 15), whole.substr(0, 1),
                                 flipped, whole + "more"}) {
    v1::ChatRequest read;
    const absl::Status status = Read(Bytes(bad, GRPC_COMPRESS_GZIP), &read, {.accept_compression = true});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.size();
    EXPECT_EQ(ReasonOf(status), kReasonMalformedRequest);
  }
}

TEST(RequestMessage, ACallWithoutARequestIsMalformed) {
  v1::ChatRequest read;
  EXPECT_EQ(ReasonOf(Read(grpc::ByteBuffer(), &read)), kReasonMalformedRequest);
  EXPECT_TRUE(Read(Bytes(""), &read).ok());
}

}  // namespace
}  // namespace sluice
