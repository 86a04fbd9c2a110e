// Prints how the engine launches each of its kernels, and what work a launch of a real size is: what machine_code.py
// needs beside the machine code. One line of tab-separated fields for each launch, with their names in the first line.
//
// Sizes are those of Llama-3-8B (hidden 4096, feed-forward 14336, 32 heads of 128, 8 KV heads) where a kernel leaves
// the choice, of DeepSeek-V2-Lite for MLA and of Qwen3-30B-A3B for experts. 132 SMs. Nothing is run.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/tensor_format.h"
#include "engine/ops/cuda/kernels/attention.h"
#include "engine/ops/cuda/kernels/embed.h"
#include "engine/ops/cuda/kernels/finish_product.h"
#include "engine/ops/cuda/kernels/gemm_product.h"
#include "engine/ops/cuda/kernels/mla_expand.h"
#include "engine/ops/cuda/kernels/norm.h"
#include "engine/ops/cuda/kernels/qkv.h"
#include "engine/ops/cuda/kernels/routing.h"
#include "engine/ops/cuda/kernels/sample.h"
#include "engine/ops/cuda/kernels/unpack.h"
#include "engine/ops/cuda/kernels/weight_layout.h"
#include "tests/cuda_build/recorded_launch.h"

namespace sluice::cuda {
namespace {

// What a launch has to do.
struct Work {
  std::string name = {};  // of the work, added to that of the case
  double bytes = 0;       // that memory must move: each input and output once. 0: the launch shows its size only
  double flops = 0;       // that the result asks for
  double mma = 0;         // mma.m16n8k16 of all warps, those of padding included; 0: has none
  double stream = 0;      // bytes that the main loops of all blocks load together; 0: `bytes`
  double common = 0;      // bytes that each block reads beside, the same as its neighbours (x of a product)
  double pieces = 0;      // work items for the warps of a persistent grid; 0: a block is one
  bool loops = false;     // the work is in a loop, not in a few values of each thread; implied by mma
};

using Launch = std::function<void()>;

// `works`: of the launches that `launch` makes, in order.
void Measure(const std::string& name, const std::vector<Work>& works, const Launch& launch) {
  launch();
  const std::vector<RecordedLaunch> launches = TakeLaunches();
  if (launches.size() != works.size()) {
    std::fprintf(stderr, "%s: %zu launches, expected %zu\n", name.c_str(), launches.size(), works.size());
    std::exit(1);
  }
  for (size_t i = 0; i < works.size(); ++i) {
    const RecordedLaunch& l = launches[i];
    const Work& w = works[i];
    std::printf("%s%s\t%s\t%u\t%u\t%u\t%u\t%zu\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\n", name.c_str(),
                w.name.c_str(), l.kernel.c_str(), l.grid[0], l.grid[1], l.grid[2], l.threads, l.shared_bytes,
                l.dependent, w.bytes, w.flops, w.mma, w.stream, w.common, w.pieces, w.loops || w.mma > 0);
  }
}

// Pointers that are given and not followed.
template <class T>
T* Somewhere() {
  return reinterpret_cast<T*>(uintptr_t{4096});
}
template <class T>
T* Unaligned() {
  return reinterpret_cast<T*>(uintptr_t{4100});
}

constexpr double kRows = 8192;  // of a long prompt
constexpr int32_t kRowsInt = 8192;

StepArrays Step(int32_t tokens, int32_t seqs) {
  return {.num_tokens = tokens,
          .num_seqs = seqs,
          .token_ids = Somewhere<int32_t>(),
          .positions = Somewhere<int32_t>(),
          .row_sequences = Somewhere<int32_t>(),
          .row_starts = Somewhere<int32_t>(),
          .row_ends = Somewhere<int32_t>(),
          .context_lens = Somewhere<int32_t>(),
          .rope_classes = Somewhere<int32_t>()};
}

// ---------------------------------------------------------------- rows

void MeasureNorms() {
  for (const int32_t d : {1024, 2048, 4096, 8192, 16384}) {
    const double rows = kRows * 4096 / d;
    for (const bool aligned : {true, false}) {
      const NormArgs args = {.num_rows = kRowsInt * 4096 / d,
                             .d = d,
                             .x = aligned ? Somewhere<float>() : Unaligned<float>(),
                             .norm = {.params = {}, .weight = Somewhere<float>()},
                             .y = Somewhere<void>()};
      Measure("d " + std::to_string(d), {{.bytes = rows * d * 6, .flops = rows * d * 6, .stream = rows * d * 4}},
              [&] { LaunchNorm(args, nullptr); });
    }
  }
  const double values = kRows * 4096;
  Measure("d 4096", {{.bytes = values * 6, .stream = values * 4}},
          [&] { LaunchConvert(Somewhere<float>(), kRowsInt * 4096, Somewhere<void>(), Element::kBF16, nullptr); });
  const AddNormedArgs add = {.num_rows = kRowsInt, .d = 4096, .y = Somewhere<float>(), .x = Somewhere<float>()};
  Measure("d 4096", {{.bytes = values * 12, .flops = values, .stream = values * 8}},
          [&] { LaunchAddNormed(add, nullptr); });
}

void MeasureEmbed() {
  const double values = 1.0 * kRowsInt * 4096;
  for (const TensorFormat& row : kTensorFormats) {
    if (!HasGpuForm(row.type)) continue;
    const TileLayout layout = TileLayoutOf(row.type);
    const double table = values * (row.type == TensorType::kF32 ? 4.0 : 1.0 * layout.bytes() / kTileRows / layout.k());
    const EmbedArgs embed = {.num_rows = kRowsInt,
                             .ids = Somewhere<int32_t>(),
                             .table = {.data = Somewhere<void>(), .format = row.type, .n = 128256, .k = 4096},
                             .x = Somewhere<float>()};
    const std::string name = row.type == TensorType::kBF16 ? "bf16" : row.stored.name;
    Measure(name + ", d 4096", {{.bytes = table + values * 4, .stream = table}}, [&] { LaunchEmbed(embed, nullptr); });
  }
}

PagedKv Cache(KvElement element, int32_t kv_heads, int32_t dim, int32_t value_dim) {
  return {.data = Somewhere<void>(),
          .element = element,
          .block_size = 64,
          .num_kv_heads = kv_heads,
          .head_dim = dim,
          .value_head_dim = value_dim};
}

KvGroupArrays Group() {
  return {.slot_mapping = Somewhere<int32_t>(), .block_tables = Somewhere<int32_t>(), .stride = 128};
}

void MeasureQkv() {
  const auto measure = [](int32_t dim, QkNormKind norm) {
    const QkvPostArgs args = {
        .step = Step(kRowsInt, 1),
        .group = Group(),
        .qkv = Somewhere<float>(),
        .num_heads = 32,
        .qk_norm = norm,
        .rope = {.inv_freq = Somewhere<float>(), .num_rotary = dim},
        .kv = Cache(KvElement::kBF16, 8, dim, dim),
        .q = Somewhere<void>(),
    };
    const double columns = kRows * 48 * dim;
    Measure("8192 rows, 32 + 8 + 8 heads of " + std::to_string(dim),
            {{.bytes = columns * 6, .flops = columns * 16, .stream = columns * 4}},
            [&] { LaunchQkvPost(args, nullptr); });
  };
  for (const int32_t dim : {64, 128, 256, 512}) measure(dim, QkNormKind::kPerHead);
  measure(128, QkNormKind::kFullWidth);

  const MlaQkvPostArgs mla = {.step = Step(kRowsInt, 1),
                              .group = Group(),
                              .latent = Somewhere<float>(),
                              .latent_stride = 576,
                              .q_in = Somewhere<float>(),
                              .q_in_stride = 16 * 192,
                              .num_heads = 16,
                              .kv_lora_rank = 512,
                              .qk_nope_head_dim = 128,
                              .qk_rope_head_dim = 64,
                              .rope = {.inv_freq = Somewhere<float>(), .num_rotary = 64},
                              .kv = Cache(KvElement::kBF16, 1, 576, 0),
                              .q = Somewhere<void>()};
  const double columns = kRows * (576 + 16 * 192);
  Measure("8192 rows, 16 heads of 192", {{.bytes = columns * 6, .flops = columns * 16, .stream = columns * 4}},
          [&] { LaunchMlaQkvPost(mla, nullptr); });
  for (const int32_t rope : {64, 60}) {  // of whole pieces of 16 bytes, and of 4
    const MlaGatherRopeArgs gather = {.num_tokens = kRowsInt,
                                      .num_heads = 16,
                                      .kv_lora_rank = 512,
                                      .qk_nope_head_dim = 128,
                                      .qk_rope_head_dim = rope,
                                      .q = Somewhere<void>(),
                                      .q_latent = Somewhere<void>()};
    const double turned = kRows * 16 * rope;
    Measure("8192 rows, 16 heads of " + std::to_string(rope), {{.bytes = turned * 4, .stream = turned * 2}},
            [&] { LaunchMlaGatherRope(gather, nullptr); });
  }
}

// 128 blocks of 64 tokens.
void MeasureExpansion() {
  for (const KvElement cache : {KvElement::kF16, KvElement::kBF16, KvElement::kF8E4M3, KvElement::kF32}) {
    for (const Element element : {Element::kBF16, Element::kF32}) {
      const GatherLatentsArgs gather = {.group = Group(),
                                        .kv = Cache(cache, 1, 576, 0),
                                        .first_seq = 0,
                                        .end_seq = 1,
                                        .longest_blocks = 128,
                                        .context_lens = Somewhere<int32_t>(),
                                        .first_blocks = Somewhere<int32_t>(),
                                        .latents = Somewhere<void>(),
                                        .element = element,
                                        .block_tables = Somewhere<int32_t>(),
                                        .table_stride = 128};
      const double values = kRows * 576, read = values * static_cast<double>(KvElementBytes(cache));
      Measure("8192 rows of 576", {{.bytes = read + values * ElementBytes(element), .stream = read}},
              [&] { LaunchGatherLatents(gather, nullptr); });
    }
  }
  const LayOutExpandedArgs layout = {.num_blocks = 128,
                                     .products = Somewhere<void>(),
                                     .rope_keys = Somewhere<void>(),
                                     .rope_stride = 576,
                                     .qk_nope_head_dim = 128,
                                     .kv = Cache(KvElement::kBF16, 16, 192, 128)};
  const double written = kRows * 16 * 320 * 2;
  Measure("8192 rows, 16 heads of 192 and 128", {{.bytes = kRows * (16 * 256 + 64) * 2 + written, .stream = written}},
          [&] { LaunchLayOutExpanded(layout, nullptr); });
}

void MeasureExperts() {
  for (const int32_t experts : {64, 128, 512}) {
    const RouteArgs args = {.num_rows = kRowsInt,
                            .logits = Somewhere<float>(),
                            .row_sequences = Somewhere<int32_t>(),
                            .routing = {.num_experts = experts, .num_experts_per_token = 8}};
    // Every block of the second reads all choices.
    const double choices = kRows * 8 * 4;
    Measure("8192 rows, 8 of " + std::to_string(experts),
            {{.bytes = kRows * (experts * 4 + 64), .flops = kRows * experts * 60, .stream = kRows * experts * 4},
             {.bytes = choices * 5, .stream = choices * experts * 2, .loops = true}},
            [&] { LaunchRoute(args, nullptr); });
  }
  const CombineArgs combine = {.num_rows = kRowsInt,
                               .num_experts_per_token = 8,
                               .d = 2048,
                               .y = Somewhere<float>(),
                               .weights = Somewhere<float>(),
                               .row_places = Somewhere<int32_t>(),
                               .sum = Somewhere<float>()};
  Measure("8192 rows of 2048, 8 experts",
          {{.bytes = kRows * 2048 * 36, .flops = kRows * 2048 * 16, .stream = kRows * 2048 * 32}},
          [&] { LaunchCombine(combine, nullptr); });
}

void MeasureSampling() {
  const double rows = 64, vocab = 128256, row = vocab * 4;
  const std::string name = "64 rows of 128256";
  Measure(name, {{.bytes = rows * row * 2, .flops = rows * vocab * 25, .stream = rows * row}},
          [&] { LaunchFinishLogits(Somewhere<float>(), 64 * 128256, 1, 30, nullptr); });
  const SampleArgs sample = {
      .num_rows = 64, .vocab_size = 128256, .logits = Somewhere<float>(), .rows = Somewhere<SampleRowData>()};
  // The last: rows with top_p, which read their logits twice.
  Measure(name,
          {{.bytes = rows * row * 2, .stream = rows * row, .loops = true},
           {.bytes = rows * row, .stream = rows * row},
           {.bytes = rows * row, .stream = rows * row * 2, .loops = true}},
          [&] { LaunchSample(sample, nullptr); });
  const LogprobArgs logprobs = {.num_rows = 64, .vocab_size = 128256, .logits = Somewhere<float>(), .max_top = 20};
  Measure(name, {{.bytes = rows * row, .stream = rows * row * 4, .loops = true}},
          [&] { LaunchLogprobs(logprobs, nullptr); });
}

// ---------------------------------------------------------------- attention

constexpr AttentionLimits kLimits = {.max_tokens = 8192, .max_seqs = 256, .max_total_context = 1 << 20};

AttentionKernelArgs AttentionArgs(const StepArrays& step, int32_t heads, const PagedKv& kv, int32_t latent_value_dim) {
  return {.step = step,
          .group = Group(),
          .plan = {.counts = Somewhere<int32_t>(), .items = Somewhere<int32_t>(), .limits = kLimits},
          .q = Somewhere<void>(),
          .num_heads = heads,
          .row_heads = heads,
          .kv = kv,
          .latent_value_dim = latent_value_dim,
          .mask = {},
          .out = Somewhere<void>(),
          .partials = Somewhere<float>(),
          .num_sms = 132};
}

const char* NameOf(KvElement element) {
  switch (element) {
    case KvElement::kF32:
      return "f32";
    case KvElement::kF16:
      return "f16";
    case KvElement::kBF16:
      return "bf16";
    case KvElement::kF8E4M3:
      return "fp8";
  }
  return "";
}

Work MergeWork(double seqs, double heads, double items, double value_dim) {
  return {.name = ", heads of " + std::to_string(static_cast<int>(value_dim)),
          .bytes = seqs * heads * (items * (value_dim + 4) * 4 + value_dim * 2),
          .flops = seqs * heads * items * value_dim * 2,
          .stream = seqs * heads * items * (value_dim + 2) * 4,
          .loops = true};
}

void MeasureDecode(KvElement element, int32_t dim, int32_t value_dim, int32_t seqs) {
  constexpr double kContext = 4096, kHeads = 32, kKvHeads = 8, kItems = kContext / kAttentionItem;
  const double parts = seqs * kItems * kKvHeads, tiles = seqs * kKvHeads * kContext / kAttentionTile;
  const Work decode = {.bytes = seqs * kContext * kKvHeads * (dim + value_dim) * 2,
                       .flops = seqs * kContext * kHeads * (dim + value_dim) * 2,
                       .mma = tiles * (dim + value_dim) / 2,
                       .pieces = parts};
  const std::string name = "batch " + std::to_string(seqs) + ", 4096 keys";
  Measure(name, {decode, MergeWork(seqs, kHeads, kItems, value_dim)},
          [&] { LaunchAttention(AttentionArgs(Step(seqs, seqs), 32, Cache(element, 8, dim, value_dim), 0), nullptr); });
}

void MeasurePrefill(KvElement element, int32_t dim, int32_t value_dim) {
  constexpr double kTokens = 8192, kHeads = 32, kKvHeads = 8;
  const double pairs = kTokens * (kTokens + 1) / 2;
  // A tile of 64 rows is 16 tokens of 4 heads and sees the keys up to its last token's.
  double tiles = 0;
  for (int32_t end = 16; end <= 8192; end += 16) tiles += (end + kAttentionTile - 1) / kAttentionTile;
  const Work work = {.bytes = kTokens * (kKvHeads * (dim + value_dim) + kHeads * (dim + value_dim)) * 2,
                     .flops = pairs * kHeads * (dim + value_dim) * 2,
                     .mma = tiles * kKvHeads * 4 * (dim + value_dim) / 2,
                     .stream = tiles * kKvHeads * kAttentionTile * (dim + value_dim) * 2};
  Measure("prompt of 8192", {work, {}, {}},
          [&] { LaunchAttention(AttentionArgs(Step(8192, 1), 32, Cache(element, 8, dim, value_dim), 0), nullptr); });
}

void MeasureLatent(KvElement element, int32_t dim, int32_t value_dim, int32_t heads) {
  constexpr double kSeqs = 64, kContext = 4096, kItems = kContext / kAttentionItem;
  const double head_tiles = (heads + 15) / 16, columns = std::max(value_dim / 4, 16), summing = value_dim / columns;
  const double tile_mma = 4 * (dim / 16.0) * 2 + summing * 4 * columns / 8;
  const Work parts = {.bytes = kSeqs * kContext * dim * 2 + kSeqs * heads * (dim + value_dim) * 2,
                      .flops = kSeqs * kContext * heads * (dim + value_dim) * 2,
                      .mma = kSeqs * kContext / kAttentionTile * head_tiles * tile_mma,
                      .stream = kSeqs * kContext * dim * 2 * head_tiles,
                      .pieces = kSeqs * kItems * head_tiles};
  const std::string heads_name = std::to_string(heads) + " heads, ";
  Measure(heads_name + "batch 64, 4096 keys", {parts, MergeWork(kSeqs, heads, kItems, value_dim)},
          [&] { LaunchAttention(AttentionArgs(Step(64, 64), heads, Cache(element, 1, dim, 0), value_dim), nullptr); });
  constexpr double kTokens = 2048;
  double tiles = 0;
  for (int32_t end = 1; end <= 2048; ++end) tiles += (end + kAttentionTile - 1) / kAttentionTile;
  const Work rows = {.bytes = kTokens * (dim * 2 + heads * (dim + value_dim) * 2.0),
                     .flops = kTokens * (kTokens + 1) / 2 * heads * (dim + value_dim) * 2,
                     .mma = tiles * head_tiles * tile_mma,
                     .stream = tiles * head_tiles * kAttentionTile * dim * 2};
  Measure(heads_name + "prompt of 2048", {rows, {}, {}},
          [&] { LaunchAttention(AttentionArgs(Step(2048, 1), heads, Cache(element, 1, dim, 0), value_dim), nullptr); });
}

void MeasureAttention() {
  const AttentionPlan plan = {.counts = Somewhere<int32_t>(), .items = Somewhere<int32_t>(), .limits = kLimits};
  Measure("batch 64, 4096 keys", {{.bytes = 64 * 20 + 64 * 16 * 16, .stream = 64 * 20}},
          [&] { LaunchPlanAttention(Step(64, 64), {}, 4, plan, nullptr); });
  constexpr int32_t kDims[][2] = {{32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (const KvElement element : {KvElement::kBF16, KvElement::kF16}) {
    for (const auto& [dim, value_dim] : kDims) {
      MeasureDecode(element, dim, value_dim, 64);
      MeasurePrefill(element, dim, value_dim);
    }
    MeasureLatent(element, 576, 512, 16);
    MeasureLatent(element, 48, 32, 4);
  }
  MeasureDecode(KvElement::kBF16, 128, 128, 1);
  MeasureLatent(KvElement::kBF16, 576, 512, 128);

  // No mma: a head size that has no instance, or a type that has none.
  for (const KvElement element : {KvElement::kF32, KvElement::kF16, KvElement::kBF16, KvElement::kF8E4M3}) {
    const double bytes = 64.0 * 4096 * 8 * 160 * static_cast<double>(KvElementBytes(element));
    Measure(std::string(NameOf(element)) + ", heads of 80, batch 64, 4096 keys",
            {{.bytes = bytes, .flops = 64.0 * 4096 * 32 * 160 * 2, .stream = bytes * 4, .loops = true}},
            [&] { LaunchAttention(AttentionArgs(Step(64, 64), 32, Cache(element, 8, 80, 80), 0), nullptr); });
  }
}

// ---------------------------------------------------------------- products

struct Shape {
  int32_t n, k;
};
constexpr Shape kGateUp = {28672, 4096};

void MeasureProduct(TensorType format, GemmKernel kernel, const Shape& shape, int32_t m) {
  const bool is_f32 = format == TensorType::kF32;
  const auto [n, k] = shape;
  const TileLayout layout = TileLayoutOf(format);
  const double row_tiles = RowTiles(n, false), k_tiles = is_f32 ? 0 : KTiles(layout, k), steps = k_tiles * layout.steps;
  const double weights = is_f32 ? n * 4.0 * k : row_tiles * k_tiles * layout.bytes();
  const double element = is_f32 ? 4 : 2, x = m * element * k;
  GemmArgs args = {.m = m,
                   .x = Somewhere<void>(),
                   .x_element = is_f32 ? Element::kF32 : Element::kBF16,
                   .x_stride = k,
                   .w = {.data = Somewhere<void>(), .format = format, .n = n, .k = k},
                   .out = Somewhere<void>(),
                   .out_stride = n};
  const auto launch = [&] { LaunchProduct(ToProduct(args), kernel, nullptr); };
  launch();
  const RecordedLaunch launched = TakeLaunches().at(0);
  const double place_tiles = launched.grid[0], row_blocks = launched.grid[1];

  // Minima take an mma for each step, token tile and warp: of all a block's row tiles in the skinny kernel, of two in
  // the tiled one.
  const bool has_minima = FormatOf(format).codes.affine;
  const double row_tiles_of_warp = kernel == GemmKernel::kTiled ? 2 : row_tiles / row_blocks;
  const double token_tiles = (m + 7) / 8;
  const double mma = 4 * steps * row_tiles * token_tiles * (1 + (has_minima ? 1 / row_tiles_of_warp : 0));
  const Work work = {.bytes = weights + x + m * 2.0 * n,
                     .flops = 2.0 * m * n * k,
                     .mma = is_f32 ? 0 : mma,
                     .stream = weights * place_tiles,
                     .common = x / place_tiles,
                     .loops = true};
  Measure(std::to_string(m) + (m == 1 ? " token, " : " tokens, ") + std::to_string(n) + " x " + std::to_string(k),
          {work}, launch);
}

std::vector<TensorType> TypesWithTiles() {
  std::vector<TensorType> types;
  for (const TensorFormat& row : kTensorFormats) {
    if (HasGpuForm(row.type) && row.type != TensorType::kF32) types.push_back(row.type);
  }
  return types;
}

// Before and after a product by cuBLASLt.
void MeasureAroundLibrary() {
  const auto [n, k] = kGateUp;
  for (const TensorType format : TypesWithTiles()) {
    const TileLayout layout = TileLayoutOf(format);
    const double packed = 1.0 * RowTiles(n, false) * KTiles(layout, k) * layout.bytes();
    const WeightMatrix w = {.data = Somewhere<void>(), .format = format, .n = n, .k = k};
    Measure("28672 x 4096", {{.bytes = packed + 2.0 * n * k, .stream = packed}},
            [&] { LaunchUnpack(w, Somewhere<void>(), nullptr); });
  }
  const GemmArgs gated = {
      .m = 2048, .w = {.n = n, .k = k}, .epilogue = Epilogue::kGated, .out = Somewhere<void>(), .out_stride = n / 2};
  Measure("2048 tokens, 28672 gated", {{.bytes = 2048.0 * n * 5, .flops = 2048.0 * n * 10, .stream = 2048.0 * n * 4}},
          [&] { LaunchFinishProduct(gated, Somewhere<float>(), n, nullptr); });
}

void MeasureProducts() {
  MeasureProduct(TensorType::kF32, GemmKernel::kFastest, kGateUp, 4);
  for (const int32_t m : {1, 2048}) MeasureProduct(TensorType::kF32, GemmKernel::kFastest, {64, 2048}, m);
  for (const TensorType format : TypesWithTiles()) {
    const bool scaled = FormatOf(format).codes.bits != 0;
    for (const int32_t m : {1, 8, 16, 32}) MeasureProduct(format, GemmKernel::kSkinny, kGateUp, m);
    if (!scaled) {
      MeasureProduct(format, GemmKernel::kSkinny, {4096, 4096}, 32);
      MeasureProduct(format, GemmKernel::kSkinny, {4096, 4096}, 64);
    }
    for (const int32_t m : {64, 2048}) MeasureProduct(format, GemmKernel::kTiled, kGateUp, m);
  }
  MeasureAroundLibrary();
  // The other matrices of a layer, and one of a small model.
  for (const Shape& shape : {Shape{6144, 4096}, {4096, 4096}, {4096, 14336}, {1024, 2048}}) {
    MeasureProduct(TensorType::kBF16, GemmKernel::kSkinny, shape, 1);
  }
}

}  // namespace
}  // namespace sluice::cuda

int main() {
  std::printf(
      "case\tkernel\tgrid_x\tgrid_y\tgrid_"
      "z\tthreads\tshared\tdependent\tbytes\tflops\tmma\tstream\tcommon\tpieces\tloops\n");
  sluice::cuda::MeasureNorms();
  sluice::cuda::MeasureEmbed();
  sluice::cuda::MeasureQkv();
  sluice::cuda::MeasureExpansion();
  sluice::cuda::MeasureExperts();
  sluice::cuda::MeasureSampling();
  sluice::cuda::MeasureAttention();
  sluice::cuda::MeasureProducts();
}
