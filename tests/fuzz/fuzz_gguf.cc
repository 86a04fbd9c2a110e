// Any bytes as a GGUF file: open it, ask for everything with every getter, touch the ends of every tensor and decode a
// few rows. AddressSanitizer watches the reads; an allocation far beyond the input aborts.
#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "engine/base/check.h"
#include "engine/base/dequantize.h"
#include "engine/io/gguf.h"

namespace {

size_t g_limit = std::numeric_limits<size_t>::max();

void OnMalloc(const volatile void*, size_t size) { SLUICE_CHECK(size <= g_limit); }
void OnFree(const volatile void*) {}

void AskForEverything(const sluice::Gguf& gguf) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  // The seeds' keys.
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
                          "general.alignment", "split.count"}) {
    const auto text = gguf.FindString(key);
    if (text.ok() && text->has_value()) std::string copy(**text);
    if (const auto strings = gguf.GetStringArray(key); strings.ok()) {
      for (absl::string_view element : *strings) std::string copy(element);
    }
    gguf.GetInt(key, kMin, kMax).IgnoreError();
    gguf.GetUint(key).IgnoreError();
    gguf.GetFloat(key).IgnoreError();
    gguf.GetBool(key).IgnoreError();
    gguf.GetIntArray(key).IgnoreError();
    gguf.GetFloatArray(key).IgnoreError();
    gguf.GetIntPerLayer(key, 4, kMin, kMax).IgnoreError();
  }
}

void TouchTensors(const sluice::Gguf& gguf) {
  constexpr int64_t kBlocks = 2;
  float values[kBlocks * 256];
  for (const sluice::TensorView& tensor : gguf.tensors()) {
    SLUICE_CHECK(gguf.FindTensor(tensor.name) == &tensor);
    const sluice::TensorTypeInfo& info = sluice::GetTensorTypeInfo(tensor.type);
    SLUICE_CHECK(int64_t(tensor.data.size()) == sluice::TensorBytes(tensor.type, tensor.num_elements()));
    const int64_t blocks = std::min(tensor.num_elements() / info.block_elems, kBlocks);
    if (!sluice::CanDequantize(tensor.type)) continue;
    sluice::DequantizeRow(tensor.type, tensor.data.data(), blocks * info.block_elems, values);
    const uint8_t* last = tensor.data.data() + tensor.data.size() - blocks * info.block_bytes;
    sluice::DequantizeRow(tensor.type, last, blocks * info.block_elems, values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  SLUICE_CHECK(__sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree) > 0);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Tables of tiny entries cost a few times what they take in the file; nothing may cost more.
  g_limit = 8 * size + 4096;
  {
    const auto gguf = sluice::Gguf::Parse(absl::MakeConstSpan(data, size), "fuzz");
    if (gguf.ok()) {
      AskForEverything(*gguf);
      TouchTensors(*gguf);
    }
  }
  g_limit = std::numeric_limits<size_t>::max();
  return 0;
}
