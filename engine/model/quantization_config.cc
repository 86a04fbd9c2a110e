#include "engine/model/quantization_config.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"
#include "engine/base/status_macros.h"

namespace sluice {

absl::StatusOr<QuantizationConfig> ReadQuantizationConfig(const ConfigJson& config) {
  QuantizationConfig quantization;
  SLUICE_ASSIGN_OR_RETURN(const std::optional<ConfigJson> object, config.FindObject("quantization_config"));
  if (!object.has_value()) return quantization;
  SLUICE_ASSIGN_OR_RETURN(const std::string method, object->GetString("quant_method"));
  if (method == "mxfp4") {
    quantization.kind = Quantization::kMxfp4;
    return quantization;
  }
  if (method != "fp8") {
    return absl::UnimplementedError(
        absl::StrCat(config.name(), ": key 'quantization_config.quant_method' is ", Quote(method),
                     ", which is not supported; use the unquantised model, its fp8 or mxfp4 form, or a GGUF file"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::string> format, object->FindString("fmt"));
  if (format.value_or("e4m3") != "e4m3") {
    return absl::UnimplementedError(absl::StrCat(config.name(), ": key 'quantization_config.fmt' is ", Quote(*format),
                                                 ", which is not supported; expected e4m3"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<std::vector<int64_t>> block,
                          object->FindInts("weight_block_size", 1, 1 << 20));
  if (!block.has_value() || block->size() != 2) {
    return absl::UnimplementedError(absl::StrCat(config.name(),
                                                 ": key 'quantization_config.weight_block_size' is not a pair; fp8 "
                                                 "weights are supported with a factor per block only"));
  }
  quantization.kind = Quantization::kFp8Blocks;
  quantization.fp8_block = {.rows = int32_t((*block)[0]), .cols = int32_t((*block)[1])};
  return quantization;
}

}  // namespace sluice
