// Damaged and hostile safetensors files: each is refused with a typed error that names file, tensor and cause, and
// whatever the file claims, no allocation outgrows it by much. Published bugs of other loaders are named.
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/io/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/safetensors_writer.h"

namespace {

// The largest single allocation since the last reset. The tests here run in one thread.
size_t g_largest = 0;

void* CountedAlloc(size_t size) {
  g_largest = std::max(g_largest, size);
  if (void* p = std::malloc(size)) return p;
  std::abort();
}

}  // namespace

void* operator new(size_t size) { return CountedAlloc(size); }
void* operator new[](size_t size) { return CountedAlloc(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// Parses a copy that ends exactly at its allocation's end, so that AddressSanitizer sees any read beyond it.
absl::Status ParseStatus(const std::string& file) {
  const std::vector<uint8_t> exact(file.begin(), file.end());
  g_largest = 0;
  const absl::Status status = Safetensors::Parse(exact, "evil.safetensors").status();
  EXPECT_LE(g_largest, 8 * file.size() + 4096);
  return status;
}

void ExpectRefused(const std::string& file, absl::StatusCode code, const std::vector<std::string>& parts) {
  const absl::Status status = ParseStatus(file);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("evil.safetensors: "));
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

// A header with one tensor 't', whose parts a case replaces.
std::string One(absl::string_view dtype, absl::string_view shape, absl::string_view offsets) {
  return absl::StrCat(R"({"t":{"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
}
std::string OneF32(absl::string_view shape, absl::string_view offsets) { return One("\"F32\"", shape, offsets); }

TEST(SafetensorsHostile, TheFileTheCasesStartFromIsGood) {
  EXPECT_TRUE(ParseStatus(SafetensorsBytes(OneF32("[1]", "[0,4]"), "data")).ok());
}

// The length of the header.

TEST(SafetensorsHostile, FilesTooShortForALength) {
  for (size_t size = 0; size < 8; ++size) {
    ExpectRefused(std::string(size, '\2'), kInvalid, {absl::StrCat("it has ", size, " bytes")});
  }
  ExpectRefused(std::string(8, '\0'), kInvalid, {"offset 8: expected a JSON object"});
}

TEST(SafetensorsHostile, HeaderLengthsThatWrap) {  // fastllm 712: length + 5 wrapped
  for (uint64_t length : {~0ull, ~0ull - 4, ~0ull - 7, 1ull << 63, (1ull << 63) - 1, 1ull << 32}) {
    ExpectRefused(SafetensorsBytes("{}", "", length), kInvalid, {absl::StrCat("header length is ", length)});
  }
}

TEST(SafetensorsHostile, HeaderLongerThanTheFileOrTheLimit) {
  ExpectRefused(SafetensorsBytes("{}", "", 3), kInvalid, {"header length is 3; expected at most 2, what is left"});
  std::string large = SafetensorsBytes("{}", "", 100'000'001);
  large.resize(100'000'100, ' ');
  ExpectRefused(large, kInvalid, {"header length is 100000001; expected at most 100000000"});
}

// The header's text.

TEST(SafetensorsHostile, HeadersThatAreNoJson) {
  for (const char* header : {"", " {}", "[]", "null", "\"{}\"", "\xef\xbb\xbf{}", "PK\3\4"}) {
    ExpectRefused(SafetensorsBytes(header, ""), kInvalid, {"offset 8: expected a JSON object"});
  }
  for (const char* header : {"{", "{}}", "{} x", "{\"a\"", "{\"a\":}", "{'a':1}", "{,}", "{\"a\":{},}", "{} // end",
                             "{\"\\ud800\":{}}", "{\"a\":01}", "{\"a\":NaN}"}) {
    ExpectRefused(SafetensorsBytes(header, ""), kInvalid, {""});
  }
  ExpectRefused(SafetensorsBytes("{\"\xff\":{}}", ""), kInvalid, {"not valid JSON in UTF-8"});
  ExpectRefused(SafetensorsBytes(std::string("{}\0garbage", 10), ""), kInvalid, {"offset 10", "zero byte"});
  ExpectRefused(SafetensorsBytes("{\"t\":{\"dtype\":\"F32\"", "", 12), kInvalid, {"offset "});
}

TEST(SafetensorsHostile, NestingDoesNotRecurse) {
  std::string deep = "{\"t\":{\"shape\":" + std::string(1 << 20, '[');
  ExpectRefused(SafetensorsBytes(deep, ""), kInvalid, {"tensor 't': found a list, expected integers"});
  deep = "{\"__metadata__\":{\"a\":" + std::string(1 << 20, '{');
  ExpectRefused(SafetensorsBytes(deep, ""), kInvalid, {"__metadata__: found an object, expected a string"});
  deep.clear();
  for (int i = 0; i < 100'000; ++i) deep += "{\"t\":";
  ExpectRefused(SafetensorsBytes(deep, ""), kInvalid, {"tensor 't'"});
}

TEST(SafetensorsHostile, WhatBelongsNowhere) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"t":1})", "tensor 't': found 1, expected an object"},
      {R"({"t":null})", "tensor 't': found null, expected an object"},
      {R"({"t":[]})", "tensor 't': found a list, expected an object"},
      {R"({"t":"x"})", "tensor 't': found 'x', expected an object"},
      {R"({"__metadata__":"pt"})", "__metadata__: found 'pt', expected an object"},
      {R"({"__metadata__":{"a":1}})", "__metadata__: found 1, expected a string"},
      {R"({"__metadata__":{"a":[]}})", "__metadata__: found a list, expected a string"},
      {R"({"t":{"dtype":{}}})", "tensor 't': found an object"},
      {R"({"t":{"shape":{}}})", "tensor 't': found an object"},
      {R"({"t":{"shape":true}})", "tensor 't': found true, expected a list as shape"},
      {R"({"t":{"kind":1}})", "tensor 't': key 'kind' is not known"},
  };
  for (const auto& [header, problem] : kCases) ExpectRefused(SafetensorsBytes(header, ""), kInvalid, {problem});
}

TEST(SafetensorsHostile, WhatOccursTwice) {
  const std::string t = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::string other = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
  ExpectRefused(SafetensorsBytes("{" + t + "," + other + "}", "ab"), kInvalid, {"tensor 't' occurs twice"});
  const std::string empty = R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  ExpectRefused(SafetensorsBytes("{" + empty + "," + empty + "}", ""), kInvalid, {"tensor 't' occurs twice"});
  ExpectRefused(SafetensorsBytes(R"({"__metadata__":{},"__metadata__":{}})", ""), kInvalid,
                {"__metadata__: occurs twice"});
  ExpectRefused(SafetensorsBytes(R"({"__metadata__":{"a":"","a":""}})", ""), kInvalid, {"key 'a' occurs twice"});
  for (const char* key : {"dtype\":\"U8\"", "shape\":[1]", "data_offsets\":[0,1]"}) {
    std::string doubled = "{" + t + "}";
    doubled.insert(doubled.size() - 2, absl::StrCat(",\"", key));
    ExpectRefused(SafetensorsBytes(doubled, "a"), kInvalid, {"tensor 't'", "occurs twice"});
  }
}

TEST(SafetensorsHostile, WhatIsMissing) {
  for (const char* key : {R"("dtype":"U8",)", R"("shape":[1],)", R"(,"data_offsets":[0,1])"}) {
    const std::string header =
        absl::StrReplaceAll(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", {{key, ""}});
    ExpectRefused(SafetensorsBytes(header, "a"), kInvalid, {"tensor 't'", "is missing"});
  }
  ExpectRefused(SafetensorsBytes(R"({"t":{}})", ""), kInvalid, {"is missing"});
}

TEST(SafetensorsHostile, TooManyTensorsAndDimensions) {
  std::string header = "{";
  for (int i = 0; i <= 1'000'000; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"", i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  }
  header += "}";
  ExpectRefused(SafetensorsBytes(header, ""), kInvalid, {"more than 1000000 tensors"});
  ExpectRefused(SafetensorsBytes(OneF32("[1,1,1,1,1,1,1,1,1]", "[0,4]"), "data"), kInvalid,
                {"tensor 't'", "more than 8 dimensions"});
  EXPECT_TRUE(ParseStatus(SafetensorsBytes(OneF32("[1,1,1,1,1,1,1,1]", "[0,4]"), "data")).ok());
}

// Types and numbers.

TEST(SafetensorsHostile, UnknownDtypesDoNotSkipTheChecks) {  // imp 1603
  for (const char* dtype : {"\"F128\"", "\"f32\"", "\"\"", "\"F8_E4M3FNUZ\"", "\"Q4_0\"", "\"MXFP4\""}) {
    ExpectRefused(SafetensorsBytes(One(dtype, "[1000000]", "[0,4]"), "data"), kUnimplemented,
                  {"tensor 't'", "dtype", "is not supported; expected one of F32"});
  }
  ExpectRefused(SafetensorsBytes(One("7", "[1]", "[0,4]"), "data"), kInvalid, {"found 7, expected a string as dtype"});
}

TEST(SafetensorsHostile, NumbersThatAreNotSizes) {
  for (const char* bad : {"-1", "-0", "1.0", "1e2", "9223372036854775808", "18446744073709551616",
                          "100000000000000000000000000000000", "\"1\"", "null", "true"}) {
    ExpectRefused(SafetensorsBytes(OneF32(absl::StrCat("[", bad, "]"), "[0,4]"), "data"), kInvalid,
                  {"tensor 't'", "expected integers from 0 to 2^63 - 1 in shape"});
    ExpectRefused(SafetensorsBytes(OneF32("[1]", absl::StrCat("[0,", bad, "]")), "data"), kInvalid,
                  {"tensor 't'", "in data_offsets"});
  }
  ExpectRefused(SafetensorsBytes(OneF32("[1]", "[0,1e400]"), "data"), kInvalid, {""});
}

TEST(SafetensorsHostile, MoreElementsThanBytes) {  // mlx 3363: 1000 x 1000 floats in four bytes
  ExpectRefused(SafetensorsBytes(OneF32("[1000,1000]", "[0,4]"), "data"), kInvalid,
                {"tensor 't': shape [1000, 1000] of F32 takes 4000000 bytes, but data_offsets [0, 4] hold 4"});
  // ds4 543: scales of fp8 blocks, fewer than the shape says
  ExpectRefused(SafetensorsBytes(One("\"F8_E8M0\"", "[56,16]", "[0,4]"), "data"), kInvalid, {"takes 896 bytes"});
  ExpectRefused(SafetensorsBytes(OneF32("[]", "[0,0]"), ""), kInvalid, {"shape [] of F32 takes 4 bytes"});
  ExpectRefused(SafetensorsBytes(OneF32("[0]", "[0,4]"), "data"), kInvalid, {"takes 0 bytes"});
  ExpectRefused(SafetensorsBytes(One("\"U8\"", "[3]", "[0,4]"), "data"), kInvalid, {"takes 3 bytes"});
}

TEST(SafetensorsHostile, ProductsThatWrap) {  // LiteRT 9255, stable-diffusion.cpp 1876: to exactly 0
  for (const char* shape :
       {"[4294967296,4294967296]", "[4611686018427387904,4]", "[9223372036854775807,9223372036854775807]",
        "[4611686018427387904]", "[2305843009213693952,2,2]", "[2147483648,2147483648,2]", "[0,4294967296,4294967296]",
        "[4294967296,4294967296,0]"}) {
    ExpectRefused(SafetensorsBytes(OneF32(shape, "[0,0]"), ""), kInvalid,
                  {"tensor 't'", "no whole or too large a number of bytes"});
  }
}

TEST(SafetensorsHostile, ElementsThatEndInsideAByte) {
  ExpectRefused(SafetensorsBytes(One("\"F4\"", "[3]", "[0,2]"), "ab"), kInvalid, {"no whole"});
  ExpectRefused(SafetensorsBytes(One("\"F6_E2M3\"", "[2]", "[0,2]"), "ab"), kInvalid, {"no whole"});
  EXPECT_TRUE(ParseStatus(SafetensorsBytes(One("\"F4\"", "[2,2]", "[0,2]"), "ab")).ok());
}

TEST(SafetensorsHostile, OffsetsThatAreNoRange) {  // fastllm 712
  for (const char* offsets : {"[]", "[0]", "[4]"}) {
    ExpectRefused(SafetensorsBytes(OneF32("[1]", offsets), "data"), kInvalid,
                  {"tensor 't'", absl::StrCat("data_offsets is ", offsets, "; expected 2 numbers")});
  }
  ExpectRefused(SafetensorsBytes(OneF32("[1]", "[0,4,8]"), "data"), kInvalid, {"more than 2 numbers"});
  for (const char* offsets : {"[4, 0]", "[1, 5]", "[0, 5]", "[5, 9]", "[8, 12]",
                              "[9223372036854775803, 9223372036854775807]", "[0, 9223372036854775807]"}) {
    ExpectRefused(SafetensorsBytes(OneF32("[1]", offsets), "data"), kInvalid,
                  {"tensor 't'", absl::StrCat("data_offsets is ", offsets, "; expected a range within the 4 bytes")});
  }
}

// The layout of the data.

std::string Two(absl::string_view first, absl::string_view second) {
  return absl::StrCat(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)", first,
                      R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)", second, "}}");
}

TEST(SafetensorsHostile, HolesOverlapsAndTrailingBytes) {
  EXPECT_TRUE(ParseStatus(SafetensorsBytes(Two("[2,4]", "[0,2]"), "abcd")).ok());
  ExpectRefused(SafetensorsBytes(Two("[1,3]", "[3,5]"), "abcde"), kInvalid,
                {"tensor 'a': data starts at 1; expected it at 0"});
  ExpectRefused(SafetensorsBytes(Two("[0,2]", "[3,5]"), "abcde"), kInvalid,
                {"tensor 'b': data starts at 3; expected it at 2"});
  ExpectRefused(SafetensorsBytes(Two("[0,2]", "[1,3]"), "abc"), kInvalid, {"tensor 'b': data starts at 1"});
  ExpectRefused(SafetensorsBytes(Two("[0,2]", "[0,2]"), "ab"), kInvalid, {"data starts at 0; expected it at 2"});
  ExpectRefused(SafetensorsBytes(Two("[0,2]", "[2,4]"), "abcde"), kInvalid,
                {"the tensors end at 4 of the data; expected them to fill its 5 bytes"});
  ExpectRefused(SafetensorsBytes("{}", "a"), kInvalid, {"the tensors end at 0"});
}

TEST(SafetensorsHostile, EveryTruncationOfAGoodFileIsAnError) {
  SafetensorsWriter writer;
  writer.AddFloats("w", TensorType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.AddFloats("v", TensorType::kBF16, {3}, {1, 2, 3});
  const std::string bytes = writer.Bytes();
  ASSERT_TRUE(ParseStatus(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(ParseStatus(bytes.substr(0, size)).ok()) << size;
  EXPECT_FALSE(ParseStatus(bytes + "x").ok());
}

TEST(SafetensorsHostile, EveryChangedByteIsGoodOrATypedError) {
  SafetensorsWriter writer;
  writer.AddFloats("w", TensorType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.AddFloats("v", TensorType::kBF16, {3}, {1, 2, 3});
  const std::string good = writer.Bytes();
  for (size_t i = 0; i < good.size(); ++i) {
    for (char byte : {'\0', '\1', '0', '9', '-', '"', '{', '}', '[', ']', ',', '\x7f', '\xff'}) {
      std::string bytes = good;
      bytes[i] = byte;
      const absl::StatusCode code = ParseStatus(bytes).code();
      EXPECT_TRUE(code == absl::StatusCode::kOk || code == kInvalid || code == kUnimplemented) << i;
    }
  }
}

}  // namespace
}  // namespace sluice
