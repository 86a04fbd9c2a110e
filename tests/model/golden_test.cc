// Every tiny model of tests/goldens/models against the logits that transformers computed from the same files, and
// against itself: however a sequence is cut, whoever shares its steps, after a preemption, with a prefix found in the cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/rope_table.h"
#include "engine/engine.h"
#include "engine/model/kv_groups.h"
#include "engine/model/model_loader.h"
#include "engine/model/registry.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/runtime/load_runner.h"
#include "engine/runtime/runner.h"
#include "engine/scheduler/kv_blocks.h"
#include "tests/model/golden_model.h"
#include "tests/model/layer_tap.h"
#include "tests/model/quantise.h"
#include "tests/model/step_driver.h"
#include "tests/scheduler/engine_harness.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

constexpr float kTolerance = 1e-4f;  // of the largest |logit|
// A layer differs if a value is further off than f16 rounding and a healthy layer's errors explain, relative to the
// layer's largest.
constexpr float kStateTolerance = 2e-3f;
constexpr int32_t kMaxModelLen = 96;
constexpr int32_t kPromptLen = 40;
constexpr int32_t kNumNew = 24;
// Of sequences that are served together: they start with one block in each KV group and grow to six in a full one.
// Two prompts are a step.
constexpr int32_t kServedPromptLen = 8;
constexpr int32_t kServedNumNew = 86;

enum class Device { kReference, kCpu };

std::unique_ptr<Ops> NewOps(Device device) {
  if (device == Device::kReference) return NewReferenceOps();
  CpuOpsOptions options;
  options.num_threads = 2;
  options.activations = ActivationType::kF32;
  absl::StatusOr<std::unique_ptr<Ops>> ops = NewCpuOps(options);
  EXPECT_TRUE(ops.ok()) << ops.status();
  return *std::move(ops);
}

struct LoadedRunner {
  std::unique_ptr<Runner> runner;
  LayerTap* tap = nullptr;  // the runner's Ops
};

// Rotary positions go on beyond the trained context, where some cases have their sequences.
int32_t ContextOf(const ModelSpec& spec) {
  return spec.position_embedding == PositionEmbedding::kLearned ? std::min(kMaxModelLen, spec.max_position)
                                                                : kMaxModelLen;
}

RunnerOptions Options(const ModelSpec& spec) {
  RunnerOptions options;
  options.block_size = 16;
  options.num_blocks = 512;
  options.kv_dtype = KvDType::kF32;
  options.max_model_len = ContextOf(spec);
  options.max_num_seqs = kMaxModelLen;
  options.max_num_batched_tokens = kMaxModelLen;
  return options;
}

absl::StatusOr<LoadedRunner> Load(const LoadedModel& model, Device device, std::optional<int32_t> num_blocks = {},
                                  int32_t mla_expand_from = INT32_MAX) {
  auto tap = std::make_unique<LayerTap>(NewOps(device));
  LoadedRunner loaded{.runner = nullptr, .tap = tap.get()};
  absl::StatusOr<ModelWeights> weights = LoadWeights(model, tap.get());
  if (!weights.ok()) return weights.status();
  RunnerOptions options = Options(model.spec);
  options.num_blocks = num_blocks.value_or(options.num_blocks);
  options.numerics.mla_expand_from = mla_expand_from;
  absl::StatusOr<std::unique_ptr<Runner>> runner =
      Runner::Create(std::move(tap), model.spec, *std::move(weights), options);
  if (!runner.ok()) return runner.status();
  loaded.runner = *std::move(runner);
  return loaded;
}

absl::StatusOr<LoadedRunner> Load(const std::string& path, Device device, std::optional<int32_t> num_blocks = {}) {
  absl::StatusOr<LoadedModel> model = LoadModel(path);
  if (!model.ok()) return model.status();
  return Load(*model, device, num_blocks);
}

// Which layer is the first that is not the golden's.
std::string FirstDifference(const GoldenSequence& golden, const std::vector<std::vector<std::vector<float>>>& states) {
  for (size_t layer = 0; layer < golden.states.size(); ++layer) {
    if (layer >= states.size()) return absl::StrCat("layer ", layer, " was not computed");
    float largest = 0, difference = 0;
    for (size_t i = 0; i < golden.state_positions.size(); ++i) {
      const std::vector<float>& expected = golden.states[layer][i];
      difference = std::max(difference, LargestDifference(states[layer][size_t(golden.state_positions[i])], expected));
      for (const float value : expected) largest = std::max(largest, std::abs(value));
    }
    if (!(difference <= kStateTolerance * largest)) {
      return absl::StrCat("layer ", layer, " is the first that differs: by ", difference / largest,
                          " of the largest value behind it");
    }
  }
  return "no layer differs by more than f16 shows: the final norm, the head, or small errors that grow";
}

struct Comparison {
  float worst = 0;    // |difference of a logit|, relative to the largest |logit|
  std::string where;  // it began, if that is too much; or why nothing was compared
};

Comparison CompareWithGolden(absl::StatusOr<LoadedRunner> loaded, const GoldenModel& golden) {
  if (!loaded.ok()) return {.worst = 1, .where = loaded.status().ToString()};
  StepDriver driver(loaded->runner.get());
  loaded->tap->listening = true;
  Comparison comparison;
  for (const GoldenSequence& sequence : golden.sequences) {
    const std::vector<std::vector<float>> logits = driver.AllLogits(sequence.tokens);
    float difference = 0;
    size_t worst_row = 0;
    for (size_t row = 0; row < logits.size(); ++row) {
      const float here = LargestDifference(logits[row], sequence.logits[row]) / golden.max_abs;
      if (!(here <= difference)) difference = here, worst_row = row;
    }
    if (difference <= comparison.worst) continue;
    comparison.worst = difference;
    if (difference <= kTolerance) continue;
    comparison.where = absl::StrCat(sequence.tokens.size(), " tokens, row ", worst_row, ": ",
                                    FirstDifference(sequence, loaded->tap->states()));
  }
  return comparison;
}

// The matrix that makes the attention's part of the residual stream, in a Hugging Face folder.
bool IsAttentionOutputOf(size_t layer, const std::string& name) {
  return absl::StrContains(name, absl::StrCat(layer, ".self_attn.o_proj.weight")) ||
         absl::StrContains(name, absl::StrCat(layer, ".attn.c_proj.weight"));
}

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { golden_ = ReadGolden(GetParam()); }

  void ExpectGolden(const std::string& what, const std::string& path, Device device) {
    const Comparison comparison = CompareWithGolden(Load(path, device), golden_);
    std::cout << "golden " << GetParam() << " " << what << " " << comparison.worst << std::endl;
    RecordProperty(what, absl::StrCat(comparison.worst));
    EXPECT_LE(comparison.worst, kTolerance) << comparison.where;
  }

  GoldenModel golden_;
};

TEST_P(GoldenTest, LogitsOfTheReference) { ExpectGolden("reference", golden_.folder, Device::kReference); }

TEST_P(GoldenTest, LogitsOfTheCpu) { ExpectGolden("cpu", golden_.folder, Device::kCpu); }

TEST_P(GoldenTest, LogitsFromTheConfigAsPublished) {
  const fs::path published = fs::path(golden_.folder) / "published.json";
  if (!fs::exists(published)) return;  // it looks as transformers 5 writes it
  const fs::path folder = fs::path(::testing::TempDir()) / absl::StrCat("published-", GetParam());
  fs::remove_all(folder);
  fs::copy(golden_.folder, folder);
  fs::rename(folder / "published.json", folder / "config.json");
  ExpectGolden("published", folder, Device::kCpu);
  fs::remove_all(folder);
}

TEST_P(GoldenTest, LogitsFromTheGgufTwin) {
  const fs::path twin = fs::path(golden_.folder) / "model.gguf";
  if (!fs::exists(twin)) return;  // tests/goldens/models/README.md says why there is none
  ExpectGolden("gguf", twin, Device::kCpu);
}

// The absorbed form is the one that all other tests take.
TEST_P(GoldenTest, LogitsOfTheExpandedFormOfLatentAttention) {
  absl::StatusOr<LoadedModel> model = LoadModel(golden_.folder);
  ASSERT_TRUE(model.ok()) << model.status();
  if (!std::holds_alternative<Mla>(model->spec.layers[0].attention.kind)) return;
  const Comparison expanded = CompareWithGolden(Load(*model, Device::kCpu, {}, 1), golden_);
  std::cout << "golden " << GetParam() << " expanded " << expanded.worst << std::endl;
  EXPECT_LE(expanded.worst, kTolerance) << expanded.where;
  EXPECT_NE(expanded.worst, CompareWithGolden(Load(*model, Device::kCpu), golden_).worst) << "it was not taken";
}

TEST_P(GoldenTest, AWrongModelFailsNamingTheWrongLayer) {
  absl::StatusOr<LoadedModel> model = LoadModel(golden_.folder);
  ASSERT_TRUE(model.ok()) << model.status();
  for (size_t layer = 0; layer < model->spec.layers.size(); ++layer) {
    std::deque<std::vector<uint8_t>> zeros;  // of the projection, and of its fp8 scales
    std::vector<TensorView> right = model->tensors;
    for (TensorView& tensor : model->tensors) {
      if (IsAttentionOutputOf(layer, tensor.name)) tensor.data = zeros.emplace_back(tensor.data.size());
    }
    ASSERT_FALSE(zeros.empty()) << "layer " << layer << " has no output projection";
    const Comparison comparison = CompareWithGolden(Load(*model, Device::kCpu), golden_);
    model->tensors = std::move(right);
    EXPECT_GT(comparison.worst, kTolerance);
    EXPECT_THAT(comparison.where, ::testing::HasSubstr(absl::StrCat("layer ", layer, " is the first that differs")));
  }
}

// Matrices as blocks of Q8_0 and of Q4_1 in turn, against the f32 that the blocks stand for.
TEST_P(GoldenTest, QuantisedMatricesAreWhatTheirBlocksStandFor) {
  absl::StatusOr<LoadedModel> quantised = LoadModel(golden_.folder), dequantised = LoadModel(golden_.folder);
  ASSERT_TRUE(quantised.ok()) << quantised.status();
  ASSERT_TRUE(dequantised.ok()) << dequantised.status();
  std::deque<std::vector<uint8_t>> bytes;
  for (size_t i = 0; i < quantised->tensors.size(); ++i) {
    TensorView& tensor = quantised->tensors[i];
    if (!CanQuantise(tensor)) continue;
    Quantise(bytes.size() % 4 == 0 ? TensorType::kQ8_0 : TensorType::kQ4_1, &tensor, &bytes.emplace_back());
    Dequantise(tensor, &dequantised->tensors[i], &bytes.emplace_back());
  }
  if (bytes.empty()) return;  // all of its rows are too short, or no whole blocks
  absl::StatusOr<LoadedRunner> cpu = Load(*quantised, Device::kCpu);
  absl::StatusOr<LoadedRunner> reference = Load(*dequantised, Device::kReference);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ASSERT_TRUE(reference.ok()) << reference.status();
  float difference = 0, largest = 0;
  for (const GoldenSequence& sequence : golden_.sequences) {
    const auto expected = StepDriver(reference->runner.get()).AllLogits(sequence.tokens);
    const auto found = StepDriver(cpu->runner.get()).AllLogits(sequence.tokens);
    for (size_t row = 0; row < expected.size(); ++row) {
      difference = std::max(difference, LargestDifference(found[row], expected[row]));
      for (const float logit : expected[row]) largest = std::max(largest, std::abs(logit));
    }
  }
  std::cout << "golden " << GetParam() << " quantised " << difference / largest << std::endl;
  EXPECT_LE(difference, kTolerance * largest);
}

// ---- bit for bit

TEST_P(GoldenTest, OneStepOrManyOrOneTokenAtATime) {
  absl::StatusOr<LoadedRunner> loaded = Load(golden_.folder, Device::kCpu);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (const GoldenSequence& sequence : golden_.sequences) {
    const auto whole = StepDriver(loaded->runner.get(), 1).AllLogits(sequence.tokens);
    for (const int32_t chunk : {1, 7, 32}) {
      EXPECT_EQ(StepDriver(loaded->runner.get(), uint32_t(chunk)).AllLogits(sequence.tokens, chunk), whole)
          << "chunks of " << chunk;
    }
  }
}

// Drawn with a seed, so that a difference in any logit can show.
SamplingParams Drawn(uint64_t seed) {
  SamplingParams params = Greedy();
  params.temperature = 0.9f;
  params.seed = seed;
  params.ignore_eos = true;
  params.max_tokens = kNumNew;
  return params;
}

std::vector<float> Logprobs(const TestSequence& sequence) {
  std::vector<float> values;
  for (const TokenLogprobs& logprobs : sequence.logprobs) values.push_back(logprobs.chosen.logprob);
  return values;
}

TEST_P(GoldenTest, AmongStrangersThatComeAndGo) {
  absl::StatusOr<LoadedRunner> loaded = Load(golden_.folder, Device::kCpu);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<int32_t>& all = golden_.sequences[0].tokens;
  const std::vector<int32_t> prompt(all.begin(), all.begin() + kPromptLen);
  StepDriver alone_driver(loaded->runner.get(), 1);
  TestSequence* alone = alone_driver.Add(prompt, Drawn(5));
  alone_driver.Generate(alone, kMaxModelLen, kNumNew);

  StepDriver driver(loaded->runner.get(), 2);
  std::vector<TestSequence*> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(driver.Add(std::vector<int32_t>(all.begin() + i, all.begin() + 9 + 2 * i), Drawn(uint64_t(i))));
  }
  TestSequence* sequence = driver.Add(prompt, Drawn(5));
  for (int step = 0; std::ssize(sequence->tokens) < std::ssize(prompt) + kNumNew; ++step) {
    std::vector<StepDriver::Part> parts;
    for (int i = 0; i < 5; ++i) {
      TestSequence* s = strangers[size_t(i)];
      const int32_t left = int32_t(s->tokens.size()) - s->num_computed;
      if ((step + i) % 3 != 0 && s->tokens.size() < size_t(s->num_prompt + kNumNew)) {
        parts.push_back({s, std::min(left, 5)});
      }
      if (i == 2) parts.push_back({sequence, std::min(int32_t(sequence->tokens.size()) - sequence->num_computed, 11)});
    }
    driver.Step(parts);
  }
  EXPECT_EQ(sequence->tokens, alone->tokens);
  EXPECT_EQ(Logprobs(*sequence), Logprobs(*alone));
}

struct Answers {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> logprobs;
  int64_t num_preemptions = 0;
};

// How sequences of the model are served, in a pool that holds `num_sequences` of them.
EngineOptions ServeOptions(const ModelSpec& spec, std::vector<AttentionMask> kv_groups, int32_t num_sequences) {
  EngineOptions options;
  options.max_model_len = std::min(kServedPromptLen + kServedNumNew, ContextOf(spec));
  options.vocab_size = spec.vocab_size;
  options.kv_groups = std::move(kv_groups);
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 2 * kServedPromptLen;
  // No fewer than let a second one in.
  const int64_t of_one = std::max(PeakBlocks(options.max_model_len - 1, options), 4 * std::ssize(options.kv_groups));
  options.num_blocks = num_sequences * int32_t(of_one);
  options.admit_by_forecast = false;  // so that there are preemptions
  return options;
}

// Answers to six prompts, each a piece of `tokens` of its own so that they share no blocks.
Answers Serve(const std::string& path, const std::vector<int32_t>& tokens, const EngineOptions& options) {
  Answers answers;
  absl::StatusOr<LoadedRunner> loaded = Load(path, Device::kCpu, options.num_blocks);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return answers;
  RecordingSink sink;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(options, std::move(loaded->runner), &sink, Clock::Real());
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return answers;
  std::vector<Request> requests(6);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto first = tokens.begin() + ptrdiff_t(i);
    requests[i].prompt_tokens.assign(first, first + kServedPromptLen);
    requests[i].sampling = Drawn(i);
    requests[i].sampling.max_tokens = options.max_model_len - kServedPromptLen;
  }
  const absl::StatusOr<std::vector<SequenceId>> ids = (*engine)->Submit(requests);
  EXPECT_TRUE(ids.ok()) << ids.status();
  if (!ids.ok()) return answers;
  sink.WaitForFinished(int(requests.size()));
  for (const SequenceId id : *ids) {
    const Collected result = sink.Get(id);
    answers.tokens.push_back(result.tokens);
    answers.logprobs.push_back(result.logprobs);
  }
  answers.num_preemptions = (*engine)->Stats().num_preemptions;
  return answers;
}

TEST_P(GoldenTest, AfterPreemption) {
  absl::StatusOr<LoadedModel> model = LoadModel(golden_.folder);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<int32_t>& tokens = golden_.sequences[0].tokens;
  std::vector<AttentionMask> kv_groups = MakeKvGroups(model->spec).masks;
  EngineOptions one_by_one = ServeOptions(model->spec, kv_groups, 8);
  one_by_one.max_num_seqs = 1;
  const Answers roomy = Serve(golden_.folder, tokens, one_by_one);
  ASSERT_EQ(roomy.tokens.size(), 6u);
  EXPECT_EQ(roomy.tokens[0].size(), size_t(one_by_one.max_model_len - kServedPromptLen));
  EXPECT_EQ(roomy.num_preemptions, 0);
  // A window that two blocks hold never needs more than the admission has reserved. The same model as if it had no
  // window, which gives nothing back, runs out of blocks.
  if (kv_groups.size() == 1) kv_groups[0] = AttentionMask{};
  const Answers tight = Serve(golden_.folder, tokens, ServeOptions(model->spec, kv_groups, 1));
  EXPECT_GT(tight.num_preemptions, 0);
  EXPECT_EQ(tight.tokens, roomy.tokens);
  EXPECT_EQ(tight.logprobs, roomy.logprobs);
}

struct Turns {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> logprobs;
  std::vector<int32_t> cached;
};

// A conversation of two turns that begins like another one, and the second turn once more: each request alone, in an engine
// that has them all one after the other.
Turns Converse(absl::StatusOr<LoadedRunner> loaded, const std::vector<int32_t>& tokens, bool prefix_cache) {
  Turns turns;
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return turns;
  EngineOptions options;
  loaded->runner->SetEngineOptions(&options);
  options.prefix_cache = prefix_cache;
  RecordingSink sink;
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(options, std::move(loaded->runner), &sink, Clock::Real());
  EXPECT_TRUE(engine.ok()) << engine.status();
  Request request;
  const auto ask = [&](std::vector<int32_t> prompt, uint64_t seed) {
    request.prompt_tokens = std::move(prompt);
    request.sampling = Drawn(seed);
    request.sampling.max_tokens = request.prompt_tokens.size() == 37 ? 20 : 6;
    request.sampling.ignore_eos = true;
    const SequenceId id = SubmitOne(engine->get(), request);
    sink.WaitForFinished(int(turns.tokens.size()) + 1);
    const Collected result = sink.Get(id);
    turns.tokens.push_back(result.tokens);
    turns.logprobs.push_back(result.logprobs);
    turns.cached.push_back(result.last.num_cached_tokens);
  };
  std::vector<int32_t> first(tokens.begin(), tokens.begin() + 37), other = first;
  other[35] = (other[35] + 1) % options.vocab_size;
  ask(other, 1);
  ask(first, 2);
  std::vector<int32_t> second = first;
  second.insert(second.end(), turns.tokens.back().begin(), turns.tokens.back().end());
  second.push_back(tokens[0]);
  ask(second, 3);
  ask(second, 4);
  return turns;
}

// Every bit, on both devices; where there is a choice, with the rows of prompts computed in the other way, too. Of two
// blocks of 16 in 37 tokens, and of three in the 56 that the second turn finds.
TEST_P(GoldenTest, WithAWarmPrefix) {
  absl::StatusOr<LoadedModel> model = LoadModel(golden_.folder);
  ASSERT_TRUE(model.ok()) << model.status();
  const bool latent = std::holds_alternative<Mla>(model->spec.layers[0].attention.kind);
  struct Way {
    Device device;
    int32_t mla_expand_from;
    std::vector<int32_t> cached;
  };
  std::vector<Way> ways = {{Device::kReference, INT32_MAX, {0, 32, 48, 48}}, {Device::kCpu, INT32_MAX, {0, 32, 48, 48}}};
  // Generated tokens were computed one by one, as no prompt is.
  if (latent) ways.push_back({Device::kCpu, 1, {0, 32, 32, 48}});
  // Where frequencies follow the length of each request the turns have nothing in common.
  const RopeClasses classes = RopeClassesOf(model->spec.rope_tables);
  if (classes.ClassOf(37 + 20) != classes.ClassOf(58 + 6)) {
    for (Way& way : ways) way.cached[2] = 0;
  }
  for (const Way& way : ways) {
    const std::vector<int32_t>& tokens = golden_.sequences[0].tokens;
    const Turns cold = Converse(Load(*model, way.device, {}, way.mla_expand_from), tokens, /*prefix_cache=*/false);
    const Turns warm = Converse(Load(*model, way.device, {}, way.mla_expand_from), tokens, /*prefix_cache=*/true);
    EXPECT_EQ(warm.tokens, cold.tokens);
    EXPECT_EQ(warm.logprobs, cold.logprobs);
    EXPECT_EQ(cold.cached, std::vector<int32_t>(4, 0));
    EXPECT_EQ(warm.cached, way.cached);
  }
}

// Log-probabilities of tokens 1 .. n - 1 of `tokens` as a server that allows `max_model_len` tokens gives them: of all
// but the last as a prompt's, of the last by its own draw.
std::vector<float> ServedLogprobs(const std::string& path, int32_t max_model_len, const std::vector<int32_t>& tokens) {
  absl::StatusOr<LoadedModel> model = LoadModel(path);
  EXPECT_TRUE(model.ok()) << model.status();
  LoadRunnerOptions load;
  load.kv.dtype = KvDType::kF32;
  load.kv.max_model_len = max_model_len;
  absl::StatusOr<std::unique_ptr<Runner>> runner = LoadRunner(*model, NewOps(Device::kCpu), load);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return {};
  EngineOptions options;
  (*runner)->SetEngineOptions(&options);
  RecordingSink sink;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options, *std::move(runner), &sink, Clock::Real());
  EXPECT_TRUE(engine.ok()) << engine.status();
  Request request;
  request.prompt_tokens.assign(tokens.begin(), tokens.end() - 1);
  request.sampling.prompt_logprobs = 0;
  request.sampling.logprobs = 0;
  request.sampling.max_tokens = 1;
  request.sampling.logit_bias = {{tokens.back(), 1000}};  // a log-probability is taken before
  const SequenceId id = SubmitOne(engine->get(), std::move(request));
  sink.WaitForFinished(1);
  std::vector<float> logprobs = sink.Get(id).prompt_logprobs;
  const std::vector<float> last = sink.Get(id).logprobs;
  logprobs.insert(logprobs.end(), last.begin(), last.end());
  return logprobs;
}

// log-softmax of the golden logits at the token that follows.
std::vector<float> GoldenLogprobs(const GoldenSequence& golden) {
  std::vector<float> logprobs;
  for (size_t t = 0; t + 1 < golden.tokens.size(); ++t) {
    double total = 0;
    const double top = *std::max_element(golden.logits[t].begin(), golden.logits[t].end());
    for (const float logit : golden.logits[t]) total += std::exp(logit - top);
    logprobs.push_back(float(golden.logits[t][size_t(golden.tokens[t + 1])] - top - std::log(total)));
  }
  return logprobs;
}

// The trained context is 32 tokens, the factor 2: sequences in between have stretched tables.
TEST(GoldenModelsTest, DynamicNtkStretchesTheContextOfAServerThatIsAskedTo) {
  const GoldenModel golden = ReadGolden("llama-dynamic");
  int num_stretched = 0;
  for (const GoldenSequence& sequence : golden.sequences) {
    if (sequence.tokens.size() > 64) continue;
    num_stretched += sequence.tokens.size() > 32;
    const std::vector<float> served = ServedLogprobs(golden.folder, 64, sequence.tokens);
    EXPECT_LE(LargestDifference(served, GoldenLogprobs(sequence)), kTolerance * golden.max_abs);
  }
  EXPECT_GT(num_stretched, 0);
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, ::testing::ValuesIn(GoldenNames()), TestName);

TEST(GoldenModelsTest, EveryArchitectureHasItsModels) {
  std::map<std::string, int> of_row;
  std::set<std::string> of_type, with_twin, in_gguf;
  for (const std::string& name : GoldenNames()) {
    const GoldenModel golden = ReadGolden(name);
    ++of_row[golden.row];
    for (const char* file : {"config.json", "published.json"}) {
      const absl::StatusOr<ConfigJson> config = ConfigJson::Open((fs::path(golden.folder) / file).string());
      if (config.ok()) of_type.insert(*config->GetString("model_type"));
    }
    if (absl::StatusOr<Gguf> twin = Gguf::Open(golden.folder + "/model.gguf"); twin.ok()) {
      with_twin.insert(golden.row);
      in_gguf.emplace(*twin->GetString("general.architecture"));
    }
  }
  EXPECT_EQ(of_row.size(), 18u);
  for (const auto& [row, count] : of_row) {
    EXPECT_GE(count, 2) << row;
    EXPECT_TRUE(with_twin.contains(row)) << row;
  }
  for (const Architecture& architecture : Architectures()) {
    const std::string type(architecture.config_name), gguf(architecture.gguf_name);
    EXPECT_TRUE(type.empty() || of_type.contains(type)) << type;
    EXPECT_TRUE(gguf.empty() || in_gguf.contains(gguf)) << gguf;
  }
}

// What an implementation can get wrong has been tried on the reference's own model (tests/goldens/golden_mistakes.py):
// the golden would find each of the mistakes.
TEST(GoldenModelsTest, EveryMistakeMovesTheLogits) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/models/mistakes.json");
  const nlohmann::json moves = nlohmann::json::parse(file);
  std::vector<std::string> tried;
  for (const auto& [name, mistakes] : moves.items()) {
    tried.push_back(name);
    EXPECT_GE(mistakes.size(), 12u) << name;
    for (const auto& [mistake, move] : mistakes.items()) {
      EXPECT_GE(move.get<float>(), 2 * kTolerance) << name << ": " << mistake;
    }
  }
  EXPECT_THAT(tried, ::testing::UnorderedElementsAreArray(GoldenNames()));
}

}  // namespace
}  // namespace sluice::testing
