#include <cstdint>

#include "engine/ops/cuda/kernels/best_token.cuh"
#include "engine/ops/cuda/kernels/cuda_language.h"
#include "engine/ops/cuda/kernels/reduce.cuh"
#include "engine/ops/cuda/kernels/sample.h"
#include "engine/ops/cuda/kernels/token_filter.cuh"

namespace sluice::cuda {
namespace {

using SortKey = unsigned long long;  // value descending, then token ascending, as one number that ascends

__device__ __forceinline__ SortKey SortKeyOf(float value, int32_t token) {
  return SortKey(~OrderedBits(value)) << 32 | uint32_t(token);
}
__device__ __forceinline__ float ValueOf(SortKey key) { return FromOrderedBits(~uint32_t(key >> 32)); }
__device__ __forceinline__ int32_t TokenOf(SortKey key) { return int32_t(uint32_t(key)); }

constexpr int32_t kMaxSortedInShared = 1024;

struct LogprobShared {
  FilterShared filter;
  BestToken partials[kFilterWarps];
  int32_t counts[kFilterWarps];
  int32_t num_found;
  SortKey keys[kMaxSortedInShared];
};

__host__ __device__ int32_t PowerOfTwoFrom(int32_t n) {
  int32_t power = 1;
  while (power < n) power *= 2;
  return power;
}

// Bitonic sort (Batcher 1968) of keys[0, n), n a power of two, ascending, by the whole block.
__device__ void Sort(SortKey* keys, int32_t n) {
  for (int32_t run = 2; run <= n; run *= 2) {
    for (int32_t distance = run / 2; distance > 0; distance /= 2) {
      for (int32_t pair = threadIdx.x; pair < n / 2; pair += kFilterThreads) {
        const int32_t low = pair / distance * 2 * distance + pair % distance, high = low + distance;
        const bool ascending = (low & run) == 0;
        const SortKey a = keys[low], b = keys[high];
        if ((a > b) == ascending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

struct RowSums {
  float max;
  double log_sum;  // of e^logit
  int32_t rank;
  bool finite;
};

__device__ RowSums SumRow(const float* logits, int32_t vocab_size, bool aligned, int32_t token, LogprobShared& shared) {
  RowSums sums = {};
  BestToken best;
  bool bad = false;
  ForRow(logits, vocab_size, aligned, [&](float logit, int32_t i) {
    bad |= IsBad(logit);
    best = Better()(best, {logit, i});
  });
  sums.max = BlockReduce(best, Better(), shared.partials).value;
  sums.finite = !__syncthreads_or(bad) && sums.max > -INFINITY;
  if (!sums.finite) return sums;
  const OfMass weight = {sums.max};
  const float own = logits[token];
  Mass mass = 0;
  int32_t above = 0;
  ForRow(logits, vocab_size, aligned, [&](float logit, int32_t) {
    mass += weight(logit);
    above += logit > own;
  });
  mass = BlockReduce(mass, Plus(), shared.filter.warp_sums);
  sums.log_sum = double(sums.max) + log(double(mass) / double(kMassOfLargest));
  sums.rank = 1 + BlockReduce(above, Plus(), shared.counts);
  return sums;
}

// The num_top most likely tokens of the row, sorted, at `keys`.
__device__ void FindTop(Items items, float max, int32_t num_top, LogprobShared& shared, SortKey* keys) {
  Cut cut = {-INFINITY};
  if (num_top < items.size) {
    const auto needed = [num_top](Mass) { return Mass(num_top); };
    Narrow<false>(max, OfCount(), needed, shared.filter, items, cut);
  }
  const int32_t size = PowerOfTwoFrom(num_top);
  if (threadIdx.x == 0) shared.num_found = 0;
  for (int32_t i = num_top + threadIdx.x; i < size; i += kFilterThreads) keys[i] = ~SortKey{0};
  __syncthreads();
  ForKept(items, cut,
          [&](float value, int32_t token) { keys[atomicAdd(&shared.num_found, 1)] = SortKeyOf(value, token); });
  __syncthreads();
  Sort(keys, size);
}

// A block a row.
__global__ void __launch_bounds__(kFilterThreads)
    LogprobKernel(const __grid_constant__ LogprobArgs args, bool aligned) {
  SLUICE_SHARED(LogprobShared, shared);
  const int32_t row = blockIdx.x, vocab = args.vocab_size;
  if (args.num_top[row] < 0) return;
  const int32_t num_top = min(args.num_top[row], vocab), token = args.tokens[row];
  const float* logits = args.logits + int64_t{args.logits_rows[row]} * vocab;
  const RowSums sums = SumRow(logits, vocab, aligned, token, shared);
  if (threadIdx.x == 0) {
    args.logprobs[row] = sums.finite ? float(double(logits[token]) - sums.log_sum) : NAN;
    args.ranks[row] = sums.rank;
  }
  if (num_top == 0) return;
  int32_t* top_tokens = args.top_tokens + int64_t{row} * args.max_top;
  float* top_logprobs = args.top_logprobs + int64_t{row} * args.max_top;
  SortKey* keys = shared.keys;
  if (num_top > kMaxSortedInShared) {
    keys = static_cast<SortKey*>(args.workspace) + int64_t{row} * PowerOfTwoFrom(min(args.max_top, vocab));
  }
  if (sums.finite) FindTop({logits, nullptr, vocab, 1, aligned}, sums.max, num_top, shared, keys);
  for (int32_t i = threadIdx.x; i < num_top; i += kFilterThreads) {
    top_tokens[i] = sums.finite ? TokenOf(keys[i]) : -1;
    top_logprobs[i] = sums.finite ? float(double(ValueOf(keys[i])) - sums.log_sum) : NAN;
  }
}

}  // namespace

int64_t LogprobWorkspaceBytes(int32_t num_rows, int32_t vocab_size, int32_t max_top) {
  const int32_t most = max_top < vocab_size ? max_top : vocab_size;
  return most <= kMaxSortedInShared ? 0 : int64_t{num_rows} * PowerOfTwoFrom(most) * int64_t{sizeof(SortKey)};
}

void LaunchLogprobs(const LogprobArgs& args, Stream stream) {
  if (args.num_rows == 0) return;
  SLUICE_LAUNCH(LogprobKernel, dim3(unsigned(args.num_rows)), dim3(kFilterThreads), sizeof(LogprobShared), stream, args,
                args.vocab_size % 4 == 0 && IsAligned(args.logits));
}

}  // namespace sluice::cuda
