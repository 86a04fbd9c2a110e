// Gemma 2 and 3: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

const Gqa& Heads(const LayerSpec& layer) { return std::get<Gqa>(layer.attention.kind); }

// 's' where a layer slides, 'f' where it sees everything.
std::string Pattern(const ModelSpec& spec) {
  std::string pattern;
  for (const LayerSpec& layer : spec.layers) pattern += layer.attention.mask.kind == MaskKind::kWindow ? 's' : 'f';
  return pattern;
}

TEST(Gemma2ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("gemma2-27b");
  EXPECT_EQ(NumParameters(spec), 27227128320);
  EXPECT_EQ(spec.vocab_size, 256000);
  EXPECT_EQ(spec.max_position, 8192);
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_FLOAT_EQ(spec.embedding_scale, std::sqrt(4608.0f));
  EXPECT_EQ(spec.final_softcap, 30.0f);
  EXPECT_EQ(spec.final_norm.weight_offset, 1);
  ASSERT_EQ(spec.layers.size(), 46u);
  EXPECT_EQ(Pattern(spec).substr(0, 6), "sfsfsf");
  for (const LayerSpec& layer : spec.layers) {
    for (const auto& norm : {layer.pre_attn, layer.post_attn, layer.pre_ffn, layer.post_ffn}) {
      ASSERT_TRUE(norm.has_value());
      EXPECT_EQ(norm->weight_offset, 1);
      EXPECT_FLOAT_EQ(norm->eps, 1e-6f);
    }
    EXPECT_FLOAT_EQ(layer.attention.scale, 1 / 12.0f);  // not that of its heads of 128
    EXPECT_EQ(layer.attention.softcap, 50.0f);
    EXPECT_EQ(Heads(layer).head_dim, 128);
    EXPECT_EQ(Heads(layer).num_kv_heads, 16);
    EXPECT_EQ(Heads(layer).qk_norm.kind, QkNormKind::kNone);
    EXPECT_EQ(std::get<DenseFfn>(layer.ffn).activation.kind, ActivationKind::kGeluTanh);
    EXPECT_EQ(layer.attention.rope->layout, RopeLayout::kHalfSplit);
  }
  EXPECT_EQ(spec.layers[44].attention.mask.size, 4096);
  // 23 layers keep everything, 23 their window.
  EXPECT_EQ(KvBytes(spec, 8192, 2), (23 * 8192 + 23 * 4096) * int64_t{2 * 16 * 128 * 2});
}

TEST(Gemma2ConfigTest, WrittenByTransformers5ItSaysTheSame) {
  ExpectSameSpec(ReadConfig("gemma2-27b"), ReadConfig("gemma2-27b.transformers5"));
}

TEST(Gemma2ConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  nlohmann::json changes;
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "head_dim", "num_key_value_heads", "hidden_activation", "max_position_embeddings",
                          "rms_norm_eps", "rope_theta", "attention_bias", "query_pre_attn_scalar", "sliding_window",
                          "final_logit_softcapping", "attn_logit_softcapping"}) {
    changes[std::string("/") + key] = kRemoved;
  }
  const absl::StatusOr<ModelSpec> spec = ReadChanged("gemma2-27b", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->vocab_size, 256000);
  EXPECT_EQ(spec->d_model, 2304);
  EXPECT_EQ(Pattern(*spec), "sfsfsfsfsfsfsfsfsfsfsfsfsf");
  EXPECT_EQ(spec->layers[0].attention.mask.size, 4096);
  EXPECT_EQ(Heads(spec->layers[0]).num_heads, 8);
  EXPECT_EQ(Heads(spec->layers[0]).head_dim, 256);
  EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, 1 / 16.0f);
  EXPECT_EQ(spec->layers[0].attention.softcap, 50.0f);
  EXPECT_EQ(spec->final_softcap, 30.0f);
  EXPECT_EQ(NumParameters(*spec), 2614341888);  // the 2B model
}

TEST(Gemma2ConfigTest, NullTurnsACapOff) {
  const absl::StatusOr<ModelSpec> spec =
      ReadChanged("gemma2-27b", {{"/attn_logit_softcapping", nullptr}, {"/final_logit_softcapping", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->layers[3].attention.softcap.has_value());
  EXPECT_FALSE(spec->final_softcap.has_value());
}

TEST(Gemma2ConfigTest, ItReadsHiddenActivationAndNotHiddenAct) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("gemma2-27b", {{"/hidden_act", "gelu"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).activation.kind, ActivationKind::kGeluTanh);
  spec = ReadChanged("gemma2-27b", {{"/hidden_activation", "gelu"}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).activation.kind, ActivationKind::kGeluErf);
}

TEST(Gemma2ConfigTest, WhatIsOddIsAnErrorNamingTheKey) {
  const auto expect = [](const nlohmann::json& changes, const std::string& part, absl::StatusCode code) {
    ExpectError(ReadChanged("gemma2-27b", changes), code, part);
  };
  expect({{"/sliding_window", nullptr}}, "'sliding_window'", kInvalidArgument);
  expect({{"/sliding_window", 0}}, "'sliding_window' is 0", kInvalidArgument);
  expect({{"/query_pre_attn_scalar", 0}}, "'query_pre_attn_scalar' is 0", kInvalidArgument);
  expect({{"/head_dim", 127}}, "127", kInvalidArgument);
  expect({{"/final_logit_softcapping", -1}}, "final_softcap is -1", kInvalidArgument);
  expect({{"/attn_logit_softcapping", 0}}, "softcap is 0", kInvalidArgument);
  expect({{"/layer_types", {"full_attention"}}}, "'layer_types' has 1", kInvalidArgument);
  expect({{"/num_hidden_layers", 1}, {"/layer_types", {"chunked_attention"}}}, "'chunked_attention'", kInvalidArgument);
  expect({{"/rope_theta", -5}}, "'rope_theta' is -5", kInvalidArgument);
  expect({{"/use_bidirectional_attention", true}}, "'use_bidirectional_attention' is true", kUnimplemented);
  expect({{"/hidden_activation", "relu"}}, "'relu'", kUnimplemented);
}

TEST(Gemma3ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("gemma3-27b");
  EXPECT_EQ(NumParameters(spec), 27009346304);
  EXPECT_EQ(spec.vocab_size, 262208);
  EXPECT_EQ(spec.max_position, 131072);
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_FALSE(spec.final_softcap.has_value());
  EXPECT_FLOAT_EQ(spec.embedding_scale, std::sqrt(5376.0f));
  ASSERT_EQ(spec.layers.size(), 62u);
  EXPECT_EQ(Pattern(spec).substr(0, 14), "sssssfsssssfss");
  EXPECT_EQ(Pattern(spec).substr(54), "sssssfss");
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_FLOAT_EQ(layer.attention.scale, float(1 / std::sqrt(168.0)));
    EXPECT_FALSE(layer.attention.softcap.has_value());
    const QkNormSpec& qk_norm = Heads(layer).qk_norm;
    EXPECT_EQ(qk_norm.kind, QkNormKind::kPerHead);
    EXPECT_FALSE(qk_norm.after_rope);
    EXPECT_EQ(qk_norm.norm.weight_offset, 1);
  }
  EXPECT_EQ(spec.layers[0].attention.mask.size, 1024);
}

TEST(Gemma3ConfigTest, WindowAndFullLayersRotateByTheirOwnTables) {
  const ModelSpec spec = ReadConfig("gemma3-27b");
  ASSERT_EQ(spec.rope_tables.size(), 2u);
  const RopeTable& full = spec.rope_tables[spec.layers[5].attention.rope->table];
  const RopeTable& sliding = spec.rope_tables[spec.layers[0].attention.rope->table];
  // The scaling by 8 is for full layers only.
  EXPECT_FLOAT_EQ(full.inv_freq[0], 1 / 8.0f);
  EXPECT_FLOAT_EQ(full.inv_freq[1], float(std::pow(1e6, -2.0 / 128) / 8));
  EXPECT_FLOAT_EQ(sliding.inv_freq[0], 1);
  EXPECT_FLOAT_EQ(sliding.inv_freq[1], float(std::pow(1e4, -2.0 / 128)));
  for (const LayerSpec& layer : spec.layers) {
    const bool slides = layer.attention.mask.kind == MaskKind::kWindow;
    EXPECT_EQ(layer.attention.rope->table, spec.layers[slides ? 0 : 5].attention.rope->table);
  }
}

TEST(Gemma3ConfigTest, OtherSizes) {
  EXPECT_EQ(NumParameters(ReadConfig("gemma3-4b")), 3880263168);
  const ModelSpec spec = ReadConfig("gemma3-1b");
  EXPECT_EQ(NumParameters(spec), 999885952);
  EXPECT_EQ(spec.layers[0].attention.mask.size, 512);
  EXPECT_FLOAT_EQ(spec.rope_tables[spec.layers[5].attention.rope->table].inv_freq[0], 1);
}

TEST(Gemma3ConfigTest, WrittenByTransformers5ItSaysTheSame) {
  ExpectSameSpec(ReadConfig("gemma3-27b"), ReadConfig("gemma3-27b.transformers5"));
  ExpectSameSpec(ReadConfig("gemma3-1b"), ReadConfig("gemma3-1b.transformers5"));
}

TEST(Gemma3ConfigTest, OtherPatternsAndBases) {
  absl::StatusOr<ModelSpec> spec =
      ReadChanged("gemma3-1b", {{"/sliding_window_pattern", 3}, {"/rope_local_base_freq", 100}, {"/rope_theta", 5000}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Pattern(*spec).substr(0, 6), "ssfssf");
  EXPECT_FLOAT_EQ(spec->rope_tables[spec->layers[0].attention.rope->table].inv_freq[1],
                  float(std::pow(100.0, -2.0 / 256)));
  EXPECT_FLOAT_EQ(spec->rope_tables[spec->layers[2].attention.rope->table].inv_freq[1],
                  float(std::pow(5000.0, -2.0 / 256)));
  // A base that one of the nested objects leaves out.
  spec = ReadChanged("gemma3-1b.transformers5", {{"/rope_parameters/sliding_attention/rope_theta", kRemoved},
                                                 {"/rope_parameters/full_attention", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("gemma3-1b"));
}

TEST(Gemma3ConfigTest, AnOldStyleTypeMeansNothing) {
  const absl::StatusOr<ModelSpec> spec =
      ReadChanged("gemma3-1b", {{"/rope_scaling", {{"type", "linear"}, {"factor", 8}}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("gemma3-1b"));
}

TEST(Gemma3ConfigTest, TheOutputIsCappedInTheTextModelOnly) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("gemma3-1b", {{"/final_logit_softcapping", 30}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->final_softcap, 30.0f);
  spec = ReadChanged("gemma3-4b", {{"/text_config/final_logit_softcapping", 30}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->final_softcap.has_value());
}

TEST(Gemma3ConfigTest, TheWrapperSaysWhetherTheOutputIsTied) {
  const absl::StatusOr<ModelSpec> spec =
      ReadChanged("gemma3-4b", {{"/tie_word_embeddings", false}, {"/text_config/tie_word_embeddings", true}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->tied_embeddings);
}

TEST(Gemma3ConfigTest, WhatIsOddIsAnErrorNamingTheKey) {
  ExpectError(ReadChanged("gemma3-4b", {{"/text_config", kRemoved}}), kInvalidArgument, "'text_config' is missing");
  ExpectError(ReadChanged("gemma3-4b", {{"/text_config/hidden_size", "wide"}}), kInvalidArgument,
              "'text_config.hidden_size' is \"wide\"");
  ExpectError(ReadChanged("gemma3-1b", {{"/sliding_window_pattern", 0}}), kInvalidArgument,
              "'sliding_window_pattern' is 0");
  ExpectError(ReadChanged("gemma3-1b", {{"/rope_local_base_freq", 0}}), kInvalidArgument, "'rope_local_base_freq'");
  ExpectError(ReadChanged("gemma3-1b", {{"/rope_theta", -1}}), kInvalidArgument, "'rope_theta'");
  ExpectError(ReadChanged("gemma3-1b", {{"/rope_scaling", {{"rope_type", "spiral"}}}}), kInvalidArgument, "'spiral'");
  ExpectError(ReadChanged("gemma3-1b.transformers5", {{"/rope_parameters/sliding_attention/rope_theta", 1}}),
              kInvalidArgument, "'rope_theta' is 1");
}

TEST(GemmaNamesTest, EveryTensorHasAName) {
  for (const char* name : {"gemma2-27b", "gemma3-27b", "gemma3-1b"}) {
    const ModelSpec spec = ReadConfig(name);
    ExpectEveryTensorNamed(spec, GemmaFolderTensorNames());
    ExpectEveryTensorNamed(spec, GemmaGgufTensorNames());
  }
  const TensorNaming folder = GemmaFolderTensorNames();
  EXPECT_EQ(FindTensorName(folder, TensorRole::kPostAttnNorm, 3), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(FindTensorName(folder, TensorRole::kPreFfnNorm, 3), "model.layers.3.pre_feedforward_layernorm.weight");
  EXPECT_TRUE(IsIgnoredTensor(folder, "vision_tower.vision_model.embeddings.position_embedding.weight", 26));
  EXPECT_TRUE(IsIgnoredTensor(folder, "model.multi_modal_projector.mm_soft_emb_norm.weight", 26));
  EXPECT_FALSE(IsIgnoredTensor(folder, "model.layers.3.adapter.weight", 26));
}

// What the converter writes, of a small model.
GgufWriter Keys(const std::string& architecture, uint32_t num_layers) {
  GgufWriter writer;
  const std::string at = architecture + ".";
  writer.AddString("general.architecture", architecture);
  writer.AddU32(at + "context_length", 8192);
  writer.AddU32(at + "embedding_length", 96);
  writer.AddU32(at + "block_count", num_layers);
  writer.AddU32(at + "feed_forward_length", 160);
  writer.AddU32(at + "attention.head_count", 4);
  writer.AddU32(at + "attention.head_count_kv", 2);
  writer.AddU32(at + "attention.key_length", 16);
  writer.AddU32(at + "attention.value_length", 16);
  writer.AddF32(at + "attention.layer_norm_rms_epsilon", 1e-6f);
  return writer;
}
const std::vector<TensorOf> kEmbedding = {{"token_embd.weight", {64, 96}}};

TEST(Gemma2GgufTest, FieldsOfTheSpec) {
  GgufWriter writer = Keys("gemma2", 4);
  absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, kEmbedding);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Pattern(*spec), "sfsf");
  EXPECT_EQ(spec->layers[0].attention.mask.size, 4096);
  EXPECT_EQ(spec->layers[1].attention.softcap, 50.0f);
  EXPECT_EQ(spec->final_softcap, 30.0f);
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_FLOAT_EQ(spec->embedding_scale, std::sqrt(96.0f));
  EXPECT_FLOAT_EQ(spec->layers[1].attention.scale, 0.25f);
  EXPECT_EQ(spec->layers[1].attention.rope->layout, RopeLayout::kHalfSplit);
  EXPECT_FLOAT_EQ(spec->rope_tables[0].inv_freq[1], float(std::pow(1e4, -2.0 / 16)));
  // The file's norms hold 1 + w.
  EXPECT_EQ(spec->layers[1].post_ffn->weight_offset, 0);
  EXPECT_EQ(spec->final_norm.weight_offset, 0);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[1].ffn).activation.kind, ActivationKind::kGeluTanh);

  writer.AddU32("gemma2.attention.sliding_window", 16);
  writer.AddF32("gemma2.attn_logit_softcapping", 5);
  writer.AddF32("gemma2.final_logit_softcapping", 3);
  spec = ReadGgufSpec(writer, kEmbedding);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[2].attention.mask.size, 16);
  EXPECT_EQ(spec->layers[1].attention.softcap, 5.0f);
  EXPECT_EQ(spec->final_softcap, 3.0f);
}

TEST(Gemma2GgufTest, TheModelOf46LayersHasTheScaleOfItsWidth) {
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(Keys("gemma2", 46), kEmbedding);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, float(1 / std::sqrt(24.0)));
}

TEST(Gemma2GgufTest, OddValuesAreErrors) {
  GgufWriter writer = Keys("gemma2", 2);
  writer.AddF32("gemma2.attn_logit_softcapping", -1);
  ExpectError(ReadGgufSpec(writer, kEmbedding), kInvalidArgument, "gemma2.attn_logit_softcapping");
  writer = Keys("gemma2", 2);
  writer.AddU32("gemma2.attention.sliding_window", 0);
  ExpectError(ReadGgufSpec(writer, kEmbedding), kInvalidArgument, "gemma2.attention.sliding_window");
  writer = Keys("gemma2", 2);
  writer.AddU32("gemma2.attention.sliding_window_pattern", 0);
  ExpectError(ReadGgufSpec(writer, kEmbedding), kInvalidArgument, "gemma2.attention.sliding_window_pattern");
}

TEST(Gemma3GgufTest, FieldsOfTheSpec) {
  GgufWriter writer = Keys("gemma3", 7);
  writer.AddU32("gemma3.attention.sliding_window", 16);
  writer.AddF32("gemma3.rope.freq_base", 1e6f);
  writer.AddString("gemma3.rope.scaling.type", "linear");
  writer.AddF32("gemma3.rope.scaling.factor", 8);
  absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, kEmbedding);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Pattern(*spec), "sssssfs");
  EXPECT_EQ(Heads(spec->layers[0]).qk_norm.kind, QkNormKind::kPerHead);
  EXPECT_EQ(Heads(spec->layers[0]).qk_norm.norm.weight_offset, 0);
  EXPECT_FALSE(spec->layers[0].attention.softcap.has_value());
  EXPECT_FALSE(spec->final_softcap.has_value());
  EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, 0.25f);
  EXPECT_FLOAT_EQ(spec->rope_tables[spec->layers[5].attention.rope->table].inv_freq[1],
                  float(std::pow(1e6, -2.0 / 16) / 8));
  EXPECT_FLOAT_EQ(spec->rope_tables[spec->layers[6].attention.rope->table].inv_freq[1],
                  float(std::pow(1e4, -2.0 / 16)));

  writer.AddF32("gemma3.rope.freq_base_swa", 100);
  writer.AddF32("gemma3.final_logit_softcapping", 30);
  spec = ReadGgufSpec(writer, kEmbedding);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->rope_tables[spec->layers[6].attention.rope->table].inv_freq[1],
                  float(std::pow(100.0, -2.0 / 16)));
  EXPECT_EQ(spec->final_softcap, 30.0f);
}

TEST(Gemma3GgufTest, WithoutAWindowAllLayersAreFull) {
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(Keys("gemma3", 7), kEmbedding);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(Pattern(*spec), "fffffff");
}

TEST(Gemma3GgufTest, TheModelOf62LayersHasTheScaleOfItsWidth) {
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(Keys("gemma3", 62), kEmbedding);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, float(1 / std::sqrt(24.0)));
}

}  // namespace
}  // namespace sluice::testing
