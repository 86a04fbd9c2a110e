#include "engine/base/tensor_type.h"

#include "engine/base/check.h"
#include "engine/base/tensor_format.h"

namespace sluice {

const TensorTypeInfo& GetTensorTypeInfo(TensorType type) { return FormatOf(type).stored; }

int64_t TensorBytes(TensorType type, int64_t elems) {
  const TensorTypeInfo& info = GetTensorTypeInfo(type);
  SLUICE_CHECK(elems >= 0 && elems % info.block_elems == 0);
  return elems / info.block_elems * info.block_bytes;
}

}  // namespace sluice
