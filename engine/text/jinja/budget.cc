#include "engine/text/jinja/budget.h"

#include "absl/strings/str_cat.h"

namespace sluice::jinja {

absl::Status Budget::TooManySteps() const {
  return absl::ResourceExhaustedError(absl::StrCat("the chat template takes more than ", limits_.max_steps, " steps"));
}

absl::Status Budget::TooManyBytes() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the chat template builds more than ", limits_.max_built_bytes, " bytes of values"));
}

absl::Status Budget::TooDeep() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the chat template nests deeper than ", limits_.max_depth, " levels (recursion without an end?)"));
}

}  // namespace sluice::jinja
