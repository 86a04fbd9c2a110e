// What a description must satisfy, and what is computed from one.
#include "engine/model/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "engine/model/tensor_roles.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

struct Broken {
  const char* name;
  const char* field;  // that the error names
  std::function<void(ModelSpec*)> change;
};

Gqa& Heads(ModelSpec* spec) { return std::get<Gqa>(spec->layers[1].attention.kind); }
DenseFfn& Ffn(ModelSpec* spec) { return std::get<DenseFfn>(spec->layers[1].ffn); }
Mla& UseMla(ModelSpec* spec) {
  spec->layers[1].attention.kind = Mla{.num_heads = 4,
                                       .q_lora_rank = 24,
                                       .kv_lora_rank = 32,
                                       .qk_nope_head_dim = 16,
                                       .qk_rope_head_dim = 16,
                                       .v_head_dim = 16};
  return std::get<Mla>(spec->layers[1].attention.kind);
}
MoeFfn& UseMoe(ModelSpec* spec) {
  MoeFfn moe;
  moe.routing.num_experts = 8;
  moe.routing.num_experts_per_token = 2;
  moe.expert_intermediate_size = 32;
  moe.routing.groups = MoeGroups{4, 2, MoeGroupScore::kTop2Sum};
  moe.shared_intermediate_size = 32;
  spec->layers[1].ffn = moe;
  return std::get<MoeFfn>(spec->layers[1].ffn);
}
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const Broken kBroken[] = {
    {"NoVocabulary", "vocab_size", [](ModelSpec* s) { s->vocab_size = 0; }},
    {"HugeVocabulary", "vocab_size", [](ModelSpec* s) { s->vocab_size = 1 << 30; }},
    {"NoWidth", "d_model", [](ModelSpec* s) { s->d_model = 0; }},
    {"HugeWidth", "d_model", [](ModelSpec* s) { s->d_model = 1 << 30; }},
    {"NegativeContext", "max_position", [](ModelSpec* s) { s->max_position = -1; }},
    {"NanEmbeddingScale", "embedding_scale", [](ModelSpec* s) { s->embedding_scale = kNan; }},
    {"NoLayers", "number of layers", [](ModelSpec* s) { s->layers.clear(); }},
    {"TooManyLayers", "number of layers", [](ModelSpec* s) { s->layers.resize(5000, s->layers[0]); }},
    {"NanFrequency", "rope_tables[0].inv_freq", [](ModelSpec* s) { s->rope_tables[0].inv_freq[3] = kNan; }},
    {"ShortLongFrequencies", "long_inv_freq has 1 entries",
     [](ModelSpec* s) {
       s->rope_tables[0].length_rule = LongRopeRule{8, {1}};
     }},
    {"NanLongFrequency", "rope_tables[0].length_rule.long_inv_freq is nan",
     [](ModelSpec* s) {
       LongRopeRule rule{8, s->rope_tables[0].inv_freq};
       rule.long_inv_freq[1] = kNan;
       s->rope_tables[0].length_rule = rule;
     }},
    {"LongRopeOfNoContext", "length_rule.original_max_position is 0",
     [](ModelSpec* s) {
       s->rope_tables[0].length_rule = LongRopeRule{0, s->rope_tables[0].inv_freq};
     }},
    {"DynamicZeroFactor", "length_rule.factor is 0",
     [](ModelSpec* s) {
       s->rope_tables[0].length_rule = DynamicNtkRule{1e4f, 0, 32};
     }},
    {"DynamicOfNoContext", "length_rule.max_position is 0",
     [](ModelSpec* s) {
       s->rope_tables[0].length_rule = DynamicNtkRule{1e4f, 2, 0};
     }},
    {"ZeroAttentionFactor", "rope_tables[0].attention_factor",
     [](ModelSpec* s) { s->rope_tables[0].attention_factor = 0; }},
    {"NegativeEps", "layers[1].pre_attn.eps", [](ModelSpec* s) { s->layers[1].pre_attn->eps = -1; }},
    {"ZeroEps", "layers[1].pre_ffn.eps", [](ModelSpec* s) { s->layers[1].pre_ffn->eps = 0; }},
    {"NanPostAttn", "layers[1].post_attn.eps", [](ModelSpec* s) { s->layers[1].post_attn = NormParams{.eps = kNan}; }},
    {"InfPostFfn", "layers[1].post_ffn.eps", [](ModelSpec* s) { s->layers[1].post_ffn = NormParams{.eps = kInf}; }},
    {"NanNormOffset", "pre_attn.weight_offset", [](ModelSpec* s) { s->layers[1].pre_attn->weight_offset = kNan; }},
    {"FinalEps", "final_norm.eps", [](ModelSpec* s) { s->final_norm.eps = 0; }},
    {"NegativeKvGroup", "layers[1].kv_group", [](ModelSpec* s) { s->layers[1].kv_group = -1; }},
    {"NoHeads", "layers[1].attention.num_heads", [](ModelSpec* s) { Heads(s).num_heads = 0; }},
    {"NoKvHeads", "layers[1].attention.num_kv_heads", [](ModelSpec* s) { Heads(s).num_kv_heads = 0; }},
    {"MoreKvHeads", "layers[1].attention.num_kv_heads", [](ModelSpec* s) { Heads(s).num_kv_heads = 8; }},
    {"HeadsDoNotDivide", "layers[1].attention.num_heads", [](ModelSpec* s) { Heads(s).num_kv_heads = 3; }},
    {"NoHeadDim", "layers[1].attention.head_dim", [](ModelSpec* s) { Heads(s).head_dim = 0; }},
    {"NoValueDim", "layers[1].attention.value_head_dim", [](ModelSpec* s) { Heads(s).value_head_dim = 0; }},
    {"QkNormEps", "layers[1].attention.qk_norm.eps",
     [](ModelSpec* s) {
       Heads(s).qk_norm = {QkNormKind::kPerHead, NormParams{.eps = 0}, false};
     }},
    {"OddRotary", "layers[1].attention.rope.num_rotary",
     [](ModelSpec* s) { s->layers[1].attention.rope->num_rotary = 7; }},
    {"RotaryOverHead", "layers[1].attention.rope.num_rotary",
     [](ModelSpec* s) { s->layers[1].attention.rope->num_rotary = 32; }},
    {"RotaryUnlikeTable", "layers[1].attention.rope.num_rotary",
     [](ModelSpec* s) { s->layers[1].attention.rope->num_rotary = 8; }},
    {"NoSuchTable", "layers[1].attention.rope.table", [](ModelSpec* s) { s->layers[1].attention.rope->table = 1; }},
    {"ZeroScale", "layers[1].attention.scale", [](ModelSpec* s) { s->layers[1].attention.scale = 0; }},
    {"ZeroSoftcap", "layers[1].attention.softcap", [](ModelSpec* s) { s->layers[1].attention.softcap = 0; }},
    {"ZeroWindow", "layers[1].attention.mask.size",
     [](ModelSpec* s) {
       s->layers[1].attention.mask = {MaskKind::kWindow, 0};
     }},
    {"NegativeChunk", "layers[1].attention.mask.size",
     [](ModelSpec* s) {
       s->layers[1].attention.mask = {MaskKind::kChunk, -4};
     }},
    {"ZeroTemperatureFloor", "query_temperature.floor",
     [](ModelSpec* s) {
       s->layers[1].attention.query_temperature = QueryTemperature{0, 0.1f};
     }},
    {"NanTemperature", "query_temperature.coef",
     [](ModelSpec* s) {
       s->layers[1].attention.query_temperature = QueryTemperature{8, kNan};
     }},
    {"NoFfn", "layers[1].ffn.intermediate_size", [](ModelSpec* s) { Ffn(s).intermediate_size = 0; }},
    {"HugeFfn", "layers[1].ffn.intermediate_size", [](ModelSpec* s) { Ffn(s).intermediate_size = 1 << 30; }},
    {"ZeroLimit", "layers[1].ffn.activation.limit",
     [](ModelSpec* s) {
       Ffn(s).activation = {ActivationKind::kSwigluOai, 1.7f, 0};
     }},
    {"MlaNoHeads", "layers[1].attention.num_heads", [](ModelSpec* s) { UseMla(s).num_heads = 0; }},
    {"MlaNoLatent", "layers[1].attention.kv_lora_rank", [](ModelSpec* s) { UseMla(s).kv_lora_rank = 0; }},
    {"MlaNoQueryLatent", "layers[1].attention.q_lora_rank", [](ModelSpec* s) { UseMla(s).q_lora_rank = 0; }},
    {"MlaNoNope", "layers[1].attention.qk_nope_head_dim", [](ModelSpec* s) { UseMla(s).qk_nope_head_dim = 0; }},
    {"MlaRopeUnlikeTable", "layers[1].attention.rope.num_rotary", [](ModelSpec* s) { UseMla(s).qk_rope_head_dim = 8; }},
    {"MlaNoValue", "layers[1].attention.v_head_dim", [](ModelSpec* s) { UseMla(s).v_head_dim = 0; }},
    {"MlaEps", "layers[1].attention.latent_norm_eps", [](ModelSpec* s) { UseMla(s).latent_norm_eps = 0; }},
    {"MoeNoExperts", "layers[1].ffn.num_experts", [](ModelSpec* s) { UseMoe(s).routing.num_experts = 0; }},
    {"MoeTooManyPerToken", "layers[1].ffn.num_experts_per_token",
     [](ModelSpec* s) { UseMoe(s).routing.num_experts_per_token = 9; }},
    {"MoeNoWidth", "layers[1].ffn.expert_intermediate_size",
     [](ModelSpec* s) { UseMoe(s).expert_intermediate_size = 0; }},
    {"MoeGroupsDoNotDivide", "layers[1].ffn.groups.num_groups",
     [](ModelSpec* s) { UseMoe(s).routing.groups->num_groups = 3; }},
    {"MoeLonelyGroups", "layers[1].ffn.groups.num_groups",
     [](ModelSpec* s) { UseMoe(s).routing.groups->num_groups = 8; }},
    {"MoeKeepsTooMany", "layers[1].ffn.groups.num_kept", [](ModelSpec* s) { UseMoe(s).routing.groups->num_kept = 5; }},
    {"MoeKeepsTooFew", "layers[1].ffn.groups.num_kept",
     [](ModelSpec* s) {
       UseMoe(s).routing.groups->num_kept = 1;
       std::get<MoeFfn>(s->layers[1].ffn).routing.num_experts_per_token = 3;
     }},
    {"MoeNegativeEps", "layers[1].ffn.renormalize_eps", [](ModelSpec* s) { UseMoe(s).routing.renormalize_eps = -1; }},
    {"MoeZeroScale", "layers[1].ffn.routed_scale", [](ModelSpec* s) { UseMoe(s).routing.routed_scale = 0; }},
    {"MoeNoShared", "layers[1].ffn.shared_intermediate_size",
     [](ModelSpec* s) { UseMoe(s).shared_intermediate_size = 0; }},
    {"ZeroLogitScale", "logit_scale", [](ModelSpec* s) { s->logit_scale = 0; }},
    {"NegativeFinalSoftcap", "final_softcap", [](ModelSpec* s) { s->final_softcap = -1; }},
};

class BrokenSpecTest : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenSpecTest, IsRefusedWithTheNameOfTheField) {
  ModelSpec spec = ToySpec();
  GetParam().change(&spec);
  const absl::Status status = ValidateModelSpec(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().field));
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenSpecTest, ::testing::ValuesIn(kBroken),
                         [](const auto& info) { return info.param.name; });

TEST(SpecTest, WholeOnesAreAccepted) {
  ModelSpec spec = ToySpec();
  EXPECT_TRUE(ValidateModelSpec(spec).ok()) << ValidateModelSpec(spec);
  UseMla(&spec);
  UseMoe(&spec);
  EXPECT_TRUE(ValidateModelSpec(spec).ok()) << ValidateModelSpec(spec);
}

TEST(SpecTest, KvValuesFollowTheKindOfAttention) {
  ModelSpec spec = ToySpec();
  EXPECT_EQ(KvValuesPerToken(spec.layers[1]), 2 * (16 + 16));
  Heads(&spec).value_head_dim = 8;
  EXPECT_EQ(KvValuesPerToken(spec.layers[1]), 2 * (16 + 8));
  UseMla(&spec);
  EXPECT_EQ(KvValuesPerToken(spec.layers[1]), 32 + 16);
}

TEST(SpecTest, KvBytesOfWindowAndChunkLayersStopAtTheirSize) {
  ModelSpec spec = ToySpec();
  spec.layers[1].attention.mask = {MaskKind::kWindow, 10};
  spec.layers[2].attention.mask = {MaskKind::kChunk, 50};
  EXPECT_EQ(KvBytes(spec, 5, 2), 3 * 64 * 5 * 2);
  EXPECT_EQ(KvBytes(spec, 100, 2), 64 * 2 * (100 + 10 + 50));
  EXPECT_EQ(KvBytes(spec, 0, 2), 0);
}

TEST(SpecTest, ParametersAreCountedFromEveryTensor) {
  ModelSpec spec = ToySpec();
  const int64_t layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64 + 2 * 64;
  EXPECT_EQ(NumParameters(spec), 2 * 96 * 64 + 3 * layer + 64);
  spec.tied_embeddings = true;
  EXPECT_EQ(NumParameters(spec), 96 * 64 + 3 * layer + 64);

  spec.layers.resize(1);
  LayerSpec& l = spec.layers[0];
  l.attention.q_bias = l.attention.o_bias = l.attention.sinks = true;
  l.post_attn = NormParams{.kind = NormKind::kLayer};
  std::get<Gqa>(l.attention.kind).qk_norm.kind = QkNormKind::kFullWidth;
  EXPECT_EQ(NumParameters(spec), 96 * 64 + 64 + layer + 64 + 64 + 4 + 2 * 64 + (64 + 32));

  spec = ToySpec();
  spec.layers.erase(spec.layers.begin());
  spec.layers.pop_back();
  spec.layers.resize(2, spec.layers[0]);
  UseMla(&spec);
  UseMoe(&spec).selection_bias = true;
  const int64_t mla = 24 * 64 + 24 + 4 * 32 * 24 + 48 * 64 + 32 + 4 * 32 * 32 + 64 * 64;
  const int64_t moe = 8 * 64 + 8 + 8 * 3 * 32 * 64 + 3 * 32 * 64;
  EXPECT_EQ(NumParameters(spec), 2 * 96 * 64 + 64 + layer + mla + moe + 2 * 64);
}

TEST(SpecTest, TensorsOfDifferentMeaningAreListedOnceEach) {
  ModelSpec spec = ToySpec();
  std::set<std::pair<TensorRole, int32_t>> seen;
  for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
    EXPECT_TRUE(seen.insert({tensor.role, tensor.layer}).second);
  }
  EXPECT_EQ(seen.size(), 3u + 3 * 9);
}

}  // namespace
}  // namespace sluice::testing
