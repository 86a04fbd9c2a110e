// Any bytes as a safetensors file, and as the index of a folder of them: what is taken must hold together, and its
// tensors must be readable to the last byte. AddressSanitizer watches the reads; an allocation far beyond the input
// aborts.
#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/io/safetensors.h"
#include "engine/io/safetensors_folder.h"

namespace {

size_t g_limit = std::numeric_limits<size_t>::max();

void OnMalloc(const volatile void*, size_t size) { SLUICE_CHECK(size <= g_limit); }
void OnFree(const volatile void*) {}

void CheckTensors(const sluice::Safetensors& file, size_t file_bytes) {
  constexpr int64_t kElements = 64;
  float values[kElements];
  size_t data_bytes = 0;
  for (const sluice::TensorView& tensor : file.tensors()) {
    SLUICE_CHECK(file.FindTensor(tensor.name) == &tensor);
    const int64_t elements = tensor.num_elements();
    SLUICE_CHECK(elements >= 0 && int64_t(tensor.data.size()) == sluice::TensorBytes(tensor.type, elements));
    data_bytes += tensor.data.size();
    volatile uint8_t sum = 0;
    for (uint8_t byte : tensor.data) sum = uint8_t(sum + byte);
    if (!sluice::CanDequantize(tensor.type)) continue;
    const int64_t some = std::min(elements, kElements);
    sluice::DequantizeRow(tensor.type, tensor.data.data() + sluice::TensorBytes(tensor.type, elements - some), some,
                          values);
  }
  SLUICE_CHECK(data_bytes + 10 <= file_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  SLUICE_CHECK(__sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree) > 0);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Tables of tiny entries cost many times what they take in the text; nothing may cost more.
  g_limit = 24 * size + 4096;
  {
    const auto file = sluice::Safetensors::Parse(absl::MakeConstSpan(data, size), "fuzz");
    if (file.ok()) CheckTensors(*file, size);
    sluice::ParseSafetensorsIndex(absl::string_view(reinterpret_cast<const char*>(data), size), "fuzz")
        .status()
        .IgnoreError();
  }
  g_limit = std::numeric_limits<size_t>::max();
  return 0;
}
