// DeepSeek-V2, V3 and Kimi K2: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "engine/model/rope.h"
#include "tests/model/family_testing.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

const Mla& Latent(const ModelSpec& spec) { return std::get<Mla>(spec.layers[0].attention.kind); }

TEST(MlaScaleTest, SelfCheckConstants) {
  // The square of YaRN's magnitude, the softmax scale, and that cos and sin are not multiplied.
  const auto expect = [](const char* name, double factor, double mscale, double square, double scale) {
    const double magnitude = YarnMagnitude(factor, mscale);
    EXPECT_NEAR(magnitude * magnitude, square, 5e-7) << name;
    const ModelSpec spec = ReadConfig(name);
    for (const LayerSpec& layer : spec.layers) EXPECT_NEAR(layer.attention.scale, scale, 5e-8) << name;
    EXPECT_FLOAT_EQ(spec.rope_tables[0].attention_factor, 1) << name;
  };
  expect("deepseek-v3", 40, 1, 1.873854, 0.13523377);
  expect("deepseek-v2-lite", 40, 0.707, 1.589626, 0.11472140);
  expect("deepseek-v2", 40, 0.707, 1.589626, 0.11472140);
  expect("kimi-k2", 32, 1, 1.813260, 0.13086082);
}

TEST(MlaScaleTest, WithoutMscaleItIsTheWidthsAlone) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("deepseek-v3", {{"/rope_scaling/mscale_all_dim", kRemoved}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_NEAR(spec->layers[0].attention.scale, 1 / std::sqrt(192.0), 1e-8);
  EXPECT_NEAR(spec->rope_tables[0].attention_factor, YarnMagnitude(40, 1), 1e-6);
  spec = ReadChanged("deepseek-v3", {{"/rope_scaling", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_NEAR(spec->layers[0].attention.scale, 1 / std::sqrt(192.0), 1e-8);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].attention_factor, 1);
  spec = ReadChanged("deepseek-v3", {{"/rope_scaling/mscale", 0.5}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_NEAR(spec->rope_tables[0].attention_factor, YarnMagnitude(40, 0.5) / YarnMagnitude(40, 1), 1e-6);
}

TEST(DeepseekV2ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("deepseek-v2");
  EXPECT_EQ(NumParameters(spec), 235741434880);
  ASSERT_EQ(spec.layers.size(), 60u);
  EXPECT_EQ(Latent(spec).q_lora_rank, 1536);
  EXPECT_EQ(Latent(spec).num_heads, 128);
  EXPECT_EQ(spec.layers[0].attention.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(spec.layers[0].attention.rope->num_rotary, 64);
  EXPECT_EQ(std::get<DenseFfn>(spec.layers[0].ffn).intermediate_size, 12288);
  const MoeFfn& moe = std::get<MoeFfn>(spec.layers[1].ffn);
  EXPECT_EQ(moe.routing.num_experts, 160);
  EXPECT_EQ(moe.routing.num_experts_per_token, 6);
  EXPECT_EQ(moe.routing.score, MoeScore::kSoftmaxAll);
  EXPECT_EQ(moe.routing.groups->num_groups, 8);
  EXPECT_EQ(moe.routing.groups->num_kept, 3);
  EXPECT_EQ(moe.routing.groups->score, MoeGroupScore::kMax);
  EXPECT_FALSE(moe.routing.renormalize || moe.selection_bias);
  EXPECT_FLOAT_EQ(moe.routing.routed_scale, 16);
  EXPECT_EQ(moe.shared_intermediate_size, 2 * 1536);
}

TEST(DeepseekV2ConfigTest, FieldsOfLite) {
  const ModelSpec spec = ReadConfig("deepseek-v2-lite");
  EXPECT_EQ(NumParameters(spec), 15706484224);
  EXPECT_FALSE(Latent(spec).q_lora_rank.has_value());
  EXPECT_EQ(Latent(spec).num_heads, 16);
  const MoeFfn& moe = std::get<MoeFfn>(spec.layers[1].ffn);
  EXPECT_FALSE(moe.routing.groups.has_value());
  EXPECT_FLOAT_EQ(moe.routing.routed_scale, 1);
  EXPECT_EQ(KvBytes(spec, 1, 2), 27 * 576 * 2);
}

TEST(DeepseekConfigTest, WrittenByTransformers5ItSaysTheSame) {
  for (const char* name : {"deepseek-v2", "deepseek-v2-lite", "deepseek-v3"}) {
    ExpectSameSpec(ReadConfig(name), ReadConfig(std::string(name) + ".transformers5"));
  }
}

TEST(DeepseekV2ConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  nlohmann::json changes;
  for (const char* key : {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                          "first_k_dense_replace", "topk_method", "n_routed_experts", "n_shared_experts",
                          "routed_scaling_factor", "max_position_embeddings", "rms_norm_eps", "attention_bias"}) {
    changes[std::string("/") + key] = kRemoved;
  }
  const absl::StatusOr<ModelSpec> spec = ReadChanged("deepseek-v2", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Latent(*spec).q_lora_rank, 1536);
  EXPECT_EQ(Latent(*spec).kv_lora_rank, 512);
  EXPECT_EQ(spec->max_position, 40 * 4096);                   // as far as its yarn goes; 2048 is what is missing
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[0].ffn);  // no dense layer
  EXPECT_EQ(moe.routing.num_experts, 64);
  EXPECT_FALSE(moe.routing.groups.has_value());
  EXPECT_FLOAT_EQ(moe.routing.routed_scale, 1);
  EXPECT_EQ(moe.shared_intermediate_size, 2 * 1536);
}

TEST(DeepseekV2ConfigTest, NormTopkProbIsNotLookedAt) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("deepseek-v2", {{"/norm_topk_prob", true}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("deepseek-v2"));
}

TEST(DeepseekV2ConfigTest, BiasesOfTheLatentProjections) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("deepseek-v2", {{"/attention_bias", true}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const AttentionSpec& attention = spec->layers[0].attention;
  EXPECT_TRUE(attention.q_bias && attention.k_bias && attention.o_bias);
  EXPECT_FALSE(attention.v_bias);
  spec = ReadChanged("deepseek-v2-lite", {{"/attention_bias", true}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->layers[0].attention.q_bias);  // a query made in one piece has none
  EXPECT_TRUE(spec->layers[0].attention.k_bias);
  spec = ReadChanged("deepseek-v2", {{"/mlp_bias", true}, {"/n_shared_experts", 0}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(std::get<DenseFfn>(spec->layers[0].ffn).bias);
  ExpectError(ReadChanged("deepseek-v2", {{"/mlp_bias", true}}), kUnimplemented, "'mlp_bias' is true");
}

TEST(DeepseekV2ConfigTest, WhatIsOddIsAnErrorNamingTheKey) {
  const auto expect = [](const nlohmann::json& changes, absl::StatusCode code, const std::string& part) {
    ExpectError(ReadChanged("deepseek-v2", changes), code, part);
  };
  expect({{"/num_experts_per_tok", kRemoved}}, kInvalidArgument, "'num_experts_per_tok' is missing");
  expect({{"/topk_method", "noaux_tc"}}, kUnimplemented, "'topk_method' is 'noaux_tc'");
  expect({{"/scoring_func", "sigmoid"}}, kUnimplemented, "'scoring_func' is 'sigmoid'");
  expect({{"/n_group", kRemoved}}, kInvalidArgument, "'n_group' is missing");
  expect({{"/topk_group", 9}}, kInvalidArgument, "num_kept is 9");
  expect({{"/n_group", 7}}, kInvalidArgument, "num_groups is 7");
  expect({{"/moe_layer_freq", 2}}, kUnimplemented, "'moe_layer_freq' is 2");
  expect({{"/qk_rope_head_dim", 63}}, kInvalidArgument, "'qk_rope_head_dim' is 63");
  expect({{"/routed_scaling_factor", 0}}, kInvalidArgument, "routed_scale is 0");
  expect({{"/kv_lora_rank", 0}}, kInvalidArgument, "'kv_lora_rank' is 0");
  expect({{"/rope_scaling/factor", -40}}, kInvalidArgument, "factor");
  expect({{"/n_shared_experts", 1000}, {"/moe_intermediate_size", 1 << 20}}, kInvalidArgument, "intermediate_size");
}

TEST(DeepseekV3ConfigTest, WordsForWhatTheFamilyDoesNotDoAreRefused) {
  ExpectError(ReadChanged("deepseek-v3", {{"/scoring_func", "softmax"}}), kUnimplemented, "'scoring_func'");
  ExpectError(ReadChanged("deepseek-v3", {{"/topk_method", "greedy"}}), kUnimplemented, "'topk_method'");
}

TEST(DeepseekV3ConfigTest, RopeMayBeHalfSplit) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("deepseek-v3", {{"/rope_interleave", false}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope->layout, RopeLayout::kHalfSplit);
}

TEST(KimiK2ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("kimi-k2");
  EXPECT_EQ(NumParameters(spec), 1026408232448);
  ASSERT_EQ(spec.layers.size(), 61u);
  EXPECT_TRUE(std::holds_alternative<DenseFfn>(spec.layers[0].ffn));
  const MoeFfn& moe = std::get<MoeFfn>(spec.layers[1].ffn);
  EXPECT_EQ(moe.routing.num_experts, 384);
  EXPECT_EQ(moe.routing.num_experts_per_token, 8);
  EXPECT_FALSE(moe.routing.groups.has_value());
  EXPECT_TRUE(moe.selection_bias && moe.routing.renormalize);
  EXPECT_FLOAT_EQ(moe.routing.routed_scale, 2.827f);
  // Both betas are 1: pairs up to 19 are kept, those from 20 on divided.
  const RopeTable& table = spec.rope_tables[0];
  EXPECT_FLOAT_EQ(table.inv_freq[19], float(std::pow(5e4, -38.0 / 64)));
  EXPECT_FLOAT_EQ(table.inv_freq[20], float(std::pow(5e4, -40.0 / 64) / 32));
}

TEST(KimiK2ConfigTest, BothNamesOfTheTypeMeanTheSame) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("kimi-k2", {{"/model_type", "deepseek_v3"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("kimi-k2"));
}

TEST(DeepseekNamesTest, EveryTensorHasAName) {
  for (const char* name : {"deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "kimi-k2"}) {
    ExpectEveryTensorNamed(ReadConfig(name), DeepseekFolderTensorNames());
    ExpectEveryTensorNamed(ReadConfig(name), DeepseekGgufTensorNames());
  }
  EXPECT_TRUE(IsIgnoredTensor(DeepseekFolderTensorNames(), "model.layers.61.eh_proj.weight", 61));
  EXPECT_FALSE(IsIgnoredTensor(DeepseekFolderTensorNames(), "model.layers.60.eh_proj.weight", 61));
}

// What the converter writes for a small V3.
GgufWriter CommonKeys() {
  GgufWriter writer;
  writer.AddString("general.architecture", "deepseek2");
  writer.AddU32("deepseek2.context_length", 163840);
  writer.AddU32("deepseek2.embedding_length", 64);
  writer.AddU32("deepseek2.block_count", 4);
  writer.AddU32("deepseek2.feed_forward_length", 96);
  writer.AddU32("deepseek2.attention.head_count", 4);
  writer.AddF32("deepseek2.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddF32("deepseek2.rope.freq_base", 1e4f);
  writer.AddU32("deepseek2.rope.dimension_count", 64);
  writer.AddU32("deepseek2.attention.kv_lora_rank", 32);
  writer.AddU32("deepseek2.leading_dense_block_count", 1);
  writer.AddU32("deepseek2.expert_count", 8);
  writer.AddU32("deepseek2.expert_used_count", 2);
  writer.AddU32("deepseek2.expert_shared_count", 2);
  writer.AddU32("deepseek2.expert_feed_forward_length", 48);
  return writer;
}
void AddSplitKeys(GgufWriter* writer) {
  writer->AddU32("deepseek2.attention.head_count_kv", 1);
  writer->AddU32("deepseek2.attention.key_length", 32 + 64);
  writer->AddU32("deepseek2.attention.value_length", 32);
  writer->AddU32("deepseek2.attention.key_length_mla", 128 + 64);
  writer->AddU32("deepseek2.attention.value_length_mla", 24);
}
void AddYarn(GgufWriter* writer, float factor) {
  writer->AddString("deepseek2.rope.scaling.type", "yarn");
  writer->AddF32("deepseek2.rope.scaling.factor", factor);
  writer->AddU32("deepseek2.rope.scaling.original_context_length", 4096);
}
const std::vector<TensorOf> kTensors = {
    {"token_embd.weight", {64, 64}}, {"output.weight", {64, 64}}, {"blk.1.exp_probs_b.bias", {8}}};

TEST(DeepseekGgufTest, FieldsOfASigmoidModel) {
  GgufWriter writer = CommonKeys();
  AddSplitKeys(&writer);
  AddYarn(&writer, 40);
  writer.AddF32("deepseek2.rope.scaling.yarn_log_multiplier", 0.1f);
  writer.AddU32("deepseek2.attention.q_lora_rank", 40);
  writer.AddU32("deepseek2.expert_gating_func", 2);
  writer.AddBool("deepseek2.expert_weights_norm", true);
  writer.AddF32("deepseek2.expert_weights_scale", 2.5f);
  writer.AddU32("deepseek2.expert_group_count", 4);
  writer.AddU32("deepseek2.expert_group_used_count", 2);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, kTensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->tied_embeddings);
  ASSERT_EQ(spec->layers.size(), 4u);
  const Mla& mla = Latent(*spec);
  EXPECT_EQ(mla.num_heads, 4);
  EXPECT_EQ(mla.q_lora_rank, 40);
  EXPECT_EQ(mla.kv_lora_rank, 32);
  EXPECT_EQ(mla.qk_nope_head_dim, 128);
  EXPECT_EQ(mla.qk_rope_head_dim, 64);
  EXPECT_EQ(mla.v_head_dim, 24);
  EXPECT_FLOAT_EQ(mla.latent_norm_eps, 1e-6f);
  EXPECT_FLOAT_EQ(spec->layers[0].pre_attn->eps, 1e-5f);
  EXPECT_NEAR(spec->layers[0].attention.scale, 0.1352338, 1e-7);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].attention_factor, 1);
  EXPECT_EQ(spec->rope_tables[0].inv_freq, ReadConfig("deepseek-v3").rope_tables[0].inv_freq);
  EXPECT_EQ(spec->layers[0].attention.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).intermediate_size, 96);
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[1].ffn);
  EXPECT_EQ(moe.expert_intermediate_size, 48);
  EXPECT_EQ(moe.shared_intermediate_size, 96);
  EXPECT_EQ(moe.routing.score, MoeScore::kSigmoid);
  EXPECT_TRUE(moe.selection_bias && moe.routing.renormalize);
  EXPECT_FLOAT_EQ(moe.routing.routed_scale, 2.5f);
  EXPECT_EQ(moe.routing.groups->num_groups, 4);
  EXPECT_EQ(moe.routing.groups->num_kept, 2);
  EXPECT_EQ(moe.routing.groups->score, MoeGroupScore::kTop2Sum);
}

TEST(DeepseekGgufTest, FieldsOfAnOldSoftmaxFile) {
  GgufWriter writer = CommonKeys();
  writer.AddU32("deepseek2.attention.head_count_kv", 4);
  writer.AddU32("deepseek2.attention.key_length", 128 + 64);
  writer.AddU32("deepseek2.attention.value_length", 128);
  AddYarn(&writer, 40);
  writer.AddF32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
  writer.AddF32("deepseek2.expert_weights_scale", 16);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, {kTensors[0]});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_FALSE(Latent(*spec).q_lora_rank.has_value());
  EXPECT_EQ(Latent(*spec).qk_nope_head_dim, 128);
  EXPECT_EQ(Latent(*spec).v_head_dim, 128);
  EXPECT_NEAR(spec->layers[0].attention.scale, 0.1147214, 1e-7);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].attention_factor, 1);
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[1].ffn);
  EXPECT_EQ(moe.routing.score, MoeScore::kSoftmaxAll);
  EXPECT_FALSE(moe.selection_bias || moe.routing.renormalize || moe.routing.groups.has_value());
  EXPECT_FLOAT_EQ(moe.routing.routed_scale, 16);
}

TEST(DeepseekGgufTest, GroupsOfASoftmaxModelGoByTheirBest) {
  GgufWriter writer = CommonKeys();
  AddSplitKeys(&writer);
  writer.AddU32("deepseek2.expert_gating_func", 1);
  writer.AddU32("deepseek2.expert_group_count", 4);
  writer.AddU32("deepseek2.expert_group_used_count", 2);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, kTensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<MoeFfn>(spec->layers[1].ffn).routing.groups->score, MoeGroupScore::kMax);
  EXPECT_NEAR(spec->layers[0].attention.scale, 1 / std::sqrt(192.0), 1e-8);
}

TEST(DeepseekGgufTest, LayersForPredictingFurtherAheadAreNotOfTheModel) {
  GgufWriter writer = CommonKeys();
  AddSplitKeys(&writer);
  writer.AddU32("deepseek2.nextn_predict_layers", 1);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, kTensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 3u);
  EXPECT_TRUE(IsIgnoredTensor(DeepseekGgufTensorNames(), "blk.3.nextn.eh_proj.weight", 3));
}

TEST(DeepseekGgufTest, OddValuesAreErrors) {
  const auto expect = [](auto change, absl::StatusCode code, const std::string& part) {
    GgufWriter writer = CommonKeys();
    AddSplitKeys(&writer);
    change(&writer);
    ExpectError(ReadGgufSpec(writer, kTensors), code, part);
  };
  expect([](GgufWriter* w) { w->AddU32("deepseek2.expert_gating_func", 3); }, kUnimplemented, "expert_gating_func");
  expect([](GgufWriter* w) { w->AddU32("deepseek2.expert_group_count", 4); }, kNotFound, "expert_group_used_count");
  expect([](GgufWriter* w) { w->AddU32("deepseek2.nextn_predict_layers", 4); }, kInvalidArgument,
         "nextn_predict_layers");
  expect([](GgufWriter* w) { w->AddF32("deepseek2.attention.temperature_scale", 0.1f); }, kUnimplemented,
         "temperature_scale");
  expect([](GgufWriter* w) { w->AddU32("deepseek2.attention.q_lora_rank", 0); }, kInvalidArgument, "q_lora_rank");
  GgufWriter writer = CommonKeys();
  writer.AddU32("deepseek2.attention.key_length", 64);
  writer.AddU32("deepseek2.attention.value_length", 64);
  ExpectError(ReadGgufSpec(writer, kTensors), kInvalidArgument, "deepseek2.attention.key_length' is 64");
  ExpectError(ReadGgufSpec(CommonKeys(), kTensors), kNotFound, "deepseek2.attention.key_length");
}

}  // namespace
}  // namespace sluice::testing
