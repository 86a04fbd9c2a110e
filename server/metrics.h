// What happens in the server and what Prometheus is told of it. Whoever sees an event observes it here, with the model
// that it is of; what the engine knows itself (queue, KV blocks, token counts) is read from it at the moment of a
// scrape, so it is right when the engine is idle too. Which families follow from that: metric_table.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "server/net/connection_stats.h"

namespace sluice {

// How a generation call ended; the label `outcome` in lower case.
enum class CallOutcome {
  kStop,       // end token, stop token or stop string, for every choice
  kLength,     // a choice used up max_tokens or the context
  kCancelled,  // by the client, or its client left
  kDeadline,
  kRejected,  // before its first token: queue full, loading, draining
  kInvalid,   // the request could not be served as it was
  kError,     // our fault, a drain that did not wait to the end included, or a client that does not read
};

// Of a call that brought no output.
CallOutcome OutcomeOf(const absl::Status& status);

// Events. All but GrpcReply are of a model.

// Every generation call, refused ones included.
struct EndedCall {
  CallOutcome outcome = CallOutcome::kStop;
};

// A call that the engine took, at its end.
struct FinishedCall {
  int32_t num_choices = 1;
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;
  int32_t num_generation_tokens = 0;  // of all choices
  int32_t max_tokens = 0;
  int64_t arrival_ns = 0;     // Clock, at the server
  RequestTimings timings;     // of the engine
  int64_t last_token_ns = 0;  // Clock; 0: no token
};

struct FirstToken {
  double seconds = 0;  // since the call's arrival
};

// `count` tokens of a choice that came with this distance each.
struct LaterTokens {
  double seconds = 0;
  int count = 1;
};

// A write to a client while more output was waiting for that client.
struct SlowWrite {
  double seconds = 0;
};

// The end of a gRPC call of any service.
struct GrpcReply {
  absl::StatusCode code = absl::StatusCode::kOk;
};

// What is read at every scrape.

struct ModelSnapshot {
  std::string model = {};   // its label
  EngineStats engine = {};  // zeros while there is no engine
  int32_t block_size = 0;
  bool healthy = true;
  bool draining = false;
  double load_seconds = 0;
  uint64_t weight_bytes = 0, kv_cache_bytes = 0;
  std::string architecture = {}, weight_type = {}, activations = {}, kv_type = {}, device = {};
};

struct ServerSnapshot {
  std::vector<ModelSnapshot> models = {};
  int64_t log_lines_dropped = 0;
  int64_t output_held_bytes = 0, output_cut = 0;
  std::vector<ListenerSnapshot> listeners = {};
  std::string version = {};
};

struct MetricsOptions {
  std::vector<std::string> models = {};  // their series exist from the start, those of others from their first event
  std::string version = {};
  bool vllm_aliases = false;  // every family that vLLM has, once more under its name there
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options);
  ~Metrics();

  // `model`: an id that is served, never a name that a client chose, for each has series of its own.
  template <class Event>
  void Observe(absl::string_view model, const Event& event);
  void Observe(const GrpcReply& reply);

  // Once, before the first scrape that is to show an engine. `source` may be called until the Metrics are gone; it need
  // not fill in the version.
  void SetSource(std::function<ServerSnapshot()> source);

  // All families in the text format, version 0.0.4.
  std::string Serialize() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
