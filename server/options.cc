#include "server/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "engine/base/nearest_name.h"
#include "engine/base/status_macros.h"
#include "engine/base/wrap_text.h"

namespace sluice {
namespace {

absl::Status Bad(absl::string_view flag, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": found '", found, "', expected ", expected));
}

// The flags as text, before they are understood; CLI11 finds out which is which, all checks are ours.
struct RawFlags {
  std::string model, host{kEveryAddress}, device = "auto", kv_memory = "auto", activations = "auto", kv_dtype = "auto",
              prefix_cache = "exact";
  std::vector<std::string> names;
  std::string grpc_port = "50051", http_port = "8000", admin_port = "8002";
  std::string threads = "auto", max_model_len = "auto", block_size = "16", mla_expand_from = "auto",
              gemm_library_from = "never";
  std::string max_num_seqs = "64", max_num_batched_tokens = "512", max_queued_requests = "1024",
              max_queued_tokens = "1048576", max_queue_seconds = "60", max_logprobs = "20";
  std::string max_request_bytes = "4MiB", max_stream_buffer = "4MiB", max_connection_buffer = "64MiB",
              max_total_buffer = "256MiB", grpc_memory = "256MiB";
  std::string keepalive_time = "30s", keepalive_timeout = "10s";
  std::string max_connections = "4096", max_connections_per_peer = "256", receive_timeout = "30s";
  std::vector<std::string> trusted_proxies;
  std::string drain_delay = "0s", drain_timeout = "30s", watchdog_timeout = "120s", watchdog_exit = "60s";
  std::string log_level = "info";
  bool vllm_metrics = false, no_reflection = false, accept_compression = false;
};

void Declare(CLI::App* app, RawFlags* raw) {
  const auto add = [app](const char* flag, std::string* value, const char* help, const char* group, const char* type) {
    CLI::Option* option = app->add_option(flag, *value, help)->group(group)->type_name(type);
    if (!value->empty()) option->default_str(*value);
    return option;
  };
  const char* model = "Model";
  add("--model", &raw->model,
      "The model to serve: a GGUF file or a Hugging Face folder (config.json, *.safetensors). Required.", model,
      "PATH");
  app->add_option("--served-model-name", raw->names,
                  "Name of the model in requests; repeat the flag for aliases. Default: the file name without .gguf, "
                  "or the folder name.")
      ->group(model)
      ->type_name("NAME");
  add("--device", &raw->device,
      "Device to compute on: cpu or cuda; auto: the first GPU that this build can use, else the CPU.", model, "NAME");
  add("--threads", &raw->threads, "Number of compute threads; auto: as many as CPU affinity and cgroup quota allow.",
      model, "N");
  add("--max-model-len", &raw->max_model_len,
      "Maximum context of a request in tokens, prompt plus output; auto: the model's own context length. Models with "
      "linear, dynamic or longrope RoPE scaling accept more, up to their scaling factor times the trained context.",
      model, "N");
  add("--block-size", &raw->block_size, "Tokens per KV cache block, a power of two from 16 to 256.", model, "N");
  add("--kv-memory", &raw->kv_memory,
      "Memory for the KV cache, such as 256MiB or 4GiB; auto: enough for --max-num-seqs sequences, as far as free "
      "memory allows (on the CPU at most half of it, and 8GiB).",
      model, "BYTES");
  add("--activations", &raw->activations,
      "Precision of activations: int16, int8 or f32 on the CPU, bf16 or f32 on a GPU; auto: int16 on the CPU, bf16 on "
      "a GPU.",
      model, "TYPE");
  add("--kv-dtype", &raw->kv_dtype,
      "Data type of the KV cache: f32, f16, bf16 or, on a GPU, fp8_e4m3; auto: f16, but bf16 on a GPU if weights and "
      "activations are bf16.",
      model, "TYPE");
  add("--prefix-cache", &raw->prefix_cache,
      "exact: the KV cache of a prompt's beginning is reused if another request has computed the same tokens in the same way, so "
      "that answers are the same bit for bit; off: every prompt is computed in full.",
      model, "MODE");
  add("--mla-expand-from", &raw->mla_expand_from,
      "Compute latent attention (MLA) in its expanded form for prompts of at least N tokens: faster in steps with many "
      "prompt tokens, slower in others; never: always in its absorbed form; auto: 512 on a GPU, never on the CPU.",
      model, "N");
  add("--gemm-library-from", &raw->gemm_library_from,
      "On a GPU, use cuBLASLt's matrix products for prompts of at least N tokens, with weights rounded to bf16: faster "
      "in steps of thousands of tokens; never: always the server's own kernels.",
      model, "N");

  const char* limits = "Limits";
  add("--max-num-seqs", &raw->max_num_seqs, "Maximum number of sequences in one step.", limits, "N");
  add("--max-num-batched-tokens", &raw->max_num_batched_tokens,
      "Maximum number of tokens in one step, at least --max-num-seqs; longer prompts are computed in chunks.", limits,
      "N");
  add("--max-queued-requests", &raw->max_queued_requests,
      "Maximum number of sequences in the queue; further requests are refused.", limits, "N");
  add("--max-queued-tokens", &raw->max_queued_tokens,
      "Maximum number of tokens in the queue, of prompts and of output that has to be recomputed; further requests are "
      "refused.",
      limits, "N");
  add("--max-queue-seconds", &raw->max_queue_seconds,
      "Refuse a request at once, with a retry delay, if at the queue's recent pace it would wait longer than this many "
      "seconds; 0: never.",
      limits, "N");
  add("--max-logprobs", &raw->max_logprobs,
      "Maximum number of log-probabilities that a request may ask for at each position; -1: the whole vocabulary.",
      limits, "N");
  add("--max-request-bytes", &raw->max_request_bytes, "Maximum size of a gRPC request; larger ones are refused.",
      limits, "BYTES");
  app->add_flag("--accept-compression", raw->accept_compression,
                "Accept requests compressed with gzip or deflate; --max-request-bytes then limits their size when "
                "decompressed.")
      ->group(limits);
  add("--grpc-memory", &raw->grpc_memory,
      "Memory that gRPC may use for incoming requests; when it is used up, the largest are refused.", limits, "BYTES");
  add("--max-stream-buffer", &raw->max_stream_buffer,
      "Maximum output buffered for one stream whose client reads too slowly; beyond it the stream is ended.", limits,
      "BYTES");
  add("--max-connection-buffer", &raw->max_connection_buffer,
      "Maximum output buffered for all calls of one connection, unary responses included; beyond it the call with the "
      "most buffered output is ended.",
      limits, "BYTES");
  add("--max-total-buffer", &raw->max_total_buffer,
      "Maximum output buffered for all clients; beyond it the call with the most buffered output is ended.", limits,
      "BYTES");

  const char* network = "Network";
  add("--host", &raw->host,
      "IP address to listen on for gRPC and HTTP; auto: all addresses, IPv6 and IPv4. The admin port always listens on "
      "127.0.0.1, or on ::1 where that is missing.",
      network, "ADDRESS");
  add("--grpc-port", &raw->grpc_port, "Port of the public gRPC services; 0: any free port.", network, "PORT");
  add("--http-port", &raw->http_port, "Port of /metrics, /health and /version; 0: any free port.", network, "PORT");
  add("--admin-port", &raw->admin_port, "Port of the admin service (load, drain); 0: any free port.", network, "PORT");
  add("--grpc-keepalive-time", &raw->keepalive_time, "Ping a connection after it has been silent for this long.",
      network, "DURATION");
  add("--grpc-keepalive-timeout", &raw->keepalive_timeout,
      "Close a connection that leaves a ping unanswered for this long.", network, "DURATION");
  add("--max-connections", &raw->max_connections,
      "Maximum number of connections to the gRPC port; fewer if the limit on open files is too low for them.", network,
      "N");
  add("--max-connections-per-peer", &raw->max_connections_per_peer,
      "Maximum number of connections to the gRPC port from one IPv4 address, or from one /64 of IPv6.", network, "N");
  app->add_option(
         "--trusted-proxies", raw->trusted_proxies,
         "Addresses or networks, such as 10.0.0.0/8, of proxies that connect on behalf of many clients and are "
         "exempt from limits per peer. Repeat the flag, or separate values with commas.")
      ->delimiter(',')
      ->group(network)
      ->type_name("NETWORK");
  add("--receive-timeout", &raw->receive_timeout, "Refuse a request that takes longer than this to arrive in full.",
      network, "DURATION");
  app->add_flag("--no-reflection", raw->no_reflection, "Turn off gRPC server reflection.")->group(network);

  const char* operation = "Operation";
  add("--drain-delay", &raw->drain_delay,
      "On SIGTERM, first report not ready for this long while still accepting requests.", operation, "DURATION");
  add("--drain-timeout", &raw->drain_timeout,
      "Then refuse new requests, and give the running ones at most this long to finish.", operation, "DURATION");
  add("--watchdog-timeout", &raw->watchdog_timeout,
      "Report liveness as NOT_SERVING when there is work and no step has completed for this long; 0: never.", operation,
      "DURATION");
  add("--watchdog-exit", &raw->watchdog_exit,
      "Exit when liveness has been NOT_SERVING for this long; open calls fail with INTERNAL. 0: never.", operation,
      "DURATION");
  app->add_flag("--vllm-metrics", raw->vllm_metrics, "Also publish metrics under vLLM's names.")->group(operation);
  add("--log-level", &raw->log_level, "Minimum severity of log lines: debug, info, warning or error.", operation,
      "LEVEL");
}

// As CLI11 takes them. It would take the argument after `--flag=` for the flag's value.
std::vector<std::string> ArgumentsFromTheBack(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    const std::string argument = argv[i];
    const bool empty_value = absl::StartsWith(argument, "--") && absl::EndsWith(argument, "=");
    if (empty_value) arguments.push_back("");
    arguments.push_back(empty_value ? argument.substr(0, argument.size() - 1) : argument);
  }
  return arguments;
}

// A command line that CLI11 refuses, as a sentence.
absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string flag = message.substr(0, message.find_first_of(": "));
    const bool missing = absl::StrContains(message, "missing");
    const bool is_flag = absl::StrContains(message, "override");
    return absl::InvalidArgumentError(absl::StrCat(flag, missing   ? ": found nothing after it, expected a value"
                                                         : is_flag ? ": found a value, expected none"
                                                                   : ": found more than one value, expected one"));
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {  // of a flag without value: all values are text
    const std::string flag = message.substr(message.find("--"));
    return absl::InvalidArgumentError(
        absl::StrCat(flag.substr(0, flag.find_first_of(": ")), ": found a value, expected none"));
  }
  const std::vector<std::string> left = app.remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || left.empty())
    return absl::InvalidArgumentError(message);
  const auto flag =
      std::find_if(left.begin(), left.end(), [](const std::string& text) { return absl::StartsWith(text, "-"); });
  if (flag == left.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found '", left.front(), "', expected only flags; the model is given as --model PATH"));
  }
  const std::string name = flag->substr(0, flag->find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back(absl::StrCat("--", known));
  }
  const std::string nearest = NearestName(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no flag ", name, "; ",
                   nearest.empty() ? "--help lists them" : absl::StrCat("did you mean ", nearest, "?")));
}

absl::StatusOr<int64_t> ParseInt(absl::string_view flag, const std::string& text, int64_t min, int64_t max) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return Bad(flag, text, absl::StrCat("a whole number from ", min, " to ", max));
  }
  return value;
}

template <class T>
absl::Status IntFlag(absl::string_view flag, const std::string& text, int64_t min, int64_t max, T* value) {
  max = std::min<int64_t>(max, std::numeric_limits<T>::max());
  SLUICE_ASSIGN_OR_RETURN(const int64_t parsed, ParseInt(flag, text, min, max));
  *value = static_cast<T>(parsed);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view flag, const std::string& text) {
  const struct {
    absl::string_view suffix;
    int64_t factor;
  } units[] = {{"KiB", int64_t{1} << 10},
               {"MiB", int64_t{1} << 20},
               {"GiB", int64_t{1} << 30},
               {"TiB", int64_t{1} << 40},
               {"KB", 1000},
               {"MB", 1000000},
               {"GB", 1000000000},
               {"B", 1}};
  absl::string_view number = text;
  int64_t factor = 1;
  for (const auto& unit : units) {
    if (!absl::EndsWith(text, unit.suffix)) continue;
    number.remove_suffix(unit.suffix.size());
    factor = unit.factor;
    break;
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(number, &value) || value <= 0 || value > std::numeric_limits<int64_t>::max() / factor) {
    return Bad(flag, text, "a number of bytes above 0, such as 256MiB, 4GiB or 1000000");
  }
  return value * factor;
}

absl::Status BytesFlag(absl::string_view flag, const std::string& text, int64_t min, int64_t max, int64_t* value) {
  SLUICE_ASSIGN_OR_RETURN(*value, ParseBytes(flag, text));
  if (*value < min || *value > max) return Bad(flag, text, absl::StrCat(min, " to ", max, " bytes"));
  return absl::OkStatus();
}

absl::Status DurationFlag(absl::string_view flag, const std::string& text, absl::Duration min,
                          std::chrono::milliseconds* value) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < min || duration > absl::Hours(24 * 7)) {
    return Bad(flag, text,
               absl::StrCat("a duration from ", absl::FormatDuration(min), " to 168h, such as 500ms, 30s, 5m"));
  }
  *value = absl::ToChronoMilliseconds(duration);
  return absl::OkStatus();
}

absl::Status ChoiceFlag(absl::string_view flag, const std::string& text, std::vector<std::string> choices,
                        std::string* value) {
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    return Bad(flag, text, absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
  }
  *value = text;
  return absl::OkStatus();
}

// "x" for /models/x.gguf; of a folder all of its name (names like Qwen3-0.6B have dots).
std::string DefaultModelName(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();  // "models/x/"
  return (absolute.extension() == ".gguf" ? absolute.stem() : absolute.filename()).string();
}

absl::Status ReadModel(const RawFlags& raw, ModelOptions* model) {
  if (raw.model.empty()) {
    return absl::InvalidArgumentError("--model: not given, expected the path of a model file or folder");
  }
  model->path = raw.model;
  model->names = raw.names;
  if (model->names.empty()) model->names = {DefaultModelName(raw.model)};
  for (const std::string& name : model->names) {
    if (name.empty() || name.size() > 256) return Bad("--served-model-name", name, "1 to 256 characters");
  }
  SLUICE_RETURN_IF_ERROR(ChoiceFlag("--device", raw.device, {"auto", "cpu", "cuda"}, &model->device.name));
  if (raw.threads != "auto") {
    SLUICE_RETURN_IF_ERROR(IntFlag("--threads", raw.threads, 1, 1024, &model->num_threads));
  }
  if (raw.max_model_len != "auto") {
    SLUICE_RETURN_IF_ERROR(IntFlag("--max-model-len", raw.max_model_len, 1, 1 << 30, &model->max_model_len));
  }
  SLUICE_RETURN_IF_ERROR(IntFlag("--block-size", raw.block_size, 1, 256, &model->block_size));
  if (model->block_size < 16 || (model->block_size & (model->block_size - 1)) != 0) {
    return Bad("--block-size", raw.block_size, "a power of two from 16 to 256");
  }
  if (raw.kv_memory != "auto") {
    SLUICE_ASSIGN_OR_RETURN(model->kv_memory_bytes, ParseBytes("--kv-memory", raw.kv_memory));
  }
  SLUICE_RETURN_IF_ERROR(ChoiceFlag("--activations", raw.activations, {"auto", "int16", "int8", "f32", "bf16"},
                                    &model->device.activations));
  if (raw.mla_expand_from == "never") {
    model->device.mla_expand_from = INT32_MAX;
  } else if (raw.mla_expand_from != "auto") {
    SLUICE_RETURN_IF_ERROR(
        IntFlag("--mla-expand-from", raw.mla_expand_from, 1, 1 << 30, &model->device.mla_expand_from.emplace()));
  }
  if (raw.gemm_library_from != "never") {
    SLUICE_RETURN_IF_ERROR(
        IntFlag("--gemm-library-from", raw.gemm_library_from, 1, 1 << 30, &model->device.gemm_library_from));
  }
  std::string prefix_cache;
  SLUICE_RETURN_IF_ERROR(ChoiceFlag("--prefix-cache", raw.prefix_cache, {"exact", "off"}, &prefix_cache));
  model->prefix_cache = prefix_cache == "exact";
  return ChoiceFlag("--kv-dtype", raw.kv_dtype, {"auto", "f32", "f16", "bf16", "fp8_e4m3"}, &model->device.kv_dtype);
}

absl::Status ReadLimits(const RawFlags& raw, LimitOptions* limits) {
  constexpr int64_t kMany = 1 << 20;
  SLUICE_RETURN_IF_ERROR(IntFlag("--max-num-seqs", raw.max_num_seqs, 1, kMany, &limits->max_num_seqs));
  SLUICE_RETURN_IF_ERROR(
      IntFlag("--max-num-batched-tokens", raw.max_num_batched_tokens, 1, kMany, &limits->max_num_batched_tokens));
  if (limits->max_num_batched_tokens < limits->max_num_seqs) {
    return Bad("--max-num-batched-tokens", raw.max_num_batched_tokens,
               absl::StrCat("at least --max-num-seqs (", limits->max_num_seqs, ")"));
  }
  SLUICE_RETURN_IF_ERROR(
      IntFlag("--max-queued-requests", raw.max_queued_requests, 1, kMany, &limits->max_queued_requests));
  SLUICE_RETURN_IF_ERROR(
      IntFlag("--max-queued-tokens", raw.max_queued_tokens, 1, int64_t{1} << 40, &limits->max_queued_tokens));
  SLUICE_RETURN_IF_ERROR(
      IntFlag("--max-queue-seconds", raw.max_queue_seconds, 0, 7 * 24 * 3600, &limits->max_queue_seconds));
  SLUICE_RETURN_IF_ERROR(IntFlag("--max-logprobs", raw.max_logprobs, -1, kMany, &limits->max_logprobs));
  SLUICE_RETURN_IF_ERROR(
      BytesFlag("--max-request-bytes", raw.max_request_bytes, 1 << 10, int64_t{1} << 30, &limits->max_request_bytes));
  limits->accept_compression = raw.accept_compression;
  SLUICE_RETURN_IF_ERROR(BytesFlag("--max-stream-buffer", raw.max_stream_buffer, 1 << 10, int64_t{1} << 30,
                                   &limits->max_stream_buffer_bytes));
  SLUICE_RETURN_IF_ERROR(BytesFlag("--max-connection-buffer", raw.max_connection_buffer, 1 << 10, int64_t{1} << 40,
                                   &limits->max_connection_buffer_bytes));
  return BytesFlag("--max-total-buffer", raw.max_total_buffer, 1 << 10, int64_t{1} << 40,
                   &limits->max_total_buffer_bytes);
}

absl::Status ReadNetwork(const RawFlags& raw, NetworkOptions* network) {
  network->host = raw.host;
  if (raw.host != kEveryAddress && raw.host != kLoopbackAddress) {
    const absl::Status status = SocketAddress::Parse(raw.host, 0).status();
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("--host: ", status.message()));
  }
  SLUICE_RETURN_IF_ERROR(IntFlag("--grpc-port", raw.grpc_port, 0, 65535, &network->grpc_port));
  SLUICE_RETURN_IF_ERROR(IntFlag("--http-port", raw.http_port, 0, 65535, &network->http_port));
  SLUICE_RETURN_IF_ERROR(IntFlag("--admin-port", raw.admin_port, 0, 65535, &network->admin_port));
  const std::pair<const char*, int> ports[] = {
      {"--grpc-port", network->grpc_port}, {"--http-port", network->http_port}, {"--admin-port", network->admin_port}};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < i; ++j) {
      if (ports[i].second == 0 || ports[i].second != ports[j].second) continue;
      return Bad(ports[i].first, absl::StrCat(ports[i].second), absl::StrCat("another port than ", ports[j].first));
    }
  }
  SLUICE_RETURN_IF_ERROR(
      DurationFlag("--grpc-keepalive-time", raw.keepalive_time, absl::Milliseconds(100), &network->keepalive_time));
  SLUICE_RETURN_IF_ERROR(DurationFlag("--grpc-keepalive-timeout", raw.keepalive_timeout, absl::Milliseconds(100),
                                      &network->keepalive_timeout));
  network->reflection = !raw.no_reflection;
  SLUICE_RETURN_IF_ERROR(
      BytesFlag("--grpc-memory", raw.grpc_memory, 16 << 20, int64_t{1} << 40, &network->grpc_memory_bytes));
  constexpr int64_t kMany = 1 << 20;
  SLUICE_RETURN_IF_ERROR(IntFlag("--max-connections", raw.max_connections, 1, kMany, &network->max_connections));
  SLUICE_RETURN_IF_ERROR(IntFlag("--max-connections-per-peer", raw.max_connections_per_peer, 1, kMany,
                                 &network->max_connections_per_peer));
  for (const std::string& text : raw.trusted_proxies) {
    const auto proxy = Network::Parse(text);
    if (!proxy.ok()) return absl::InvalidArgumentError(absl::StrCat("--trusted-proxies: ", proxy.status().message()));
    network->trusted_proxies.push_back(*proxy);
  }
  SLUICE_RETURN_IF_ERROR(
      DurationFlag("--receive-timeout", raw.receive_timeout, absl::Milliseconds(100), &network->receive_timeout));
  return absl::OkStatus();
}

absl::Status ReadLifecycle(const RawFlags& raw, LifecycleOptions* lifecycle) {
  SLUICE_RETURN_IF_ERROR(DurationFlag("--drain-delay", raw.drain_delay, absl::ZeroDuration(), &lifecycle->drain_delay));
  SLUICE_RETURN_IF_ERROR(
      DurationFlag("--drain-timeout", raw.drain_timeout, absl::ZeroDuration(), &lifecycle->drain_timeout));
  SLUICE_RETURN_IF_ERROR(
      DurationFlag("--watchdog-timeout", raw.watchdog_timeout, absl::ZeroDuration(), &lifecycle->watchdog_timeout));
  return DurationFlag("--watchdog-exit", raw.watchdog_exit, absl::ZeroDuration(), &lifecycle->watchdog_exit);
}

absl::StatusOr<ServerOptions> Read(const RawFlags& raw) {
  ServerOptions options;
  SLUICE_RETURN_IF_ERROR(ReadModel(raw, &options.model));
  SLUICE_RETURN_IF_ERROR(ReadLimits(raw, &options.limits));
  SLUICE_RETURN_IF_ERROR(ReadNetwork(raw, &options.network));
  SLUICE_RETURN_IF_ERROR(ReadLifecycle(raw, &options.lifecycle));
  SLUICE_RETURN_IF_ERROR(
      ChoiceFlag("--log-level", raw.log_level, {"debug", "info", "warning", "error"}, &options.log_level));
  options.vllm_metrics = raw.vllm_metrics;
  return options;
}

}  // namespace

std::string Version() { return SLUICE_VERSION; }

std::string VersionText() { return absl::StrCat("sluice-server ", Version(), " (compiler: ", __VERSION__, ")"); }

absl::StatusOr<ParsedOptions> ParseOptions(int argc, const char* const* argv) {
  CLI::App app("Serve a large language model over gRPC, metrics and health checks over HTTP", "sluice-server");
  RawFlags raw;
  Declare(&app, &raw);
  app.set_help_flag("--help,-h", "Print this help and exit.");
  app.set_version_flag("--version", VersionText(), "Print the version and exit.");
  // CLI11 sets the help in two columns and does not wrap the second.
  constexpr size_t kColumns = 80, kFirstColumn = 30;
  app.get_formatter()->column_width(kFirstColumn);
  for (CLI::Option* option : app.get_options()) {
    option->description(WrapText(option->get_description(), kColumns - kFirstColumn));
  }
  ParsedOptions parsed;
  // CLI11 speaks in exceptions; they end here.
  try {
    app.parse(ArgumentsFromTheBack(argc, argv));
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = absl::StrCat(version.what(), "\n");
    return parsed;
  } catch (const CLI::ParseError& error) {
    return UsageError(app, error);
  }
  SLUICE_ASSIGN_OR_RETURN(parsed.options, Read(raw));
  return parsed;
}

}  // namespace sluice
