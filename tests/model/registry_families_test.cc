// Published models of every family at their real sizes: how many parameters they have, and that config.json says the
// same in the spelling of transformers 5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/summary.h"
#include "tests/model/family_testing.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

struct Published {
  const char* config;
  int64_t num_parameters;  // counted in the class of transformers that the config makes
  int64_t kv_values_per_token;
};

void PrintTo(const Published& model, std::ostream* out) { *out << model.config; }

class PublishedTest : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedTest, HasItsParametersAndCache) {
  const ModelSpec spec = ReadConfig(GetParam().config);
  EXPECT_EQ(NumParameters(spec), GetParam().num_parameters);
  EXPECT_EQ(SummarizeModel(spec).kv_values_per_token, GetParam().kv_values_per_token);
}

TEST_P(PublishedTest, SaysTheSameAsTransformers5WritesIt) {
  ExpectSameSpec(ReadConfig(GetParam().config), ReadConfig(GetParam().config + std::string(".transformers5")));
}

TEST_P(PublishedTest, HasANameForEveryTensor) {
  const ModelSpec spec = ReadConfig(GetParam().config);
  for (const Architecture& row : Architectures()) {
    if (row.config_name == spec.architecture) ExpectEveryTensorNamed(spec, row.config_tensors);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, PublishedTest,
    ::testing::Values(
        Published{"gpt2-124m", 124439808, 12 * 2 * 768}, Published{"llama-2-7b", 6738415616, 32 * 2 * 4096},
        Published{"llama-2-13b", 13015864320, 40 * 2 * 5120}, Published{"llama-3.1-8b", 8030261248, 32 * 2 * 1024},
        Published{"llama-3.2-1b", 1235814400, 16 * 2 * 512}, Published{"smollm2-135m", 134515008, 30 * 2 * 192},
        Published{"mistral-7b-v0.1", 7241732096, 32 * 2 * 1024},
        Published{"mistral-nemo-12b", 12247782400, 40 * 2 * 1024},
        Published{"mixtral-8x7b", 46702792704, 32 * 2 * 1024}, Published{"qwen2.5-0.5b", 494032768, 24 * 2 * 128},
        Published{"qwen2.5-7b", 7615616512, 28 * 2 * 512}, Published{"qwen3-0.6b", 596049920, 28 * 2 * 1024},
        Published{"qwen3-8b", 8190735360, 36 * 2 * 1024}, Published{"qwen3-30b-a3b", 30532122624, 48 * 2 * 512},
        Published{"olmo2-7b", 7298617344, 32 * 2 * 4096}, Published{"smollm3-3b", 3075098624, 36 * 2 * 512},
        Published{"phi-3-mini-4k", 3821079552, 32 * 2 * 3072}));

// d_ff of about 8/3 d, rounded up to a multiple of 256: three matrices then cost what two of 4 d do.
TEST(TextbookTest, WidthsOfTheFirstLlamas) {
  for (const auto& [name, d_model, d_ff] :
       {std::tuple("llama-2-7b", 4096, 11008), std::tuple("llama-2-13b", 5120, 13824)}) {
    const ModelSpec spec = ReadConfig(name);
    EXPECT_EQ(spec.d_model, d_model);
    EXPECT_EQ(std::get<DenseFfn>(spec.layers[0].ffn).intermediate_size, d_ff);
    EXPECT_EQ((8 * d_model / 3 + 255) / 256 * 256, d_ff);
    EXPECT_THAT(FormatModelSummary(spec, 2, 0), HasSubstr("dense: width " + std::to_string(d_ff) + ", gated"));
  }
}

// A head of its own would be vocabulary times width more.
TEST(TextbookTest, WhatTiedEmbeddingsSave) {
  const ModelSpec tied = ReadConfig("llama-3.2-1b");
  const absl::StatusOr<ModelSpec> own = ReadChanged("llama-3.2-1b", {{"/tie_word_embeddings", false}});
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(NumParameters(*own) - NumParameters(tied), int64_t{128256} * 2048);
  EXPECT_THAT(FormatModelSummary(tied, 2, 0), HasSubstr("tied embeddings (save 262,668,288 parameters)"));
  EXPECT_THAT(FormatModelSummary(*own, 2, 0), ::testing::Not(HasSubstr("tied embeddings")));
}

TEST(TextbookTest, OneTokenReadsFewOfTheExperts) {
  // 2 of 8 in each of 32 layers, 8 of 128 in each of 48.
  EXPECT_EQ(SummarizeModel(ReadConfig("mixtral-8x7b")).num_active_parameters,
            46702792704 - 32 * 6 * int64_t{3 * 4096 * 14336});
  EXPECT_EQ(SummarizeModel(ReadConfig("qwen3-30b-a3b")).num_active_parameters,
            30532122624 - 48 * 120 * int64_t{3 * 2048 * 768});
}

}  // namespace
}  // namespace sluice::testing
