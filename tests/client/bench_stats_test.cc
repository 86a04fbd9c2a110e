#include "client/cli/bench_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace sluice::cli {
namespace {

constexpr int64_t kMs = 1'000'000;

// Sent at `sent` ms, tokens at `tokens`, over at `done`.
RequestRecord Succeeded(int64_t sent, const std::vector<int64_t>& tokens, int64_t done) {
  RequestRecord record;
  record.ok = true;
  record.sent_ns = sent * kMs;
  for (int64_t t : tokens) record.delta_ns.push_back(t * kMs);
  record.done_ns = done * kMs;
  record.prompt_tokens = 10;
  record.completion_tokens = int64_t(tokens.size());
  return record;
}

RequestRecord Failed(int64_t sent, int64_t done, const std::string& error) {
  RequestRecord record;
  record.error = error;
  record.sent_ns = sent * kMs;
  record.done_ns = done * kMs;
  return record;
}

TEST(Percentile, IsLinearBetweenTheSortedValues) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile(values, 1), 40);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.9), 37);  // 2.7 of 3 steps
  EXPECT_DOUBLE_EQ(Percentile({7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(Percentile({}, 0.5), 0);
}

TEST(Percentile, OfTheNumbersToAHundredIsTheNumber) {
  std::vector<double> values;
  for (int i = 0; i <= 100; ++i) values.push_back(i);
  const Summary summary = Summarise(values);
  EXPECT_DOUBLE_EQ(summary.mean, 50);
  EXPECT_DOUBLE_EQ(summary.p50, 50);
  EXPECT_DOUBLE_EQ(summary.p90, 90);
  EXPECT_DOUBLE_EQ(summary.p99, 99);
  EXPECT_DOUBLE_EQ(summary.max, 100);
}

TEST(BenchReport, DefinesItsTimesPerRequest) {
  // TTFT 20, gaps 10 and 30, e2e 65, so TPOT 45 / 2 and NTPOT 65 / 3.
  const BenchReport report = MakeReport({Succeeded(100, {120, 130, 160}, 165)});
  EXPECT_DOUBLE_EQ(report.ttft_ms.p50, 20);
  EXPECT_DOUBLE_EQ(report.itl_ms.mean, 20);
  EXPECT_DOUBLE_EQ(report.itl_ms.max, 30);
  EXPECT_DOUBLE_EQ(report.e2e_ms.p50, 65);
  EXPECT_DOUBLE_EQ(report.tpot_ms.p50, 22.5);
  EXPECT_DOUBLE_EQ(report.ntpot_ms.p50, 65.0 / 3);
}

TEST(BenchReport, RatesSpanFirstSendToLastEnd) {
  const BenchReport report = MakeReport({Succeeded(1000, {1100, 1200}, 1500), Succeeded(500, {600, 2500}, 2500),
                                         Failed(600, 700, "UNAVAILABLE DRAINING")});
  EXPECT_EQ(report.succeeded, 2);
  EXPECT_EQ(report.failed, 1);
  EXPECT_DOUBLE_EQ(report.duration_s, 2);
  EXPECT_DOUBLE_EQ(report.requests_per_s, 1);
  EXPECT_DOUBLE_EQ(report.output_tokens_per_s, 2);
  EXPECT_DOUBLE_EQ(report.total_tokens_per_s, 12);
}

TEST(BenchReport, CountsErrorsByReasonAndKeepsThemOutOfTheTimes) {
  const BenchReport report =
      MakeReport({Failed(0, 5000, "RESOURCE_EXHAUSTED QUEUE_FULL"), Failed(0, 1, "RESOURCE_EXHAUSTED QUEUE_FULL"),
                  Failed(0, 1, "DEADLINE_EXCEEDED"), Succeeded(0, {1}, 2)});
  EXPECT_EQ(report.errors,
            (std::map<std::string, int64_t>{{"RESOURCE_EXHAUSTED QUEUE_FULL", 2}, {"DEADLINE_EXCEEDED", 1}}));
  EXPECT_DOUBLE_EQ(report.e2e_ms.max, 2);
}

TEST(BenchReport, OneTokenHasNoGapAndNoTpot) {
  const BenchReport report = MakeReport({Succeeded(0, {5}, 6)});
  EXPECT_DOUBLE_EQ(report.ttft_ms.p50, 5);
  EXPECT_DOUBLE_EQ(report.itl_ms.max, 0);
  EXPECT_DOUBLE_EQ(report.tpot_ms.max, 0);
}

TEST(BenchReport, IsAllZeroWithoutRequests) {
  const BenchReport report = MakeReport({});
  EXPECT_EQ(report.succeeded + report.failed, 0);
  EXPECT_EQ(report.duration_s, 0);
  EXPECT_EQ(report.output_tokens_per_s, 0);
}

TEST(BenchReport, GoodputIsTheShareWithinEveryGoal) {
  const std::vector<RequestRecord> records = {
      Succeeded(0, {10, 20}, 20),  // TTFT 10, TPOT 10, e2e 20
      Succeeded(0, {50, 60}, 60),  // TTFT 50, TPOT 10, e2e 60
      Succeeded(0, {10, 90}, 90),  // TTFT 10, TPOT 80, e2e 90
      Failed(0, 1, "UNAVAILABLE"),
  };
  EXPECT_FALSE(MakeReport(records).goodput.has_value());
  const auto goodput = [&](Goals goals) { return MakeReport(records, goals).goodput.value(); };
  EXPECT_DOUBLE_EQ(goodput({.ttft_ms = 20, .tpot_ms = {}, .e2e_ms = {}}), 0.5);
  EXPECT_DOUBLE_EQ(goodput({.ttft_ms = {}, .tpot_ms = 20, .e2e_ms = {}}), 0.5);
  EXPECT_DOUBLE_EQ(goodput({.ttft_ms = {}, .tpot_ms = {}, .e2e_ms = 100}), 0.75);
  EXPECT_DOUBLE_EQ(goodput({.ttft_ms = 20, .tpot_ms = 20, .e2e_ms = {}}), 0.25);
}

TEST(BenchReport, JsonHoldsEverything) {
  BenchReport report = MakeReport({Succeeded(0, {10, 20}, 20), Failed(0, 1, "UNAVAILABLE")},
                                  {.ttft_ms = 20, .tpot_ms = {}, .e2e_ms = {}});
  const auto json = nlohmann::json::parse(ToJson(report));
  EXPECT_EQ(json["succeeded"], 1);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["errors"]["UNAVAILABLE"], 1);
  EXPECT_EQ(json["goodput"], 0.5);
  for (const char* name : {"ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "ntpot_ms"}) {
    for (const char* statistic : {"mean", "p50", "p90", "p99", "max"}) {
      EXPECT_TRUE(json[name][statistic].is_number()) << name << " " << statistic;
    }
  }
  for (const char* name : {"duration_s", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s"}) {
    EXPECT_TRUE(json[name].is_number()) << name;
  }
}

TEST(BenchReport, TextNamesEachMeasureAndError) {
  const std::string text = ToText(MakeReport({Succeeded(0, {10, 20}, 20), Failed(0, 1, "UNAVAILABLE DRAINING")}));
  for (const char* word : {"1 requests succeeded", "1 failed", "TTFT", "ITL", "TPOT", "e2e", "p50", "p90", "p99",
                           "1 x UNAVAILABLE DRAINING"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
  }
}

TEST(PoissonTimes, RepeatWithTheSeed) {
  EXPECT_EQ(PoissonTimes(100, 10, 7), PoissonTimes(100, 10, 7));
  EXPECT_NE(PoissonTimes(100, 10, 7), PoissonTimes(100, 10, 8));
  EXPECT_EQ(PoissonTimes(1, 10, 7), std::vector<double>{0});
}

TEST(PoissonTimes, GapsAreExponential) {
  constexpr int kCount = 20'001;
  constexpr double kRate = 50;
  const std::vector<double> times = PoissonTimes(kCount, kRate, 1);
  double sum = 0, squares = 0;
  int longer_than_mean = 0;
  for (int i = 1; i < kCount; ++i) {
    const double gap = times[size_t(i)] - times[size_t(i) - 1];
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    longer_than_mean += gap > 1 / kRate ? 1 : 0;
  }
  const double n = kCount - 1, mean = sum / n;
  // The seed is fixed, so these cannot flake; the bounds are five standard errors.
  EXPECT_NEAR(mean * kRate, 1, 0.035);
  EXPECT_NEAR(std::sqrt(squares / n - mean * mean) * kRate, 1, 0.07);  // deviation = mean
  EXPECT_NEAR(longer_than_mean / n, std::exp(-1), 0.02);
}

}  // namespace
}  // namespace sluice::cli
