#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"

namespace sluice {
namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;
using Buckets = Histogram::BucketBoundaries;

constexpr std::array<const char*, 7> kOutcomes = {"stop",     "length",  "cancelled", "deadline",
                                                  "rejected", "invalid", "error"};
constexpr std::array<const char*, 17> kGrpcCodes = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

const Buckets& TokenLatencyBuckets() {
  static const Buckets buckets = {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                  0.2,   0.3,    0.4,   0.5,    0.75, 1,     2.5,  5,     7.5, 10};
  return buckets;
}
const Buckets& FirstTokenBuckets() {
  static const Buckets buckets = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,    5,     7.5,  10,   20,   40,   80,   160, 640,  2560};
  return buckets;
}
const Buckets& DurationBuckets() {
  static const Buckets buckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1,   1.5,  2,   2.5,
                                  5,     10,     15,    20,   30,    40,   50,  60,  120, 240, 480, 960, 1920, 7680};
  return buckets;
}
const Buckets& TokenCountBuckets() {
  static const Buckets buckets = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                  1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
  return buckets;
}

double Seconds(int64_t from_ns, int64_t to_ns) { return to_ns > from_ns ? double(to_ns - from_ns) * 1e-9 : 0; }

MetricFamily Single(std::string name, std::string help, MetricType type, double value, Labels labels) {
  MetricFamily family{std::move(name), std::move(help), type, {}};
  ClientMetric metric;
  metric.label = std::move(labels);
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
  return family;
}

// The families that every Prometheus client library has for its process, under their usual names.
std::vector<MetricFamily> ProcessFamilies(double start_time_seconds) {
  std::vector<MetricFamily> families;
  const auto add = [&](const char* name, const char* help, MetricType type, double value) {
    families.push_back(Single(name, help, type, value, {}));
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + 1e-6 * double(time.tv_usec); };
  add("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", MetricType::Counter,
      seconds(usage.ru_utime) + seconds(usage.ru_stime));
  double virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  const double page_bytes = double(sysconf(_SC_PAGESIZE));
  add("process_virtual_memory_bytes", "Virtual memory size in bytes.", MetricType::Gauge, virtual_pages * page_bytes);
  add("process_resident_memory_bytes", "Resident memory size in bytes.", MetricType::Gauge,
      resident_pages * page_bytes);
  add("process_start_time_seconds", "Start time of the process since the Unix epoch in seconds.", MetricType::Gauge,
      start_time_seconds);
  int num_fds = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++num_fds;
  }
  add("process_open_fds", "Number of open file descriptors.", MetricType::Gauge, num_fds);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  add("process_max_fds", "Maximum number of open file descriptors.", MetricType::Gauge, double(limit.rlim_cur));
  return families;
}

std::vector<MetricFamily> ConnectionFamilies(const std::vector<ListenerSnapshot>& listeners) {
  MetricFamily open{"sluice_connections", "Open connections.", MetricType::Gauge, {}};
  MetricFamily accepted{"sluice_connections_accepted_total", "Connections accepted.", MetricType::Counter, {}};
  MetricFamily cut{"sluice_connections_cut_total",
                   "Connections refused, or closed by the server, by reason.",
                   MetricType::Counter,
                   {}};
  const auto add = [](MetricFamily* family, const Labels& labels, double value) {
    ClientMetric metric;
    metric.label = labels;
    (family->type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family->metric.push_back(std::move(metric));
  };
  for (const ListenerSnapshot& listener : listeners) {
    add(&open, {{"listener", listener.name}}, double(listener.open));
    add(&accepted, {{"listener", listener.name}}, double(listener.accepted));
    for (size_t i = 0; i < listener.cut.size(); ++i) {
      add(&cut, {{"listener", listener.name}, {"reason", kCutReasonNames[i]}}, double(listener.cut[i]));
    }
  }
  return {std::move(open), std::move(accepted), std::move(cut)};
}

struct Alias {
  const char* native;
  const char* vllm;
};
constexpr Alias kAliases[] = {
    {"sluice_requests_running", "vllm:num_requests_running"},
    {"sluice_requests_waiting", "vllm:num_requests_waiting"},
    {"sluice_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"sluice_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"sluice_generation_tokens_total", "vllm:generation_tokens_total"},
    {"sluice_prompt_tokens_cached_total", "vllm:prompt_tokens_cached_total"},
    {"sluice_preemptions_total", "vllm:num_preemptions_total"},
    {"sluice_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"sluice_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    {"sluice_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"sluice_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"sluice_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
    {"sluice_e2e_latency_seconds", "vllm:e2e_request_latency_seconds"},
    {"sluice_queue_time_seconds", "vllm:request_queue_time_seconds"},
    {"sluice_prefill_time_seconds", "vllm:request_prefill_time_seconds"},
    {"sluice_decode_time_seconds", "vllm:request_decode_time_seconds"},
    {"sluice_inference_time_seconds", "vllm:request_inference_time_seconds"},
    {"sluice_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"sluice_request_generation_tokens", "vllm:request_generation_tokens"},
    {"sluice_request_max_tokens", "vllm:request_params_max_tokens"},
    {"sluice_batch_tokens", "vllm:iteration_tokens_total"},
};

// vLLM counts calls that ran as request_success_total by finished_reason.
MetricFamily SuccessAlias(const MetricFamily& requests, const Labels& labels) {
  MetricFamily family{"vllm:request_success_total", requests.help, requests.type, {}};
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    ClientMetric sum;
    sum.label = labels;
    sum.label.push_back({"finished_reason", reason});
    for (const ClientMetric& metric : requests.metric) {
      for (const ClientMetric::Label& label : metric.label) {
        if (label.name != "outcome") continue;
        const bool aborted = label.value == "cancelled" || label.value == "deadline";
        if ((aborted ? "abort" : label.value) == reason) sum.counter.value += metric.counter.value;
      }
    }
    family.metric.push_back(std::move(sum));
  }
  return family;
}

}  // namespace

CallOutcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return CallOutcome::kStop;
    case absl::StatusCode::kCancelled:
      return CallOutcome::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return CallOutcome::kDeadline;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return CallOutcome::kRejected;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return CallOutcome::kInvalid;
    default:
      return CallOutcome::kError;
  }
}

class Metrics::Impl {
 public:
  explicit Impl(const MetricsOptions& options)
      : options_(options),
        model_{{"model", options.model}},
        time_to_first_token(
            Add("time_to_first_token_seconds", "Time from a call's arrival to its first token.", FirstTokenBuckets())),
        inter_token_latency(Add("inter_token_latency_seconds", "Time between two consecutive tokens of a choice.",
                                TokenLatencyBuckets())),
        time_per_output_token(Add("time_per_output_token_seconds", "Mean time per token after the first, per call.",
                                  TokenLatencyBuckets())),
        e2e_latency(Add("e2e_latency_seconds", "Time from a call's arrival to its end.", DurationBuckets())),
        queue_time(Add("queue_time_seconds", "Time from arrival at the engine to the first step.", DurationBuckets())),
        prefill_time(Add("prefill_time_seconds", "Time from the first step to the first token.", DurationBuckets())),
        decode_time(Add("decode_time_seconds", "Time from the first token to the last.", DurationBuckets())),
        inference_time(Add("inference_time_seconds", "Time from the first step to the last token.", DurationBuckets())),
        request_prompt_tokens(Add("request_prompt_tokens",
                                  "Prompt tokens of a call, counted once however many choices it has.",
                                  TokenCountBuckets())),
        request_generation_tokens(
            Add("request_generation_tokens", "Generated tokens of a call, all choices together.", TokenCountBuckets())),
        request_max_tokens(Add("request_max_tokens", "Maximum number of tokens that a call may generate per choice.",
                               TokenCountBuckets())),
        batch_tokens(Add("batch_tokens", "Tokens computed in one step, including those recomputed after a preemption.",
                         TokenCountBuckets())),
        backpressure(Add("stream_backpressure_seconds",
                         "Time that a write to a client took while more output was waiting for that client.",
                         DurationBuckets())) {
    auto& requests_family = prometheus::BuildCounter()
                                .Name("sluice_requests_total")
                                .Help(
                                    "Generation calls by outcome, including refused ones; a call counts once however "
                                    "many choices it has.")
                                .Register(registry_);
    for (size_t i = 0; i < kOutcomes.size(); ++i) {
      requests[i] = &requests_family.Add({{"model", options.model}, {"outcome", kOutcomes[i]}, {"api", "grpc"}});
    }
    auto& grpc_family = prometheus::BuildCounter()
                            .Name("sluice_grpc_server_handled_total")
                            .Help("Finished gRPC calls of all services, by status code.")
                            .Register(registry_);
    for (size_t i = 0; i < kGrpcCodes.size(); ++i) grpc_codes[i] = &grpc_family.Add({{"grpc_code", kGrpcCodes[i]}});
    cached_tokens = &prometheus::BuildCounter()
                         .Name("sluice_prompt_tokens_cached_total")
                         .Help("Prompt tokens found in the prefix cache, counted once per call.")
                         .Register(registry_)
                         .Add(model_);
  }

  std::vector<MetricFamily> Collect() const {
    std::vector<MetricFamily> families = registry_.Collect();
    for (MetricFamily& family : Snapshot()) families.push_back(std::move(family));
    if (options_.vllm_aliases) AddAliases(&families);
    for (MetricFamily& family : ProcessFamilies(start_time_seconds_)) families.push_back(std::move(family));
    return families;
  }

  void SetSource(std::function<MetricsSnapshot()> source) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    source_ = std::move(source);
  }

 private:
  Histogram& Add(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram()
        .Name(absl::StrCat("sluice_", name))
        .Help(help)
        .Register(registry_)
        .Add(model_, buckets);
  }

  // What is read at the moment of the scrape.
  std::vector<MetricFamily> Snapshot() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MetricsSnapshot now;
    {
      MutexLock lock(&mutex_);
      if (source_) now = source_();
    }
    const EngineStats& engine = now.engine;
    std::vector<MetricFamily> families;
    const Labels model = {{"model", options_.model}};
    const auto add = [&](const char* name, const char* help, MetricType type, double value, const Labels& labels) {
      families.push_back(Single(absl::StrCat("sluice_", name), help, type, value, labels));
    };
    const auto gauge = [&](const char* name, const char* help, double value) {
      add(name, help, MetricType::Gauge, value, model);
    };
    const auto counter = [&](const char* name, const char* help, double value) {
      add(name, help, MetricType::Counter, value, model);
    };
    gauge("requests_running", "Sequences in the running batch.", engine.num_running);
    gauge("requests_waiting", "Sequences waiting to run.", engine.num_waiting);
    gauge("kv_cache_usage_ratio",
          "Share of KV blocks that sequences hold, 0 to 1; cached blocks are reclaimable and do not count.",
          engine.kv_blocks_total == 0 ? 0 : double(engine.kv_blocks_live) / engine.kv_blocks_total);
    gauge("kv_blocks", "KV blocks by state.", engine.kv_blocks_live);
    families.back().metric.resize(3, families.back().metric.front());
    const std::pair<const char*, int32_t> states[] = {
        {"live", engine.kv_blocks_live}, {"cached", engine.kv_blocks_cached}, {"free", engine.kv_blocks_free}};
    for (size_t i = 0; i < 3; ++i) {
      families.back().metric[i].label.push_back({"state", states[i].first});
      families.back().metric[i].gauge.value = states[i].second;
    }
    gauge("kv_blocks_capacity", "KV blocks in the pool.", engine.kv_blocks_total);
    counter(
        "prompt_tokens_total",
        "Prompt tokens of every sequence, computed or found in the prefix cache, counted when its prefill is complete; "
        "recomputation after a preemption does not count again.",
        double(engine.num_prompt_tokens));
    counter(
        "generation_tokens_total",
        "Tokens generated for every sequence, including end and stop tokens. The few generated after a stop string, "
        "before the sequence is cancelled, are in no call's usage.",
        double(engine.num_generation_tokens));
    counter("preemptions_total", "Times that a sequence went back to the queue for lack of KV blocks.",
            double(engine.num_preemptions));
    counter("prefix_cache_queries_total",
            "Prompt tokens of sequences that looked for their beginning in the prefix cache.",
            double(engine.num_prefix_queried_tokens));
    counter("prefix_cache_hits_total", "Prompt tokens that sequences found in the prefix cache.",
            double(engine.num_prefix_hit_tokens));
    gauge("engine_healthy", "1 while the engine makes progress, 0 when it has failed or stalls.", now.healthy);
    gauge("draining", "1 while the server drains and refuses new calls, else 0.", now.draining);
    add("log_lines_dropped_total",
        "Log lines dropped because stderr was not read fast enough or a library wrote too many.", MetricType::Counter,
        double(now.log_lines_dropped), {});
    add("output_held_bytes", "Bytes of output buffered until clients read them.", MetricType::Gauge,
        double(now.output_held_bytes), {});
    add("output_cut_total",
        "Calls ended because too much output was buffered for their connection, or for all clients.",
        MetricType::Counter, double(now.output_cut), {});
    gauge("model_load_seconds", "Time it took to load the model.", now.model_load_seconds);
    gauge("model_weight_bytes", "Memory used by the model's weight matrices.", double(now.model_weight_bytes));
    gauge("kv_cache_bytes", "Memory allocated for the KV cache.", double(now.kv_cache_bytes));
    add("cache_info", "Block size and number of blocks of the KV cache, as labels; always 1.", MetricType::Gauge, 1,
        {{"model", options_.model},
         {"block_size", absl::StrCat(now.block_size)},
         {"num_blocks", absl::StrCat(engine.kv_blocks_total)}});
    add("model_info", "The served model and how it is computed, as labels; always 1.", MetricType::Gauge, 1,
        {{"model", options_.model},
         {"architecture", now.architecture},
         {"weight_type", now.weight_type},
         {"activations", now.activations},
         {"kv_type", now.kv_type},
         {"device", now.device}});
    for (MetricFamily& family : ConnectionFamilies(now.listeners)) families.push_back(std::move(family));
    add("build_info", "Version of the server, as a label; always 1.", MetricType::Gauge, 1,
        {{"version", options_.version}});
    return families;
  }

  void AddAliases(std::vector<MetricFamily>* families) const {
    const Labels labels = {{"model_name", options_.model}, {"engine", "0"}};
    const size_t num_native = families->size();
    for (size_t i = 0; i < num_native; ++i) {
      for (const Alias& alias : kAliases) {
        if ((*families)[i].name != alias.native) continue;
        MetricFamily copy = (*families)[i];
        copy.name = alias.vllm;
        for (ClientMetric& metric : copy.metric) metric.label = labels;
        families->push_back(std::move(copy));
      }
      if ((*families)[i].name == "sluice_requests_total") families->push_back(SuccessAlias((*families)[i], labels));
      if ((*families)[i].name == "sluice_cache_info") {
        MetricFamily copy = (*families)[i];
        copy.name = "vllm:cache_config_info";
        const Labels& native = copy.metric.front().label;
        copy.metric.front().label = {labels[0], labels[1], native[1], {"num_gpu_blocks", native[2].value}};
        families->push_back(std::move(copy));
      }
    }
  }

  const MetricsOptions options_;
  const prometheus::Labels model_;
  const double start_time_seconds_ = double(std::time(nullptr));
  prometheus::Registry registry_;

  mutable Mutex mutex_;
  std::function<MetricsSnapshot()> source_ ABSL_GUARDED_BY(mutex_);

 public:
  Histogram& time_to_first_token;
  Histogram& inter_token_latency;
  Histogram& time_per_output_token;
  Histogram& e2e_latency;
  Histogram& queue_time;
  Histogram& prefill_time;
  Histogram& decode_time;
  Histogram& inference_time;
  Histogram& request_prompt_tokens;
  Histogram& request_generation_tokens;
  Histogram& request_max_tokens;
  Histogram& batch_tokens;
  Histogram& backpressure;
  std::array<prometheus::Counter*, kOutcomes.size()> requests;
  std::array<prometheus::Counter*, kGrpcCodes.size()> grpc_codes;
  prometheus::Counter* cached_tokens;
};

Metrics::Metrics(const MetricsOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Metrics::~Metrics() = default;

void Metrics::ObserveStep(const StepStats& stats) {
  if (stats.num_sequences > 0) impl_->batch_tokens.Observe(stats.num_prefill_tokens + stats.num_decode_tokens);
}
void Metrics::ObserveTimeToFirstToken(double seconds) { impl_->time_to_first_token.Observe(seconds); }
void Metrics::ObserveInterTokenLatency(double seconds, int count) {
  for (int i = 0; i < count; ++i) impl_->inter_token_latency.Observe(seconds);
}
void Metrics::CountRefused(CallOutcome outcome) { impl_->requests[size_t(outcome)]->Increment(); }
void Metrics::CountGrpc(absl::StatusCode code) {
  const size_t index = size_t(code);
  if (index < kGrpcCodes.size()) impl_->grpc_codes[index]->Increment();
}
void Metrics::ObserveBackpressure(double seconds) { impl_->backpressure.Observe(seconds); }
void Metrics::SetSource(std::function<MetricsSnapshot()> source) { impl_->SetSource(std::move(source)); }

void Metrics::ObserveFinished(const FinishedCall& call) {
  impl_->requests[size_t(call.outcome)]->Increment();
  impl_->cached_tokens->Increment(call.num_cached_tokens);
  impl_->request_prompt_tokens.Observe(call.num_prompt_tokens);
  impl_->request_generation_tokens.Observe(call.num_generation_tokens);
  impl_->request_max_tokens.Observe(call.max_tokens);
  impl_->e2e_latency.Observe(Seconds(call.arrival_ns, call.timings.finish_ns));
  const RequestTimings& timings = call.timings;
  if (timings.first_scheduled_ns == 0) return;
  impl_->queue_time.Observe(Seconds(timings.arrival_ns, timings.first_scheduled_ns));
  if (timings.first_token_ns == 0) return;
  impl_->prefill_time.Observe(Seconds(timings.first_scheduled_ns, timings.first_token_ns));
  impl_->decode_time.Observe(Seconds(timings.first_token_ns, call.last_token_ns));
  impl_->inference_time.Observe(Seconds(timings.first_scheduled_ns, call.last_token_ns));
  // Choices run side by side: each has its share of the tokens in the same time.
  const int32_t per_choice = call.num_generation_tokens / call.num_choices;
  if (per_choice > 1) {
    impl_->time_per_output_token.Observe(Seconds(timings.first_token_ns, call.last_token_ns) / (per_choice - 1));
  }
}

std::string Metrics::Serialize() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, impl_->Collect());
  return std::move(out).str();
}

}  // namespace sluice
