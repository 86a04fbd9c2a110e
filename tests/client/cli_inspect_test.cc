// `sluice inspect` through the binary: published configurations and the memory that their caches need.
#include <gtest/gtest.h>

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

TEST(Inspect, OtherFamiliesAreNotSupportedYet) {
  const Output output = Inspect("gemma3-4b.json", {});
  EXPECT_EQ(output.code, 64 + 12);
  EXPECT_EQ(output.out, "");
  EXPECT_NE(output.err.find("not supported yet"), std::string::npos) << output.err;
}

TEST(Inspect, AFileThatIsNotThereIsNamed) {
  const Output output = Inspect("nothing.json", {});
  EXPECT_EQ(output.code, 64 + 5);
  EXPECT_EQ(output.out, "");
  EXPECT_NE(output.err.find("nothing.json"), std::string::npos);
}

}  // namespace
}  // namespace sluice::cli
