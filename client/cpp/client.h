// The C++ client of a Sluice server: synchronous calls, callback streams that cancel themselves when their handle goes,
// and errors as absl::Status with what the server said about them. Needs no gRPC header to be used.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sluice/v1/admin.pb.h"
#include "sluice/v1/generation.pb.h"
#include "sluice/v1/model.pb.h"
#include "sluice/v1/tokenizer.pb.h"

namespace sluice::client {

struct ClientOptions {
  // UNAVAILABLE is tried again, 4 attempts in all, from 0.1 s to 2 s apart, until the first byte of an answer has come.
  bool retry_unavailable = true;
  // Watches the health of each address and sends calls only to those that serve; CheckHealth then asks no other.
  bool avoid_unhealthy = false;
  int max_message_bytes = 256 << 20;
  // A TCP connection of its own instead of the process-wide shared one; load tests want many.
  bool own_connection = false;
  // A connection with calls that brings nothing for so long is asked whether it still lives; without an answer in time
  // its calls end with UNAVAILABLE. A Sluice server allows a ping every 10 s.
  std::chrono::milliseconds keepalive_time{30'000};
  std::chrono::milliseconds keepalive_timeout{10'000};
};

struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout;           // the call's deadline
  std::vector<std::pair<std::string, std::string>> metadata;  // keys in lower case
};

struct FieldViolation {
  std::string field;
  std::string description;
};

// What a server says about an error beside its code and message (google.rpc error details).
struct ErrorDetails {
  std::string reason;  // "QUEUE_FULL"; empty if the server gave none
  std::vector<FieldViolation> fields;
  std::optional<std::chrono::milliseconds> retry_after;
};
ErrorDetails GetErrorDetails(const absl::Status& status);

// Called on a thread of the library, one at a time per stream; must not block for long. Unset members are skipped.
struct StreamHandler {
  std::function<void(const v1::Started&)> on_started;
  std::function<void(const v1::Delta&)> on_delta;
  std::function<void(const v1::ChoiceFinished&)> on_choice_finished;
  std::function<void(const v1::Completed&)> on_completed;
  // Last, exactly once, on success too. A stream that ends with OK but without `completed` is reported as DATA_LOSS.
  std::function<void(const absl::Status&)> on_done;
};

// A running stream. The destructor cancels it and waits until on_done has returned; so does Wait without cancelling,
// and neither may be called from a handler.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void Cancel() = 0;        // thread-safe, returns at once, may be repeated
  virtual absl::Status Wait() = 0;  // until on_done has returned
};

enum class HealthStatus { kServing, kNotServing, kServiceUnknown };

// Thread-safe.
class Client {
 public:
  // `target` is host:port or any gRPC name ("dns:///sluice:50051"; addresses of one name share the load). Does not
  // connect yet. Errors of the connection itself are UNAVAILABLE and name the target.
  static std::unique_ptr<Client> Create(const std::string& target, const ClientOptions& options = {});
  virtual ~Client() = default;

  virtual absl::StatusOr<v1::CompleteResponse> Complete(const v1::CompleteRequest& request,
                                                        const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ChatResponse> Chat(const v1::ChatRequest& request, const CallOptions& options = {}) = 0;
  virtual std::unique_ptr<Stream> StreamComplete(const v1::StreamCompleteRequest& request, StreamHandler handler,
                                                 const CallOptions& options = {}) = 0;
  virtual std::unique_ptr<Stream> StreamChat(const v1::StreamChatRequest& request, StreamHandler handler,
                                             const CallOptions& options = {}) = 0;
  virtual absl::Status CancelRequest(const std::string& request_id, const CallOptions& options = {}) = 0;

  virtual absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request,
                                                        const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                                            const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::RenderChatResponse> RenderChat(const v1::RenderChatRequest& request,
                                                            const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::ListModelsResponse> ListModels(const CallOptions& options = {}) = 0;

  // grpc.health.v1; the empty name is the server as a whole.
  virtual absl::StatusOr<HealthStatus> CheckHealth(const std::string& service, const CallOptions& options = {}) = 0;

  // The admin port only.
  virtual absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::GetLoadResponse> GetLoad(const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<v1::DrainResponse> Drain(const CallOptions& options = {}) = 0;
};

}  // namespace sluice::client
