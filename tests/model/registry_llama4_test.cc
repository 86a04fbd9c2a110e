// Llama 4: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

// 'c' chunked and turning, 'n' full and not turning, 'o' any other.
std::string Pattern(const ModelSpec& spec) {
  std::string pattern;
  for (const LayerSpec& layer : spec.layers) {
    const bool turns = layer.attention.rope.has_value();
    const MaskKind mask = layer.attention.mask.kind;
    pattern += turns && mask == MaskKind::kChunk ? 'c' : !turns && mask == MaskKind::kFull ? 'n' : 'o';
  }
  return pattern;
}

std::string Ffns(const ModelSpec& spec) {
  std::string ffns;
  for (const LayerSpec& layer : spec.layers) ffns += std::holds_alternative<MoeFfn>(layer.ffn) ? 'm' : 'd';
  return ffns;
}

TEST(Llama4ConfigTest, FieldsOfScout) {
  const ModelSpec spec = ReadConfig("llama4-scout");
  EXPECT_EQ(NumParameters(spec), 107769861120);
  EXPECT_EQ(spec.vocab_size, 202048);
  EXPECT_EQ(spec.max_position, 10485760);
  EXPECT_FALSE(spec.tied_embeddings);
  ASSERT_EQ(spec.layers.size(), 48u);
  EXPECT_EQ(Pattern(spec), "cccncccncccncccncccncccncccncccncccncccncccncccn");
  EXPECT_EQ(Ffns(spec), std::string(48, 'm'));
  const AttentionSpec& turning = spec.layers[2].attention;
  EXPECT_EQ(turning.mask.size, 8192);
  EXPECT_EQ(turning.rope->layout, RopeLayout::kInterleaved);
  EXPECT_FALSE(turning.query_temperature.has_value());
  const QkNormSpec& qk_norm = std::get<Gqa>(turning.kind).qk_norm;
  EXPECT_EQ(qk_norm.kind, QkNormKind::kL2PerHead);
  EXPECT_TRUE(qk_norm.after_rope);
  EXPECT_FLOAT_EQ(qk_norm.norm.eps, 1e-5f);
  const AttentionSpec& still = spec.layers[3].attention;
  EXPECT_EQ(std::get<Gqa>(still.kind).qk_norm.kind, QkNormKind::kNone);
  ASSERT_TRUE(still.query_temperature.has_value());
  EXPECT_FLOAT_EQ(still.query_temperature->floor, 8192);
  EXPECT_FLOAT_EQ(still.query_temperature->coef, 0.1f);
  EXPECT_FLOAT_EQ(still.scale, float(1 / std::sqrt(128.0)));
  const MoeFfn& moe = std::get<MoeFfn>(spec.layers[0].ffn);
  EXPECT_EQ(moe.routing.num_experts, 16);
  EXPECT_EQ(moe.routing.num_experts_per_token, 1);
  EXPECT_EQ(moe.routing.score, MoeScore::kSigmoid);
  EXPECT_FALSE(moe.routing.renormalize || moe.selection_bias);
  EXPECT_EQ(moe.routing.routed_scale, 1);
  EXPECT_TRUE(moe.weight_on_input);
  EXPECT_EQ(moe.expert_intermediate_size, 8192);
  EXPECT_EQ(moe.shared_intermediate_size, 8192);
  EXPECT_EQ(moe.activation.kind, ActivationKind::kSilu);
}

TEST(Llama4ConfigTest, ScoutKeeps35PairsAndDividesTheOther29) {
  const RopeTable table = ReadConfig("llama4-scout").rope_tables[0];
  for (int i = 0; i < 64; ++i) {
    EXPECT_FLOAT_EQ(table.inv_freq[size_t(i)], float(std::pow(5e5, -2.0 * i / 128) / (i < 35 ? 1 : 16))) << i;
  }
}

TEST(Llama4ConfigTest, FieldsOfMaverick) {
  const ModelSpec spec = ReadConfig("llama4-maverick");
  EXPECT_EQ(NumParameters(spec), 400711848960);
  EXPECT_EQ(Pattern(spec), "cccncccncccncccncccncccncccncccncccncccncccncccn");
  EXPECT_EQ(Ffns(spec), "dmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdmdm");
  EXPECT_EQ(std::get<DenseFfn>(spec.layers[0].ffn).intermediate_size, 16384);
  EXPECT_EQ(std::get<MoeFfn>(spec.layers[1].ffn).routing.num_experts, 128);
  EXPECT_EQ(std::get<Gqa>(spec.layers[0].attention.kind).qk_norm.kind, QkNormKind::kNone);
}

TEST(Llama4ConfigTest, WrittenByTransformers5ItSaysTheSame) {
  ExpectSameSpec(ReadConfig("llama4-maverick"), ReadConfig("llama4-maverick.transformers5"));
}

TEST(Llama4ConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  nlohmann::json changes;
  for (const char* key : {"attention_bias", "attention_chunk_size", "head_dim", "interleave_moe_layer_step",
                          "intermediate_size_mlp", "no_rope_layers", "num_experts_per_tok", "num_key_value_heads",
                          "num_local_experts", "rms_norm_eps", "rope_theta", "use_qk_norm"}) {
    changes[std::string("/text_config/") + key] = kRemoved;
  }
  const absl::StatusOr<ModelSpec> spec = ReadChanged("llama4-scout", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("llama4-scout"));
}

TEST(Llama4ConfigTest, AOneInNoRopeLayersMeansRope) {
  absl::StatusOr<ModelSpec> spec = ReadChanged(
      "llama4-scout", {{"/text_config/num_hidden_layers", 4}, {"/text_config/no_rope_layers", {0, 1, 1, 0, 1}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Pattern(*spec), "nccn");
  for (const nlohmann::json& empty : {nlohmann::json(nullptr), nlohmann::json::array()}) {
    spec = ReadChanged("llama4-scout", {{"/text_config/num_hidden_layers", 6},
                                        {"/text_config/no_rope_layers", empty},
                                        {"/text_config/no_rope_layer_interval", 3}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(Pattern(*spec), "ccnccn");
  }
}

TEST(Llama4ConfigTest, MasksAndPositionsMayBeSaidApart) {
  absl::StatusOr<ModelSpec> spec =
      ReadChanged("llama4-scout", {{"/text_config/num_hidden_layers", 2},
                                   {"/text_config/layer_types", {"full_attention", "chunked_attention"}},
                                   {"/text_config/no_rope_layers", {1, 0}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Pattern(*spec), "oo");
  EXPECT_EQ(spec->layers[1].attention.mask.kind, MaskKind::kChunk);
  EXPECT_TRUE(spec->layers[0].attention.rope.has_value());
  spec = ReadChanged("llama4-scout", {{"/text_config/attention_chunk_size", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.mask.kind, MaskKind::kFull);
  EXPECT_TRUE(spec->layers[0].attention.rope.has_value());
}

TEST(Llama4ConfigTest, TemperatureMayBeOffOrANumber) {
  for (const nlohmann::json& off : {nlohmann::json(false), nlohmann::json(0)}) {
    const absl::StatusOr<ModelSpec> spec = ReadChanged("llama4-scout", {{"/text_config/attn_temperature_tuning", off}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_FALSE(spec->layers[3].attention.query_temperature.has_value());
  }
  for (const nlohmann::json& on : {nlohmann::json(true), nlohmann::json(4), nlohmann::json(nullptr)}) {
    const absl::StatusOr<ModelSpec> spec = ReadChanged("llama4-scout", {{"/text_config/attn_temperature_tuning", on},
                                                                        {"/text_config/floor_scale", 8},
                                                                        {"/text_config/attn_scale", 0.2}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_FLOAT_EQ(spec->layers[3].attention.query_temperature.value().floor, 8);
    EXPECT_FLOAT_EQ(spec->layers[3].attention.query_temperature.value().coef, 0.2f);
  }
}

TEST(Llama4ConfigTest, TheTextModelAlone) {
  nlohmann::json changes = {{"/model_type", "llama4_text"}};
  const absl::StatusOr<ModelSpec> spec = ReadChanged("llama4-scout", changes);
  ExpectError(spec, kInvalidArgument, "'vocab_size' is missing");  // the keys of the wrapper are not those of the text
}

TEST(Llama4ConfigTest, WhatIsOddIsAnErrorNamingTheKey) {
  const auto expect = [](const nlohmann::json& changes, const std::string& part) {
    ExpectError(ReadChanged("llama4-scout", changes), kInvalidArgument, part);
  };
  expect({{"/text_config", kRemoved}}, "'text_config' is missing");
  expect({{"/text_config/no_rope_layers", {1, 1}}}, "'no_rope_layers' has 2");
  expect({{"/text_config/no_rope_layers", {1, 2}}}, "'text_config.no_rope_layers'");
  expect({{"/text_config/moe_layers", {-1}}}, "'text_config.moe_layers'");
  expect({{"/text_config/interleave_moe_layer_step", 0}}, "'text_config.interleave_moe_layer_step' is 0");
  expect({{"/text_config/no_rope_layer_interval", 0}}, "'text_config.no_rope_layer_interval' is 0");
  expect({{"/text_config/attention_chunk_size", -1}}, "'text_config.attention_chunk_size' is -1");
  expect({{"/text_config/floor_scale", 0}}, "query_temperature.floor is 0");
  expect({{"/text_config/attn_temperature_tuning", "yes"}}, "'text_config.attn_temperature_tuning' is \"yes\"");
  expect({{"/text_config/num_experts_per_tok", 17}}, "num_experts_per_token is 17");
  expect({{"/text_config/num_hidden_layers", 1},
          {"/text_config/layer_types", {"chunked_attention"}},
          {"/text_config/attention_chunk_size", nullptr}},
         "'attention_chunk_size' is null");
}

TEST(Llama4NamesTest, EveryTensorHasAName) {
  for (const char* name : {"llama4-scout", "llama4-maverick"}) {
    ExpectEveryTensorNamed(ReadConfig(name), Llama4FolderTensorNames());
    ExpectEveryTensorNamed(ReadConfig(name), GgufTensorNames());
  }
  const TensorNaming folder = Llama4FolderTensorNames();
  EXPECT_EQ(FindTensorName(folder, TensorRole::kExpertUp, 1),
            "language_model.model.layers.1.feed_forward.experts.gate_up_proj");
  EXPECT_TRUE(IsIgnoredTensor(folder, "vision_model.class_embedding", 48));
  EXPECT_TRUE(IsIgnoredTensor(folder, "multi_modal_projector.linear_1.weight", 48));
}

GgufWriter Keys(uint32_t num_experts, uint32_t step) {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama4");
  writer.AddU32("llama4.context_length", 10485760);
  writer.AddU32("llama4.embedding_length", 64);
  writer.AddU32("llama4.block_count", 8);
  writer.AddU32("llama4.feed_forward_length", 128);
  writer.AddU32("llama4.attention.head_count", 4);
  writer.AddU32("llama4.attention.head_count_kv", 2);
  writer.AddU32("llama4.attention.key_length", 16);
  writer.AddU32("llama4.attention.value_length", 16);
  writer.AddF32("llama4.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddU32("llama4.rope.dimension_count", 16);
  writer.AddF32("llama4.rope.freq_base", 5e5f);
  writer.AddU32("llama4.expert_count", num_experts);
  writer.AddU32("llama4.expert_used_count", 1);
  writer.AddU32("llama4.expert_feed_forward_length", 96);
  writer.AddU32("llama4.interleave_moe_layer_step", step);
  return writer;
}
const std::vector<TensorOf> kTensors = {
    {"token_embd.weight", {64, 64}},
    {"output.weight", {64, 64}},
    {"rope_freqs.weight", {8}, {1, 1, 1, 1, 1, 16, 16, 16}},
};

TEST(Llama4GgufTest, FieldsOfTheSpec) {
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(Keys(16, 2), kTensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Pattern(*spec), "cccncccn");
  EXPECT_EQ(Ffns(*spec), "dmdmdmdm");
  EXPECT_EQ(spec->layers[0].attention.mask.size, 8192);
  EXPECT_EQ(spec->layers[0].attention.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).qk_norm.kind, QkNormKind::kL2PerHead);
  EXPECT_FLOAT_EQ(spec->layers[3].attention.query_temperature.value().floor, 8192);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).intermediate_size, 128);
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[1].ffn);
  EXPECT_EQ(moe.expert_intermediate_size, 96);
  EXPECT_EQ(moe.shared_intermediate_size, 96);
  EXPECT_EQ(moe.routing.score, MoeScore::kSigmoid);
  EXPECT_TRUE(moe.weight_on_input);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].inv_freq[4], float(std::pow(5e5, -8.0 / 16)));
  EXPECT_FLOAT_EQ(spec->rope_tables[0].inv_freq[5], float(std::pow(5e5, -10.0 / 16) / 16));
}

TEST(Llama4GgufTest, TheModelOf128ExpertsDoesNotNormQueries) {
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(Keys(128, 1), kTensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Ffns(*spec), "mmmmmmmm");
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).qk_norm.kind, QkNormKind::kNone);
}

TEST(Llama4GgufTest, OtherModelsUnderTheNameAreRefused) {
  GgufWriter writer = Keys(16, 1);
  writer.AddU32("llama4.attention.sliding_window", 0);
  ExpectError(ReadGgufSpec(writer, kTensors), kUnimplemented, "llama4.attention.sliding_window");
  ExpectError(ReadGgufSpec(Keys(0, 1), kTensors), kUnimplemented, "llama4.expert_count");
  ExpectError(ReadGgufSpec(Keys(16, 0), kTensors), kInvalidArgument, "llama4.interleave_moe_layer_step");
}

}  // namespace
}  // namespace sluice::testing
