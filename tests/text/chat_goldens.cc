#include "tests/text/chat_goldens.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/check.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json Load(const std::string& name) {
  std::ifstream file(absl::StrCat(SLUICE_SOURCE_DIR, "/tests/goldens/chat_templates/", name, ".json"));
  SLUICE_CHECK(file.good());
  return Json::parse(file);
}

std::vector<ChatMessage> Messages(const Json& json) {
  std::vector<ChatMessage> messages;
  for (const Json& m : json) {
    ChatMessage message;
    message.role = m.at("role");
    if (m.contains("content")) message.content = m.at("content").get<std::string>();
    message.extra_json = m.value("extra", "");
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace

ChatInputs GoldenInputs() {
  ChatInputs inputs;
  inputs.bos_token = "<BOS>";
  inputs.eos_token = "<EOS>";
  inputs.now = absl::CivilSecond(2026, 11, 29, 12, 34, 56);
  return inputs;
}

FeatureGoldens LoadFeatureGoldens() {
  const Json json = Load("features");
  FeatureGoldens goldens;
  goldens.inputs = GoldenInputs();
  goldens.inputs.messages = Messages(json.at("messages"));
  goldens.inputs.kwargs_json = json.at("kwargs");
  for (const Json& c : json.at("cases")) {
    goldens.cases.push_back({c.at("name"), c.at("template"), c.value("text", ""), c.contains("error")});
  }
  return goldens;
}

ExpressionGoldens LoadExpressionGoldens() {
  const Json json = Load("expressions");
  ExpressionGoldens goldens;
  goldens.kwargs_json = json.at("kwargs");
  for (const Json& c : json.at("cases")) {
    const bool is_error = c.at(1).is_null();
    goldens.cases.push_back({c.at(0), is_error ? "" : c.at(1).get<std::string>(), is_error});
  }
  return goldens;
}

RoleGoldens LoadRoleGoldens() {
  const Json json = Load("roles");
  RoleGoldens goldens;
  for (const Json& roles : json.at("roles")) {
    for (const Json& pieces : json.at("pieces")) {
      Conversation conversation;
      conversation.bos_token = GoldenInputs().bos_token;
      conversation.eos_token = GoldenInputs().eos_token;
      conversation.now = GoldenInputs().now;
      std::string name = absl::StrCat(pieces.size(), " pieces of");
      for (size_t i = 0; i < roles.size(); ++i) {
        ConversationMessage message;
        message.role = *std::find_if(std::begin(kChatRoles), std::end(kChatRoles),
                                     [&](ChatRole role) { return NameOf(role) == roles.at(i).get<std::string>(); });
        for (const Json& piece : pieces) {
          message.texts.push_back(absl::StrReplaceAll(piece.get<std::string>(), {{"%d", absl::StrCat(i)}}));
        }
        absl::StrAppend(&name, " ", NameOf(message.role));
        conversation.messages.push_back(std::move(message));
      }
      goldens.conversations.push_back(std::move(conversation));
      goldens.names.push_back(std::move(name));
    }
  }
  for (const auto& [file, golden] : json.at("templates").items()) {
    goldens.templates.push_back(
        {file, golden.at("template"), absl::StrSplit(golden.at("outcomes").get<std::string>(), ' ')});
  }
  return goldens;
}

std::vector<ConversationCase> LoadConversations() {
  const Json json = Load("conversations");
  std::vector<ConversationCase> cases;
  for (const Json& c : json.at("cases")) {
    ConversationCase result;
    const std::string ending = c.at("ending");
    result.name = absl::StrCat(c.at("conversation").get<std::string>(), c.at("tools") ? "+tools" : "", "+kwargs",
                               c.at("kwargs").get<int>(), "+", ending);
    result.inputs = GoldenInputs();
    result.inputs.messages = Messages(json.at("conversations").at(c.at("conversation").get<std::string>()));
    if (c.at("tools")) result.inputs.tools_json = json.at("tools");
    result.inputs.kwargs_json = json.at("kwargs").at(c.at("kwargs").get<size_t>());
    result.inputs.ending = ending == "prompt"     ? ChatEnding::kGenerationPrompt
                           : ending == "complete" ? ChatEnding::kComplete
                                                  : ChatEnding::kContinueFinalMessage;
    cases.push_back(std::move(result));
  }
  return cases;
}

TemplateGolden LoadTemplateGolden(const std::string& name) {
  const Json json = Load(name);
  TemplateGolden golden{name, json.at("template"), {}, {}};
  for (const Json& outcome : json.at("outcomes")) {
    golden.texts.push_back(outcome.value("text", ""));
    golden.hashes.push_back(outcome.contains("error") ? "error" : Fnv1a(golden.texts.back()));
  }
  return golden;
}

std::vector<TemplateGolden> LoadTemplateGoldens(const std::string& name) {
  std::vector<TemplateGolden> goldens;
  const Json json = Load(name);
  for (const auto& [file, golden] : json.items()) {
    goldens.push_back({file, golden.at("template"), absl::StrSplit(golden.at("outcomes").get<std::string>(), ' '), {}});
  }
  return goldens;
}

std::string Fnv1a(absl::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return absl::StrFormat("%08x", static_cast<uint32_t>(hash >> 32) ^ static_cast<uint32_t>(hash));
}

}  // namespace sluice
