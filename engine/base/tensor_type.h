// How tensor elements are stored: plain numbers or GGUF's block-quantised types. tensor_format.h has a row for each.
#pragma once

#include <cstdint>

namespace sluice {

enum class TensorType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kBool,
  kF8E5M2,
  kF8E8M0,
  kU16,
  kU32,
  kU64,
  kC64,     // two F32
  kF4E2M1,  // two in a byte
  kF6E2M3,
  kF6E3M2,  // four in three bytes
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,  // blocks of 32
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,   // super-blocks of 256
  kMXFP4,  // blocks of 32, GGUF element order
  kEnd,    // no type
};
inline constexpr int kNumTensorTypes = static_cast<int>(TensorType::kEnd);

// A row is a whole number of blocks of `block_elems` elements, `block_bytes` bytes each; types of whole bytes have 1
// element per block.
struct TensorTypeInfo {
  const char* name;  // "Q4_1", as GGUF tools print it; plain types as safetensors writes them
  int block_elems;
  int block_bytes;
  bool quantized;
};

const TensorTypeInfo& GetTensorTypeInfo(TensorType type);
inline const char* TensorTypeName(TensorType type) { return GetTensorTypeInfo(type).name; }

// Bytes of `elems` elements. REQUIRES: elems >= 0, a multiple of the block, and the product fits int64.
int64_t TensorBytes(TensorType type, int64_t elems);

}  // namespace sluice
