// No error, warning or log line shows a file's text as it is: strings with escape codes, newlines and no end are
// planted in every place of every kind of file, as a value and as a name, and whatever is said of it is one short
// printable line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/model/model_loader.h"
#include "engine/model/quantization_config.h"
#include "engine/model/registry.h"
#include "engine/model/unknown_keys.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/text/hf_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "tests/io/gguf_writer.h"
#include "tests/model/toy_folder.h"
#include "tests/model/toy_gguf.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMaxLine = 1024;

// What a terminal or a log reader would act on, and more of it than a line can hold.
std::string Hostile(size_t bytes) {
  std::string text =
      "\x1b[31m\r\n2026-01-01T00:00:00.000Z ERROR forged\n\x7f\xc2\x9b"
      "2J\xe2\x80\xae'\"\\";
  while (text.size() < bytes) text += text.substr(0, bytes - text.size());
  return text;
}
const std::string& Short() {
  static const auto* text = new std::string(Hostile(0));
  return *text;
}
const std::string& Long() {
  static const auto* text = new std::string(Hostile(3000));
  return *text;
}
const std::string& Huge() {
  static const auto* text = new std::string(Hostile(10'000'000));
  return *text;
}

void ExpectFit(absl::string_view line, const std::string& planted) {
  EXPECT_LT(line.size(), kMaxLine) << planted << ": " << line.substr(0, 200);
  EXPECT_EQ(FindInvalidUtf8(line), absl::string_view::npos) << planted << ": " << line.substr(0, 300);
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = uint8_t(line[i]);
    const bool c1 = byte == 0xC2 && i + 1 < line.size() && uint8_t(line[i + 1]) < 0xA0;
    ASSERT_FALSE(byte < 0x20 || byte == 0x7F || c1)
        << planted << ": byte " << int(byte) << " at " << i << " of " << line.substr(0, 300);
  }
  EXPECT_EQ(line.find("\xe2\x80\xae"), line.npos) << planted;
}

void ExpectFit(const absl::Status& status, const std::string& planted) { ExpectFit(status.message(), planted); }

// Runs `load`, whose error and log lines must all be fit.
void ExpectFitOf(const std::function<absl::Status()>& load, const std::string& planted) {
  ::testing::internal::CaptureStderr();
  const absl::Status status = load();
  const std::string log = ::testing::internal::GetCapturedStderr();
  ExpectFit(status, planted);
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(log, "\n"), '\n')) {
    // Every line is one that Log began: a file that forges one would fail here too.
    if (line.empty()) continue;
    EXPECT_THAT(std::string(line.substr(0, 40)), ::testing::ContainsRegex("^20..-..-..T.*Z (INFO|WARNING|ERROR) "));
    EXPECT_FALSE(absl::StartsWith(line, "2026-01-01T00:00:00.000Z")) << planted << ": a forged line";
    ExpectFit(line, planted);
  }
}

// Calls `use` with `json` after every single change: a value that is `text`, a list of it or a list in a list, a member
// that is called `text`, one more member of that name.
void ForEachPlant(const Json& json, const std::string& text,
                  const std::function<void(const Json&, const std::string&)>& use) {
  const Json flat = json.flatten();
  std::vector<Json::json_pointer> places = {Json::json_pointer()};
  for (const auto& [path, leaf] : flat.items()) {
    for (Json::json_pointer p(path); !p.empty(); p = p.parent_pointer()) {
      if (std::find(places.begin(), places.end(), p) == places.end()) places.push_back(p);
    }
  }
  for (const Json::json_pointer& place : places) {
    const std::string name = place.to_string();
    for (const Json& value :
         {Json(text), Json::array({text}), Json{{text, 1}}, Json(std::vector<std::string>(50, text))}) {
      Json changed = json;
      changed[place] = value;
      use(changed, name + " = " + std::string(value.type_name()));
    }
    if (!place.empty() && json.contains(place.parent_pointer()) && json[place.parent_pointer()].is_object()) {
      Json changed = json;
      Json& object = changed[place.parent_pointer()];
      object[text] = json[place];
      object.erase(place.back());
      use(changed, name + " renamed");
    }
    if (json[place].is_object()) {
      Json changed = json;
      for (int i = 0; i < 50; ++i) changed[place][absl::StrCat(text, i)] = 1;
      use(changed, name + " with more members");
    } else if (json[place].is_array()) {
      Json changed = json;
      changed[place].push_back(text);
      use(changed, name + " with one more");
    }
  }
}

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

absl::Status ReadConfig(const std::string& text) {
  const absl::StatusOr<ConfigJson> config = ConfigJson::Parse(text, "config.json");
  if (!config.ok()) return config.status();
  const absl::StatusOr<ModelSpec> spec = ReadModelSpec(*config);
  const absl::StatusOr<QuantizationConfig> quantization = ReadQuantizationConfig(*config);
  if (!quantization.ok()) ExpectFit(quantization.status(), "quantization");
  return spec.status();
}

class HostileStringsTest : public ::testing::Test {
 protected:
  HostileStringsTest()
      : folder_(
            fs::path(::testing::TempDir()) /
            absl::StrCat("hostile_", ::testing::UnitTest::GetInstance()->current_test_info()->name(), "_", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~HostileStringsTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  absl::Status LoadAll(const std::string& path) {
    absl::StatusOr<LoadedModel> model = LoadModel(path);
    if (!model.ok()) return model.status();
    for (const std::string& warning : model->warnings) ExpectFit(warning, "a warning");
    const std::unique_ptr<Ops> ops = NewReferenceOps();
    return LoadWeights(*model, ops.get()).status();
  }
  absl::Status LoadFolder() { return LoadAll(folder_.string()); }

  // Plants in the JSON file `name` of the folder, and breaks its text in many places.
  void PlantInJson(const std::string& name, const std::string& text, const std::function<absl::Status()>& load) {
    const std::string original = ReadFile(folder_ / name);
    const Json json = Json::parse(original);
    ForEachPlant(json, text, [&](const Json& changed, const std::string& planted) {
      Write(name, changed.dump(-1, ' ', false, Json::error_handler_t::ignore));
      ExpectFitOf(load, absl::StrCat(name, " ", planted));
    });
    Write(name, original);
  }
  // The text as it is, which no JSON holds, and cut off in the middle of it.
  void BreakJson(const std::string& name, const std::string& text, const std::function<absl::Status()>& load) {
    const std::string original = ReadFile(folder_ / name);
    for (size_t i = 0; i <= original.size(); i += std::max<size_t>(1, original.size() / 60)) {
      Write(name, original.substr(0, i) + text + original.substr(i));
      ExpectFitOf(load, absl::StrCat(name, " broken at ", i));
      Write(name, original.substr(0, i) + "\"" + Json(text).dump() + original.substr(i));
      ExpectFitOf(load, absl::StrCat(name, " with a string at ", i));
    }
    Write(name, original);
  }

  const fs::path folder_;
};

TEST_F(HostileStringsTest, ConfigsOfEveryFamily) {
  std::set<std::string> families;
  for (const auto& entry : fs::directory_iterator(SLUICE_SOURCE_DIR "/tests/model/configs")) {
    if (entry.path().extension() != ".json") continue;
    const Json json = Json::parse(ReadFile(entry.path()));
    if (!families.insert(json["model_type"]).second) continue;
    ForEachPlant(json, Long(), [&](const Json& changed, const std::string& planted) {
      ExpectFit(ReadConfig(changed.dump()), entry.path().filename().string() + " " + planted);
    });
  }
}

TEST_F(HostileStringsTest, EveryFileOfAFolder) {
  WriteToyFolder(folder_.string(), {.num_shards = 2});
  Write("tokenizer.json",
        R"({"version":"1.0","truncation":null,"padding":null,"normalizer":{"type":"NFC"},"added_tokens":[
            {"id":1,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
            {"id":2,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":true,"special":false}],
            "pre_tokenizer":{"type":"Sequence","pretokenizers":[
              {"type":"Split","pattern":{"Regex":"\\s+"},"behavior":"Isolated","invert":false},
              {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]},
            "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
              {"Sequence":{"id":"A","type_id":0}}],"pair":[],
              "special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}},
            "decoder":{"type":"ByteLevel"},"model":{"type":"BPE","dropout":null,"unk_token":null,
              "continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
              "vocab":{"a":3,"b":4,"ab":5,"c":6},"merges":["a b"]}})");
  Write("tokenizer_config.json",
        R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":"<s>","tokenizer_class":"X",
            "added_tokens_decoder":{"7":{"content":"<x>","special":true}},
            "chat_template":[{"name":"default","template":"{{ messages }}"}]})");
  Write("special_tokens_map.json", R"({"unk_token":"a"})");
  Write("generation_config.json",
        R"({"do_sample":true,"temperature":0.5,"top_p":0.9,"top_k":5,"repetition_penalty":1.1,"eos_token_id":[2],
            "transformers_version":"4"})");
  ASSERT_TRUE(LoadFolder().ok()) << LoadFolder();
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "model.safetensors.index.json"}) {
    for (const std::string& text : {Short(), Long()}) {
      PlantInJson(name, text, [&] { return LoadFolder(); });
      BreakJson(name, text, [&] { return LoadFolder(); });
    }
  }
}

TEST_F(HostileStringsTest, StringsOfTenMegabytes) {
  WriteToyFolder(folder_.string(), {});
  for (const char* key :
       {"model_type", "hidden_act", "rope_scaling", "layer_types", "quantization_config", "eos_token_id"}) {
    Json config = Json::parse(kToyConfig);
    for (const Json& value : {Json(Huge()), Json{{"rope_type", Huge()}, {"quant_method", Huge()}}, Json{{Huge(), 1}}}) {
      config[key] = value;
      Write("config.json", config.dump());
      ExpectFitOf([&] { return LoadFolder(); }, absl::StrCat(key, " of ten megabytes"));
    }
  }
  Write("config.json", kToyConfig);
  for (const Json& json :
       {Json{{"model", {{"type", Huge()}}}}, Json{{"model", {{"type", "BPE"}, {"vocab", {{Huge(), -1}}}}}},
        Json{{"model", {{"type", "BPE"}, {"vocab", {{"a", 1}}}, {"merges", {Huge()}}}}},
        Json{{"normalizer", {{"type", Huge()}}}, {"model", {{"vocab", {{"a", 1}}}}}}}) {
    Write("tokenizer.json", json.dump());
    ExpectFitOf([&] { return LoadFolder(); }, "tokenizer.json");
  }
  fs::remove(folder_ / "tokenizer.json");
  for (const std::string& header : {Json{{Huge(), {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 9}}}}}.dump(),
                                    Json{{"a", {{"dtype", Huge()}, {"shape", {1}}, {"data_offsets", {0, 4}}}}}.dump(),
                                    Json{{"a", {{Huge(), "F32"}}}}.dump()}) {
    Write("model.safetensors", SafetensorsBytes(header, "1234"));
    ExpectFitOf([&] { return LoadFolder(); }, "model.safetensors");
  }
  for (const char* key : {"general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre",
                          "llama.rope.scaling.type", "tokenizer.chat_template"}) {
    const std::string path = (folder_ / "m.gguf").string();
    Write("m.gguf", ToyGgufBytes({.without_keys = {key}, .add = [&](GgufWriter* w) { w->AddString(key, Huge()); }}));
    ExpectFitOf([&] { return LoadAll(path); }, key);
  }
}

TEST_F(HostileStringsTest, HeadersOfSafetensors) {
  WriteToyFolder(folder_.string(), {});
  const std::string bytes = ReadFile(folder_ / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::string data = bytes.substr(8 + length);
  Json header = Json::parse(bytes.substr(8, length));
  header["__metadata__"] = {{"format", "pt"}};
  for (const std::string& text : {Short(), Long()}) {
    ForEachPlant(header, text, [&](const Json& changed, const std::string& planted) {
      Write("model.safetensors", SafetensorsBytes(changed.dump(), data));
      ExpectFitOf([&] { return LoadFolder(); }, absl::StrCat("header ", planted));
    });
    for (size_t i = 0; i < length; i += length / 100) {
      const std::string whole = bytes.substr(8, length);
      Write("model.safetensors", SafetensorsBytes(whole.substr(0, i) + text + whole.substr(i), data));
      ExpectFitOf([&] { return LoadFolder(); }, absl::StrCat("header broken at ", i));
    }
  }
}

TEST_F(HostileStringsTest, TokenizersOfEveryKind) {
  std::set<std::string> kinds;
  for (const auto& entry : fs::directory_iterator(SLUICE_SOURCE_DIR "/tests/goldens/tokenizer/reduced")) {
    if (entry.path().extension() != ".json" || entry.file_size() > 8192) continue;
    const Json json = Json::parse(ReadFile(entry.path()), nullptr, false);
    if (json.is_discarded()) continue;
    if (json.flatten().size() > 100) continue;  // a few tokens stand for all
    if (!kinds.insert(json["model"].dump().substr(0, 40) + json["pre_tokenizer"].dump() + json["decoder"].dump())
             .second)
      continue;
    ForEachPlant(json, Long(), [&](const Json& changed, const std::string& planted) {
      const std::string file = changed.dump();
      absl::StatusOr<HfTokenizer> read = ReadHfTokenizer({.tokenizer_json = file});
      const absl::Status status = read.ok() ? Tokenizer::Create(std::move(read->spec)).status() : read.status();
      ExpectFit(status, entry.path().filename().string() + " " + planted);
    });
  }
  const std::string config = R"({"tokenizer_class":"TikTokenTokenizer"})";
  for (const std::string& text : {Short(), Long(), Huge()}) {
    ExpectFit(ReadHfTokenizer({.tiktoken_model = text, .tokenizer_config_json = config}).status(), "tiktoken.model");
    ExpectFit(
        ReadHfTokenizer({.tiktoken_model = "YQ== 0", .tokenizer_config_json = Json{{"tokenizer_class", text}}.dump()})
            .status(),
        "tokenizer_class");
  }
}

TEST_F(HostileStringsTest, EveryKeyAndTensorOfAGguf) {
  const std::string path = (folder_ / "m.gguf").string();
  const auto expect_fit = [&](const ToyGguf& toy, const std::string& planted) {
    Write("m.gguf", ToyGgufBytes(toy));
    ExpectFitOf([&] { return LoadAll(path); }, planted);
  };
  const std::vector<std::string> keys = {"general.architecture",
                                         "llama.context_length",
                                         "llama.embedding_length",
                                         "llama.block_count",
                                         "llama.feed_forward_length",
                                         "llama.attention.head_count",
                                         "llama.attention.head_count_kv",
                                         "llama.attention.layer_norm_rms_epsilon",
                                         "llama.rope.freq_base",
                                         "tokenizer.ggml.model",
                                         "tokenizer.ggml.pre",
                                         "tokenizer.ggml.tokens",
                                         "tokenizer.ggml.token_type",
                                         "tokenizer.ggml.merges",
                                         "tokenizer.ggml.bos_token_id",
                                         "tokenizer.ggml.eos_token_id",
                                         "tokenizer.chat_template",
                                         "llama.rope.scaling.type",
                                         "llama.rope.scaling.factor",
                                         "general.sampling.temp",
                                         "general.sampling.top_k",
                                         "general.alignment",
                                         "split.count",
                                         "llama.expert_count"};
  for (const std::string& text : {Short(), Long()}) {
    for (const std::string& key : keys) {
      expect_fit({.without_keys = {key}, .add = [&](GgufWriter* w) { w->AddString(key, text); }}, key);
      expect_fit({.without_keys = {key},
                  .add =
                      [&](GgufWriter* w) {
                        w->AddStrings(key, {text, text});
                      }},
                 key + " list");
    }
    expect_fit({.add =
                    [&](GgufWriter* w) {
                      w->AddString(text, "value");
                      w->AddString(text, "value");
                    }},
               "a key that comes twice");
    for (const size_t bytes : {63, 64}) {
      const std::string name = text.substr(0, bytes);
      expect_fit({.add = [&](GgufWriter* w) { w->AddF32Tensor(name, {1}, {1}); }}, "a tensor");
      expect_fit({.add = [&](GgufWriter* w) { w->AddRawTensor(name, {1}, 99, {}, {}); }}, "a tensor of no type");
      expect_fit({.add = [&](GgufWriter* w) { w->AddRawTensor(name, {0}, 0, {}, {}); }}, "a tensor without elements");
    }
    std::vector<std::string> tokens(96, "x");
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = absl::StrCat(text, i);
    for (const int32_t type : {1, 3, 6}) {
      for (const char* model : {"gpt2", "llama"}) {
        expect_fit({.without_keys = {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.model",
                                     "tokenizer.ggml.token_type"},
                    .add =
                        [&](GgufWriter* w) {
                          w->AddStrings("tokenizer.ggml.tokens", tokens);
                          w->AddStrings("tokenizer.ggml.merges", {absl::StrCat(text, " ", text)});
                          w->AddI32s("tokenizer.ggml.token_type", std::vector<int32_t>(96, type));
                          w->AddFloats("tokenizer.ggml.scores", std::vector<float>(96, 0));
                          w->AddString("tokenizer.ggml.model", model);
                        }},
                   "tokens and merges");
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
