// Qwen2, Qwen3 and its mixture of experts: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/family_testing.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

const Gqa& Heads(const LayerSpec& layer) { return std::get<Gqa>(layer.attention.kind); }

// The size of each layer's window, 0 where it sees everything.
std::vector<int32_t> Windows(const absl::StatusOr<ModelSpec>& spec) {
  EXPECT_TRUE(spec.ok()) << spec.status();
  std::vector<int32_t> windows;
  if (!spec.ok()) return windows;
  for (const LayerSpec& layer : spec->layers) {
    windows.push_back(layer.attention.mask.kind == MaskKind::kWindow ? layer.attention.mask.size : 0);
  }
  return windows;
}

TEST(Qwen2ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("qwen2.5-0.5b");
  EXPECT_EQ(spec.architecture, "qwen2");
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_EQ(spec.max_position, 32768);
  const LayerSpec& layer = spec.layers[23];
  EXPECT_TRUE(layer.attention.q_bias && layer.attention.k_bias && layer.attention.v_bias);
  EXPECT_FALSE(layer.attention.o_bias);
  EXPECT_EQ(layer.attention.mask.kind, MaskKind::kFull);  // sliding_window is there, but not in use
  EXPECT_EQ(Heads(layer).num_heads, 14);
  EXPECT_EQ(Heads(layer).num_kv_heads, 2);
  EXPECT_EQ(Heads(layer).head_dim, 64);
  EXPECT_EQ(Heads(layer).qk_norm.kind, QkNormKind::kNone);
  EXPECT_FLOAT_EQ(layer.pre_ffn->eps, 1e-6f);
  EXPECT_FLOAT_EQ(spec.rope_tables[0].inv_freq[1], float(std::pow(1e6, -2.0 / 64)));
}

TEST(Qwen2ConfigTest, LaterLayersSlide) {
  const nlohmann::json base = {{"/num_hidden_layers", 4}, {"/use_sliding_window", true}, {"/max_window_layers", 3}};
  EXPECT_EQ(Windows(ReadChanged("qwen2.5-0.5b", base)), std::vector<int32_t>({0, 0, 0, 32768}));
  nlohmann::json changes = base;
  changes["/max_window_layers"] = kRemoved;  // 28
  EXPECT_EQ(Windows(ReadChanged("qwen2.5-0.5b", changes)), std::vector<int32_t>({0, 0, 0, 0}));
  changes["/max_window_layers"] = 0;
  changes["/sliding_window"] = kRemoved;  // 4096
  EXPECT_EQ(Windows(ReadChanged("qwen2.5-0.5b", changes)), std::vector<int32_t>({4096, 4096, 4096, 4096}));
  changes["/sliding_window"] = nullptr;
  EXPECT_EQ(Windows(ReadChanged("qwen2.5-0.5b", changes)), std::vector<int32_t>({0, 0, 0, 0}));
}

TEST(Qwen2ConfigTest, LayerTypesWinOverTheRule) {
  nlohmann::json changes = {{"/num_hidden_layers", 3},
                            {"/use_sliding_window", true},
                            {"/sliding_window", 16},
                            {"/layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}};
  EXPECT_EQ(Windows(ReadChanged("qwen2.5-0.5b", changes)), std::vector<int32_t>({16, 0, 16}));
  changes["/use_sliding_window"] = false;
  ExpectError(ReadChanged("qwen2.5-0.5b", changes), kInvalidArgument, "lets layer 0 slide");
  changes["/layer_types"] = {"full_attention"};
  ExpectError(ReadChanged("qwen2.5-0.5b", changes), kInvalidArgument, "'layer_types' has 1 entries, expected one for");
  changes["/layer_types"] = {"full_attention", "full_attention", "linear_attention"};
  ExpectError(ReadChanged("qwen2.5-0.5b", changes), kInvalidArgument, "'layer_types' holds 'linear_attention'");
  changes["/layer_types"] = "full_attention";
  ExpectError(ReadChanged("qwen2.5-0.5b", changes), kInvalidArgument, "expected a list of strings");
}

TEST(Qwen2ConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged("qwen2.5-0.5b", {{"/num_attention_heads", 64},
                                                                      {"/num_key_value_heads", kRemoved},
                                                                      {"/rope_theta", kRemoved},
                                                                      {"/tie_word_embeddings", kRemoved},
                                                                      {"/max_position_embeddings", kRemoved},
                                                                      {"/rms_norm_eps", kRemoved}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Heads(spec->layers[0]).num_kv_heads, 32);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].inv_freq[1], float(std::pow(1e4, -2.0 / 14)));
  EXPECT_FALSE(spec->tied_embeddings);
  EXPECT_EQ(spec->max_position, 32768);
  EXPECT_FLOAT_EQ(spec->final_norm.eps, 1e-6f);
}

TEST(Qwen2ConfigTest, YarnStretchesByTheFactorItNames) {
  const absl::StatusOr<ModelSpec> spec = ReadChanged(
      "qwen2.5-7b",
      {{"/rope_scaling", {{"factor", 4.0}, {"original_max_position_embeddings", 32768}, {"type", "yarn"}}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const RopeTable& table = spec->rope_tables[0];  // as transformers computes it for heads of 128
  EXPECT_FLOAT_EQ(table.attention_factor, 1.138629436f);
  EXPECT_FLOAT_EQ(table.inv_freq[1], 0.805842221f);
  EXPECT_FLOAT_EQ(table.inv_freq[32], 0.000602941145f);
  EXPECT_FLOAT_EQ(table.inv_freq[63], 3.10234441e-07f);
}

TEST(Qwen3ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("qwen3-0.6b");
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_FALSE(ReadConfig("qwen3-8b").tied_embeddings);
  const LayerSpec& layer = spec.layers[27];
  EXPECT_EQ(Heads(layer).num_heads, 16);
  EXPECT_EQ(Heads(layer).head_dim, 128);  // 16 of them are wider than the model
  EXPECT_EQ(Heads(layer).qk_norm.kind, QkNormKind::kPerHead);
  EXPECT_FLOAT_EQ(Heads(layer).qk_norm.norm.eps, 1e-6f);
  EXPECT_FALSE(Heads(layer).qk_norm.after_rope);
  EXPECT_FALSE(layer.attention.q_bias || layer.attention.o_bias);
  EXPECT_FLOAT_EQ(layer.attention.scale, 1 / std::sqrt(128.0f));
}

TEST(Qwen3ConfigTest, AMissingHeadDimIs128AndBiasesCover0) {
  const absl::StatusOr<ModelSpec> spec =
      ReadChanged("qwen3-0.6b", {{"/head_dim", kRemoved}, {"/attention_bias", true}, {"/rms_norm_eps", 1e-5}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Heads(spec->layers[0]).head_dim, 128);
  EXPECT_TRUE(spec->layers[0].attention.q_bias && spec->layers[0].attention.o_bias);
  EXPECT_FLOAT_EQ(Heads(spec->layers[0]).qk_norm.norm.eps, 1e-5f);
}

TEST(Qwen3MoeConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("qwen3-30b-a3b");
  ASSERT_EQ(spec.layers.size(), 48u);
  for (const LayerSpec& layer : spec.layers) {
    const MoeFfn& moe = std::get<MoeFfn>(layer.ffn);
    EXPECT_EQ(moe.routing.num_experts, 128);
    EXPECT_EQ(moe.routing.num_experts_per_token, 8);
    EXPECT_EQ(moe.routing.score, MoeScore::kSoftmaxAll);
    EXPECT_TRUE(moe.routing.renormalize);
    EXPECT_EQ(moe.routing.renormalize_eps, 0);
    EXPECT_FALSE(moe.routing.groups.has_value());
    EXPECT_EQ(moe.expert_intermediate_size, 768);
    EXPECT_FALSE(moe.shared_intermediate_size.has_value());
    EXPECT_EQ(Heads(layer).qk_norm.kind, QkNormKind::kPerHead);
  }
}

TEST(Qwen3MoeConfigTest, SomeLayersAreDense) {
  absl::StatusOr<ModelSpec> spec =
      ReadChanged("qwen3-30b-a3b", {{"/num_hidden_layers", 6}, {"/decoder_sparse_step", 2}, {"/mlp_only_layers", {3}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::string kinds;
  for (const LayerSpec& layer : spec->layers) kinds += std::holds_alternative<MoeFfn>(layer.ffn) ? 'm' : 'd';
  EXPECT_EQ(kinds, "dmdddm");
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).intermediate_size, 6144);
  spec = ReadChanged("qwen3-30b-a3b", {{"/num_experts", 0}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(std::holds_alternative<DenseFfn>(spec->layers[5].ffn));
}

TEST(Qwen3MoeConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  nlohmann::json changes;
  for (const char* key : {"/num_experts", "/num_experts_per_tok", "/moe_intermediate_size", "/norm_topk_prob",
                          "/mlp_only_layers", "/decoder_sparse_step", "/head_dim", "/num_key_value_heads"}) {
    changes[key] = kRemoved;
  }
  const absl::StatusOr<ModelSpec> spec = ReadChanged("qwen3-30b-a3b", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[0].ffn);
  EXPECT_EQ(moe.routing.num_experts, 128);
  EXPECT_EQ(moe.routing.num_experts_per_token, 8);
  EXPECT_EQ(moe.expert_intermediate_size, 768);
  EXPECT_FALSE(moe.routing.renormalize);
  EXPECT_EQ(Heads(spec->layers[0]).head_dim, 64);  // hidden_size / num_attention_heads, unlike the dense model
  EXPECT_EQ(Heads(spec->layers[0]).num_kv_heads, 4);
}

TEST(Qwen3MoeConfigTest, IfOneLayerSlidesAllDo) {
  EXPECT_EQ(Windows(ReadChanged("qwen3-30b-a3b", {{"/num_hidden_layers", 2},
                                                  {"/use_sliding_window", true},
                                                  {"/sliding_window", 64},
                                                  {"/max_window_layers", 1}})),
            std::vector<int32_t>({64, 64}));
}

TEST(Qwen3MoeConfigTest, ContradictionsAreErrors) {
  ExpectError(ReadChanged("qwen3-30b-a3b", {{"/num_experts_per_tok", 129}}), kInvalidArgument,
              "num_experts_per_token is 129");
  ExpectError(ReadChanged("qwen3-30b-a3b", {{"/decoder_sparse_step", 0}}), kInvalidArgument,
              "key 'decoder_sparse_step' is 0");
  ExpectError(ReadChanged("qwen3-30b-a3b", {{"/mlp_only_layers", "all"}}), kInvalidArgument, "'mlp_only_layers'");
  ExpectError(ReadChanged("qwen3-30b-a3b", {{"/moe_intermediate_size", -1}}), kInvalidArgument,
              "'moe_intermediate_size' is -1");
}

GgufWriter Keys(const std::string& architecture) {
  GgufWriter writer;
  writer.AddString("general.architecture", architecture);
  writer.AddU32(architecture + ".context_length", 32768);
  writer.AddU32(architecture + ".embedding_length", 64);
  writer.AddU32(architecture + ".block_count", 2);
  writer.AddU32(architecture + ".feed_forward_length", 96);
  writer.AddU32(architecture + ".attention.head_count", 4);
  writer.AddU32(architecture + ".attention.head_count_kv", 2);
  writer.AddF32(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  writer.AddF32(architecture + ".rope.freq_base", 1e6f);
  return writer;
}

TEST(QwenGgufTest, BiasesOfQwen2AreThoseOfTheFile) {
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(Keys("qwen2"), {{"token_embd.weight", {96, 64}},
                                                                      {"blk.0.attn_q.bias", {64}},
                                                                      {"blk.0.attn_k.bias", {32}},
                                                                      {"blk.0.attn_v.bias", {32}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 96);
  EXPECT_TRUE(spec->tied_embeddings);
  const AttentionSpec& attention = spec->layers[1].attention;
  EXPECT_TRUE(attention.q_bias && attention.k_bias && attention.v_bias);
  EXPECT_FALSE(attention.o_bias);
  EXPECT_EQ(attention.rope->layout, RopeLayout::kHalfSplit);
}

TEST(QwenGgufTest, Qwen3NormsItsHeads) {
  GgufWriter writer = Keys("qwen3");
  writer.AddU32("qwen3.attention.key_length", 32);
  writer.AddU32("qwen3.attention.value_length", 32);
  const absl::StatusOr<ModelSpec> spec =
      ReadGgufSpec(writer, {{"token_embd.weight", {96, 64}}, {"output.weight", {96, 64}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->tied_embeddings);
  EXPECT_EQ(Heads(spec->layers[1]).head_dim, 32);
  EXPECT_EQ(Heads(spec->layers[1]).qk_norm.kind, QkNormKind::kPerHead);
  EXPECT_FLOAT_EQ(Heads(spec->layers[1]).qk_norm.norm.eps, 1e-6f);
}

TEST(QwenGgufTest, ExpertsOfQwen3Moe) {
  GgufWriter writer = Keys("qwen3moe");
  writer.AddU32("qwen3moe.expert_count", 8);
  writer.AddU32("qwen3moe.expert_used_count", 3);
  writer.AddU32("qwen3moe.expert_feed_forward_length", 32);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, {{"token_embd.weight", {96, 64}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[1].ffn);
  EXPECT_EQ(moe.routing.num_experts, 8);
  EXPECT_EQ(moe.routing.num_experts_per_token, 3);
  EXPECT_EQ(moe.expert_intermediate_size, 32);
  EXPECT_TRUE(moe.routing.renormalize);
  ExpectEveryTensorNamed(*spec,
                         (*FindArchitecture(*ConfigJson::Parse(R"({"model_type": "qwen3_moe"})", "c")))->gguf_tensors);
  GgufWriter bad = Keys("qwen3moe");
  bad.AddU32("qwen3moe.expert_count", 8);
  ExpectError(ReadGgufSpec(bad, {{"token_embd.weight", {96, 64}}}), kNotFound, "qwen3moe.expert_used_count");
}

}  // namespace
}  // namespace sluice::testing
