// The kernel tables that are built, and how a kernel file fills one from its two tile templates: at compile time, so
// that no code of this header is left in a file of another instruction set.
#pragma once

#include <utility>

#include "engine/ops/cpu/linear_kernels.h"

namespace sluice {

extern const LinearKernels kPortableKernels;
extern const LinearKernels kAvx2Kernels;
extern const LinearKernels kAvx2VnniKernels;
extern const LinearKernels kAvx512Kernels;

template <class Tiles, TensorType type>
constexpr void AddTiles(LinearKernels* kernels) {
  if constexpr (HasCpuForm(type)) {
    constexpr int kType = static_cast<int>(type);
    kernels->tile[static_cast<int>(ActivationType::kF32)][kType] = Tiles::template kFloat<type>;
    if constexpr (PackedFormatOf(type).quantized()) {
      kernels->tile[static_cast<int>(ActivationType::kInt8)][kType] = Tiles::template kInteger<type, 1>;
      kernels->tile[static_cast<int>(ActivationType::kInt16)][kType] = Tiles::template kInteger<type, 2>;
    }
  }
}

template <class Tiles, int... types>
constexpr LinearKernels AddAllTiles(LinearKernels kernels, std::integer_sequence<int, types...>) {
  (AddTiles<Tiles, static_cast<TensorType>(types)>(&kernels), ...);
  return kernels;
}

// `kernels` with the tiles of every type that has panels: Tiles::kFloat<type>, and Tiles::kInteger<type, digits> of
// quantised types. Tiles belongs to one kernel file.
template <class Tiles>
constexpr LinearKernels WithTiles(LinearKernels kernels) {
  return AddAllTiles<Tiles>(kernels, std::make_integer_sequence<int, kNumTensorTypes>());
}

}  // namespace sluice
