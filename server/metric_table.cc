#include "server/metric_table.h"

#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using enum MetricKind;

constexpr std::array<const char*, 7> kOutcomes = {"stop",     "length",  "cancelled", "deadline",
                                                  "rejected", "invalid", "error"};
constexpr std::array<const char*, 17> kGrpcCodes = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

constexpr double kTokenLatency[] = {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                    0.2,   0.3,    0.4,   0.5,    0.75, 1,     2.5,  5,     7.5, 10};
constexpr double kFirstToken[] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,    5,     7.5,  10,   20,   40,   80,   160, 640,  2560};
constexpr double kDuration[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1,   1.5,  2,   2.5,
                                5,     10,     15,    20,   30,    40,   50,  60,  120, 240, 480, 960, 1920, 7680};
constexpr double kTokenCount[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                  1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

// Of families that are the same with vLLM but for their labels.
constexpr char kCallsHelp[] =
    "Generation calls by outcome, including refused ones; a call counts once however many choices it has.";
constexpr char kCacheInfoHelp[] = "Block size and number of blocks of the KV cache, as labels; always 1.";

// Each with the values that come `after` it in its series.
template <class Names>
std::vector<LabelValues> SeriesOf(const Names& names, const LabelValues& after = {}) {
  std::vector<LabelValues> series;
  for (const char* name : names) {
    series.push_back({name});
    series.back().insert(series.back().end(), after.begin(), after.end());
  }
  return series;
}

Observation Once(double value) { return {.value = value}; }
Observation OnceIf(bool happened, double value) { return {.value = value, .count = happened ? 1 : 0}; }
Observation CountIn(size_t series) { return {.series = series}; }

double Seconds(int64_t from_ns, int64_t to_ns) { return to_ns > from_ns ? double(to_ns - from_ns) * 1e-9 : 0; }

bool HasRun(const FinishedCall& call) { return call.timings.first_scheduled_ns != 0; }
bool HasToken(const FinishedCall& call) { return HasRun(call) && call.timings.first_token_ns != 0; }

// Choices run side by side: each has its share of the tokens in the same time.
Observation TimePerOutputToken(const FinishedCall& call) {
  const int32_t per_choice = call.num_generation_tokens / call.num_choices;
  if (!HasToken(call) || per_choice <= 1) return {.count = 0};
  return Once(Seconds(call.timings.first_token_ns, call.last_token_ns) / (per_choice - 1));
}

// vLLM counts calls that ran, by what it calls finished_reason.
constexpr std::array<const char*, 4> kFinishedReasons = {"stop", "length", "abort", "error"};
Observation FinishedReason(const EndedCall& call) {
  switch (call.outcome) {
    case CallOutcome::kStop:
      return CountIn(0);
    case CallOutcome::kLength:
      return CountIn(1);
    case CallOutcome::kCancelled:
    case CallOutcome::kDeadline:
      return CountIn(2);
    case CallOutcome::kError:
      return CountIn(3);
    case CallOutcome::kRejected:
    case CallOutcome::kInvalid:
      break;
  }
  return {.count = 0};
}

std::vector<Sample> CutConnections(const ServerSnapshot& server) {
  std::vector<Sample> samples;
  for (const ListenerSnapshot& listener : server.listeners) {
    for (size_t i = 0; i < listener.cut.size(); ++i) {
      samples.push_back({{listener.name, kCutReasonNames[i]}, double(listener.cut[i])});
    }
  }
  return samples;
}

template <auto member>
std::vector<Sample> OfListeners(const ServerSnapshot& server) {
  std::vector<Sample> samples;
  for (const ListenerSnapshot& listener : server.listeners) {
    samples.push_back({{listener.name}, double(listener.*member)});
  }
  return samples;
}

std::vector<Sample> CacheInfo(const ModelSnapshot& model) {
  return {{{absl::StrCat(model.block_size), absl::StrCat(model.engine.kv_blocks_total)}, 1}};
}

// The sequences and their KV cache, as they are at the scrape.
std::vector<MetricRow> EngineRows() {
  return {
      {.name = "sluice_requests_running",
       .help = "Sequences in the running batch.",
       .source = [](const ModelSnapshot& model) -> double { return model.engine.num_running; },
       .vllm_name = "vllm:num_requests_running"},
      {.name = "sluice_requests_waiting",
       .help = "Sequences waiting to run.",
       .source = [](const ModelSnapshot& model) -> double { return model.engine.num_waiting; },
       .vllm_name = "vllm:num_requests_waiting"},
      {.name = "sluice_kv_cache_usage_ratio",
       .help = "Share of KV blocks that sequences hold, 0 to 1; cached blocks are reclaimable and do not count.",
       .source = [](const ModelSnapshot& model) -> double {
         const EngineStats& engine = model.engine;
         return engine.kv_blocks_total == 0 ? 0 : double(engine.kv_blocks_live) / engine.kv_blocks_total;
       },
       .vllm_name = "vllm:kv_cache_usage_perc"},
      {.name = "sluice_kv_blocks",
       .help = "KV blocks by state.",
       .source = [](const ModelSnapshot& model) -> std::vector<Sample> {
         const EngineStats& engine = model.engine;
         return {{{"live"}, double(engine.kv_blocks_live)},
                 {{"cached"}, double(engine.kv_blocks_cached)},
                 {{"free"}, double(engine.kv_blocks_free)}};
       },
       .labels = {"state"}},
      {.name = "sluice_kv_blocks_capacity",
       .help = "KV blocks in the pool.",
       .source = [](const ModelSnapshot& model) -> double { return model.engine.kv_blocks_total; }},
      {.name = "sluice_prompt_tokens_total",
       .kind = kCounter,
       .help = "Prompt tokens of every sequence, computed or found in the prefix cache, counted when its prefill is "
               "complete; recomputation after a preemption does not count again.",
       .source = [](const ModelSnapshot& model) -> double { return double(model.engine.num_prompt_tokens); },
       .vllm_name = "vllm:prompt_tokens_total"},
      {.name = "sluice_generation_tokens_total",
       .kind = kCounter,
       .help =
           "Tokens generated for every sequence, including end and stop tokens. The few generated after a stop string, "
           "before the sequence is cancelled, are in no call's usage.",
       .source = [](const ModelSnapshot& model) -> double { return double(model.engine.num_generation_tokens); },
       .vllm_name = "vllm:generation_tokens_total"},
      {.name = "sluice_preemptions_total",
       .kind = kCounter,
       .help = "Times that a sequence went back to the queue for lack of KV blocks.",
       .source = [](const ModelSnapshot& model) -> double { return double(model.engine.num_preemptions); },
       .vllm_name = "vllm:num_preemptions_total"},
      {.name = "sluice_prefix_cache_queries_total",
       .kind = kCounter,
       .help = "Prompt tokens of sequences that looked for their beginning in the prefix cache.",
       .source = [](const ModelSnapshot& model) -> double { return double(model.engine.num_prefix_queried_tokens); },
       .vllm_name = "vllm:prefix_cache_queries_total"},
      {.name = "sluice_prefix_cache_hits_total",
       .kind = kCounter,
       .help = "Prompt tokens that sequences found in the prefix cache.",
       .source = [](const ModelSnapshot& model) -> double { return double(model.engine.num_prefix_hit_tokens); },
       .vllm_name = "vllm:prefix_cache_hits_total"},
      {.name = "sluice_batch_tokens",
       .kind = kHistogram,
       .help = "Tokens computed in one step, including those recomputed after a preemption.",
       .source =
           [](const StepStats& step) {
             return OnceIf(step.num_sequences > 0, step.num_prefill_tokens + step.num_decode_tokens);
           },
       .vllm_name = "vllm:iteration_tokens_total",
       .buckets = kTokenCount},
  };
}

// Generation calls, as they come and go.
std::vector<MetricRow> CallRows() {
  return {
      {.name = "sluice_requests_total",
       .kind = kCounter,
       .help = kCallsHelp,
       .source = [](const EndedCall& call) { return CountIn(size_t(call.outcome)); },
       .labels = {"outcome", "api"},
       .series = SeriesOf(kOutcomes, {"grpc"})},
      {.name = "vllm:request_success_total",
       .kind = kCounter,
       .help = kCallsHelp,
       .source = FinishedReason,
       .labels = {"finished_reason"},
       .series = SeriesOf(kFinishedReasons)},
      {.name = "sluice_prompt_tokens_cached_total",
       .kind = kCounter,
       .help = "Prompt tokens found in the prefix cache, counted once per call.",
       .source = [](const FinishedCall& call) { return Once(call.num_cached_tokens); },
       .vllm_name = "vllm:prompt_tokens_cached_total"},
      {.name = "sluice_request_prompt_tokens",
       .kind = kHistogram,
       .help = "Prompt tokens of a call, counted once however many choices it has.",
       .source = [](const FinishedCall& call) { return Once(call.num_prompt_tokens); },
       .vllm_name = "vllm:request_prompt_tokens",
       .buckets = kTokenCount},
      {.name = "sluice_request_generation_tokens",
       .kind = kHistogram,
       .help = "Generated tokens of a call, all choices together.",
       .source = [](const FinishedCall& call) { return Once(call.num_generation_tokens); },
       .vllm_name = "vllm:request_generation_tokens",
       .buckets = kTokenCount},
      {.name = "sluice_request_max_tokens",
       .kind = kHistogram,
       .help = "Maximum number of tokens that a call may generate per choice.",
       .source = [](const FinishedCall& call) { return Once(call.max_tokens); },
       .vllm_name = "vllm:request_params_max_tokens",
       .buckets = kTokenCount},
  };
}

// How long calls take.
std::vector<MetricRow> LatencyRows() {
  return {
      {.name = "sluice_time_to_first_token_seconds",
       .kind = kHistogram,
       .help = "Time from a call's arrival to its first token.",
       .source = [](const FirstToken& token) { return Once(token.seconds); },
       .vllm_name = "vllm:time_to_first_token_seconds",
       .buckets = kFirstToken},
      {.name = "sluice_inter_token_latency_seconds",
       .kind = kHistogram,
       .help = "Time between two consecutive tokens of a choice.",
       .source = [](const LaterTokens& tokens) -> Observation {
         return {.value = tokens.seconds, .count = tokens.count};
       },
       .vllm_name = "vllm:inter_token_latency_seconds",
       .buckets = kTokenLatency},
      {.name = "sluice_time_per_output_token_seconds",
       .kind = kHistogram,
       .help = "Mean time per token after the first, per call.",
       .source = TimePerOutputToken,
       .vllm_name = "vllm:request_time_per_output_token_seconds",
       .buckets = kTokenLatency},
      {.name = "sluice_e2e_latency_seconds",
       .kind = kHistogram,
       .help = "Time from a call's arrival to its end.",
       .source = [](const FinishedCall& call) { return Once(Seconds(call.arrival_ns, call.timings.finish_ns)); },
       .vllm_name = "vllm:e2e_request_latency_seconds",
       .buckets = kDuration},
      {.name = "sluice_queue_time_seconds",
       .kind = kHistogram,
       .help = "Time from arrival at the engine to the first step.",
       .source =
           [](const FinishedCall& call) {
             return OnceIf(HasRun(call), Seconds(call.timings.arrival_ns, call.timings.first_scheduled_ns));
           },
       .vllm_name = "vllm:request_queue_time_seconds",
       .buckets = kDuration},
      {.name = "sluice_prefill_time_seconds",
       .kind = kHistogram,
       .help = "Time from the first step to the first token.",
       .source =
           [](const FinishedCall& call) {
             return OnceIf(HasToken(call), Seconds(call.timings.first_scheduled_ns, call.timings.first_token_ns));
           },
       .vllm_name = "vllm:request_prefill_time_seconds",
       .buckets = kDuration},
      {.name = "sluice_decode_time_seconds",
       .kind = kHistogram,
       .help = "Time from the first token to the last.",
       .source =
           [](const FinishedCall& call) {
             return OnceIf(HasToken(call), Seconds(call.timings.first_token_ns, call.last_token_ns));
           },
       .vllm_name = "vllm:request_decode_time_seconds",
       .buckets = kDuration},
      {.name = "sluice_inference_time_seconds",
       .kind = kHistogram,
       .help = "Time from the first step to the last token.",
       .source =
           [](const FinishedCall& call) {
             return OnceIf(HasToken(call), Seconds(call.timings.first_scheduled_ns, call.last_token_ns));
           },
       .vllm_name = "vllm:request_inference_time_seconds",
       .buckets = kDuration},
      {.name = "sluice_stream_backpressure_seconds",
       .kind = kHistogram,
       .help = "Time that a write to a client took while more output was waiting for that client.",
       .source = [](const SlowWrite& write) { return Once(write.seconds); },
       .buckets = kDuration},
  };
}

// What is served, and how it is.
std::vector<MetricRow> ModelRows() {
  return {
      {.name = "sluice_engine_healthy",
       .help = "1 while the engine makes progress, 0 when it has failed or stalls.",
       .source = [](const ModelSnapshot& model) -> double { return model.healthy; }},
      {.name = "sluice_draining",
       .help = "1 while the server drains and refuses new calls, else 0.",
       .source = [](const ModelSnapshot& model) -> double { return model.draining; }},
      {.name = "sluice_model_load_seconds",
       .help = "Time it took to load the model.",
       .source = [](const ModelSnapshot& model) -> double { return model.load_seconds; }},
      {.name = "sluice_model_weight_bytes",
       .help = "Memory used by the model's weight matrices.",
       .source = [](const ModelSnapshot& model) -> double { return double(model.weight_bytes); }},
      {.name = "sluice_kv_cache_bytes",
       .help = "Memory allocated for the KV cache.",
       .source = [](const ModelSnapshot& model) -> double { return double(model.kv_cache_bytes); }},
      {.name = "sluice_cache_info",
       .help = kCacheInfoHelp,
       .source = CacheInfo,
       .labels = {"block_size", "num_blocks"}},
      {.name = "vllm:cache_config_info",
       .help = kCacheInfoHelp,
       .source = CacheInfo,
       .labels = {"block_size", "num_gpu_blocks"}},
      {.name = "sluice_model_info",
       .help = "The served model and how it is computed, as labels; always 1.",
       .source = [](const ModelSnapshot& model) -> std::vector<Sample> {
         return {{{model.architecture, model.weight_type, model.activations, model.kv_type, model.device}, 1}};
       },
       .labels = {"architecture", "weight_type", "activations", "kv_type", "device"}},
  };
}

// The process and its connections, whatever it serves.
std::vector<MetricRow> ServerRows() {
  return {
      {.name = "sluice_grpc_server_handled_total",
       .kind = kCounter,
       .help = "Finished gRPC calls of all services, by status code.",
       .source = [](const GrpcReply& reply) -> Observation {
         const size_t code = size_t(reply.code);
         return {.count = code < kGrpcCodes.size() ? 1 : 0, .series = code};
       },
       .labels = {"grpc_code"},
       .series = SeriesOf(kGrpcCodes)},
      {.name = "sluice_log_lines_dropped_total",
       .kind = kCounter,
       .help = "Log lines dropped because stderr was not read fast enough or a library wrote too many.",
       .source = [](const ServerSnapshot& server) -> double { return double(server.log_lines_dropped); }},
      {.name = "sluice_output_held_bytes",
       .help = "Bytes of output buffered until clients read them.",
       .source = [](const ServerSnapshot& server) -> double { return double(server.output_held_bytes); }},
      {.name = "sluice_output_cut_total",
       .kind = kCounter,
       .help = "Calls ended because too much output was buffered for their connection, or for all clients.",
       .source = [](const ServerSnapshot& server) -> double { return double(server.output_cut); }},
      {.name = "sluice_connections",
       .help = "Open connections.",
       .source = OfListeners<&ListenerSnapshot::open>,
       .labels = {"listener"}},
      {.name = "sluice_connections_accepted_total",
       .kind = kCounter,
       .help = "Connections accepted.",
       .source = OfListeners<&ListenerSnapshot::accepted>,
       .labels = {"listener"}},
      {.name = "sluice_connections_cut_total",
       .kind = kCounter,
       .help = "Connections refused, or closed by the server, by reason.",
       .source = CutConnections,
       .labels = {"listener", "reason"}},
      {.name = "sluice_build_info",
       .help = "Version of the server, as a label; always 1.",
       .source = [](const ServerSnapshot& server) -> std::vector<Sample> { return {{{server.version}, 1}}; },
       .labels = {"version"}},
      {.name = "process_cpu_seconds_total",
       .kind = kCounter,
       .help = "Total user and system CPU time spent in seconds.",
       .source = [](const ProcessStats& process) { return process.cpu_seconds; }},
      {.name = "process_virtual_memory_bytes",
       .help = "Virtual memory size in bytes.",
       .source = [](const ProcessStats& process) { return process.virtual_bytes; }},
      {.name = "process_resident_memory_bytes",
       .help = "Resident memory size in bytes.",
       .source = [](const ProcessStats& process) { return process.resident_bytes; }},
      {.name = "process_start_time_seconds",
       .help = "Start time of the process since the Unix epoch in seconds.",
       .source = [](const ProcessStats& process) { return process.start_time_seconds; }},
      {.name = "process_open_fds",
       .help = "Number of open file descriptors.",
       .source = [](const ProcessStats& process) { return process.open_fds; }},
      {.name = "process_max_fds",
       .help = "Maximum number of open file descriptors.",
       .source = [](const ProcessStats& process) { return process.max_fds; }},
  };
}

}  // namespace

const std::vector<MetricRow>& MetricTable() {
  static const std::vector<MetricRow>& table = *new std::vector<MetricRow>([] {
    std::vector<MetricRow> rows;
    for (const auto& part : {EngineRows(), CallRows(), LatencyRows(), ModelRows(), ServerRows()}) {
      rows.insert(rows.end(), part.begin(), part.end());
    }
    return rows;
  }());
  return table;
}

bool MetricRow::per_model() const {
  return std::visit(
      []<class Result, class Subject>(Result (*)(const Subject&)) {
        return !std::is_same_v<Subject, GrpcReply> && !std::is_same_v<Subject, ServerSnapshot> &&
               !std::is_same_v<Subject, ProcessStats>;
      },
      source);
}

absl::string_view NameOf(MetricKind kind) {
  switch (kind) {
    case kCounter:
      return "counter";
    case kGauge:
      return "gauge";
    case kHistogram:
      return "histogram";
  }
  return "";
}

}  // namespace sluice
