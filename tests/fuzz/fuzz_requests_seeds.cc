// Requests that use every field, whole and compressed, to start fuzzing from.
#include <fstream>
#include <string>

#include "google/protobuf/io/gzip_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "sluice/v1/generation.pb.h"
#include "sluice/v1/tokenizer.pb.h"

namespace sluice {
namespace {

std::string Compressed(const std::string& text, bool gzip) {
  using google::protobuf::io::GzipOutputStream;
  std::string out;
  google::protobuf::io::StringOutputStream stream(&out);
  GzipOutputStream::Options options;
  options.format = gzip ? GzipOutputStream::GZIP : GzipOutputStream::ZLIB;
  GzipOutputStream compressor(&stream, options);
  google::protobuf::io::CodedOutputStream(&compressor).WriteString(text);
  compressor.Close();
  return out;
}

// The three bytes before the request: see fuzz_requests.cc.
void Write(const std::string& path, char kind, const google::protobuf::Message& message) {
  const std::string wire = message.SerializeAsString();
  std::ofstream(path, std::ios::binary) << kind << '\0' << '\7' << wire;
  std::ofstream(path + "_gzip", std::ios::binary) << kind << '\2' << '\xff' << Compressed(wire, true);
  std::ofstream(path + "_deflate", std::ios::binary) << kind << '\3' << '\xff' << Compressed(wire, false);
}

void FillOptions(v1::GenerateOptions* options) {
  options->set_max_tokens(3);
  options->set_temperature(0.5F);
  options->set_top_p(0.5F);
  options->set_top_k(7);
  options->set_seed(1);
  options->set_n(2);
  options->add_stop("stop");
  options->add_stop_token_ids(7);
  options->add_allowed_token_ids(70);
  (*options->mutable_logit_bias())[70] = -1;
  options->set_logprobs(2);
}

template <class Request>
void WriteComplete(const std::string& folder, char kind) {
  Request request;
  request.set_model("fake");
  request.set_request_id("id");
  request.set_prompt("gr\xc3\xbc\xc3\x9f <|mark|>");
  FillOptions(request.mutable_options());
  (*request.mutable_metadata())["k"] = "v";
  Write(folder + "/complete_" + std::to_string(kind), kind, request);
  for (uint32_t id = 0; id < 40; ++id) request.mutable_prompt_ids()->add_ids(id * 6);
  Write(folder + "/complete_ids_" + std::to_string(kind), kind, request);
}

template <class Request>
Request Chat() {
  Request request;
  for (const v1::Role role : {v1::ROLE_SYSTEM, v1::ROLE_USER, v1::ROLE_ASSISTANT}) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role(role);
    message->add_content()->set_text("\xf0\x9f\x98\x80 text");
    message->set_name("n");
  }
  request.set_chat_template_kwargs_json(R"({"list": [1.5], "text": "x", "object": {}})");
  return request;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  WriteComplete<v1::CompleteRequest>(folder, 0);
  WriteComplete<v1::StreamCompleteRequest>(folder, 1);
  auto chat = Chat<v1::ChatRequest>();
  FillOptions(chat.mutable_options());
  Write(folder + "/chat", 2, chat);
  Write(folder + "/stream_chat", 3, Chat<v1::StreamChatRequest>());
  Write(folder + "/render_chat", 4, Chat<v1::RenderChatRequest>());
  v1::TokenizeRequest tokenize;
  tokenize.set_text("a text");
  Write(folder + "/tokenize", 5, tokenize);
  v1::DetokenizeRequest detokenize;
  for (uint32_t id = 0; id < 30; ++id) detokenize.add_token_ids(id * 9);
  Write(folder + "/detokenize", 6, detokenize);
  return 0;
}
