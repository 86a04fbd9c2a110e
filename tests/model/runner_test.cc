// What the runner hands to the device and what it makes of the answers, on a device that only takes notes.
#include "engine/runtime/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

struct StubLinear : LinearWeights {
  int64_t out_features() const override { return 1; }
  int64_t in_features() const override { return 1; }
  int64_t resident_bytes() const override { return 100; }
};
struct StubVector : VectorWeights {
  int64_t size() const override { return 1; }
};
struct StubRope : RopeTableData {};
struct StubActivations : Activations {
  int64_t rows() const override { return 1; }
  int64_t cols() const override { return 1; }
};
struct StubCache : KvCache {
  explicit StubCache(KvCacheShape s) : cache_shape(std::move(s)) {}
  const KvCacheShape& shape() const override { return cache_shape; }
  KvCacheShape cache_shape;
};

// One BeginStep and what followed it.
struct Noted {
  std::vector<int32_t> token_ids, token_sources, positions, row_starts, context_lens, logits_rows;
  std::vector<int32_t> slot_mapping, block_tables;
  int32_t block_table_stride = 0;
  int num_layers = 0;
  bool logits = false;
  std::vector<SampleRow> samples;
  std::vector<std::vector<LogitBias>> biases;
  std::vector<LogprobRow> logprobs;
};

class NotingOps : public Ops {
 public:
  explicit NotingOps(std::vector<Noted>* notes) : notes_(*notes) {}

  std::string Description() const override { return "notes"; }
  absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView>, LinearLayout) override {
    return std::make_unique<StubLinear>();
  }
  absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>>,
                                                             LinearLayout) override {
    return absl::UnimplementedError("no experts here");
  }
  absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView&, const TensorView&,
                                                          const Mla&) override {
    return absl::UnimplementedError("no latent attention here");
  }
  absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float>) override {
    return std::make_unique<StubVector>();
  }
  absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(const RopeTable&, int32_t) override {
    return std::make_unique<StubRope>();
  }
  absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t, int64_t, ActivationsUse) override {
    return std::make_unique<StubActivations>();
  }
  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) override {
    return std::make_unique<StubCache>(shape);
  }
  absl::Status Reserve(const StepLimits&, const KvCacheShape&, absl::FunctionRef<void(KvCache*)>) override {
    return absl::OkStatus();
  }

  void BeginStep(const BatchView& batch) override {
    const auto copy = [](std::span<const int32_t> s) { return std::vector<int32_t>(s.begin(), s.end()); };
    Noted& noted = notes_.emplace_back();
    noted.token_ids = copy(batch.token_ids);
    noted.token_sources = copy(batch.token_sources);
    noted.positions = copy(batch.positions);
    noted.row_starts = copy(batch.row_starts);
    noted.context_lens = copy(batch.context_lens);
    noted.logits_rows = copy(batch.logits_rows);
    noted.slot_mapping = copy(batch.kv_groups[0].slot_mapping);
    noted.block_tables = copy(batch.kv_groups[0].block_tables);
    noted.block_table_stride = batch.kv_groups[0].block_table_stride;
  }
  void Embed(const LinearWeights&, float, Activations*) override {}
  void AddPositions(const LinearWeights&, Activations*) override {}
  void Qkv(const QkvArgs&) override {}
  void Attention(const AttentionArgs&) override {}
  void Project(const ProjectArgs&) override {}
  void MlaQkv(const MlaQkvArgs&) override {}
  void MlaAttention(const MlaAttentionArgs&) override {}
  void Moe(const MoeArgs&) override {}
  void Ffn(const DenseFfnArgs&) override { ++notes_.back().num_layers; }
  void Logits(const LogitsArgs&) override { notes_.back().logits = true; }

  // Answers that tell which row of the step they are for.
  absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    if (fault_) return absl::InternalError("the device is gone");
    for (size_t i = 0; i < rows.size(); ++i) {
      notes_.back().samples.push_back(rows[i]);
      notes_.back().biases.emplace_back(rows[i].logit_bias.begin(), rows[i].logit_bias.end());
      results[i].token = 1000 + notes_.back().logits_rows[size_t(rows[i].logits_row)];
      results[i].finite = results[i].token != 1005;
      results[i].logprobs.rank = results[i].token;
    }
    return absl::OkStatus();
  }
  absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      notes_.back().logprobs.push_back(rows[i]);
      results[i].rank = 2000 + notes_.back().logits_rows[size_t(rows[i].logits_row)];
    }
    return absl::OkStatus();
  }
  absl::Status CopyLogits(int32_t, std::span<float>) override { return absl::OkStatus(); }
  absl::Status CopyActivations(const Activations&, int64_t, std::span<float>) override { return absl::OkStatus(); }

  bool launches_async() const override { return runs_ahead_; }
  absl::Status LaunchSample(std::span<const SampleRow> rows) override {
    EXPECT_LT(in_flight_.size(), 2u);
    std::vector<SampleResult>& results = in_flight_.emplace_back(rows.size());
    return Sample(rows, results);
  }
  absl::Status TakeSamples(std::span<SampleResult> results) override {
    EXPECT_EQ(results.size(), in_flight_.front().size());
    std::ranges::move(in_flight_.front(), results.begin());
    in_flight_.pop_front();
    return absl::OkStatus();
  }

  void Break() { fault_ = true; }
  void RunAhead() { runs_ahead_ = true; }
  size_t num_in_flight() const { return in_flight_.size(); }

 private:
  std::vector<Noted>& notes_;
  std::deque<std::vector<SampleResult>> in_flight_;
  bool fault_ = false;
  bool runs_ahead_ = false;
};

class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() : model_(MakeToyModel(ToySpec(), TensorType::kF32, 1)) {
    auto ops = std::make_unique<NotingOps>(&notes_);
    ops_ = ops.get();
    absl::StatusOr<ModelWeights> weights = LoadWeights(model_.spec, ToyTensorNames(), model_.tensors, "toy", ops_);
    EXPECT_TRUE(weights.ok()) << weights.status();
    RunnerOptions options;
    options.num_blocks = 8;
    options.max_model_len = 128;
    options.max_num_seqs = 3;
    options.max_num_batched_tokens = 16;
    absl::StatusOr<std::unique_ptr<Runner>> runner =
        Runner::Create(std::move(ops), model_.spec, *std::move(weights), options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
    warm_up_ = std::exchange(notes_, {});
  }

  // Eight rows of one sequence, in blocks 5 and 2.
  static StepPlan EightRows() {
    StepPlan plan;
    plan.token_ids = {1, 2, 3, 4, 5, 6, 7, 8};
    plan.positions = {12, 13, 14, 15, 16, 17, 18, 19};
    plan.row_starts = {0, 8};
    plan.context_lens = {20};
    plan.seq_slots = {0};
    plan.kv_groups.resize(1);
    plan.kv_groups[0].slot_mapping = {92, 93, 94, 95, 32, 33, 34, 35};
    plan.kv_groups[0].block_tables = {5, 2};
    plan.kv_groups[0].block_table_stride = 2;
    return plan;
  }

  ToyModel model_;
  std::vector<Noted> notes_, warm_up_;
  NotingOps* ops_ = nullptr;
  std::unique_ptr<Runner> runner_;
};

TEST_F(RunnerTest, CreationWarmsUpAndCountsWhatItHolds) {
  ASSERT_EQ(warm_up_.size(), 1u);
  EXPECT_EQ(warm_up_[0].num_layers, 3);
  EXPECT_EQ(warm_up_[0].samples.size(), 1u);
  EXPECT_EQ(runner_->kv_bytes(), int64_t{8} * 16 * 3 * 64 * 2);
  EXPECT_EQ(runner_->weight_bytes(), 100 * (2 + 3 * 4));  // embedding, head, and four matrices in each layer
}

TEST_F(RunnerTest, ThePlansArraysReachTheDevice) {
  StepPlan plan = EightRows();
  ASSERT_TRUE(runner_->Run(plan).ok());
  ASSERT_EQ(notes_.size(), 1u);
  const Noted& noted = notes_[0];
  EXPECT_EQ(noted.token_ids, plan.token_ids);
  EXPECT_EQ(noted.positions, plan.positions);
  EXPECT_EQ(noted.row_starts, plan.row_starts);
  EXPECT_EQ(noted.context_lens, plan.context_lens);
  EXPECT_EQ(noted.slot_mapping, plan.kv_groups[0].slot_mapping);
  EXPECT_EQ(noted.block_tables, plan.kv_groups[0].block_tables);
  EXPECT_EQ(noted.block_table_stride, 2);
  EXPECT_EQ(noted.num_layers, 3);
  EXPECT_FALSE(noted.logits);  // nobody asked for any
}

TEST_F(RunnerTest, EverySamplingFieldReachesTheDevice) {
  SamplingParams params;
  params.temperature = 0.7f;
  params.min_p = 0.01f;
  params.top_k = 40;
  params.top_p = 0.9f;
  params.repetition_penalty = 1.1f;
  params.frequency_penalty = 0.2f;
  params.presence_penalty = 0.3f;
  params.logit_bias = {{7, -1.5f}, {8, 2.5f}};
  params.seed = 99;
  params.logprobs = 4;
  const std::vector<int32_t> prompt = {1, 2, 3}, output = {4, 5}, masked = {2};
  const std::vector<uint32_t> allowed = {6};
  StepPlan plan = EightRows();
  plan.logits_rows = {7};
  SampleEntry& entry = plan.samples.emplace_back(params);
  entry.position = 20;
  entry.prompt_tokens = prompt;
  entry.output_tokens = output;
  entry.allowed_tokens = allowed;
  entry.masked_tokens = masked;
  const absl::StatusOr<StepResult> result = runner_->Run(plan);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->samples.size(), 1u);
  EXPECT_EQ(result->samples[0].token, 1007);
  EXPECT_EQ(result->samples[0].logprobs.rank, 1007);
  EXPECT_TRUE(result->samples[0].finite);

  ASSERT_EQ(notes_[0].samples.size(), 1u);
  const SampleRow& row = notes_[0].samples[0];
  EXPECT_EQ(row.logits_row, 0);
  EXPECT_EQ(row.temperature, 0.7f);
  EXPECT_EQ(row.min_p, 0.01f);
  EXPECT_EQ(row.top_k, 40);
  EXPECT_EQ(row.top_p, 0.9f);
  EXPECT_EQ(row.repetition_penalty, 1.1f);
  EXPECT_EQ(row.frequency_penalty, 0.2f);
  EXPECT_EQ(row.presence_penalty, 0.3f);
  EXPECT_EQ(row.seed, 99u);
  EXPECT_EQ(row.position, 20);
  EXPECT_EQ(row.num_logprobs, 4);
  EXPECT_TRUE(std::ranges::equal(row.prompt_tokens, prompt));
  EXPECT_TRUE(std::ranges::equal(row.output_tokens, output));
  EXPECT_TRUE(std::ranges::equal(row.masked_tokens, masked));
  EXPECT_EQ(row.allowed_tokens.data(), allowed.data());
  EXPECT_EQ(row.allowed_tokens.size(), allowed.size());
  ASSERT_EQ(notes_[0].biases[0].size(), 2u);
  EXPECT_EQ(notes_[0].biases[0][1].token, 8);
  EXPECT_EQ(notes_[0].biases[0][1].bias, 2.5f);
}

TEST_F(RunnerTest, LogitsBeyondRoomAreTakenInTurns) {
  SamplingParams params;
  StepPlan plan = EightRows();
  plan.logits_rows = {0, 1, 2, 3, 4, 5, 6};
  for (const int32_t index : {6, 5}) {
    plan.samples.emplace_back(params).logits_row = index;
  }
  for (const int32_t index : {4, 0, 3, 2}) {
    PromptLogprobEntry& entry = plan.prompt_logprobs.emplace_back();
    entry.logits_index = index;
    entry.token = 10 + index;
    entry.num_top = index;
  }
  const absl::StatusOr<StepResult> result = runner_->Run(plan);
  ASSERT_TRUE(result.ok()) << result.status();

  ASSERT_EQ(notes_.size(), 3u);
  EXPECT_EQ(notes_[0].logits_rows, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(notes_[1].logits_rows, (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(notes_[2].logits_rows, (std::vector<int32_t>{6}));
  EXPECT_EQ(notes_[0].num_layers, 3);
  EXPECT_EQ(notes_[1].num_layers + notes_[2].num_layers, 0);  // the layers ran once
  for (const Noted& noted : notes_) {
    EXPECT_TRUE(noted.logits);
    EXPECT_EQ(noted.token_ids, plan.token_ids);
  }

  EXPECT_EQ(result->samples[0].token, 1006);
  EXPECT_EQ(result->samples[1].token, 1005);
  EXPECT_FALSE(result->samples[1].finite);
  ASSERT_EQ(result->prompt_logprobs.size(), 4u);
  EXPECT_EQ(result->prompt_logprobs[0].rank, 2004);
  EXPECT_EQ(result->prompt_logprobs[1].rank, 2000);
  EXPECT_EQ(result->prompt_logprobs[2].rank, 2003);
  EXPECT_EQ(result->prompt_logprobs[3].rank, 2002);
  ASSERT_EQ(notes_[1].logprobs.size(), 2u);
  EXPECT_EQ(notes_[1].logprobs[0].logits_row, 1);
  EXPECT_EQ(notes_[1].logprobs[0].token, 14);
  EXPECT_EQ(notes_[1].logprobs[0].num_top, 4);
}

TEST_F(RunnerTest, AStepIsLaunchedWithTokensThatOnlyTheDeviceKnows) {
  ops_->RunAhead();
  SamplingParams params;
  StepPlan first = EightRows(), second = EightRows();
  first.logits_rows = second.logits_rows = {6, 7};
  for (StepPlan* plan : {&first, &second}) {
    for (const int32_t index : {0, 1}) {
      plan->samples.emplace_back(params).logits_row = index;
    }
  }
  second.token_sources = {-1, -1, -1, -1, -1, -1, 1, 0};
  ASSERT_TRUE(runner_->Launch(first).ok());
  ASSERT_TRUE(runner_->Launch(second).ok());
  EXPECT_EQ(ops_->num_in_flight(), 2u);
  EXPECT_TRUE(notes_[0].token_sources.empty());
  EXPECT_EQ(notes_[1].token_sources, second.token_sources);
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<StepResult> result = runner_->Take();
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->samples.size(), 2u);
    EXPECT_EQ(result->samples[0].token, 1006);
    EXPECT_EQ(result->samples[1].token, 1007);
  }
}

TEST_F(RunnerTest, ASynchronousStepTakesThePreviousOneFirst) {
  ops_->RunAhead();
  SamplingParams params;
  StepPlan simple = EightRows();
  simple.logits_rows = {7};
  simple.samples.emplace_back(params);
  StepPlan reporting = EightRows();  // two draws in two goes, one report on its prompt
  reporting.logits_rows = {0, 1, 2, 3};
  reporting.token_sources = {-1, -1, -1, -1, -1, -1, -1, 0};
  for (const int32_t index : {2, 3}) {
    reporting.samples.emplace_back(params).logits_row = index;
  }
  reporting.prompt_logprobs.emplace_back().num_top = 1;
  StepPlan last = simple;
  last.token_sources = {-1, -1, -1, -1, -1, -1, 0, 1};

  ASSERT_TRUE(runner_->Launch(simple).ok());
  EXPECT_EQ(ops_->num_in_flight(), 1u);
  ASSERT_TRUE(runner_->Launch(reporting).ok());
  EXPECT_EQ(ops_->num_in_flight(), 0u);
  EXPECT_EQ(notes_[1].token_ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 1007}));
  EXPECT_TRUE(notes_[1].token_sources.empty());
  EXPECT_EQ(runner_->Take()->samples[0].token, 1007);
  ASSERT_TRUE(runner_->Launch(last).ok());
  EXPECT_EQ(notes_.back().token_ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 1002, 1003}));
  EXPECT_EQ(runner_->Take()->prompt_logprobs[0].rank, 2000);
  EXPECT_EQ(runner_->Take()->samples[0].token, 1007);
}

TEST_F(RunnerTest, AFaultOfTheDeviceComesBack) {
  SamplingParams params;
  StepPlan plan = EightRows();
  plan.logits_rows = {7};
  plan.samples.emplace_back(params);
  ops_->Break();
  EXPECT_EQ(runner_->Run(plan).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace sluice::testing
