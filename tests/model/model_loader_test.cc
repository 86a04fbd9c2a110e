// GGUF files of the llama architecture: what their keys and tensors become, and what is refused.
#include "engine/model/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/model/gguf_tokenizer.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/runtime/load_runner.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_gguf.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

class ModelLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("sluice_loader_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const ToyGguf& toy) {
    const std::string path = (folder_ / "toy.gguf").string();
    std::ofstream(path, std::ios::binary) << ToyGgufBytes(toy);
    return path;
  }
  LoadedModel Load(const ToyGguf& toy) {
    absl::StatusOr<LoadedModel> model = LoadModel(Write(toy));
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  // Opens the file and loads its weights.
  absl::Status LoadAll(const ToyGguf& toy) {
    absl::StatusOr<LoadedModel> model = LoadModel(Write(toy));
    if (!model.ok()) return model.status();
    const std::unique_ptr<Ops> ops = NewReferenceOps();
    return LoadWeights(*model, ops.get()).status();
  }
  void ExpectRefused(const ToyGguf& toy, absl::StatusCode code, const std::string& part) {
    const absl::Status status = LoadAll(toy);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("toy.gguf: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  std::filesystem::path folder_;
};

TEST_F(ModelLoaderTest, KeysBecomeTheSpec) {
  const LoadedModel model = Load({});
  const ModelSpec& spec = model.spec;
  EXPECT_EQ(spec.vocab_size, 96);
  EXPECT_EQ(spec.d_model, 64);
  EXPECT_EQ(spec.max_position, 128);
  EXPECT_TRUE(spec.tied_embeddings);
  ASSERT_EQ(spec.layers.size(), 2u);
  const LayerSpec& layer = spec.layers[1];
  const Gqa& gqa = std::get<Gqa>(layer.attention.kind);
  EXPECT_EQ(gqa.num_heads, 4);
  EXPECT_EQ(gqa.num_kv_heads, 2);
  EXPECT_EQ(gqa.head_dim, 16);
  EXPECT_EQ(gqa.value_head_dim, 16);
  EXPECT_EQ(layer.attention.rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(layer.attention.rope->num_rotary, 16);
  EXPECT_FLOAT_EQ(layer.attention.scale, 0.25f);
  EXPECT_EQ(layer.attention.mask.kind, MaskKind::kFull);
  EXPECT_FLOAT_EQ(layer.pre_attn->eps, 1e-5f);
  EXPECT_FLOAT_EQ(layer.pre_ffn->eps, 1e-5f);
  EXPECT_EQ(std::get<DenseFfn>(layer.ffn).intermediate_size, 96);
  EXPECT_EQ(model.weight_type, "F32");
  EXPECT_EQ(model.num_parameters, NumParameters(spec));
  EXPECT_EQ(model.file_bytes, model.num_parameters * 4);
}

TEST_F(ModelLoaderTest, TextComesFromTheFileToo) {
  const LoadedModel model = Load({});
  ASSERT_NE(model.tokenizer, nullptr);
  EXPECT_EQ(model.tokenizer->vocab_size(), 96);
  EXPECT_EQ(model.tokenizer->bos_id(), 1);
  EXPECT_EQ(model.chat_template, "{{ messages[0].content }}");
  EXPECT_EQ(model.eos_token_ids, (std::vector<int32_t>{0, 2}));  // the key's, and <|endoftext|> by its text
}

TEST_F(ModelLoaderTest, AFileWithoutVocabularyServesTokenIds) {
  const LoadedModel model = Load({.tokenizer = false});
  EXPECT_EQ(model.tokenizer, nullptr);
  EXPECT_TRUE(model.eos_token_ids.empty());
  EXPECT_TRUE(Load({.without_keys = {"tokenizer.ggml.model"},
                    .add = [](GgufWriter* w) { w->AddString("tokenizer.ggml.model", "none"); }})
                  .tokenizer == nullptr);
}

TEST_F(ModelLoaderTest, SentencePieceVocabulariesHaveScoresAndStartWithBos) {
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"});
  writer.AddFloats("tokenizer.ggml.scores", {0, 0, 0, -1});
  writer.AddI32s("tokenizer.ggml.token_type", {2, 3, 3, 1});
  writer.AddU32("tokenizer.ggml.bos_token_id", 1);
  writer.AddU32("tokenizer.ggml.eos_token_id", 2);
  writer.AddU32("tokenizer.ggml.unknown_token_id", 0);
  writer.AddU32("tokenizer.ggml.eot_token_id", 3);
  writer.AddBool("tokenizer.ggml.add_space_prefix", false);
  const std::string bytes = writer.Bytes();
  const absl::StatusOr<Gguf> gguf =
      Gguf::Parse(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), "vocabulary.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const absl::StatusOr<std::optional<TokenizerSpec>> spec = ReadTokenizerSpec(*gguf);
  ASSERT_TRUE(spec.ok() && spec->has_value()) << spec.status();
  const TokenizerSpec& s = **spec;
  EXPECT_EQ(s.model, TokenizerModel::kSentencePieceBpe);
  EXPECT_EQ(s.tokens.size(), 4u);
  EXPECT_EQ(s.scores, (std::vector<float>{0, 0, 0, -1}));
  EXPECT_EQ(s.types[1], TokenType::kControl);
  EXPECT_TRUE(s.add_bos);
  EXPECT_FALSE(s.add_eos);
  EXPECT_FALSE(s.add_space_prefix);
  EXPECT_EQ(s.bos_id, 1);
  EXPECT_EQ(s.eos_id, 2);
  EXPECT_EQ(s.unk_id, 0);
  EXPECT_EQ(s.eot_id, 3);
  EXPECT_FALSE(s.pad_id.has_value());
}

TEST_F(ModelLoaderTest, AnOutputMatrixMakesTheModelUntied) {
  EXPECT_FALSE(Load({.tied = false}).spec.tied_embeddings);
  EXPECT_TRUE(LoadAll({.tied = false}).ok());
}

TEST_F(ModelLoaderTest, OptionalKeysHaveTheFormatsDefaults) {
  const LoadedModel model =
      Load({.num_kv_heads = 4, .without_keys = {"llama.attention.head_count_kv", "llama.rope.freq_base"}});
  EXPECT_EQ(std::get<Gqa>(model.spec.layers[0].attention.kind).num_kv_heads, 4);
  EXPECT_FLOAT_EQ(model.spec.rope_tables[0].inv_freq[1], float(std::pow(1e4, -2.0 / 16)));
}

TEST_F(ModelLoaderTest, HeadsMayBeWiderThanTheModel) {
  const ToyGguf toy{.head_dim = 32};
  const LoadedModel model = Load(toy);
  EXPECT_EQ(std::get<Gqa>(model.spec.layers[0].attention.kind).head_dim, 32);
  EXPECT_TRUE(LoadAll(toy).ok()) << LoadAll(toy);
}

TEST_F(ModelLoaderTest, ListsPerLayerAreTakenWhenTheyAreEqual) {
  const auto with = [](std::vector<uint32_t> heads) {
    return ToyGguf{.without_keys = {"llama.attention.head_count_kv"},
                   .add = [heads](GgufWriter* w) { w->AddU32s("llama.attention.head_count_kv", heads); }};
  };
  EXPECT_EQ(std::get<Gqa>(Load(with({2, 2})).spec.layers[1].attention.kind).num_kv_heads, 2);
  ExpectRefused(with({2, 4}), kUnimplemented, "'llama.attention.head_count_kv' differs between layers (2 and 4)");
  ExpectRefused(with({2}), kInvalidArgument, "llama.attention.head_count_kv");
}

TEST_F(ModelLoaderTest, RopeScalings) {
  const auto table = [&](std::function<void(GgufWriter*)> add) {
    return Load({.add = std::move(add)}).spec.rope_tables[0];
  };
  const RopeTable plain = table(nullptr);
  EXPECT_EQ(table([](GgufWriter* w) { w->AddString("llama.rope.scaling.type", "none"); }).inv_freq, plain.inv_freq);
  const RopeTable linear = table([](GgufWriter* w) {
    w->AddString("llama.rope.scaling.type", "linear");
    w->AddF32("llama.rope.scaling.factor", 4);
  });
  const RopeTable old = table([](GgufWriter* w) { w->AddF32("llama.rope.scale_linear", 4); });
  const RopeTable yarn = table([](GgufWriter* w) {
    w->AddString("llama.rope.scaling.type", "yarn");
    w->AddF32("llama.rope.scaling.factor", 4);
    w->AddU32("llama.rope.scaling.original_context_length", 32);
  });
  const RopeTable divided = table([](GgufWriter* w) {
    w->AddF32Tensor("rope_freqs.weight", {8}, {1, 1, 2, 2, 4, 4, 8, 8});
  });
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(linear.inv_freq[i], plain.inv_freq[i] / 4);
    EXPECT_FLOAT_EQ(old.inv_freq[i], plain.inv_freq[i] / 4);
    EXPECT_FLOAT_EQ(divided.inv_freq[i], plain.inv_freq[i] / float(1 << (i / 2)));
  }
  EXPECT_FLOAT_EQ(yarn.inv_freq[0], plain.inv_freq[0]);
  EXPECT_FLOAT_EQ(yarn.inv_freq[7], plain.inv_freq[7] / 4);
  EXPECT_FLOAT_EQ(yarn.attention_factor, float(0.1 * std::log(4.0) + 1));

  ExpectRefused({.add = [](GgufWriter* w) { w->AddString("llama.rope.scaling.type", "spiral"); }}, kInvalidArgument,
                "key 'llama.rope.scaling.type' is 'spiral'");
  ExpectRefused({.add = [](GgufWriter* w) { w->AddString("llama.rope.scaling.type", "longrope"); }}, kInvalidArgument,
                "tensor 'rope_factors_short.weight' is missing");
  ExpectRefused({.add =
                     [](GgufWriter* w) {
                       w->AddF32Tensor("rope_freqs.weight", {4}, {1, 1, 1, 1});
                     }},
                kInvalidArgument, "'rope_freqs.weight' has 4 elements of type F32, expected 8");
  ExpectRefused({.add =
                     [](GgufWriter* w) {
                       w->AddF32Tensor("rope_freqs.weight", {8}, {1, 1, 1, 1, 0, 1, 1, 1});
                     }},
                kInvalidArgument, "'rope_freqs.weight' holds 0 at 4");
}

TEST_F(ModelLoaderTest, AFileWithDivisorsLoads) {
  EXPECT_TRUE(LoadAll({.add = [](GgufWriter* w) {
                w->AddF32Tensor("rope_freqs.weight", {8}, std::vector<float>(8, 2));
              }}).ok());
}

TEST_F(ModelLoaderTest, PartialRotationAndWindowsAreHonoured) {
  const LoadedModel model = Load({.add = [](GgufWriter* w) {
    w->AddU32("llama.rope.dimension_count", 8);
    w->AddU32("llama.attention.sliding_window", 32);
  }});
  EXPECT_EQ(model.spec.layers[0].attention.rope->num_rotary, 8);
  EXPECT_EQ(model.spec.rope_tables[0].inv_freq.size(), 4u);
  EXPECT_EQ(model.spec.layers[0].attention.mask.kind, MaskKind::kWindow);
  EXPECT_EQ(model.spec.layers[0].attention.mask.size, 32);
}

TEST_F(ModelLoaderTest, BiasesAreFoundByTheirTensors) {
  const auto biases = [](int layers) {
    return [layers](GgufWriter* w) {
      for (int layer = 0; layer < layers; ++layer) {
        const std::string at = "blk." + std::to_string(layer) + ".";
        w->AddF32Tensor(at + "attn_q.bias", {64}, std::vector<float>(64, 0.1f));
        w->AddF32Tensor(at + "attn_k.bias", {32}, std::vector<float>(32, 0.1f));
      }
    };
  };
  const LoadedModel model = Load({.add = biases(2)});
  EXPECT_TRUE(model.spec.layers[1].attention.q_bias && model.spec.layers[1].attention.k_bias);
  EXPECT_FALSE(model.spec.layers[1].attention.v_bias || model.spec.layers[1].attention.o_bias);
  EXPECT_TRUE(LoadAll({.add = biases(2)}).ok()) << LoadAll({.add = biases(2)});
  ExpectRefused({.add = biases(1)}, kInvalidArgument, "tensor 'blk.1.attn_q.bias' is missing; expected shape [64]");
}

TEST_F(ModelLoaderTest, MissingOddAndContradictoryKeysAreErrorsThatNameThem) {
  for (const char* key :
       {"llama.context_length", "llama.embedding_length", "llama.block_count", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    ExpectRefused({.without_keys = {key}}, kNotFound, key);
    ExpectRefused({.without_keys = {key}, .add = [key](GgufWriter* w) { w->AddString(key, "many"); }}, kInvalidArgument,
                  key);
  }
  const auto replaced = [](const char* key, uint32_t value) {
    return ToyGguf{.without_keys = {key}, .add = [=](GgufWriter* w) { w->AddU32(key, value); }};
  };
  ExpectRefused(replaced("llama.block_count", 0), kInvalidArgument, "llama.block_count");
  ExpectRefused(replaced("llama.attention.head_count", 0), kInvalidArgument, "llama.attention.head_count");
  ExpectRefused(replaced("llama.attention.head_count", 5), kInvalidArgument, "expected a multiple of");
  ExpectRefused(replaced("llama.attention.head_count_kv", 3), kInvalidArgument, "num_kv_heads 3");
  ExpectRefused(replaced("llama.rope.dimension_count", 7), kInvalidArgument, "rotating dimensions of a head is 7");
  ExpectRefused(replaced("llama.rope.dimension_count", 32), kInvalidArgument, "num_rotary is 32");
  ExpectRefused(
      {.without_keys = {"llama.rope.freq_base"}, .add = [](GgufWriter* w) { w->AddF32("llama.rope.freq_base", -1); }},
      kInvalidArgument, "llama.rope.freq_base");
}

TEST_F(ModelLoaderTest, WhatIsNotSupportedIsNamed) {
  ExpectRefused({.add = [](GgufWriter* w) { w->AddU32("llama.expert_count", 8); }}, kNotFound,
                "key 'llama.expert_used_count' is missing");
  EXPECT_TRUE(LoadAll({.add = [](GgufWriter* w) { w->AddU32("llama.expert_count", 0); }}).ok());
  ExpectRefused({.add = [](GgufWriter* w) { w->AddBool("llama.attention.causal", false); }}, kUnimplemented,
                "llama.attention.causal");
  ExpectRefused({.without_keys = {"general.architecture"},
                 .add = [](GgufWriter* w) { w->AddString("general.architecture", "mamba"); }},
                kUnimplemented, "general.architecture 'mamba' is not supported; supported: llama");
  ExpectRefused({.without_keys = {"tokenizer.ggml.model"},
                 .add = [](GgufWriter* w) { w->AddString("tokenizer.ggml.model", "bert"); }},
                kUnimplemented, "key 'tokenizer.ggml.model' is 'bert'");
  EXPECT_EQ(LoadModel((folder_ / "absent.gguf").string()).status().code(), kNotFound);
}

TEST_F(ModelLoaderTest, TensorsThatAreMissingUnknownOrOfAnotherShapeAreNamed) {
  ExpectRefused({.without_tensors = {"token_embd.weight"}}, kInvalidArgument, "token_embd.weight");
  ExpectRefused({.without_tensors = {"blk.1.ffn_up.weight"}}, kInvalidArgument,
                "tensor 'blk.1.ffn_up.weight' is missing; expected shape [96, 64]");
  ExpectRefused({.add =
                     [](GgufWriter* w) {
                       w->AddF32Tensor("blk.0.extra.weight", {2}, {1, 2});
                     }},
                kInvalidArgument, "tensor 'blk.0.extra.weight' of shape [2] is not known");
  ExpectRefused({.add = [](GgufWriter* w) { w->AddF32Tensor("blk.2.attn_norm.weight", {64}, std::vector<float>(64)); }},
                kInvalidArgument, "tensor 'blk.2.attn_norm.weight'");
  ExpectRefused({.without_tensors = {"blk.0.attn_k.weight"},
                 .add =
                     [](GgufWriter* w) {
                       w->AddF32Tensor("blk.0.attn_k.weight", {16, 64}, std::vector<float>(16 * 64));
                     }},
                kInvalidArgument, "tensor 'blk.0.attn_k.weight' has shape [16, 64], expected [32, 64]");
  ExpectRefused({.without_tensors = {"output_norm.weight"},
                 .add =
                     [](GgufWriter* w) {
                       w->AddF32Tensor("output_norm.weight", {1, 64}, std::vector<float>(64));
                     }},
                kInvalidArgument, "has shape [1, 64], expected [64]");
  ExpectRefused({.without_tensors = {"output_norm.weight"},
                 .add =
                     [](GgufWriter* w) {
                       const std::vector<uint8_t> bytes(64);
                       w->AddTensor("output_norm.weight", TensorType::kI8, {64}, bytes);
                     }},
                kUnimplemented, "tensor 'output_norm.weight' is stored as I8");
}

TEST_F(ModelLoaderTest, AVocabularyLargerThanTheEmbeddingIsRefused) {
  ExpectRefused({.without_tensors = {"token_embd.weight"},
                 .add =
                     [](GgufWriter* w) {
                       w->AddF32Tensor("token_embd.weight", {95, 64}, std::vector<float>(95 * 64));
                     }},
                kInvalidArgument, "the tokenizer has 96 tokens, but the embedding only 95 rows");
}

TEST_F(ModelLoaderTest, GenerationDefaultsComeFromTheFileAndFromTheConfigBesideIt) {
  const ToyGguf toy{.add = [](GgufWriter* w) {
    w->AddF32("general.sampling.temp", 0.5f);
    w->AddI32("general.sampling.top_k", 7);
  }};
  LoadedModel model = Load(toy);
  EXPECT_EQ(model.generation.temperature, 0.5f);
  EXPECT_EQ(model.generation.top_k, 7);
  EXPECT_FALSE(model.generation.top_p.has_value());

  std::ofstream(folder_ / "generation_config.json")
      << R"({"do_sample": true, "temperature": 0.2, "top_p": 0.9, "repetition_penalty": 1.1, "eos_token_id": [5, 2]})";
  model = Load(toy);
  EXPECT_EQ(model.generation.temperature, 0.2f);
  EXPECT_EQ(model.generation.top_k, 7);
  EXPECT_EQ(model.generation.top_p, 0.9f);
  EXPECT_EQ(model.generation.repetition_penalty, 1.1f);
  EXPECT_EQ(model.eos_token_ids, (std::vector<int32_t>{0, 2, 5}));

  std::ofstream(folder_ / "generation_config.json") << R"({"temperature": 0.2, "eos_token_id": 4})";
  model = Load(toy);
  EXPECT_EQ(model.generation.temperature, 0.2f);
  EXPECT_EQ(model.eos_token_ids, (std::vector<int32_t>{0, 2, 4}));

  std::ofstream(folder_ / "generation_config.json") << R"({"eos_token_id": [4, 96]})";
  EXPECT_EQ(Load(toy).eos_token_ids, (std::vector<int32_t>{0, 2, 4}));  // there is no 96

  for (const char* broken : {R"({"eos_token_id": "end"})", R"({"eos_token_id": [1.5]})", "{"}) {
    std::ofstream(folder_ / "generation_config.json") << broken;
    const absl::Status status = LoadModel(Write(toy)).status();
    EXPECT_EQ(status.code(), kInvalidArgument) << broken;
    EXPECT_THAT(std::string(status.message()), HasSubstr("generation_config.json")) << broken;
  }
}

TEST_F(ModelLoaderTest, SamplingKeysOfTheFileKeepNobodyFromServing) {
  const auto load = [&](const std::function<void(GgufWriter*)>& add) { return Load({.add = add}); };
  EXPECT_EQ(load([](GgufWriter* w) { w->AddI32("general.sampling.top_k", -1); }).generation.top_k, 0);
  EXPECT_EQ(load([](GgufWriter* w) { w->AddF32("general.sampling.top_k", 50); }).generation.top_k, 50);
  EXPECT_EQ(load([](GgufWriter* w) { w->AddU32("general.sampling.temp", 1); }).generation.temperature, 1.0f);
  EXPECT_EQ(load([](GgufWriter* w) { w->AddF64("general.sampling.top_p", 0.5); }).generation.top_p, 0.5f);
  const LoadedModel model = load([](GgufWriter* w) {
    w->AddString("general.sampling.temp", "hot");
    w->AddF32("general.sampling.top_p", 2);
    w->AddF32("general.sampling.min_p", NAN);
  });
  EXPECT_FALSE(model.generation.temperature.has_value() || model.generation.top_p.has_value() ||
               model.generation.min_p.has_value());
  EXPECT_THAT(model.warnings,
              ::testing::ElementsAre(::testing::AllOf(
                  HasSubstr("toy.gguf: sampling values that are not used: "), HasSubstr("general.sampling.temp"),
                  HasSubstr("general.sampling.top_p"), HasSubstr("general.sampling.min_p"))));
}

TEST_F(ModelLoaderTest, YarnStretchesTheContextAndLinearOnRequest) {
  const auto spec = [&](const char* type, std::optional<uint32_t> original) {
    return Load({.add =
                     [=](GgufWriter* w) {
                       w->AddString("llama.rope.scaling.type", type);
                       w->AddF32("llama.rope.scaling.factor", 4);
                       if (original.has_value()) w->AddU32("llama.rope.scaling.original_context_length", *original);
                     }})
        .spec;
  };
  EXPECT_EQ(spec("yarn", 128).max_position, 512);
  EXPECT_EQ(spec("yarn", {}).max_position, 512);
  EXPECT_EQ(spec("yarn", 32).max_position, 128);
  EXPECT_EQ(spec("linear", {}).max_position, 128);
  EXPECT_EQ(LongestContext(spec("linear", {})), 512);
  EXPECT_EQ(LongestContext(spec("linear", 32)), 128);
}

TEST_F(ModelLoaderTest, GeneratesTheSameFromAFileReadTwice) {
  LoadRunnerOptions options;
  options.kv.kv_memory_bytes = 1 << 20;
  options.kv.max_num_seqs = 4;
  options.kv.max_num_batched_tokens = 32;
  std::vector<int32_t> tokens[2];
  for (std::vector<int32_t>& out : tokens) {
    const LoadedModel model = Load({});
    absl::StatusOr<std::unique_ptr<Runner>> runner = LoadRunner(model, NewReferenceOps(), options);
    ASSERT_TRUE(runner.ok()) << runner.status();
    EXPECT_EQ((*runner)->options().max_model_len, 128);
    EXPECT_LE((*runner)->kv_bytes(), 1 << 20);
    EXPECT_EQ((*runner)->weight_bytes(), (model.num_parameters - 5 * 64) * 4);  // all but the norms
    StepDriver driver(runner->get());
    TestSequence* sequence = driver.Add({3, 4, 5});
    driver.Generate(sequence, 2, 6);
    out = sequence->tokens;
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

}  // namespace
}  // namespace sluice::testing
