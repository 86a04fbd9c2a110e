#include "tests/cuda/toy_cases.h"

#include <optional>

#include "engine/model/rope.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

void ForLayers(ModelSpec* spec, const std::function<void(LayerSpec*)>& change) {
  for (LayerSpec& layer : spec->layers) change(&layer);
}
Gqa& GqaOf(LayerSpec* layer) { return std::get<Gqa>(layer->attention.kind); }

void UseMla(ModelSpec* spec, std::optional<int32_t> q_lora_rank) {
  ForLayers(spec, [&](LayerSpec* layer) {
    layer->attention.kind = Mla{.num_heads = 4,
                                .q_lora_rank = q_lora_rank,
                                .kv_lora_rank = 32,
                                .qk_nope_head_dim = 16,
                                .qk_rope_head_dim = 16,
                                .v_head_dim = 16};
    layer->attention.rope->layout = RopeLayout::kInterleaved;
  });
}

void UseMoe(ModelSpec* spec, const std::function<void(MoeFfn*)>& change) {
  ForLayers(spec, [&](LayerSpec* layer) {
    MoeFfn moe;
    moe.routing.num_experts = 8;
    moe.routing.num_experts_per_token = 2;
    moe.routing.renormalize = true;
    moe.expert_intermediate_size = 48;
    change(&moe);
    layer->ffn = moe;
  });
}

const ToyCase kCases[] = {
    {"Gqa", [](ModelSpec*) {}},
    {"Mha", [](ModelSpec* s) { ForLayers(s, [](LayerSpec* l) { GqaOf(l).num_kv_heads = 4; }); }, TensorType::kBF16, 2},
    {"Mqa", [](ModelSpec* s) { ForLayers(s, [](LayerSpec* l) { GqaOf(l).num_kv_heads = 1; }); }},
    {"Heads32",
     [](ModelSpec* s) {
       s->rope_tables[0] = MakeRopeTable(1e4, 32, {});
       ForLayers(s, [](LayerSpec* l) {
         GqaOf(l) = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .value_head_dim = 32, .qk_norm = {}};
         l->attention.rope->num_rotary = 32;
       });
     },
     TensorType::kBF16, 2},
    {"QkNorm",
     [](ModelSpec* s) {
       ForLayers(s, [](LayerSpec* l) { GqaOf(l).qk_norm = {.kind = QkNormKind::kPerHead, .norm = {.eps = 1e-6f}}; });
     }},
    {"WindowAndFull",
     [](ModelSpec* s) {
       s->layers[0].attention.mask = {MaskKind::kWindow, 24};
       s->layers[2].attention.mask = {MaskKind::kWindow, 24};
     }},
    {"Chunks", [](ModelSpec* s) { ForLayers(s, [](LayerSpec* l) {
                                    l->attention.mask = {MaskKind::kChunk, 32};
                                  }); }},
    {"Softcaps",
     [](ModelSpec* s) {
       ForLayers(s, [](LayerSpec* l) { l->attention.softcap = 20; });
       s->final_softcap = 30;
     }},
    {"SinksAndBiases",
     [](ModelSpec* s) {
       ForLayers(s, [](LayerSpec* l) {
         l->attention.sinks = true;
         l->attention.q_bias = l->attention.k_bias = l->attention.v_bias = l->attention.o_bias = true;
       });
     }},
    {"PostNorms",
     [](ModelSpec* s) { ForLayers(s, [](LayerSpec* l) { l->post_attn = l->post_ffn = NormParams{.eps = 1e-5f}; }); },
     TensorType::kBF16, 2},
    {"Ungated",
     [](ModelSpec* s) {
       ForLayers(s, [](LayerSpec* l) {
         l->ffn = DenseFfn{.intermediate_size = 128, .gated = false, .activation = {.kind = ActivationKind::kGeluTanh}};
       });
     }},
    {"Tied", [](ModelSpec* s) { s->tied_embeddings = true; }},
    {"Mla", [](ModelSpec* s) { UseMla(s, std::nullopt); }},
    {"MlaWithQueryLatent", [](ModelSpec* s) { UseMla(s, 24); }, TensorType::kBF16, 2},
    {"Moe", [](ModelSpec* s) { UseMoe(s, [](MoeFfn*) {}); }},
    {"MoeSigmoidGroupsShared",
     [](ModelSpec* s) {
       UseMoe(s, [](MoeFfn* moe) {
         moe->routing.score = MoeScore::kSigmoid;
         moe->routing.groups = MoeGroups{4, 2, MoeGroupScore::kTop2Sum};
         moe->selection_bias = true;
         moe->shared_intermediate_size = 48;
       });
     }},
    {"MlaAndMoe",
     [](ModelSpec* s) {
       UseMoe(s, [](MoeFfn* moe) { moe->shared_intermediate_size = 48; });
       UseMla(s, std::nullopt);
     }},
    {"WeightsQ8_0", [](ModelSpec*) {}, TensorType::kQ8_0},
    {"WeightsQ4_0", [](ModelSpec*) {}, TensorType::kQ4_0, 2},
    {"WeightsF16", [](ModelSpec*) {}, TensorType::kF16},
};

}  // namespace

std::span<const ToyCase> ToyCases() { return kCases; }

ModelSpec MakeToySpec(const ToyCase& c) {
  ModelSpec spec = ToySpec();
  spec.vocab_size = 32;
  c.change(&spec);
  return spec;
}

}  // namespace sluice::testing
