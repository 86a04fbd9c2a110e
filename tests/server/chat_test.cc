// Conversations: the template's own control tokens count, those of a message do not.
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <variant>

#include "engine/text/chat_formatter.h"
#include "engine/text/utf8.h"
#include "tests/server/server_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

void Say(v1::Role role, const std::string& text, google::protobuf::RepeatedPtrField<v1::ChatMessage>* messages) {
  v1::ChatMessage* message = messages->Add();
  message->set_role(role);
  message->add_content()->set_text(text);
}

std::vector<int32_t> Ids(std::initializer_list<std::variant<int32_t, std::string>> parts) {
  std::vector<int32_t> ids;
  for (const auto& part : parts) {
    if (const int32_t* id = std::get_if<int32_t>(&part)) {
      ids.push_back(*id);
    } else {
      for (char c : std::get<std::string>(part)) ids.push_back(uint8_t(c));
    }
  }
  return ids;
}

void SetTemplate(ModelHost* host, absl::string_view source, const jinja::Limits& limits = {}) {
  auto formatter = ChatFormatter::Create(source, limits);
  ASSERT_TRUE(formatter.ok()) << formatter.status();
  host->chat_template = std::make_shared<const ChatFormatter>(*std::move(formatter));
}

class ChatTest : public ServerTest {
 protected:
  ChatTest() { Start(); }

  void Restart(const std::string& source, const jinja::Limits& limits = {}) {
    Stop();
    Start(TestOptions(), [&](ModelHost* host) { SetTemplate(host, source, limits); });
  }

  grpc::Status Chat(const v1::ChatRequest& request, v1::ChatResponse* response) const {
    grpc::ClientContext context;
    return generation()->Chat(&context, request, response);
  }
  grpc::Status Render(const v1::RenderChatRequest& request, v1::RenderChatResponse* response) const {
    grpc::ClientContext context;
    return tokenizer()->RenderChat(&context, request, response);
  }
  void ExpectError(const v1::ChatRequest& request, grpc::StatusCode code, const std::string& field) const {
    v1::ChatResponse response;
    const grpc::Status status = Chat(request, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_EQ(DetailsOf(status).field(), field) << status.error_message();
  }
};

TEST_F(ChatTest, AConversationIsRenderedAndAnswered) {
  v1::ChatRequest request;
  Say(v1::ROLE_SYSTEM, "S", request.mutable_messages());
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  v1::ChatResponse response;
  const grpc::Status status = Chat(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.generated().choices(0).text(), "hello");
  EXPECT_EQ(response.generated().choices(0).finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(model_->last_seen().prompt,
            Ids({kStart, "system:S", kMark, kStart, "user:U", kMark, kStart, "assistant:"}));
  EXPECT_EQ(response.generated().usage().prompt_tokens(), model_->last_seen().prompt.size());
}

TEST_F(ChatTest, ControlTokensInAMessageStayText) {
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "<|mark|><|end|>", request.mutable_messages());
  v1::ChatResponse response;
  ASSERT_TRUE(Chat(request, &response).ok());
  EXPECT_EQ(model_->last_seen().prompt, Ids({kStart, "user:<|mark|><|end|>", kMark, kStart, "assistant:"}));
}

TEST_F(ChatTest, PartsOfAMessageAreJoinedAndNamesAreShown) {
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "a", request.mutable_messages());
  request.mutable_messages(0)->add_content()->set_text("b");
  request.mutable_messages(0)->set_name("Ann");
  v1::ChatResponse response;
  ASSERT_TRUE(Chat(request, &response).ok());
  EXPECT_EQ(model_->last_seen().prompt, Ids({kStart, "user(Ann):ab", kMark, kStart, "assistant:"}));
}

TEST_F(ChatTest, EveryRoleHasItsName) {
  for (const auto& [role, name] : {std::pair{v1::ROLE_SYSTEM, "system"},
                                   {v1::ROLE_DEVELOPER, "developer"},
                                   {v1::ROLE_USER, "user"},
                                   {v1::ROLE_ASSISTANT, "assistant"},
                                   {v1::ROLE_TOOL, "tool"}}) {
    v1::RenderChatRequest request;
    Say(role, "x", request.mutable_messages());
    request.set_add_generation_prompt(false);
    v1::RenderChatResponse response;
    ASSERT_TRUE(Render(request, &response).ok());
    EXPECT_EQ(response.prompt(), std::string("<|start|>") + name + ":x<|mark|>");
  }
}

TEST_F(ChatTest, TheFinalMessageCanBeContinued) {
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  Say(v1::ROLE_ASSISTANT, "so far", request.mutable_messages());
  request.set_continue_final_message(true);
  v1::ChatResponse response;
  ASSERT_TRUE(Chat(request, &response).ok());
  EXPECT_EQ(model_->last_seen().prompt, Ids({kStart, "user:U", kMark, kStart, "assistant:so far"}));
  request.mutable_messages()->RemoveLast();
  ExpectError(request, grpc::INVALID_ARGUMENT, "continue_final_message");
}

TEST_F(ChatTest, TemplateKwargsReachTheTemplate) {
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  request.set_chat_template_kwargs_json(R"({"mood": "glad"})");
  v1::ChatResponse response;
  ASSERT_TRUE(Chat(request, &response).ok());
  EXPECT_EQ(model_->last_seen().prompt, Ids({kStart, "user:U", kMark, "[glad]", kStart, "assistant:"}));
}

TEST_F(ChatTest, EqualRequestsHaveEqualPromptsAThousandTimes) {
  Restart(
      "{{ messages[0].content }}{{ a | tojson }}{% for k in a %}{{ k }}{% endfor %}{% for k, v in a.items() %}{{ k }}{{ v }}"
      "{% endfor %}{{ a }}");
  v1::RenderChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  request.set_chat_template_kwargs_json(
      R"({"a": {"zeta": {"y": 1.50, "x": 1.0}, "alpha": 1, "m": 1e15, "big": 123456789012345678901234567890, "b": [true, null]}})");
  std::set<std::string> prompts;
  for (int i = 0; i < 1000; ++i) {
    v1::RenderChatResponse response;
    ASSERT_TRUE(Render(request, &response).ok());
    prompts.insert(response.prompt());
  }
  // As Python's json and print have it.
  EXPECT_THAT(prompts,
              ElementsAre("U"
                          R"({"zeta": {"y": 1.5, "x": 1.0}, "alpha": 1, "m": 1000000000000000.0, )"
                          R"("big": 123456789012345678901234567890, "b": [true, null]})"
                          "zetaalphambigb"
                          "zeta{'y': 1.5, 'x': 1.0}alpha1m1000000000000000.0big123456789012345678901234567890b[True, None]"
                          "{'zeta': {'y': 1.5, 'x': 1.0}, 'alpha': 1, 'm': 1000000000000000.0, "
                          "'big': 123456789012345678901234567890, 'b': [True, None]}"));
}

TEST_F(ChatTest, VariablesThatAreNoJsonAreNamedWithLineAndColumn) {
  const std::pair<std::string, std::string> cases[] = {
      {"{\"a\": 1,\n  \"b\" 2}", "line 2, column 7"},
      {"{\"\xC3\xA9\": nul}", "line 1, column 10: not valid JSON: invalid literal"},
      {"{\"a\": 1} x", "line 1, column 10"},
      {std::string("{\"a\": 1}\0{", 10), "line 1, column 9: found a zero byte"},
      {"{\"a\": NaN}", "line 1, column 7"},
      {"{\"a\": \"\\ud800\"}", "line 1, column"},
      {"[1]", "expected a JSON object"},
      {"null", "expected a JSON object"},
      {" ", "line 1, column"},
      {"{\"a\": " + std::string(200, '[') + std::string(200, ']') + "}", "line 1, column 206: JSON nests deeper than 200"},
      {"{\"a\": " + std::string(4301, '9') + "}", "line 1, column 4307: not valid JSON: number overflow"},
  };
  for (const auto& [json, words] : cases) {
    v1::RenderChatRequest request;
    Say(v1::ROLE_USER, "U", request.mutable_messages());
    request.set_chat_template_kwargs_json(json);
    v1::RenderChatResponse response;
    const grpc::Status status = Render(request, &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << json;
    EXPECT_EQ(DetailsOf(status).field(), "chat_template_kwargs_json") << json;
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(words));
  }
}

TEST_F(ChatTest, VariablesOfAnySizeAreBoundedByWhatTheyBecome) {
  jinja::Limits limits;
  limits.max_built_bytes = 1 << 20;
  Restart("{{ messages[0].content }}", limits);
  std::string json = R"({"a": [)";
  while (json.size() < 200'000) json += "[],";
  json += "[]]}";
  v1::RenderChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  request.set_chat_template_kwargs_json(json);
  v1::RenderChatResponse response;
  const grpc::Status status = Render(request, &response);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(DetailsOf(status).info.reason(), "CHAT_TEMPLATE_TOO_COSTLY");
}

TEST_F(ChatTest, VariablesThatTheTemplateCannotTakeAreNamed) {
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  request.set_chat_template_kwargs_json(R"({"messages": []})");
  ExpectError(request, grpc::INVALID_ARGUMENT, "chat_template_kwargs_json.messages");
  request.set_chat_template_kwargs_json(R"({"tools": [{}]})");
  ExpectError(request, grpc::INVALID_ARGUMENT, "chat_template_kwargs_json.tools");
}

TEST_F(ChatTest, PartsReachATemplateThatReadsThemAsAList) {
  Restart(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}({{ p.text "
      "}})"
      "{% endfor %}{% endif %}{% endfor %}");
  v1::RenderChatRequest request;
  Say(v1::ROLE_USER, "a", request.mutable_messages());
  request.mutable_messages(0)->add_content()->set_text("b");
  Say(v1::ROLE_ASSISTANT, "c", request.mutable_messages());
  v1::RenderChatResponse response;
  ASSERT_TRUE(Render(request, &response).ok());
  EXPECT_EQ(response.prompt(), "(a)(b)c");
}

TEST_F(ChatTest, NoMessageVanishes) {
  Restart(
      "{% for m in messages %}{% if m.role in ('system', 'user') %}<|start|>{{ m.role }}:{{ m.content }}{% endif %}{% "
      "endfor %}");
  v1::ChatRequest request;
  Say(v1::ROLE_DEVELOPER, "D", request.mutable_messages());
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  v1::ChatResponse response;
  ASSERT_TRUE(Chat(request, &response).ok());
  EXPECT_EQ(model_->last_seen().prompt, Ids({kStart, "system:D", kStart, "user:U"}));
  Say(v1::ROLE_TOOL, "T", request.mutable_messages());
  ExpectError(request, grpc::INVALID_ARGUMENT, "messages[2].role");

  v1::GetModelResponse model;
  grpc::ClientContext context;
  ASSERT_TRUE(models()->GetModel(&context, {}, &model).ok());
  EXPECT_THAT(model.model().chat_roles(), ElementsAre(v1::ROLE_SYSTEM, v1::ROLE_DEVELOPER, v1::ROLE_USER));
  EXPECT_THAT(model.model().chat_template_warnings(),
              ElementsAre("messages of these roles have no place: assistant, tool"));
}

TEST_F(ChatTest, ATemplateThatFailsIsNotTheRequestsFault) {
  Restart("{{ messages[0].content }}\n{% if messages | length > 1 %}{{ messages[0].content + 1 }}{% endif %}");
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  v1::ChatResponse response;
  ASSERT_TRUE(Chat(request, &response).ok());
  Say(v1::ROLE_USER, "V", request.mutable_messages());
  const grpc::Status status = Chat(request, &response);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(DetailsOf(status).info.reason(), "CHAT_TEMPLATE_FAILED");
  EXPECT_EQ(DetailsOf(status).field(), "");
  EXPECT_NE(status.error_message().find("chat template, line 2: '+' is not supported between str and int"),
            std::string::npos)
      << status.error_message();
}

TEST_F(ChatTest, ACostlyRenderEndsAtTheSameCountWithTheNameOfWhatRanOut) {
  jinja::Limits limits;
  limits.max_steps = 100'000;
  limits.max_built_bytes = 1 << 20;
  limits.max_output_bytes = 10'000;
  Restart(
      "{{ messages[0].content }}{% if steps %}{% for i in range(steps) %}{% set x = i + i * i - i + 1 %}{% endfor %}{% endif %}"
      "{% if memory %}{% set x = ('x' * 1000) * memory %}{% endif %}{% if output %}{% for i in range(output) %}x{% endfor %}{% endif %}",
      limits);
  const auto render = [&](const std::string& what, int count) {
    v1::RenderChatRequest request;
    Say(v1::ROLE_USER, "U", request.mutable_messages());
    request.set_chat_template_kwargs_json("{\"" + what + "\": " + std::to_string(count) + "}");
    v1::RenderChatResponse response;
    return Render(request, &response);
  };
  for (const auto& [what, words] : {std::pair{"steps", "takes more than 100000 steps"},
                                    {"memory", "builds more than 1048576 bytes of values"},
                                    {"output", "renders more than 10000 bytes"}}) {
    const grpc::Status status = render(what, 20'000);
    EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << what;
    EXPECT_EQ(DetailsOf(status).info.reason(), "CHAT_TEMPLATE_TOO_COSTLY");
    EXPECT_FALSE(DetailsOf(status).has_retry) << "another try would repeat the work";
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(words));
    EXPECT_TRUE(render(what, 100).ok()) << what;
  }
}

TEST_F(ChatTest, OptionsAndEnvelopeHoldForChatsToo) {
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  request.mutable_options()->set_max_tokens(2);
  request.set_request_id("chat-id");
  (*request.mutable_metadata())["k"] = "v";
  v1::ChatResponse response;
  ASSERT_TRUE(Chat(request, &response).ok());
  EXPECT_EQ(response.generated().choices(0).text(), "he");
  EXPECT_EQ(response.generated().request_id(), "chat-id");
  EXPECT_EQ(response.generated().metadata().at("k"), "v");
  request.set_model("other");
  ExpectError(request, grpc::NOT_FOUND, "");
}

TEST_F(ChatTest, AStreamedChatSaysTheSame) {
  v1::StreamChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  grpc::ClientContext context;
  const auto stub = generation();
  const auto reader = stub->StreamChat(&context, request);
  std::vector<v1::GenerationEvent> events;
  for (v1::StreamChatResponse response; reader->Read(&response);) events.push_back(response.event());
  ASSERT_TRUE(reader->Finish().ok());
  std::string text;
  for (const auto& event : events) text += event.delta().text();
  EXPECT_EQ(text, "hello");
  EXPECT_TRUE(events.front().has_started());
  EXPECT_TRUE(events.back().has_completed());
}

TEST_F(ChatTest, MalformedConversationsAreNamed) {
  v1::ChatRequest request;
  ExpectError(request, grpc::INVALID_ARGUMENT, "messages");
  Say(v1::ROLE_UNSPECIFIED, "x", request.mutable_messages());
  ExpectError(request, grpc::INVALID_ARGUMENT, "messages[0].role");
  request.mutable_messages(0)->set_role(v1::ROLE_USER);
  request.mutable_messages(0)->add_content();
  ExpectError(request, grpc::INVALID_ARGUMENT, "messages[0].content[1]");
  request.mutable_messages(0)->clear_content();
  ExpectError(request, grpc::INVALID_ARGUMENT, "messages[0].content");
}

TEST_F(ChatTest, ToolsAreNotBuilt) {
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  v1::ChatRequest changed = request;
  changed.add_tools()->set_name("t");
  ExpectError(changed, grpc::UNIMPLEMENTED, "tools");
  changed = request;
  changed.set_tool_choice("auto");
  ExpectError(changed, grpc::UNIMPLEMENTED, "tool_choice");
  changed = request;
  changed.mutable_messages(0)->add_tool_calls();
  ExpectError(changed, grpc::UNIMPLEMENTED, "messages[0].tool_calls");
  changed = request;
  changed.mutable_messages(0)->set_tool_call_id("x");
  ExpectError(changed, grpc::UNIMPLEMENTED, "messages[0].tool_call_id");
  changed = request;
  changed.set_priority(1);
  ExpectError(changed, grpc::UNIMPLEMENTED, "priority");
}

TEST_F(ChatTest, RenderChatShowsPromptAndTokens) {
  v1::RenderChatRequest request;
  request.set_model("alias");
  Say(v1::ROLE_USER, "<|mark|>", request.mutable_messages());
  v1::RenderChatResponse response;
  ASSERT_TRUE(Render(request, &response).ok());
  EXPECT_EQ(response.prompt(), "<|start|>user:<|mark|><|mark|><|start|>assistant:");
  const std::vector<int32_t> expected = Ids({kStart, "user:<|mark|>", kMark, kStart, "assistant:"});
  EXPECT_EQ(std::vector<int32_t>(response.token_ids().begin(), response.token_ids().end()), expected);

  request.set_add_generation_prompt(false);
  request.set_chat_template_kwargs_json(R"({"mood": "sad"})");
  ASSERT_TRUE(Render(request, &response).ok());
  EXPECT_EQ(response.prompt(), "<|start|>user:<|mark|><|mark|>[sad]");

  request.mutable_messages(0)->set_role(v1::ROLE_ASSISTANT);
  request.set_continue_final_message(true);
  ASSERT_TRUE(Render(request, &response).ok());
  EXPECT_EQ(response.prompt(), "<|start|>assistant:<|mark|>");
  request.set_add_generation_prompt(true);
  EXPECT_EQ(Render(request, &response).error_code(), grpc::INVALID_ARGUMENT);
  request.set_add_generation_prompt(false);
  request.add_tools();
  EXPECT_EQ(Render(request, &response).error_code(), grpc::UNIMPLEMENTED);
}

TEST_F(ChatTest, TokenizeAndDetokenizeHonourTheirFields) {
  v1::TokenizeRequest request;
  request.set_text("a<|mark|>");
  v1::TokenizeResponse response;
  const auto tokenize = [&] {
    response.Clear();
    grpc::ClientContext context;
    return tokenizer()->Tokenize(&context, request, &response);
  };
  ASSERT_TRUE(tokenize().ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(kStart, 'a', kMark));
  EXPECT_THAT(response.token_bytes(), ElementsAre("<|start|>", "a", "<|mark|>"));
  request.set_add_special_tokens(false);
  ASSERT_TRUE(tokenize().ok());
  EXPECT_THAT(response.token_ids(), ElementsAre('a', kMark));
  request.set_parse_special(false);
  ASSERT_TRUE(tokenize().ok());
  EXPECT_EQ(response.token_ids_size(), 9);
  request.set_model("other");
  EXPECT_EQ(tokenize().error_code(), grpc::NOT_FOUND);

  v1::DetokenizeRequest ids;
  for (uint32_t id : {uint32_t('a'), uint32_t(kMark), uint32_t(0xC3), uint32_t(0xA9)}) ids.add_token_ids(id);
  v1::DetokenizeResponse text;
  const auto detokenize = [&] {
    grpc::ClientContext context;
    return tokenizer()->Detokenize(&context, ids, &text);
  };
  ASSERT_TRUE(detokenize().ok());
  EXPECT_EQ(text.text(), "a<|mark|>\xC3\xA9");
  ids.set_skip_special_tokens(true);
  ASSERT_TRUE(detokenize().ok());
  EXPECT_EQ(text.text(), "a\xC3\xA9");
  ids.add_token_ids(kFakeVocabSize);
  const grpc::Status status = detokenize();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "token_ids[4]");
  ids.set_model("other");
  EXPECT_EQ(detokenize().error_code(), grpc::NOT_FOUND);
}

TEST_F(ChatTest, TextWithoutATokenIsRefusedNamingTheField) {
  Stop();
  Start(TestOptions(), [](ModelHost* host) { host->tokenizer = FakeTokenizer(true, {"<tool>"}); });
  v1::CompleteResponse completed;
  const grpc::Status status = [&] {
    grpc::ClientContext context;
    return generation()->Complete(&context, Prompt("a<tool>b"), &completed);
  }();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "prompt");
  EXPECT_THAT(status.error_message(),
              ::testing::HasSubstr("'<tool>', which is token 259; expected text of the model's 259"));
  v1::ChatRequest request;
  Say(v1::ROLE_SYSTEM, "S", request.mutable_messages());
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  request.mutable_messages(1)->add_content()->set_text("x<tool>");
  ExpectError(request, grpc::INVALID_ARGUMENT, "messages[1].content[1]");
}

TEST_F(ChatTest, AddedTokensInMessagesAreTokensUnlessControl) {
  Stop();
  Start(TestOptions(), [](ModelHost* host) {
    host->tokenizer = FakeTokenizer(true, {"<tool>", "<|user|>"});
    host->engine.vocab_size = kFakeVocabSize + 2;
  });
  v1::RenderChatRequest request;
  Say(v1::ROLE_USER, "<tool><|user|><|mark|>", request.mutable_messages());
  request.set_add_generation_prompt(false);
  v1::RenderChatResponse response;
  const grpc::Status status = Render(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(std::vector<int32_t>(response.token_ids().begin(), response.token_ids().end()),
              ElementsAreArray(Ids({kStart, "user:", kFakeVocabSize, "<|user|><|mark|>", kMark})));
}

TEST_F(ChatTest, ALongRefusalByTheTemplateIsCutBetweenCharacters) {
  Stop();
  Start(TestOptions(), [](ModelHost* host) { SetTemplate(host, "{{ raise_exception(messages[0].content) }}"); });
  // Whatever stands before it, the cut falls into a character of at least one of these.
  for (const char* begin : {"", "x", "xx"}) {
    std::string text = begin;
    while (text.size() < 20'000) text += "\xE2\x82\xAC";
    v1::ChatRequest request;
    Say(v1::ROLE_USER, text, request.mutable_messages());
    v1::ChatResponse response;
    const grpc::Status status = Chat(request, &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(FindInvalidUtf8(status.error_message()), std::string::npos);
    const ErrorDetails details = DetailsOf(status);
    EXPECT_EQ(details.field(), "messages");
    ASSERT_EQ(details.bad_request.field_violations_size(), 1);
    const std::string& description = details.bad_request.field_violations(0).description();
    EXPECT_EQ(FindInvalidUtf8(description), std::string::npos);
    EXPECT_NE(description.find("\xE2\x82\xAC"), std::string::npos);
    EXPECT_LE(description.size(), 1024u);
  }
}

class LargeRequestsTest : public ServerTest {};

TEST_F(LargeRequestsTest, TheTokenizersWorkAndAnswerAreBounded) {
  ServerOptions options = TestOptions();
  options.limits.max_request_bytes = 64 << 20;
  Start(options);
  v1::TokenizeRequest text;
  text.set_text(std::string((8 << 20) + 1, 'x'));
  v1::TokenizeResponse tokens;
  grpc::ClientContext context;
  grpc::Status status = tokenizer()->Tokenize(&context, text, &tokens);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "text");

  v1::DetokenizeRequest ids;
  const auto detokenize = [&] {
    grpc::ClientContext context;
    v1::DetokenizeResponse text;
    return tokenizer()->Detokenize(&context, ids, &text);
  };
  ids.mutable_token_ids()->Resize(1 << 20, uint32_t(kStart));  // nine bytes each
  status = detokenize();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "token_ids");
  EXPECT_NE(status.error_message().find("found tokens that stand for 9437184 bytes, expected at most 8388608"),
            std::string::npos)
      << status.error_message();
  ids.mutable_token_ids()->Truncate(900'000);
  EXPECT_TRUE(detokenize().ok());
  ids.clear_token_ids();
  ids.mutable_token_ids()->Resize((8 << 20) + 1, uint32_t('x'));
  status = detokenize();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(status).field(), "token_ids");
}

class NoTemplateTest : public ServerTest {};

TEST_F(NoTemplateTest, ChatIsAFailedPrecondition) {
  Start(TestOptions(), [](ModelHost* host) { host->chat_template = nullptr; });
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  grpc::ClientContext context;
  v1::ChatResponse response;
  const grpc::Status status = generation()->Chat(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(DetailsOf(status).info.reason(), "NO_CHAT_TEMPLATE");
}

TEST_F(NoTemplateTest, ATemplateThatDoesNotParseIsToldWithItsPlace) {
  const std::string error = std::string(ChatFormatter::Create("a\n{{ 1 + }}").status().message());
  Start(TestOptions(), [&](ModelHost* host) {
    host->chat_template = nullptr;
    host->chat_template_error = error;
  });
  v1::ChatRequest request;
  Say(v1::ROLE_USER, "U", request.mutable_messages());
  grpc::ClientContext context;
  v1::ChatResponse response;
  const grpc::Status status = generation()->Chat(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(DetailsOf(status).info.reason(), "CHAT_TEMPLATE_BROKEN");
  EXPECT_NE(status.error_message().find("line 2, column 8"), std::string::npos) << status.error_message();
  v1::GetModelResponse model;
  grpc::ClientContext model_context;
  ASSERT_TRUE(models()->GetModel(&model_context, {}, &model).ok());
  EXPECT_FALSE(model.model().has_chat_template());
  EXPECT_EQ(model.model().chat_template_error(), error);
}

}  // namespace
}  // namespace sluice
