// Steps of models in real shapes with random weights, through the Runner as a server drives it: decode over batch and
// context, the next step launched before the tokens of the last one are taken; and a prompt of 8192 tokens.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cuda/cuda_ops.h"
#include "engine/runtime/runner.h"
#include "tests/cuda/test_device.h"
#include "tests/gpu/floors.h"
#include "tests/gpu/library.h"
#include "tests/gpu/program.h"
#include "tests/gpu/random_model.h"
#include "tests/gpu/real_shapes.h"
#include "tests/model/toy_model.h"

namespace sluice::cuda_testing {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Points {
  std::vector<int32_t> batches, contexts;
  int32_t prompt, steps, prompts;  // how many are measured
};
const Points kReal = {{1, 8, 32, 64, 128}, {1024, 4096}, 8192, 24, 3};
const Points kTiny = {{1, 3}, {20, 40}, 70, 2, 1};

class Sweep {
 public:
  Sweep(std::string name, ModelSpec spec, const Points& points, Report* report)
      : name_(std::move(name)), spec_(std::move(spec)), points_(points), report_(*report) {}

  // A library that refuses one of the shapes is done without.
  absl::Status Load(std::unique_ptr<Device> device) {
    absl::StatusOr<std::unique_ptr<GemmLibrary>> library = NewTestLibrary();
    if (library.ok()) {
      const absl::Status loaded = Load(std::move(device), *std::move(library));
      if (!absl::IsUnimplemented(loaded)) return loaded;
      library = loaded;
      SLUICE_ASSIGN_OR_RETURN(device, NewTestDevice());
    }
    report_.Note("sweep", absl::StrCat(name_, " without the library: ", library.status().message()));
    return Load(std::move(device), nullptr);
  }

  // With our own products, and with the library's if there is one; latent attention expanded, and absorbed.
  absl::Status Prompt() {
    StepPlan plan = MakePlan(1, points_.prompt, points_.prompt);
    if (HasLatentAttention()) {
      SLUICE_RETURN_IF_ERROR(Prompt("prompt, absorbed", plan));
    }
    plan.row_routes.assign(plan.token_ids.size(), kRouteExpandedLatents);
    SLUICE_RETURN_IF_ERROR(Prompt("prompt", plan));
    if (!has_library_) return absl::OkStatus();
    plan.row_routes.assign(plan.token_ids.size(), kRouteExpandedLatents | kRouteLibraryProducts);
    return Prompt("prompt by the library", plan);
  }

  absl::Status Decode() {
    for (const int32_t context : points_.contexts) {
      for (const int32_t batch : points_.batches) {
        const StepPlan plan = MakePlan(batch, context, 1);
        SLUICE_ASSIGN_OR_RETURN(const double seconds, SecondsOfAStep(plan));
        Add("decode", plan, seconds, DecodeCost(spec_, batch, context), batch);
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Load(std::unique_ptr<Device> device, std::unique_ptr<GemmLibrary> library) {
    const Clock::time_point start = Clock::now();
    CudaOpsOptions cuda;
    cuda.num_threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    has_library_ = library != nullptr;
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Ops> ops, NewCudaOps(std::move(device), cuda, std::move(library)));
    absl::StatusOr<ModelWeights> weights = [&] {
      const RandomModel model = MakeRandomModel(spec_);
      return LoadWeights(spec_, testing::ToyTensorNames(), model.tensors, name_, ops.get());
    }();
    SLUICE_RETURN_IF_ERROR(weights.status());
    RunnerOptions options;
    options.kv_dtype = KvDType::kBF16;
    options.max_num_seqs = points_.batches.back();
    options.max_num_batched_tokens = points_.prompt;
    options.max_model_len = points_.prompt + 1;
    options.numerics.mla_expand_from = 1;
    options.num_blocks =
        std::max(points_.batches.back() * BlocksFor(points_.contexts.back()), BlocksFor(points_.prompt));
    SLUICE_ASSIGN_OR_RETURN(runner_, Runner::Create(std::move(ops), spec_, *std::move(weights), options));
    report_.Note("sweep", absl::StrCat(name_, ": ", runner_->weight_bytes() >> 20, " MiB of weights and ",
                                       runner_->kv_bytes() >> 20, " MiB of cache in ",
                                       static_cast<int64_t>(SecondsSince(start) * 1e3), " ms"));
    return absl::OkStatus();
  }

  bool HasLatentAttention() const { return std::holds_alternative<Mla>(spec_.layers[0].attention.kind); }

  absl::Status Prompt(const char* what, const StepPlan& plan) {
    std::vector<double> seconds;
    for (int32_t i = 0; i < 1 + points_.prompts; ++i) {
      const Clock::time_point start = Clock::now();
      SLUICE_RETURN_IF_ERROR(runner_->Run(plan).status());
      if (i > 0) seconds.push_back(SecondsSince(start));
    }
    Add(what, plan, Median(seconds), PrefillCost(spec_, points_.prompt), points_.prompt);
    return absl::OkStatus();
  }

  static constexpr int32_t kWarmUp = 4;  // the first step settles memory, the second is recorded

  int32_t BlocksFor(int32_t tokens) const {
    const int32_t block_size = RunnerOptions().block_size;
    return (tokens + block_size - 1) / block_size;
  }

  // The last `rows` tokens of each of `batch` sequences with `context` tokens. What the cache holds of earlier ones is
  // what was there: it costs the same. So does the same step again and again.
  StepPlan MakePlan(int32_t batch, int32_t context, int32_t rows) {
    const int32_t block_size = runner_->options().block_size, blocks = BlocksFor(context);
    std::mt19937 random(1);
    StepPlan plan;
    plan.row_starts = {0};
    plan.kv_groups.resize(1);
    KvGroupPlan& group = plan.kv_groups[0];
    group.block_table_stride = blocks;
    for (int32_t s = 0; s < batch; ++s) {
      for (int32_t i = context - rows; i < context; ++i) {
        plan.token_ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(spec_.vocab_size)));
        plan.token_sources.push_back(-1);
        plan.positions.push_back(i);
        plan.row_routes.push_back(0);
        group.slot_mapping.push_back((s * blocks + i / block_size) * block_size + i % block_size);
      }
      for (int32_t b = 0; b < blocks; ++b) group.block_tables.push_back(s * blocks + b);
      plan.row_starts.push_back(plan.num_tokens());
      plan.context_lens.push_back(context);
      plan.rope_classes.push_back(0);
      plan.seq_slots.push_back(s);
      plan.logits_rows.push_back(plan.num_tokens() - 1);
      SampleEntry& sample = plan.samples.emplace_back(greedy_);
      sample.logits_row = sample.sequence_index = s;
      sample.position = context;
    }
    return plan;
  }

  // From one step's result to the next one's, with one step ahead in flight.
  absl::StatusOr<double> SecondsOfAStep(const StepPlan& plan) {
    for (int32_t i = 0; i < kWarmUp; ++i) SLUICE_RETURN_IF_ERROR(runner_->Run(plan).status());
    std::vector<double> seconds;
    if (runner_->launches_async()) SLUICE_RETURN_IF_ERROR(runner_->Launch(plan));
    Clock::time_point last = Clock::now();
    for (int32_t i = 0; i < points_.steps; ++i) {
      SLUICE_RETURN_IF_ERROR(runner_->Launch(plan));
      SLUICE_RETURN_IF_ERROR(runner_->Take().status());
      if (i > 0 || points_.steps == 1) seconds.push_back(SecondsSince(last));
      last = Clock::now();
    }
    if (runner_->launches_async()) SLUICE_RETURN_IF_ERROR(runner_->Take().status());
    return Median(seconds);
  }

  void Add(const char* what, const StepPlan& plan, double seconds, const StepCost& cost, int32_t tokens) {
    report_.Add({"sweep",
                 absl::StrCat(name_, " ", what, ", batch ", plan.num_seqs(), " x ", plan.context_lens[0]),
                 seconds,
                 cost.floor_seconds(),
                 {{"batch", plan.num_seqs()}, {"context", plan.context_lens[0]}, {"tokens/s", tokens / seconds}}});
  }

  const std::string name_;
  const ModelSpec spec_;
  const Points& points_;
  Report& report_;
  SamplingParams greedy_ = [] {
    SamplingParams params;
    params.temperature = 0;
    return params;
  }();
  bool has_library_ = false;
  std::unique_ptr<Runner> runner_;
};

absl::Status Run(const ProgramArgs& args, std::unique_ptr<Device> device, Report* report) {
  for (RealShape& shape : RealShapes()) {
    if (std::find(args.names.begin(), args.names.end(), shape.name) == args.names.end()) continue;
    if (device == nullptr) {
      SLUICE_ASSIGN_OR_RETURN(device, NewTestDevice());
    }
    Sweep sweep(shape.name, args.tiny ? Shrunk(shape.spec) : shape.spec, args.tiny ? kTiny : kReal, report);
    SLUICE_RETURN_IF_ERROR(sweep.Load(std::exchange(device, nullptr)));
    SLUICE_RETURN_IF_ERROR(sweep.Decode());
    SLUICE_RETURN_IF_ERROR(sweep.Prompt());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::cuda_testing

int main(int argc, char** argv) {
  using namespace sluice::cuda_testing;
  std::vector<std::string> names;
  for (const RealShape& shape : RealShapes()) names.push_back(shape.name);
  return RunProgram(argc, argv, names, Run);
}
