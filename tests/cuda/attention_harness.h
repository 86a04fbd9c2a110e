// One attention layer over made-up sequences whose queries, keys and values are functions of (sequence, position), so
// that a row must come out alike in whichever step it is computed; and the same in double precision.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/types.h"

namespace sluice::cuda_testing {

struct AttentionSetup {
  int32_t num_heads = 4, num_kv_heads = 2, head_dim = 64, value_dim = 64;
  int32_t latent_value_dim = 0;  // > 0: num_kv_heads 1, value_dim 0
  cuda::Element element = cuda::Element::kBF16;
  cuda::KvElement kv = cuda::KvElement::kBF16;
  int32_t block_size = 16;
  AttentionMask mask = {};
  float softcap = 0;
  bool sinks = false;

  std::string Name() const;
  int32_t OutDim() const { return latent_value_dim > 0 ? latent_value_dim : value_dim; }
  float Scale() const;
};

// Rows of a sequence in a step: positions first .. first + count - 1. None: the sequence is there without rows.
struct RowsOf {
  int32_t sequence, first, count;
};

struct StepOptions {
  int32_t padding_rows = 0, padding_seqs = 0;
  int32_t max_total_context = -1;  // of the plan's limits; -1: what the step has
};

// (sequence, position) -> values of all heads, as stored.
using AttentionRows = std::map<std::pair<int32_t, int32_t>, std::vector<float>>;

class AttentionHarness {
 public:
  explicit AttentionHarness(const AttentionSetup& setup) : setup_(setup) {}

  // Launches plan and attention for one step. Around what the rows may see everything is NaN or absurd: free slots of
  // the cache, tables behind the context, blocks before the first key in reach (-1). Expects padding rows untouched.
  AttentionRows Run(const std::vector<RowsOf>& step, const StepOptions& options = {}) const;

  // All rows 0 .. length - 1 of a sequence in steps of `chunk` rows, or from `first` on.
  AttentionRows RunInChunks(int32_t sequence, int32_t length, int32_t chunk, int32_t first = 0) const;

  std::vector<double> Reference(int32_t sequence, int32_t position) const;

 private:
  enum Kind { kQuery, kKey, kValue, kSink };
  double Random(Kind kind, int32_t sequence, int32_t position, int32_t index) const;
  double Query(int32_t sequence, int32_t position, int32_t index) const;  // as stored
  double Cached(Kind kind, int32_t sequence, int32_t position, int32_t index) const;
  std::vector<float> Sinks() const;
  std::vector<uint8_t> FillCache(const std::vector<RowsOf>& step, const std::vector<int32_t>& tables, int32_t stride,
                                 int32_t num_blocks) const;

  const AttentionSetup setup_;
};

// max |got - want| / max |want| over all rows.
double RelativeError(const AttentionHarness& harness, const AttentionRows& rows);

}  // namespace sluice::cuda_testing
