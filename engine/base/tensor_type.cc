#include "engine/base/tensor_type.h"

#include "engine/base/check.h"

namespace sluice {

const TensorTypeInfo& GetTensorTypeInfo(TensorType type) {
  static const TensorTypeInfo kInfo[] = {
      {"F32", 1, 4, false},     {"F16", 1, 2, false},     {"BF16", 1, 2, false},    {"F64", 1, 8, false},
      {"F8_E4M3", 1, 1, false}, {"I8", 1, 1, false},      {"I16", 1, 2, false},     {"I32", 1, 4, false},
      {"I64", 1, 8, false},     {"U8", 1, 1, false},      {"BOOL", 1, 1, false},    {"F8_E5M2", 1, 1, false},
      {"F8_E8M0", 1, 1, false}, {"U16", 1, 2, false},     {"U32", 1, 4, false},     {"U64", 1, 8, false},
      {"C64", 1, 8, false},     {"F4", 2, 1, false},      {"F6_E2M3", 4, 3, false}, {"F6_E3M2", 4, 3, false},
      {"Q4_0", 32, 18, true},   {"Q4_1", 32, 20, true},   {"Q5_0", 32, 22, true},   {"Q5_1", 32, 24, true},
      {"Q8_0", 32, 34, true},   {"Q2_K", 256, 84, true},  {"Q3_K", 256, 110, true}, {"Q4_K", 256, 144, true},
      {"Q5_K", 256, 176, true}, {"Q6_K", 256, 210, true}, {"MXFP4", 32, 17, true},
  };
  return kInfo[int(type)];
}

int64_t TensorBytes(TensorType type, int64_t elems) {
  const TensorTypeInfo& info = GetTensorTypeInfo(type);
  SLUICE_CHECK(elems >= 0 && elems % info.block_elems == 0);
  return elems / info.block_elems * info.block_bytes;
}

}  // namespace sluice
