// The families: all there from the start, right after every event, clean for promtool, and again under vLLM's names.
#include "server/metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/metric_table.h"

namespace sluice {
namespace {

constexpr int64_t kMs = 1'000'000;

MetricsOptions Options(bool aliases = false) { return {.models = {"m"}, .version = "1.2.3", .vllm_aliases = aliases}; }

// The value of the series whose line starts with `name{` or `name ` and contains `label`.
double Value(const std::string& text, const std::string& name, const std::string& label = "") {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + "{", 0) != 0 && line.rfind(name + " ", 0) != 0) continue;
    if (line.find(label) == std::string::npos) continue;
    return std::stod(line.substr(line.rfind(' ') + 1));
  }
  ADD_FAILURE() << "no series " << name << " with " << label;
  return -1;
}

std::set<std::string> Families(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) names.insert(line.substr(7));
  }
  return names;
}

TEST(Metrics, EveryFamilyExistsFromTheStart) {
  std::set<std::string> expected;
  for (const MetricRow& row : MetricTable()) {
    if (!row.vllm_only()) expected.insert(absl::StrCat(row.name, " ", NameOf(row.kind)));
  }
  const std::string text = Metrics(Options()).Serialize();
  EXPECT_EQ(Families(text), expected);
  for (const char* outcome : {"stop", "length", "cancelled", "deadline", "rejected", "invalid", "error"}) {
    EXPECT_EQ(Value(text, "sluice_requests_total", "outcome=\"" + std::string(outcome) + "\""), 0);
  }
  for (const char* state : {"live", "cached", "free"}) {
    EXPECT_EQ(Value(text, "sluice_kv_blocks", "state=\"" + std::string(state) + "\""), 0);
  }
  EXPECT_EQ(Value(text, "sluice_build_info", "version=\"1.2.3\""), 1);
  EXPECT_GT(Value(text, "process_resident_memory_bytes"), 1e6);
  EXPECT_GT(Value(text, "process_open_fds"), 2);
  EXPECT_EQ(text.find("vllm:"), std::string::npos);
}

// The line of docs/metrics.md that says the same as `row`.
std::string DocumentLine(const MetricRow& row) {
  std::vector<std::string> labels = row.labels;
  if (row.per_model() && row.vllm_only()) labels.insert(labels.begin(), {"model_name", "engine"});
  if (row.per_model() && !row.vllm_only()) labels.insert(labels.begin(), "model");
  for (std::string& label : labels) label = absl::StrCat("`", label, "`");
  const std::string vllm = row.vllm_name.empty() ? "" : absl::StrCat("`", row.vllm_name, "`");
  return absl::StrCat("| `", row.name, "` | ", NameOf(row.kind), " | ", absl::StrJoin(labels, ", "), " | ", vllm, " | ",
                      row.help, " |");
}

// A name once published does not change: whoever changes a row changes the document, and sees it there.
TEST(Metrics, TheDocumentListsEveryFamily) {
  std::set<std::string> documented, expected;
  std::ifstream document(SLUICE_DOCS "/metrics.md");
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("| `")) documented.insert(line);
  }
  for (const MetricRow& row : MetricTable()) {
    expected.insert(DocumentLine(row));
    EXPECT_TRUE(documented.contains(DocumentLine(row))) << "docs/metrics.md has no line\n" << DocumentLine(row);
  }
  for (const std::string& line : documented) EXPECT_TRUE(expected.contains(line)) << "no metric is as in\n" << line;
}

TEST(Metrics, TheReadmeSaysWhatEachCounterCounts) {
  std::ostringstream readme;
  readme << std::ifstream(SLUICE_README).rdbuf();
  int num_counters = 0;
  for (const std::string& family : Families(Metrics(Options()).Serialize())) {
    const std::string name = family.substr(0, family.find(' '));
    if (family != name + " counter") continue;
    for (const char* about : {"request", "grpc", "tokens", "preemption", "prefix"}) {
      if (name.find(about) == std::string::npos) continue;
      ++num_counters;
      EXPECT_NE(readme.str().find("`" + name + "`"), std::string::npos) << name;
      break;
    }
  }
  EXPECT_GE(num_counters, 8);
}

TEST(Metrics, PromtoolFindsNothingToComplainAbout) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const std::string path = std::string(SLUICE_TEST_TEMP) + "/scrape.txt";
  std::ofstream(path) << Metrics(Options()).Serialize();
  EXPECT_EQ(std::system(("promtool check metrics < " + path).c_str()), 0);
}

TEST(Metrics, LatencyBucketsBeginAtOneMillisecond) {
  const std::string text = Metrics(Options()).Serialize();
  for (const char* name : {"time_to_first_token", "inter_token_latency", "time_per_output_token", "e2e_latency",
                           "queue_time", "prefill_time", "decode_time", "inference_time"}) {
    Value(text, "sluice_" + std::string(name) + "_seconds_bucket", "le=\"0.001\"");
  }
}

TEST(Metrics, AFinishedCallIsObservedEverywhere) {
  Metrics metrics(Options());
  FinishedCall call;
  call.num_prompt_tokens = 7;
  call.num_cached_tokens = 3;
  call.num_generation_tokens = 11;
  call.max_tokens = 100;
  call.arrival_ns = 1000 * kMs;
  call.timings = {.arrival_ns = 1001 * kMs,
                  .first_scheduled_ns = 1003 * kMs,
                  .first_token_ns = 1007 * kMs,
                  .finish_ns = 1030 * kMs};
  call.last_token_ns = 1027 * kMs;
  metrics.Observe("m", call);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Value(text, "sluice_prompt_tokens_cached_total"), 3);
  EXPECT_EQ(Value(text, "sluice_request_prompt_tokens_sum"), 7);
  EXPECT_EQ(Value(text, "sluice_request_generation_tokens_sum"), 11);
  EXPECT_EQ(Value(text, "sluice_request_max_tokens_sum"), 100);
  EXPECT_NEAR(Value(text, "sluice_e2e_latency_seconds_sum"), 0.030, 1e-9);
  EXPECT_NEAR(Value(text, "sluice_queue_time_seconds_sum"), 0.002, 1e-9);
  EXPECT_NEAR(Value(text, "sluice_prefill_time_seconds_sum"), 0.004, 1e-9);
  EXPECT_NEAR(Value(text, "sluice_decode_time_seconds_sum"), 0.020, 1e-9);
  EXPECT_NEAR(Value(text, "sluice_inference_time_seconds_sum"), 0.024, 1e-9);
  EXPECT_NEAR(Value(text, "sluice_time_per_output_token_seconds_sum"), 0.002, 1e-9);
}

TEST(Metrics, ACallThatNeverRanHasNoTimesOfRunning) {
  Metrics metrics(Options());
  FinishedCall call;
  call.arrival_ns = 1000 * kMs;
  call.timings.arrival_ns = 1000 * kMs;
  call.timings.finish_ns = 1001 * kMs;
  metrics.Observe("m", call);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Value(text, "sluice_e2e_latency_seconds_count"), 1);
  EXPECT_EQ(Value(text, "sluice_queue_time_seconds_count"), 0);
  EXPECT_EQ(Value(text, "sluice_decode_time_seconds_count"), 0);
}

TEST(Metrics, ACallWithoutATokenHasNoTimesOfTokens) {
  Metrics metrics(Options());
  FinishedCall call;
  call.arrival_ns = 1000 * kMs;
  call.timings = {.arrival_ns = 1000 * kMs, .first_scheduled_ns = 1001 * kMs, .finish_ns = 1002 * kMs};
  metrics.Observe("m", call);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Value(text, "sluice_queue_time_seconds_count"), 1);
  for (const char* name : {"prefill_time", "decode_time", "inference_time", "time_per_output_token"}) {
    EXPECT_EQ(Value(text, "sluice_" + std::string(name) + "_seconds_count"), 0) << name;
  }
}

TEST(Metrics, SingleEventsAreCounted) {
  Metrics metrics(Options());
  metrics.Observe("m", FirstToken{0.25});
  metrics.Observe("m", LaterTokens{0.5, 3});
  metrics.Observe("m", StepStats{.num_prefill_tokens = 5, .num_decode_tokens = 2, .num_sequences = 3});
  metrics.Observe("m", StepStats{});  // a cancel outside of a step is none
  metrics.Observe("m", EndedCall{CallOutcome::kRejected});
  metrics.Observe("m", EndedCall{CallOutcome::kLength});
  metrics.Observe(GrpcReply{absl::StatusCode::kUnavailable});
  metrics.Observe("m", SlowWrite{2});
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Value(text, "sluice_time_to_first_token_seconds_sum"), 0.25);
  EXPECT_EQ(Value(text, "sluice_inter_token_latency_seconds_count"), 3);
  EXPECT_EQ(Value(text, "sluice_inter_token_latency_seconds_sum"), 1.5);
  EXPECT_EQ(Value(text, "sluice_batch_tokens_sum"), 7);
  EXPECT_EQ(Value(text, "sluice_batch_tokens_count"), 1);
  EXPECT_EQ(Value(text, "sluice_requests_total", "\"rejected\""), 1);
  EXPECT_EQ(Value(text, "sluice_requests_total", "\"length\""), 1);
  EXPECT_EQ(Value(text, "sluice_requests_total", "\"stop\""), 0);
  EXPECT_EQ(Value(text, "sluice_grpc_server_handled_total", "\"UNAVAILABLE\""), 1);
  EXPECT_EQ(Value(text, "sluice_stream_backpressure_seconds_sum"), 2);
}

TEST(Metrics, GrpcCodesHaveTheirNames) {
  Metrics metrics(Options());
  const std::pair<absl::StatusCode, const char*> codes[] = {
      {absl::StatusCode::kOk, "OK"},
      {absl::StatusCode::kCancelled, "CANCELLED"},
      {absl::StatusCode::kInvalidArgument, "INVALID_ARGUMENT"},
      {absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"},
      {absl::StatusCode::kNotFound, "NOT_FOUND"},
      {absl::StatusCode::kAlreadyExists, "ALREADY_EXISTS"},
      {absl::StatusCode::kResourceExhausted, "RESOURCE_EXHAUSTED"},
      {absl::StatusCode::kFailedPrecondition, "FAILED_PRECONDITION"},
      {absl::StatusCode::kAborted, "ABORTED"},
      {absl::StatusCode::kUnimplemented, "UNIMPLEMENTED"},
      {absl::StatusCode::kInternal, "INTERNAL"},
      {absl::StatusCode::kUnavailable, "UNAVAILABLE"},
      {absl::StatusCode::kUnauthenticated, "UNAUTHENTICATED"}};
  for (const auto& [code, name] : codes) {
    metrics.Observe(GrpcReply{code});
    EXPECT_EQ(Value(metrics.Serialize(), "sluice_grpc_server_handled_total", "\"" + std::string(name) + "\""), 1);
  }
}

ServerSnapshot BusySnapshot() {
  ModelSnapshot snapshot;
  snapshot.model = "m";
  snapshot.engine.num_running = 2;
  snapshot.engine.num_waiting = 3;
  snapshot.engine.kv_blocks_live = 10;
  snapshot.engine.kv_blocks_cached = 20;
  snapshot.engine.kv_blocks_free = 10;
  snapshot.engine.kv_blocks_total = 40;
  snapshot.engine.num_preemptions = 5;
  snapshot.engine.num_prompt_tokens = 60;
  snapshot.engine.num_generation_tokens = 70;
  snapshot.block_size = 16;
  snapshot.draining = true;
  snapshot.load_seconds = 1.5;
  snapshot.weight_bytes = 1001;
  snapshot.kv_cache_bytes = 2002;
  snapshot.architecture = "llama";
  return {.models = {snapshot}};
}

TEST(Metrics, EachModelHasItsOwnSeries) {
  Metrics metrics({.models = {"m", "other"}, .version = "1.2.3"});
  metrics.Observe("m", FirstToken{0.25});
  metrics.Observe("other", FirstToken{4});
  metrics.Observe("other", EndedCall{CallOutcome::kStop});
  metrics.Observe("loaded-later", FirstToken{8});
  metrics.SetSource([] {
    ServerSnapshot server = BusySnapshot();
    server.models.push_back({.model = "other"});
    server.models.back().engine.num_running = 7;
    return server;
  });
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Value(text, "sluice_time_to_first_token_seconds_sum", "model=\"m\""), 0.25);
  EXPECT_EQ(Value(text, "sluice_time_to_first_token_seconds_sum", "model=\"other\""), 4);
  EXPECT_EQ(Value(text, "sluice_time_to_first_token_seconds_sum", "model=\"loaded-later\""), 8);
  EXPECT_EQ(Value(text, "sluice_requests_total", "model=\"m\",outcome=\"stop\""), 0);
  EXPECT_EQ(Value(text, "sluice_requests_total", "model=\"other\",outcome=\"stop\""), 1);
  EXPECT_EQ(Value(text, "sluice_requests_running", "model=\"m\""), 2);
  EXPECT_EQ(Value(text, "sluice_requests_running", "model=\"other\""), 7);
}

TEST(Metrics, WhatTheEngineKnowsIsReadAtTheScrape) {
  Metrics metrics(Options());
  metrics.SetSource(BusySnapshot);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Value(text, "sluice_requests_running"), 2);
  EXPECT_EQ(Value(text, "sluice_requests_waiting"), 3);
  EXPECT_EQ(Value(text, "sluice_kv_cache_usage_ratio"), 0.25);
  EXPECT_EQ(Value(text, "sluice_kv_blocks", "\"live\""), 10);
  EXPECT_EQ(Value(text, "sluice_kv_blocks", "\"cached\""), 20);
  EXPECT_EQ(Value(text, "sluice_kv_blocks", "\"free\""), 10);
  EXPECT_EQ(Value(text, "sluice_kv_blocks_capacity"), 40);
  EXPECT_EQ(Value(text, "sluice_preemptions_total"), 5);
  EXPECT_EQ(Value(text, "sluice_prompt_tokens_total"), 60);
  EXPECT_EQ(Value(text, "sluice_generation_tokens_total"), 70);
  EXPECT_EQ(Value(text, "sluice_draining"), 1);
  EXPECT_EQ(Value(text, "sluice_engine_healthy"), 1);
  EXPECT_EQ(Value(text, "sluice_model_load_seconds"), 1.5);
  EXPECT_EQ(Value(text, "sluice_model_weight_bytes"), 1001);
  EXPECT_EQ(Value(text, "sluice_kv_cache_bytes"), 2002);
  EXPECT_EQ(Value(text, "sluice_cache_info", "block_size=\"16\",num_blocks=\"40\""), 1);
  EXPECT_EQ(Value(text, "sluice_model_info", "architecture=\"llama\""), 1);
}

TEST(Metrics, AliasesSayTheSameUnderVllmsNames) {
  Metrics metrics(Options(true));
  metrics.SetSource(BusySnapshot);
  metrics.Observe("m", FirstToken{0.25});
  metrics.Observe("m", EndedCall{CallOutcome::kDeadline});
  metrics.Observe("m", EndedCall{CallOutcome::kCancelled});
  metrics.Observe("m", EndedCall{CallOutcome::kRejected});  // never ran: in none of vLLM's reasons
  const std::string text = metrics.Serialize();
  const std::string labels = "{model_name=\"m\",engine=\"0\"";
  for (const char* name : {"num_requests_running",
                           "num_requests_waiting",
                           "kv_cache_usage_perc",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "prompt_tokens_cached_total",
                           "num_preemptions_total",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "time_to_first_token_seconds_sum",
                           "inter_token_latency_seconds_sum",
                           "request_time_per_output_token_seconds_sum",
                           "e2e_request_latency_seconds_sum",
                           "request_queue_time_seconds_sum",
                           "request_prefill_time_seconds_sum",
                           "request_decode_time_seconds_sum",
                           "request_inference_time_seconds_sum",
                           "request_prompt_tokens_sum",
                           "request_generation_tokens_sum",
                           "request_params_max_tokens_sum",
                           "iteration_tokens_total_sum",
                           "request_success_total",
                           "cache_config_info"}) {
    EXPECT_NE(text.find("\nvllm:" + std::string(name) + labels), std::string::npos) << name;
  }
  EXPECT_EQ(Value(text, "vllm:num_requests_running"), 2);
  EXPECT_EQ(Value(text, "vllm:kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(Value(text, "vllm:time_to_first_token_seconds_sum"), 0.25);
  EXPECT_EQ(Value(text, "vllm:request_success_total", "finished_reason=\"abort\""), 2);
  EXPECT_EQ(Value(text, "vllm:request_success_total", "finished_reason=\"error\""), 0);
  EXPECT_EQ(Value(text, "vllm:cache_config_info", "block_size=\"16\",num_gpu_blocks=\"40\""), 1);
}

}  // namespace
}  // namespace sluice
