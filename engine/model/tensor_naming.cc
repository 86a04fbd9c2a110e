#include "engine/model/tensor_naming.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

constexpr absl::string_view kBeyond = "{beyond}";

// Takes a decimal number of at least `min` off the front.
bool ConsumeNumber(absl::string_view* text, int32_t min) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  int32_t number;
  if (!absl::SimpleAtoi(text->substr(0, digits), &number) || number < min) return false;
  text->remove_prefix(digits);
  return true;
}

// Only the last "*" seen may have to take more, so the time is at most the product of the two lengths: names come from
// files.
bool Matches(absl::string_view pattern, absl::string_view name, int32_t num_layers) {
  std::optional<absl::string_view> after_star;  // of the pattern
  absl::string_view rest;                       // of the name, of which "*" took nothing yet
  while (true) {
    if (absl::ConsumePrefix(&pattern, "*")) {
      after_star = pattern;
      rest = name;
      continue;
    }
    if (pattern.empty() && name.empty()) return true;
    if (absl::ConsumePrefix(&pattern, kBeyond)) {
      if (ConsumeNumber(&name, num_layers)) continue;
    } else if (!pattern.empty() && !name.empty() && pattern[0] == name[0]) {
      pattern.remove_prefix(1);
      name.remove_prefix(1);
      continue;
    }
    if (!after_star.has_value() || rest.empty()) return false;
    rest.remove_prefix(1);
    pattern = *after_star;
    name = rest;
  }
}

}  // namespace

std::string ExpandTensorName(absl::string_view pattern, absl::string_view prefix, int32_t layer, int32_t expert) {
  std::string name = absl::StrReplaceAll(pattern, {{"{model}", prefix}, {"{layer}", absl::StrCat(layer)}});
  if (expert >= 0) name = absl::StrReplaceAll(name, {{"{expert}", absl::StrCat(expert)}});
  return name;
}

bool IsIgnoredTensor(const TensorNaming& naming, absl::string_view name, int32_t num_layers) {
  for (absl::string_view pattern : naming.ignored) {
    if (Matches(pattern, name, num_layers)) return true;
  }
  return false;
}

}  // namespace sluice
