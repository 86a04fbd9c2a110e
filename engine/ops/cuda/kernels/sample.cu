#include <cstdint>

#include "engine/ops/cuda/kernels/best_token.cuh"
#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/elements.cuh"
#include "engine/ops/cuda/kernels/reduce.cuh"
#include "engine/ops/cuda/kernels/sample.h"
#include "engine/ops/cuda/kernels/token_filter.cuh"

namespace sluice::cuda {
namespace {

__device__ bool Penalises(const SampleRowData& row) {
  return row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0;
}
__device__ bool HasBitmask(const SampleRowData& row) { return row.allowed_begin < row.allowed_end; }
__device__ bool Adjusts(const SampleRowData& row) {
  return HasBitmask(row) || row.masked_begin < row.masked_end || row.bias_begin < row.bias_end || Penalises(row);
}
__device__ bool Draws(const SampleRowData& row) { return row.temperature > 0; }
__device__ bool Filters(const SampleRowData& row, int32_t vocab_size) {
  return Draws(row) && (row.min_p > 0 || row.top_p < 1 || (row.top_k > 0 && row.top_k < vocab_size));
}

__device__ const float* RawLogits(const SampleArgs& args, const SampleRowData& row) {
  return args.logits + int64_t{row.logits_row} * args.vocab_size;
}
// After steps 2 to 6 of the rule.
__device__ const float* Logits(const SampleArgs& args, int32_t index) {
  const SampleRowData& row = args.rows[index];
  return Adjusts(row) ? args.scratch + int64_t{index} * args.vocab_size : RawLogits(args, row);
}

// ---------------------------------------------------------------- steps 2 to 6: masks, biases, penalties

constexpr int kAdjustThreads = 512;

// counts: 1 for tokens of the prompt, plus 2 for each time a token is in the output. Whoever takes a count away applies
// it, so that each token is penalised once and all are 0 in the end.
__device__ void Penalise(const SampleRowData& row, const int32_t* ints, int32_t* counts, float* logits) {
  const bool repeats = row.repetition_penalty != 1;
  if (repeats) {
    for (int32_t i = row.prompt_begin + threadIdx.x; i < row.prompt_end; i += kAdjustThreads) {
      atomicOr(&counts[ints[i]], 1);
    }
  }
  for (int32_t i = row.output_begin + threadIdx.x; i < row.output_end; i += kAdjustThreads) {
    atomicAdd(&counts[ints[i]], 2);
  }
  __syncthreads();
  const auto apply = [&](int32_t token) {
    const int32_t count = atomicExch(&counts[token], 0);
    if (count == 0) return;
    float l = logits[token];
    l = l > 0 ? __fdiv_rn(l, row.repetition_penalty) : __fmul_rn(l, row.repetition_penalty);
    if (count / 2 > 0) {
      l = __fsub_rn(l, __fmul_rn(row.frequency_penalty, float(count / 2)));
      l = __fsub_rn(l, row.presence_penalty);
    }
    logits[token] = l;
  };
  if (repeats) {
    for (int32_t i = row.prompt_begin + threadIdx.x; i < row.prompt_end; i += kAdjustThreads) apply(ints[i]);
  }
  for (int32_t i = row.output_begin + threadIdx.x; i < row.output_end; i += kAdjustThreads) apply(ints[i]);
}

// Takes out the logits whose bits are clear. Each thread those that it has copied; a pass by itself, so that the loads of the
// copy, which most rows need alone, wait for nothing.
__device__ __forceinline__ void MaskLogits(const uint32_t* bitmask, int32_t vocab_size, float* logits) {
  for (int32_t c = threadIdx.x * 4; c < vocab_size; c += kAdjustThreads * 4) {
    const uint32_t bits = bitmask[c / 32] >> (c % 32);
#pragma unroll
    for (int32_t k = 0; k < 4; ++k) {
      if (c + k < vocab_size && (bits >> k & 1) == 0) logits[c + k] = -INFINITY;
    }
  }
}

// A block a row; nothing to do for most.
__global__ void __launch_bounds__(kAdjustThreads) AdjustKernel(const __grid_constant__ SampleArgs args, bool aligned) {
  const SampleRowData& row = args.rows[blockIdx.x];  // not all of it in registers
  if (!Adjusts(row)) return;
  const float* raw = RawLogits(args, row);
  const int64_t first = int64_t{blockIdx.x} * args.vocab_size;
  float* logits = args.scratch + first;
  for (int32_t c = threadIdx.x * 4; c < args.vocab_size; c += kAdjustThreads * 4) {
    StoreFour(args.scratch, Element::kF32, first, c, args.vocab_size, aligned,
              LoadFour(raw, c, args.vocab_size, aligned));
  }
  if (HasBitmask(row)) MaskLogits(args.bitmasks + row.allowed_begin, args.vocab_size, logits);
  __syncthreads();
  for (int32_t i = row.masked_begin + threadIdx.x; i < row.masked_end; i += kAdjustThreads) {
    atomicExch(&logits[args.ints[i]], -INFINITY);  // a token may be there twice
  }
  __syncthreads();
  for (int32_t i = row.bias_begin + threadIdx.x; i < row.bias_end; i += kAdjustThreads) {
    logits[args.ints[i]] += args.floats[i];
  }
  if (!Penalises(row)) return;
  __syncthreads();
  Penalise(row, args.ints, args.counts + first, logits);
}

// ---------------------------------------------------------------- the largest of each segment, and draws without
// filters

constexpr int kScanWarps = 8;
constexpr int kScanThreads = kScanWarps * kWarpLanes;
constexpr int kScanFours = 8;
constexpr int kSegment = kScanThreads * kScanFours * 4;

struct SegmentResult {
  BestToken largest;
  BestToken drawn;  // of rows that draw without filters
  int32_t bad;
};

__host__ __device__ int32_t NumSegments(int32_t vocab_size) { return (vocab_size + kSegment - 1) / kSegment; }

struct ScanShared {
  BestToken partials[kScanWarps];
};

// The noisy values of a segment whose logits a thread holds in `v`: those of tokens first + 4 kScanThreads i + k.
__device__ BestToken DrawInSegment(const SampleRowData& row, const float* logits, int32_t first, ScanShared& shared,
                                   float (&v)[kScanFours][4]) {
  const NoisyRow noise = {row.seed, row.position};
  BestToken bound;
#pragma unroll
  for (int i = 0; i < kScanFours; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (v[i][k] == -INFINITY) continue;
      const int32_t token = first + i * 4 * kScanThreads + k;
      v[i][k] = noise.Bound(__fdiv_rn(v[i][k], row.temperature), token);
      bound = Better()(bound, {v[i][k], token});
    }
  }
  const auto exact = [&](int32_t token) {
    return BestToken{noise.Exact(__fdiv_rn(logits[token], row.temperature), token), token};
  };
  BestToken best;
  if (bound.token != kNoToken) best = exact(bound.token);
  const float reached = BlockReduce(best, Better(), shared.partials).value;
#pragma unroll
  for (int i = 0; i < kScanFours; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (v[i][k] >= reached && v[i][k] > -INFINITY) best = Better()(best, exact(first + i * 4 * kScanThreads + k));
    }
  }
  return BlockReduce(best, Better(), shared.partials);
}

// blockIdx.x: segment of the vocabulary; blockIdx.y: row.
__global__ void __launch_bounds__(kScanThreads) ScanKernel(const __grid_constant__ SampleArgs args, bool aligned) {
  SLUICE_SHARED(ScanShared, shared);
  const SampleRowData row = args.rows[blockIdx.y];
  const float* logits = Logits(args, blockIdx.y);
  const float* raw = RawLogits(args, row);
  const int32_t vocab = args.vocab_size, first = blockIdx.x * kSegment + threadIdx.x * 4;
  float v[kScanFours][4];
  bool bad = false;
  BestToken largest;
#pragma unroll
  for (int i = 0; i < kScanFours; ++i) {
    const int32_t token = first + i * 4 * kScanThreads;
    const float4 four = LoadFour(logits, token, vocab, aligned);
    const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const bool exists = token + k < vocab;
      v[i][k] = exists ? values[k] : -INFINITY;
      bad |= IsBad(v[i][k]) || (exists && logits != raw && IsBad(raw[token + k]));
      largest = Better()(largest, {v[i][k], token + k});
    }
  }
  SegmentResult result = {};
  result.bad = __syncthreads_or(bad);
  result.largest = BlockReduce(largest, Better(), shared.partials);
  if (Draws(row) && !Filters(row, vocab)) result.drawn = DrawInSegment(row, logits, first, shared, v);
  if (threadIdx.x == 0) {
    static_cast<SegmentResult*>(args.workspace)[int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = result;
  }
}

// ---------------------------------------------------------------- the token of each row

// Of all segments of the row, by one warp.
__device__ SegmentResult MergeSegments(const SampleArgs& args) {
  const int32_t n = NumSegments(args.vocab_size), lane = threadIdx.x % kWarpLanes;
  const SegmentResult* segments = static_cast<const SegmentResult*>(args.workspace) + int64_t{blockIdx.x} * n;
  SegmentResult merged = {};
  for (int32_t s = lane; s < n; s += kWarpLanes) {
    merged.largest = Better()(merged.largest, segments[s].largest);
    merged.drawn = Better()(merged.drawn, segments[s].drawn);
    merged.bad |= segments[s].bad;
  }
  merged.largest = WarpReduce(merged.largest, Better());
  merged.drawn = WarpReduce(merged.drawn, Better());
  merged.bad = __any_sync(kAllLanes, merged.bad);
  return merged;
}

struct FinishShared {
  SegmentResult merged;
  FilterShared filter;
  BestToken partials[kFilterWarps];
};

// Step 7 of the rule: which survive min_p, top_k and top_p. `items` are left to those or more.
__device__ Cut FindCut(const SampleRowData& row, float max, FilterShared& shared, Items& items) {
  Cut cut = {-3.402823466e38f};  // -inf is never drawn
  if (row.min_p > 0) {
    // The smallest float at which value - max >= log(min_p).
    const double limit = double(max) + log(double(row.min_p));
    const float rounded = float(limit);
    cut.value = fmaxf(cut.value, fminf(max, double(rounded) < limit ? nextafterf(rounded, INFINITY) : rounded));
  }
  if (row.top_k > 0 && row.top_k < items.size) {
    const auto needed = [&](Mass) { return Mass(row.top_k); };
    Narrow<true>(max, OfCount(), needed, shared, items, cut);
  }
  if (row.top_p < 1) {
    const auto needed = [&](Mass total) {
      const Mass wanted = Mass(ceil(double(row.top_p) * double(total)));
      return wanted < 1 ? Mass{1} : wanted > total ? total : wanted;
    };
    Narrow<false>(max, OfMass{max}, needed, shared, items, cut);
  }
  return cut;
}

// Step 8, among the items that are left.
__device__ int32_t Draw(const SampleRowData& row, const Items& items, const Cut& cut, FinishShared& shared) {
  const NoisyRow noise = {row.seed, row.position};
  BestToken bound;
  float value_of_bound = 0;
  ForKept(items, cut, [&](float value, int32_t token) {
    const BestToken better = Better()(bound, {noise.Bound(value, token), token});
    if (better.token != bound.token) value_of_bound = value;
    bound = better;
  });
  BestToken best;
  if (bound.token != kNoToken) best = {noise.Exact(value_of_bound, bound.token), bound.token};
  const float reached = BlockReduce(best, Better(), shared.partials).value;
  ForKept(items, cut, [&](float value, int32_t token) {
    if (noise.Bound(value, token) >= reached) best = Better()(best, {noise.Exact(value, token), token});
  });
  return BlockReduce(best, Better(), shared.partials).token;
}

// A block a row.
__global__ void __launch_bounds__(kFilterThreads) FinishKernel(const __grid_constant__ SampleArgs args, bool aligned) {
  SLUICE_SHARED(FinishShared, shared);
  const SampleRowData row = args.rows[blockIdx.x];
  if (threadIdx.x < kWarpLanes) {
    const SegmentResult merged = MergeSegments(args);
    if (threadIdx.x == 0) shared.merged = merged;
  }
  __syncthreads();
  const SegmentResult& merged = shared.merged;
  const bool finite = !merged.bad && merged.largest.value > -INFINITY;
  const float max = Draws(row) ? __fdiv_rn(merged.largest.value, row.temperature) : INFINITY;
  int32_t token = 0;
  if (finite && fabsf(max) == INFINITY) {
    token = merged.largest.token;
  } else if (finite && Filters(row, args.vocab_size)) {
    Items items = {Logits(args, blockIdx.x), nullptr, args.vocab_size, row.temperature, aligned};
    const Cut cut = FindCut(row, max, shared.filter, items);
    token = Draw(row, items, cut, shared);
  } else if (finite) {
    token = merged.drawn.token;
  }
  if (threadIdx.x == 0) {
    args.tokens[blockIdx.x] = token;
    args.finite[blockIdx.x] = finite;
  }
}

}  // namespace

int64_t SampleWorkspaceBytes(int32_t num_rows, int32_t vocab_size) {
  return int64_t{num_rows} * NumSegments(vocab_size) * int64_t{sizeof(SegmentResult)};
}

void LaunchSample(const SampleArgs& args, Stream stream) {
  if (args.num_rows == 0) return;
  const unsigned rows = unsigned(args.num_rows);
  const bool aligned = args.vocab_size % 4 == 0 && IsAligned(args.logits) && IsAligned(args.scratch);
  SLUICE_LAUNCH(AdjustKernel, dim3(rows), dim3(kAdjustThreads), 0, stream, args, aligned);
  SLUICE_LAUNCH(ScanKernel, dim3(unsigned(NumSegments(args.vocab_size)), rows), dim3(kScanThreads), sizeof(ScanShared),
                stream, args, aligned);
  SLUICE_LAUNCH(FinishKernel, dim3(rows), dim3(kFilterThreads), sizeof(FinishShared), stream, args, aligned);
}

}  // namespace sluice::cuda
