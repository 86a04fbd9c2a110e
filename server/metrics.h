// The one table of Prometheus families. Counters and histograms are fed by the threads that see the events; what the
// engine knows itself (queue, KV blocks, token counts) is read from it at the moment of a scrape, so it is right when
// the engine is idle too. All series exist from the start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

struct FinishedCall {
  CallOutcome outcome = CallOutcome::kStop;
  int32_t num_choices = 1;
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;
  int32_t num_generation_tokens = 0;  // of all choices
  int32_t max_tokens = 0;
  int64_t arrival_ns = 0;     // Clock, at the server
  RequestTimings timings;     // of the engine
  int64_t last_token_ns = 0;  // Clock; 0: no token
};

struct MetricsOptions {
  std::string model;  // label of everything that a model does
  std::string version;
  bool vllm_aliases = false;  // every family that vLLM has, once more under its name there
};

// What the gauges show, asked for at every scrape.
struct MetricsSnapshot {
  EngineStats engine;  // zeros while there is no engine
  int32_t block_size = 0;
  bool healthy = true;
  bool draining = false;
  int64_t log_lines_dropped = 0;
  int64_t output_held_bytes = 0, output_cut = 0;
  double model_load_seconds = 0;
  uint64_t model_weight_bytes = 0, kv_cache_bytes = 0;
  std::string architecture, weight_type, activations, kv_type, device;
  std::vector<ListenerSnapshot> listeners;
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options);
  ~Metrics();

  void ObserveStep(const StepStats& stats);
  void ObserveTimeToFirstToken(double seconds);
  // `count` tokens that came with this distance each.
  void ObserveInterTokenLatency(double seconds, int count);
  void ObserveFinished(const FinishedCall& call);
  // A call that never reached the engine.
  void CountRefused(CallOutcome outcome);
  void CountGrpc(absl::StatusCode code);
  // How long one write to a client took while more output was waiting for it.
  void ObserveBackpressure(double seconds);

  // Once, before the first scrape that is to show an engine. `source` may be called until the Metrics are gone.
  void SetSource(std::function<MetricsSnapshot()> source);

  // All families in the text format, version 0.0.4.
  std::string Serialize() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
