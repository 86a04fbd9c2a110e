// Every flag of the server: its default, its check, its meaning.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/device_options.h"
#include "server/net/listener.h"
#include "server/net/socket_address.h"

namespace sluice {

// What is served, and on what.
struct ModelOptions {
  std::string path;
  std::vector<std::string> names;          // the first is the model's id, the others are aliases; never empty
  DeviceOptions device;
  int32_t num_threads = 0;                 // that compute; 0: as many as the affinity and the cgroup allow
  int32_t max_model_len = 0;               // 0: what the model was trained for
  int32_t block_size = 16;                 // tokens per KV block
  bool prefix_cache = true;                // blocks of a common prefix serve all who have it
  std::optional<int64_t> kv_memory_bytes;  // nullopt: decided from the model and the memory there is
};

// What runs and waits at a time.
struct LimitOptions {
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  int32_t max_queued_requests = 1024;
  int64_t max_queued_tokens = 1 << 20;
  int32_t max_queue_seconds = 60;             // 0: however long
  int32_t max_logprobs = 20;                  // -1: the whole vocabulary
  int64_t max_request_bytes = 4 << 20;        // of one gRPC message, decompressed
  bool accept_compression = false;            // of requests
  int64_t max_stream_buffer_bytes = 4 << 20;  // output that may wait for one stream
  int64_t max_connection_buffer_bytes = 64 << 20;  // ... for one connection; a unary answer's size, too
  int64_t max_total_buffer_bytes = 256 << 20;      // ... for all clients
};

struct NetworkOptions {
  std::string host{kEveryAddress};  // as Listener::Open takes it
  int grpc_port = 50051;  // of all ports, 0: any free one
  int http_port = 8000;
  int admin_port = 8002;
  std::chrono::milliseconds keepalive_time{30000};     // between pings of a quiet connection
  std::chrono::milliseconds keepalive_timeout{10000};  // without an answer to one
  bool reflection = true;
  int64_t grpc_memory_bytes = 256 << 20;  // of gRPC, for what arrives
  int max_connections = 4096;            // to the gRPC port
  int max_connections_per_peer = 256;    // of one IPv4 address or /64 of IPv6
  std::vector<Network> trusted_proxies;  // not limited per peer
  std::chrono::milliseconds receive_timeout{30000};  // for a request to arrive in full
};

struct LifecycleOptions {
  std::chrono::milliseconds drain_delay{0};            // after SIGTERM, not ready but still taking calls
  std::chrono::milliseconds drain_timeout{30000};      // then, for running calls to end
  std::chrono::milliseconds watchdog_timeout{120000};  // work but no step: not alive; 0: never
  std::chrono::milliseconds watchdog_exit{60000};      // not alive for so long: the process ends; 0: never
};

struct ServerOptions {
  ModelOptions model;
  LimitOptions limits;
  NetworkOptions network;
  LifecycleOptions lifecycle;
  bool vllm_metrics = false;
  std::string log_level = "info";  // debug, info, warning, error
};

struct ParsedOptions {
  ServerOptions options;
  std::optional<std::string> text;  // --help or --version: print this and stop
};

// INVALID_ARGUMENT is one sentence that names the flag, what was found and what was expected.
absl::StatusOr<ParsedOptions> ParseOptions(int argc, const char* const* argv);

// "sluice-server 0.1.0 (...)".
std::string VersionText();
// "0.1.0".
std::string Version();

}  // namespace sluice
