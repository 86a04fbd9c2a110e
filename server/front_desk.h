// What every service needs: the model once it is there, the calls in progress, and the threads that read requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "server/call_registry.h"
#include "server/health_state.h"
#include "server/ingress.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/request_message.h"
#include "server/served_model.h"

namespace sluice {

struct FrontDesk {
  FrontDesk(const ServerOptions& server_options, const MetricsOptions& metrics_options, const Clock& real_clock)
      : options(server_options),
        clock(real_clock),
        metrics(metrics_options),
        ingress(kIngressThreads, server_options.limits.max_queued_requests,
                4 * server_options.limits.max_request_bytes),
        tokenizer_ingress(1, server_options.limits.max_queued_requests, 4 * server_options.limits.max_request_bytes) {
  }

  // UNAVAILABLE with its reason while there is no model, or while nothing new is taken.
  absl::StatusOr<ServedModel*> ModelForCall() const;

  RequestLimits request_limits() const {
    return {.max_bytes = options.limits.max_request_bytes, .accept_compression = options.limits.accept_compression};
  }

  static constexpr int kIngressThreads = 2;

  const ServerOptions options;
  const Clock& clock;
  const int64_t start_time_ns = NowSinceEpochNs();
  Metrics metrics;
  HealthState health;
  CallRegistry calls;
  std::atomic<ServedModel*> model{nullptr};  // set once
  // Last: their tasks use all of the above. Generation has threads of its own: nobody's long text to tokenise holds it
  // up.
  Ingress ingress;
  Ingress tokenizer_ingress;

  static int64_t NowSinceEpochNs();
};

}  // namespace sluice
