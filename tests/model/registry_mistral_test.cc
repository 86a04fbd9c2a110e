// Mistral and Mixtral: from config.json and GGUF keys to specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/architectures.h"
#include "tests/model/family_testing.h"
#include "tests/model/find_tensor_name.h"

namespace sluice::testing {
namespace {

using enum absl::StatusCode;

TEST(MistralConfigTest, TheWindowIsOfAllLayers) {
  const ModelSpec spec = ReadConfig("mistral-7b-v0.1");
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(layer.attention.mask.kind, MaskKind::kWindow);
    EXPECT_EQ(layer.attention.mask.size, 4096);
  }
  EXPECT_EQ(KvBytes(spec, 32768, 2), KvBytes(spec, 4096, 2));
}

TEST(MistralConfigTest, ANullWindowIsNoneAndAMissingOneTheDefault) {
  absl::StatusOr<ModelSpec> spec = ReadChanged("mistral-7b-v0.1", {{"/sliding_window", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.mask.kind, MaskKind::kFull);
  spec = ReadChanged("mistral-7b-v0.1", {{"/sliding_window", kRemoved},
                                         {"/num_key_value_heads", kRemoved},
                                         {"/max_position_embeddings", kRemoved},
                                         {"/rms_norm_eps", kRemoved}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers[0].attention.mask.size, 4096);
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).num_kv_heads, 8);
  EXPECT_EQ(spec->max_position, 131072);
  EXPECT_FLOAT_EQ(spec->final_norm.eps, 1e-6f);
  spec = ReadChanged("mistral-7b-v0.1", {{"/num_key_value_heads", nullptr}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(std::get<Gqa>(spec->layers[0].attention.kind).num_kv_heads, 32);
  ExpectError(ReadChanged("mistral-7b-v0.1", {{"/sliding_window", 0}}), kInvalidArgument, "key 'sliding_window' is 0");
}

TEST(MistralConfigTest, HeadsOfNemoAreNarrowerThanTheModelOverTheirNumber) {
  const ModelSpec spec = ReadConfig("mistral-nemo-12b");
  EXPECT_EQ(std::get<Gqa>(spec.layers[0].attention.kind).head_dim, 128);
  EXPECT_EQ(spec.d_model, 5120);
  EXPECT_EQ(spec.layers[0].attention.mask.kind, MaskKind::kFull);
  EXPECT_FLOAT_EQ(spec.rope_tables[0].inv_freq[1], float(std::pow(1e6, -2.0 / 128)));
}

TEST(MixtralConfigTest, FieldsOfTheSpec) {
  const ModelSpec spec = ReadConfig("mixtral-8x7b");
  const MoeFfn& moe = std::get<MoeFfn>(spec.layers[31].ffn);
  EXPECT_EQ(moe.routing.num_experts, 8);
  EXPECT_EQ(moe.routing.num_experts_per_token, 2);
  EXPECT_EQ(moe.routing.score, MoeScore::kSoftmaxAll);
  EXPECT_TRUE(moe.routing.renormalize);
  EXPECT_EQ(moe.routing.routed_scale, 1);
  EXPECT_EQ(moe.expert_intermediate_size, 14336);
  EXPECT_FALSE(moe.selection_bias || moe.router_bias || moe.expert_bias || moe.weight_on_input);
  EXPECT_EQ(spec.layers[0].attention.mask.kind, MaskKind::kFull);
  EXPECT_FLOAT_EQ(spec.final_norm.eps, 1e-5f);
}

TEST(MixtralConfigTest, MissingKeysTakeTheDefaultsOfTheClass) {
  nlohmann::json changes;
  for (const char* key : {"/num_local_experts", "/num_experts_per_tok", "/rms_norm_eps", "/rope_theta",
                          "/sliding_window", "/num_key_value_heads"}) {
    changes[key] = kRemoved;
  }
  const absl::StatusOr<ModelSpec> spec = ReadChanged("mixtral-8x7b", changes);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ExpectSameSpec(*spec, ReadConfig("mixtral-8x7b"));
  const absl::StatusOr<ModelSpec> window = ReadChanged("mixtral-8x7b", {{"/sliding_window", 4096}});
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(window->layers[0].attention.mask.size, 4096);
  ExpectError(ReadChanged("mixtral-8x7b", {{"/num_experts_per_tok", 9}}), kInvalidArgument,
              "num_experts_per_token is 9");
}

TEST(MixtralConfigTest, ExpertsAreNamedAsPublishedOrAsKeptSince) {
  const TensorNaming naming = MixtralFolderTensorNames();
  EXPECT_EQ(FindTensorName(naming, TensorRole::kExpertDown, 3),
            "model.layers.3.block_sparse_moe.experts.{expert}.w2.weight");
  EXPECT_EQ(ExpandTensorName("a.{layer}.b.{expert}.c", "", 3, 7), "a.3.b.7.c");
  int alternatives = 0;
  for (const TensorName& name : naming.names) alternatives += name.role == TensorRole::kExpertUp;
  EXPECT_EQ(alternatives, 2);
}

TEST(MixtralGgufTest, IsALlamaWithExperts) {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddU32("llama.context_length", 32768);
  writer.AddU32("llama.embedding_length", 64);
  writer.AddU32("llama.block_count", 2);
  writer.AddU32("llama.feed_forward_length", 96);
  writer.AddU32("llama.attention.head_count", 4);
  writer.AddU32("llama.attention.head_count_kv", 2);
  writer.AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddU32("llama.expert_count", 8);
  writer.AddU32("llama.expert_used_count", 2);
  const absl::StatusOr<ModelSpec> spec = ReadGgufSpec(writer, {{"token_embd.weight", {96, 64}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const MoeFfn& moe = std::get<MoeFfn>(spec->layers[0].ffn);
  EXPECT_EQ(moe.routing.num_experts, 8);
  EXPECT_TRUE(moe.routing.renormalize);
  EXPECT_EQ(moe.expert_intermediate_size, 96);
  EXPECT_EQ(spec->layers[0].attention.rope->layout, RopeLayout::kInterleaved);
  ExpectEveryTensorNamed(*spec, GgufTensorNames());
}

}  // namespace
}  // namespace sluice::testing
