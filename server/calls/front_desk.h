// What every service needs: the model once it is there, and the threads that read requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "server/calls/health_state.h"
#include "server/calls/ingress.h"
#include "server/calls/output_budget.h"
#include "server/calls/served_model.h"
#include "server/metrics.h"
#include "server/options.h"

namespace sluice {

struct FrontDesk {
  FrontDesk(const ServerOptions& server_options, const MetricsOptions& metrics_options, const Clock& real_clock)
      : options(server_options),
        clock(real_clock),
        metrics(metrics_options),
        output({.connection_bytes = server_options.limits.max_connection_buffer_bytes,
                .total_bytes = server_options.limits.max_total_buffer_bytes}),
        ingress(kIngressThreads, 2 * server_options.limits.max_queued_requests,
                kMaxRequestsInBytes * server_options.limits.max_request_bytes, real_clock),
        tokenizer_ingress(kIngressThreads, 2 * server_options.limits.max_queued_requests,
                          kMaxRequestsInBytes * server_options.limits.max_request_bytes, real_clock) {}

  // UNAVAILABLE with its reason while there is no model, or while nothing new is taken.
  absl::StatusOr<ServedModel*> ModelForCall() const;

  static constexpr int kIngressThreads = 2;
  static constexpr int64_t kMaxRequestsInBytes = 8;  // of the largest size may wait; one client's half as many

  const ServerOptions options;
  const Clock& clock;
  const int64_t start_time_ns = NowSinceEpochNs();
  Metrics metrics;
  OutputBudget output;
  HealthState health;
  std::atomic<ServedModel*> model{nullptr};  // set once
  // Last: their tasks use all of the above. Generation has threads of its own: nobody's long text to tokenise holds it
  // up.
  Ingress ingress;
  Ingress tokenizer_ingress;

  static int64_t NowSinceEpochNs();
};

}  // namespace sluice
