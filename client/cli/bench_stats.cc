#include "client/cli/bench_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_format.h"

namespace sluice::cli {
namespace {

constexpr double kAnyTime = std::numeric_limits<double>::infinity();

}  // namespace

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = p * double(values.size() - 1);
  const size_t low = size_t(at), high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - double(low)) * (values[high] - values[low]);
}

Summary Summarise(const std::vector<double>& values) {
  if (values.empty()) return {};
  double sum = 0;
  for (double v : values) sum += v;
  return {int64_t(values.size()),  sum / double(values.size()), Percentile(values, 0.5),
          Percentile(values, 0.9), Percentile(values, 0.99),    *std::max_element(values.begin(), values.end())};
}

BenchReport MakeReport(const std::vector<RequestRecord>& records, const Goals& goals) {
  BenchReport report;
  std::vector<double> ttft, itl, tpot, e2e, ntpot;
  int64_t first = INT64_MAX, last = 0, output = 0, prompt = 0, good = 0;
  for (const RequestRecord& record : records) {
    first = std::min(first, record.sent_ns);
    last = std::max(last, record.done_ns);
    if (!record.ok) {
      ++report.failed;
      ++report.errors[record.error];
      report.error_messages.emplace(record.error, record.error_message);
      continue;
    }
    ++report.succeeded;
    output += record.completion_tokens;
    prompt += record.prompt_tokens;
    e2e.push_back(double(record.done_ns - record.sent_ns) / 1e6);
    bool in_time = e2e.back() <= goals.e2e_ms.value_or(kAnyTime);
    if (!record.delta_ns.empty()) {
      ttft.push_back(double(record.delta_ns.front() - record.sent_ns) / 1e6);
      in_time = in_time && ttft.back() <= goals.ttft_ms.value_or(kAnyTime);
      for (size_t i = 1; i < record.delta_ns.size(); ++i)
        itl.push_back(double(record.delta_ns[i] - record.delta_ns[i - 1]) / 1e6);
      if (record.completion_tokens > 1) {
        tpot.push_back((e2e.back() - ttft.back()) / double(record.completion_tokens - 1));
        in_time = in_time && tpot.back() <= goals.tpot_ms.value_or(kAnyTime);
      }
    }
    if (record.completion_tokens > 0) ntpot.push_back(e2e.back() / double(record.completion_tokens));
    if (in_time) ++good;
  }
  report.duration_s = records.empty() ? 0 : double(last - first) / 1e9;
  if (report.duration_s > 0) {
    report.requests_per_s = double(report.succeeded) / report.duration_s;
    report.output_tokens_per_s = double(output) / report.duration_s;
    report.total_tokens_per_s = double(output + prompt) / report.duration_s;
  }
  if (goals.any() && !records.empty()) report.goodput = double(good) / double(records.size());
  report.ttft_ms = Summarise(ttft);
  report.itl_ms = Summarise(itl);
  report.tpot_ms = Summarise(tpot);
  report.e2e_ms = Summarise(e2e);
  report.ntpot_ms = Summarise(ntpot);
  return report;
}

std::string ToText(const BenchReport& report) {
  std::string text = absl::StrFormat(
      "%d requests succeeded, %d failed, in %.2f s: %.2f requests/s, %.1f output tokens/s, %.1f tokens/s\n",
      report.succeeded, report.failed, report.duration_s, report.requests_per_s, report.output_tokens_per_s,
      report.total_tokens_per_s);
  if (report.succeeded == 0) return text + ErrorsToText(report);
  absl::StrAppendFormat(&text, "%-9s %9s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90", "p99", "max");
  const auto row = [&](const char* name, const Summary& s) {
    if (s.count == 0) {
      absl::StrAppendFormat(&text, "%-9s %9s %9s %9s %9s %9s\n", name, "-", "-", "-", "-", "-");
    } else {
      absl::StrAppendFormat(&text, "%-9s %9.2f %9.2f %9.2f %9.2f %9.2f\n", name, s.mean, s.p50, s.p90, s.p99, s.max);
    }
  };
  row("TTFT", report.ttft_ms);
  row("ITL", report.itl_ms);
  row("TPOT", report.tpot_ms);
  row("e2e", report.e2e_ms);
  row("NTPOT", report.ntpot_ms);
  if (report.goodput) absl::StrAppendFormat(&text, "goodput %.1f %%\n", 100 * *report.goodput);
  return text + ErrorsToText(report);
}

std::string ErrorsToText(const BenchReport& report) {
  std::string text;
  for (const auto& [error, count] : report.errors) {
    const std::string& message = report.error_messages.at(error);
    absl::StrAppendFormat(&text, "%d x %s%s%s\n", count, error, message.empty() ? "" : ": ", message);
  }
  return text;
}

std::string ToJson(const BenchReport& report) {
  const auto summary = [](const Summary& s) {
    if (s.count == 0) return nlohmann::ordered_json(nullptr);
    return nlohmann::ordered_json{{"mean", s.mean}, {"p50", s.p50}, {"p90", s.p90}, {"p99", s.p99}, {"max", s.max}};
  };
  nlohmann::ordered_json object = {{"succeeded", report.succeeded},
                                   {"failed", report.failed},
                                   {"duration_s", report.duration_s},
                                   {"requests_per_s", report.requests_per_s},
                                   {"output_tokens_per_s", report.output_tokens_per_s},
                                   {"total_tokens_per_s", report.total_tokens_per_s},
                                   {"ttft_ms", summary(report.ttft_ms)},
                                   {"itl_ms", summary(report.itl_ms)},
                                   {"tpot_ms", summary(report.tpot_ms)},
                                   {"e2e_ms", summary(report.e2e_ms)},
                                   {"ntpot_ms", summary(report.ntpot_ms)},
                                   {"errors", report.errors}};
  if (report.goodput) object["goodput"] = *report.goodput;
  return object.dump(2);
}

std::vector<double> PoissonTimes(int64_t count, double rate_per_s, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> times;
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    times.push_back(now);
    // 53 random bits in (0, 1]: the standard distributions differ between libraries, this does not.
    const double u = (double(random() >> 11) + 1) * 0x1p-53;
    now += -std::log(u) / rate_per_s;
  }
  return times;
}

}  // namespace sluice::cli
