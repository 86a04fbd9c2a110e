// Puts the conversations of requests into a model's chat template so that nothing of them is lost.
//
// ChatTemplate renders what it is given, as transformers does; many published templates then drop a message of a role
// that they do not know, or print a list of parts as Python prints it. So the template is tried out once, when it is
// loaded, with small conversations of each role:
// - A developer message becomes a system message where the template does not know the role.
// - The pieces of a message go to the template as a list where it reads lists (and there are several, or it reads
//   nothing else), and as one text, joined without a separator, where it does not.
// And after every render: a message of which nothing is in the prompt is refused, unless the template shows other words
// in its place (it may read "/no_think" as a switch, or leave out the thoughts of earlier answers).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/chat_template.h"

namespace sluice {

enum class ChatRole { kSystem, kDeveloper, kUser, kAssistant, kTool };
inline constexpr size_t kNumChatRoles = 5;
inline constexpr ChatRole kChatRoles[kNumChatRoles] = {ChatRole::kSystem, ChatRole::kDeveloper, ChatRole::kUser,
                                                       ChatRole::kAssistant, ChatRole::kTool};
// As templates know it: "system", ...
absl::string_view NameOf(ChatRole role);

// What a template does with a message of one role where such messages usually stand.
struct RoleTraits {
  enum class Fate { kShown, kDropped, kRefused };
  Fate fate = Fate::kShown;
  std::string complaint;     // kRefused: in the template's words
  bool reads_parts = false;  // a list of parts comes out as their texts
  bool needs_parts = false;  // and one text does not come out
};

struct ConversationMessage {
  ChatRole role = ChatRole::kUser;
  std::vector<std::string> texts;  // its pieces, at least one
  std::string name;
};

// As ChatInputs.
struct Conversation {
  std::vector<ConversationMessage> messages;
  std::string kwargs_json;
  ChatEnding ending = ChatEnding::kGenerationPrompt;
  std::string bos_token;
  std::string eos_token;
  absl::CivilSecond now;
};

// Immutable; all methods are thread-safe.
class ChatFormatter {
 public:
  // Errors as ChatTemplate::Parse.
  static absl::StatusOr<ChatFormatter> Create(absl::string_view source, const jinja::Limits& limits = {});

  // Errors as ChatTemplate::Render; INVALID_ARGUMENT with the field messages[i].role, too, for a message that the
  // template has no place for.
  absl::StatusOr<RenderedChat> Render(const Conversation& conversation) const;

  const RoleTraits& traits(ChatRole role) const { return traits_[static_cast<size_t>(role)]; }
  // Whether messages of the role can be sent: shown as they are, or as those of another role; a template that refused
  // the trial may take others.
  bool Takes(ChatRole role) const;
  // For whoever loads the template: filters and tests that are not known, with their places; roles that are left out.
  std::vector<std::string> Warnings() const;

 private:
  explicit ChatFormatter(ChatTemplate parsed) : template_(std::move(parsed)) {}

  void Probe(const jinja::Limits& limits);
  ChatRole RoleShown(ChatRole role) const;
  absl::Status CheckRoles(const Conversation& conversation) const;
  ChatInputs Inputs(const Conversation& conversation) const;

  ChatTemplate template_;
  std::array<RoleTraits, kNumChatRoles> traits_;
};

}  // namespace sluice
