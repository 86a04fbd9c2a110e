#include "engine/model/tensor_naming.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

constexpr absl::string_view kBeyond = "{beyond}";

bool Matches(absl::string_view pattern, absl::string_view name, int32_t num_layers) {
  while (!pattern.empty() && pattern[0] != '*') {
    if (absl::ConsumePrefix(&pattern, kBeyond)) {
      size_t digits = 0;
      while (digits < name.size() && absl::ascii_isdigit(name[digits])) ++digits;
      int32_t layer;
      if (!absl::SimpleAtoi(name.substr(0, digits), &layer) || layer < num_layers) return false;
      name.remove_prefix(digits);
      continue;
    }
    if (name.empty() || name[0] != pattern[0]) return false;
    pattern.remove_prefix(1);
    name.remove_prefix(1);
  }
  if (pattern.empty()) return name.empty();
  pattern.remove_prefix(1);
  if (pattern.empty()) return true;
  for (size_t skip = 0; skip <= name.size(); ++skip) {
    if (Matches(pattern, name.substr(skip), num_layers)) return true;
  }
  return false;
}

}  // namespace

std::string ExpandTensorName(absl::string_view pattern, absl::string_view prefix, int32_t layer, int32_t expert) {
  std::string name = absl::StrReplaceAll(pattern, {{"{model}", prefix}, {"{layer}", absl::StrCat(layer)}});
  if (expert >= 0) name = absl::StrReplaceAll(name, {{"{expert}", absl::StrCat(expert)}});
  return name;
}

std::optional<std::string> FindTensorName(const TensorNaming& naming, TensorRole role, int32_t layer) {
  const absl::string_view prefix = naming.prefixes.empty() ? "" : naming.prefixes[0];
  for (const TensorName& name : naming.names) {
    if (name.role == role) return ExpandTensorName(name.pattern, prefix, layer);
  }
  return std::nullopt;
}

bool IsIgnoredTensor(const TensorNaming& naming, absl::string_view name, int32_t num_layers) {
  for (absl::string_view pattern : naming.ignored) {
    if (Matches(pattern, name, num_layers)) return true;
  }
  return false;
}

}  // namespace sluice
