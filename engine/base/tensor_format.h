// Everything that is known of the tensor types, a row each: how files store a type, what its weights are made of, and
// the forms in which the CPU and the GPU keep them. What those forms look like follows from the row: packed_format.h
// and weight_layout.h in engine/ops derive it. What a row asks of code is found by the type, and does not compile while
// it is missing:
//   is_weight        DecodeBlock in dequantize.cc
//   on_cpu           PackBlock in ops/cpu/packed_codec.cc, unless it is plain floats or blocks are like Q4_0 to Q8_0
//   on_gpu == type   PackBlock in ops/cuda/kernels/weight_packing.cc, likewise; a struct in weight_tiles.cuh there
// Kernels are compiled for every row. Plain data: any instruction set and nvcc take this header.
#pragma once

#include "engine/base/tensor_type.h"

namespace sluice {

// What the weights of a block-quantised type are made of:
//   w = scale * (code - zero), or scale * code + offset of affine types
struct BlockCodes {
  int bits = 0;  // of a code; 0: the type has no blocks
  int zero = 0;
  bool affine = false;
  bool two_level = false;             // scale is d times an integer, offset -dmin times one, d and dmin one a block
  int scale_length = 32;              // consecutive weights that share a scale
  bool fp4 = false;                   // codes are 4-bit floats, 12 + twice their value; scales are powers of two
  int scale_at = -1, offset_at = -1;  // bytes into a stored block: f16 scale or d; f16 offset or dmin; -1: none
};

struct TensorFormat {
  TensorType type = TensorType::kEnd;
  TensorTypeInfo stored = {};
  int gguf_id = -1;  // -1: not in GGUF
  bool in_safetensors = false;
  bool is_weight = false;  // what follows is for weights only
  BlockCodes codes = {};
  // The type in whose form the CPU keeps such weights, which holds all of their values.
  TensorType on_cpu = type;
  // And the GPU. Types without a form of their own are rounded to bf16 (or f32, where activations are).
  TensorType on_gpu = TensorType::kBF16;
};

// In the order of TensorType.
inline constexpr TensorFormat kTensorFormats[] = {
    {.type = TensorType::kF32,
     .stored = {"F32", 1, 4, false},
     .gguf_id = 0,
     .in_safetensors = true,
     .is_weight = true,
     .on_gpu = TensorType::kF32},
    {.type = TensorType::kF16,
     .stored = {"F16", 1, 2, false},
     .gguf_id = 1,
     .in_safetensors = true,
     .is_weight = true,
     .on_gpu = TensorType::kF16},
    {.type = TensorType::kBF16,
     .stored = {"BF16", 1, 2, false},
     .gguf_id = 30,
     .in_safetensors = true,
     .is_weight = true,
     .on_gpu = TensorType::kBF16},
    {.type = TensorType::kF64, .stored = {"F64", 1, 8, false}, .gguf_id = 28, .in_safetensors = true},
    {.type = TensorType::kF8E4M3,
     .stored = {"F8_E4M3", 1, 1, false},
     .in_safetensors = true,
     .is_weight = true,
     .on_cpu = TensorType::kBF16},
    {.type = TensorType::kI8, .stored = {"I8", 1, 1, false}, .gguf_id = 24, .in_safetensors = true},
    {.type = TensorType::kI16, .stored = {"I16", 1, 2, false}, .gguf_id = 25, .in_safetensors = true},
    {.type = TensorType::kI32, .stored = {"I32", 1, 4, false}, .gguf_id = 26, .in_safetensors = true},
    {.type = TensorType::kI64, .stored = {"I64", 1, 8, false}, .gguf_id = 27, .in_safetensors = true},
    {.type = TensorType::kU8, .stored = {"U8", 1, 1, false}, .in_safetensors = true},
    {.type = TensorType::kBool, .stored = {"BOOL", 1, 1, false}, .in_safetensors = true},
    {.type = TensorType::kF8E5M2, .stored = {"F8_E5M2", 1, 1, false}, .in_safetensors = true},
    {.type = TensorType::kF8E8M0, .stored = {"F8_E8M0", 1, 1, false}, .in_safetensors = true},
    {.type = TensorType::kU16, .stored = {"U16", 1, 2, false}, .in_safetensors = true},
    {.type = TensorType::kU32, .stored = {"U32", 1, 4, false}, .in_safetensors = true},
    {.type = TensorType::kU64, .stored = {"U64", 1, 8, false}, .in_safetensors = true},
    {.type = TensorType::kC64, .stored = {"C64", 1, 8, false}, .in_safetensors = true},
    {.type = TensorType::kF4E2M1, .stored = {"F4", 2, 1, false}, .in_safetensors = true},
    {.type = TensorType::kF6E2M3, .stored = {"F6_E2M3", 4, 3, false}, .in_safetensors = true},
    {.type = TensorType::kF6E3M2, .stored = {"F6_E3M2", 4, 3, false}, .in_safetensors = true},
    {.type = TensorType::kQ4_0,
     .stored = {"Q4_0", 32, 18, true},
     .gguf_id = 2,
     .is_weight = true,
     .codes = {.bits = 4, .zero = 8, .scale_at = 0},
     .on_gpu = TensorType::kQ4_0},
    {.type = TensorType::kQ4_1,
     .stored = {"Q4_1", 32, 20, true},
     .gguf_id = 3,
     .is_weight = true,
     .codes = {.bits = 4, .affine = true, .scale_at = 0, .offset_at = 2},
     .on_gpu = TensorType::kQ4_1},
    {.type = TensorType::kQ5_0,
     .stored = {"Q5_0", 32, 22, true},
     .gguf_id = 6,
     .is_weight = true,
     .codes = {.bits = 5, .zero = 16, .scale_at = 0},
     .on_gpu = TensorType::kQ5_0},
    {.type = TensorType::kQ5_1,
     .stored = {"Q5_1", 32, 24, true},
     .gguf_id = 7,
     .is_weight = true,
     .codes = {.bits = 5, .affine = true, .scale_at = 0, .offset_at = 2}},
    {.type = TensorType::kQ8_0,
     .stored = {"Q8_0", 32, 34, true},
     .gguf_id = 8,
     .is_weight = true,
     .codes = {.bits = 8, .zero = 128, .scale_at = 0},
     .on_gpu = TensorType::kQ8_0},
    {.type = TensorType::kQ2_K,
     .stored = {"Q2_K", 256, 84, true},
     .gguf_id = 10,
     .is_weight = true,
     .codes = {.bits = 2, .affine = true, .two_level = true, .scale_length = 16, .scale_at = 80, .offset_at = 82},
     .on_cpu = TensorType::kF32},
    {.type = TensorType::kQ3_K,
     .stored = {"Q3_K", 256, 110, true},
     .gguf_id = 11,
     .is_weight = true,
     .codes = {.bits = 3, .zero = 4, .two_level = true, .scale_length = 16, .scale_at = 108},
     .on_cpu = TensorType::kQ6_K},
    {.type = TensorType::kQ4_K,
     .stored = {"Q4_K", 256, 144, true},
     .gguf_id = 12,
     .is_weight = true,
     .codes = {.bits = 4, .affine = true, .two_level = true, .scale_at = 0, .offset_at = 2},
     .on_gpu = TensorType::kQ4_K},
    {.type = TensorType::kQ5_K,
     .stored = {"Q5_K", 256, 176, true},
     .gguf_id = 13,
     .is_weight = true,
     .codes = {.bits = 5, .affine = true, .two_level = true, .scale_at = 0, .offset_at = 2}},
    {.type = TensorType::kQ6_K,
     .stored = {"Q6_K", 256, 210, true},
     .gguf_id = 14,
     .is_weight = true,
     .codes = {.bits = 6, .zero = 32, .two_level = true, .scale_length = 16, .scale_at = 208},
     .on_gpu = TensorType::kQ6_K},
    {.type = TensorType::kMXFP4,
     .stored = {"MXFP4", 32, 17, true},
     .gguf_id = 39,
     .is_weight = true,
     .codes = {.bits = 4, .zero = 12, .fp4 = true}},
};

constexpr const TensorFormat& FormatOf(TensorType type) { return kTensorFormats[static_cast<int>(type)]; }

// Whether the CPU, the GPU, has a form for the type itself.
constexpr bool HasCpuForm(TensorType type) { return FormatOf(type).is_weight && FormatOf(type).on_cpu == type; }
constexpr bool HasGpuForm(TensorType type) { return FormatOf(type).is_weight && FormatOf(type).on_gpu == type; }

// What no row may lack.
constexpr bool IsWhole(const TensorFormat& row) {
  const bool stored = row.stored.name != nullptr && row.stored.block_elems > 0 && row.stored.block_bytes > 0;
  const bool forms = !row.is_weight || (HasCpuForm(row.on_cpu) && HasGpuForm(row.on_gpu));
  return stored && forms && row.stored.quantized == (row.codes.bits != 0) && (row.gguf_id >= 0 || row.in_safetensors);
}
constexpr bool EveryTypeHasItsRow() {
  if (sizeof(kTensorFormats) / sizeof(kTensorFormats[0]) != kNumTensorTypes) return false;
  for (int i = 0; i < kNumTensorTypes; ++i) {
    if (kTensorFormats[i].type != static_cast<TensorType>(i) || !IsWhole(kTensorFormats[i])) return false;
  }
  return true;
}
static_assert(EveryTypeHasItsRow());

}  // namespace sluice
