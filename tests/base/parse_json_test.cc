// JSON files: what is read, and where errors say that they are.
#include "engine/base/parse_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<Json> json = ParseJsonObject(text, "f.json");
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(json.status().message());
}

TEST(ParseJson, TheTreeIsTheParsersOwn) {
  const char* text =
      R"({"a": [1, -2, 3.5, null, true, [], {}], "b": {"c": "d\u00e9\n", "e": {}}, "": 18446744073709551615})";
  const absl::StatusOr<Json> json = ParseJsonObject(text, "f.json");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, Json::parse(text));
  EXPECT_EQ(*ParseJsonObject(R"({"a": 1, "a": 2})", "f.json"), Json::parse(R"({"a": 2})"));
}

TEST(ParseJson, NumbersThatOnlyPythonWritesAreStrings) {
  const absl::StatusOr<Json> json = ParseJsonObject(
      R"({"a": NaN, "b": [Infinity, -Infinity,NaN], "NaN": "Infinity \" NaN", "c": {"d":-Infinity}})", "f.json");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(
      *json,
      Json::parse(
          R"({"a": "NaN", "b": ["Infinity", "-Infinity", "NaN"], "NaN": "Infinity \" NaN", "c": {"d": "-Infinity"}})"));
  for (const char* text :
       {R"({"a": nan})", R"({"a": NaNs})", R"({"a": -NaN})", R"({"a": 1NaN})", R"({"a": Infinit})", R"({NaN: 1x})"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("not valid JSON")) << text;
  }
}

TEST(ParseJson, ErrorsGiveLineColumnAndKey) {
  EXPECT_EQ(ErrorOf("{\n  \"a\": 1,\n  \"b\": {\"c\": tru}\n}"),
            "f.json: line 3, column 17, key 'b.c': not valid JSON: invalid literal, found '\"c\": tru}'");
  EXPECT_THAT(ErrorOf("{\"a\": NaN,\n \"b\": Infinity, \"c\": 1x}"), HasSubstr("f.json: line 2, column 23, key 'c': "));
  EXPECT_THAT(ErrorOf("{\"é\": é}"), HasSubstr("line 1, column 7, key 'é': not valid JSON: "));
  EXPECT_THAT(ErrorOf("{\"a\": [1, 2"), HasSubstr("line 1, column 12, key 'a.': not valid JSON: "));
  EXPECT_THAT(ErrorOf("{\"a\": 1e999}"), HasSubstr("key 'a': not valid JSON: number overflow, found '1e999'"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("f.json: line 1, column 1: not valid JSON: "));
  EXPECT_THAT(ErrorOf("{\"a\": 1} x"), HasSubstr("line 1, column 10"));
  EXPECT_THAT(ErrorOf("{\"a\": \"\xff\"}"),
              HasSubstr("key 'a': not valid JSON: invalid string: ill-formed UTF-8 byte"));
}

TEST(ParseJson, OtherThanObjectsZeroBytesAndDepthAreRefused) {
  EXPECT_EQ(ErrorOf("[1]"), "f.json: found JSON of type array, expected an object");
  EXPECT_EQ(ErrorOf("3"), "f.json: found JSON of type number, expected an object");
  EXPECT_EQ(ErrorOf(absl::string_view("{}\n\0{", 5)), "f.json: found a zero byte at line 2, column 1, expected JSON");
  std::string deep = "1";
  for (int i = 0; i < 64; ++i) deep = "{\"a\":" + deep + "}";
  EXPECT_TRUE(ParseJsonObject(deep, "f.json").ok());
  EXPECT_EQ(ErrorOf("{\"a\":" + deep + "}"), "f.json: nested deeper than 64");
}

}  // namespace
}  // namespace sluice
