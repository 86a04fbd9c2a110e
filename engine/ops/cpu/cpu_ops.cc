#include "engine/ops/cpu/cpu_ops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/cpu_info.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/attention.h"
#include "engine/ops/cpu/cpu_context.h"
#include "engine/ops/cpu/ffn.h"
#include "engine/ops/cpu/kv_cache.h"
#include "engine/ops/cpu/logits.h"
#include "engine/ops/cpu/mla_attention.h"
#include "engine/ops/cpu/mla_qkv.h"
#include "engine/ops/cpu/mla_weights.h"
#include "engine/ops/cpu/moe.h"
#include "engine/ops/cpu/project.h"
#include "engine/ops/cpu/qkv.h"
#include "engine/ops/cpu/rope.h"
#include "engine/ops/cpu/sample.h"
#include "engine/ops/validate.h"

namespace sluice {
namespace {

const char* ActivationTypeName(ActivationType type) {
  switch (type) {
    case ActivationType::kInt8:
      return "int8";
    case ActivationType::kInt16:
      return "int16";
    case ActivationType::kF32:
      return "f32";
  }
  return "?";
}

class CpuOps : public Ops {
 public:
  CpuOps(int num_threads, Isa isa, ActivationType activations) : context_(num_threads, isa, activations) {}

  std::string Description() const override {
    return absl::StrCat("cpu, ", context_.num_threads(), context_.num_threads() == 1 ? " thread, " : " threads, ",
                        IsaName(context_.linear.isa), ", ", ActivationTypeName(context_.activations), " activations");
  }

  std::string DescribeWorkers() const override { return context_.pool.Describe(); }

  absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView> parts,
                                                            LinearLayout layout) override {
    SLUICE_RETURN_IF_ERROR(ValidateLinearParts(parts, layout));
    SLUICE_ASSIGN_OR_RETURN(PackedLinear packed, PackedLinear::Pack(parts, layout, &context_.pool, &context_.arena));
    return std::make_unique<CpuLinear>(std::move(packed));
  }

  absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                             LinearLayout layout) override {
    return CpuExperts::Load(context_, experts, layout);
  }
  absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                          const Mla& heads) override {
    return CpuMlaUp::Load(key_up, value_up, heads, &context_.pool, &context_.arena);
  }

  absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float> values) override {
    return std::make_unique<CpuVector>(values);
  }

  absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(const RopeTable& table, int32_t max_position) override {
    return std::make_unique<CpuRope>(table, max_position);
  }

  absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t rows, int64_t cols, ActivationsUse) override {
    SLUICE_CHECK(rows > 0 && cols > 0);
    auto memory = context_.arena.Allocate(static_cast<size_t>(rows * CpuActivations::Stride(cols)) * sizeof(float));
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for activations [", rows, ", ", cols, "]"));
    }
    return std::make_unique<CpuActivations>(std::move(memory), rows, cols);
  }

  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) override {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<CpuKvCache> cache, CpuKvCache::Create(shape, &context_.arena));
    return cache;
  }

  absl::Status Reserve(const StepLimits& limits, const KvCacheShape&, absl::FunctionRef<void(KvCache*)>) override {
    const int32_t max_logits = limits.max_logits, vocab_size = limits.vocab_size;
    context_.max_tokens = std::max(context_.max_tokens, limits.max_tokens);
    context_.expands_latents = limits.expands_latents;
    logits_stride_ = (int64_t{vocab_size} + kPanelRows - 1) / kPanelRows * kPanelRows;
    max_logits_ = max_logits;
    logits_ = context_.arena.Allocate(static_cast<size_t>(max_logits * logits_stride_) * sizeof(float));
    if (logits_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", max_logits, " rows of ", vocab_size, " logits"));
    }
    SLUICE_RETURN_IF_ERROR(attention_.Reserve(context_));
    SLUICE_RETURN_IF_ERROR(mla_.Reserve(context_));
    return sampler_.Reserve(context_, max_logits, vocab_size);
  }

  void BeginStep(const BatchView& batch) override {
    SLUICE_CHECK(batch.row_starts.size() == batch.context_lens.size() + 1);
    SLUICE_CHECK(batch.positions.size() == batch.token_ids.size());
    SLUICE_CHECK(batch.row_starts.back() == static_cast<int32_t>(batch.token_ids.size()));
    context_.batch = batch;
    ++context_.step;
    vocab_ = 0;
  }

  void Embed(const LinearWeights& table, float scale, Activations* x) override {
    CpuEmbed(context_, table, scale, RowsOf(x));
  }
  void AddPositions(const LinearWeights& table, Activations* x) override {
    CpuAddPositions(context_, table, RowsOf(x));
  }
  void Qkv(const QkvArgs& args) override { CpuQkv(context_, args); }
  void Attention(const AttentionArgs& args) override { attention_.Run(context_, args); }
  void Project(const ProjectArgs& args) override { CpuProject(context_, args); }
  void MlaQkv(const MlaQkvArgs& args) override { CpuMlaQkv(context_, args); }
  void MlaAttention(const MlaAttentionArgs& args) override { mla_.Attention(context_, args); }
  void Moe(const MoeArgs& args) override { CpuMoe(context_, args, moe_scratch_); }
  void Ffn(const DenseFfnArgs& args) override { CpuFfn(context_, args); }

  void Logits(const LogitsArgs& args) override {
    SLUICE_CHECK(static_cast<int64_t>(context_.batch.logits_rows.size()) <= max_logits_);
    vocab_ = PackedOf(args.head).num_rows();
    CpuLogits(context_, args, reinterpret_cast<float*>(logits_.get()), logits_stride_);
  }

  absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    SLUICE_CHECK(rows.size() == results.size());
    sampler_.Sample(context_, logits_view(), rows, results);
    return absl::OkStatus();
  }

  absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) override {
    SLUICE_CHECK(rows.size() == results.size());
    sampler_.Logprobs(context_, logits_view(), rows, results);
    return absl::OkStatus();
  }

  absl::Status CopyLogits(int32_t row, std::span<float> out) override {
    std::copy_n(logits_view().row(row), vocab_, out.begin());
    return absl::OkStatus();
  }

  absl::Status CopyActivations(const Activations& activations, int64_t row, std::span<float> out) override {
    std::copy_n(RowsOf(&activations).row(row), activations.cols(), out.begin());
    return absl::OkStatus();
  }

 private:
  LogitsView logits_view() const { return {reinterpret_cast<const float*>(logits_.get()), logits_stride_, vocab_}; }

  CpuContext context_;
  CpuAttention attention_;
  CpuMla mla_;
  MoeScratch moe_scratch_;
  CpuSampler sampler_;
  std::shared_ptr<uint8_t> logits_;  // [max_logits][logits_stride]
  int64_t logits_stride_ = 0, max_logits_ = 0, vocab_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Ops>> NewCpuOps(const CpuOpsOptions& options) {
  if (options.num_threads < 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_threads is ", options.num_threads, ", must not be negative"));
  }
  const Isa isa = options.isa.value_or(BestIsa());
  const std::vector<Isa> supported = SupportedIsas();
  if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
    return absl::InvalidArgumentError(absl::StrCat("this machine has no ", IsaName(isa)));
  }
  const int num_threads = options.num_threads > 0 ? options.num_threads : DefaultThreadCount();
  return std::make_unique<CpuOps>(num_threads, isa, options.activations);
}

}  // namespace sluice
