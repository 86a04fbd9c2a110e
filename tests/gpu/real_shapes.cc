#include "tests/gpu/real_shapes.h"

#include <cmath>

#include "engine/model/rope.h"

namespace sluice::cuda_testing {
namespace {

struct Llama {
  int32_t layers, d_model, heads, kv_heads, head_dim, intermediate, vocab;
  double rope_theta;
  bool tied, qk_norm;
};

ModelSpec MakeLlama(const Llama& m) {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.vocab_size = m.vocab;
  spec.d_model = m.d_model;
  spec.max_position = 8192;
  spec.rope_tables.push_back(MakeRopeTable(m.rope_theta, m.head_dim, {}));
  LayerSpec layer;
  layer.pre_attn = layer.pre_ffn = NormParams{.eps = 1e-5f};
  Gqa gqa{.num_heads = m.heads,
          .num_kv_heads = m.kv_heads,
          .head_dim = m.head_dim,
          .value_head_dim = m.head_dim,
          .qk_norm = {}};
  if (m.qk_norm) gqa.qk_norm = {.kind = QkNormKind::kPerHead, .norm = {.eps = 1e-6f}};
  layer.attention.kind = gqa;
  layer.attention.rope = RopeSpec{.table = 0, .layout = RopeLayout::kHalfSplit, .num_rotary = m.head_dim};
  layer.attention.scale = 1 / std::sqrt(static_cast<float>(m.head_dim));
  layer.ffn = DenseFfn{.intermediate_size = m.intermediate};
  spec.layers.assign(static_cast<size_t>(m.layers), layer);
  spec.final_norm = NormParams{.eps = 1e-5f};
  spec.tied_embeddings = m.tied;
  return spec;
}

ModelSpec DeepSeekV2Lite() {
  ModelSpec spec;
  spec.architecture = "deepseek2";
  spec.vocab_size = 102400;
  spec.d_model = 2048;
  spec.max_position = 8192;
  spec.rope_tables.push_back(MakeRopeTable(1e4, 64, {}));
  LayerSpec layer;
  layer.pre_attn = layer.pre_ffn = NormParams{.eps = 1e-6f};
  layer.attention.kind = Mla{.num_heads = 16,
                             .q_lora_rank = std::nullopt,
                             .kv_lora_rank = 512,
                             .qk_nope_head_dim = 128,
                             .qk_rope_head_dim = 64,
                             .v_head_dim = 128};
  layer.attention.rope = RopeSpec{.table = 0, .layout = RopeLayout::kInterleaved, .num_rotary = 64};
  layer.attention.scale = 0.11472f;
  MoeFfn moe;
  moe.routing = {.num_experts = 64, .num_experts_per_token = 6};
  moe.expert_intermediate_size = 1408;
  moe.shared_intermediate_size = 2 * 1408;
  layer.ffn = moe;
  spec.layers.assign(27, layer);
  spec.layers[0].ffn = DenseFfn{.intermediate_size = 10944};
  spec.final_norm = NormParams{.eps = 1e-6f};
  return spec;
}

}  // namespace

std::vector<RealShape> RealShapes() {
  return {{"Llama-3-8B", MakeLlama({32, 4096, 32, 8, 128, 14336, 128256, 5e5, false, false})},
          {"Qwen3-4B", MakeLlama({36, 2560, 32, 8, 128, 9728, 151936, 1e6, true, true})},
          {"Qwen3-0.6B", MakeLlama({28, 1024, 16, 8, 128, 3072, 151936, 1e6, true, true})},
          {"SmolLM2-135M", MakeLlama({30, 576, 9, 3, 64, 1536, 49152, 1e5, true, false})},
          {"DeepSeek-V2-Lite", DeepSeekV2Lite()}};
}

ModelSpec Shrunk(ModelSpec spec) {
  spec.vocab_size = 64;
  spec.d_model = 64;
  spec.layers.erase(spec.layers.begin() + 2, spec.layers.end());
  for (RopeTable& table : spec.rope_tables) table = MakeRopeTable(1e4, 16, {});
  for (LayerSpec& layer : spec.layers) {
    layer.attention.rope->num_rotary = 16;
    if (auto* gqa = std::get_if<Gqa>(&layer.attention.kind)) {
      gqa->num_heads = 2 * gqa->num_heads / gqa->num_kv_heads;
      gqa->num_kv_heads = 2;
      gqa->head_dim = gqa->value_head_dim = 32;
    } else {
      layer.attention.kind = Mla{.num_heads = 2,
                                 .q_lora_rank = std::nullopt,
                                 .kv_lora_rank = 32,
                                 .qk_nope_head_dim = 16,
                                 .qk_rope_head_dim = 16,
                                 .v_head_dim = 16};
    }
    if (auto* moe = std::get_if<MoeFfn>(&layer.ffn)) {
      moe->routing.num_experts = 8;
      moe->routing.num_experts_per_token = 2;
      moe->expert_intermediate_size = 24;
      moe->shared_intermediate_size = 40;
    } else {
      std::get<DenseFfn>(layer.ffn).intermediate_size = 96;
    }
  }
  return spec;
}

}  // namespace sluice::cuda_testing
