// Nothing allocates in a step once the first steps have run: every way to the heap is counted here.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/ops/cpu/cpu_ops.h"
#include "tests/ops/layer_harness.h"
#include "tests/ops/mla_harness.h"
#include "tests/ops/moe_harness.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void* Counted(void* p) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (p == nullptr) std::abort();
  return p;
}
}  // namespace

// Not inlined: gcc takes malloc and free, seen through one side only, for a mismatch.
[[gnu::noinline]] void* operator new(size_t n) { return Counted(std::malloc(n != 0 ? n : 1)); }
[[gnu::noinline]] void* operator new[](size_t n) { return Counted(std::malloc(n != 0 ? n : 1)); }
[[gnu::noinline]] void* operator new(size_t n, std::align_val_t a) {
  return Counted(memalign(static_cast<size_t>(a), n));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void* aligned_alloc(size_t alignment, size_t n) { return Counted(memalign(alignment, n)); }
#endif

namespace sluice {
namespace {

// Counts what `inner` does in the calls of a step.
class CountingOps : public Ops {
 public:
  explicit CountingOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  std::string Description() const override { return inner_->Description(); }
  absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView> parts,
                                                            LinearLayout layout) override {
    return inner_->LoadLinear(parts, layout);
  }
  absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                             LinearLayout layout) override {
    return inner_->LoadExperts(experts, layout);
  }
  absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                          const Mla& heads) override {
    return inner_->LoadMlaUp(key_up, value_up, heads);
  }
  absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float> values) override {
    return inner_->LoadVector(values);
  }
  absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(const RopeTable& table, int32_t m) override {
    return inner_->LoadRope(table, m);
  }
  absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t rows, int64_t cols, ActivationsUse use) override {
    return inner_->NewActivations(rows, cols, use);
  }
  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) override {
    return inner_->NewKvCache(shape);
  }
  absl::Status Reserve(const StepLimits& limits, const KvCacheShape& kv,
                       absl::FunctionRef<void(KvCache*)> operations) override {
    return inner_->Reserve(limits, kv, operations);
  }

  void BeginStep(const BatchView& batch) override {
    Count([&] { inner_->BeginStep(batch); });
  }
  void Embed(const LinearWeights& table, float scale, Activations* x) override {
    Count([&] { inner_->Embed(table, scale, x); });
  }
  void AddPositions(const LinearWeights& table, Activations* x) override {
    Count([&] { inner_->AddPositions(table, x); });
  }
  void Qkv(const QkvArgs& args) override {
    Count([&] { inner_->Qkv(args); });
  }
  void Attention(const AttentionArgs& args) override {
    Count([&] { inner_->Attention(args); });
  }
  void Project(const ProjectArgs& args) override {
    Count([&] { inner_->Project(args); });
  }
  void MlaQkv(const MlaQkvArgs& args) override {
    Count([&] { inner_->MlaQkv(args); });
  }
  void MlaAttention(const MlaAttentionArgs& args) override {
    Count([&] { inner_->MlaAttention(args); });
  }
  void Moe(const MoeArgs& args) override {
    Count([&] { inner_->Moe(args); });
  }
  void Ffn(const DenseFfnArgs& args) override {
    Count([&] { inner_->Ffn(args); });
  }
  void Logits(const LogitsArgs& args) override {
    Count([&] { inner_->Logits(args); });
  }
  absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    Count([&] { (void)inner_->Sample(rows, results); });
    return absl::OkStatus();
  }
  absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) override {
    Count([&] { (void)inner_->Logprobs(rows, results); });
    return absl::OkStatus();
  }
  absl::Status CopyLogits(int32_t row, std::span<float> out) override { return inner_->CopyLogits(row, out); }
  absl::Status CopyActivations(const Activations& a, int64_t row, std::span<float> out) override {
    return inner_->CopyActivations(a, row, out);
  }

 private:
  template <class Fn>
  void Count(Fn&& fn) {
    counting = true;
    fn();
    counting = false;
  }

  std::unique_ptr<Ops> inner_;
};

TEST(CpuOpsAllocations, ASteadyStepAllocatesNothing) {
  std::vector<LayerConfig> configs = LayerConfigs();
  for (ActivationType activations : {ActivationType::kInt16, ActivationType::kF32}) {
    LayerConfig quantised;
    quantised.name = "quantised";
    quantised.weights = TensorType::kQ4_1;
    quantised.kv = KvDType::kF16;
    configs.push_back(quantised);
    for (const LayerConfig& config : configs) {
      SCOPED_TRACE(config.name);
      CountingOps ops(NewCpuOps({3, {}, activations}).value());
      LayerHarness harness(config, &ops);
      Trace trace;  // rows are copied out between the counted calls
      harness.RunStep({{0, 20}, {1, 1}}, &trace);
      harness.RunStep({{0, 1}}, &trace);
      allocations = 0;
      harness.RunStep({{2, 200}, {0, 30}, {1, 1}}, &trace);
      for (int i = 0; i < 5; ++i) harness.RunStep({{0, 1}, {2, 60}, {1, 1}}, &trace);
      harness.RunStep({{2, 1}}, &trace);
      std::vector<SampleRow> rows(1);
      const std::vector<int32_t> tokens = {1, 2, 3};
      const std::vector<uint32_t> allowed(1 << 12, 0x55555555);  // as large as any of these vocabularies
      rows[0].allowed_tokens = allowed;
      rows[0].output_tokens = tokens, rows[0].presence_penalty = 1, rows[0].top_p = 0.9f, rows[0].num_logprobs = 5;
      std::vector<SampleResult> results(1);
      results[0].logprobs.top.reserve(5);  // the caller keeps its results
      ASSERT_TRUE(ops.Sample(rows, results).ok());
      EXPECT_EQ(allocations, 0);
    }
  }
}

TEST(CpuOpsAllocations, ASteadyMixtureAllocatesNothing) {
  for (TensorType weights : {TensorType::kF32, TensorType::kQ8_0}) {
    for (MoeConfig config : MoeConfigs()) {
      SCOPED_TRACE(config.name);
      if (weights == TensorType::kQ8_0 && (config.hidden % 32 != 0 || config.shared_hidden % 32 != 0)) continue;
      config.weights = weights;
      CountingOps ops(NewCpuOps({3, {}, ActivationType::kInt16}).value());
      MoeHarness harness(config, &ops);
      std::vector<int32_t> tokens(1);
      harness.Run(tokens);
      allocations = 0;
      for (size_t rows : {1, 300, 2, 900, 5}) {
        tokens.resize(rows);
        for (size_t i = 0; i < rows; ++i) tokens[i] = static_cast<int32_t>(i % MoeHarness::kTokens);
        harness.Run(tokens);
      }
      EXPECT_EQ(allocations, 0);
    }
  }
}

TEST(CpuOpsAllocations, ASteadyStepOfLatentAttentionAllocatesNothing) {
  std::vector<MlaConfig> configs = MlaConfigs();
  MlaConfig quantised;
  quantised.name = "quantised";
  quantised.weights = TensorType::kQ8_0, quantised.kv = KvDType::kF16, quantised.heads.q_lora_rank = 32;
  quantised.prompt_len = 40, quantised.expand_from = 1;
  configs.push_back(quantised);
  for (const MlaConfig& config : configs) {
    SCOPED_TRACE(config.name);
    CountingOps ops(NewCpuOps({3, {}, ActivationType::kInt16}).value());
    MlaHarness harness(config, &ops);
    MlaTrace trace;  // rows are copied out between the counted calls
    harness.RunStep({{0, 20}, {1, 1}}, &trace);
    harness.RunStep({{0, 30}}, &trace);
    harness.RunStep({{0, 1}}, &trace);
    allocations = 0;
    harness.RunStep({{2, 200}, {0, 30}, {1, 1}}, &trace);
    for (int i = 0; i < 5; ++i) harness.RunStep({{0, 1}, {2, 60}, {1, 1}}, &trace);
    harness.RunStep({{2, 1}}, &trace);
    EXPECT_EQ(allocations, 0);
  }
}

}  // namespace
}  // namespace sluice
