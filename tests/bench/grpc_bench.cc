// A running server behind the line protocol of cases.py: what its clients get, measured where they get it.
//
// usage: grpc_bench --server HOST:PORT
// Reads and answers the lines that engine_bench does (prompt and decode), with the same prompts and the same formulas;
// the times are those at which this process has received the tokens, over one connection.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "engine/base/clock.h"

namespace sluice {
namespace {

// As in engine_bench.cc: rows of a step, which the extra tokens of a decode case depend on.
constexpr int32_t kMaxBatchedTokens = 512;

struct Case {
  std::string kind;
  int32_t sequences = 0, prompt = 0, steps = 0;
};

v1::StreamCompleteRequest MakeRequest(const Case& c, int32_t vocab_size, std::mt19937* random) {
  v1::StreamCompleteRequest request;
  for (int32_t i = 0; i < c.prompt; ++i) {
    request.mutable_prompt_ids()->add_ids(uint32_t((*random)() % uint32_t(vocab_size)));
  }
  v1::GenerateOptions& options = *request.mutable_options();
  options.set_temperature(0);
  options.set_ignore_eos(true);
  options.set_return_token_ids(true);
  options.set_max_tokens(
      uint32_t(c.kind == "prompt" ? 1 : c.steps + 16 + c.sequences * c.prompt / kMaxBatchedTokens * 2));
  return request;
}

std::string RunCase(client::Client& client, const Case& c, int32_t vocab_size) {
  std::mt19937 random(1);
  std::vector<v1::StreamCompleteRequest> requests;
  for (int32_t i = 0; i < c.sequences; ++i) requests.push_back(MakeRequest(c, vocab_size, &random));
  // Each written by its own stream's callbacks only, and read once the stream has been waited for.
  std::vector<std::vector<int64_t>> times(requests.size());
  std::vector<std::unique_ptr<client::Stream>> streams;
  const int64_t start = Clock::Real().NowNs();
  for (size_t i = 0; i < requests.size(); ++i) {
    client::StreamHandler handler;
    handler.on_delta = [&times, i](const v1::Delta& delta) {
      times[i].insert(times[i].end(), size_t(delta.token_ids_size()), Clock::Real().NowNs());
    };
    streams.push_back(client.StreamComplete(requests[i], std::move(handler)));
  }
  int64_t last_first = 0, first_last = INT64_MAX;
  for (size_t i = 0; i < streams.size(); ++i) {
    if (absl::Status status = streams[i]->Wait(); !status.ok()) return "error " + std::string(status.message());
    if (times[i].empty()) return "error a stream had no tokens";
    last_first = std::max(last_first, times[i].front());
    first_last = std::min(first_last, times[i].back());
  }
  double rate = double(c.prompt) * c.sequences / (double(last_first - start) / 1e9);
  if (c.kind == "decode") {
    int64_t tokens = 0;
    for (const auto& t : times) {
      tokens += std::count_if(t.begin(), t.end(), [&](int64_t w) { return w > last_first && w <= first_last; });
    }
    rate = double(tokens) / (double(first_last - last_first) / 1e9);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", rate);
  return text;
}

int Main(const std::string& target) {
  const std::unique_ptr<client::Client> client = client::Client::Create(target);
  const auto models = client->ListModels();
  if (!models.ok()) return std::cerr << models.status() << "\n", 1;
  const int32_t vocab_size = int32_t(models->models(0).vocab_size());
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    Case c;
    words >> c.kind >> c.sequences >> c.prompt >> c.steps;
    if ((c.kind == "prompt" || c.kind == "decode") && c.sequences > 0 && c.prompt > 0) {
      std::cout << RunCase(*client, c, vocab_size) << std::endl;
    } else {
      std::cout << "error unknown case: " << line << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--server") return std::cerr << "usage: grpc_bench --server HOST:PORT\n", 2;
  return sluice::Main(argv[2]);
}
