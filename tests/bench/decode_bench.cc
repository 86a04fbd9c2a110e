// What the CPU operations alone reach: forward passes with random weights in the shape of SmolLM2-135M (Q4_1, head and
// embedding Q8_0), greedy sampling included, no scheduler. Prints tokens per second, median and range over repetitions;
// then those of the fastest step (a whole prompt counts as one), which a busy machine disturbs least, and where its
// time went.
//
//   decode_bench [--threads N] [--reps N] [--case PART_OF_A_NAME] [--activations int16|int8|f32]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/ops/cpu/cpu_ops.h"
#include "tests/ops/reserve_for.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

constexpr int kLayers = 30, kModel = 576, kHidden = 1536, kVocab = 49152, kContext = 4096 + 256;
constexpr int kMaxTokens = 512, kMaxSequences = 32, kBlockSize = 16;
constexpr int kStride = kContext / kBlockSize, kShortBlocks = 16, kNumBlocks = kStride + kMaxSequences * kShortBlocks;
constexpr Gqa kHeads{9, 3, 64, 64};
constexpr const char* kPhases[] = {"qkv", "attention", "o", "ffn", "head", "sample", "embed"};
enum Phase { kQkv, kAttention, kProject, kFfn, kLogits, kSample, kEmbed };

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Row {
  int32_t sequence, position, token;
  bool wants_logits;
};

class Model {
 public:
  explicit Model(Ops* ops) : ops_(ops), rng_(1) {
    for (Layer& layer : layers_) {
      layer.qkv = Linear(TensorType::kQ4_1, {kModel, 192, 192}, kModel, LinearLayout::kStacked);
      layer.o = Linear(TensorType::kQ4_1, {kModel}, kModel, LinearLayout::kStacked);
      layer.gate_up = Linear(TensorType::kQ4_1, {kHidden, kHidden}, kModel, LinearLayout::kGateUp);
      layer.down = Linear(TensorType::kQ4_1, {kModel}, kHidden, LinearLayout::kStacked);
    }
    head_ = Linear(TensorType::kQ8_0, {kVocab}, kModel, LinearLayout::kStacked);
    norm_ = ops->LoadVector(std::vector<float>(kModel, 1.0f)).value();
    std::vector<float> inv_freq;
    for (int i = 0; i < 32; ++i) inv_freq.push_back(std::pow(100000.0f, -static_cast<float>(i) / 32));
    rope_ = ops->LoadRope({inv_freq, 1, {}}, kContext).value();
    x_ = ops->NewActivations(kMaxTokens, kModel, ActivationsUse::kResidual).value();
    q_ = ops->NewActivations(kMaxTokens, kModel, ActivationsUse::kQuery).value();
    attention_ = ops->NewActivations(kMaxTokens, kModel, ActivationsUse::kAttentionOut).value();
    KvCacheShape shape;
    shape.layers.assign(kLayers, {kHeads.num_kv_heads, kHeads.head_dim, kHeads.value_head_dim});
    shape.num_blocks = kNumBlocks;
    shape.block_size = kBlockSize;
    kv_ = ops->NewKvCache(shape).value();
    if (!ReserveFor(ops, kMaxTokens, kMaxSequences, kVocab).ok()) std::abort();
  }

  // Rows of a sequence are adjacent. Returns the greedy token of each row that wants one.
  const std::vector<SampleResult>& Forward(const std::vector<Row>& rows) {
    BeginStep(rows);
    Timed(kEmbed, [&] { ops_->Embed(*head_, 1, x_.get()); });
    const NormArgs norm{{NormKind::kRms, 1e-5f, 0}, norm_.get(), nullptr};
    for (int l = 0; l < kLayers; ++l) {
      const Layer& layer = layers_[l];
      QkvArgs qkv;
      qkv.x = x_.get(), qkv.norm = norm, qkv.qkv = layer.qkv.get(), qkv.heads = kHeads;
      qkv.rope = RopeArgs{rope_.get(), RopeLayout::kInterleaved, kHeads.head_dim};
      qkv.kv = kv_.get(), qkv.layer = l, qkv.q = q_.get();
      Timed(kQkv, [&] { ops_->Qkv(qkv); });
      AttentionArgs attention;
      attention.q = q_.get(), attention.heads = kHeads, attention.kv = kv_.get(), attention.layer = l;
      attention.scale = 0.125f, attention.out = attention_.get();
      Timed(kAttention, [&] { ops_->Attention(attention); });
      Timed(kProject, [&] { ops_->Project({attention_.get(), layer.o.get(), nullptr, {}, x_.get()}); });
      DenseFfnArgs ffn;
      ffn.norm = norm, ffn.gate_up = layer.gate_up.get(), ffn.down = layer.down.get(), ffn.x = x_.get();
      Timed(kFfn, [&] { ops_->Ffn(ffn); });
    }
    Timed(kLogits, [&] { ops_->Logits({x_.get(), norm, head_.get(), 1, {}}); });
    std::vector<SampleRow>& samples = sample_rows_;
    samples.assign(logits_rows_.size(), {});
    for (size_t i = 0; i < samples.size(); ++i) {
      samples[i].logits_row = static_cast<int32_t>(i);
      samples[i].temperature = 0;
    }
    results_.resize(samples.size());
    Timed(kSample, [&] { (void)ops_->Sample(samples, results_); });
    return results_;
  }

  struct Times {
    double total = 0, phases[std::size(kPhases)] = {};
  };
  Times times;  // since it was last cleared

 private:
  struct Layer {
    std::unique_ptr<LinearWeights> qkv, o, gate_up, down;
  };

  template <class Fn>
  void Timed(Phase phase, Fn&& fn) {
    const double start = Now();
    fn();
    const double elapsed = Now() - start;
    times.phases[phase] += elapsed;
    times.total += elapsed;
  }

  std::unique_ptr<LinearWeights> Linear(TensorType type, std::vector<int> outs, int in, LinearLayout layout) {
    std::vector<StoredTensor> tensors;
    std::vector<TensorView> views;
    for (int out : outs) tensors.push_back(RandomTensor(type, out, in, rng_));
    for (const StoredTensor& t : tensors) views.push_back(t.view);
    return ops_->LoadLinear(views, layout).value();
  }

  void BeginStep(const std::vector<Row>& rows) {
    token_ids_.clear(), positions_.clear(), slots_.clear(), logits_rows_.clear(), context_lens_.clear();
    row_starts_ = {0}, block_tables_.clear();
    for (size_t r = 0; r < rows.size(); ++r) {
      const Row& row = rows[r];
      // Sequence 0 may be long, the others are short; blocks lie scattered, as in a pool that has been in use for a
      // while.
      const auto block = [&](int i) {
        const int index = row.sequence == 0 ? i : kStride + (row.sequence - 1) * kShortBlocks + i % kShortBlocks;
        return index * 389 % kNumBlocks;
      };
      token_ids_.push_back(row.token), positions_.push_back(row.position);
      slots_.push_back(block(row.position / kBlockSize) * kBlockSize + row.position % kBlockSize);
      if (row.wants_logits) logits_rows_.push_back(static_cast<int32_t>(r));
      if (r + 1 < rows.size() && rows[r + 1].sequence == row.sequence) continue;
      row_starts_.push_back(static_cast<int32_t>(r) + 1);
      context_lens_.push_back(row.position + 1);
      for (int i = 0; i < kStride; ++i) block_tables_.push_back(block(i));
    }
    groups_ = {{slots_, block_tables_, kStride}};
    ops_->BeginStep({token_ids_, positions_, row_starts_, context_lens_, groups_, logits_rows_});
  }

  Ops* const ops_;
  std::mt19937 rng_;
  Layer layers_[kLayers];
  std::unique_ptr<LinearWeights> head_;
  std::unique_ptr<VectorWeights> norm_;
  std::unique_ptr<RopeTableData> rope_;
  std::unique_ptr<Activations> x_, q_, attention_;
  std::unique_ptr<KvCache> kv_;
  std::vector<int32_t> token_ids_, positions_, slots_, logits_rows_, context_lens_, row_starts_, block_tables_;
  std::vector<KvGroupView> groups_;
  std::vector<SampleRow> sample_rows_;
  std::vector<SampleResult> results_;
};

struct Case {
  const char* name;
  int batch, depth, prompt;
};
constexpr Case kCases[] = {{"decode 1, depth 0", 1, 0, 0},
                           {"decode 1, depth 1024", 1, 1024, 0},
                           {"decode 1, depth 4096", 1, 4096, 0},
                           {"decode 2, depth 128", 2, 128, 0},
                           {"decode 4, depth 128", 4, 128, 0},
                           {"decode 8, depth 128", 8, 128, 0},
                           {"decode 16, depth 128", 16, 128, 0},
                           {"decode 32, depth 128", 32, 128, 0},
                           {"prompt 128", 0, 0, 128},
                           {"prompt 512", 0, 0, 512},
                           {"prompt 2048", 0, 0, 2048}};

// Keeps the times of the fastest step in `best`.
double TokensPerSecond(Model& model, const Case& c, Model::Times* best) {
  const auto keep_best = [&] {
    if (best->total == 0 || model.times.total < best->total) *best = model.times;
    model.times = {};
  };
  const double start = Now();
  std::vector<Row> rows;
  if (c.prompt > 0) {
    for (int first = 0; first < c.prompt; first += kMaxTokens) {
      rows.clear();
      for (int i = first; i < std::min(c.prompt, first + kMaxTokens); ++i) {
        rows.push_back({0, i, (i * 131) % kVocab, i + 1 == c.prompt});
      }
      model.Forward(rows);
    }
    keep_best();
    return c.prompt / (Now() - start);
  }
  const int steps = c.batch > 4 ? 16 : 64;
  for (int s = 0; s < steps; ++s) {
    std::vector<Row> next;
    for (int i = 0; i < c.batch; ++i) {
      const int32_t token = rows.empty() ? 1 : rows[static_cast<size_t>(i)].token;
      next.push_back({i, c.depth + s, token, true});
    }
    rows = std::move(next);
    const std::vector<SampleResult>& results = model.Forward(rows);
    keep_best();
    for (int i = 0; i < c.batch; ++i) rows[static_cast<size_t>(i)].token = results[static_cast<size_t>(i)].token;
  }
  return c.batch * steps / (Now() - start);
}

int Main(int argc, char** argv) {
  CpuOpsOptions options;
  options.num_threads = 2;
  int reps = 7;
  std::string filter;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") options.num_threads = std::atoi(value.c_str());
    if (flag == "--reps") reps = std::atoi(value.c_str());
    if (flag == "--case") filter = value;
    if (flag == "--activations") {
      options.activations = value == "int8"  ? ActivationType::kInt8
                            : value == "f32" ? ActivationType::kF32
                                             : ActivationType::kInt16;
    }
  }
  auto ops = NewCpuOps(options);
  if (!ops.ok()) return std::fprintf(stderr, "%s\n", ops.status().ToString().c_str()), 1;
  std::printf("%s\n", (*ops)->Description().c_str());
  Model model(ops->get());
  for (const Case& c : kCases) {
    if (std::string(c.name).find(filter) == std::string::npos) continue;
    Model::Times best;
    TokensPerSecond(model, c, &best);
    std::vector<double> rates;
    for (int rep = 0; rep < reps; ++rep) rates.push_back(TokensPerSecond(model, c, &best));
    std::sort(rates.begin(), rates.end());
    std::printf("%-22s %6.0f tok/s (%.0f-%.0f), best %6.0f, us:", c.name, rates[rates.size() / 2], rates.front(),
                rates.back(), (c.prompt > 0 ? c.prompt : c.batch) / best.total);
    for (size_t p = 0; p < std::size(kPhases); ++p) std::printf(" %s %.0f", kPhases[p], 1e6 * best.phases[p]);
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
