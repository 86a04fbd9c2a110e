// From files to specs: config.json of real sizes, and what is refused.
#include "engine/model/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/model/summary.h"
#include "tests/model/find_tensor_name.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string ConfigPath(const std::string& name) {
  return std::string(SLUICE_SOURCE_DIR) + "/tests/model/configs/" + name + ".json";
}

ModelSpec ReadConfig(const std::string& name) {
  absl::StatusOr<ModelSpec> spec = ReadModelSpec(ConfigPath(name));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

TEST(InspectTest, Llama3Of70B) {
  const ModelSpec spec = ReadConfig("llama-3-70b");
  EXPECT_EQ(KvBytes(spec, 1, 2), 327680);
  EXPECT_EQ(KvBytes(spec, 131072, 2), 40 * kGiB);
  EXPECT_EQ(NumParameters(spec), 70553706496);
}

TEST(InspectTest, Llama3Of70BWithOneHeadOrAllOfThem) {
  EXPECT_EQ(KvBytes(ReadConfig("llama-3-70b-mha"), 1, 2), 5 * kMiB / 2);
  EXPECT_EQ(KvBytes(ReadConfig("llama-3-70b-mqa"), 1, 2), 40 * 1024);
}

TEST(InspectTest, DeepseekV3) {
  const ModelSpec spec = ReadConfig("deepseek-v3");
  EXPECT_EQ(KvBytes(spec, 1, 2), 70272);
  EXPECT_NEAR(double(KvBytes(spec, 131072, 2)) / double(kGiB), 8.6, 0.05);
  EXPECT_EQ(NumParameters(spec), 671026419200);
  EXPECT_EQ(SummarizeModel(spec).num_active_parameters, 37552297472);
}

TEST(InspectTest, LayersTimesHeadsTimesWidth) {
  const ModelSpec spec = ReadConfig("llama-3.1-8b");  // 32 layers, 8 KV heads of 128
  EXPECT_EQ(KvBytes(spec, 1, 2), 128 * 1024);
  EXPECT_EQ(KvBytes(spec, 32768, 2), 4 * kGiB);
  EXPECT_EQ(KvBytes(spec, 1, 1), 64 * 1024);  // --kv-dtype of one byte
  EXPECT_EQ(NumParameters(spec), 8030261248);
}

TEST(InspectTest, SmolLm2) {
  const ModelSpec spec = ReadConfig("smollm2-135m");
  EXPECT_EQ(NumParameters(spec), 134515008);
  EXPECT_EQ(KvBytes(spec, 1, 2), 23040);
}

TEST(InspectTest, TheReportHasEveryNumber) {
  const std::string report = FormatModelSummary(ReadConfig("deepseek-v3"), 2, 131072);
  for (const char* part :
       {"deepseek_v3", "671,026,419,200", "37,552,297,472", "61 x mla: 128 heads, latent 512 + rope 64, q latent 1536",
        "3 x dense: width 18432, gated", "58 x moe: 256 experts of width 2048, 8 per token from 4 of 8 groups",
        "70,272 B", "8.58 GiB at 131,072 tokens, 2-byte values", "163,840 tokens"}) {
    EXPECT_THAT(report, HasSubstr(part));
  }
  EXPECT_THAT(FormatModelSummary(ReadConfig("llama-3-70b-mha"), 2, 0), HasSubstr("2.50 MiB"));
  EXPECT_THAT(FormatModelSummary(ReadConfig("llama-3-70b-mqa"), 2, 0), HasSubstr("40.00 KiB"));
  EXPECT_THAT(FormatModelSummary(ReadConfig("smollm2-135m"), 2, 0), HasSubstr("tied embeddings"));
}

TEST(InspectTest, NumbersAreGroupedAndUnitsChosen) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(-123456), "-123,456");
  EXPECT_EQ(FormatCount(671026419200), "671,026,419,200");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(40 * kGiB), "40.00 GiB");
}

TEST(RegistryTest, EveryRowIsWholeAndNoNameComesTwice) {
  std::set<absl::string_view> gguf, config;
  for (const Architecture& row : Architectures()) {
    EXPECT_FALSE(row.gguf_name.empty() && row.config_name.empty());
    EXPECT_EQ(row.gguf_name.empty(), row.spec_from_gguf == nullptr);
    EXPECT_EQ(row.gguf_name.empty(), row.gguf_tensors.empty());
    EXPECT_EQ(row.config_name.empty(), row.spec_from_config == nullptr);
    EXPECT_EQ(row.config_name.empty(), row.config_tensors.empty());
    if (!row.gguf_name.empty()) {
      EXPECT_TRUE(gguf.insert(row.gguf_name).second) << row.gguf_name;
    }
    if (!row.config_name.empty()) {
      EXPECT_TRUE(config.insert(row.config_name).second) << row.config_name;
    }
  }
}

TEST(RegistryTest, EveryTensorOfAKnownModelHasAName) {
  const std::pair<const char*, const char*> kModels[] = {{"llama", "llama-3-70b"}, {"deepseek_v3", "deepseek-v3"}};
  for (const auto& [type, name] : kModels) {
    const ModelSpec spec = ReadConfig(name);
    for (const Architecture& row : Architectures()) {
      if (row.config_name != type) continue;
      std::set<std::string> names;
      for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
        const std::optional<std::string> found = FindTensorName(row.config_tensors, tensor.role, tensor.layer);
        ASSERT_TRUE(found.has_value()) << name << ", role " << int(tensor.role);
        names.insert(*found);
      }
      EXPECT_TRUE(names.contains("model.layers.4.self_attn.o_proj.weight"));
    }
  }
}

TEST(RegistryTest, OtherFamiliesAreNotSupportedAndTheErrorSaysWhichAre) {
  const absl::StatusOr<ConfigJson> config = ConfigJson::Parse(R"({"model_type": "mamba"})", "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  const absl::Status status = ReadModelSpec(*config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: model_type 'mamba' is not supported; supported: "));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("llama, gpt2, mistral, mixtral, qwen2, qwen3, qwen3_moe, olmo2"));
}

TEST(RegistryTest, AFolderIsReadThroughItsConfig) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "sluice_registry_folder";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(ConfigPath("smollm2-135m"), folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const absl::StatusOr<ModelSpec> spec = ReadModelSpec(folder.string());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 30u);
  std::filesystem::remove(folder / "config.json");
  EXPECT_EQ(ReadModelSpec(folder.string()).status().code(), absl::StatusCode::kNotFound);
}

// A config with some keys replaced; null removes one.
absl::StatusOr<ModelSpec> ReadChanged(const std::string& name, const Json& changes) {
  std::ifstream file(ConfigPath(name));
  Json config = Json::parse(file);
  for (const auto& [key, value] : changes.items()) {
    if (value == "(removed)") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  absl::StatusOr<ConfigJson> parsed = ConfigJson::Parse(config.dump(), "config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return ReadModelSpec(*parsed);
}

void ExpectError(const absl::StatusOr<ModelSpec>& spec, absl::StatusCode code, const std::string& part) {
  EXPECT_EQ(spec.status().code(), code) << spec.status();
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr("config.json: "));
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr(part));
}

TEST(LlamaConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("llama-3.1-8b");
  EXPECT_EQ(spec.architecture, "llama");
  EXPECT_EQ(spec.vocab_size, 128256);
  EXPECT_EQ(spec.d_model, 4096);
  EXPECT_EQ(spec.max_position, 131072);
  EXPECT_FALSE(spec.tied_embeddings);
  ASSERT_EQ(spec.layers.size(), 32u);
  const LayerSpec& layer = spec.layers[31];
  EXPECT_FLOAT_EQ(layer.pre_attn->eps, 1e-5f);
  EXPECT_FALSE(layer.post_attn.has_value());
  const Gqa& gqa = std::get<Gqa>(layer.attention.kind);
  EXPECT_EQ(gqa.num_heads, 32);
  EXPECT_EQ(gqa.num_kv_heads, 8);
  EXPECT_EQ(gqa.head_dim, 128);
  EXPECT_EQ(layer.attention.rope->layout, RopeLayout::kHalfSplit);
  EXPECT_FLOAT_EQ(layer.attention.scale, 1 / std::sqrt(128.0f));
  EXPECT_EQ(layer.attention.mask.kind, MaskKind::kFull);
  EXPECT_EQ(std::get<DenseFfn>(layer.ffn).intermediate_size, 14336);
  ASSERT_EQ(spec.rope_tables.size(), 1u);
  EXPECT_FLOAT_EQ(spec.rope_tables[0].inv_freq[63] * 8, float(std::pow(5e5, -126.0 / 128)));  // scaled by 8
}

TEST(LlamaConfigTest, MissingKeysTakeTheFamilysDefaults) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("smollm2-135m", {{"rms_norm_eps", "(removed)"},
                                                                {"tie_word_embeddings", "(removed)"},
                                                                {"max_position_embeddings", "(removed)"},
                                                                {"rope_theta", "(removed)"},
                                                                {"attention_bias", "(removed)"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->final_norm.eps, 1e-6f);
  EXPECT_FALSE(spec->tied_embeddings);
  EXPECT_EQ(spec->max_position, 2048);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].inv_freq[1], float(std::pow(1e4, -2.0 / 64)));
  EXPECT_FALSE(spec->layers[0].attention.q_bias);
  spec = ReadChanged("smollm2-135m", {{"head_dim", nullptr}, {"num_key_value_heads", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).head_dim, 64);
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).num_kv_heads, 9);
}

TEST(LlamaConfigTest, BiasesAndExplicitHeadDim) {
  const absl::StatusOr<ModelSpec> spec =
      ReadChanged("smollm2-135m", {{"head_dim", 32}, {"attention_bias", true}, {"mlp_bias", true}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<Gqa>(spec->layers[3].attention.kind).head_dim, 32);
  EXPECT_EQ(spec->rope_tables[0].inv_freq.size(), 16u);
  EXPECT_TRUE(spec->layers[3].attention.q_bias && spec->layers[3].attention.o_bias);
  EXPECT_TRUE(std::get<DenseFfn>(spec->layers[3].ffn).bias);
}

TEST(LlamaConfigTest, WhatIsMissingOddOrContradictoryIsAnErrorNamingTheKey) {
  using enum absl::StatusCode;
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}) {
    ExpectError(ReadChanged("smollm2-135m", {{key, "(removed)"}}), kInvalidArgument,
                "key '" + std::string(key) + "' is missing");
    ExpectError(ReadChanged("smollm2-135m", {{key, nullptr}}), kInvalidArgument,
                "key '" + std::string(key) + "' is null");
    ExpectError(ReadChanged("smollm2-135m", {{key, Json::array({1})}}), kInvalidArgument,
                "key '" + std::string(key) + "' is [1]");
  }
  ExpectError(ReadChanged("smollm2-135m", {{"vocab_size", -5}}), kInvalidArgument, "key 'vocab_size' is -5");
  ExpectError(ReadChanged("smollm2-135m", {{"vocab_size", 1e30}}), kInvalidArgument, "key 'vocab_size' is 1e+30");
  ExpectError(ReadChanged("smollm2-135m", {{"hidden_size", 577}}), kInvalidArgument, "expected a multiple of");
  ExpectError(ReadChanged("smollm2-135m", {{"num_key_value_heads", 2}}), kInvalidArgument, "num_kv_heads 2");
  ExpectError(ReadChanged("smollm2-135m", {{"num_key_value_heads", 18}}), kInvalidArgument, "num_kv_heads is 18");
  ExpectError(ReadChanged("smollm2-135m", {{"head_dim", 33}}), kInvalidArgument, "rotating dimensions of a head is 33");
  ExpectError(ReadChanged("smollm2-135m", {{"hidden_act", "relu"}}), kUnimplemented, "key 'hidden_act' is 'relu'");
  ExpectError(ReadChanged("smollm2-135m", {{"rms_norm_eps", 0}}), kInvalidArgument, "eps is 0");
  ExpectError(ReadChanged("smollm2-135m", {{"rms_norm_eps", "small"}}), kInvalidArgument, "expected a number");
  ExpectError(ReadChanged("smollm2-135m", {{"num_hidden_layers", 65536}}), kInvalidArgument, "number of layers");
  ExpectError(ReadChanged("smollm2-135m", {{"tie_word_embeddings", 1}}), kInvalidArgument, "expected true or false");
  ExpectError(ReadChanged("smollm2-135m", {{"rope_scaling", {{"type", "spiral"}}}}), kInvalidArgument, "'spiral'");
  ExpectError(ReadChanged("smollm2-135m", {{"model_type", "(removed)"}}), kInvalidArgument, "'model_type' is missing");
}

TEST(DeepseekV3ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("deepseek-v3");
  ASSERT_EQ(spec.layers.size(), 61u);
  EXPECT_TRUE(std::holds_alternative<DenseFfn>(spec.layers[2].ffn));
  const MoeFfn& moe = std::get<MoeFfn>(spec.layers[3].ffn);
  EXPECT_EQ(moe.routing.num_experts, 256);
  EXPECT_EQ(moe.routing.num_experts_per_token, 8);
  EXPECT_EQ(moe.routing.score, MoeScore::kSigmoid);
  EXPECT_TRUE(moe.selection_bias && moe.routing.renormalize);
  EXPECT_EQ(moe.routing.groups->num_groups, 8);
  EXPECT_EQ(moe.routing.groups->num_kept, 4);
  EXPECT_EQ(moe.routing.groups->score, MoeGroupScore::kTop2Sum);
  EXPECT_FLOAT_EQ(moe.routing.routed_scale, 2.5f);
  EXPECT_EQ(moe.shared_intermediate_size, 2048);
  const Mla& mla = std::get<Mla>(spec.layers[60].attention.kind);
  EXPECT_EQ(mla.q_lora_rank, 1536);
  EXPECT_EQ(mla.v_head_dim, 128);
  EXPECT_FLOAT_EQ(mla.latent_norm_eps, 1e-6f);
  EXPECT_NEAR(spec.layers[60].attention.scale, 0.1352338, 1e-6);
  EXPECT_FLOAT_EQ(spec.rope_tables[0].attention_factor, 1);
  EXPECT_EQ(spec.layers[60].attention.rope->layout, RopeLayout::kInterleaved);
}

TEST(DeepseekV3ConfigTest, NullRankMeansPlainQueriesAndAMissingOneTheDefault) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("deepseek-v3", {{"q_lora_rank", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(std::get<Mla>(spec->layers[0].attention.kind).q_lora_rank.has_value());
  spec = ReadChanged("deepseek-v3", {{"q_lora_rank", "(removed)"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<Mla>(spec->layers[0].attention.kind).q_lora_rank, 1536);
}

TEST(DeepseekV3ConfigTest, HeadDimIsNotLookedAt) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("deepseek-v3", {{"head_dim", 64}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(KvBytes(*spec, 1, 2), 70272);
}

TEST(DeepseekV3ConfigTest, ContradictionsAreErrors) {
  ExpectError(ReadChanged("deepseek-v3", {{"num_experts_per_tok", 300}}), absl::StatusCode::kInvalidArgument,
              "num_experts_per_token is 300");
  ExpectError(ReadChanged("deepseek-v3", {{"n_group", 7}}), absl::StatusCode::kInvalidArgument, "num_groups is 7");
  ExpectError(ReadChanged("deepseek-v3", {{"topk_group", 9}}), absl::StatusCode::kInvalidArgument, "num_kept is 9");
  ExpectError(ReadChanged("deepseek-v3", {{"qk_rope_head_dim", 63}}), absl::StatusCode::kInvalidArgument,
              "'qk_rope_head_dim' is 63");
}

}  // namespace
}  // namespace sluice
