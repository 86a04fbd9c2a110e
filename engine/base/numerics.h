// All that the arithmetic of a row depends on, beside the weights, the tokens up to it and their positions. Devices see of a
// request what stands here and nothing else (BatchView), so rows whose numerics agree, and those of the tokens before them,
// have the same bits, in any batch, by any chunk, for any request: docs/kv-cache.md.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// How a row is computed where there is a choice: bits.
using RowRoute = uint8_t;
inline constexpr RowRoute kRouteExpandedLatents = 1;  // MlaAttentionArgs: keys and values of each head are made anew
inline constexpr RowRoute kRouteLibraryProducts = 2;  // products of a library instead of our own kernels

// Where the frequencies of a model's RopeTables change with the length that a sequence may reach.
struct RopeClasses {
  std::vector<int32_t> change_behind;      // ascending: lengths above these have frequencies of their own (longrope)
  int32_t each_length_behind = INT32_MAX;  // each length above this has (dynamic NTK)

  // The least length with the frequencies of `length`, in all tables: what is given to SelectInvFreq.
  int32_t ClassOf(int32_t length) const;
  bool operator==(const RopeClasses&) const = default;
};

// The rule, fixed for the life of an engine. Requests decide, never batches, chunks or what has been computed before.
struct NumericsOptions {
  int32_t mla_expand_from = INT32_MAX;    // rows of prompts of so many tokens and more take kRouteExpandedLatents
  int32_t gemm_library_from = INT32_MAX;  // and kRouteLibraryProducts
  RopeClasses rope;                       // of the model

  bool operator==(const NumericsOptions&) const = default;
};

// The rule applied to a request.
struct RequestNumerics {
  RequestNumerics() = default;
  // For `prompt_len` tokens that at most `max_tokens` follow.
  RequestNumerics(const NumericsOptions& options, int32_t prompt_len, int32_t max_tokens, int32_t adapter = 0);

  RowRoute route(int32_t position) const { return position < num_routed ? routed : RowRoute{0}; }

  RowRoute routed = 0;     // of rows at positions below num_routed; others have 0
  int32_t num_routed = 0;  // 0 if `routed` is
  int32_t rope_class = 0;
  int32_t adapter = 0;  // of the weights; 0: none
};

}  // namespace sluice
