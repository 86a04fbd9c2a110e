// What GGUF files of all architectures say in the same keys.
#include "engine/model/gguf_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/model/family_testing.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

// A file of architecture qwen2 with heads of 16, changed.
absl::StatusOr<ModelSpec> Read(const std::function<void(GgufWriter*)>& add, std::vector<TensorOf> tensors = {}) {
  GgufWriter writer;
  writer.AddString("general.architecture", "qwen2");
  writer.AddU32("qwen2.context_length", 4096);
  writer.AddU32("qwen2.embedding_length", 64);
  writer.AddU32("qwen2.block_count", 2);
  writer.AddU32("qwen2.attention.head_count", 4);
  writer.AddF32("qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
  add(&writer);
  tensors.push_back({"token_embd.weight", {96, 64}});
  return ReadGgufSpec(writer, tensors);
}

absl::StatusOr<ModelSpec> ReadRope(const std::function<void(GgufWriter*)>& add, std::vector<TensorOf> tensors = {}) {
  return Read(
      [&](GgufWriter* writer) {
        writer->AddU32("qwen2.feed_forward_length", 96);
        add(writer);
      },
      std::move(tensors));
}

RopeTable TableOf(const std::function<void(GgufWriter*)>& add, std::vector<TensorOf> tensors = {}) {
  const absl::StatusOr<ModelSpec> spec = ReadRope(add, std::move(tensors));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? spec->rope_tables[0] : RopeTable{};
}

void AddYarn(GgufWriter* writer) {
  writer->AddString("qwen2.rope.scaling.type", "yarn");
  writer->AddF32("qwen2.rope.scaling.factor", 4);
  writer->AddU32("qwen2.rope.scaling.original_context_length", 1024);
}

TEST(GgufRopeTest, YarnAndItsTwoAttentionFactors) {
  const YarnRope yarn{.factor = 4, .original_max_position = 1024};
  const RopeTable expected = MakeRopeTable(1e4, 16, yarn);
  RopeTable table = TableOf(AddYarn);
  EXPECT_EQ(table.inv_freq, expected.inv_freq);
  EXPECT_EQ(table.attention_factor, expected.attention_factor);
  table = TableOf([](GgufWriter* w) {
    AddYarn(w);
    w->AddF32("qwen2.rope.scaling.yarn_attn_factor", 1.5f);
    w->AddF32("qwen2.rope.scaling.yarn_beta_fast", 16);
    w->AddF32("qwen2.rope.scaling.yarn_beta_slow", 2);
  });
  EXPECT_EQ(table.attention_factor, 1.5f);
  EXPECT_EQ(
      table.inv_freq,
      MakeRopeTable(1e4, 16, YarnRope{.factor = 4, .original_max_position = 1024, .beta_fast = 16, .beta_slow = 2})
          .inv_freq);
  table = TableOf([](GgufWriter* w) {
    AddYarn(w);
    w->AddF32("qwen2.rope.scaling.attn_factor", 0.5f);
  });
  EXPECT_FLOAT_EQ(table.attention_factor, expected.attention_factor * 0.5f);
}

TEST(GgufRopeTest, LinearInItsOldAndNewKey) {
  const RopeTable expected = MakeRopeTable(1e4, 16, LinearRope{4});
  EXPECT_EQ(TableOf([](GgufWriter* w) { w->AddF32("qwen2.rope.scale_linear", 4); }).inv_freq, expected.inv_freq);
  EXPECT_EQ(TableOf([](GgufWriter* w) { w->AddF32("qwen2.rope.scaling.factor", 4); }).inv_freq, expected.inv_freq);
  EXPECT_EQ(TableOf([](GgufWriter* w) {
              w->AddString("qwen2.rope.scaling.type", "linear");
              w->AddF32("qwen2.rope.scaling.factor", 4);
            }).inv_freq,
            expected.inv_freq);
}

TEST(GgufRopeTest, DivisorsAndPartOfTheHead) {
  const RopeTable table = TableOf(
      [](GgufWriter* w) {
        w->AddU32("qwen2.rope.dimension_count", 8);
        w->AddF32("qwen2.rope.freq_base", 5e5f);
      },
      {{"rope_freqs.weight", {4}, {1, 1, 2, 8}}});
  ASSERT_EQ(table.inv_freq.size(), 4u);
  EXPECT_FLOAT_EQ(table.inv_freq[1], float(std::pow(5e5, -2.0 / 8)));
  EXPECT_FLOAT_EQ(table.inv_freq[3], float(std::pow(5e5, -6.0 / 8) / 8));
}

TEST(GgufRopeTest, OddValuesAreErrorsNamingTheKey) {
  const auto expect = [](const std::function<void(GgufWriter*)>& add, absl::StatusCode code, const std::string& part,
                         std::vector<TensorOf> tensors = {}) { ExpectError(ReadRope(add, tensors), code, part); };
  expect([](GgufWriter* w) { w->AddString("qwen2.rope.scaling.type", "spiral"); }, kInvalidArgument,
         "key 'qwen2.rope.scaling.type' is 'spiral'");
  expect([](GgufWriter* w) { w->AddString("qwen2.rope.scaling.type", "longrope"); }, kInvalidArgument,
         "'rope_factors_short.weight' is missing");
  expect([](GgufWriter* w) { w->AddF32("qwen2.rope.freq_base", 1); }, kInvalidArgument, "'qwen2.rope.freq_base' is 1");
  expect([](GgufWriter* w) { w->AddF32("qwen2.rope.scaling.factor", 0); }, kInvalidArgument,
         "'qwen2.rope.scaling.factor' is 0");
  expect([](GgufWriter* w) { w->AddU32("qwen2.rope.dimension_count", 7); }, kInvalidArgument, "is 7, expected an even");
  expect([](GgufWriter* w) { w->AddU32("qwen2.rope.dimension_count", 18); }, kInvalidArgument, "num_rotary is 18");
  expect([](GgufWriter*) {}, kInvalidArgument, "'rope_freqs.weight' has 7 elements of type F32, expected 8",
         {{"rope_freqs.weight", {7}, std::vector<float>(7, 1)}});
  expect([](GgufWriter*) {}, kInvalidArgument, "'rope_freqs.weight' holds 0 at 7",
         {{"rope_freqs.weight", {8}, std::vector<float>(7, 1)}});
}

TEST(GgufDecoderTest, WidthsMayDifferBetweenLayersAndHeadsMayNot) {
  const absl::StatusOr<ModelSpec> spec = Read([](GgufWriter* w) {
    w->AddU32s("qwen2.feed_forward_length", {96, 128});
  });
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).intermediate_size, 96);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[1].ffn).intermediate_size, 128);
  ExpectError(ReadRope([](GgufWriter* w) {
                w->AddU32s("qwen2.attention.head_count_kv", {4, 2});
              }),
              kUnimplemented, "key 'qwen2.attention.head_count_kv' differs between layers (4 and 2)");
  ExpectError(ReadRope([](GgufWriter* w) { w->AddBool("qwen2.attention.causal", false); }), kUnimplemented,
              "key 'qwen2.attention.causal' is false");
  ExpectError(ReadRope([](GgufWriter* w) { w->AddF32("qwen2.attention.scale", -1); }), kInvalidArgument,
              "key 'qwen2.attention.scale' is -1");
}

}  // namespace
}  // namespace sluice::testing
