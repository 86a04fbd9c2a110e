// The golden files of tests/goldens/chat_templates (make_chat_templates.py).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/chat_template.h"

namespace sluice {

// What the goldens were made with: <BOS>, <EOS>, 2026-11-29 12:34:56.
ChatInputs GoldenInputs();

struct FeatureCase {
  std::string name;
  std::string source;
  std::string text;
  bool is_error = false;
};
struct FeatureGoldens {
  ChatInputs inputs;  // of all cases
  std::vector<FeatureCase> cases;
};
FeatureGoldens LoadFeatureGoldens();

struct ConversationCase {
  std::string name;
  ChatInputs inputs;
};
std::vector<ConversationCase> LoadConversations();

// What one template made of each conversation.
struct TemplateGolden {
  std::string name;           // of the file
  std::string template_hash;  // Fnv1a of the source
  // Of each conversation the text's hash, or "error".
  std::vector<std::string> hashes;
  std::vector<std::string> texts;  // the texts themselves, if the golden file has them
};
TemplateGolden LoadTemplateGolden(const std::string& name);
std::vector<TemplateGolden> LoadTemplateGoldens(const std::string& name);

// FNV-1a with 64 bits, folded to 8 hexadecimal digits.
std::string Fnv1a(absl::string_view text);

}  // namespace sluice
