// The choices a transformer layer can make, as plain values shared by the model description (engine/model/spec.h) and
// the operations that carry them out (engine/ops/ops.h). Formulas: models.md 1.1.
#pragma once

#include <cstdint>

namespace sluice {

enum class NormKind : uint8_t { kRms, kLayer };

// y = x / sqrt(mean(x^2) + eps) * (weight + weight_offset)                          kRms
// y = (x - mean) / sqrt(var + eps) * (weight + weight_offset) + bias                kLayer; biased variance
struct NormParams {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  float weight_offset = 0;  // 1 where the file stores w - 1 (Gemma in Hugging Face folders)
};

// Which two of the first `num_rotary` dimensions of a head make pair i.
enum class RopeLayout : uint8_t {
  kHalfSplit,    // (i, i + num_rotary/2): Hugging Face checkpoints of the Llama family
  kInterleaved,  // (2i, 2i + 1): GGUF `llama`, Llama 4, DeepSeek
};

enum class QkNormKind : uint8_t { kNone, kPerHead, kFullWidth, kL2PerHead };

enum class MaskKind : uint8_t {
  kFull,    // key <= query
  kWindow,  // query - key < size: `size` keys including the query itself
  kChunk,   // floor(query/size) == floor(key/size) and key <= query
};

struct AttentionMask {
  MaskKind kind = MaskKind::kFull;
  int32_t size = 0;  // tokens; unused for kFull
};

enum class ActivationKind : uint8_t { kSilu, kGeluTanh, kGeluErf, kSwigluOai };

}  // namespace sluice
