// gpt-oss: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

constexpr float kAttentionFactor = 1.346574f;  // 0.1 ln 32 + 1

TEST(GptOssConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("gpt-oss-20b");
  EXPECT_EQ(NumParameters(spec), 20914757184);
  EXPECT_EQ(NumParameters(ReadConfig("gpt-oss-120b")), 116829156672);
  EXPECT_EQ(spec.vocab_size, 201088);
  EXPECT_EQ(spec.max_position, 131072);
  EXPECT_FALSE(spec.tied_embeddings);
  ASSERT_EQ(spec.layers.size(), 24u);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const AttentionSpec& attention = layer.attention;
    EXPECT_EQ(attention.mask.kind, i % 2 == 0 ? MaskKind::kWindow : MaskKind::kFull);
    EXPECT_EQ(attention.mask.size, i % 2 == 0 ? 128 : 0);
    EXPECT_TRUE(attention.sinks);
    EXPECT_TRUE(attention.q_bias && attention.k_bias && attention.v_bias && attention.o_bias);
    EXPECT_FLOAT_EQ(attention.scale, 1 / 8.0f);
    EXPECT_FLOAT_EQ(layer.pre_ffn->eps, 1e-5f);
    EXPECT_FALSE(layer.post_attn.has_value());
    const Gqa& gqa = std::get<Gqa>(attention.kind);
    EXPECT_EQ(gqa.num_heads, 64);
    EXPECT_EQ(gqa.num_kv_heads, 8);
    EXPECT_EQ(gqa.head_dim, 64);
    const MoeFfn& moe = std::get<MoeFfn>(layer.ffn);
    EXPECT_EQ(moe.routing.num_experts, 32);
    EXPECT_EQ(moe.routing.num_experts_per_token, 4);
    EXPECT_EQ(moe.routing.score, MoeScore::kSoftmaxTopK);
    EXPECT_FALSE(moe.routing.renormalize || moe.routing.groups.has_value());
    EXPECT_EQ(moe.expert_intermediate_size, 2880);
    EXPECT_TRUE(moe.router_bias && moe.expert_bias);
    EXPECT_FALSE(moe.selection_bias || moe.weight_on_input || moe.shared_intermediate_size.has_value());
    EXPECT_EQ(moe.activation.kind, ActivationKind::kSwigluOai);
    EXPECT_FLOAT_EQ(moe.activation.alpha, 1.702f);
    EXPECT_FLOAT_EQ(moe.activation.limit, 7);
  }
  // 12 layers keep everything, 12 their window.
  EXPECT_EQ(KvBytes(spec, 131072, 2), (12 * 131072 + 12 * 128) * int64_t{2 * 8 * 64 * 2});
}

TEST(GptOssConfigTest, TheRampOfYarnIsNotCutToWholePairs) {
  const ModelSpec spec = ReadConfig("gpt-oss-20b");
  ASSERT_EQ(spec.rope_tables.size(), 1u);
  const RopeTable& table = spec.rope_tables[0];
  EXPECT_NEAR(table.attention_factor, kAttentionFactor, 1e-6);
  // From pair 8.0928 to 17.3980: 8 is kept, 9 blended with a weight of (9 - 8.0928) / 9.3052, 18 divided.
  const auto plain = [](int i) { return std::pow(150000.0, -2.0 * i / 64); };
  EXPECT_FLOAT_EQ(table.inv_freq[8], float(plain(8)));
  const double ramp = (9 - 8.0928) / (17.3980 - 8.0928);
  EXPECT_NEAR(table.inv_freq[9] / (plain(9) * (1 - ramp) + plain(9) / 32 * ramp), 1, 1e-4);
  EXPECT_FLOAT_EQ(table.inv_freq[18], float(plain(18) / 32));
}

TEST(GptOssConfigTest, WrittenByTransformers5ItSaysTheSame) {
  ExpectSameSpec(ReadConfig("gpt-oss-20b"), ReadConfig("gpt-oss-20b.transformers5"));
}

TEST(GptOssConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  nlohmann::json changes;
  for (const char* key :
       {"attention_bias", "head_dim", "layer_types", "max_position_embeddings", "num_experts_per_tok",
        "num_key_value_heads", "rms_norm_eps", "rope_theta", "sliding_window", "swiglu_limit", "tie_word_embeddings"}) {
    changes[std::string("/") + key] = kRemoved;
  }
  for (const nlohmann::json& scaling : {nlohmann::json(kRemoved), nlohmann::json(nullptr)}) {
    changes["/rope_scaling"] = scaling;
    const absl::StatusOr<ModelSpec> spec = ReadChanged("gpt-oss-20b", changes);
    ASSERT_TRUE(spec.ok()) << spec.status();
    ExpectSameSpec(*spec, ReadConfig("gpt-oss-20b"));
  }
  const absl::StatusOr<ModelSpec> spec = ReadChanged("gpt-oss-20b", {{"/num_local_experts", kRemoved}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<MoeFfn>(spec->layers[0].ffn).routing.num_experts, 128);
}

TEST(GptOssConfigTest, OtherValues) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("gpt-oss-20b", {{"/swiglu_alpha", 1.5},
                                                                     {"/swiglu_limit", 5},
                                                                     {"/attention_bias", false},
                                                                     {"/rope_scaling", {{"rope_type", "default"}}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(std::get<MoeFfn>(spec->layers[0].ffn).activation.alpha, 1.5f);
  EXPECT_FLOAT_EQ(std::get<MoeFfn>(spec->layers[0].ffn).activation.limit, 5);
  EXPECT_FALSE(spec->layers[0].attention.q_bias);
  EXPECT_EQ(spec->rope_tables[0].attention_factor, 1);
}

TEST(GptOssConfigTest, WhatIsOddIsAnErrorNamingTheKey) {
  const auto expect = [](const nlohmann::json& changes, const std::string& part) {
    ExpectError(ReadChanged("gpt-oss-20b", changes), kInvalidArgument, part);
  };
  expect({{"/sliding_window", nullptr}}, "'sliding_window'");
  expect({{"/swiglu_limit", 0}}, "limit is 0");
  expect({{"/swiglu_alpha", "big"}}, "'swiglu_alpha' is \"big\"");
  expect({{"/num_experts_per_tok", 33}}, "num_experts_per_token is 33");
  expect({{"/num_local_experts", 0}}, "'num_local_experts' is 0");
  expect({{"/rope_scaling", {{"rope_type", "yarn"}}}}, "factor");
  expect({{"/layer_types", {"sliding_attention"}}}, "'layer_types' has 1");
  expect({{"/vocab_size", kRemoved}}, "'vocab_size' is missing");
}

TEST(GptOssNamesTest, EveryTensorHasAName) {
  const ModelSpec spec = ReadConfig("gpt-oss-20b");
  ExpectEveryTensorNamed(spec, GptOssFolderTensorNames());
  ExpectEveryTensorNamed(spec, GptOssGgufTensorNames());
  EXPECT_EQ(FindTensorName(GptOssGgufTensorNames(), TensorRole::kPreFfnNorm, 3), "blk.3.post_attention_norm.weight");
}

GgufWriter Keys() {
  GgufWriter writer;
  writer.AddString("general.architecture", "gpt-oss");
  writer.AddU32("gpt-oss.context_length", 131072);
  writer.AddU32("gpt-oss.embedding_length", 64);
  writer.AddU32("gpt-oss.block_count", 4);
  writer.AddU32("gpt-oss.feed_forward_length", 64);
  writer.AddU32("gpt-oss.attention.head_count", 8);
  writer.AddU32("gpt-oss.attention.head_count_kv", 2);
  writer.AddU32("gpt-oss.attention.key_length", 64);
  writer.AddU32("gpt-oss.attention.value_length", 64);
  writer.AddF32("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddF32("gpt-oss.rope.freq_base", 150000);
  writer.AddString("gpt-oss.rope.scaling.type", "yarn");
  writer.AddF32("gpt-oss.rope.scaling.factor", 32);
  writer.AddU32("gpt-oss.rope.scaling.original_context_length", 4096);
  writer.AddU32("gpt-oss.expert_count", 4);
  writer.AddU32("gpt-oss.expert_used_count", 2);
  writer.AddU32("gpt-oss.expert_feed_forward_length", 96);
  return writer;
}
const std::vector<TensorOf> kTensors = {{"token_embd.weight", {64, 64}}, {"output.weight", {64, 64}},
                                        {"blk.0.attn_q.bias", {512}},    {"blk.0.attn_k.bias", {128}},
                                        {"blk.0.attn_v.bias", {128}},    {"blk.0.attn_output.bias", {64}}};

TEST(GptOssGgufTest, FieldsOfTheSpec) {
  GgufWriter writer = Keys();
  writer.AddU32("gpt-oss.attention.sliding_window", 128);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, kTensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->tied_embeddings);
  EXPECT_EQ(spec->layers[0].attention.mask.kind, MaskKind::kWindow);
  EXPECT_EQ(spec->layers[0].attention.mask.size, 128);
  EXPECT_EQ(spec->layers[3].attention.mask.kind, MaskKind::kFull);
  EXPECT_TRUE(spec->layers[3].attention.sinks);
  EXPECT_TRUE(spec->layers[3].attention.k_bias && spec->layers[3].attention.o_bias);
  EXPECT_EQ(spec->layers[0].attention.rope->layout, RopeLayout::kHalfSplit);
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[3].ffn);
  EXPECT_EQ(moe.expert_intermediate_size, 96);
  EXPECT_EQ(moe.routing.num_experts_per_token, 2);
  EXPECT_EQ(moe.routing.score, MoeScore::kSoftmaxTopK);
  EXPECT_EQ(moe.activation.kind, ActivationKind::kSwigluOai);
  EXPECT_TRUE(moe.router_bias && moe.expert_bias);
  // The same table as from config.json, although no key says that the ramp is not cut.
  const RopeTable expected = ReadConfig("gpt-oss-20b").rope_tables[0];
  EXPECT_EQ(spec->rope_tables[0].inv_freq, expected.inv_freq);
  EXPECT_EQ(spec->rope_tables[0].attention_factor, expected.attention_factor);
}

TEST(GptOssGgufTest, WhatIsMissingIsAnError) {
  ExpectError(ReadGgufSpec(Keys(), kTensors), kNotFound, "gpt-oss.attention.sliding_window");
  GgufWriter writer;
  writer.AddString("general.architecture", "gpt-oss");
  ExpectError(ReadGgufSpec(writer, kTensors), kNotFound, "gpt-oss.embedding_length");
}

}  // namespace
}  // namespace sluice::testing
