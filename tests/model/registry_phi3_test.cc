// Phi-3: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

std::vector<double> Factors(int32_t count, double step) {
  std::vector<double> factors;
  for (int32_t i = 0; i < count; ++i) factors.push_back(1 + step * i);
  return factors;
}

nlohmann::json LongRopeOf(const char* type, int32_t pairs = 48) {
  return {{"type", type}, {"short_factor", Factors(pairs, 0.01)}, {"long_factor", Factors(pairs, 0.5)}};
}

TEST(Phi3ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("phi-3-mini-4k");
  EXPECT_FALSE(spec.tied_embeddings);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(layer.attention.mask.kind, MaskKind::kWindow);
    EXPECT_EQ(layer.attention.mask.size, 2047);
    EXPECT_EQ(layer.attention.rope->num_rotary, 96);
    EXPECT_FALSE(layer.attention.q_bias || layer.attention.o_bias);
  }
  EXPECT_FALSE(spec.rope_tables[0].depends_on_length());
  EXPECT_EQ(spec.rope_tables[0].attention_factor, 1);
}

TEST(Phi3ConfigTest, QkvAreRowsOfOneTensorAndSoAreGateAndUp) {
  const TensorNaming naming = Phi3FolderTensorNames();
  for (TensorRole role : {TensorRole::kQ, TensorRole::kK, TensorRole::kV}) {
    EXPECT_EQ(FindTensorName(naming, role, 1), "model.layers.1.self_attn.qkv_proj.weight");
  }
  for (const TensorName& name : naming.names) {
    const bool shared = name.role == TensorRole::kQ || name.role == TensorRole::kK || name.role == TensorRole::kV ||
                        name.role == TensorRole::kGate || name.role == TensorRole::kUp;
    EXPECT_EQ(name.form.rows, shared ? TensorRows::kStacked : TensorRows::kOwn) << name.pattern;
    EXPECT_FALSE(name.form.transposed);
  }
}

TEST(Phi3ConfigTest, LongropeChoosesItsListByTheLength) {
  for (const char* type : {"longrope", "su", "yarn"}) {  // three names it has had
    const absl::StatusOr<ModelSpec> spec = ReadChanged(
        "phi-3-mini-4k",
        {{"/max_position_embeddings", 131072}, {"/rope_scaling", LongRopeOf(type)}, {"/sliding_window", 262144}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    const RopeTable& table = spec->rope_tables[0];
    EXPECT_FLOAT_EQ(table.attention_factor, 1.1902380714238083f);
    EXPECT_FLOAT_EQ(table.inv_freq[2], float(std::pow(1e4, -4.0 / 96) / 1.02));
    const LongRopeRule& rule = std::get<LongRopeRule>(table.length_rule);
    EXPECT_EQ(rule.original_max_position, 4096);
    ASSERT_EQ(rule.long_inv_freq.size(), 48u);
    EXPECT_FLOAT_EQ(rule.long_inv_freq[2], float(std::pow(1e4, -4.0 / 96) / 2));
  }
}

TEST(Phi3ConfigTest, TheContextBeforeStretchingIs4096UnlessTheTopLevelSaysOtherwise) {
  nlohmann::json changes = {{"/max_position_embeddings", 131072}, {"/rope_scaling", LongRopeOf("longrope")}};
  changes["/rope_scaling"]["original_max_position_embeddings"] = 1024;
  changes["/original_max_position_embeddings"] = kRemoved;
  absl::StatusOr<ModelSpec> spec = ReadChanged("phi-3-mini-4k", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<LongRopeRule>(spec->rope_tables[0].length_rule).original_max_position, 4096);
  changes["/original_max_position_embeddings"] = 8192;
  spec = ReadChanged("phi-3-mini-4k", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<LongRopeRule>(spec->rope_tables[0].length_rule).original_max_position, 8192);
}

TEST(Phi3ConfigTest, PartOfTheHeadRotates) {
  nlohmann::json changes = {{"/max_position_embeddings", 131072}, {"/partial_rotary_factor", 0.75}};
  changes["/rope_scaling"] = LongRopeOf("longrope", 36);
  const absl::StatusOr<ModelSpec> spec = ReadChanged("phi-3-mini-4k", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.rope->num_rotary, 72);
  EXPECT_EQ(spec->rope_tables[0].inv_freq.size(), 36u);
  changes["/rope_scaling"] = LongRopeOf("longrope", 48);
  ExpectError(ReadChanged("phi-3-mini-4k", changes), kInvalidArgument, "is 48, expected 36");
  changes["/partial_rotary_factor"] = 1.5;
  ExpectError(ReadChanged("phi-3-mini-4k", changes), kInvalidArgument, "'partial_rotary_factor' is 1.5");
}

TEST(Phi3ConfigTest, OddScalingsAreErrors) {
  const auto error = [](const nlohmann::json& scaling) {
    return ReadChanged("phi-3-mini-4k", {{"/rope_scaling", scaling}});
  };
  ExpectError(error({{"type", "linear"}, {"factor", 2}}), kInvalidArgument, "in another way than longrope");
  ExpectError(error({{"type", "longrope"}, {"short_factor", {1, 1}}}), kInvalidArgument, "no list 'long_factor'");
  nlohmann::json scaling = LongRopeOf("longrope");
  scaling["long_factor"][3] = 0;
  ExpectError(error(scaling), kInvalidArgument, "'long_factor' holds 0");
  scaling["long_factor"][3] = "x";
  ExpectError(error(scaling), kInvalidArgument, "expected a list of finite numbers");
  ExpectError(ReadChanged("phi-3-mini-4k", {{"/attention_bias", true}}), kUnimplemented, "'attention_bias' is true");
}

GgufWriter Keys() {
  GgufWriter writer;
  writer.AddString("general.architecture", "phi3");
  writer.AddU32("phi3.context_length", 131072);
  writer.AddU32("phi3.rope.scaling.original_context_length", 4096);
  writer.AddU32("phi3.embedding_length", 64);
  writer.AddU32("phi3.block_count", 2);
  writer.AddU32("phi3.feed_forward_length", 96);
  writer.AddU32("phi3.attention.head_count", 2);
  writer.AddU32("phi3.attention.head_count_kv", 1);
  writer.AddF32("phi3.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddU32("phi3.rope.dimension_count", 24);
  writer.AddF32("phi3.rope.freq_base", 1e4f);
  return writer;
}

TEST(Phi3GgufTest, LongropeIsInTwoTensors) {
  GgufWriter writer = Keys();
  writer.AddU32("phi3.attention.sliding_window", 16);
  writer.AddF32("phi3.rope.scaling.attn_factor", 1.19f);
  const std::vector<TensorOf> tensors = {{"token_embd.weight", {96, 64}},
                                         {"output.weight", {96, 64}},
                                         {"rope_factors_short.weight", {12}, std::vector<float>(12, 2)},
                                         {"rope_factors_long.weight", {12}, std::vector<float>(12, 4)}};
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, tensors);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[1].attention.mask.size, 16);
  EXPECT_EQ(spec->layers[1].attention.rope->num_rotary, 24);
  const RopeTable& table = spec->rope_tables[0];
  EXPECT_FLOAT_EQ(table.attention_factor, 1.19f);
  EXPECT_FLOAT_EQ(table.inv_freq[1], float(std::pow(1e4, -2.0 / 24) / 2));
  const LongRopeRule& rule = std::get<LongRopeRule>(table.length_rule);
  EXPECT_EQ(rule.original_max_position, 4096);
  EXPECT_FLOAT_EQ(rule.long_inv_freq[1], float(std::pow(1e4, -2.0 / 24) / 4));
  ExpectEveryTensorNamed(*spec, Phi3GgufTensorNames());
  for (const char* name : {"rope_factors_short.weight", "rope_factors_long.weight"}) {
    EXPECT_TRUE(IsIgnoredTensor(Phi3GgufTensorNames(), name, 2));
  }
}

TEST(Phi3GgufTest, BadListsAreErrorsAndAWindowOfZeroIsNone) {
  GgufWriter writer = Keys();
  writer.AddU32("phi3.attention.sliding_window", 0);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, {{"token_embd.weight", {96, 64}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[1].attention.mask.kind, MaskKind::kFull);
  EXPECT_FALSE(spec->rope_tables[0].depends_on_length());
  ExpectError(ReadGgufSpec(Keys(), {{"token_embd.weight", {96, 64}}, {"rope_factors_long.weight", {12}}}),
              kInvalidArgument, "'rope_factors_short.weight' is missing");
  ExpectError(ReadGgufSpec(Keys(), {{"token_embd.weight", {96, 64}},
                                    {"rope_factors_short.weight", {12}, std::vector<float>(12, 1)},
                                    {"rope_factors_long.weight", {11}, std::vector<float>(11, 1)}}),
              kInvalidArgument, "is 11, expected 12");
  ExpectError(ReadGgufSpec(Keys(), {{"token_embd.weight", {96, 64}},
                                    {"rope_factors_short.weight", {12}, std::vector<float>(12, 1)},
                                    {"rope_factors_long.weight", {12}}}),
              kInvalidArgument, "'rope_factors_long.weight' holds 0 at 0");
}

}  // namespace
}  // namespace sluice::testing
