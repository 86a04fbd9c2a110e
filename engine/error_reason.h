// The machine-readable reason that a Status of the engine carries beside its sentence; servers hand it on as
// google.rpc.ErrorInfo.reason.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace sluice {

inline constexpr absl::string_view kReasonInvalidField = "INVALID_FIELD";                     // INVALID_ARGUMENT
inline constexpr absl::string_view kReasonInvalidToken = "INVALID_TOKEN";                     // INVALID_ARGUMENT
inline constexpr absl::string_view kReasonContextLengthExceeded = "CONTEXT_LENGTH_EXCEEDED";  // INVALID_ARGUMENT
inline constexpr absl::string_view kReasonKvCapacityExceeded = "KV_CAPACITY_EXCEEDED";        // INVALID_ARGUMENT
inline constexpr absl::string_view kReasonQueueFull = "QUEUE_FULL";                           // RESOURCE_EXHAUSTED
inline constexpr absl::string_view kReasonQueueWaitTooLong = "QUEUE_WAIT_TOO_LONG";           // RESOURCE_EXHAUSTED
inline constexpr absl::string_view kReasonDraining = "DRAINING";                              // UNAVAILABLE
inline constexpr absl::string_view kReasonStopped = "STOPPED";                                // UNAVAILABLE
inline constexpr absl::string_view kReasonNonfiniteLogits = "NONFINITE_LOGITS";               // INTERNAL
// A TokenConstraint lets nothing come next and is not complete: FAILED_PRECONDITION; it refused a token that it had allowed:
// INTERNAL.
inline constexpr absl::string_view kReasonNoTokenAllowed = "NO_TOKEN_ALLOWED";
inline constexpr absl::string_view kReasonConstraintFailed = "CONSTRAINT_FAILED";
inline constexpr absl::string_view kReasonDeviceFault = "DEVICE_FAULT";                       // INTERNAL

inline constexpr absl::string_view kReasonPayloadUrl = "sluice/error-reason";

// `status` with `reason` attached. REQUIRES: !status.ok().
inline absl::Status WithReason(absl::Status status, absl::string_view reason) {
  status.SetPayload(kReasonPayloadUrl, absl::Cord(reason));
  return status;
}

// The reason attached to `status`; empty if there is none.
inline std::string ReasonOf(const absl::Status& status) {
  absl::optional<absl::Cord> payload = status.GetPayload(kReasonPayloadUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace sluice
