// What the kernels' launchers take, as plain data: a .cu file includes nothing but such headers. Pointers are to device
// memory unless said otherwise; all launchers are asynchronous on `stream` and allocate nothing.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Of activations and of what a GEMM reads. kF32 exists for tests: it shows that what remains are rounding errors.
enum class Element : uint8_t { kF32, kBF16 };

constexpr int64_t ElementBytes(Element element) { return element == Element::kF32 ? 4 : 2; }

enum class KvElement : uint8_t { kF32, kF16, kBF16, kF8E4M3 };

constexpr int64_t KvElementBytes(KvElement element) {
  return element == KvElement::kF32 ? 4 : element == KvElement::kF8E4M3 ? 1 : 2;
}

// Rows of one step. Padding rows (a captured graph runs a fixed number) belong to sequence -1 and have slot -1: kernels
// neither read a cache for them nor write one, and what they leave in activations nobody reads.
struct StepArrays {
  int32_t num_tokens = 0;                  // rows, padding included
  int32_t num_seqs = 0;                    // padding included
  const int32_t* token_ids = nullptr;      // [num_tokens]
  const int32_t* token_sources = nullptr;  // [num_tokens] -1, or an index into the tokens drawn last: that one instead
  const int32_t* positions = nullptr;      // [num_tokens]
  const int32_t* row_sequences = nullptr;  // [num_tokens] sequence of each row, -1 for padding
  const int32_t* row_starts = nullptr;     // [num_seqs] first row of each sequence
  const int32_t* row_ends = nullptr;       // [num_seqs] the row after its last; a padding sequence has no rows
  int32_t first_seq = 0, end_seq = INT32_MAX;  // attention passes over all other sequences
  const int32_t* context_lens = nullptr;   // [num_seqs] tokens in the cache after this step; 0 for padding
  const int32_t* rope_classes = nullptr;   // [num_seqs]
};

// Where the rows stand in one group of the paged cache.
struct KvGroupArrays {
  const int32_t* slot_mapping = nullptr;  // [num_tokens] block * block_size + offset; -1 for padding
  const int32_t* block_tables = nullptr;  // [num_seqs, stride]; -1 where unused or given back: never to be read through
  int32_t stride = 0;
};

// One layer of the paged cache. A block holds, one after the other,
//   keys   [num_kv_heads][block_size][head_dim]
//   values [num_kv_heads][block_size][value_head_dim]
// so that what an attention work item reads of a block is contiguous. An MLA layer has one head, head_dim =
// kv_lora_rank + qk_rope_head_dim and value_head_dim 0: the first kv_lora_rank values of a key are its value.
struct PagedKv {
  void* data = nullptr;
  KvElement element = KvElement::kBF16;
  int32_t block_size = 0;  // a power of two, 8 to 256
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;        // a multiple of 8
  int32_t value_head_dim = 0;  // a multiple of 8
  constexpr int64_t block_elements() const { return int64_t{num_kv_heads} * block_size * (head_dim + value_head_dim); }
};

}  // namespace sluice::cuda
