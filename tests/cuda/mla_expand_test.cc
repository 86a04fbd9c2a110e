#include "engine/ops/cuda/kernels/mla_expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "engine/base/float16.h"
#include "tests/cuda/qkv_harness.h"
#include "tests/cuda/values.h"

namespace sluice::cuda_testing {
namespace {

using cuda::Element;
using cuda::kExpandedBlock;
using cuda::KvElement;
using testing::NanSensitiveFloatEq;

constexpr KvElement kCaches[] = {KvElement::kF32, KvElement::kF16, KvElement::kBF16, KvElement::kF8E4M3};

float Rounded(Element element, float x) { return element == Element::kF32 ? x : Bf16ToFloat(FloatToBf16(x)); }

// A cache of small numbers that all its types hold, in every block that a table names; 0xff elsewhere.
struct Contexts {
  static constexpr int kBlockSize = 16, kStride = 20;
  std::vector<int32_t> lengths, tables;
  CacheLayer cache;
  std::vector<float> values;

  Contexts(const std::vector<int32_t>& context_lens, KvElement element, int dim)
      : lengths(context_lens),
        tables(context_lens.size() * kStride, -1),
        cache(element, kBlockSize, 1, dim, 0, NumBlocks(context_lens) + 3) {
    std::vector<int32_t> order(size_t(NumBlocks(lengths) + 3));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    std::vector<uint8_t> bytes = cache.Bytes();
    const size_t block_bytes = bytes.size() / order.size();
    size_t next = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t b = 0; b * kBlockSize < lengths[s]; ++b) {
        const int32_t block = tables[s * kStride + size_t(b)] = order[next++];
        // Of the last block only what the context holds.
        const size_t rows = size_t(std::min(kBlockSize, lengths[s] - b * kBlockSize));
        uint8_t* to = &bytes[size_t(block) * block_bytes];
        for (size_t i = 0; i < rows * block_bytes / kBlockSize; ++i) to[i] = ByteAt(i + size_t(block));
      }
    }
    cache.Write(bytes);
    values = cache.Values();
  }

 private:
  static int NumBlocks(const std::vector<int32_t>& lengths) {
    int blocks = 0;
    for (const int32_t length : lengths) blocks += (length + kBlockSize - 1) / kBlockSize;
    return blocks;
  }
  // Numbers of any of the types, for all bytes are below 0x70.
  static uint8_t ByteAt(size_t i) { return uint8_t((i * 37 + i / 7) % 0x70); }
};

void ExpectGathered(const std::vector<int32_t>& lengths, const std::vector<bool>& expanded, KvElement element,
                    Element out, int dim, int given_back = 0) {
  Contexts contexts(lengths, element, dim);
  std::vector<int32_t> first_blocks, wanted_tables(lengths.size() * 6, -1);
  int32_t blocks = 0, longest = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int32_t own = (lengths[s] + kExpandedBlock - 1) / kExpandedBlock;
    first_blocks.push_back(expanded[s] ? blocks : -1);
    if (!expanded[s]) continue;
    for (int32_t b = 0; b < own; ++b) wanted_tables[s * 6 + size_t(b)] = blocks + b;
    blocks += own;
    longest = std::max(longest, own);
  }
  for (int b = 0; b < given_back; ++b) contexts.tables[size_t(b)] = -1;
  const DeviceArray<int32_t> d_tables(contexts.tables), d_lengths(lengths), d_first(first_blocks);
  DeviceArray<int32_t> tables(wanted_tables.size());
  ElementArray latents(out, size_t(blocks) * kExpandedBlock * size_t(dim));
  cuda::GatherLatentsArgs args;
  args.group = {nullptr, d_tables.data(), Contexts::kStride};
  args.kv = contexts.cache.kv;
  args.end_seq = int32_t(lengths.size());
  args.longest_blocks = longest;
  args.context_lens = d_lengths.data();
  args.first_blocks = d_first.data();
  args.latents = latents.data();
  args.element = out;
  args.block_tables = tables.data();
  args.table_stride = 6;
  cuda::LaunchGatherLatents(args, nullptr);

  EXPECT_EQ(tables.Read(), wanted_tables);
  const std::vector<float> got = latents.Read();
  for (size_t s = 0; s < lengths.size(); ++s) {
    if (!expanded[s]) continue;
    const int32_t own_keys = (lengths[s] + kExpandedBlock - 1) / kExpandedBlock * kExpandedBlock;
    for (int32_t key = 0; key < own_keys; ++key) {
      const size_t at = s * Contexts::kStride + size_t(key / Contexts::kBlockSize);
      const int32_t block = key < lengths[s] ? contexts.tables[at] : -1;
      const int32_t slot = block * Contexts::kBlockSize + key % Contexts::kBlockSize;
      const float* row = &got[(size_t(first_blocks[s]) * kExpandedBlock + size_t(key)) * size_t(dim)];
      for (int d = 0; d < dim; ++d) {
        const float want = block < 0 ? 0 : contexts.values[contexts.cache.KeyAt(slot, 0) + size_t(d)];
        ASSERT_EQ(row[d], Rounded(out, want)) << "sequence " << s << " key " << key << " column " << d;
      }
    }
  }
}

TEST(GatherLatents, BringsWholeContextsOutOfThePages) {
  for (const KvElement element : kCaches) {
    for (const Element out : {Element::kF32, Element::kBF16}) {
      ExpectGathered({1, 130, 63, 64, 65, 15, 16, 17}, std::vector<bool>(8, true), element, out, 24);
    }
  }
  ExpectGathered({300}, {true}, KvElement::kBF16, Element::kBF16, 576);
}

TEST(GatherLatents, PassesOverOtherSequences) {
  ExpectGathered({70, 200, 40, 128}, {true, false, true, true}, KvElement::kF16, Element::kBF16, 40);
  ExpectGathered({70, 200}, {false, false}, KvElement::kF16, Element::kBF16, 40);
}

TEST(GatherLatents, ReadsNothingOfWhatWasGivenBack) {
  ExpectGathered({200, 30}, {true, true}, KvElement::kBF16, Element::kBF16, 24, /*given_back=*/5);
}

struct HeadSizes {
  int heads, nope, rope, value;
};

TEST(LayOutExpanded, PutsEveryValueInItsPlace) {
  for (const HeadSizes& sizes : {HeadSizes{16, 128, 64, 128}, {3, 16, 8, 24}, {1, 8, 8, 8}, {5, 24, 16, 8}}) {
    for (const Element element : {Element::kF32, Element::kBF16}) {
      const int blocks = 2, tokens = blocks * kExpandedBlock, stride = sizes.rope + 32;
      const int product = sizes.nope + sizes.value;
      ElementArray products(element, Normal(size_t(tokens * sizes.heads * product), 1));
      ElementArray latents(element, Normal(size_t(tokens * stride), 2));
      CacheLayer cache(element == Element::kF32 ? KvElement::kF32 : KvElement::kBF16, kExpandedBlock, sizes.heads,
                       sizes.nope + sizes.rope, sizes.value, blocks);
      cuda::LayOutExpandedArgs args;
      args.num_blocks = blocks;
      args.products = products.data();
      args.rope_keys = static_cast<std::byte*>(latents.data()) + 32 * cuda::ElementBytes(element);
      args.rope_stride = stride;
      args.qk_nope_head_dim = sizes.nope;
      args.kv = cache.kv;
      cuda::LaunchLayOutExpanded(args, nullptr);
      const std::vector<float> got = cache.Values(), from = products.Read(), rope = latents.Read();
      for (int t = 0; t < tokens; ++t) {
        for (int h = 0; h < sizes.heads; ++h) {
          const float* row = &from[size_t((t * sizes.heads + h) * product)];
          for (int d = 0; d < sizes.nope + sizes.rope; ++d) {
            const float want = d < sizes.nope ? row[d] : rope[size_t(t * stride + 32 + d - sizes.nope)];
            ASSERT_EQ(got[cache.KeyAt(t, h) + size_t(d)], want) << t << " " << h << " " << d;
          }
          for (int d = 0; d < sizes.value; ++d) {
            ASSERT_EQ(got[cache.ValueAt(t, h) + size_t(d)], row[sizes.nope + d]) << t << " " << h << " " << d;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cuda_testing
