// SmolLM3: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

// 'r' where a layer has RoPE, '-' where it has none; upper case and '_' where it slides.
std::string Pattern(const absl::StatusOr<ModelSpec>& spec) {
  EXPECT_TRUE(spec.ok()) << spec.status();
  std::string pattern;
  if (!spec.ok()) return pattern;
  for (const LayerSpec& layer : spec->layers) {
    const bool slides = layer.attention.mask.kind == MaskKind::kWindow;
    pattern += layer.attention.rope.has_value() ? (slides ? 'R' : 'r') : (slides ? '_' : '-');
  }
  return pattern;
}

TEST(SmolLm3ConfigTest, EveryFourthLayerHasNoRope) {
  const ModelSpec spec = ReadConfig("smollm3-3b");
  EXPECT_EQ(Pattern(spec), "rrr-rrr-rrr-rrr-rrr-rrr-rrr-rrr-rrr-");
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_EQ(spec.layers[0].attention.rope->layout, RopeLayout::kHalfSplit);
}

TEST(SmolLm3ConfigTest, OnlyAMissingOrNullListGivesTheDefault) {
  const nlohmann::json base = {{"/num_hidden_layers", 4}, {"/layer_types", kRemoved}};
  nlohmann::json changes = base;
  changes["/no_rope_layers"] = {0, 1, 0, 1};
  EXPECT_EQ(Pattern(ReadChanged("smollm3-3b", changes)), "-r-r");
  changes["/no_rope_layers"] = nullptr;
  EXPECT_EQ(Pattern(ReadChanged("smollm3-3b", changes)), "rrr-");
  changes["/no_rope_layers"] = kRemoved;
  changes["/no_rope_layer_interval"] = 2;
  EXPECT_EQ(Pattern(ReadChanged("smollm3-3b", changes)), "r-r-");
  changes["/no_rope_layer_interval"] = 0;
  ExpectError(ReadChanged("smollm3-3b", changes), kInvalidArgument, "key 'no_rope_layer_interval' is 0");
  changes = base;
  changes["/no_rope_layers"] = nlohmann::json::array();
  ExpectError(ReadChanged("smollm3-3b", changes), kInvalidArgument, "'no_rope_layers' has 0 entries");
  changes["/no_rope_layers"] = {1, 1, 1, 2};
  ExpectError(ReadChanged("smollm3-3b", changes), kInvalidArgument, "key 'no_rope_layers' is [1,1,1,2]");
}

TEST(SmolLm3ConfigTest, LayersWithoutRopeSlideIfAWindowIsOn) {
  nlohmann::json changes = {{"/num_hidden_layers", 4},
                            {"/layer_types", kRemoved},
                            {"/no_rope_layers", kRemoved},
                            {"/use_sliding_window", true},
                            {"/sliding_window", 32}};
  EXPECT_EQ(Pattern(ReadChanged("smollm3-3b", changes)), "rrr_");
  changes["/layer_types"] = {"sliding_attention", "full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(Pattern(ReadChanged("smollm3-3b", changes)), "Rrr-");
}

TEST(SmolLm3ConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("smollm3-3b", {{"/tie_word_embeddings", kRemoved},
                                                                    {"/num_key_value_heads", kRemoved},
                                                                    {"/rope_theta", kRemoved},
                                                                    {"/max_position_embeddings", kRemoved},
                                                                    {"/mlp_bias", true}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).num_kv_heads, 4);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].inv_freq[1], float(std::pow(2e6, -2.0 / 128)));
  EXPECT_EQ(spec->max_position, 32768);
  EXPECT_TRUE(std::get<DenseFfn>(spec->layers[0].ffn).bias);
}

TEST(SmolLm3GgufTest, RowsArePermutedAndEveryFourthLayerHasNoRope) {
  GgufWriter writer;
  writer.AddString("general.architecture", "smollm3");
  writer.AddU32("smollm3.context_length", 65536);
  writer.AddU32("smollm3.embedding_length", 64);
  writer.AddU32("smollm3.block_count", 9);
  writer.AddU32("smollm3.feed_forward_length", 96);
  writer.AddU32("smollm3.attention.head_count", 4);
  writer.AddU32("smollm3.attention.head_count_kv", 1);
  writer.AddF32("smollm3.attention.layer_norm_rms_epsilon", 1e-6f);
  writer.AddF32("smollm3.rope.freq_base", 5e6f);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, {{"token_embd.weight", {96, 64}}});
  EXPECT_EQ(Pattern(spec), "rrr-rrr-r");
  EXPECT_EQ(spec->layers[0].attention.rope->layout, RopeLayout::kInterleaved);
  ExpectEveryTensorNamed(*spec, GgufTensorNames());
}

}  // namespace
}  // namespace sluice::testing
