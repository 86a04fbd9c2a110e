// Errors of calls: an absl::Status with google.rpc details attached as payloads, and what a client is told of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/error_reason.h"
#include "google/rpc/status.pb.h"

namespace sluice {

// Reasons that the server adds to the engine's (engine/error_reason.h).
inline constexpr absl::string_view kReasonNotImplemented = "FEATURE_NOT_IMPLEMENTED";  // UNIMPLEMENTED
inline constexpr absl::string_view kReasonNoTokenizer = "NO_TOKENIZER";                // FAILED_PRECONDITION
inline constexpr absl::string_view kReasonNoChatTemplate = "NO_CHAT_TEMPLATE";         // FAILED_PRECONDITION
inline constexpr absl::string_view kReasonChatTemplateBroken = "CHAT_TEMPLATE_BROKEN";  // FAILED_PRECONDITION
inline constexpr absl::string_view kReasonChatTemplateFailed = "CHAT_TEMPLATE_FAILED";  // FAILED_PRECONDITION
inline constexpr absl::string_view kReasonModelNotFound = "MODEL_NOT_FOUND";           // NOT_FOUND
inline constexpr absl::string_view kReasonRequestNotFound = "REQUEST_NOT_FOUND";       // NOT_FOUND
inline constexpr absl::string_view kReasonServiceUnknown = "SERVICE_UNKNOWN";          // NOT_FOUND
inline constexpr absl::string_view kReasonRequestIdInUse = "REQUEST_ID_IN_USE";        // ALREADY_EXISTS
inline constexpr absl::string_view kReasonLoading = "LOADING";                         // UNAVAILABLE
inline constexpr absl::string_view kReasonCancelled = "CANCELLED";                     // CANCELLED
inline constexpr absl::string_view kReasonDeadline = "DEADLINE";                       // DEADLINE_EXCEEDED
inline constexpr absl::string_view kReasonSlowConsumer = "SLOW_CONSUMER";              // ABORTED
inline constexpr absl::string_view kReasonMalformedRequest = "MALFORMED_REQUEST";      // INVALID_ARGUMENT
inline constexpr absl::string_view kReasonRequestTooLarge = "REQUEST_TOO_LARGE";       // RESOURCE_EXHAUSTED
inline constexpr absl::string_view kReasonCompressionNotAccepted = "COMPRESSION_NOT_ACCEPTED";  // UNIMPLEMENTED
inline constexpr absl::string_view kReasonAnswerTooLarge = "ANSWER_TOO_LARGE";         // RESOURCE_EXHAUSTED
inline constexpr absl::string_view kReasonOutputOverflow = "OUTPUT_OVERFLOW";          // RESOURCE_EXHAUSTED
inline constexpr absl::string_view kReasonTemplateTooCostly = "CHAT_TEMPLATE_TOO_COSTLY";  // RESOURCE_EXHAUSTED

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

// An error with a reason and, for machines, the numbers behind it.
absl::Status CallError(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                       const ErrorMetadata& metadata = {});

// INVALID_ARGUMENT: `field` is the path of the request's field ("options.top_p"), `description` says what was found and
// what was expected.
absl::Status InvalidField(absl::string_view field, absl::string_view description,
                          absl::string_view reason = kReasonInvalidField, const ErrorMetadata& metadata = {});

// UNIMPLEMENTED, naming the field of a feature that this server does not have.
absl::Status UnimplementedField(absl::string_view field);

// FAILED_PRECONDITION: text is asked of a model that has only token ids.
absl::Status NoTokenizerError();

// CANCELLED: there is no client any more.
absl::Status ClientLeftError();

// ABORTED: the client, or all of its connection, leaves too much output unread.
absl::Status SlowConsumerError();

// RESOURCE_EXHAUSTED: the answer of a unary call is larger than the server holds for a connection.
absl::Status AnswerTooLargeError(int64_t max_bytes);

// RESOURCE_EXHAUSTED: the engine makes output faster than it can be made into events, and this call's found no room.
absl::Status OutputOverflowError(int64_t max_bytes);

// `status` with more metadata behind its reason.
absl::Status WithMetadata(absl::Status status, const ErrorMetadata& metadata);

// A user's string for an error message: quoted, cut after 64 bytes, with nothing unprintable in it.
std::string Quoted(absl::string_view text);

// What a client is told: ErrorInfo always, BadRequest where a field is to blame, RetryInfo where trying again helps, with
// the delay that the status carries (engine/retry_after.h), else a second. Long texts are cut between two characters.
// REQUIRES: !status.ok()
google::rpc::Status ToRpcStatus(const absl::Status& status);

// How long to wait before another try if it is the queue that refused; nullopt for any other status.
std::optional<absl::Duration> QueueRetryDelay(const absl::Status& status);

}  // namespace sluice
