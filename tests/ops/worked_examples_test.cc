// The examples at the head of kernels_simd.h, attention_kernels.h and mla_attention.cc, so that they stay true.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/cpu_info.h"
#include "engine/base/float16.h"
#include "engine/base/huge_page_arena.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/cpu/float_kernels.h"
#include "engine/ops/cpu/linear_kernels.h"
#include "engine/ops/cpu/packed_linear.h"

namespace sluice {
namespace {

using Words = std::vector<int>;

// One row of Q4_0: 0.5 times codes 9, 8, 5, 12 and then 8, less 8.
PackedLinear Q4Row(ThreadPool* pool, HugePageArena* arena) {
  std::vector<uint8_t> bytes(18, 0x88);
  const uint16_t half = FloatToF16(0.5f);
  std::memcpy(bytes.data(), &half, 2);
  const int low[] = {9, 8, 5, 12};
  for (size_t k = 0; k < 4; ++k) bytes[2 + k] = static_cast<uint8_t>(8 << 4 | low[k]);
  TensorView view;
  view.name = "w";
  view.type = TensorType::kQ4_0;
  view.shape = {1, kBlock};
  view.data = bytes;
  return PackedLinear::Pack(std::vector<TensorView>{view}, LinearLayout::kStacked, pool, arena).value();
}

template <int Digits>
Words FirstDigits(const ActivationBlock<Digits>& block, int digit) {
  return {block.digits[digit][0], block.digits[digit][1], block.digits[digit][2], block.digits[digit][3]};
}

TEST(WorkedExamples, ALaneOfQ4TimesARow) {
  ThreadPool pool(1);
  HugePageArena arena;
  const PackedLinear linear = Q4Row(&pool, &arena);
  const PanelView panel = linear.panel(0);
  EXPECT_EQ(Words(panel.data, panel.data + 4), Words({0x89, 0x88, 0x85, 0x8c}));
  const float x[kBlock] = {1, -2, 0.5f, 4};
  alignas(64) float out[kPanelRows];
  for (const Isa isa : SupportedIsas()) {
    const LinearKernels& kernels = GetLinearKernels(isa);
    ActivationBlock<1> one;
    kernels.quantize[static_cast<int>(ActivationType::kInt8)](x, kBlock, &one);
    EXPECT_EQ(FirstDigits(one, 0), Words({32, -64, 16, 127}));
    EXPECT_EQ(one.neg_sum, -111);
    kernels.Tile(ActivationType::kInt8, panel.type)(panel.data, kBlock, reinterpret_cast<const uint8_t*>(&one),
                                                    sizeof one, 1, out, {});
    EXPECT_FLOAT_EQ(out[0], 492 * (0.5f * 4 / 127));
    EXPECT_NEAR(out[0], 7.748f, 1e-3);

    ActivationBlock<2> two;
    kernels.quantize[static_cast<int>(ActivationType::kInt16)](x, kBlock, &two);
    EXPECT_EQ(FirstDigits(two, 0), Words({32, -63, 16, 127}));
    EXPECT_EQ(FirstDigits(two, 1), Words({-32, -64, -16, 0}));
    EXPECT_EQ(two.neg_sum, -14224);
    kernels.Tile(ActivationType::kInt16, panel.type)(panel.data, kBlock, reinterpret_cast<const uint8_t*>(&two),
                                                     sizeof two, 1, out, {});
    EXPECT_FLOAT_EQ(out[0], 7.75f);
  }
}

// A page of f32 keys and values of two dimensions, of which `tokens` are as given and all others absurd.
struct Token {
  float key[2], value[2];
};
std::vector<float> Page(const std::vector<Token>& tokens) {
  constexpr int kValueStride = 16;
  std::vector<float> page(2 * kPageTokens + kPageTokens * kValueStride, NAN);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t d = 0; d < 2; ++d) page[d * kPageTokens + t] = tokens[t].key[d];
    float* value = &page[2 * kPageTokens + t * kValueStride];
    std::fill_n(value, kValueStride, 0.0f);
    std::copy_n(tokens[t].value, 2, value);
  }
  return page;
}

TEST(WorkedExamples, OneQueryRowOverTwoTiles) {
  const float ln2 = std::log(2.0f);
  const std::vector<float> first = Page({{{0, 0}, {2, 0}}});
  const std::vector<float> second = Page({{{ln2, 0}, {4, 0}}, {{0, 0}, {0, 6}}});
  const float q[] = {1, 1};
  for (const Isa isa : SupportedIsas()) {
    const FloatKernels& kernels = GetFloatKernels(isa);
    alignas(64) float state[kStateHeader + 16] = {kEmptyMax};
    const auto attend = [&](const std::vector<float>& page, int end) {
      AttentionTile tile = {};
      for (int i = 0; i < kTilePages; ++i) {
        tile.pages[i] = tile.next_pages[i] = reinterpret_cast<const uint8_t*>(page.data());
      }
      tile.end_token = end;
      tile.head_dim = 2;
      tile.value_stride = 16;
      const int begin = 0;
      kernels.attend_f32(tile, {q, state, &begin, &end, 1});
    };
    const auto sum = [&] {
      float total = 0;
      for (int i = 16; i < 32; ++i) total += state[i];
      return total;
    };
    attend(first, 1);
    EXPECT_EQ(state[0], 0);
    EXPECT_FLOAT_EQ(sum(), 1);
    EXPECT_FLOAT_EQ(state[32], 2);
    attend(second, 2);
    EXPECT_FLOAT_EQ(state[0], ln2);
    EXPECT_FLOAT_EQ(sum(), 2);
    EXPECT_FLOAT_EQ(state[32], 5);
    EXPECT_FLOAT_EQ(state[33], 3);

    alignas(64) float total[kStateHeader + 16] = {kEmptyMax};
    kernels.merge_states(state, 16, total);
    float out[2];
    kernels.finish_state(total, nullptr, 2, out);
    EXPECT_FLOAT_EQ(out[0], 2.5f);
    EXPECT_FLOAT_EQ(out[1], 1.5f);
    const float sink = 0;
    kernels.finish_state(total, &sink, 2, out);
    EXPECT_FLOAT_EQ(out[0], 2);
    EXPECT_FLOAT_EQ(out[1], 1.2f);
  }
}

// The absorbed form in the kernel, the expanded one written out.
TEST(WorkedExamples, LatentAttentionInBothForms) {
  constexpr int kKeyDim = 3, kValueDim = 2;
  const float tokens[2][kKeyDim] = {{1, 2, 3}, {0, 1, 7}};  // latent | rope key
  const float key_matrix[2][2] = {{1, 0}, {1, 1}}, value_matrix[2] = {2, -1}, nope[2] = {2, 1}, rope = 1;
  float expanded_scores[2], values[2];
  for (int t = 0; t < 2; ++t) {
    expanded_scores[t] = rope * tokens[t][2];
    values[t] = value_matrix[0] * tokens[t][0] + value_matrix[1] * tokens[t][1];
    for (int i = 0; i < 2; ++i) {
      expanded_scores[t] += nope[i] * (key_matrix[i][0] * tokens[t][0] + key_matrix[i][1] * tokens[t][1]);
    }
    EXPECT_EQ(expanded_scores[t], 8);
  }
  EXPECT_EQ(0.5f * values[0] + 0.5f * values[1], -0.5f);

  std::vector<float> page(kKeyDim * kPageTokens, 0.0f);
  for (int t = 0; t < 2; ++t) {
    for (int d = 0; d < kKeyDim; ++d) page[static_cast<size_t>(d * kPageTokens + t)] = tokens[t][d];
  }
  LatentTile tile = {};
  for (int i = 0; i < kTilePages; ++i) tile.pages[i] = page.data();
  tile.end_token = 2;
  tile.key_dim = kKeyDim;
  tile.value_dim = kValueDim;
  alignas(64) float q[kKeyDim * kLatentLanes] = {};
  q[0] = key_matrix[0][0] * nope[0] + key_matrix[1][0] * nope[1];
  q[kLatentLanes] = key_matrix[0][1] * nope[0] + key_matrix[1][1] * nope[1];
  q[2 * kLatentLanes] = rope;
  EXPECT_EQ(q[0], 3);
  EXPECT_EQ(q[kLatentLanes], 1);
  for (const Isa isa : SupportedIsas()) {
    alignas(64) float state[kLatentHeader + kValueDim * kLatentLanes] = {};
    std::fill_n(state, kLatentLanes, kEmptyMax);
    for (int i = 0; i < kTilePages; ++i) tile.next_pages[i] = reinterpret_cast<const uint8_t*>(page.data());
    GetFloatKernels(isa).attend_latents(tile, q, state);
    EXPECT_FLOAT_EQ(state[0], 8);
    EXPECT_FLOAT_EQ(state[kLatentLanes], 2);
    const float latent[2] = {state[kLatentHeader] / 2, state[kLatentHeader + kLatentLanes] / 2};
    EXPECT_FLOAT_EQ(latent[0], 0.5f);
    EXPECT_FLOAT_EQ(latent[1], 1.5f);
    EXPECT_FLOAT_EQ(value_matrix[0] * latent[0] + value_matrix[1] * latent[1], -0.5f);
  }
}

}  // namespace
}  // namespace sluice
