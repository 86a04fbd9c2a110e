#include "server/calls/status.h"

#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/retry_after.h"
#include "google/rpc/error_details.pb.h"

namespace sluice {
namespace {

constexpr absl::string_view kDomain = "sluice";
constexpr absl::string_view kErrorInfoUrl = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr absl::string_view kBadRequestUrl = "type.googleapis.com/google.rpc.BadRequest";
// Status and details travel in HTTP/2 headers, of which peers accept 8 KiB by default.
constexpr size_t kMaxMessageBytes = 1024;

// The beginning of a UTF-8 text, of whole characters: what is not UTF-8 is no string of protobuf.
std::string Cut(absl::string_view text) {
  if (text.size() <= kMaxMessageBytes) return std::string(text);
  size_t end = kMaxMessageBytes;
  while (end > 0 && (uint8_t(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

template <class Message>
void SetPayload(absl::Status* status, absl::string_view url, const Message& message) {
  status->SetPayload(url, absl::Cord(message.SerializeAsString()));
}

// Another try of a call that is too large itself would only repeat the work.
bool QueueIsFull(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return status.code() == absl::StatusCode::kResourceExhausted && reason != kReasonAnswerTooLarge &&
         reason != kReasonRequestTooLarge && reason != kReasonOutputOverflow && reason != kReasonTemplateTooCostly;
}

// When another try should succeed: by the pace of what refused, or a moment where nobody knows.
absl::Duration RetryDelay(const absl::Status& status) { return RetryAfterOf(status).value_or(absl::Seconds(1)); }

google::rpc::ErrorInfo InfoOf(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  if (auto payload = status.GetPayload(kErrorInfoUrl)) info.ParseFromString(std::string(*payload));
  if (info.reason().empty()) info.set_reason(ReasonOf(status));
  if (info.reason().empty()) info.set_reason(absl::StatusCodeToString(status.code()));
  info.set_domain(std::string(kDomain));
  return info;
}

absl::Status FieldError(absl::StatusCode code, absl::string_view field, absl::string_view description,
                        absl::string_view reason, const ErrorMetadata& metadata) {
  absl::Status status = CallError(code, reason, absl::StrCat(field, ": ", description), metadata);
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field(std::string(field));
  violation->set_description(std::string(description));
  SetPayload(&status, kBadRequestUrl, bad_request);
  return status;
}

}  // namespace

absl::Status WithMetadata(absl::Status status, const ErrorMetadata& metadata) {
  google::rpc::ErrorInfo info = InfoOf(status);
  for (const auto& [key, value] : metadata) (*info.mutable_metadata())[key] = value;
  SetPayload(&status, kErrorInfoUrl, info);
  return status;
}

absl::Status CallError(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                       const ErrorMetadata& metadata) {
  return WithMetadata(WithReason(absl::Status(code, message), reason), metadata);
}

absl::Status InvalidField(absl::string_view field, absl::string_view description, absl::string_view reason,
                          const ErrorMetadata& metadata) {
  return FieldError(absl::StatusCode::kInvalidArgument, field, description, reason, metadata);
}

absl::Status UnimplementedField(absl::string_view field) {
  return FieldError(absl::StatusCode::kUnimplemented, field, "not supported by this server; leave the field out",
                    kReasonNotImplemented, {});
}

absl::Status NoTokenizerError() {
  return CallError(absl::StatusCode::kFailedPrecondition, kReasonNoTokenizer,
                   "the model has no tokenizer; send token ids");
}

absl::Status ClientLeftError() {
  return CallError(absl::StatusCode::kCancelled, kReasonCancelled, "the client has left");
}

absl::Status SlowConsumerError() {
  return CallError(absl::StatusCode::kAborted, kReasonSlowConsumer,
                   "the client does not read: too much output waits for its connection (--max-connection-buffer), or for "
                   "all (--max-total-buffer) and most of it for this call");
}

absl::Status AnswerTooLargeError(int64_t max_bytes) {
  return CallError(absl::StatusCode::kResourceExhausted, kReasonAnswerTooLarge,
                   absl::StrCat("the answer is over ", max_bytes,
                                " bytes (--max-connection-buffer); ask for a stream or for less"));
}

absl::Status OutputOverflowError(int64_t max_bytes) {
  return CallError(absl::StatusCode::kResourceExhausted, kReasonOutputOverflow,
                   absl::StrCat("output is made faster than the server can send it on, and more than ", max_bytes,
                                " bytes of it wait; ask for fewer log-probabilities"));
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kMaxBytes = 64;
  const bool cut = text.size() > kMaxBytes;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMaxBytes)), cut ? "...'" : "'");
}

std::optional<absl::Duration> QueueRetryDelay(const absl::Status& status) {
  if (!QueueIsFull(status)) return std::nullopt;
  return RetryDelay(status);
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status rich;
  rich.set_code(static_cast<int>(status.code()));
  rich.set_message(Cut(status.message()));
  rich.add_details()->PackFrom(InfoOf(status));
  if (auto payload = status.GetPayload(kBadRequestUrl)) {
    google::rpc::BadRequest bad_request;
    bad_request.ParseFromString(std::string(*payload));
    for (auto& violation : *bad_request.mutable_field_violations()) {
      violation.set_description(Cut(violation.description()));
    }
    rich.add_details()->PackFrom(bad_request);
  }
  if (QueueIsFull(status) || status.code() == absl::StatusCode::kUnavailable) {
    google::rpc::RetryInfo retry;
    const int64_t delay_ms = absl::ToInt64Milliseconds(RetryDelay(status));
    retry.mutable_retry_delay()->set_seconds(delay_ms / 1000);
    retry.mutable_retry_delay()->set_nanos(int32_t(delay_ms % 1000 * 1000000));
    rich.add_details()->PackFrom(retry);
  }
  return rich;
}

}  // namespace sluice
