// GPT-2: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

TEST(Gpt2ConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("gpt2-124m");
  EXPECT_EQ(spec.vocab_size, 50257);
  EXPECT_EQ(spec.max_position, 1024);
  EXPECT_EQ(spec.position_embedding, PositionEmbedding::kLearned);
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_TRUE(spec.rope_tables.empty());
  EXPECT_EQ(spec.final_norm.kind, NormKind::kLayer);
  ASSERT_EQ(spec.layers.size(), 12u);
  const LayerSpec& layer = spec.layers[11];
  EXPECT_EQ(layer.pre_attn->kind, NormKind::kLayer);
  EXPECT_FLOAT_EQ(layer.pre_ffn->eps, 1e-5f);
  EXPECT_FALSE(layer.post_attn.has_value());
  EXPECT_FALSE(layer.attention.rope.has_value());
  EXPECT_FLOAT_EQ(layer.attention.scale, 0.125f);
  EXPECT_TRUE(layer.attention.q_bias && layer.attention.k_bias && layer.attention.v_bias && layer.attention.o_bias);
  const Gqa& gqa = std::get<Gqa>(layer.attention.kind);
  EXPECT_EQ(gqa.num_heads, 12);
  EXPECT_EQ(gqa.num_kv_heads, 12);
  EXPECT_EQ(gqa.head_dim, 64);
  const DenseFfn& ffn = std::get<DenseFfn>(layer.ffn);
  EXPECT_EQ(ffn.intermediate_size, 3072);
  EXPECT_FALSE(ffn.gated);
  EXPECT_TRUE(ffn.bias);
  EXPECT_EQ(ffn.activation.kind, ActivationKind::kGeluTanh);
}

TEST(Gpt2ConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  nlohmann::json changes;
  for (const char* key : {"/vocab_size", "/n_positions", "/layer_norm_epsilon", "/activation_function", "/n_ctx"}) {
    changes[key] = kRemoved;
  }
  const absl::StatusOr<ModelSpec> spec = ReadChanged("gpt2-124m", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("gpt2-124m"));
}

TEST(Gpt2ConfigTest, ScaleWidthAndActivationCanDiffer) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("gpt2-124m", {{"/scale_attn_by_inverse_layer_idx", true},
                                                             {"/n_inner", 100},
                                                             {"/activation_function", "gelu"},
                                                             {"/tie_word_embeddings", false}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, 0.125f);
  EXPECT_FLOAT_EQ(spec->layers[3].attention.scale, 0.125f / 4);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).intermediate_size, 100);
  EXPECT_EQ(std::get<DenseFfn>(spec->layers[0].ffn).activation.kind, ActivationKind::kGeluErf);
  EXPECT_FALSE(spec->tied_embeddings);
  spec = ReadChanged("gpt2-124m", {{"/scale_attn_weights", false}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.scale, 1);
}

TEST(Gpt2ConfigTest, WhatIsMissingOrOddIsAnErrorNamingTheKey) {
  for (const char* key : {"n_embd", "n_layer", "n_head"}) {
    ExpectError(ReadChanged("gpt2-124m", {{"/" + std::string(key), kRemoved}}), kInvalidArgument,
                "key '" + std::string(key) + "' is missing");
  }
  ExpectError(ReadChanged("gpt2-124m", {{"/n_head", 7}}), kInvalidArgument, "key 'n_embd' is 768, expected a multiple");
  ExpectError(ReadChanged("gpt2-124m", {{"/n_embd", 2000000000}}), kInvalidArgument, "key 'n_embd' is 2000000000");
  ExpectError(ReadChanged("gpt2-124m", {{"/activation_function", "relu6"}}), kUnimplemented,
              "key 'activation_function' is 'relu6'");
  ExpectError(ReadChanged("gpt2-124m", {{"/layer_norm_epsilon", -1}}), kInvalidArgument, "eps is -1");
}

TEST(Gpt2NamesTest, MaskBuffersAreIgnoredAndBiasesAreNot) {
  const TensorNaming naming = Gpt2FolderTensorNames();
  EXPECT_TRUE(IsIgnoredTensor(naming, "h.0.attn.bias", 12));
  EXPECT_TRUE(IsIgnoredTensor(naming, "transformer.h.11.attn.masked_bias", 12));
  EXPECT_FALSE(IsIgnoredTensor(naming, "transformer.h.11.attn.c_attn.bias", 12));
  EXPECT_EQ(FindTensorName(naming, TensorRole::kV, 2), "transformer.h.2.attn.c_attn.weight");
  EXPECT_EQ(naming.prefixes[1], "");
}

TEST(Gpt2GgufTest, SaysWhatTheConfigSays) {
  GgufWriter writer;
  writer.AddString("general.architecture", "gpt2");
  writer.AddU32("gpt2.context_length", 1024);
  writer.AddU32("gpt2.embedding_length", 768);
  writer.AddU32("gpt2.block_count", 12);
  writer.AddU32("gpt2.feed_forward_length", 3072);
  writer.AddU32("gpt2.attention.head_count", 12);
  writer.AddF32("gpt2.attention.layer_norm_epsilon", 1e-5f);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, {{"token_embd.weight", {50257, 768}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("gpt2-124m"));
  ExpectEveryTensorNamed(*spec, Gpt2GgufTensorNames());
}

}  // namespace
}  // namespace sluice::testing
