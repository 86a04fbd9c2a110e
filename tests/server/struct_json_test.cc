// Equal values are equal text, whatever order a map has today.
#include "server/calls/struct_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "google/protobuf/util/json_util.h"

namespace sluice {
namespace {

std::string Json(const google::protobuf::Struct& value) {
  const auto json = StructAsJson("f", value);
  return json.ok() ? *json : std::string(json.status().message());
}

std::string Number(double number) {
  google::protobuf::Struct value;
  (*value.mutable_fields())["n"].set_number_value(number);
  const std::string json = Json(value);
  return json.substr(0, 5) == "{\"n\":" ? json.substr(5, json.size() - 6) : json;
}

TEST(StructJson, KeysAreInTheOrderOfTheirBytes) {
  google::protobuf::Struct value;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(
          R"({"b": [{"z": 1, "a": null}], "a": {"y": true, "x": "q\"\\\n"}, "\u00e9": {}, "Z": [], "": false})", &value)
          .ok());
  EXPECT_EQ(
      Json(value),
      "{\"\":false,\"Z\":[],\"a\":{\"x\":\"q\\\"\\\\\\u000a\",\"y\":true},\"b\":[{\"a\":null,\"z\":1}],\"\u00e9\":{}}");
}

TEST(StructJson, NumbersWithoutAFractionAreIntegers) {
  EXPECT_EQ(Number(1.0), "1");
  EXPECT_EQ(Number(-3), "-3");
  EXPECT_EQ(Number(-0.0), "0");
  EXPECT_EQ(Number(1e15), "1000000000000000");
  EXPECT_EQ(Number(9007199254740992.0), "9007199254740992");
  EXPECT_EQ(Number(-9007199254740992.0), "-9007199254740992");
  EXPECT_EQ(Number(9007199254740994.0), "9007199254740994.0");
  EXPECT_EQ(Number(1e16), "1e+16");
}

TEST(StructJson, OtherNumbersAreWrittenAsPythonDoes) {
  EXPECT_EQ(Number(0.1), "0.1");
  EXPECT_EQ(Number(-2.5), "-2.5");
  EXPECT_EQ(Number(1e-7), "1e-07");
  EXPECT_EQ(Number(1e300), "1e+300");
}

TEST(StructJson, WhatJsonCannotSayIsNamed) {
  EXPECT_EQ(Number(std::numeric_limits<double>::infinity()), "f.n: found inf, expected a number that JSON can say");
  EXPECT_EQ(Number(std::nan("")), "f.n: found nan, expected a number that JSON can say");
  google::protobuf::Struct value;
  (*value.mutable_fields())["a"].mutable_list_value()->add_values();
  EXPECT_EQ(Json(value), "f.a[0]: found a value of no kind, expected one (null_value for null)");
}

TEST(StructJson, AThousandEqualStructsAreOneText) {
  std::set<std::string> texts;
  for (int i = 0; i < 1000; ++i) {
    google::protobuf::Struct value;
    for (int j = 0; j < 40; ++j) (*value.mutable_fields())["k" + std::to_string((j * 7 + i) % 40)].set_number_value(1);
    texts.insert(Json(value));
  }
  EXPECT_EQ(texts.size(), 1u);
}

}  // namespace
}  // namespace sluice
