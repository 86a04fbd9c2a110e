// `sluice inspect` through the binary: published configurations and the memory that their caches need.
#include <gtest/gtest.h>

#include <filesystem>
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

// Parameters as the class in transformers that the config makes has them; two bytes for each cached value.
TEST(Inspect, EveryFamilyAtItsRealSize) {
  struct Published {
    std::string config;
    int64_t num_parameters, kv_bytes_per_token;
    std::vector<std::string> words;
  };
  const Published models[] = {
      {"gpt2-124m",
       124'439'808,
       36'864,
       {"12 x mha: 12 heads", "no rope, biases", "gelu by tanh, biases", "learned positions, layer norms"}},
      {"llama-2-7b",
       6'738'415'616,
       524'288,
       {"32 x mha: 32 heads, 32 kv heads, head dim 128\n", "width 11008, gated\n"}},
      {"llama-2-13b", 13'015'864'320, 819'200, {"40 x mha: 40 heads", "width 13824, gated\n"}},
      {"llama-3-70b", 70'553'706'496, 327'680, {"80 x gqa: 64 heads, 8 kv heads"}},
      {"llama-3.1-8b", 8'030'261'248, 131'072, {"32 x gqa: 32 heads, 8 kv heads", "rope scaling factor 8\n"}},
      {"llama-3.2-1b",
       1'235'814'400,
       32'768,
       {"tied embeddings (save 262,668,288 parameters), rope scaling factor 32\n"}},
      {"llama4-scout",
       107'769'861'120,
       196'608,
       {"36 x gqa: 40 heads, 8 kv heads, head dim 128, qk norm without weights, chunk 8192\n",
        "12 x gqa: 40 heads, 8 kv heads, head dim 128, no rope\n",
        "48 x moe: 16 experts of width 8192, 1 per token, shared expert of width 8192, sigmoid scores, weights on "
        "inputs\n",
        "rope scaling factor 16, query temperature\n"}},
      {"llama4-maverick",
       400'711'848'960,
       196'608,
       {"24 x dense: width 16384", "24 x moe: 128 experts", "head dim 128, chunk 8192\n"}},
      {"mistral-7b-v0.1", 7'241'732'096, 131'072, {"window 4096\n"}},
      {"mistral-nemo-12b", 12'247'782'400, 163'840, {"40 x gqa: 32 heads, 8 kv heads, head dim 128\n"}},
      {"mixtral-8x7b", 46'702'792'704, 131'072, {"32 x moe: 8 experts of width 14336, 2 per token\n"}},
      {"qwen2.5-0.5b",
       494'032'768,
       12'288,
       {"24 x gqa: 14 heads, 2 kv heads, head dim 64, biases\n", "tied embeddings"}},
      {"qwen2.5-7b", 7'615'616'512, 57'344, {"28 x gqa: 28 heads, 4 kv heads, head dim 128, biases\n"}},
      {"qwen3-0.6b", 596'049'920, 114'688, {"head dim 128, qk norm\n", "tied embeddings"}},
      {"qwen3-8b", 8'190'735'360, 147'456, {"head dim 128, qk norm\n"}},
      {"qwen3-30b-a3b", 30'532'122'624, 98'304, {"48 x moe: 128 experts of width 768, 8 per token\n", "qk norm\n"}},
      {"gemma2-27b",
       27'227'128'320,
       376'832,
       {"23 x gqa: 32 heads, 16 kv heads, head dim 128, window 4096, softcap 50\n", "gated, gelu by tanh\n",
        "embedding scale 67.8822, final softcap 30, norms after attention and ffn\n"}},
      {"gemma3-1b",
       999'885'952,
       26'624,
       {"22 x mqa: 4 heads, 1 kv heads, head dim 256, qk norm, window 512\n",
        "4 x mqa: 4 heads, 1 kv heads, head dim 256, qk norm\n", "2 rope tables, embedding scale"}},
      {"gemma3-4b",
       3'880'263'168,
       139'264,
       {"29 x gqa: 8 heads, 4 kv heads, head dim 256, qk norm, window 1024\n", "2 rope tables, rope scaling factor 8"}},
      {"gemma3-27b",
       27'009'346'304,
       507'904,
       {"52 x gqa: 32 heads, 16 kv heads, head dim 128, qk norm, window 1024\n"}},
      {"olmo2-7b", 7'298'617'344, 524'288, {"qk norm over all heads\n", "norms after attention and ffn\n"}},
      {"gpt-oss-20b",
       20'914'757'184,
       49'152,
       {"12 x gqa: 64 heads, 8 kv heads, head dim 64, window 128, sinks, biases\n",
        "24 x moe: 32 experts of width 2880, 4 per token, swiglu limited to 7, biases\n",
        "rope scaling factor 32, rope magnitude 1.3466\n"}},
      {"gpt-oss-120b", 116'829'156'672, 73'728, {"36 x moe: 128 experts of width 2880"}},
      {"deepseek-v2-lite",
       15'706'484'224,
       31'104,
       {"27 x mla: 16 heads, latent 512 + rope 64\n",
        "26 x moe: 64 experts of width 1408, 6 per token, shared expert of width 2816\n", "rope scaling factor 40\n"}},
      {"deepseek-v2",
       235'741'434'880,
       69'120,
       {"60 x mla: 128 heads, latent 512 + rope 64, q latent 1536\n",
        "6 per token from 3 of 8 groups, shared expert of width 3072, scale 16\n"}},
      {"deepseek-v3",
       671'026'419'200,
       70'272,
       {"8 per token from 4 of 8 groups, shared expert of width 2048, sigmoid scores, selection bias, scale 2.5\n"}},
      {"kimi-k2",
       1'026'408'232'448,
       70'272,
       {"61 x mla: 64 heads",
        "60 x moe: 384 experts of width 2048, 8 per token, shared expert of width 2048, sigmoid scores, selection "
        "bias, scale 2.827\n"}},
      {"smollm2-135m", 134'515'008, 23'040, {"30 x gqa: 9 heads, 3 kv heads, head dim 64\n", "tied embeddings"}},
      {"smollm3-3b",
       3'075'098'624,
       73'728,
       {"27 x gqa: 16 heads, 4 kv heads, head dim 128\n", "9 x gqa: 16 heads, 4 kv heads, head dim 128, no rope\n"}},
      {"phi-3-mini-4k", 3'821'079'552, 393'216, {"32 x mha: 32 heads, 32 kv heads, head dim 96, window 2047\n"}},
  };
  for (const Published& model : models) {
    const Json json = InspectJson(model.config + ".json");
    EXPECT_EQ(json["num_parameters"], model.num_parameters) << model.config;
    EXPECT_EQ(json["kv_bytes_per_token"], model.kv_bytes_per_token) << model.config;
    const Output text = Inspect(model.config + ".json", {});
    for (const std::string& word : model.words) {
      EXPECT_NE(text.out.find(word), std::string::npos) << word << " in\n" << text.out;
    }
  }
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
  EXPECT_EQ(json["features"], Json::array({"tied embeddings (save 262,668,288 parameters)", "rope scaling factor 32"}));
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

// A folder with a config.json and, if asked for, weights that are cut short.
std::string FolderOf(const std::string& name, const std::string& config, const std::string& weights = "") {
  const std::string folder = ::testing::TempDir() + "/sluice_inspect_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << config;
  if (!weights.empty()) std::ofstream(folder + "/model.safetensors") << weights;
  return folder;
}

std::string PublishedConfig(const std::string& name, const std::string& more) {
  std::ifstream in(std::string(SLUICE_SOURCE_DIR "/tests/model/configs/") + name);
  Json config = Json::parse(in);
  config.update(Json::parse(more));
  return config.dump();
}

TEST(Inspect, WarnsAndRefusesInTheServersWords) {
  const std::string odd =
      PublishedConfig("llama-3.1-8b.json", R"({"logit_multiplier": 2, "for_llm_compressor": false})");
  const std::string folder = FolderOf("odd", odd);
  for (const std::string& path : {folder, folder + "/config.json"}) {
    const Output output = RunSluice({"inspect", path});
    EXPECT_EQ(output.code, 0) << output.err;
    EXPECT_NE(output.err.find("warning: " + folder +
                              "/config.json: keys that are not known and may change what the model "
                              "computes: 'logit_multiplier'\n"),
              std::string::npos)
        << output.err;
    EXPECT_EQ(output.err.find("for_llm_compressor"), std::string::npos);
  }
  const std::string awq = PublishedConfig("llama-3.1-8b.json", R"({"quantization_config": {"quant_method": "awq"}})");
  const Output refused = RunSluice({"inspect", FolderOf("awq", awq)});
  EXPECT_EQ(refused.code, 64 + 12);
  EXPECT_NE(refused.err.find("key 'quantization_config.quant_method' is 'awq', which is not supported"),
            std::string::npos)
      << refused.err;
}

TEST(Inspect, WeightsThatTheServerWouldRefuseAreRefused) {
  const Output output =
      RunSluice({"inspect", FolderOf("cut", PublishedConfig("llama-3.1-8b.json", "{}"), "cut short")});
  EXPECT_EQ(output.code, 64 + 3);
  EXPECT_NE(output.err.find("model.safetensors: header length"), std::string::npos) << output.err;
}

TEST(Inspect, AGoldenFolderAndItsGgufAreReadWhole) {
  for (const char* path : {"llama-yarn", "llama-yarn/model.gguf", "deepseek-v3-fp8", "gpt-oss-mxfp4"}) {
    const Output output = RunSluice({"inspect", std::string(SLUICE_SOURCE_DIR "/tests/goldens/models/") + path});
    EXPECT_EQ(output.code, 0) << output.err;
    EXPECT_NE(output.out.find("parameters"), std::string::npos);
  }
}

TEST(Inspect, TheFactorOfAShortOriginalContextIsShown) {
  const std::string yarn = R"({"max_position_embeddings": 24, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                               "original_max_position_embeddings": 24}})";
  const std::string path = FolderOf("yarn", PublishedConfig("qwen3-8b.json", yarn)) + "/config.json";
  const Json json = Json::parse(RunSluice({"inspect", path, "--json"}).out, nullptr, false);
  EXPECT_EQ(json["max_position"], 96);
  EXPECT_EQ(json["context"], 96);
  EXPECT_NE(json["features"].dump().find("rope scaling factor 4\""), std::string::npos) << json["features"];
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
