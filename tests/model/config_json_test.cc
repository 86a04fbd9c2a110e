// Typed access to a config.json, what nobody asked it for, and its quantization_config.
#include "engine/model/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/decoder_config.h"
#include "engine/model/quantization_config.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ConfigJson Config(absl::string_view text) {
  absl::StatusOr<ConfigJson> config = ConfigJson::Parse(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

TEST(ConfigJsonTest, FilesThatAreNoObjectAreErrors) {
  for (const char* text : {"", "[1]", "{\"a\":", "{\"a\": 1} x", "null", "\x80", "{\"a\": 1e}"}) {
    EXPECT_EQ(ConfigJson::Parse(text, "c").status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ConfigJson::Parse(std::string(17 << 20, ' '), "c").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ConfigJson::Open("/nonexistent/config.json").status().code(), absl::StatusCode::kNotFound);
  // Nesting that would overflow a recursive reader's stack.
  EXPECT_FALSE(ConfigJson::Parse("{\"a\":" + std::string(1000000, '['), "c").ok());
  const std::string deep = "{\"a\":" + std::string(1000000, '[') + std::string(1000000, ']') + "}";
  const absl::StatusOr<ConfigJson> config = ConfigJson::Parse(deep, "c");
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("c: nested deeper than 64"));
  if (config.ok()) {
    EXPECT_FALSE(config->FindInt("a", 0, 9).ok());  // the message would hold the value
  }
  EXPECT_TRUE(ConfigJson::Parse("{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}", "c").ok());
  // What follows a zero byte is not overlooked.
  const absl::StatusOr<ConfigJson> hidden = ConfigJson::Parse(absl::string_view("{}\0garbage", 10), "c");
  EXPECT_THAT(std::string(hidden.status().message()), HasSubstr("c: found a zero byte at line 1, column 3"));
}

TEST(ConfigJsonTest, ListsAreOfOneType) {
  const ConfigJson config = Config(R"({"f": [1, 2.5], "s": ["a", "b"], "n": null, "mixed": [1, "a"], "one": 7})");
  EXPECT_THAT(**config.FindFloats("f"), ElementsAre(1, 2.5f));
  EXPECT_THAT(**config.FindStrings("s"), ElementsAre("a", "b"));
  EXPECT_THAT(**config.FindInts("one", 0, 9), ElementsAre(7));
  EXPECT_FALSE(config.FindFloats("n")->has_value());
  EXPECT_FALSE(config.FindStrings("missing")->has_value());
  for (const absl::Status& status : {config.FindFloats("mixed").status(), config.FindStrings("mixed").status(),
                                     config.FindFloats("one").status(), config.FindStrings("one").status(),
                                     config.FindInts("one", 0, 6).status(), config.FindInts("f", 0, 9).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: key '"));
  }
}

TEST(ConfigJsonTest, RemembersWhatNobodyAskedFor) {
  const ConfigJson config =
      Config(R"({"a": 1, "b": {"c": 2, "d": 3}, "e": {"f": 4}, "g": null, "h": false, "i": 5, "j": {"k": {"l": 6}}})");
  EXPECT_THAT(config.UnreadKeys(), ElementsAre("a", "b", "e", "h", "i", "j"));
  EXPECT_TRUE(config.FindInt("a", 0, 9).ok());
  EXPECT_FALSE(config.IsNull("i"));
  EXPECT_TRUE(config.Has("h"));  // to see that it is there is not to read it
  const ConfigJson b = **config.FindObject("b");
  EXPECT_TRUE(b.FindInt("c", 0, 9).ok());
  EXPECT_TRUE((*config.FindObject("j"))->FindObject("k").ok());
  EXPECT_THAT(config.UnreadKeys(), ElementsAre("b.d", "e", "h", "j.k.l"));
  config.Ignore("e.f");  // names a key with a dot in it, not one inside e
  b.Ignore("d");
  config.Ignore("h");
  EXPECT_THAT(b.UnreadKeys(), IsEmpty());
  EXPECT_THAT(config.UnreadKeys(), ElementsAre("e", "j.k.l"));
}

TEST(QuantizationConfigTest, Methods) {
  const auto read = [](const std::string& object) {
    return ReadQuantizationConfig(Config("{\"quantization_config\": " + object + "}"));
  };
  EXPECT_EQ(ReadQuantizationConfig(Config("{}"))->kind, Quantization::kNone);
  EXPECT_EQ(read("null")->kind, Quantization::kNone);
  EXPECT_EQ(read(R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})")->kind, Quantization::kMxfp4);
  const absl::StatusOr<QuantizationConfig> fp8 =
      read(R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [64, 128]})");
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_EQ(fp8->kind, Quantization::kFp8Blocks);
  EXPECT_EQ(fp8->fp8_block.rows, 64);
  EXPECT_EQ(fp8->fp8_block.cols, 128);
}

TEST(QuantizationConfigTest, WhatIsNotSupportedSaysWhatToDo) {
  const auto error = [](const std::string& object) {
    const absl::Status status = ReadQuantizationConfig(Config("{\"quantization_config\": " + object + "}")).status();
    EXPECT_FALSE(status.ok()) << object;
    EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: key 'quantization_config"));
    return std::string(status.message());
  };
  EXPECT_THAT(error(R"({"quant_method": "gptq", "bits": 4})"), HasSubstr("use the unquantised model"));
  EXPECT_THAT(error(R"({"quant_method": "fp8", "fmt": "e5m2"})"), HasSubstr("'e5m2'"));
  EXPECT_THAT(error(R"({"quant_method": "fp8"})"), HasSubstr("weight_block_size"));
  EXPECT_THAT(error(R"({"quant_method": "fp8", "weight_block_size": [128]})"), HasSubstr("not a pair"));
  EXPECT_THAT(error(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})"), HasSubstr("[0,128]"));
  EXPECT_THAT(error(R"({"bits": 4})"), HasSubstr("quant_method' is missing"));
  EXPECT_THAT(error("4"), HasSubstr("expected an object"));
}

TEST(DecoderConfigTest, ActivationsByTheirNames) {
  const auto read = [](const std::string& name) {
    return ReadActivation(Config("{\"act\": \"" + name + "\"}"), "act", "silu");
  };
  EXPECT_EQ(*read("silu"), ActivationKind::kSilu);
  EXPECT_EQ(*read("swish"), ActivationKind::kSilu);
  EXPECT_EQ(*read("gelu"), ActivationKind::kGeluErf);
  EXPECT_EQ(*read("gelu_new"), ActivationKind::kGeluTanh);
  EXPECT_EQ(*read("gelu_pytorch_tanh"), ActivationKind::kGeluTanh);
  EXPECT_EQ(*ReadActivation(Config("{}"), "act", "gelu"), ActivationKind::kGeluErf);
  EXPECT_EQ(read("quick_gelu").status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace sluice
