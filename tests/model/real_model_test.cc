// The real model against transformers in f32 on the same weights (tests/goldens/make_smollm2.py).
#include "tests/model/real_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/model/step_driver.h"
#include "tests/sanitized.h"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

std::string GoldenPath(const std::string& name) { return std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/" + name; }

Json ReadGolden(const std::string& name) {
  std::ifstream file(GoldenPath(name));
  EXPECT_TRUE(file.good()) << name;
  return Json::parse(file);
}

std::vector<float> ReadFloats(const std::string& name) {
  std::ifstream file(GoldenPath(name), std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

class RealModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RealModel() == nullptr) GTEST_SKIP() << RealModelMissing();
  }
  static std::unique_ptr<Runner> NewRunner(const RealRunnerOptions& options) {
    absl::StatusOr<std::unique_ptr<Runner>> runner = NewRealRunner(options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }
};

TEST_F(RealModelTest, TheFileSaysWhatItIs) {
  const LoadedModel& model = *RealModel();
  EXPECT_EQ(model.spec.architecture, "llama");
  EXPECT_EQ(model.num_parameters, 134515008);
  EXPECT_EQ(model.weight_type, "Q4_1");
  EXPECT_EQ(model.eos_token_ids, (std::vector<int32_t>{0, 2}));  // <|endoftext|>, <|im_end|>
  EXPECT_NE(model.chat_template.find("<|im_start|>"), std::string::npos);
  EXPECT_EQ(model.tokenizer->vocab_size(), 49152);
}

// Largest difference over all golden samples, relative to the row's largest |logit|.
double WorstLogitError(Runner* runner) {
  const Json golden = ReadGolden("smollm2_logits.json");
  const std::vector<float> samples = ReadFloats("smollm2_logits.bin");
  const size_t stride = golden["sample_stride"], vocab = golden["vocab_size"];
  std::map<std::string, std::vector<std::vector<float>>> logits;
  StepDriver driver(runner);
  for (const Json& prompt : golden["prompts"]) {
    if (kSanitized && prompt["ids"].size() > 100) continue;  // most of the tokens
    logits[prompt["id"]] = driver.AllLogits(prompt["ids"]);
  }
  double worst = 0;
  size_t next = 0;
  for (const Json& row : golden["rows"]) {
    if (!logits.contains(row["prompt"])) {
      next += (vocab + stride - 1) / stride;
      continue;
    }
    const std::vector<float>& ours = logits[row["prompt"]][row["position"].get<size_t>()];
    const double scale = row["max_abs"];
    for (size_t id = 0; id < vocab; id += stride) {
      worst = std::max(worst, std::abs(double(ours[id]) - double(samples[next++])) / scale);
    }
    for (size_t i = 0; i < row["top_ids"].size(); ++i) {
      const double theirs = row["top_logits"][i];
      worst = std::max(worst, std::abs(double(ours[row["top_ids"][i].get<size_t>()]) - theirs) / scale);
    }
  }
  for (const Json& row : golden["full_rows"]) {
    if (!logits.contains(row["prompt"])) {
      next += vocab;
      continue;
    }
    const std::vector<float>& ours = logits[row["prompt"]][row["position"].get<size_t>()];
    double scale = 0;
    for (size_t id = 0; id < vocab; ++id) scale = std::max(scale, std::abs(double(samples[next + id])));
    for (size_t id = 0; id < vocab; ++id) {
      worst = std::max(worst, std::abs(double(ours[id]) - double(samples[next + id])) / scale);
    }
    next += vocab;
  }
  EXPECT_EQ(next, samples.size());
  return worst;
}

TEST_F(RealModelTest, LogitsInF32AreThoseOfAnIndependentEngine) {
  RealRunnerOptions options;
  options.activations = ActivationType::kF32;
  options.kv_dtype = KvDType::kF32;
  const std::unique_ptr<Runner> runner = NewRunner(options);
  const double worst = WorstLogitError(runner.get());
  std::cout << "largest |dlogit| / max|logit|: " << worst << std::endl;
  EXPECT_LE(worst, 1e-4);
}

// Greedy continuations of `prompts`, 16 sequences in a step.
std::vector<std::vector<int32_t>> Continue(Runner* runner, const std::vector<std::vector<int32_t>>& prompts,
                                           int32_t num_new) {
  std::vector<std::vector<int32_t>> answers;
  for (size_t first = 0; first < prompts.size(); first += 16) {
    StepDriver driver(runner);
    std::vector<TestSequence*> sequences;
    for (size_t i = first; i < std::min(first + 16, prompts.size()); ++i) sequences.push_back(driver.Add(prompts[i]));
    while (true) {
      std::vector<StepDriver::Part> parts;
      int32_t room = 512;
      for (TestSequence* s : sequences) {
        if (int32_t(s->tokens.size()) >= s->num_prompt + num_new) continue;
        const int32_t count = std::min(int32_t(s->tokens.size()) - s->num_computed, room);
        if (count > 0) parts.push_back({s, count});
        room -= count;
      }
      if (parts.empty()) break;
      driver.Step(parts);
    }
    for (TestSequence* s : sequences) answers.emplace_back(s->tokens.begin() + s->num_prompt, s->tokens.end());
  }
  return answers;
}

TEST_F(RealModelTest, Int16WithF16CacheKeepsTheGreedyTokensOfF32) {
  const std::unique_ptr<Runner> runner = NewRunner({});
  const Json golden = ReadGolden("smollm2_greedy.json");
  ASSERT_EQ(golden["prompts"].size(), 32u);
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& prompt : golden["prompts"]) prompts.push_back(prompt["ids"]);
  if (kSanitized) prompts.resize(4);  // a token takes a hundred times as long
  const std::vector<std::vector<int32_t>> answers = Continue(runner.get(), prompts, 64);
  int num_equal = 0, num_tokens = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Json& prompt = golden["prompts"][i];
    const std::vector<int32_t> theirs = prompt["tokens"];
    ASSERT_EQ(answers[i].size(), 64u);
    ASSERT_EQ(theirs.size(), 64u);
    const auto differs = std::mismatch(answers[i].begin(), answers[i].end(), theirs.begin()).first;
    const size_t step = size_t(differs - answers[i].begin());
    num_tokens += int(step);
    if (step == theirs.size()) {
      ++num_equal;
      continue;
    }
    // What follows a difference is another text; the margin there says whether f32 itself was sure.
    const double margin = prompt["margin"][step];
    std::cout << prompt["id"] << ": token " << step << " is " << answers[i][step] << ", in f32 " << theirs[step]
              << ", whose margin is " << margin << " of max|logit|" << std::endl;
    EXPECT_LT(margin, 2e-3) << prompt["id"];
  }
  std::cout << num_equal << " of " << prompts.size() << " continuations equal; " << num_tokens << " of "
            << 64 * prompts.size() << " tokens before the first difference" << std::endl;
}

// exp of the mean negative log-likelihood of ids[1..], as one sequence.
double Perplexity(Runner* runner, const std::vector<int32_t>& ids) {
  StepDriver driver(runner);
  const std::vector<float> logprobs = driver.PromptLogprobs(ids);
  double sum = 0;
  for (float logprob : logprobs) sum -= double(logprob);
  return std::exp(sum / double(logprobs.size()));
}

TEST_F(RealModelTest, PerplexityOfATextOf4096Tokens) {
  const Json golden = ReadGolden("smollm2_perplexity.json");
  std::vector<int32_t> ids = golden["ids"];
  ASSERT_EQ(ids.size(), 4096u);
  {
    // The ids are those of our own tokenizer too.
    std::ifstream file(GoldenPath("perplexity.txt"));
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    absl::StatusOr<std::vector<int32_t>> ours = RealModel()->tokenizer->Encode(text);
    ASSERT_TRUE(ours.ok()) << ours.status();
    ours->resize(4096);
    EXPECT_EQ(*ours, ids);
  }
  if (kSanitized) ids.resize(256);  // no measure then
  const double f32 = std::exp(golden["mean_nll"].get<double>());
  std::cout << "f32 (transformers): " << f32 << std::endl;
  for (const auto& [name, activations, tolerance] :
       {std::tuple("int16", ActivationType::kInt16, 1e-4), std::tuple("int8", ActivationType::kInt8, 1.5e-2)}) {
    RealRunnerOptions options;
    options.activations = activations;
    const double ours = Perplexity(NewRunner(options).get(), ids);
    const double change = ours / f32 - 1;
    std::cout << name << ", f16 cache: " << ours << ", " << 100 * change << " %" << std::endl;
    EXPECT_TRUE(kSanitized || std::abs(change) <= tolerance) << name << ": " << change;
  }
}

}  // namespace
}  // namespace sluice::testing
