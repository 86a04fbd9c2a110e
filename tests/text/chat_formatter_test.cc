// No message of a request is lost on its way through a template: shown, changed into one that is, or refused by name.
#include "engine/text/chat_formatter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Fate = RoleTraits::Fate;

constexpr char kChatMl[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
// Knows system in front, user and assistant.
constexpr char kStrict[] =
    "{% if messages[0].role == 'system' %}[{{ messages[0].content }}]{% set rest = messages[1:] %}{% else %}"
    "{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role in ('user', 'assistant') %}"
    "<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";

Conversation Of(std::vector<ConversationMessage> messages) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  return conversation;
}

ChatFormatter Formatter(absl::string_view source) {
  auto formatter = ChatFormatter::Create(source);
  EXPECT_TRUE(formatter.ok()) << formatter.status();
  return *std::move(formatter);
}

std::string Render(absl::string_view source, const Conversation& conversation) {
  const auto rendered = Formatter(source).Render(conversation);
  return rendered.ok() ? rendered->text : absl::StrCat(FieldOf(rendered.status()), "!");
}

// ---- roles

TEST(ChatRoles, DeveloperStaysWhereTheTemplateShowsIt) {
  EXPECT_EQ(Render(kChatMl, Of({{ChatRole::kDeveloper, {"d"}, ""}, {ChatRole::kUser, {"u"}, ""}})),
            "<|developer|>d<|end|><|user|>u<|end|><|assistant|>");
}

TEST(ChatRoles, DeveloperBecomesSystemWhereTheTemplateDropsIt) {
  EXPECT_EQ(Render(kStrict, Of({{ChatRole::kDeveloper, {"d"}, ""}, {ChatRole::kUser, {"u"}, ""}})), "[d]<user>u");
}

TEST(ChatRoles, DeveloperBecomesSystemWhereTheTemplateRefusesIt) {
  const std::string refusing = absl::StrCat(
      "{% for m in messages %}{% if m.role == 'developer' %}{{ raise_exception('no') }}{% endif %}{% endfor %}",
      kChatMl);
  EXPECT_EQ(Render(refusing, Of({{ChatRole::kDeveloper, {"d"}, ""}})), "<|system|>d<|end|><|assistant|>");
}

TEST(ChatRoles, MessagesWithoutAPlaceAreRefusedByTheirNumber) {
  EXPECT_EQ(Render(kStrict, Of({{ChatRole::kUser, {"u"}, ""}, {ChatRole::kSystem, {"late"}, ""}})),
            "messages[1].role!");
  EXPECT_EQ(Render(kStrict, Of({{ChatRole::kUser, {"u"}, ""}, {ChatRole::kDeveloper, {"late"}, ""}})),
            "messages[1].role!");
  EXPECT_EQ(Render(kStrict, Of({{ChatRole::kUser, {"u"}, ""}, {ChatRole::kTool, {"t"}, ""}})), "messages[1].role!");
}

TEST(ChatRoles, WithoutASystemRoleBothAreRefused) {
  const std::string none =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
  for (const ChatRole role : {ChatRole::kSystem, ChatRole::kDeveloper}) {
    const auto rendered = Formatter(none).Render(Of({{role, {"s"}, ""}, {ChatRole::kUser, {"u"}, ""}}));
    EXPECT_EQ(FieldOf(rendered.status()), "messages[0].role");
    EXPECT_THAT(std::string(rendered.status().message()), HasSubstr("System role not supported"));
  }
}

TEST(ChatRoles, AMessageReadAsASwitchMayLeaveNothing) {
  const std::string thinking =
      "{% for m in messages %}<{{ m.role }}>{{ m.content.replace('/no_think', '') }}{% endfor %}"
      "{% if '/no_think' in messages[0].content %}!{% endif %}";
  EXPECT_EQ(Render(thinking, Of({{ChatRole::kSystem, {"/no_think"}, ""}, {ChatRole::kUser, {"u"}, ""}})),
            "<system><user>u!");
}

TEST(ChatRoles, EmptyMessagesNeedNoPlace) {
  EXPECT_EQ(Render(kStrict, Of({{ChatRole::kUser, {"u"}, ""}, {ChatRole::kTool, {" \n"}, ""}})), "<user>u");
}

TEST(ChatRoles, TheTrialNotesWhatIsLeftOut) {
  const ChatFormatter strict = Formatter(kStrict);
  EXPECT_EQ(strict.traits(ChatRole::kTool).fate, Fate::kDropped);
  EXPECT_EQ(strict.traits(ChatRole::kDeveloper).fate, Fate::kDropped);
  EXPECT_TRUE(strict.Takes(ChatRole::kDeveloper));
  EXPECT_FALSE(strict.Takes(ChatRole::kTool));
  EXPECT_THAT(strict.Warnings(), ElementsAre("messages of these roles have no place: tool"));
  EXPECT_THAT(Formatter(kChatMl).Warnings(), ElementsAre());
  EXPECT_THAT(Formatter("{{ messages | nope }}").Warnings(), Contains("line 1, column 15: there is no filter 'nope'"));
}

TEST(ChatRoles, AToolMayNeedTheCallBeforeIt) {
  const ChatFormatter needs_call = Formatter(
      "{% for m in messages %}{% if m.role == 'tool' and not messages[loop.index0 - 1].tool_calls %}"
      "{{ raise_exception('no call') }}{% endif %}{{ m.content }}{% endfor %}");
  EXPECT_TRUE(needs_call.Takes(ChatRole::kTool));
  EXPECT_EQ(needs_call.traits(ChatRole::kTool).fate, Fate::kShown);
}

// ---- parts

constexpr char kReadsBoth[] =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}({{ p.text | trim }}){% endfor %}{% endif %}{% endfor %}";

TEST(ChatParts, SeveralPartsAreAListWhereTheTemplateReadsLists) {
  EXPECT_EQ(Render(kReadsBoth, Of({{ChatRole::kUser, {" a ", "b"}, ""}})), "(a)(b)");
}

TEST(ChatParts, OnePartIsText) { EXPECT_EQ(Render(kReadsBoth, Of({{ChatRole::kUser, {" a "}, ""}})), " a "); }

TEST(ChatParts, OnePartIsAListWhereTheTemplateReadsNothingElse) {
  EXPECT_EQ(Render("{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endfor %}",
                   Of({{ChatRole::kUser, {"a"}, ""}})),
            "(a)");
}

TEST(ChatParts, PartsAreJoinedWhereTheTemplatePrintsOrRefusesLists) {
  for (const std::string content : {"m.content", "'' + m.content", "m.content | trim", "m.content | tojson"}) {
    const std::string text =
        Render("{% for m in messages %}{{ " + content + " }}{% endfor %}", Of({{ChatRole::kUser, {"a ", "b"}, ""}}));
    EXPECT_EQ(text, content == "m.content | tojson" ? "\"a b\"" : "a b") << content;
  }
}

TEST(ChatParts, EachRoleIsAskedByItself) {
  const std::string users_only =
      "{% for m in messages %}{% if m.role == 'user' and m.content is not string %}"
      "{% for p in m.content %}({{ p.text }}){% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(Render(users_only, Of({{ChatRole::kSystem, {"a", "b"}, ""}, {ChatRole::kUser, {"c", "d"}, ""}})),
            "ab(c)(d)");
}

TEST(ChatParts, TheLastPartIsContinued) {
  Conversation conversation = Of({{ChatRole::kUser, {"q"}, ""}, {ChatRole::kAssistant, {"a", "so "}, ""}});
  conversation.ending = ChatEnding::kContinueFinalMessage;
  EXPECT_EQ(Render(kReadsBoth, conversation), "q(a)(so");
}

// ---- the trial is bounded

TEST(ChatFormatter, HostileTemplatesAreLoadedSoon) {
  for (const char* source :
       {"{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}", "{{ 'x' * 100000000 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ messages[99].x.y }}"}) {
    const ChatFormatter formatter = Formatter(source);
    EXPECT_EQ(formatter.traits(ChatRole::kUser).fate, Fate::kRefused);
    EXPECT_FALSE(formatter.Render(Of({{ChatRole::kUser, {"u"}, ""}})).ok());
  }
}

TEST(ChatFormatter, WhatDoesNotParseIsToldWithItsPlace) {
  EXPECT_THAT(std::string(ChatFormatter::Create("a\n{{ b").status().message()), HasSubstr("line 2, column 1"));
}

}  // namespace
}  // namespace sluice
