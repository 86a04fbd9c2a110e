// A Hugging Face folder behind the real server: token ids are served, and text is refused where there is no tokenizer.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/runtime/runner.h"
#include "server/load_host.h"
#include "tests/model/toy_folder.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class FolderTest : public ServerTest {
 protected:
  FolderTest() : folder_(fs::path(::testing::TempDir()) / absl::StrCat("sluice_served_", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    testing::WriteToyFolder(folder_.string(), {.num_shards = 2});
    ServerOptions options = TestOptions();
    options.model.path = folder_.string();
    options.model.num_threads = 1;
    options.model.kv_memory_bytes = 1 << 20;
    Start(options, [&](ModelHost* host) {
      absl::StatusOr<ModelHost> loaded = LoadModelHost(options);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      *host = *std::move(loaded);
    });
  }
  ~FolderTest() override {
    Stop();
    fs::remove_all(folder_);
  }

  const fs::path folder_;
};

TEST_F(FolderTest, WhatTheFlagsSayReachesTheRunner) {
  ServerOptions options = TestOptions();
  options.model.path = folder_.string();
  options.model.num_threads = 1;
  options.model.kv_memory_bytes = 1 << 20;
  options.model.max_model_len = 100;
  options.model.block_size = 32;
  options.model.device.mla_expand_from = 50;
  options.limits.max_num_batched_tokens = 200;
  const absl::StatusOr<ModelHost> host = LoadModelHost(options);
  ASSERT_TRUE(host.ok()) << host.status();
  const Runner& runner = static_cast<const Runner&>(*host->runner);
  EXPECT_EQ(runner.options().max_model_len, 100);
  EXPECT_EQ(runner.options().block_size, 32);
  EXPECT_EQ(host->engine.numerics.mla_expand_from, 50);
  EXPECT_EQ(runner.options().max_num_batched_tokens, 200);
  EXPECT_EQ(host->engine.max_num_batched_tokens, 200);
}

TEST_F(FolderTest, EachProcessHasAPrefixCacheWithARootOfItsOwnUnlessItIsOff) {
  ServerOptions options = TestOptions();
  options.model.path = folder_.string();
  options.model.num_threads = 1;
  options.model.kv_memory_bytes = 1 << 20;
  const absl::StatusOr<ModelHost> host = LoadModelHost(options), another = LoadModelHost(options);
  ASSERT_TRUE(host.ok() && another.ok()) << host.status() << another.status();
  EXPECT_TRUE(host->engine.prefix_cache);
  EXPECT_NE(host->engine.prefix_cache_root, another->engine.prefix_cache_root);
  options.model.prefix_cache = false;
  const absl::StatusOr<ModelHost> off = LoadModelHost(options);
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_FALSE(off->engine.prefix_cache);
}

TEST_F(FolderTest, WarnsWithBothNumbersWhenMemoryShrinksTheContext) {
  ServerOptions options = TestOptions();
  options.model.path = folder_.string();
  options.model.num_threads = 1;
  options.model.kv_memory_bytes = 3 * 16 * 2 * 2 * 2 * 16 * 2;  // three blocks of 16 tokens: 2 layers, 2 heads of 16
  ::testing::internal::CaptureStderr();
  const absl::StatusOr<ModelHost> host = LoadModelHost(options);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->engine.max_model_len, 48);
  EXPECT_THAT(log,
              ::testing::ContainsRegex(
                  "WARNING requests are limited to 48 tokens, below the model's context of 128, .*raise --kv-memory"));
  // Who asked for it, or has room, is not warned.
  for (const auto& [length, bytes] : {std::pair(48, *options.model.kv_memory_bytes), std::pair(0, int64_t{1} << 20)}) {
    options.model.max_model_len = length;
    options.model.kv_memory_bytes = bytes;
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(LoadModelHost(options).ok());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::Not(::testing::HasSubstr("WARNING")));
  }
}

TEST_F(FolderTest, TokenIdsAreServed) {
  v1::CompleteRequest request;
  for (uint32_t id : {3, 4, 5}) request.mutable_prompt_ids()->add_ids(id);
  request.mutable_options()->set_max_tokens(4);
  request.mutable_options()->set_ignore_eos(true);
  const v1::Generated response = CompleteOk(request);
  ASSERT_EQ(response.choices_size(), 1);
  EXPECT_EQ(response.choices(0).token_ids_size(), 4);
  EXPECT_EQ(response.choices(0).text(), "");
  request.mutable_prompt_ids()->add_ids(96);
  EXPECT_EQ(Complete(request).error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(FolderTest, TextIsRefused) {
  const auto expect_refused = [](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION) << status.error_message();
    EXPECT_EQ(DetailsOf(status).info.reason(), "NO_TOKENIZER");
  };
  expect_refused(Complete(Prompt("abc")));
  v1::ChatRequest chat;
  chat.add_messages()->set_role(v1::ROLE_USER);
  chat.mutable_messages(0)->add_content()->set_text("abc");
  v1::ChatResponse chatted;
  grpc::ClientContext of_chat, of_tokenize, of_detokenize;
  expect_refused(generation()->Chat(&of_chat, chat, &chatted));
  v1::TokenizeRequest text;
  text.set_text("abc");
  v1::TokenizeResponse tokens;
  expect_refused(tokenizer()->Tokenize(&of_tokenize, text, &tokens));
  v1::DetokenizeRequest ids;
  ids.add_token_ids(1);
  v1::DetokenizeResponse detokenized;
  expect_refused(tokenizer()->Detokenize(&of_detokenize, ids, &detokenized));
}

TEST_F(FolderTest, ClientsAreToldWhatItIs) {
  grpc::ClientContext context;
  v1::ListModelsResponse list;
  ASSERT_TRUE(models()->ListModels(&context, v1::ListModelsRequest(), &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  const v1::Model& model = list.models(0);
  EXPECT_EQ(model.architecture(), "llama");
  EXPECT_EQ(model.weight_type(), "BF16");
  EXPECT_EQ(model.context_length(), 128u);
  EXPECT_THAT(model.eos_token_ids(), ::testing::ElementsAre(2));
  EXPECT_THAT(model.capabilities(), ::testing::Not(::testing::Contains(v1::CAPABILITY_TEXT)));
  EXPECT_FALSE(model.has_chat_template());
}

}  // namespace
}  // namespace sluice
