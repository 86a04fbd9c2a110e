// How long a caller that was refused should wait before it tries again; servers hand it on as google.rpc.RetryInfo.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace sluice {

inline constexpr absl::string_view kRetryAfterPayloadUrl = "sluice/retry-after-ms";

// `status` with `delay` attached, in whole milliseconds. REQUIRES: !status.ok(), delay >= 0
inline absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  status.SetPayload(kRetryAfterPayloadUrl, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
  return status;
}

// Neither so soon that the same callers are back at once, nor later than anybody would plan for.
inline absl::Duration SensibleRetry(absl::Duration delay) {
  return std::clamp(delay, absl::Milliseconds(100), absl::Hours(1));
}

// What is attached to `status`; nullopt: whoever refused knows no better time.
inline absl::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryAfterPayloadUrl);
  int64_t ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &ms)) return absl::nullopt;
  return absl::Milliseconds(ms);
}

}  // namespace sluice
