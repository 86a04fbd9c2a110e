// tokenizer.json as a reader sees it: what is read, and what is refused in which words. Ids and texts are compared with
// the reference in golden_test.cc.
#include "engine/text/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/bpe.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

// Six tokens and one added token over single characters; no normalizer, no pre-tokenizer.
Json Tiny() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": {"type": "Fuse"},
    "added_tokens": [{"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
              "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
              "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "▁": 4, "aba": 5}, "merges": ["a b", "ab a"]}})");
}

absl::StatusOr<HfTokenizer> Read(const Json& tokenizer, const std::string& config = "", const std::string& map = "") {
  const std::string text = tokenizer.dump();
  return ReadHfTokenizer({.tokenizer_json = text, .tokenizer_config_json = config, .special_tokens_map_json = map});
}

// The tokenizer is made after every text that it was read from is gone.
std::unique_ptr<const Tokenizer> Make(const Json& json, const std::string& config = "") {
  absl::StatusOr<HfTokenizer> read = Read(json, config);
  EXPECT_TRUE(read.ok()) << read.status();
  if (!read.ok()) return nullptr;
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(read->spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, absl::string_view text, bool add_special = true) {
  const absl::StatusOr<Ids> ids = tokenizer.Encode(text, {.add_special = add_special});
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids();
}

// The status of reading, or of making a tokenizer of what was read, once `change` was made.
absl::Status StatusAfter(const std::function<void(Json*)>& change) {
  Json json = Tiny();
  change(&json);
  absl::StatusOr<HfTokenizer> read = Read(json);
  return read.ok() ? Tokenizer::Create(std::move(read->spec)).status() : read.status();
}

void ExpectRefused(absl::StatusCode code, const std::string& words, const std::function<void(Json*)>& change) {
  const absl::Status status = StatusAfter(change);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}
void ExpectInvalid(const std::string& words, const std::function<void(Json*)>& change) {
  ExpectRefused(absl::StatusCode::kInvalidArgument, words, change);
}
void ExpectUnsupported(const std::string& words, const std::function<void(Json*)>& change) {
  ExpectRefused(absl::StatusCode::kUnimplemented, words, change);
}

TEST(HfTokenizerTest, MergesComeAsStringsOrPairs) {
  Json json = Tiny();
  EXPECT_EQ(Encode(*Make(json), "aba<s>abab"), (Ids{5, 6, 3, 3}));
  json["model"]["merges"] = Json::parse(R"([["a", "b"], ["ab", "a"]])");
  EXPECT_EQ(Encode(*Make(json), "aba<s>abab"), (Ids{5, 6, 3, 3}));
  json["model"]["merges"] = Json::parse(R"(["#version: 0.2", "a b"])");
  EXPECT_EQ(Encode(*Make(json), "aba"), (Ids{3, 1}));
  json["model"].erase("type");  // old files
  EXPECT_EQ(Encode(*Make(json), "aba"), (Ids{3, 1}));
}

TEST(HfTokenizerTest, BosAndEosComeFromThePostProcessorOnly) {
  const std::string config = R"({"bos_token": "<s>", "eos_token": {"content": "ab"}, "pad_token": "nowhere",
                                 "add_bos_token": true, "tokenizer_class": "LlamaTokenizer"})";
  Json json = Tiny();
  const auto without = Make(json, config);
  EXPECT_EQ(Encode(*without, "a"), (Ids{1}));
  EXPECT_EQ(without->bos_id(), 6);
  EXPECT_EQ(without->eos_id(), 3);
  EXPECT_EQ(without->pad_id(), std::nullopt);
  EXPECT_THAT(without->end_of_generation_ids(), ::testing::Contains(3));
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "S", "type_id": 0}},
       {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"S": {"id": "S", "ids": [6]}}}]})");
  const auto with = Make(json, config);
  EXPECT_EQ(Encode(*with, "a"), (Ids{6, 1}));
  EXPECT_EQ(Encode(*with, ""), (Ids{6}));
  EXPECT_EQ(Encode(*with, "a", false), (Ids{1}));
}

TEST(HfTokenizerTest, APostProcessorMayAddSeveralTokensOnEitherSide) {
  const std::string config = R"({"eos_token": "b", "bos_token": "<s>"})";
  Json json = Tiny();
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "S"}},
      {"SpecialToken": {"id": "T"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "T"}}],
      "special_tokens": {"S": {"ids": [6]}, "T": {"ids": [4, 3]}}})");
  const auto t = Make(json, config);
  EXPECT_EQ(Encode(*t, "a"), (Ids{6, 4, 3, 1, 4, 3}));
  EXPECT_EQ(Encode(*t, "a", false), (Ids{1}));
  EXPECT_EQ(t->bos_id(), 6);
  EXPECT_EQ(t->eos_id(), 2);
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "RobertaProcessing", "cls": ["a", 1], "sep": ["b", 2], "trim_offsets": true, "add_prefix_space": false}]})");
  EXPECT_EQ(Encode(*Make(json, config), "ab"), (Ids{1, 3, 2}));
  json["post_processor"]["processors"].push_back({{"type", "BertProcessing"}, {"cls", {"a", 1}}, {"sep", {"b", 2}}});
  EXPECT_THAT(std::string(Read(json, config).status().message()), HasSubstr("one processor that adds tokens"));
}

TEST(HfTokenizerTest, MissingUnknownTokenMattersOnlyForUncoveredBytes) {
  Json json = Tiny();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  json["model"]["merges"] = Json::array();
  json["model"]["vocab"] = Json::object();
  json["added_tokens"] = Json::array();
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), &symbol);
    json["model"]["vocab"][symbol] = byte;
  }
  json["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(Encode(*Make(json), "é"), (Ids{0xC3, 0xA9}));
  json["model"]["vocab"].erase("a");
  EXPECT_FALSE(Read(json).ok());
}

TEST(HfTokenizerTest, TokenNamesFallBackToTheSecondFile) {
  const auto read = Read(Tiny(), R"({"eos_token": "a"})", R"({"eos_token": "b", "bos_token": {"content": "<s>"}})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->spec.eos_id, 1);
  EXPECT_EQ(read->spec.bos_id, 6);
  const absl::Status status = Read(Tiny(), R"({"eos_token": "<eos>"})").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tokenizer_config.json: eos_token is \"<eos>\", expected a token"));
}

TEST(HfTokenizerTest, AddedTokensTakeVocabularyIdsOrTheNextOnes) {
  Json json = Tiny();
  const auto added = [](int id, const char* content, bool special) {
    return Json{{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
  };
  json["added_tokens"] = {added(77, "ab", true),  added(2, "<x>", false), added(9, "<y>", false), added(3, "", false),
                          added(6, "<x>", false), added(5, "b", false),   added(3, "ab", false)};
  const auto t = Make(json);
  EXPECT_EQ(t->vocab_size(), 8);
  EXPECT_EQ(Encode(*t, "aab<x><y>b"), (Ids{1, 3, 6, 7, 2}));
  EXPECT_EQ(t->Decode({3, 6, 7}, true), "<x><y>");
  // A vocabulary with gaps.
  json["model"]["vocab"] = {{"a", 3}, {"b", 4}, {"ab", 5}, {"aba", 6}, {"?", 7}};
  json["added_tokens"] = {added(1, "<s>", true), added(2, "</s>", true), added(9, "<tool>", false)};
  EXPECT_EQ(Encode(*Make(json), "<s>ab</s><tool>"), (Ids{1, 5, 2, 9}));
}

TEST(HfTokenizerTest, ConfiguredTokensThatTheTokenizerLacksAreAdded) {
  const auto t = Make(Tiny(), R"({"added_tokens_decoder": {"6": {"content": "<s>", "special": true},
                                                           "9": {"content": "<tool>", "special": false}}})");
  EXPECT_EQ(t->vocab_size(), 10);
  EXPECT_EQ(Encode(*t, "a<tool>"), (Ids{1, 9}));
  EXPECT_EQ(t->Decode({9, 8, 6, 1}, true), "<tool>a");  // 8 is nothing
}

TEST(HfTokenizerTest, TheChatTemplateHasThreePlaces) {
  const auto read = [](const std::string& config, absl::string_view jinja) {
    return *ReadHfChatTemplate({.tokenizer_config_json = config, .chat_template_jinja = jinja});
  };
  EXPECT_EQ(read(R"({"chat_template": "one"})", ""), "one");
  EXPECT_EQ(read(R"({"chat_template": "one"})", "file"), "file");
  EXPECT_EQ(
      read(R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})", ""),
      "d");
  EXPECT_EQ(read("{}", ""), "");
  EXPECT_EQ(read("", ""), "");
  EXPECT_FALSE(ReadHfChatTemplate({.tokenizer_config_json = R"({"chat_template": 1})"}).ok());
  EXPECT_FALSE(ReadHfChatTemplate({.tokenizer_config_json = "[]"}).ok());
  EXPECT_EQ(ReadHfTokenizer({}).status().code(), absl::StatusCode::kNotFound);
}

TEST(HfTokenizerTest, WithoutADecoderTokensAreJoinedBySpaces) {
  Json json = Tiny();
  json["decoder"] = nullptr;
  EXPECT_EQ(Make(json)->Decode({1, 99, 3, 6, 2}, true), "a ab b");
  EXPECT_EQ(Make(json)->Decode({1, 3, 6, 2}, false), "a ab <s> b");
}

TEST(HfTokenizerTest, WhatIsNoJsonOrHasTheWrongShapeIsRefused) {
  for (const char* text : {"", "{", "[]", "1", "null", "{\"model\": 1}", "{\"model\": {\"vocab\": {\"\xff\": 1}}}"}) {
    EXPECT_FALSE(ReadHfTokenizer({.tokenizer_json = text}).ok()) << text;
  }
  EXPECT_THAT(std::string(ReadHfTokenizer({.tokenizer_json = "{\"a\": tru"}).status().message()),
              HasSubstr("tokenizer.json: line 1, column "));
  EXPECT_FALSE(ReadHfTokenizer({.tokenizer_json = std::string(100'000, '[')}).ok());
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  EXPECT_THAT(std::string(ReadHfTokenizer({.tokenizer_json = deep}).status().message()), HasSubstr("nested deeper"));
  const std::string deeper = "{\"bos_token\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  const std::string tiny = Tiny().dump();
  for (const HfTokenizerFiles& files : {HfTokenizerFiles{.tokenizer_json = tiny, .tokenizer_config_json = deeper},
                                        HfTokenizerFiles{.tokenizer_json = tiny, .special_tokens_map_json = deeper}}) {
    EXPECT_THAT(std::string(ReadHfTokenizer(files).status().message()), HasSubstr("nested deeper than 64"));
  }
  // What follows a zero byte is not overlooked.
  const std::string hidden = tiny + std::string("\0garbage", 8), config("{}\0garbage", 10);
  EXPECT_THAT(std::string(ReadHfTokenizer({.tokenizer_json = hidden}).status().message()),
              HasSubstr("tokenizer.json: found a zero byte at"));
  EXPECT_THAT(
      std::string(ReadHfTokenizer({.tokenizer_json = tiny, .tokenizer_config_json = config}).status().message()),
      HasSubstr("a zero byte at line 1, column 3"));
  ExpectInvalid("model is missing", [](Json* j) { j->erase("model"); });
  ExpectInvalid("model.vocab is missing", [](Json* j) { (*j)["model"].erase("vocab"); });
  ExpectInvalid("model.vocab is missing", [](Json* j) { (*j)["model"]["vocab"] = Json::object(); });
  ExpectInvalid("model.vocab is [", [](Json* j) { (*j)["model"]["vocab"] = Json::array({1}); });
  ExpectInvalid("model.merges is \"a b\"", [](Json* j) { (*j)["model"]["merges"] = "a b"; });
  ExpectInvalid("added_tokens is 7", [](Json* j) { (*j)["added_tokens"] = 7; });
}

TEST(HfTokenizerTest, AVocabularyThatCannotBeIsRefused) {
  const auto vocab = [](const char* key, Json value) { return [=](Json* j) { (*j)["model"]["vocab"][key] = value; }; };
  ExpectInvalid("model.vocab['x'] is 4194304, expected an id", vocab("x", 4194304));
  ExpectInvalid("model.vocab['x'] is 9223372036854775807", vocab("x", UINT64_MAX));
  ExpectInvalid("model.vocab['x'] is -1", vocab("x", -1));
  ExpectInvalid("model.vocab['x'] is a string", vocab("x", "1"));
  ExpectInvalid("model.vocab['x'] is a number", vocab("x", 1.5));
  ExpectInvalid("model.vocab['x'] is null", vocab("x", nullptr));
  ExpectInvalid("model.vocab['x'] is an object", vocab("x", Json::object()));
  ExpectInvalid("id 1 is 'x', but it is 'a' already", vocab("x", 1));
  EXPECT_THAT(
      std::string(ReadHfTokenizer({.tokenizer_json = R"({"model": {"vocab": {"a": 0, "a": 1}}})"}).status().message()),
      HasSubstr("'a' twice"));
  ExpectInvalid("added_tokens[0]: id 6 is '<s>', but it is 'c' already", [](Json* j) {
    (*j)["model"]["vocab"].erase("▁");
    (*j)["model"]["vocab"]["c"] = 6;
  });
  ExpectInvalid("added_tokens[0].id is 4194304", [](Json* j) { (*j)["added_tokens"][0]["id"] = 4194304; });
  ExpectInvalid("added_tokens[0].content is missing", [](Json* j) { (*j)["added_tokens"][0].erase("content"); });
  ExpectInvalid("added_tokens[0].lstrip is 1", [](Json* j) { (*j)["added_tokens"][0]["lstrip"] = 1; });
  ExpectInvalid("unk_token is \"q\"", [](Json* j) { (*j)["model"]["unk_token"] = "q"; });
}

TEST(HfTokenizerTest, MergesThatCannotBeAreRefused) {
  const auto merges = [](Json value) { return [=](Json* j) { (*j)["model"]["merges"] = Json::array({value}); }; };
  ExpectInvalid("model.merges[0] is 'ab'", merges("ab"));
  ExpectInvalid("model.merges[0] is 'a b c'", merges("a b c"));
  ExpectInvalid("model.merges[0] is a number", merges(1));
  ExpectInvalid("model.merges[0] has 1 parts", merges(Json::array({"a"})));
  ExpectInvalid("model.merges[0] has 3 parts", merges(Json::array({"a", "b", "a"})));
  ExpectInvalid("model.merges[0] has a number", merges(Json::array({"a", 1})));
  ExpectInvalid("'q' is no token", merges("a q"));
  ExpectInvalid("'ba' is no token", merges("b a"));
  ExpectInvalid("expected two", merges("a "));
}

TEST(HfTokenizerTest, ComponentsThatAreNotSupportedAreNamed) {
  const auto put = [](const char* key, const char* json) {
    return [=](Json* j) { (*j)[Json::json_pointer(key)] = Json::parse(json); };
  };
  ExpectUnsupported("model.type is \"Unigram\"", put("/model/type", R"("Unigram")"));
  ExpectUnsupported("model.dropout is 0.1", put("/model/dropout", "0.1"));
  ExpectUnsupported("model.end_of_word_suffix is \"</w>\"", put("/model/end_of_word_suffix", R"("</w>")"));
  ExpectUnsupported("normalizer.type is \"Lowercase\"", put("/normalizer", R"({"type": "Lowercase"})"));
  ExpectUnsupported("normalizer.normalizers[1].type is \"Nmt\"",
                    put("/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})"));
  ExpectUnsupported("pre_tokenizer.type is \"Whitespace\"", put("/pre_tokenizer", R"({"type": "Whitespace"})"));
  ExpectUnsupported("after ByteLevel supported are Split",
                    put("/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
                                              {"type": "ByteLevel"}]})"));
  ExpectUnsupported("model.byte_fallback is true, which is not supported; with ByteLevel", [](Json* j) {
    (*j)["pre_tokenizer"] = {{"type", "ByteLevel"}};
    (*j)["model"]["byte_fallback"] = true;
  });
  ExpectUnsupported("model.unk_token is \"?\", which is not supported; with ByteLevel",
                    put("/pre_tokenizer", R"({"type": "ByteLevel"})"));
  ExpectUnsupported("behavior is \"Sideways\"", put("/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "x"},
                                                                         "behavior": "Sideways", "invert": false})"));
  ExpectUnsupported("decoder.type is \"WordPiece\"", put("/decoder", R"({"type": "WordPiece"})"));
  ExpectUnsupported(
      "decoder.decoders[1].type is \"ByteFallback\", which is not supported; ByteFallback must come before",
      put("/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})"));
  ExpectUnsupported("a Replace must be of one character",
                    put("/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace",
                                        "pattern": {"String": "ab"}, "content": ""}]})"));
  ExpectUnsupported("post_processor.type is \"Cls\"", put("/post_processor", R"({"type": "Cls"})"));
  std::string sequence = "null";
  for (int i = 0; i < 12; ++i) sequence = R"({"type": "Sequence", "normalizers": [)" + sequence + "]}";
  ExpectUnsupported("go that deep only", put("/normalizer", sequence.c_str()));
}

TEST(HfTokenizerTest, ComponentsThatCannotBeAreRefused) {
  const auto put = [](const char* key, const char* json) {
    return [=](Json* j) { (*j)[Json::json_pointer(key)] = Json::parse(json); };
  };
  ExpectInvalid("normalizer.type is missing", put("/normalizer", "{}"));
  ExpectInvalid("normalizer.type is missing", put("/normalizer", "[1]"));
  ExpectInvalid("normalizer.pattern is missing", put("/normalizer", R"({"type": "Replace", "content": "x"})"));
  ExpectInvalid("special_tokens.S.ids is", put("/post_processor", R"({"type": "TemplateProcessing", "single":
      [{"SpecialToken": {"id": "S"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"S": {"ids": 1}}})"));
  ExpectInvalid("post_processor.sep is missing",
                put("/post_processor", R"({"type": "BertProcessing", "cls": ["a", 1]})"));
  ExpectInvalid("post_processor.cls is [1], expected a token and its id",
                put("/post_processor", R"({"type": "RobertaProcessing", "cls": [1]})"));
  ExpectInvalid("eos_id: found 78",
                put("/post_processor", R"({"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 78]})"));
  ExpectInvalid("bos_id: found 77", put("/post_processor", R"({"type": "TemplateProcessing", "single":
      [{"SpecialToken": {"id": "S"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"S": {"ids": [77]}}})"));
  ExpectInvalid("expected a list with a Sequence A",
                put("/post_processor", R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})"));
  for (const char* regex : {"a(", "[", "(?R)", "\\\\p{Cyrillic}", "((a{1,1000}b){1,1000}){1,1000}", "\\\\1"}) {
    const std::string split = std::string(R"({"type": "Split", "behavior": "Isolated", "invert": false, "pattern":
                                             {"Regex": ")") +
                              regex + "\"}}";
    ExpectInvalid("pattern", put("/pre_tokenizer", split.c_str()));
  }
  ExpectInvalid("empty text", put("/pre_tokenizer", R"({"type": "Split", "behavior": "Isolated", "invert": false,
                                                       "pattern": {"String": ""}})"));
  ExpectInvalid("expected one character",
                put("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab", "split": false})"));
  ExpectInvalid("always, first or never",
                put("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "last"})"));
}

TEST(HfTokenizerTest, ARegexThatExplodesIsAnErrorOfTheText) {
  Json json = Tiny();
  json["pre_tokenizer"] = Json::parse(R"({"type": "Split", "behavior": "Isolated", "invert": false,
                                          "pattern": {"Regex": "(a|aa)+$"}})");
  const auto t = Make(json);
  EXPECT_EQ(t->Encode(std::string(60, 'a') + "b").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(t->Encode("aab").ok());
}

TEST(HfTokenizerTest, TextThatGrowsWithoutBoundIsRefused) {
  Json json = Tiny();
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", ""}}}, {"content", std::string(256, 'a')}};
  const auto t = Make(json);
  EXPECT_EQ(t->Encode(std::string(3'000'000, 'b')).status().code(), absl::StatusCode::kInvalidArgument);
  json["normalizer"]["content"] = std::string(257, 'a');
  EXPECT_FALSE(Tokenizer::Create(Read(json)->spec).ok());
}

TEST(HfTokenizerTest, NormalizedControlTokensAreFoundWhereTheTextIsTrustedOnly) {
  Json json = Tiny();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].push_back({{"id", 7}, {"content", "é"}, {"normalized", true}, {"special", true}});
  const auto t = Make(json);
  const auto encode = [](const Tokenizer& tokenizer, std::vector<TextSegment> segments) {
    return *tokenizer.Encode(absl::MakeConstSpan(segments));
  };
  EXPECT_EQ(encode(*t, {{"ae\u0301b", true}}), (Ids{1, 7, 2}));
  EXPECT_EQ(encode(*t, {{"ae", true}, {"", true}, {"\u0301b", true}}), (Ids{1, 7, 2}));
  EXPECT_EQ(encode(*t, {{"ae", true}, {"", false}, {"\u0301b", true}}), (Ids{1, 0, 2}));
  EXPECT_EQ(encode(*t, {{"ae\u0301b", false}}), (Ids{1, 0, 2}));
  EXPECT_EQ(encode(*t, {{"a", false}, {"e\u0301", true}, {"b", false}}), (Ids{1, 7, 2}));
  EXPECT_EQ(encode(*t, {{"ae", true}, {"\u0301b", false}}), (Ids{1, 0, 2}));  // half of it is the user's
  EXPECT_EQ(encode(*t, {{"é", true}, {"é", false}, {"é", true}}), (Ids{7, 0, 7}));
  EXPECT_EQ(*t->Encode("é", {.parse_special = false}), (Ids{0}));
  // One that is not special is found in any text.
  json["added_tokens"][1]["special"] = false;
  const auto any = Make(json);
  EXPECT_EQ(encode(*any, {{"ae", true}, {"\u0301b", false}}), (Ids{1, 7, 2}));
  EXPECT_EQ(encode(*any, {{"é", true}, {"é", false}, {"é", true}}), (Ids{7, 7, 7}));
  EXPECT_EQ(*any->Encode("é", {.parse_special = false}), (Ids{7}));
}

TEST(HfTokenizerTest, FindsNonSpecialTokensInMessagesUnlessLikeControl) {
  Json json = Tiny();
  json["added_tokens"] = Json::array();
  int id = 6;
  for (const char* text :
       {"<b>", "<tool_call>", "\n\n", "<think>", "<|user|>", "<｜User｜>", "<start_of_turn>", "<end_of_turn>"}) {
    json["added_tokens"].push_back({{"id", id++}, {"content", text}, {"normalized", false}, {"special", false}});
  }
  const auto t = Make(json);
  std::string all;
  for (const Json& token : json["added_tokens"]) all += token["content"].get<std::string>();
  const std::vector<TextSegment> message = {{all, false}};
  const Ids ids = *t->Encode(absl::MakeConstSpan(message));
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 4), (Ids{6, 7, 8, 9}));
  for (size_t i = 4; i < ids.size(); ++i) EXPECT_LT(ids[i], 6);
  for (int32_t token = 6; token < 14; ++token) EXPECT_EQ(t->IsControl(token), token >= 10) << token;
  EXPECT_EQ(*t->Encode(all), (Ids{6, 7, 8, 9, 10, 11, 12, 13}));  // whoever writes the whole prompt may write them
}

TEST(HfTokenizerTest, TiktokenRanksAreReadForKimi) {
  std::string ranks;
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int b = 0; b < 256; ++b) {
    ranks += std::string() + kDigits[b >> 2] + kDigits[(b & 3) << 4] + "== " + std::to_string(b) + "\n";
  }
  ranks += "5Lit 256\n";  // 中
  ranks += "aGk= 257\n";  // hi
  const std::string config = R"({"tokenizer_class": "TikTokenTokenizer", "eos_token": "[EOS]", "added_tokens_decoder":
      {"258": {"content": "[BOS]", "special": true}, "259": {"content": "[EOS]", "special": true}}})";
  auto read = ReadHfTokenizer({.tiktoken_model = ranks, .tokenizer_config_json = config});
  ASSERT_TRUE(read.ok()) << read.status();
  const auto t = Tokenizer::Create(std::move(read->spec));
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_EQ((*t)->vocab_size(), 258 + 256);
  EXPECT_EQ(Encode(**t, "hi中[EOS]<|reserved_token_300|>"), (Ids{257, 256, 259, 300}));
  EXPECT_EQ((*t)->Decode({257, 256, 0xE4, 0xB8, 0xAD}, true), "hi中中");
  EXPECT_EQ((*t)->eos_id(), 259);
  const auto status = [&](const std::string& model, const std::string& c) {
    return ReadHfTokenizer({.tiktoken_model = model, .tokenizer_config_json = c}).status();
  };
  EXPECT_EQ(status(ranks, "").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status(ranks, R"({"tokenizer_class": "QWenTokenizer"})").code(), absl::StatusCode::kUnimplemented);
  for (const char* line : {"x 1", "aGk=", "aGk= -1", "aGk= 99999999", "aGk= x", "= 3", "aGk= 5"}) {
    EXPECT_EQ(status(ranks + line, config).code(), absl::StatusCode::kInvalidArgument) << line;
  }
}

}  // namespace
}  // namespace sluice
