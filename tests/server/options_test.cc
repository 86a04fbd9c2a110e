// Flags: defaults, every flag's way into its field, and one sentence for every mistake.
#include "server/options.h"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace sluice {
namespace {

using namespace std::chrono_literals;

absl::StatusOr<ParsedOptions> Parse(std::vector<std::string> flags) {
  std::vector<const char*> argv = {"sluice-server"};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return ParseOptions(int(argv.size()), argv.data());
}

ServerOptions Parsed(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--model", "/models/tiny.Q4_1.gguf"});
  auto parsed = Parse(flags);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->options : ServerOptions();
}

TEST(Options, DefaultsAreTheDocumentedOnes) {
  const ServerOptions options = Parsed({});
  EXPECT_EQ(options.model.path, "/models/tiny.Q4_1.gguf");
  EXPECT_EQ(options.model.names, std::vector<std::string>{"tiny.Q4_1"});
  EXPECT_EQ(options.model.device.name, "auto");
  EXPECT_EQ(options.model.num_threads, 0);
  EXPECT_EQ(options.model.max_model_len, 0);
  EXPECT_EQ(options.model.block_size, 16);
  EXPECT_FALSE(options.model.kv_memory_bytes.has_value());
  EXPECT_EQ(options.model.device.activations, "auto");
  EXPECT_EQ(options.model.device.kv_dtype, "auto");
  EXPECT_EQ(options.limits.max_num_seqs, 64);
  EXPECT_EQ(options.limits.max_num_batched_tokens, 512);
  EXPECT_EQ(options.limits.max_queued_requests, 1024);
  EXPECT_EQ(options.limits.max_queued_tokens, 1 << 20);
  EXPECT_EQ(options.limits.max_queue_seconds, 60);
  EXPECT_EQ(options.limits.max_logprobs, 20);
  EXPECT_EQ(options.limits.max_request_bytes, 4 << 20);
  EXPECT_FALSE(options.limits.accept_compression);
  EXPECT_EQ(options.limits.max_stream_buffer_bytes, 4 << 20);
  EXPECT_EQ(options.limits.max_connection_buffer_bytes, 64 << 20);
  EXPECT_EQ(options.limits.max_total_buffer_bytes, 256 << 20);
  EXPECT_EQ(options.network.grpc_memory_bytes, 256 << 20);
  EXPECT_EQ(options.network.host, "auto");
  EXPECT_EQ(options.network.grpc_port, 50051);
  EXPECT_EQ(options.network.http_port, 8000);
  EXPECT_EQ(options.network.admin_port, 8002);
  EXPECT_EQ(options.network.keepalive_time, 30s);
  EXPECT_EQ(options.network.keepalive_timeout, 10s);
  EXPECT_TRUE(options.network.reflection);
  EXPECT_EQ(options.network.max_connections, 4096);
  EXPECT_EQ(options.network.max_connections_per_peer, 256);
  EXPECT_TRUE(options.network.trusted_proxies.empty());
  EXPECT_EQ(options.network.receive_timeout, 30s);
  EXPECT_EQ(options.lifecycle.drain_delay, 0s);
  EXPECT_EQ(options.lifecycle.drain_timeout, 30s);
  EXPECT_EQ(options.lifecycle.watchdog_timeout, 120s);
  EXPECT_EQ(options.lifecycle.watchdog_exit, 60s);
  EXPECT_FALSE(options.vllm_metrics);
  EXPECT_EQ(options.log_level, "info");
}

TEST(Options, AModelIsCalledAsItsFileOrFolder) {
  const std::pair<const char*, const char*> kCases[] = {
      {"/models/a.Q8_0.gguf", "a.Q8_0"},    {"a.gguf", "a"},
      {"/models/Qwen3-0.6B", "Qwen3-0.6B"}, {"/models/Qwen3-0.6B/", "Qwen3-0.6B"},
      {"Qwen3-0.6B//", "Qwen3-0.6B"},       {"/models/Qwen3-0.6B/.", "Qwen3-0.6B"},
      {"/models/x/../Llama", "Llama"}};
  for (const auto& [path, name] : kCases) {
    auto parsed = Parse({"--model", path});
    ASSERT_TRUE(parsed.ok()) << path << ": " << parsed.status();
    EXPECT_EQ(parsed->options.model.path, path);
    EXPECT_EQ(parsed->options.model.names, std::vector<std::string>{name}) << path;
  }
  EXPECT_EQ(Parse({"--model", "/"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Options, EveryFlagReachesItsField) {
  const struct {
    std::vector<std::string> flags;
    std::function<bool(const ServerOptions&)> holds;
  } cases[] = {
      {{"--served-model-name", "a"}, [](auto& o) { return o.model.names == std::vector<std::string>{"a"}; }},
      {{"--served-model-name", "a", "--served-model-name=b"},
       [](auto& o) {
         return o.model.names == std::vector<std::string>{"a", "b"};
       }},
      {{"--device", "cpu"}, [](auto& o) { return o.model.device.name == "cpu"; }},
      {{"--threads", "3"}, [](auto& o) { return o.model.num_threads == 3; }},
      {{"--threads", "auto"}, [](auto& o) { return o.model.num_threads == 0; }},
      {{"--max-model-len", "2048"}, [](auto& o) { return o.model.max_model_len == 2048; }},
      {{"--block-size", "32"}, [](auto& o) { return o.model.block_size == 32; }},
      {{"--kv-memory", "256MiB"}, [](auto& o) { return o.model.kv_memory_bytes == 256 << 20; }},
      {{"--kv-memory", "1000"}, [](auto& o) { return o.model.kv_memory_bytes == 1000; }},
      {{"--kv-memory", "2GB"}, [](auto& o) { return o.model.kv_memory_bytes == 2000000000; }},
      {{"--kv-memory", "auto"}, [](auto& o) { return !o.model.kv_memory_bytes.has_value(); }},
      {{"--activations", "int8"}, [](auto& o) { return o.model.device.activations == "int8"; }},
      {{"--prefix-cache", "off"}, [](auto& o) { return !o.model.prefix_cache; }},
      {{"--prefix-cache", "exact"}, [](auto& o) { return o.model.prefix_cache; }},
      {{"--kv-dtype", "f32"}, [](auto& o) { return o.model.device.kv_dtype == "f32"; }},
      {{"--mla-expand-from", "32"}, [](auto& o) { return o.model.device.mla_expand_from == 32; }},
      {{"--mla-expand-from", "auto"}, [](auto& o) { return !o.model.device.mla_expand_from.has_value(); }},
      {{"--mla-expand-from", "never"}, [](auto& o) { return o.model.device.mla_expand_from == INT32_MAX; }},
      {{"--gemm-library-from", "2048"}, [](auto& o) { return o.model.device.gemm_library_from == 2048; }},
      {{"--gemm-library-from", "never"}, [](auto& o) { return o.model.device.gemm_library_from == INT32_MAX; }},
      {{"--max-num-seqs", "7"}, [](auto& o) { return o.limits.max_num_seqs == 7; }},
      {{"--max-num-batched-tokens", "64"}, [](auto& o) { return o.limits.max_num_batched_tokens == 64; }},
      {{"--max-queued-requests", "5"}, [](auto& o) { return o.limits.max_queued_requests == 5; }},
      {{"--max-queued-tokens", "5000"}, [](auto& o) { return o.limits.max_queued_tokens == 5000; }},
      {{"--max-queue-seconds", "0"}, [](auto& o) { return o.limits.max_queue_seconds == 0; }},
      {{"--max-logprobs", "-1"}, [](auto& o) { return o.limits.max_logprobs == -1; }},
      {{"--max-request-bytes", "1MiB"}, [](auto& o) { return o.limits.max_request_bytes == 1 << 20; }},
      {{"--accept-compression"}, [](auto& o) { return o.limits.accept_compression; }},
      {{"--grpc-memory", "1GiB"}, [](auto& o) { return o.network.grpc_memory_bytes == 1 << 30; }},
      {{"--max-stream-buffer", "64KiB"}, [](auto& o) { return o.limits.max_stream_buffer_bytes == 64 << 10; }},
      {{"--max-connection-buffer", "2MiB"}, [](auto& o) { return o.limits.max_connection_buffer_bytes == 2 << 20; }},
      {{"--max-total-buffer", "3MiB"}, [](auto& o) { return o.limits.max_total_buffer_bytes == 3 << 20; }},
      {{"--host", "::1"}, [](auto& o) { return o.network.host == "::1"; }},
      {{"--host", "fe80::1%lo"}, [](auto& o) { return o.network.host == "fe80::1%lo"; }},
      {{"--max-connections", "9"}, [](auto& o) { return o.network.max_connections == 9; }},
      {{"--max-connections-per-peer", "8"}, [](auto& o) { return o.network.max_connections_per_peer == 8; }},
      {{"--trusted-proxies", "10.0.0.0/8,::1"}, [](auto& o) { return o.network.trusted_proxies.size() == 2; }},
      {{"--receive-timeout", "5s"}, [](auto& o) { return o.network.receive_timeout == 5s; }},
      {{"--grpc-port", "0"}, [](auto& o) { return o.network.grpc_port == 0; }},
      {{"--http-port", "81"}, [](auto& o) { return o.network.http_port == 81; }},
      {{"--admin-port", "82"}, [](auto& o) { return o.network.admin_port == 82; }},
      {{"--grpc-port", "0", "--http-port", "0", "--admin-port", "0"}, [](auto& o) { return o.network.http_port == 0; }},
      {{"--grpc-keepalive-time", "2s"}, [](auto& o) { return o.network.keepalive_time == 2s; }},
      {{"--grpc-keepalive-timeout", "500ms"}, [](auto& o) { return o.network.keepalive_timeout == 500ms; }},
      {{"--no-reflection"}, [](auto& o) { return !o.network.reflection; }},
      {{"--drain-delay", "5s"}, [](auto& o) { return o.lifecycle.drain_delay == 5s; }},
      {{"--drain-timeout", "2m"}, [](auto& o) { return o.lifecycle.drain_timeout == 120s; }},
      {{"--watchdog-timeout", "0"}, [](auto& o) { return o.lifecycle.watchdog_timeout == 0s; }},
      {{"--watchdog-exit", "90s"}, [](auto& o) { return o.lifecycle.watchdog_exit == 90s; }},
      {{"--vllm-metrics"}, [](auto& o) { return o.vllm_metrics; }},
      {{"--log-level", "debug"}, [](auto& o) { return o.log_level == "debug"; }},
  };
  for (const auto& test : cases) EXPECT_TRUE(test.holds(Parsed(test.flags))) << test.flags[0];
}

TEST(Options, MistakesAreOneSentenceThatNamesTheFlag) {
  const struct {
    std::vector<std::string> flags;
    std::string flag;
  } cases[] = {
      {{"--threads", "0"}, "--threads"},
      {{"--threads", "many"}, "--threads"},
      {{"--threads"}, "--threads"},
      {{"--max-model-len", "-5"}, "--max-model-len"},
      {{"--block-size", "24"}, "--block-size"},
      {{"--block-size", "8"}, "--block-size: found '8', expected a power of two from 16 to 256"},
      {{"--block-size", "512"}, "--block-size"},
      {{"--kv-memory", "0"}, "--kv-memory"},
      {{"--kv-memory", "12parsecs"}, "--kv-memory"},
      {{"--kv-memory", "99999999999TiB"}, "--kv-memory"},
      {{"--kv-memory", "-1MiB"}, "--kv-memory"},
      {{"--device", "tpu"}, "--device"},
      {{"--activations", "int4"}, "--activations"},
      {{"--kv-dtype", "fp8"}, "--kv-dtype"},
      {{"--prefix-cache", "relaxed"}, "--prefix-cache: found 'relaxed', expected one of exact, off"},
      {{"--mla-expand-from", "0"}, "--mla-expand-from"},
      {{"--gemm-library-from", "0"}, "--gemm-library-from"},
      {{"--max-num-seqs", "0"}, "--max-num-seqs"},
      {{"--max-num-batched-tokens", "63"}, "--max-num-batched-tokens"},
      {{"--max-queued-requests", "0"}, "--max-queued-requests"},
      {{"--max-queued-tokens", "1e3"}, "--max-queued-tokens"},
      {{"--max-logprobs", "-2"}, "--max-logprobs"},
      {{"--max-request-bytes", "1"}, "--max-request-bytes"},
      {{"--max-stream-buffer", "1"}, "--max-stream-buffer"},
      {{"--grpc-port", "65536"}, "--grpc-port"},
      {{"--grpc-port", "8000"}, "--http-port"},
      {{"--admin-port", "8000"}, "--admin-port"},
      {{"--host", ""}, "--host"},
      {{"--host", "nowhere"}, "--host"},
      {{"--max-connections", "0"}, "--max-connections"},
      {{"--max-connections-per-peer", "0"}, "--max-connections-per-peer"},
      {{"--trusted-proxies", "10.0.0.0/40"}, "--trusted-proxies"},
      {{"--receive-timeout", "1ms"}, "--receive-timeout"},
      {{"--grpc-keepalive-time", "1ms"}, "--grpc-keepalive-time"},
      {{"--grpc-keepalive-timeout", "soon"}, "--grpc-keepalive-timeout"},
      {{"--drain-delay", "-1s"}, "--drain-delay"},
      {{"--drain-timeout", "inf"}, "--drain-timeout"},
      {{"--watchdog-timeout", "10"}, "--watchdog-timeout"},
      {{"--log-level", "loud"}, "--log-level"},
      {{"--served-model-name", ""}, "--served-model-name"},
      {{"--unknown-flag"}, "--unknown-flag"},
      {{"positional"}, "positional"},
  };
  for (const auto& test : cases) {
    std::vector<std::string> flags = test.flags;
    flags.insert(flags.begin(), {"--model", "m.gguf"});
    const absl::Status status = Parse(flags).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.flags[0];
    EXPECT_NE(status.message().find(test.flag), std::string::npos) << test.flags[0] << ": " << status;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }
  EXPECT_NE(Parse({}).status().message().find("--model"), std::string::npos);
}

TEST(Options, MistakesSayWhatWasFoundAndExpected) {
  EXPECT_EQ(Parse({"--model", "m", "--threads", "many"}).status().message(),
            "--threads: found 'many', expected a whole number from 1 to 1024");
  EXPECT_EQ(Parse({"--model", "m", "--max-num-seqs", "100", "--max-num-batched-tokens", "64"}).status().message(),
            "--max-num-batched-tokens: found '64', expected at least --max-num-seqs (100)");
  EXPECT_EQ(Parse({"--model", "m", "--threads"}).status().message(),
            "--threads: found nothing after it, expected a value");
  EXPECT_EQ(Parse({"--model", "m", "--threads", "1", "--threads", "2"}).status().message(),
            "--threads: found more than one value, expected one");
  EXPECT_EQ(Parse({"--model", "m", "--vllm-metrics=maybe"}).status().message(),
            "--vllm-metrics: found a value, expected none");
}

TEST(Options, UnknownFlagsSuggestTheNearest) {
  EXPECT_EQ(Parse({"--modle", "m"}).status().message(), "there is no flag --modle; did you mean --model?");
  EXPECT_EQ(Parse({"--model", "m", "--max_num_seqs=4"}).status().message(),
            "there is no flag --max_num_seqs; did you mean --max-num-seqs?");
  EXPECT_EQ(Parse({"--model", "m", "--tensor-parallel-size", "2"}).status().message(),
            "there is no flag --tensor-parallel-size; --help lists them");
  EXPECT_EQ(Parse({"m.gguf"}).status().message(),
            "found 'm.gguf', expected only flags; the model is given as --model PATH");
}

TEST(Options, AnEmptyValueIsNotTheNextFlag) {
  EXPECT_EQ(Parse({"--model=", "--threads", "4"}).status().message(),
            "--model: not given, expected the path of a model file or folder");
  const std::string host(Parse({"--model", "m", "--host=", "--threads", "4"}).status().message());
  EXPECT_EQ(host.rfind("--host: found '', expected ", 0), 0u) << host;
}

TEST(Options, HelpFitsEightyColumns) {
  std::istringstream help(*Parse({"--help"})->text);
  for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Options, HelpNamesEveryFlagAndItsDefault) {
  const auto parsed = Parse({"--help"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_TRUE(parsed->text.has_value());
  for (const char* flag : {"--model",
                           "--served-model-name",
                           "--host",
                           "--grpc-port",
                           "--http-port",
                           "--admin-port",
                           "--device",
                           "--threads",
                           "--max-model-len",
                           "--block-size",
                           "--kv-memory",
                           "--max-num-seqs",
                           "--max-num-batched-tokens",
                           "--max-queued-requests",
                           "--max-queued-tokens",
                           "--max-logprobs",
                           "--activations",
                           "--kv-dtype",
                           "--prefix-cache",
                           "--mla-expand-from",
                           "--gemm-library-from",
                           "--vllm-metrics",
                           "--max-request-bytes",
                           "--max-stream-buffer",
                           "--grpc-keepalive-time",
                           "--grpc-keepalive-timeout",
                           "--no-reflection",
                           "--drain-delay",
                           "--drain-timeout",
                           "--watchdog-timeout",
                           "--watchdog-exit",
                           "--log-level",
                           "--version"}) {
    EXPECT_NE(parsed->text->find(flag), std::string::npos) << flag;
  }
  EXPECT_NE(parsed->text->find("50051"), std::string::npos);
}

TEST(Options, VersionIsPrinted) {
  const auto parsed = Parse({"--version"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->text->rfind("sluice-server " + Version(), 0), 0u) << *parsed->text;
}

}  // namespace
}  // namespace sluice
