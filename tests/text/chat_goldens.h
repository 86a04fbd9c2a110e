// The golden files of tests/goldens/chat_templates (make_chat_templates.py).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/chat_formatter.h"
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

// {{ expression }}: its text, or that it is refused.
struct ExpressionCase {
  std::string expression;
  std::string text;
  bool is_error = false;
};
struct ExpressionGoldens {
  std::string kwargs_json;
  std::vector<ExpressionCase> cases;
};
ExpressionGoldens LoadExpressionGoldens();

// Messages of every role in every place, as one text and in pieces, and what becomes of them: by template the hash of
// the prompt, "error", or "unseen1" where the message 1 has no place.
struct RoleGoldens {
  std::vector<Conversation> conversations;
  std::vector<std::string> names;  // of the conversations, for messages
  struct Outcomes {
    std::string name;           // of the template's file
    std::string template_hash;  // Fnv1a of the source
    std::vector<std::string> outcomes;
  };
  std::vector<Outcomes> templates;
};
RoleGoldens LoadRoleGoldens();

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
