// Files that shrink under a server: what is served has left them.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/io/mapped_file.h"
#include "server/load_guard.h"
#include "server/load_host.h"
#include "tests/model/toy_folder.h"
#include "tests/model/toy_gguf.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Everything that a server does with a model, after its files became empty.
class ServedFilesTest : public ServerTest {
 protected:
  ServedFilesTest() : folder_(fs::path(::testing::TempDir()) / absl::StrCat("sluice_files_", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ServedFilesTest() override {
    Stop();
    fs::remove_all(folder_);
  }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  void ServeAndEmptyTheFiles(const std::string& path) {
    ServerOptions options = TestOptions();
    options.model.path = path;
    options.model.num_threads = 2;
    options.model.kv_memory_bytes = 1 << 20;
    Start(options, [&](ModelHost* host) {
      absl::StatusOr<ModelHost> loaded = LoadModelHost(options);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      *host = *std::move(loaded);
    });
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      EXPECT_THAT(line, ::testing::Not(::testing::HasSubstr(folder_.string())));
    for (const auto& file : fs::directory_iterator(folder_)) fs::resize_file(file.path(), 0);
  }

  void ExpectServed() {
    v1::TokenizeRequest text;
    text.set_text("ab");
    v1::TokenizeResponse tokens;
    grpc::ClientContext of_tokenize, of_detokenize, of_chat;
    ASSERT_TRUE(tokenizer()->Tokenize(&of_tokenize, text, &tokens).ok());
    EXPECT_GT(tokens.token_ids_size(), 0);
    v1::DetokenizeRequest ids;
    for (uint32_t id = 0; id < 6; ++id) ids.add_token_ids(id);
    v1::DetokenizeResponse detokenized;
    ASSERT_TRUE(tokenizer()->Detokenize(&of_detokenize, ids, &detokenized).ok());
    v1::ChatRequest chat;
    chat.add_messages()->set_role(v1::ROLE_USER);
    chat.mutable_messages(0)->add_content()->set_text("ab");
    chat.mutable_options()->set_max_tokens(4);
    chat.mutable_options()->set_logprobs(5);
    v1::ChatResponse chatted;
    const grpc::Status status = generation()->Chat(&of_chat, chat, &chatted);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  const fs::path folder_;
};

TEST_F(ServedFilesTest, AGgufFileMayShrink) {
  Write("model.gguf", testing::ToyGgufBytes({.without_keys = {"tokenizer.chat_template"}, .add = [](GgufWriter* w) {
                                               w->AddString("tokenizer.chat_template",
                                                            "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
                                             }}));
  ServeAndEmptyTheFiles((folder_ / "model.gguf").string());
  ExpectServed();
}

TEST_F(ServedFilesTest, AGgufFileWithASentencePieceVocabularyMayShrink) {
  testing::ToyGguf toy{.without_keys = {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}};
  toy.add = [](GgufWriter* w) {
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "a", "b", "ab", "\xe2\x96\x81"};
    std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1};
    while (tokens.size() < 96) {
      tokens.push_back(absl::StrCat("t", tokens.size()));
      types.push_back(1);
    }
    w->AddString("tokenizer.ggml.model", "llama");
    w->AddStrings("tokenizer.ggml.tokens", tokens);
    w->AddI32s("tokenizer.ggml.token_type", types);
    w->AddFloats("tokenizer.ggml.scores", std::vector<float>(96, 0));
  };
  Write("model.gguf", testing::ToyGgufBytes(toy));
  ServeAndEmptyTheFiles((folder_ / "model.gguf").string());
  ExpectServed();
}

TEST_F(ServedFilesTest, FoldersMayShrink) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    Stop();
    testing::WriteToyFolder(folder_.string(), {.type = type});
    Write("tokenizer.json",
          R"({"added_tokens":[{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}],
              "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},
              "model":{"type":"BPE","vocab":{"a":3,"b":4,"ab":5},"merges":["a b"]}})");
    Write("tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>",
          "chat_template":"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"})");
    ServeAndEmptyTheFiles(folder_.string());
    ExpectServed();
  }
}

// Not afterwards, but while it is read.
TEST(LoadGuard, TruncatedFilesEndTheProcessWithASentence) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/sluice_guard_", getpid());
  std::ofstream(path) << std::string(100'000, 'x');
  const auto read_what_is_gone = [&](bool guarded) {
    const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
    std::optional<LoadGuard> guard;
    if (guarded) guard.emplace();
    fs::resize_file(path, 0);
    volatile uint8_t byte = file->bytes()[50'000];
    (void)byte;
  };
  EXPECT_EXIT(read_what_is_gone(true), ::testing::ExitedWithCode(1), "a file of the model was cut short while it was");
  std::ofstream(path) << std::string(100'000, 'x');
  EXPECT_EXIT(read_what_is_gone(false), ::testing::KilledBySignal(SIGBUS), "");
  fs::remove(path);
}

TEST(LoadGuard, WhatWasThereBeforeComesBack) {
  { const LoadGuard guard; }
  struct sigaction now = {};
  sigaction(SIGBUS, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace sluice
