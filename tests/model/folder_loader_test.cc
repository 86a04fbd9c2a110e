// Hugging Face folders: what their files become, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/model/model_loader.h"
#include "engine/model/quantization_config.h"
#include "engine/model/registry.h"
#include "engine/model/unknown_keys.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/runtime/load_runner.h"
#include "tests/model/reference_forward.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_folder.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using enum absl::StatusCode;

class FolderLoaderTest : public ::testing::Test {
 protected:
  FolderLoaderTest()
      : folder_(fs::path(::testing::TempDir()) /
                absl::StrCat("sluice_hf_", ::testing::UnitTest::GetInstance()->current_test_info()->name(), "_",
                             getpid())) {
    Clear();
  }
  ~FolderLoaderTest() override { fs::remove_all(folder_); }

  void Clear() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  ToyModel WriteModel(const ToyFolder& toy) {
    Clear();
    return WriteToyFolder(folder_.string(), toy);
  }
  LoadedModel Load() {
    absl::StatusOr<LoadedModel> model = LoadModel(folder_.string());
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  // Opens the folder and loads its weights.
  absl::Status LoadAll() {
    absl::StatusOr<LoadedModel> model = LoadModel(folder_.string());
    if (!model.ok()) return model.status();
    const std::unique_ptr<Ops> ops = NewReferenceOps();
    return LoadWeights(*model, ops.get()).status();
  }
  void ExpectRefused(absl::StatusCode code, const std::vector<std::string>& parts) {
    const absl::Status status = LoadAll();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.string()));
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  // kToyConfig with one key's text replaced, or with further text at its start.
  static std::string Config(const std::string& from, const std::string& to) {
    return absl::StrReplaceAll(kToyConfig, {{from, to}});
  }
  static std::string ConfigWith(const std::string& more) { return absl::StrCat("{", more, ",", kToyConfig + 1); }

  const fs::path folder_;
};

std::unique_ptr<Runner> NewRunner(const LoadedModel& model) {
  LoadRunnerOptions options;
  options.kv.kv_memory_bytes = 1 << 20;
  options.kv.dtype = KvDType::kF32;
  options.kv.max_num_seqs = 4;
  options.kv.max_num_batched_tokens = 32;
  absl::StatusOr<std::unique_ptr<Runner>> runner = LoadRunner(model, NewReferenceOps(), options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return *std::move(runner);
}

TEST_F(FolderLoaderTest, FilesBecomeSpecAndTensors) {
  WriteModel({});
  const LoadedModel model = Load();
  EXPECT_EQ(model.spec.vocab_size, 96);
  EXPECT_EQ(model.spec.layers.size(), 2u);
  EXPECT_EQ(model.spec.layers[0].attention.rope->layout, RopeLayout::kHalfSplit);
  EXPECT_EQ(model.tensors.size(), 20u);
  EXPECT_EQ(model.files.size(), 1u);
  EXPECT_EQ(model.weight_type, "BF16");
  EXPECT_EQ(model.num_parameters, NumParameters(model.spec));
  EXPECT_EQ(model.file_bytes, 2 * (model.num_parameters - 5 * 64) + 4 * 5 * 64);  // norms are F32 here
  EXPECT_EQ(model.tokenizer, nullptr);
  EXPECT_THAT(model.chat_template, IsEmpty());
}

TEST_F(FolderLoaderTest, LogitsAreThoseOfAnIndependentForwardPass) {
  const std::vector<int32_t> tokens = {3, 14, 15, 92, 65, 35, 89, 79, 3, 23};
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    for (int num_shards : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(TensorTypeName(type), " in ", num_shards));
      const ToyModel toy = WriteModel({.type = type, .num_shards = num_shards});
      const LoadedModel model = Load();
      EXPECT_EQ(model.files.size(), size_t(num_shards));
      const std::unique_ptr<Runner> runner = NewRunner(model);
      StepDriver driver(runner.get());
      const std::vector<std::vector<float>> found = driver.AllLogits(tokens);
      const std::vector<std::vector<double>> expected = ReferenceLogits(toy, tokens);
      double largest = 0, worst = 0;
      for (size_t row = 0; row < tokens.size(); ++row) {
        for (size_t id = 0; id < expected[row].size(); ++id) {
          largest = std::max(largest, std::abs(expected[row][id]));
          worst = std::max(worst, std::abs(expected[row][id] - double(found[row][id])));
        }
      }
      EXPECT_LT(worst, 1e-4 * largest);

      // And decoding goes on with the token that the formulas find best.
      TestSequence* sequence = driver.Add(tokens);
      driver.Generate(sequence, 4, 1);
      const std::vector<double>& last = expected.back();
      EXPECT_EQ(sequence->tokens.back(), std::max_element(last.begin(), last.end()) - last.begin());
    }
  }
}

TEST_F(FolderLoaderTest, AMovedModelKeepsItsFiles) {
  const ToyModel toy = WriteModel({});
  LoadedModel opened = Load();
  fs::remove_all(folder_);
  const LoadedModel model = std::move(opened);
  const std::unique_ptr<Ops> ops = NewReferenceOps();
  EXPECT_TRUE(LoadWeights(model, ops.get()).ok());
}

TEST_F(FolderLoaderTest, APathMayEndInASlashAndLeadThroughALink) {
  WriteModel({});
  EXPECT_TRUE(LoadModel(folder_.string() + "/").ok());
  const fs::path link = folder_.string() + "_link";
  fs::remove(link);
  fs::create_directory_symlink(folder_, link);
  EXPECT_TRUE(LoadModel(link.string()).ok());
  fs::remove(link);
}

// A byte-level tokenizer of four tokens, one merge and two added tokens; `more` joins its added tokens.
std::string TokenizerJson(const std::string& more = "", const std::string& more_vocabulary = "") {
  const auto added = [](int id, const char* text) {
    return absl::StrCat(R"({"id":)", id, R"(,"content":")", text,
                        R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})");
  };
  return absl::StrCat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)", added(1, "<s>"), ",", added(2, "</s>"),
      more.empty() ? "" : ",", more.empty() ? "" : added(96, more.c_str()),
      R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
      R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,)"
      R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,)"
      R"("ignore_merges":false,"vocab":{"a":3,"b":4,"ab":5,"c":6)",
      more_vocabulary, R"(},"merges":[["a","b"]]}})");
}

TEST_F(FolderLoaderTest, TheTokenizerComesWithItsTemplateAndEndToken) {
  WriteModel({.config = Config(",\n  \"eos_token_id\": 2", "")});
  Write("tokenizer.json", TokenizerJson());
  Write("tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>","chat_template":"{{ messages }}"})");
  {
    const LoadedModel model = Load();
    ASSERT_NE(model.tokenizer, nullptr);
    EXPECT_EQ(model.tokenizer->bos_id(), 1);
    const absl::StatusOr<std::vector<int32_t>> ids = model.tokenizer->Encode("abca</s>");
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_THAT(*ids, ElementsAre(5, 6, 3, 2));
    EXPECT_EQ(model.chat_template, "{{ messages }}");
    EXPECT_THAT(model.eos_token_ids, ElementsAre(2));
  }
  Write("chat_template.jinja", "{{ tools }}");
  Write("generation_config.json", R"({"eos_token_id": 6})");
  const LoadedModel model = Load();
  EXPECT_EQ(model.chat_template, "{{ tools }}");
  EXPECT_THAT(model.eos_token_ids, ElementsAre(2, 6));  // what the publisher says and what the tokenizer says
}

TEST_F(FolderLoaderTest, ATemplateWithoutATokenizerIsStillKnown) {
  WriteModel({});
  Write("chat_template.jinja", "{{ tools }}");
  const LoadedModel model = Load();
  EXPECT_EQ(model.tokenizer, nullptr);
  EXPECT_EQ(model.chat_template, "{{ tools }}");
}

TEST_F(FolderLoaderTest, TokenizersThatCannotBeUsedAreErrors) {
  WriteModel({});
  for (const char* broken : {"{", "[]", R"({"model":{"type":"Unigram","vocab":[]}})"}) {
    Write("tokenizer.json", broken);
    const absl::Status status = LoadAll();
    EXPECT_FALSE(status.ok()) << broken;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json"));
  }
  fs::remove(folder_ / "tokenizer.json");
  fs::create_symlink("gone", folder_ / "tokenizer.json");
  ExpectRefused(kNotFound, {"tokenizer.json: is a link that leads nowhere"});
}

TEST_F(FolderLoaderTest, TokensBeyondTheEmbeddingMustBeAdded) {
  WriteModel({});
  Write("tokenizer.json", TokenizerJson("<picture>"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Load().tokenizer->vocab_size(), 97);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("1 added tokens that the model does not know"));
  Write("tokenizer.json", TokenizerJson("", R"(,"d":96)"));
  ExpectRefused(kInvalidArgument, {"the tokenizer has 97 tokens, but the embedding only 96 rows"});
}

TEST_F(FolderLoaderTest, EndTokensAndSamplingComeFromGenerationConfig) {
  WriteModel({});
  EXPECT_THAT(Load().eos_token_ids, ElementsAre(2));  // from config.json, for want of anything better
  Write("generation_config.json", R"({"eos_token_id": 7, "do_sample": true, "temperature": 0.5, "top_k": 20})");
  LoadedModel model = Load();
  EXPECT_THAT(model.eos_token_ids, ElementsAre(7));
  EXPECT_EQ(model.generation.temperature, 0.5f);
  EXPECT_EQ(model.generation.top_k, 20);
  Write("generation_config.json", R"({"eos_token_id": [9, 7, 9]})");
  EXPECT_THAT(Load().eos_token_ids, ElementsAre(7, 9));
  Write("generation_config.json", "{}");
  EXPECT_THAT(Load().eos_token_ids, IsEmpty());
  for (const char* broken : {R"({"eos_token_id": "end"})", R"({"eos_token_id": -1})"}) {
    Write("generation_config.json", broken);
    ExpectRefused(kInvalidArgument, {"generation_config.json"});
  }
  WriteModel({.config = Config("\"eos_token_id\": 2", "\"eos_token_id\": [5, 4]")});
  EXPECT_THAT(Load().eos_token_ids, ElementsAre(4, 5));
}

// Rows of the table in generation_config.h.
TEST_F(FolderLoaderTest, SamplingDefaultsByWhatTheFileSaysOfSampling) {
  WriteModel({});
  const auto read = [&](const char* text) {
    Write("generation_config.json", text);
    return Load();
  };
  LoadedModel model = read(R"({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1})");
  EXPECT_EQ(model.generation.temperature, 0.6f);
  EXPECT_EQ(model.generation.top_p, 0.9f);
  EXPECT_EQ(model.generation.top_k, 20);
  EXPECT_EQ(model.generation.min_p, 0.1f);
  EXPECT_THAT(model.warnings, IsEmpty());
  model = read(R"({"do_sample": true, "temperature": 0.6})");
  EXPECT_EQ(model.generation.temperature, 0.6f);
  EXPECT_THAT(model.warnings, IsEmpty());
  model = read(R"({"do_sample": false})");
  EXPECT_EQ(model.generation.temperature, 0);
  EXPECT_THAT(model.warnings, IsEmpty());
  model = read(R"({"do_sample": false, "temperature": 1.0, "top_k": 50, "repetition_penalty": 1.1})");
  EXPECT_EQ(model.generation.temperature, 0);
  EXPECT_EQ(model.generation.repetition_penalty, 1.1f);
  EXPECT_THAT(model.warnings, IsEmpty());
  model = read(R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9})");
  EXPECT_EQ(model.generation.temperature, 0);
  EXPECT_FALSE(model.generation.top_p.has_value());
  EXPECT_THAT(model.warnings, ElementsAre(HasSubstr(
                                  "generation_config.json: sampling values that are not used: 'temperature', 'top_p', "
                                  "for 'do_sample' is false: the default is greedy")));
}

TEST_F(FolderLoaderTest, SpellingsOfSamplingValuesKeepNobodyFromServing) {
  WriteModel({});
  const auto top_k = [&](const char* value, std::optional<int32_t> expected) {
    Write("generation_config.json", absl::StrCat(R"({"do_sample": true, "top_k": )", value, "}"));
    const LoadedModel model = Load();
    EXPECT_EQ(model.generation.top_k, expected) << value;
    EXPECT_THAT(model.warnings, IsEmpty()) << value;
  };
  top_k("-1", 0);
  top_k("0", 0);
  top_k("50.0", 50);
  top_k("5e1", 50);
  top_k("null", std::nullopt);
  for (const char* text : {R"({"top_k": 2.5})", R"({"top_k": -2})", R"({"top_k": "many"})", R"({"top_p": 1.5})",
                           R"({"top_p": 0})", R"({"temperature": -1})", R"({"temperature": NaN})", R"({"min_p": [1]})",
                           R"({"repetition_penalty": 0})", R"({"do_sample": "yes"})", R"({"num_beams": 4})",
                           R"({"typical_p": 0.9})", R"({"suppress_tokens": [5]})", R"({"temperature": Infinity})"}) {
    Write("generation_config.json", text);
    const LoadedModel model = Load();
    const std::string key = absl::StrCat("'", std::string(text).substr(2, std::string(text).find(':') - 3), "'");
    EXPECT_THAT(model.warnings,
                ElementsAre(::testing::AllOf(HasSubstr("sampling values that are not used: "), HasSubstr(key))))
        << text;
  }
  Write("generation_config.json", R"({"num_beams": 1, "typical_p": 1.0, "bad_words_ids": null, "max_new_tokens": 5})");
  EXPECT_THAT(Load().warnings, IsEmpty());
}

TEST_F(FolderLoaderTest, YarnStretchesTheContextThatIsServed) {
  const auto served = [&](const std::string& rope, const std::string& max_position) {
    const std::string config = absl::StrReplaceAll(
        ConfigWith(absl::StrCat("\"rope_scaling\": ", rope)),
        {{"\"max_position_embeddings\": 128", absl::StrCat("\"max_position_embeddings\": ", max_position)}});
    WriteModel({.config = config});
    const LoadedModel model = Load();
    EXPECT_THAT(model.warnings, IsEmpty());
    EXPECT_EQ(NewRunner(model)->options().max_model_len, model.spec.max_position);
    return model.spec.max_position;
  };
  EXPECT_EQ(served(R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 24})", "24"), 96);
  EXPECT_EQ(served(R"({"type": "yarn", "factor": 4})", "24"), 96);
  EXPECT_EQ(served(R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 24, "finetuned": true})", "96"),
            96);
  EXPECT_EQ(served(R"({"type": "linear", "factor": 4})", "24"), 24);
}

TEST_F(FolderLoaderTest, PythonOnlyNumbersAreHarmlessWhereUnused) {
  WriteModel({.config = ConfigWith(R"("router_aux_loss_coef": NaN, "initializer_range": Infinity)")});
  EXPECT_THAT(Load().warnings, IsEmpty());
  WriteModel({});
  Write("config.json", Config("10000.0", "-Infinity"));
  ExpectRefused(kInvalidArgument, {"config.json: key 'rope_theta' is \"-Infinity\", expected a number"});
}

TEST_F(FolderLoaderTest, FoldersOfGgufFilesAndNamesOfModelsSaySo) {
  Write("a.Q4_0.gguf", "GGUF");
  Write("b.Q8_0.gguf", "GGUF");
  ExpectRefused(kNotFound,
                {"no config.json is in the folder", "one of the 2 GGUF files there: 'a.Q4_0.gguf', 'b.Q8_0.gguf'"});
  const absl::Status status = LoadModel("meta-llama/Llama-3.1-8B").status();
  EXPECT_EQ(status.code(), kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no such file or folder"));
}

TEST_F(FolderLoaderTest, WarnsOfEndTokensTheModelLacks) {
  WriteModel({.config = Config("\"eos_token_id\": 2", "\"eos_token_id\": [95, 96, 200002]")});
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(Load().eos_token_ids, ElementsAre(95));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("WARN"));
  EXPECT_THAT(log, HasSubstr("end tokens 96, 200002 are left out"));
}

TEST_F(FolderLoaderTest, OneLineSaysWhatWasFound) {
  WriteModel({.num_shards = 2});
  ::testing::internal::CaptureStderr();
  Load();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("llama, 67,"));
  EXPECT_THAT(log, HasSubstr("in 20 tensors, mostly BF16, of 2 files; no tokenizer: serves token ids only, no chat "
                             "template; end tokens 2\n"));
  EXPECT_THAT(log, Not(HasSubstr("WARN")));
}

TEST_F(FolderLoaderTest, KeysThatMayMatterAreNamedInAWarning) {
  WriteModel({.config = ConfigWith(R"("logit_multiplier": 3, "attention_dropout": 0.5, "use_cache": false)")});
  ::testing::internal::CaptureStderr();
  Load();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("config.json: keys that are not known and may change what the model computes: "
                             "'logit_multiplier'\n"));
}

TEST_F(FolderLoaderTest, KeysThatMeanNothingToInferenceAreNot) {
  WriteModel({.config = ConfigWith(R"("for_llm_compressor": false, "_attn_implementation_autoset": true,
      "unsloth_fixed": true, "tokenizer_class": "X", "model_max_length": 9, "num_logits_to_keep": null)")});
  EXPECT_THAT(Load().warnings, IsEmpty());
}

TEST(UnknownKeysTest, EveryKeyOfPublishedConfigsIsKnown) {
  int num_configs = 0;
  for (const auto& entry : fs::directory_iterator(std::string(SLUICE_SOURCE_DIR) + "/tests/model/configs")) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().filename());
    const absl::StatusOr<ConfigJson> config = ConfigJson::Open(entry.path().string());
    ASSERT_TRUE(config.ok()) << config.status();
    const absl::StatusOr<ModelSpec> spec = ReadModelSpec(*config);
    EXPECT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(ReadQuantizationConfig(*config).ok());
    EXPECT_THAT(UnknownKeys(*config), IsEmpty());
    ++num_configs;
  }
  EXPECT_GT(num_configs, 0);
}

// Refused.

TEST_F(FolderLoaderTest, FoldersWithoutAModel) {
  ExpectRefused(kNotFound, {"no config.json is in the folder"});
  Write("config.json", "{");
  ExpectRefused(kInvalidArgument, {"config.json"});
  Write("config.json", "");
  ExpectRefused(kInvalidArgument, {"config.json: is empty"});
  Write("config.json", R"({"model_type": "mamba"})");
  ExpectRefused(kUnimplemented, {"config.json: model_type 'mamba' is not supported"});
  Write("config.json", kToyConfig);
  Write("config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
  ExpectRefused(kInvalidArgument, {"config.json: holds no data but a Git LFS pointer"});
  Write("config.json", kToyConfig);
  ExpectRefused(kNotFound, {"has neither model.safetensors nor model.safetensors.index.json"});
  fs::remove(folder_ / "config.json");
  fs::create_directories(folder_ / "config.json");
  ExpectRefused(kInvalidArgument, {"config.json: is a directory"});
  EXPECT_EQ(LoadModel((folder_ / "absent").string()).status().code(), kNotFound);
}

TEST_F(FolderLoaderTest, LinksOutOfTheFolderAreNotFollowed) {
  for (const char* name : {"config.json", "model.safetensors", "generation_config.json"}) {
    SCOPED_TRACE(name);
    WriteModel({});
    fs::remove(folder_ / name);
    const fs::path outside = folder_.string() + "_outside";
    std::ofstream(outside) << kToyConfig;
    fs::create_symlink(outside, folder_ / name);
    ExpectRefused(kInvalidArgument, {name, "is a link out of the folder"});
    fs::remove(outside);
    ExpectRefused(kNotFound, {name, "is a link that leads nowhere"});
  }
}

TEST_F(FolderLoaderTest, ShardsThatAreMissingOrElsewhere) {
  const ToyFolder toy{.num_shards = 2};
  WriteModel(toy);
  fs::remove(folder_ / "model-1.safetensors");
  ExpectRefused(kNotFound, {"model.safetensors.index.json", "'model-1.safetensors'", "no such file"});
  fs::copy_file(folder_ / "model-0.safetensors", folder_ / "model-1.safetensors");
  ExpectRefused(kInvalidArgument, {"model-1.safetensors: holds tensor", "expects in 'model-0.safetensors'"});
  const auto index = [&](const std::string& from, const std::string& to) {
    WriteModel(toy);
    std::ifstream in(folder_ / "model.safetensors.index.json");
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    Write("model.safetensors.index.json", absl::StrReplaceAll(text, {{from, to}}));
  };
  index("model-1.safetensors", "../x.safetensors");
  ExpectRefused(kInvalidArgument, {"is said to be in '../x.safetensors'", "expected one without folders"});
  index("model.norm.weight", "model.other.weight");
  ExpectRefused(kInvalidArgument, {"holds tensor 'model.norm.weight'"});
}

TEST_F(FolderLoaderTest, TensorsThatAreMissingUnknownOrOfAnotherShapeOrType) {
  WriteModel({.without_tensors = {"model.norm.weight"}});
  ExpectRefused(kInvalidArgument, {"tensor 'model.norm.weight' is missing; expected shape [64]"});
  const std::vector<float> values(128, 1.0f);
  WriteModel({.add = [&](SafetensorsWriter* w) { w->AddFloats("model.extra", TensorType::kF32, {128}, values); }});
  ExpectRefused(kInvalidArgument, {"tensor 'model.extra'"});
  WriteModel({.without_tensors = {"model.norm.weight"}, .add = [&](SafetensorsWriter* w) {
                w->AddFloats("model.norm.weight", TensorType::kF32, {128}, values);
              }});
  ExpectRefused(kInvalidArgument, {"tensor 'model.norm.weight' has shape [128], expected [64]"});
  for (TensorType type : {TensorType::kI64, TensorType::kF64, TensorType::kBool, TensorType::kF8E5M2}) {
    const std::vector<uint8_t> bytes(size_t(TensorBytes(type, 64)));
    WriteModel({.without_tensors = {"model.norm.weight"},
                .add = [&](SafetensorsWriter* w) { w->AddTensor("model.norm.weight", type, {64}, bytes); }});
    ExpectRefused(kUnimplemented, {"tensor 'model.norm.weight' is stored as ", TensorTypeName(type)});
  }
}

TEST_F(FolderLoaderTest, QuantisationsThatAreNotKnown) {
  for (const char* method : {"gptq", "awq", "bitsandbytes", "compressed-tensors"}) {
    WriteModel({.config = ConfigWith(absl::StrCat(R"("quantization_config": {"quant_method": ")", method, "\"}"))});
    ExpectRefused(kUnimplemented, {"config.json: key 'quantization_config.quant_method'", method});
  }
  WriteModel({.config = ConfigWith(R"("quantization_config": {"quant_method": "fp8", "fmt": "e5m2"})")});
  ExpectRefused(kUnimplemented, {"config.json: key 'quantization_config.fmt' is 'e5m2'"});
  WriteModel({.config = ConfigWith(R"("quantization_config": [])")});
  ExpectRefused(kInvalidArgument, {"config.json: key 'quantization_config'"});
}

}  // namespace
}  // namespace sluice::testing
