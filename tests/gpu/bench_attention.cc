#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cuda/kernels/attention.h"
#include "tests/gpu/bench.h"

namespace sluice::cuda_testing {
namespace {

struct Heads {
  const char* name;
  int32_t num_heads, num_kv_heads, head_dim, value_dim, latent_value_dim;
  double KeyBytes() const { return 2.0 * num_kv_heads * (head_dim + value_dim); }
  int32_t OutDim() const { return latent_value_dim > 0 ? latent_value_dim : value_dim; }
  double KeyFlops() const { return 2.0 * num_heads * (head_dim + OutDim()); }
};

constexpr int32_t kBlockSize = 16;  // RunnerOptions

// `num_seqs` sequences of `context` tokens, of which the last `rows` are computed now.
struct Step {
  int32_t num_seqs, context, rows;
};

class AttentionBench {
 public:
  AttentionBench(const Bench& bench, const Heads& heads, const Step& step)
      : bench_(bench), heads_(heads), step_(step), arena_(bench.device) {
    blocks_of_a_seq_ = (step.context + kBlockSize - 1) / kBlockSize;
    const int64_t blocks_of_a_turn = int64_t{step.num_seqs} * blocks_of_a_seq_;
    args_.kv = {nullptr, cuda::KvElement::kBF16, kBlockSize, heads.num_kv_heads, heads.head_dim, heads.value_dim};
    const int64_t block_bytes = args_.kv.block_elements() * 2;
    turns_ = OperandsInTurn(bench, blocks_of_a_turn * block_bytes);
    args_.kv.data = arena_.Random(turns_ * blocks_of_a_turn * block_bytes);
    MakeTables(turns_ * blocks_of_a_turn);
    MakeStep();
    MakeArgs();
  }

  absl::Status Measure(const char* what) {
    SLUICE_RETURN_IF_ERROR(arena_.status());
    // Pairs of a row and a key that it sees; each key is read once a sequence.
    const double pairs =
        step_.num_seqs * (double{1.0} * step_.rows * step_.context - 0.5 * step_.rows * (step_.rows - 1));
    const double rows = double{1.0} * step_.num_seqs * step_.rows;
    const double floor = FloorSeconds(1.0 * step_.num_seqs * step_.context * heads_.KeyBytes() +
                                          rows * 2 * heads_.num_heads * (heads_.head_dim + heads_.OutDim()),
                                      pairs * heads_.KeyFlops());
    // The plan is made once a step for all layers.
    cuda::LaunchPlanAttention(args_.step, args_.mask, heads_.num_heads / heads_.num_kv_heads, args_.plan,
                              bench_.device->stream());
    SLUICE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(bench_, floor, [&](int64_t i) {
                              args_.group.block_tables = tables_ + i % turns_ * step_.num_seqs * blocks_of_a_seq_;
                              cuda::LaunchAttention(args_, bench_.device->stream());
                            }));
    std::string name = absl::StrCat(what, " ", heads_.name, ", batch ", step_.num_seqs, " x ", step_.context);
    if (step_.rows > 1) absl::StrAppend(&name, ", last ", step_.rows);
    bench_.report->Add(
        {"attention", name, seconds, floor, {{"batch", step_.num_seqs}, {"context", step_.context}, {"rows", rows}}});
    return absl::OkStatus();
  }

 private:
  // Blocks in random order, as a server that has run for a while hands them out.
  void MakeTables(int64_t num_blocks) {
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    tables_ = arena_.Copy(blocks);
  }

  void MakeStep() {
    std::vector<int32_t> positions, sequences, starts = {0};
    for (int32_t s = 0; s < step_.num_seqs; ++s) {
      for (int32_t r = 0; r < step_.rows; ++r) {
        positions.push_back(step_.context - step_.rows + r);
        sequences.push_back(s);
      }
      starts.push_back(static_cast<int32_t>(positions.size()));
    }
    args_.step.num_tokens = static_cast<int32_t>(positions.size());
    args_.step.num_seqs = step_.num_seqs;
    args_.step.positions = arena_.Copy(positions);
    args_.step.row_sequences = arena_.Copy(sequences);
    args_.step.row_starts = arena_.Copy(starts);
    args_.step.row_ends = args_.step.row_starts + 1;
    args_.step.context_lens = arena_.Copy(std::vector<int32_t>(static_cast<size_t>(step_.num_seqs), step_.context));
  }

  void MakeArgs() {
    const int64_t rows = args_.step.num_tokens;
    args_.group.stride = blocks_of_a_seq_;
    args_.plan.limits = {args_.step.num_tokens, step_.num_seqs, int64_t{step_.num_seqs} * step_.context};
    args_.plan.counts = static_cast<int32_t*>(arena_.Zeros(8 * 4));
    args_.plan.items = static_cast<int32_t*>(arena_.Zeros(cuda::AttentionPlanInts(args_.plan.limits) * 4));
    args_.partials = static_cast<float*>(
        arena_.Random(cuda::AttentionPartialFloats(args_.plan.limits, heads_.num_heads, heads_.OutDim()) * 4));
    args_.q = arena_.Random(rows * heads_.num_heads * heads_.head_dim * 2);
    args_.out = arena_.Random(rows * heads_.num_heads * heads_.OutDim() * 2);
    args_.num_heads = args_.row_heads = heads_.num_heads;
    args_.latent_value_dim = heads_.latent_value_dim;
    args_.scale = static_cast<float>(1 / std::sqrt(double{1.0} * heads_.head_dim));
    args_.num_sms = bench_.device->num_sms();
  }

  const Bench& bench_;
  const Heads heads_;
  const Step step_;
  Arena arena_;
  int32_t blocks_of_a_seq_ = 0;
  int64_t turns_ = 1;
  const int32_t* tables_ = nullptr;
  cuda::AttentionKernelArgs args_;
};

}  // namespace

absl::Status BenchAttention(const Bench& bench) {
  // Llama-3-8B, Qwen3-0.6B, SmolLM2-135M; DeepSeek-V2-Lite and V2.
  std::vector<Heads> all = {{"32 over 8 heads of 128", 32, 8, 128, 128, 0},
                            {"16 over 8 heads of 128", 16, 8, 128, 128, 0},
                            {"9 over 3 heads of 64", 9, 3, 64, 64, 0},
                            {"16 heads over latents", 16, 1, 576, 0, 512},
                            {"128 heads over latents", 128, 1, 576, 0, 512}};
  std::vector<int32_t> batches = {1, 8, 64, 128}, contexts = {1024, 4096};
  std::vector<Step> prompts = {{1, 1024, 1024}, {1, 8192, 8192}, {1, 8192, 512}};
  if (bench.tiny) {
    all = {{"4 over 2 heads of 32", 4, 2, 32, 32, 0}, {"3 heads over latents", 3, 1, 48, 0, 32}};
    batches = {1, 3}, contexts = {20}, prompts = {{1, 70, 20}, {1, 70, 70}};
  }
  for (const Heads& heads : all) {
    for (const int32_t batch : batches) {
      for (const int32_t context : contexts) {
        SLUICE_RETURN_IF_ERROR(AttentionBench(bench, heads, {batch, context, 1}).Measure("decode"));
      }
    }
    for (const Step& step : prompts) SLUICE_RETURN_IF_ERROR(AttentionBench(bench, heads, step).Measure("prompt"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::cuda_testing
