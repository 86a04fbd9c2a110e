// What the scheduler makes of a crowd, with the real model and without a server.
//
// usage: scheduling_bench --model FILE.gguf [--threads N] [--max-num-seqs N] newcomers LONG TOKENS
//        scheduling_bench --model FILE.gguf [--threads N] [--max-num-seqs N] pool CALLS PROMPT OUTPUT BLOCKS
//   newcomers  LONG prompts of TOKENS tokens at once; from a second later on a call of 8 + 16 tokens every two seconds,
//              until the long ones have ended: time to first token of the small ones, duration of the long ones
//   pool       CALLS calls of PROMPT + OUTPUT tokens at once in a pool of BLOCKS blocks: seconds, rows computed over
//              rows needed, preemptions
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
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

struct Arguments {
  std::string model;
  int threads = 2;
  int32_t max_num_seqs = 64;
  std::vector<std::string> words;
  int32_t number(size_t i) const { return i < words.size() ? std::atoi(words[i].c_str()) : 0; }
};

class Recorder final : public TokenSink {
 public:
  void OnStep(const StepStats& stats, std::vector<SequenceOutput> outputs) override {
    MutexLock lock(&mutex_);
    num_rows_ += stats.num_prefill_tokens + stats.num_decode_tokens;
    for (SequenceOutput& output : outputs) {
      if (output.finish_reason != FinishReason::kNone) ended_[output.id] = std::move(output);
    }
    changed_.NotifyAll();
  }

  RequestTimings Wait(SequenceId id) {
    MutexLock lock(&mutex_);
    while (!ended_.contains(id)) changed_.Wait(&mutex_);
    return ended_[id].timings;
  }
  bool Ended(SequenceId id) {
    MutexLock lock(&mutex_);
    return ended_.contains(id);
  }
  int64_t num_rows() {
    MutexLock lock(&mutex_);
    return num_rows_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<SequenceId, SequenceOutput> ended_ ABSL_GUARDED_BY(mutex_);
  int64_t num_rows_ ABSL_GUARDED_BY(mutex_) = 0;
};

Request RandomRequest(int32_t prompt, int32_t output, int32_t vocab_size) {
  static std::mt19937 random(1);
  Request request;
  for (int32_t i = 0; i < prompt; ++i) request.prompt_tokens.push_back(int32_t(random() % uint32_t(vocab_size)));
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = output;
  return request;
}

double Seconds(int64_t from_ns, int64_t to_ns) { return double(to_ns - from_ns) * 1e-9; }

void Newcomers(Engine& engine, Recorder& recorder, const Arguments& arguments, int32_t vocab_size) {
  std::vector<Request> prompts;
  for (int32_t i = 0; i < arguments.number(1); ++i) {
    prompts.push_back(RandomRequest(arguments.number(2), 4, vocab_size));
  }
  const std::vector<SequenceId> longs = engine.Submit(std::move(prompts)).value();
  std::vector<SequenceId> smalls;
  std::this_thread::sleep_for(std::chrono::seconds(1));
  while (!std::all_of(longs.begin(), longs.end(), [&](SequenceId id) { return recorder.Ended(id); })) {
    smalls.push_back(engine.Submit({RandomRequest(8, 16, vocab_size)}).value().front());
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  std::vector<double> ttft;
  for (SequenceId id : smalls) {
    const RequestTimings t = recorder.Wait(id);
    ttft.push_back(Seconds(t.arrival_ns, t.first_token_ns));
  }
  std::sort(ttft.begin(), ttft.end());
  std::printf("small calls: %zu, time to first token %.2f s in the median, %.2f s at most\n", ttft.size(),
              ttft[ttft.size() / 2], ttft.back());
  for (SequenceId id : longs) {
    const RequestTimings t = recorder.Wait(id);
    std::printf("long prompt: first token after %.1f s\n", Seconds(t.arrival_ns, t.first_token_ns));
  }
}

void Pool(Engine& engine, Recorder& recorder, const Arguments& arguments, int32_t vocab_size) {
  const int32_t num_calls = arguments.number(1), prompt = arguments.number(2), output = arguments.number(3);
  std::vector<Request> requests;
  for (int32_t i = 0; i < num_calls; ++i) requests.push_back(RandomRequest(prompt, output, vocab_size));
  const int64_t start_ns = Clock::Real().NowNs();
  const std::vector<SequenceId> ids = engine.Submit(std::move(requests)).value();
  for (SequenceId id : ids) recorder.Wait(id);
  const int64_t needed = int64_t{num_calls} * (prompt + output - 1);
  std::printf("%.1f s, %.3f of the rows needed, %lld preemptions\n", Seconds(start_ns, Clock::Real().NowNs()),
              double(recorder.num_rows()) / double(needed), static_cast<long long>(engine.Stats().num_preemptions));
}

int Main(const Arguments& arguments) {
  const bool pool = arguments.words[0] == "pool";
  auto model = LoadModel(arguments.model);
  if (!model.ok()) return std::cerr << model.status() << "\n", 1;
  auto ops = NewCpuOps({.num_threads = arguments.threads, .isa = {}, .activations = ActivationType::kInt16});
  if (!ops.ok()) return std::cerr << ops.status() << "\n", 1;
  auto weights = LoadWeights(*model, ops->get());
  if (!weights.ok()) return std::cerr << weights.status() << "\n", 1;
  EngineOptions options;
  options.max_model_len = model->spec.max_position;
  options.vocab_size = model->spec.vocab_size;
  options.max_num_seqs = arguments.max_num_seqs;
  options.num_blocks = pool ? arguments.number(4) : 4 * options.max_model_len / options.block_size;
  auto runner = Runner::Create(std::move(*ops), model->spec, std::move(*weights),
                               {.block_size = options.block_size,
                                .num_blocks = options.num_blocks,
                                .max_model_len = options.max_model_len,
                                .max_num_seqs = options.max_num_seqs,
                                .max_num_batched_tokens = options.max_num_batched_tokens,
                                .numerics = {}});
  if (!runner.ok()) return std::cerr << runner.status() << "\n", 1;
  (*runner)->SetEngineOptions(&options);
  Recorder recorder;
  auto engine = Engine::Create(options, std::move(*runner), &recorder, Clock::Real());
  if (!engine.ok()) return std::cerr << engine.status() << "\n", 1;
  (pool ? Pool : Newcomers)(**engine, recorder, arguments, options.vocab_size);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--model" && has_value) {
      arguments.model = argv[++i];
    } else if (word == "--threads" && has_value) {
      arguments.threads = std::atoi(argv[++i]);
    } else if (word == "--max-num-seqs" && has_value) {
      arguments.max_num_seqs = std::atoi(argv[++i]);
    } else {
      arguments.words.push_back(word);
    }
  }
  const bool newcomers = arguments.words.size() == 3 && arguments.words[0] == "newcomers";
  const bool pool = arguments.words.size() == 5 && arguments.words[0] == "pool";
  if (arguments.model.empty() || (!newcomers && !pool)) {
    std::cerr << "usage: scheduling_bench --model FILE.gguf [--threads N] [--max-num-seqs N]\n"
                 "         newcomers LONG TOKENS | pool CALLS PROMPT OUTPUT BLOCKS\n";
    return 2;
  }
  return sluice::Main(arguments);
}
