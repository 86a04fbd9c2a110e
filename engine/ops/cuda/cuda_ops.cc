#include "engine/ops/cuda/cuda_ops.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/float16.h"
#include "engine/base/log.h"
#include "engine/ops/cuda/cuda_attention.h"
#include "engine/ops/cuda/cuda_context.h"
#include "engine/ops/cuda/cuda_linear.h"
#include "engine/ops/cuda/cuda_moe.h"
#include "engine/ops/cuda/cuda_sampler.h"
#include "engine/ops/cuda/kernels/embed.h"
#include "engine/ops/cuda/kernels/sample.h"
#include "engine/ops/cuda/step_graphs.h"

namespace sluice {
namespace {

// What the KV cache leaves of the free memory, beside CUDA graphs, for what the driver takes on the way: code of
// kernels, the rounding of allocations.
constexpr int64_t kMarginShare = 16;
constexpr int64_t kMaxMargin = int64_t{512} << 20;
// CUDA graphs made to see what one takes: the driver takes memory in larger pieces.
constexpr int32_t kTrialGraphs = 4;

class CudaOps : public Ops {
 public:
  CudaOps(std::unique_ptr<Device> device, const CudaOpsOptions& options, std::unique_ptr<GemmLibrary> library)
      : context_(std::move(device), options.activations),
        loader_(context_.device(), options.activations, options.num_threads) {
    context_.expansion = MlaExpansion(options.mla_pass_tokens);
    if (library != nullptr) context_.route = GemmRoute(std::move(library));
  }

  std::string Description() const override {
    const GemmRoute& route = context_.route;
    return absl::StrCat("cuda, ", context_.device()->Name(), ", ",
                        context_.element() == cuda::Element::kF32 ? "f32" : "bf16", " activations",
                        route.library() == nullptr ? ""
                                                   : absl::StrCat(", long prompts by ", route.library()->Description()));
  }

  // ---- load time

  absl::StatusOr<std::unique_ptr<LinearWeights>> LoadLinear(std::span<const TensorView> parts,
                                                            LinearLayout layout) override {
    return loader_.Linear(parts, layout);
  }
  absl::StatusOr<std::unique_ptr<ExpertWeights>> LoadExperts(std::span<const std::vector<TensorView>> experts,
                                                             LinearLayout layout) override {
    return loader_.Experts(experts, layout);
  }
  absl::StatusOr<std::unique_ptr<MlaUpWeights>> LoadMlaUp(const TensorView& key_up, const TensorView& value_up,
                                                          const Mla& heads) override {
    return loader_.MlaUp(key_up, value_up, heads);
  }
  absl::StatusOr<std::unique_ptr<VectorWeights>> LoadVector(std::span<const float> values) override {
    return loader_.Vector(values);
  }
  absl::StatusOr<std::unique_ptr<RopeTableData>> LoadRope(const RopeTable& table, int32_t) override {
    return loader_.Rope(table);
  }

  absl::StatusOr<std::unique_ptr<Activations>> NewActivations(int64_t rows, int64_t cols, ActivationsUse use) override {
    SLUICE_CHECK(rows > 0 && cols > 0);
    const cuda::Element element = use == ActivationsUse::kResidual ? cuda::Element::kF32 : context_.element();
    SLUICE_ASSIGN_OR_RETURN(DeviceBuffer data,
                            DeviceBuffer::Create(context_.device(), rows * cols * cuda::ElementBytes(element)));
    return std::make_unique<CudaActivations>(std::move(data), element, rows, cols);
  }

  absl::StatusOr<std::unique_ptr<KvCache>> NewKvCache(const KvCacheShape& shape) override {
    return CudaKvCache::Create(shape, context_.device());
  }

  absl::Status Reserve(const StepLimits& limits, const KvCacheShape& kv,
                       absl::FunctionRef<void(KvCache*)> operations) override {
    context_.max_tokens = limits.max_tokens;
    context_.max_seqs = limits.max_seqs;
    context_.max_logits = limits.max_logits;
    context_.vocab_size = limits.vocab_size;
    context_.max_context_tokens = limits.max_context_tokens;
    context_.expansion.SetLimits(limits.expands_latents, limits.max_context_tokens, limits.max_seqs,
                                 limits.max_blocks_per_seq * kv.block_size);
    num_kv_groups_ = limits.num_kv_groups;
    SLUICE_RETURN_IF_ERROR(loader_.Finish());
    if (loader_.widened_bytes() > 0 && context_.element() == cuda::Element::kBF16) {
      Log(LogLevel::kInfo, absl::StrCat("weights that no kernel reads as they are stored take ",
                                        loader_.widened_bytes(), " bytes more on the device than in the file"));
    }
    logits();
    SLUICE_RETURN_IF_ERROR(context_.status());
    SLUICE_RETURN_IF_ERROR(sampler_.Reserve(context_, limits));
    graphs_.SetLimits(limits);
    const StepShape largest{limits.max_tokens, limits.max_seqs, limits.max_logits, limits.max_blocks_per_seq};
    SLUICE_RETURN_IF_ERROR(context_.step.Reserve(largest, num_kv_groups_));
    if (kv.layers.empty()) return absl::OkStatus();
    // Operations ask for all the scratch memory that they will ever need, whatever the step; the largest step also runs
    // the kernels for many rows.
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<KvCache> cache, NewKvCache(kv));
    BeginPadding(largest, /*largest=*/true);
    operations(cache.get());
    SLUICE_RETURN_IF_ERROR(context_.status());
    if (const GemmLibrary* library = context_.route.library()) {
      LogInfo(absl::StrCat(library->Description(), ": ", library->num_prepared(), " shapes of products, ",
                           context_.BytesOf(Scratch::kPlainWeights) + context_.BytesOf(Scratch::kWideProduct),
                           " bytes of workspace"));
    }
    return MeasureGraphs([&] { operations(cache.get()); });
  }

  KvMemory MemoryForKv() const override {
    const int64_t free = context_.device()->FreeBytes() - graphs_bytes_;
    return {std::max<int64_t>(free - std::min(free / kMarginShare, kMaxMargin), 0), /*dedicated=*/true};
  }

  int64_t LeastWeightBytes(const TensorView& tensor) const override { return loader_.LeastBytes(tensor); }

  absl::Status WarmUp(absl::FunctionRef<void()> operations) override {
    using Clock = std::chrono::steady_clock;
    Clock::time_point last_line = Clock::now();
    captured_at_ = addresses();
    int32_t num_rows = 0;
    for (size_t i = 0; i < graphs_.shapes().size(); ++i) {
      const StepShape& shape = graphs_.shapes()[i];
      // Kernels are loaded by running, which a CUDA graph does not do; which of them run changes behind powers of 2.
      if (num_rows == 0 || std::bit_width(static_cast<uint32_t>(shape.num_tokens - 1)) !=
                               std::bit_width(static_cast<uint32_t>(num_rows - 1))) {
        BeginPadding(shape);
        operations();
      }
      num_rows = shape.num_tokens;
      absl::StatusOr<std::unique_ptr<Device::CapturedGraph>> graph = CapturePadding(shape, operations);
      if (absl::IsResourceExhausted(graph.status())) {
        LogWarning(absl::StrCat("no device memory for CUDA graphs of more than ", i, " of ", graphs_.shapes().size(),
                                " step shapes: the others start slower; lower --kv-memory or --max-num-seqs"));
        break;
      }
      SLUICE_RETURN_IF_ERROR(graph.status());
      graphs_.Add(shape, *std::move(graph));
      if (Clock::now() - last_line < std::chrono::seconds(1)) continue;
      LogInfo(absl::StrCat("captured CUDA graphs of ", i + 1, " of ", graphs_.shapes().size(), " step shapes"));
      last_line = Clock::now();
    }
    SLUICE_RETURN_IF_ERROR(context_.status());
    SLUICE_CHECK(captured_at_ == addresses());
    return absl::OkStatus();
  }

  // ---- one step

  void BeginStep(const BatchView& batch) override {
    SLUICE_CHECK(batch.row_starts.size() == batch.context_lens.size() + 1);
    SLUICE_CHECK(batch.positions.size() == batch.token_ids.size());
    shape_.num_tokens = static_cast<int32_t>(batch.token_ids.size());
    shape_.num_seqs = static_cast<int32_t>(batch.context_lens.size());
    shape_.num_logits = static_cast<int32_t>(batch.logits_rows.size());
    shape_.block_table_stride = 1;
    for (const KvGroupView& group : batch.kv_groups) {
      shape_.block_table_stride = std::max(shape_.block_table_stride, group.block_table_stride);
    }
    context_.route.BeginStep(batch);
    context_.expansion.BeginStep(batch);
    // CUDA graphs hold the other route, and the other form of latent attention.
    const bool recorded = !context_.route.uses_library() && !context_.expansion.any();
    const std::optional<StepShape> padded = recorded ? graphs_.ShapeFor(shape_) : std::nullopt;
    has_graph_ = padded.has_value();
    Begin(batch, padded.value_or(shape_));
  }

  void Forward(absl::FunctionRef<void()> operations) override {
    const Device::CapturedGraph* graph =
        has_graph_ && captured_at_ == addresses() ? graphs_.Find(shape_) : nullptr;
    if (graph == nullptr) return operations();
    if (context_.status().ok()) context_.device()->Replay(*graph);
  }

  void Embed(const LinearWeights& table, float scale, Activations* x) override {
    Lookup(table, context_.step.step().token_ids, context_.step.step().token_sources, scale, false, x);
  }
  void AddPositions(const LinearWeights& table, Activations* x) override {
    Lookup(table, context_.step.step().positions, nullptr, 1, true, x);
  }
  void Qkv(const QkvArgs& args) override { attention_.Qkv(context_, args); }
  void Attention(const AttentionArgs& args) override { attention_.Attention(context_, args); }
  void MlaQkv(const MlaQkvArgs& args) override { attention_.MlaQkv(context_, args); }
  void MlaAttention(const MlaAttentionArgs& args) override { attention_.MlaAttention(context_, args); }
  void Project(const ProjectArgs& args) override {
    MultiplyIntoResidual(context_, args.weight, {DataOf(args.in), args.in->cols()}, args.bias, args.post_norm,
                         ResidualOf(args.x));
  }
  void Ffn(const DenseFfnArgs& args) override {
    const GemmInput h = NormedInput(context_, args.x, args.norm);
    const GemmInput hidden =
        Hidden(context_, args.gate_up, h, args.gate_up_bias, {args.activation, args.alpha, args.limit, args.gated});
    MultiplyIntoResidual(context_, args.down, hidden, args.down_bias, args.post_norm, ResidualOf(args.x));
  }
  void Moe(const MoeArgs& args) override { CudaMoe(context_, args); }

  void Logits(const LogitsArgs& args) override {
    const int32_t num_rows = context_.step.num_logits();
    const auto d = static_cast<int32_t>(args.x->cols());
    void* normed = context_.Get(
        Scratch::kNormed, std::max(context_.max_logits, context_.max_tokens) * int64_t{d} * context_.element_bytes());
    if (normed == nullptr) return;
    SLUICE_CHECK(args.head->out_features() == context_.vocab_size);
    cuda::NormArgs norm;
    norm.num_rows = num_rows;
    norm.d = d;
    norm.x = ResidualOf(args.x);
    norm.rows = context_.step.logits_rows();
    norm.norm = ViewOf(args.norm);
    norm.y = normed;
    norm.y_element = context_.element();
    cuda::LaunchNorm(norm, context_.stream());
    MultiplyPicked(context_, args.head, {normed, d}, num_rows, logits());
    if (args.scale != 1 || args.softcap.has_value()) {
      cuda::LaunchFinishLogits(logits(), int64_t{num_rows} * context_.vocab_size, args.scale, args.softcap.value_or(0),
                               context_.stream());
    }
  }

  absl::Status Sample(std::span<const SampleRow> rows, std::span<SampleResult> results) override {
    SLUICE_CHECK(rows.size() == results.size());
    SLUICE_RETURN_IF_ERROR(LaunchSample(rows));
    return TakeSamples(results);
  }
  bool launches_async() const override { return true; }
  absl::Status LaunchSample(std::span<const SampleRow> rows) override {
    return sampler_.Launch(context_, logits(), rows);
  }
  absl::Status TakeSamples(std::span<SampleResult> results) override { return sampler_.Take(context_, results); }
  absl::Status Logprobs(std::span<const LogprobRow> rows, std::span<TokenLogprobs> results) override {
    return sampler_.Logprobs(context_, logits(), rows, results);
  }

  absl::Status CopyLogits(int32_t row, std::span<float> out) override {
    SLUICE_RETURN_IF_ERROR(context_.status());
    context_.device()->Download(out.data(), logits() + int64_t{row} * context_.vocab_size,
                                context_.vocab_size * int64_t{sizeof(float)});
    return context_.device()->Synchronize();
  }

  absl::Status CopyActivations(const Activations& activations, int64_t row, std::span<float> out) override {
    SLUICE_RETURN_IF_ERROR(context_.status());
    const auto& rows = static_cast<const CudaActivations&>(activations);
    const int64_t cols = rows.cols(), bytes = cols * cuda::ElementBytes(rows.element());
    const auto* from = static_cast<const std::byte*>(rows.data()) + row * bytes;
    if (rows.element() == cuda::Element::kF32) {
      context_.device()->Download(out.data(), from, bytes);
      return context_.device()->Synchronize();
    }
    std::vector<uint16_t> values(static_cast<size_t>(cols));
    context_.device()->Download(values.data(), from, bytes);
    SLUICE_RETURN_IF_ERROR(context_.device()->Synchronize());
    std::transform(values.begin(), values.end(), out.begin(), Bf16ToFloat);
    return absl::OkStatus();
  }

 private:
  // Of the step's arrays and of scratch memory; CUDA graphs hold them.
  struct Addresses {
    const int32_t* arrays = nullptr;
    int64_t num_moves = 0;
    bool operator==(const Addresses&) const = default;
  };
  Addresses addresses() const { return {context_.step.arrays(), context_.num_moves()}; }

  void Begin(const BatchView& batch, const StepShape& shape) {
    SLUICE_CHECK(shape.num_tokens <= context_.max_tokens && shape.num_seqs <= context_.max_seqs);
    shape_ = shape;
    absl::Status status = context_.step.Send(batch, shape_, context_.expansion);
    if (!status.ok()) context_.Fail(std::move(status));
    attention_.BeginForward();
  }
  // A step of nothing but padding; that of the largest step takes every way that rows can take.
  void BeginPadding(const StepShape& shape, bool largest = false) {
    context_.route.BeginPadding(shape.num_tokens, largest);
    context_.expansion.BeginPadding(shape.num_tokens, largest);
    static constexpr int32_t kNoRows = 0;
    const std::vector<KvGroupView> groups(static_cast<size_t>(num_kv_groups_));
    BatchView batch;
    batch.row_starts = std::span(&kNoRows, 1);
    batch.kv_groups = groups;
    Begin(batch, shape);
  }

  // Of a step of padding. RESOURCE_EXHAUSTED: no memory for it.
  absl::StatusOr<std::unique_ptr<Device::CapturedGraph>> CapturePadding(const StepShape& shape,
                                                                   absl::FunctionRef<void()> operations) {
    BeginPadding(shape);
    SLUICE_RETURN_IF_ERROR(context_.status());
    SLUICE_RETURN_IF_ERROR(context_.device()->Synchronize());
    context_.device()->BeginCapture();
    operations();
    return context_.device()->EndCapture();
  }

  // How much memory WarmUp will take.
  absl::Status MeasureGraphs(absl::FunctionRef<void()> operations) {
    const StepShape& widest = graphs_.shapes().back();
    BeginPadding(widest);
    operations();
    SLUICE_RETURN_IF_ERROR(context_.device()->Synchronize());
    const int64_t free = context_.device()->FreeBytes();
    std::vector<std::unique_ptr<Device::CapturedGraph>> trials;
    while (trials.size() < kTrialGraphs) {
      SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Device::CapturedGraph> trial, CapturePadding(widest, operations));
      trials.push_back(std::move(trial));
    }
    SLUICE_RETURN_IF_ERROR(context_.device()->Synchronize());
    const int64_t taken = std::max<int64_t>(free - context_.device()->FreeBytes(), 0);
    graphs_bytes_ = taken * static_cast<int64_t>(graphs_.shapes().size()) / kTrialGraphs;
    return absl::OkStatus();
  }

  float* logits() { return context_.Get<float>(Scratch::kLogits, int64_t{context_.max_logits} * context_.vocab_size); }

  void Lookup(const LinearWeights& table, const int32_t* ids, const int32_t* sources, float scale, bool accumulate,
              Activations* x) {
    if (!context_.status().ok()) return;
    cuda::EmbedArgs args;
    args.num_rows = context_.num_tokens();
    args.ids = ids;
    args.sources = sources;
    args.drawn = sampler_.drawn();
    args.table = LinearOf(&table).matrix();
    args.scale = scale;
    args.accumulate = accumulate;
    args.x = ResidualOf(x);
    cuda::LaunchEmbed(args, context_.stream());
  }

  CudaContext context_;
  WeightLoader loader_;
  CudaAttention attention_;
  CudaSampler sampler_;
  StepShape shape_;
  bool has_graph_ = false;
  int32_t num_kv_groups_ = 1;
  StepGraphs graphs_;
  int64_t graphs_bytes_ = 0;  // of all of them, once Reserve has measured some
  Addresses captured_at_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Ops>> NewCudaOps(std::unique_ptr<Device> device, const CudaOpsOptions& options,
                                                std::unique_ptr<GemmLibrary> library) {
  return std::make_unique<CudaOps>(std::move(device), options, std::move(library));
}

}  // namespace sluice
