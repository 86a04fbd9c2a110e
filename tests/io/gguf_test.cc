#include "engine/io/gguf.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/base/tensor_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/gguf_writer.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

absl::Span<const uint8_t> BytesOf(absl::string_view s) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(s.data()), s.size());
}

// A parsed file together with the bytes it points into.
struct Parsed {
  explicit Parsed(const GgufWriter& writer) : bytes(writer.Bytes()), gguf(Gguf::Parse(BytesOf(bytes), "toy.gguf")) {}
  const Gguf& operator*() const { return *gguf; }
  const Gguf* operator->() const { return &*gguf; }
  std::string bytes;
  absl::StatusOr<Gguf> gguf;
};

void AddEveryKind(GgufWriter* w) {
  w->AddU8("u8", 255);
  w->AddI8("i8", -128);
  w->AddU16("u16", 65535);
  w->AddI16("i16", -32768);
  w->AddU32("u32", 4294967295u);
  w->AddI32("i32", -2147483647 - 1);
  w->AddU64("u64", uint64_t(kMax));
  w->AddI64("i64", kMin);
  w->AddF32("f32", 1e-5f);
  w->AddF64("f64", 0.1);
  w->AddBool("yes", true);
  w->AddBool("no", false);
  w->AddString("text", absl::string_view("a\0\xff", 3));
  w->AddString("empty", "");
  w->AddStrings("texts", {"", "b", "\xf0\x9f\x98\x80"});
  w->AddFloats("floats", {-0.5f, 3.25f});
  w->AddI32s("i32s", {1, -1, 7});
  w->AddU32s("u32s", {4294967295u});
  w->AddI32s("none", {});
}

TEST(Gguf, ReadsBackMetadataOfEveryType) {
  GgufWriter w;
  AddEveryKind(&w);
  const Parsed f(w);
  ASSERT_TRUE(f.gguf.ok()) << f.gguf.status();
  EXPECT_EQ(f->version(), 3u);
  EXPECT_EQ(f->name(), "toy.gguf");
  EXPECT_EQ(*f->GetUint("u8"), 255u);
  EXPECT_EQ(*f->GetInt("i8", kMin, kMax), -128);
  EXPECT_EQ(*f->GetUint("u16"), 65535u);
  EXPECT_EQ(*f->GetInt("i16", kMin, kMax), -32768);
  EXPECT_EQ(*f->GetUint("u32"), 4294967295u);
  EXPECT_EQ(*f->GetInt("i32", kMin, kMax), -2147483648);
  EXPECT_EQ(*f->GetUint("u64"), uint64_t(kMax));
  EXPECT_EQ(*f->GetInt("i64", kMin, kMax), kMin);
  EXPECT_EQ(*f->GetFloat("f32"), 1e-5f);
  EXPECT_EQ(*f->GetFloat("f64"), 0.1f);
  EXPECT_TRUE(*f->GetBool("yes"));
  EXPECT_FALSE(*f->GetBool("no"));
  EXPECT_EQ(*f->GetString("text"), absl::string_view("a\0\xff", 3));
  EXPECT_EQ(*f->GetString("empty"), "");
  EXPECT_THAT(*f->GetStringArray("texts"), ElementsAre("", "b", "\xf0\x9f\x98\x80"));
  EXPECT_THAT(*f->GetFloatArray("floats"), ElementsAre(-0.5f, 3.25f));
  EXPECT_THAT(*f->GetIntArray("i32s"), ElementsAre(1, -1, 7));
  EXPECT_THAT(*f->GetIntArray("u32s"), ElementsAre(4294967295));
  EXPECT_THAT(*f->GetIntArray("none"), ElementsAre());
  EXPECT_TRUE(f->Has("none"));
  EXPECT_FALSE(f->Has("absent"));
  EXPECT_TRUE(f->tensors().empty());
}

TEST(Gguf, FindGivesTheValueOrNothing) {
  GgufWriter w;
  AddEveryKind(&w);
  const Parsed f(w);
  ASSERT_TRUE(f.gguf.ok()) << f.gguf.status();
  EXPECT_EQ(*f->FindUint("u8"), 255u);
  EXPECT_EQ(*f->FindInt("i8", kMin, kMax), -128);
  EXPECT_EQ(*f->FindFloat("f32"), 1e-5f);
  EXPECT_EQ(*f->FindBool("no"), false);
  EXPECT_EQ(*f->FindString("empty"), "");
  EXPECT_EQ((*f->FindIntArray("i32s"))->size(), 3u);
  EXPECT_EQ(*f->FindUint("absent"), std::nullopt);
  EXPECT_EQ(*f->FindInt("absent", 0, 1), std::nullopt);
  EXPECT_EQ(*f->FindFloat("absent"), std::nullopt);
  EXPECT_EQ(*f->FindBool("absent"), std::nullopt);
  EXPECT_EQ(*f->FindString("absent"), std::nullopt);
  EXPECT_EQ(*f->FindIntArray("absent"), std::nullopt);
}

// Each getter, asked for each key: exactly the listed keys are of its type, and all others are refused by name, not
// misread. Find refuses them too.
TEST(Gguf, EveryGetterRefusesEveryOtherTypeNamingFileKeyAndTypes) {
  GgufWriter w;
  AddEveryKind(&w);
  const Parsed f(w);
  ASSERT_TRUE(f.gguf.ok()) << f.gguf.status();
  const std::vector<std::string> keys = {"u8",  "i8",  "u16", "i16",  "u32",   "i32",    "u64", "i64",
                                         "f32", "f64", "yes", "text", "texts", "floats", "i32s"};
  struct Getter {
    std::string accepts, expected;
    std::function<absl::Status(absl::string_view)> get, find;
  };
  const Getter getters[] = {
      {"u8 i8 u16 i16 u32 i32 u64 i64", "expected an integer",
       [&](absl::string_view key) { return f->GetInt(key, kMin, kMax).status(); },
       [&](absl::string_view key) { return f->FindInt(key, kMin, kMax).status(); }},
      {"f32 f64", "expected f32 or f64", [&](absl::string_view key) { return f->GetFloat(key).status(); },
       [&](absl::string_view key) { return f->FindFloat(key).status(); }},
      {"yes", "expected bool", [&](absl::string_view key) { return f->GetBool(key).status(); },
       [&](absl::string_view key) { return f->FindBool(key).status(); }},
      {"text", "expected string", [&](absl::string_view key) { return f->GetString(key).status(); },
       [&](absl::string_view key) { return f->FindString(key).status(); }},
      {"texts", "expected an array of strings", [&](absl::string_view key) { return f->GetStringArray(key).status(); },
       nullptr},
      {"floats", "expected an array of f32", [&](absl::string_view key) { return f->GetFloatArray(key).status(); },
       nullptr},
      {"i32s", "expected an array of integers", [&](absl::string_view key) { return f->GetIntArray(key).status(); },
       [&](absl::string_view key) { return f->FindIntArray(key).status(); }},
  };
  const std::map<std::string, std::string> type_of = {{"yes", "bool"},
                                                      {"text", "string"},
                                                      {"texts", "an array of 3 string"},
                                                      {"floats", "an array of 2 f32"},
                                                      {"i32s", "an array of 3 i32"}};
  for (const Getter& getter : getters) {
    for (const std::string& key : keys) {
      const bool accepted =
          absl::StrCat(" ", getter.accepts, " ").find(absl::StrCat(" ", key, " ")) != std::string::npos;
      for (const absl::Status& status : {getter.get(key), (getter.find ? getter.find : getter.get)(key)}) {
        if (accepted) {
          EXPECT_TRUE(status.ok()) << status;
          continue;
        }
        const std::string type = type_of.contains(key) ? type_of.at(key) : key;
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key << " " << getter.expected;
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("toy.gguf: offset "), HasSubstr(absl::StrCat("key '", key, "' is ", type, ";")),
                          HasSubstr(getter.expected)));
      }
    }
    const absl::Status missing = getter.get("absent");
    EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(missing.message()),
                AllOf(HasSubstr("toy.gguf: key 'absent' is missing"), HasSubstr(getter.expected)));
  }
}

TEST(Gguf, IntegersOutOfRangeAreRefusedWithValueAndRange) {
  GgufWriter w;
  w.AddU32("llama.attention.head_count", 0);
  w.AddI32("minus", -1);
  w.AddU64("huge", uint64_t(1) << 63);
  const Parsed f(w);
  ASSERT_TRUE(f.gguf.ok()) << f.gguf.status();
  const auto heads = f->GetInt("llama.attention.head_count", 1, 4096);
  EXPECT_EQ(heads.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(heads.status().message()),
              AllOf(HasSubstr("key 'llama.attention.head_count' is 0; expected 1 to 4096"), HasSubstr("toy.gguf")));
  EXPECT_EQ(*f->GetInt("llama.attention.head_count", 0, 0), 0);
  EXPECT_THAT(std::string(f->GetUint("minus").status().message()), HasSubstr("'minus' is -1; expected 0 to 92233"));
  EXPECT_THAT(std::string(f->GetInt("huge", kMin, kMax).status().message()), HasSubstr("is 9223372036854775808;"));
  EXPECT_EQ(f->FindInt("minus", 0, 5).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Gguf, PerLayerValuesComeFromScalarOrArray) {
  GgufWriter w;
  w.AddU32("scalar", 3);
  w.AddI32s("array", {4, 0, 2});
  const Parsed f(w);
  ASSERT_TRUE(f.gguf.ok()) << f.gguf.status();
  EXPECT_THAT(*f->GetIntPerLayer("scalar", 4, 1, 8), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(*f->GetIntPerLayer("array", 3, 0, 8), ElementsAre(4, 0, 2));
  EXPECT_THAT(std::string(f->GetIntPerLayer("array", 4, 0, 8).status().message()),
              HasSubstr("key 'array' is an array of 3; expected one for each of 4 layers"));
  EXPECT_THAT(std::string(f->GetIntPerLayer("array", 3, 1, 8).status().message()),
              HasSubstr("key 'array' element 1 is 0; expected 1 to 8"));
  EXPECT_EQ(f->GetIntPerLayer("absent", 3, 1, 8).status().code(), absl::StatusCode::kNotFound);
  // A hostile block_count must not become an allocation.
  EXPECT_EQ(f->GetIntPerLayer("scalar", int64_t(1) << 40, 1, 8).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(f->GetIntPerLayer("scalar", -1, 1, 8).status().code(), absl::StatusCode::kInvalidArgument);
}

std::vector<uint8_t> SomeBytes(int64_t n, int seed) {
  std::vector<uint8_t> bytes(n);
  for (int64_t i = 0; i < n; ++i) bytes[i] = uint8_t(i * 7 + seed);
  return bytes;
}

TEST(Gguf, ReadsBackTensorsOfEveryTypeWithShapesOutermostFirst) {
  std::vector<TensorType> types;
  for (const TensorFormat& row : kTensorFormats) {
    if (row.gguf_id >= 0) types.push_back(row.type);
  }
  for (const uint32_t alignment : {0u, 8u, 64u, 4096u}) {
    GgufWriter w;
    if (alignment != 0) w.SetAlignment(alignment);
    for (TensorType type : types) {
      const int64_t row = GetTensorTypeInfo(type).block_elems * 2;
      w.AddTensor(TensorTypeName(type), type, {3, row}, SomeBytes(TensorBytes(type, 3 * row), int(type)));
    }
    const Parsed f(w);
    ASSERT_TRUE(f.gguf.ok()) << f.gguf.status();
    ASSERT_EQ(f->tensors().size(), std::size(types));
    for (size_t i = 0; i < std::size(types); ++i) {
      const TensorView& tensor = f->tensors()[i];
      EXPECT_EQ(tensor.name, TensorTypeName(types[i]));
      EXPECT_EQ(tensor.type, types[i]);
      EXPECT_THAT(tensor.shape, ElementsAre(3, GetTensorTypeInfo(types[i]).block_elems * 2));
      EXPECT_EQ(tensor.data, absl::MakeConstSpan(SomeBytes(tensor.data.size(), int(types[i]))));
      EXPECT_EQ(int64_t(tensor.data.size()), TensorBytes(types[i], tensor.num_elements()));
      EXPECT_EQ((reinterpret_cast<const char*>(tensor.data.data()) - f.bytes.data()) % (alignment ? alignment : 32), 0);
      EXPECT_EQ(f->FindTensor(tensor.name), &tensor);
    }
    EXPECT_EQ(f->FindTensor("absent"), nullptr);
  }
}

TEST(Gguf, AcceptsVersionTwoFourDimensionsAndAnyOrder) {
  GgufWriter w;
  w.version = 2;
  const std::vector<uint8_t> bytes = SomeBytes(96, 0);
  w.AddRawTensor("late", {2, 1, 3, 4}, 0, 32, bytes);  // in GGUF's order
  w.AddRawTensor("early", {8}, 0, 0, SomeBytes(32, 0));
  const Parsed f(w);
  ASSERT_TRUE(f.gguf.ok()) << f.gguf.status();
  EXPECT_EQ(f->version(), 2u);
  EXPECT_THAT(f->FindTensor("late")->shape, ElementsAre(4, 3, 1, 2));
  EXPECT_EQ(f->FindTensor("late")->data.data() - f->FindTensor("early")->data.data(), 32);
}

TEST(Gguf, AFileOfOneSplitIsAWholeFile) {
  GgufWriter w;
  w.AddU16("split.count", 1);
  EXPECT_TRUE(Parsed(w).gguf.ok());
}

TEST(Gguf, OpenMapsAFileAndViewsSurviveAMove) {
  GgufWriter w;
  w.AddString("general.architecture", "llama");
  w.AddF32Tensor("w", {2, 2}, {1, 2, 3, 4});
  const std::string path = absl::StrCat(testing::TempDir(), "/move.gguf");
  w.WriteTo(path);
  absl::StatusOr<Gguf> opened = Gguf::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->name(), path);
  const absl::string_view architecture = *opened->GetString("general.architecture");
  const Gguf moved = *std::move(opened);
  EXPECT_EQ(architecture, "llama");
  ASSERT_NE(moved.FindTensor("w"), nullptr);
  EXPECT_EQ(moved.FindTensor("w")->data.size(), 16u);
  std::remove(path.c_str());
}

TEST(Gguf, OpenNamesThePathOfAFileThatIsNotThere) {
  const auto missing = Gguf::Open("/nonexistent/model.gguf");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nonexistent/model.gguf"));
}

// The model `deploy/quickstart` fetches, where it is cached.
TEST(Gguf, ReadsTheRealModel) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string path = absl::StrCat(cache != nullptr ? cache : absl::StrCat(home != nullptr ? home : "", "/.cache"),
                                        "/sluice/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::ifstream(path).good()) GTEST_SKIP() << path << " is not there";
  const auto gguf = Gguf::Open(path);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(*gguf->GetString("general.architecture"), "llama");
  EXPECT_EQ(*gguf->GetUint("llama.block_count"), 30u);
  EXPECT_THAT(*gguf->GetIntPerLayer("llama.attention.head_count_kv", 30, 1, 9), ::testing::Each(3));
  EXPECT_EQ(*gguf->GetFloat("llama.rope.freq_base"), 100000.0f);
  EXPECT_EQ(gguf->GetStringArray("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ(gguf->GetStringArray("tokenizer.ggml.merges")->size(), 48900u);
  std::map<TensorType, int> count;
  int64_t bytes = 0;
  for (const TensorView& tensor : gguf->tensors()) {
    ++count[tensor.type];
    bytes += int64_t(tensor.data.size());
  }
  EXPECT_EQ(count,
            (std::map<TensorType, int>{{TensorType::kF32, 61}, {TensorType::kQ4_1, 210}, {TensorType::kQ8_0, 1}}));
  EXPECT_GT(bytes, 96'000'000);
  const TensorView* embedding = gguf->FindTensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_THAT(embedding->shape, ElementsAre(49152, 576));
}

}  // namespace
}  // namespace sluice
