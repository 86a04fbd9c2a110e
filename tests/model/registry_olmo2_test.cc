// OLMo 2: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

TEST(Olmo2ConfigTest, NormsComeAfterwardsAndCoverTheWholeWidthOfQAndK) {
  const ModelSpec spec = ReadConfig("olmo2-7b");
  EXPECT_FALSE(spec.tied_embeddings);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_FALSE(layer.pre_attn.has_value() || layer.pre_ffn.has_value());
    ASSERT_TRUE(layer.post_attn.has_value() && layer.post_ffn.has_value());
    EXPECT_FLOAT_EQ(layer.post_ffn->eps, 1e-6f);
    const QkNormSpec& norm = std::get<Gqa>(layer.attention.kind).qk_norm;
    EXPECT_EQ(norm.kind, QkNormKind::kFullWidth);
    EXPECT_FLOAT_EQ(norm.norm.eps, 1e-6f);
    EXPECT_FALSE(norm.after_rope);
  }
  EXPECT_FLOAT_EQ(spec.rope_tables[0].inv_freq[1], float(std::pow(5e5, -2.0 / 128)));
}

TEST(Olmo2ConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("olmo2-7b", {{"/rms_norm_eps", kRemoved},
                                                                  {"/rope_theta", kRemoved},
                                                                  {"/num_key_value_heads", kRemoved},
                                                                  {"/max_position_embeddings", kRemoved}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->final_norm.eps, 1e-5f);
  EXPECT_FLOAT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).qk_norm.norm.eps, 1e-5f);
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).num_kv_heads, 32);
  EXPECT_EQ(spec->max_position, 2048);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].inv_freq[1], float(std::pow(1e4, -2.0 / 128)));
  EXPECT_EQ(FindTensorName(Olmo2FolderTensorNames(), TensorRole::kPostAttnNorm, 0),
            "model.layers.0.post_attention_layernorm.weight");
}

TEST(Olmo2GgufTest, SaysWhatTheConfigSaysAndRefusesItsSuccessor) {
  GgufWriter writer;
  writer.AddString("general.architecture", "olmo2");
  writer.AddU32("olmo2.context_length", 4096);
  writer.AddU32("olmo2.embedding_length", 4096);
  writer.AddU32("olmo2.block_count", 32);
  writer.AddU32("olmo2.feed_forward_length", 11008);
  writer.AddU32("olmo2.attention.head_count", 32);
  writer.AddU32("olmo2.attention.head_count_kv", 32);
  writer.AddF32("olmo2.attention.layer_norm_rms_epsilon", 1e-6f);
  writer.AddF32("olmo2.rope.freq_base", 5e5f);
  const std::vector<TensorOf> tensors = {{"token_embd.weight", {100352, 8}}, {"output.weight", {8, 8}}};
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, tensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("olmo2-7b"));
  ExpectEveryTensorNamed(*spec, GgufTensorNames());
  writer.AddU32("olmo2.attention.sliding_window", 4096);
  ExpectError(ReadGgufSpec(writer, tensors), kUnimplemented, "OLMo 3");
}

}  // namespace
}  // namespace sluice::testing
