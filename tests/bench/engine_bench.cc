// Our engine behind the line protocol of cases.py: the real scheduler, engine thread and sampler, no server.
//
// usage: engine_bench --model FILE.gguf [--threads N] [--activations int16|int8|f32]
// Reads one case per line on stdin (kind sequences prompt steps), answers one line: the rate in tokens/s, or "error
// TEXT".
//   prompt  tokens/s from Submit to the first token of the last prompt
//   decode  tokens/s of all sequences together while all of them generate
//   probe   GB/s at which the same number of threads reads 96 MiB of memory
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/engine.h"
#include "engine/model/model_loader.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/runtime/runner.h"

namespace sluice {
namespace {

constexpr int32_t kBlockSize = 16;
constexpr int32_t kMaxSequences = 64;
constexpr int32_t kMaxBatchedTokens = 512;
constexpr int32_t kNumBlocks = 2048;

struct Case {
  std::string kind;
  int32_t sequences = 0, prompt = 0, steps = 0;
};

// Notes when each token came.
class Recorder final : public TokenSink {
 public:
  void OnStep(const StepStats&, std::vector<SequenceOutput> outputs) override {
    const int64_t now = Clock::Real().NowNs();
    MutexLock lock(&mutex_);
    for (const SequenceOutput& output : outputs) {
      for (size_t i = 0; i < output.tokens.size(); ++i) times_[output.id].push_back(now);
      if (output.finish_reason == FinishReason::kNone) continue;
      ++finished_;
      if (output.finish_reason != FinishReason::kLength) failed_ = true;
    }
    changed_.NotifyAll();
  }

  // Waits for `count` ends; returns the times of each sequence's tokens. Empty if one of them failed.
  std::vector<std::vector<int64_t>> Wait(int32_t count) {
    MutexLock lock(&mutex_);
    while (finished_ < count) changed_.Wait(&mutex_);
    std::vector<std::vector<int64_t>> times;
    for (auto& [id, t] : times_) times.push_back(std::move(t));
    if (failed_) times.clear();
    times_.clear();
    finished_ = 0;
    failed_ = false;
    return times;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<SequenceId, std::vector<int64_t>> times_ ABSL_GUARDED_BY(mutex_);
  int32_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
};

double MemoryReadGbPerSecond(int threads) {
  constexpr size_t kWords = (96 << 20) / sizeof(uint64_t);
  static const std::vector<uint64_t> memory(kWords, 1);
  double best = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<std::thread> readers;
    std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
    const int64_t start = Clock::Real().NowNs();
    for (int t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] {
        const size_t first = kWords * size_t(t) / size_t(threads), last = kWords * size_t(t + 1) / size_t(threads);
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (size_t i = first; i + 4 <= last; i += 4) {
          a += memory[i];
          b += memory[i + 1];
          c += memory[i + 2];
          d += memory[i + 3];
        }
        sums[size_t(t) * 8] = a + b + c + d;
      });
    }
    for (auto& reader : readers) reader.join();
    const double seconds = double(Clock::Real().NowNs() - start) / 1e9;
    if (sums[0] == 0) std::abort();  // the sums are used, so the reads are not optimised away
    best = std::max(best, double(kWords * sizeof(uint64_t)) / seconds / 1e9);
  }
  return best;
}

std::string RunCase(Engine& engine, Recorder& recorder, const Case& c, int32_t vocab_size) {
  std::mt19937 random(1);
  std::vector<Request> requests(size_t(c.sequences), Request{});
  for (Request& request : requests) {
    for (int32_t i = 0; i < c.prompt; ++i) request.prompt_tokens.push_back(int32_t(random() % uint32_t(vocab_size)));
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    // A few more than are measured: sequences whose prompts come last start later.
    request.sampling.max_tokens =
        c.kind == "prompt" ? 1 : c.steps + 16 + c.sequences * c.prompt / kMaxBatchedTokens * 2;
  }
  const int64_t start = Clock::Real().NowNs();
  auto ids = engine.Submit(std::move(requests));
  if (!ids.ok()) return "error " + std::string(ids.status().message());
  const auto times = recorder.Wait(c.sequences);
  if (times.empty()) return "error a sequence failed";
  int64_t last_first = 0, first_last = INT64_MAX;
  for (const auto& t : times) {
    last_first = std::max(last_first, t.front());
    first_last = std::min(first_last, t.back());
  }
  double rate;
  if (c.kind == "prompt") {
    rate = double(c.prompt) * c.sequences / (double(last_first - start) / 1e9);
  } else {
    int64_t tokens = 0;
    for (const auto& t : times) {
      for (int64_t when : t) tokens += when > last_first && when <= first_last;
    }
    rate = double(tokens) / (double(first_last - last_first) / 1e9);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", rate);
  return text;
}

int Main(const std::string& path, int threads, ActivationType activations) {
  auto model = LoadModel(path);
  if (!model.ok()) return std::cerr << model.status() << "\n", 1;
  auto ops = NewCpuOps({.num_threads = threads, .isa = {}, .activations = activations});
  if (!ops.ok()) return std::cerr << ops.status() << "\n", 1;
  auto weights = LoadWeights(*model, ops->get());
  if (!weights.ok()) return std::cerr << weights.status() << "\n", 1;
  const int32_t vocab_size = model->spec.vocab_size;
  auto runner = Runner::Create(std::move(*ops), model->spec, std::move(*weights),
                               {.block_size = kBlockSize,
                                .num_blocks = kNumBlocks,
                                .max_model_len = model->spec.max_position,
                                .max_num_seqs = kMaxSequences,
                                .max_num_batched_tokens = kMaxBatchedTokens,
                                .numerics = {}});
  if (!runner.ok()) return std::cerr << runner.status() << "\n", 1;
  EngineOptions engine_options;
  (*runner)->SetEngineOptions(&engine_options);
  Recorder recorder;
  auto engine = Engine::Create(engine_options, std::move(*runner), &recorder, Clock::Real());
  if (!engine.ok()) return std::cerr << engine.status() << "\n", 1;
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    Case c;
    words >> c.kind >> c.sequences >> c.prompt >> c.steps;
    if (c.kind == "probe") {
      std::cout << MemoryReadGbPerSecond(threads) << std::endl;
    } else if ((c.kind == "prompt" || c.kind == "decode") && c.sequences > 0 && c.prompt > 0) {
      std::cout << RunCase(**engine, recorder, c, vocab_size) << std::endl;
    } else {
      std::cout << "error unknown case: " << line << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  std::string model;
  int threads = 2;
  auto activations = sluice::ActivationType::kInt16;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--model") model = value;
    if (flag == "--threads") threads = std::atoi(value.c_str());
    if (flag == "--activations") {
      activations = value == "int8"  ? sluice::ActivationType::kInt8
                    : value == "f32" ? sluice::ActivationType::kF32
                                     : sluice::ActivationType::kInt16;
    }
  }
  if (model.empty() || threads < 1)
    return std::cerr << "usage: engine_bench --model FILE.gguf [--threads N] [--activations T]\n", 2;
  return sluice::Main(model, threads, activations);
}
