// What a load test measures, after inference-perf's definitions: TTFT = first token - send; ITL = each gap between two
// deltas; TPOT = (e2e - TTFT) / (tokens - 1) of a request; e2e = last event - send; NTPOT = e2e / tokens; goodput = the
// share of the requests that succeeded within every limit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

struct RequestRecord {
  bool ok = false;
  std::string error;          // code and reason, if not ok
  std::string error_message;  // what else the server said
  int64_t sent_ns = 0;
  std::vector<int64_t> delta_ns;  // arrival of each delta that brought a token
  int64_t done_ns = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0;
};

// The value below which the share p (0 to 1) of the values lies, linear between neighbours; 0 for no values.
double Percentile(std::vector<double> values, double p);

struct Summary {
  int64_t count = 0;  // 0: nothing was measured, and the rest means nothing
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Summary Summarise(const std::vector<double>& values);

// Limits of a request in ms; unset: any. One that had no second token is within any TPOT.
struct Goals {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
  bool any() const { return ttft_ms || tpot_ms || e2e_ms; }
};

struct BenchReport {
  int64_t succeeded = 0, failed = 0;
  double duration_s = 0;  // first send to last end
  double requests_per_s = 0, output_tokens_per_s = 0, total_tokens_per_s = 0;
  Summary ttft_ms, itl_ms, tpot_ms, e2e_ms, ntpot_ms;
  std::optional<double> goodput;  // 0 to 1, if there are goals
  std::map<std::string, int64_t> errors;              // by code and reason
  std::map<std::string, std::string> error_messages;  // of each, the first one's
};
BenchReport MakeReport(const std::vector<RequestRecord>& records, const Goals& goals = {});
// A table, with "-" for what was not measured; a list of the errors alone if no request succeeded.
std::string ToText(const BenchReport& report);
// The errors by reason: "64 x UNAVAILABLE: connection refused", one per line.
std::string ErrorsToText(const BenchReport& report);
// One object; what was not measured is null.
std::string ToJson(const BenchReport& report);

// Send times of a Poisson process, in seconds from the start: gaps are exponential with mean 1 / rate.
std::vector<double> PoissonTimes(int64_t count, double rate_per_s, uint64_t seed);

}  // namespace sluice::cli
