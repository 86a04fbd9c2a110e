// Good safetensors files: every dtype, shapes, odd places, order and what the format leaves open.
#include "engine/io/safetensors.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "engine/base/dequantize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/safetensors_writer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

absl::Span<const uint8_t> BytesOf(absl::string_view s) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(s.data()), s.size());
}

Safetensors Parse(const std::string& bytes) {
  absl::StatusOr<Safetensors> file = Safetensors::Parse(BytesOf(bytes), "good.safetensors");
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

std::string DataOf(const TensorView& tensor) { return std::string(tensor.data.begin(), tensor.data.end()); }

TEST(Safetensors, TensorsHaveNameTypeShapeAndBytes) {
  const std::string bytes =
      SafetensorsBytes(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[3],"data_offsets":[4,10]},)"
                       R"("a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})",
                       "0123456789");
  const Safetensors file = Parse(bytes);
  EXPECT_EQ(file.name(), "good.safetensors");
  ASSERT_EQ(file.tensors().size(), 2u);
  const TensorView& a = file.tensors()[0];  // by place, not as the header lists them
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, TensorType::kU8);
  EXPECT_THAT(a.shape, ElementsAre(2, 2));
  EXPECT_EQ(DataOf(a), "0123");
  const TensorView& b = file.tensors()[1];
  EXPECT_EQ(b.type, TensorType::kF16);
  EXPECT_THAT(b.shape, ElementsAre(3));
  EXPECT_EQ(DataOf(b), "456789");
  EXPECT_EQ(file.FindTensor("b"), &b);
  EXPECT_EQ(file.FindTensor("c"), nullptr);
  EXPECT_EQ(file.FindTensor("__metadata__"), nullptr);
}

TEST(Safetensors, EveryDtypeOfTheFormat) {
  const std::pair<const char*, int> kBits[] = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
      {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
      {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64}};
  for (const auto& [dtype, bits] : kBits) {
    const int size = 3 * 8 * bits / 8;
    const std::string bytes = SafetensorsBytes(
        absl::StrCat(R"({"t":{"dtype":")", dtype, R"(","shape":[3,8],"data_offsets":[0,)", size, "]}}"),
        std::string(size, 'x'));
    const absl::StatusOr<Safetensors> file = Safetensors::Parse(BytesOf(bytes), dtype);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_STREQ(TensorTypeName(file->tensors()[0].type), dtype);
    EXPECT_EQ(TensorBytes(file->tensors()[0].type, 24), size) << dtype;
  }
}

TEST(Safetensors, ScalarsAndEmptyTensors) {
  const Safetensors file = Parse(SafetensorsBytes(
      R"({"one":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
      R"("first":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
      "abcd"));
  EXPECT_EQ(file.FindTensor("one")->num_elements(), 1);
  EXPECT_THAT(file.FindTensor("one")->shape, IsEmpty());
  EXPECT_EQ(file.FindTensor("none")->num_elements(), 0);
  EXPECT_EQ(file.FindTensor("first")->num_elements(), 0);
}

TEST(Safetensors, AFileWithoutTensors) {
  EXPECT_THAT(Parse(SafetensorsBytes("{}", "")).tensors(), IsEmpty());
  EXPECT_THAT(Parse(SafetensorsBytes(R"({"__metadata__":{}})", "")).tensors(), IsEmpty());
}

TEST(Safetensors, SpacesEscapesAndOtherScriptsInTheHeader) {
  const Safetensors file = Parse(SafetensorsBytes(
      "{\n \"\\u0077\\\"\u6df1\" : {\"shape\" : [ 1 ], \"data_offsets\":[0,1], \"dtype\":\"I8\"}\t}   ", "z"));
  EXPECT_NE(file.FindTensor("w\"\u6df1"), nullptr);
}

TEST(Safetensors, NumbersAtAnyAddressAreRead) {
  for (size_t padding = 0; padding < 8; ++padding) {
    SafetensorsWriter writer;
    writer.padding = padding;
    writer.AddFloats("f32", TensorType::kF32, {3}, {1.5f, -2.0f, 0.25f});
    writer.AddFloats("bf16", TensorType::kBF16, {3}, {1.5f, -2.0f, 0.25f});
    writer.AddFloats("f16", TensorType::kF16, {3}, {1.5f, -2.0f, 0.25f});
    const std::string bytes = writer.Bytes();
    const Safetensors file = Parse(bytes);
    for (const TensorView& tensor : file.tensors()) {
      float values[3];
      DequantizeRow(tensor.type, tensor.data.data(), 3, values);
      EXPECT_THAT(values, ElementsAre(1.5f, -2.0f, 0.25f)) << tensor.name << " " << padding;
    }
  }
}

TEST(Safetensors, TensorsOutliveTheObjectByItsFile) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/sluice_take_", getpid(), ".safetensors");
  std::ofstream(path, std::ios::binary) << SafetensorsBytes(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                                                            "live");
  MappedFile kept;
  TensorView tensor;
  {
    absl::StatusOr<Safetensors> file = Safetensors::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->name(), path);
    tensor = file->tensors()[0];
    kept = (*std::move(file)).TakeFile();
  }
  std::filesystem::remove(path);
  EXPECT_EQ(DataOf(tensor), "live");
  EXPECT_EQ(Safetensors::Open(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
