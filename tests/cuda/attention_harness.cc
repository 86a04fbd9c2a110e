#include "tests/cuda/attention_harness.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "engine/base/layer_types.h"
#include "tests/cuda/device_array.h"

namespace sluice::cuda_testing {
namespace {

using cuda::Element;
using cuda::KvElement;

constexpr int32_t kAbsurd = 2147480000;  // no block: to read through it is to crash

// Bytes of x in an element type, and what they mean.
double Store(KvElement element, double x, uint8_t* bytes) {
  const float value = static_cast<float>(x);
  const auto put = [bytes](auto stored) {
    std::memcpy(bytes, &stored, sizeof stored);
    return static_cast<double>(static_cast<float>(stored));
  };
  switch (element) {
    case KvElement::kF32:
      return put(value);
    case KvElement::kF16:
      return put(__half(value));
    case KvElement::kBF16:
      return put(__nv_bfloat16(value));
    case KvElement::kF8E4M3:
      return put(__nv_fp8_e4m3(value));
  }
  return 0;
}

KvElement AsKv(Element element) { return element == Element::kF32 ? KvElement::kF32 : KvElement::kBF16; }

}  // namespace

std::string AttentionSetup::Name() const {
  const char* kinds[] = {"F32", "F16", "BF16", "F8"};
  std::string name = "H" + std::to_string(num_heads) + "over" + std::to_string(num_kv_heads) + "_D" +
                     std::to_string(head_dim) + "x" + std::to_string(OutDim()) +
                     (latent_value_dim > 0 ? "latent" : "") + "_" + (element == Element::kF32 ? "f32" : "bf16") +
                     "over" + kinds[static_cast<int>(kv)] + "_B" + std::to_string(block_size);
  if (mask.kind == MaskKind::kWindow) name += "_window" + std::to_string(mask.size);
  if (mask.kind == MaskKind::kChunk) name += "_chunk" + std::to_string(mask.size);
  if (softcap > 0) name += "_softcap";
  if (sinks) name += "_sinks";
  return name;
}

float AttentionSetup::Scale() const { return static_cast<float>(1.5 / std::sqrt(static_cast<double>(head_dim))); }

double AttentionHarness::Random(Kind kind, int32_t sequence, int32_t position, int32_t index) const {
  uint64_t x = static_cast<uint64_t>(kind) << 60 ^ static_cast<uint64_t>(sequence) << 48 ^
               static_cast<uint64_t>(position) << 24 ^ static_cast<uint64_t>(index);
  for (int i = 0; i < 2; ++i) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    x ^= x >> 31;
  }
  return (static_cast<double>(x >> 11) / static_cast<double>(1ull << 53) - 0.5) * 3.4;  // variance about 1
}

double AttentionHarness::Query(int32_t sequence, int32_t position, int32_t index) const {
  uint8_t bytes[4];
  return Store(AsKv(setup_.element), Random(kQuery, sequence, position, index), bytes);
}

double AttentionHarness::Cached(Kind kind, int32_t sequence, int32_t position, int32_t index) const {
  uint8_t bytes[4];
  return Store(setup_.kv, Random(kind, sequence, position, index), bytes);
}

std::vector<float> AttentionHarness::Sinks() const {
  std::vector<float> sinks;
  for (int32_t h = 0; h < setup_.num_heads; ++h) sinks.push_back(static_cast<float>(2 * Random(kSink, 0, 0, h)));
  return sinks;
}

std::vector<uint8_t> AttentionHarness::FillCache(const std::vector<RowsOf>& step, const std::vector<int32_t>& tables,
                                                 int32_t stride, int32_t num_blocks) const {
  const int64_t width = cuda::KvElementBytes(setup_.kv);
  const int32_t bs = setup_.block_size, heads = setup_.num_kv_heads;
  const int64_t block_elements = int64_t{heads} * bs * (setup_.head_dim + setup_.value_dim);
  std::vector<uint8_t> cache(static_cast<size_t>(num_blocks * block_elements * width), 0xff);
  for (size_t s = 0; s < step.size(); ++s) {
    for (int32_t key = 0; key < step[s].first + step[s].count; ++key) {
      const int32_t block = tables[s * static_cast<size_t>(stride) + static_cast<size_t>(key / bs)];
      if (block < 0) continue;
      for (int32_t h = 0; h < heads; ++h) {
        uint8_t* keys = &cache[static_cast<size_t>(block * block_elements + (h * bs + key % bs) * setup_.head_dim) *
                               static_cast<size_t>(width)];
        for (int32_t d = 0; d < setup_.head_dim; ++d) {
          Store(setup_.kv, Random(kKey, step[s].sequence, key, h * setup_.head_dim + d), keys + d * width);
        }
        if (setup_.value_dim == 0) continue;
        uint8_t* values = &cache[static_cast<size_t>(block * block_elements + int64_t{heads} * bs * setup_.head_dim +
                                                     (h * bs + key % bs) * setup_.value_dim) *
                                 static_cast<size_t>(width)];
        for (int32_t d = 0; d < setup_.value_dim; ++d) {
          Store(setup_.kv, Random(kValue, step[s].sequence, key, h * setup_.value_dim + d), values + d * width);
        }
      }
    }
  }
  return cache;
}

AttentionRows AttentionHarness::Run(const std::vector<RowsOf>& step, const StepOptions& options) const {
  // The step's arrays.
  std::vector<int32_t> positions, row_sequences, row_starts = {0}, context_lens;
  int64_t total_context = 0;
  for (size_t s = 0; s < step.size(); ++s) {
    for (int32_t i = 0; i < step[s].count; ++i) {
      positions.push_back(step[s].first + i);
      row_sequences.push_back(static_cast<int32_t>(s));
    }
    row_starts.push_back(static_cast<int32_t>(positions.size()));
    context_lens.push_back(step[s].first + step[s].count);
    total_context += context_lens.back();
  }
  const size_t num_rows = positions.size();
  for (int32_t i = 0; i < options.padding_rows; ++i) {
    positions.push_back(0);
    row_sequences.push_back(-1);
  }
  for (int32_t i = 0; i < options.padding_seqs; ++i) {
    row_starts.push_back(row_starts.back());
    context_lens.push_back(0);
  }
  const size_t num_seqs = context_lens.size();

  // Blocks in random order.
  const int32_t bs = setup_.block_size;
  int32_t stride = 2, num_blocks = 1;
  for (int32_t length : context_lens) {
    stride = std::max(stride, (length + bs - 1) / bs + 1);
    num_blocks += (length + bs - 1) / bs;
  }
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::mt19937 shuffle(static_cast<unsigned>(num_blocks));
  std::shuffle(blocks.begin(), blocks.end(), shuffle);
  std::vector<int32_t> tables(num_seqs * static_cast<size_t>(stride), kAbsurd);
  for (size_t s = 0; s < step.size(); ++s) {
    const int32_t first_key = FirstVisibleKey(setup_.mask, step[s].first);
    for (int32_t b = 0; b * bs < context_lens[s]; ++b) {
      tables[s * static_cast<size_t>(stride) + static_cast<size_t>(b)] = (b + 1) * bs <= first_key ? -1 : blocks.back();
      blocks.pop_back();
    }
  }

  // Queries.
  const KvElement element = AsKv(setup_.element);
  const size_t width = static_cast<size_t>(cuda::KvElementBytes(element));
  const int32_t q_dim = setup_.num_heads * setup_.head_dim, out_dim = setup_.num_heads * setup_.OutDim();
  std::vector<uint8_t> q(positions.size() * static_cast<size_t>(q_dim) * width, 0xff);
  for (size_t r = 0; r < num_rows; ++r) {
    for (int32_t i = 0; i < q_dim; ++i) {
      Store(element, Random(kQuery, step[static_cast<size_t>(row_sequences[r])].sequence, positions[r], i),
            &q[(r * static_cast<size_t>(q_dim) + static_cast<size_t>(i)) * width]);
    }
  }

  const DeviceArray<int32_t> d_positions(positions), d_row_sequences(row_sequences), d_row_starts(row_starts),
      d_context_lens(context_lens), d_tables(tables);
  DeviceArray<uint8_t> d_cache(FillCache(step, tables, stride, num_blocks)), d_q(q);
  DeviceArray<uint8_t> d_out(positions.size() * static_cast<size_t>(out_dim) * width);
  const DeviceArray<float> d_sinks(Sinks());

  cuda::AttentionKernelArgs args;
  args.step.num_tokens = static_cast<int32_t>(positions.size());
  args.step.num_seqs = static_cast<int32_t>(num_seqs);
  args.step.positions = d_positions.data();
  args.step.row_sequences = d_row_sequences.data();
  args.step.row_starts = d_row_starts.data();
  args.step.row_ends = d_row_starts.data() + 1;
  args.step.context_lens = d_context_lens.data();
  args.group = {nullptr, d_tables.data(), stride};
  args.plan.limits = {args.step.num_tokens, args.step.num_seqs,
                      options.max_total_context >= 0 ? options.max_total_context : total_context};
  DeviceArray<int32_t> d_counts(8), d_items(static_cast<size_t>(cuda::AttentionPlanInts(args.plan.limits)));
  DeviceArray<float> d_partials(
      static_cast<size_t>(cuda::AttentionPartialFloats(args.plan.limits, setup_.num_heads, setup_.OutDim())));
  args.plan.counts = d_counts.data();
  args.plan.items = d_items.data();
  args.q = d_q.data();
  args.element = setup_.element;
  args.num_heads = args.row_heads = setup_.num_heads;
  args.kv = {d_cache.data(), setup_.kv, bs, setup_.num_kv_heads, setup_.head_dim, setup_.value_dim};
  args.latent_value_dim = setup_.latent_value_dim;
  args.scale = setup_.Scale();
  args.softcap = setup_.softcap;
  args.mask = setup_.mask;
  args.sinks = setup_.sinks ? d_sinks.data() : nullptr;
  args.out = d_out.data();
  args.partials = d_partials.data();
  args.num_sms = 2;
  cuda::LaunchPlanAttention(args.step, args.mask, setup_.num_heads / setup_.num_kv_heads, args.plan, nullptr);
  cuda::LaunchAttention(args, nullptr);

  const std::vector<uint8_t> out = d_out.Read();
  AttentionRows rows;
  for (size_t r = 0; r < positions.size(); ++r) {
    const uint8_t* bytes = out.data() + r * static_cast<size_t>(out_dim) * width;
    if (r >= num_rows) {
      EXPECT_TRUE(std::all_of(bytes, bytes + static_cast<size_t>(out_dim) * width, [](uint8_t b) { return b == 0xff; }))
          << "padding row " << r << " was written";
      continue;
    }
    auto& row = rows[{step[static_cast<size_t>(row_sequences[r])].sequence, positions[r]}];
    for (int32_t i = 0; i < out_dim; ++i) {
      if (setup_.element == Element::kF32) {
        float value;
        std::memcpy(&value, bytes + static_cast<size_t>(i) * width, sizeof value);
        row.push_back(value);
      } else {
        __nv_bfloat16 value;
        std::memcpy(&value, bytes + static_cast<size_t>(i) * width, sizeof value);
        row.push_back(__bfloat162float(value));
      }
    }
  }
  return rows;
}

AttentionRows AttentionHarness::RunInChunks(int32_t sequence, int32_t length, int32_t chunk, int32_t first) const {
  AttentionRows all;
  for (; first < length; first += chunk) all.merge(Run({{sequence, first, std::min(chunk, length - first)}}));
  return all;
}

std::vector<double> AttentionHarness::Reference(int32_t sequence, int32_t position) const {
  const int32_t group = setup_.num_heads / setup_.num_kv_heads, dim = setup_.head_dim, out_dim = setup_.OutDim();
  const int32_t first = FirstVisibleKey(setup_.mask, position);
  const std::vector<float> sinks = Sinks();
  std::vector<double> out;
  for (int32_t g = 0; g < setup_.num_kv_heads; ++g) {
    // Of this head: keys, and values.
    const size_t count = static_cast<size_t>(position + 1 - first);
    std::vector<double> keys(count * static_cast<size_t>(dim)), values(count * static_cast<size_t>(out_dim));
    for (size_t i = 0; i < count; ++i) {
      const int32_t key = first + static_cast<int32_t>(i);
      for (int32_t d = 0; d < dim; ++d) {
        keys[i * static_cast<size_t>(dim) + static_cast<size_t>(d)] = Cached(kKey, sequence, key, g * dim + d);
      }
      for (int32_t d = 0; d < out_dim; ++d) {
        values[i * static_cast<size_t>(out_dim) + static_cast<size_t>(d)] =
            setup_.latent_value_dim > 0 ? keys[i * static_cast<size_t>(dim) + static_cast<size_t>(d)]
                                        : Cached(kValue, sequence, key, g * out_dim + d);
      }
    }
    for (int32_t h = g * group; h < (g + 1) * group; ++h) {
      std::vector<double> scores(count);
      double top = setup_.sinks ? sinks[static_cast<size_t>(h)] : -std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < count; ++i) {
        double s = 0;
        for (int32_t d = 0; d < dim; ++d) {
          s += Query(sequence, position, h * dim + d) * keys[i * static_cast<size_t>(dim) + static_cast<size_t>(d)];
        }
        s *= setup_.Scale();
        if (setup_.softcap > 0) s = setup_.softcap * std::tanh(s / setup_.softcap);
        scores[i] = s;
        top = std::max(top, s);
      }
      double total = setup_.sinks ? std::exp(sinks[static_cast<size_t>(h)] - top) : 0;
      std::vector<double> sum(static_cast<size_t>(out_dim));
      for (size_t i = 0; i < count; ++i) {
        const double weight = std::exp(scores[i] - top);
        total += weight;
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * values[i * sum.size() + d];
      }
      for (double x : sum) out.push_back(x / total);
    }
  }
  return out;
}

double RelativeError(const AttentionHarness& harness, const AttentionRows& rows) {
  double error = 0, top = 0;
  for (const auto& [where, got] : rows) {
    const std::vector<double> want = harness.Reference(where.first, where.second);
    for (size_t i = 0; i < want.size(); ++i) {
      const double delta = std::abs(static_cast<double>(got[i]) - want[i]);
      error = std::isnan(delta) ? std::numeric_limits<double>::infinity() : std::max(error, delta);
      top = std::max(top, std::abs(want[i]));
    }
  }
  return error / top;
}

}  // namespace sluice::cuda_testing
