// `sluice inspect` through the binary: published configurations and the memory that their caches need.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/client/subprocess.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::json;

constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

Output Inspect(const std::string& config, std::vector<std::string> flags) {
  std::vector<std::string> arguments = {"inspect", std::string(SLUICE_SOURCE_DIR "/tests/model/configs/") + config};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return RunSluice(arguments);
}

Json InspectJson(const std::string& config, std::vector<std::string> flags = {}) {
  flags.push_back("--json");
  const Output output = Inspect(config, flags);
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.err, "");
  return Json::parse(output.out, nullptr, false);
}

TEST(Inspect, LlamaThreeWithGroupedAllAndOneKeyValueHead) {
  const std::vector<std::string> context = {"--context", "131072"};
  Json json = InspectJson("llama-3-70b.json", context);
  EXPECT_EQ(json["kv_bytes_per_token"], 327'680);
  EXPECT_EQ(json["context"], 131'072);
  EXPECT_EQ(json["kv_bytes_for_context"], 40 * kGiB);
  EXPECT_EQ(InspectJson("llama-3-70b-mha.json")["kv_bytes_per_token"], 2.5 * kMiB);
  EXPECT_EQ(InspectJson("llama-3-70b-mqa.json")["kv_bytes_per_token"], 40 * kKiB);
}

TEST(Inspect, DeepSeekKeepsOnlyTheLatent) {
  const Json json = InspectJson("deepseek-v3.json", {"--context", "131072"});
  EXPECT_EQ(json["kv_bytes_per_token"], 70'272);
  EXPECT_NEAR(json["kv_bytes_for_context"].get<double>() / kGiB, 8.6, 0.05);
}

TEST(Inspect, ThirtyTwoLayersOfEightHeads) {
  const Json json = InspectJson("llama-3.1-8b.json", {"--context", "32768"});
  EXPECT_EQ(json["kv_bytes_per_token"], 128 * kKiB);
  EXPECT_EQ(json["kv_bytes_for_context"], 4 * kGiB);
}

TEST(Inspect, LayersThatSlideAreGroupsOfTheirOwn) {
  Json json = InspectJson("gemma3-1b.json");
  EXPECT_EQ(json["kv_groups"], Json::parse(R"(["6 x window 512: 22 layers in 24 places", "1 x full: 4 layers"])"));
  // One key-value head of 256 in 26 layers, of which a block has 4.
  EXPECT_EQ(json["kv_bytes_per_token"], 26 * kKiB);
  EXPECT_EQ(json["kv_block_bytes_per_token"], 4 * kKiB);
  json = InspectJson("mistral-7b-v0.1.json");
  EXPECT_EQ(json["kv_groups"], Json::parse(R"(["1 x window 4096: 32 layers"])"));
  EXPECT_EQ(json["kv_block_bytes_per_token"], json["kv_bytes_per_token"]);
  EXPECT_NE(Inspect("gpt-oss-20b.json", {}).out.find("1 x window 128: 12 layers"), std::string::npos);
}

TEST(Inspect, TheTypeOfKeysAndValuesScalesTheBytes) {
  EXPECT_EQ(InspectJson("llama-3.1-8b.json", {"--kv-dtype", "f32"})["kv_bytes_per_token"], 256 * kKiB);
  EXPECT_EQ(InspectJson("llama-3.1-8b.json", {"--kv-dtype", "bf16"})["kv_bytes_per_token"], 128 * kKiB);
  EXPECT_EQ(InspectJson("llama-3.1-8b.json", {"--kv-dtype", "fp8_e4m3"})["kv_bytes_per_token"], 64 * kKiB);
}

TEST(Inspect, TextNamesArchitectureParametersAndBytes) {
  const Output output = Inspect("llama-3-70b.json", {"--context", "131072"});
  EXPECT_EQ(output.code, 0);
  for (const char* word : {"llama", "320.00 KiB", "40.00 GiB", "70,5"}) {
    EXPECT_NE(output.out.find(word), std::string::npos) << word << " in\n" << output.out;
  }
}

TEST(Inspect, WhatTiedEmbeddingsSave) {
  const Json json = InspectJson("llama-3.2-1b.json");
  EXPECT_EQ(json["num_parameters"], 1'235'814'400);
  EXPECT_EQ(json["features"], Json::array({"tied embeddings (save 262,668,288 parameters)"}));
}

TEST(Inspect, WidthsOfTheFirstLlamas) {
  EXPECT_EQ(InspectJson("llama-2-7b.json")["ffn"], Json::array({"32 x dense: width 11008, gated"}));
  EXPECT_EQ(InspectJson("llama-2-13b.json")["ffn"], Json::array({"40 x dense: width 13824, gated"}));
}

TEST(Inspect, WindowLayersCountUpToTheirWindow) {
  const Json json = InspectJson("mistral-7b-v0.1.json", {"--context", "32768"});
  EXPECT_EQ(json["kv_bytes_per_token"], 128 * kKiB);
  EXPECT_EQ(json["kv_bytes_for_context"], 4096 * 128 * kKiB);
  EXPECT_EQ(json["attention"], Json::array({"32 x gqa: 32 heads, 8 kv heads, head dim 128, window 4096"}));
}

TEST(Inspect, OneLinePerKindOfLayer) {
  const Json json = InspectJson("smollm3-3b.json");
  EXPECT_EQ(json["attention"], Json::array({"27 x gqa: 16 heads, 4 kv heads, head dim 128",
                                            "9 x gqa: 16 heads, 4 kv heads, head dim 128, no rope"}));
  EXPECT_EQ(InspectJson("qwen3-30b-a3b.json")["ffn"], Json::array({"48 x moe: 128 experts of width 768, 8 per token"}));
}

TEST(Inspect, AnUnknownFamilyIsNamedWithThoseThereAre) {
  const std::string path = ::testing::TempDir() + "/sluice_inspect_config.json";
  std::ofstream(path) << R"({"model_type": "mamba"})";
  const Output output = RunSluice({"inspect", path});
  EXPECT_EQ(output.code, 64 + 12);
  EXPECT_EQ(output.out, "");
  EXPECT_NE(output.err.find("'mamba' is not supported"), std::string::npos) << output.err;
  EXPECT_NE(output.err.find("gemma3"), std::string::npos) << output.err;
}

TEST(Inspect, AFileThatIsNotThereIsNamed) {
  const Output output = Inspect("nothing.json", {});
  EXPECT_EQ(output.code, 64 + 5);
  EXPECT_EQ(output.out, "");
  EXPECT_NE(output.err.find("nothing.json"), std::string::npos);
}

}  // namespace
}  // namespace sluice::cli
