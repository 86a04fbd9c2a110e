// Damaged and hostile GGUF files: each is refused with a typed error that names file, place and cause, and whatever the
// file claims, no single allocation outgrows the file. Published attacks are named where a case is one of theirs.
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"
#include "engine/io/gguf.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/gguf_writer.h"

namespace {

// The largest single allocation and the sum of all since the last reset. The tests here run in one thread.
size_t g_largest = 0;
size_t g_total = 0;

void* CountedAlloc(size_t size) {
  g_largest = std::max(g_largest, size);
  g_total += size;
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

constexpr size_t kSlack = 4096;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

absl::Span<const uint8_t> BytesOf(absl::string_view s) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(s.data()), s.size());
}

// Parses a copy that ends exactly at its allocation's end, so that AddressSanitizer sees any read beyond it.
absl::Status ParseStatus(const std::string& file) {
  const std::vector<uint8_t> exact(file.begin(), file.end());
  g_largest = g_total = 0;
  const absl::Status status = Gguf::Parse(exact, "evil.gguf").status();
  EXPECT_LE(g_largest, file.size() + kSlack);
  EXPECT_LE(g_total, 4 * file.size() + 4 * kSlack);
  return status;
}

void ExpectRefused(const std::string& file, absl::StatusCode code, const std::vector<std::string>& parts) {
  const absl::Status status = ParseStatus(file);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("evil.gguf: "));
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

void ExpectRefused(const GgufWriter& w, absl::StatusCode code, const std::vector<std::string>& parts) {
  ExpectRefused(w.Bytes(), code, parts);
}

std::vector<uint8_t> Zeros(size_t n) { return std::vector<uint8_t>(n); }

// One good F32 tensor of 8 and a few keys, to which a case adds its damage.
GgufWriter Good() {
  GgufWriter w;
  w.AddString("general.architecture", "llama");
  w.AddU32("llama.block_count", 2);
  return w;
}

TEST(GgufHostile, TheFileTheCasesStartFromIsGood) {
  GgufWriter w = Good();
  w.AddTensor("t", TensorType::kF32, {8}, Zeros(32));
  EXPECT_TRUE(ParseStatus(w.Bytes()).ok());
}

// Header.

TEST(GgufHostile, NotGguf) {
  ExpectRefused("GGML....", kInvalid, {"offset 0", "not a GGUF file: it starts with 'GGML'"});
  ExpectRefused("GG", kInvalid, {"it starts with 'GG'"});
  ExpectRefused("", kInvalid, {"not a GGUF file"});
  ExpectRefused("\x7f...1234", kInvalid, {"'\\x7f...'"});
}

TEST(GgufHostile, OnlyTheMagic) {  // CVE-2024-39720
  ExpectRefused("GGUF", kInvalid, {"offset 4", "version", "the file ends here; expected 4 more bytes"});
}

TEST(GgufHostile, VersionsThatAreNotSupported) {
  for (uint32_t version : {0u, 1u, 4u, 0xffffffffu}) {
    GgufWriter w = Good();
    w.version = version;
    ExpectRefused(w, kUnimplemented, {"offset 4", absl::StrCat("version is ", version, "; expected 2 or 3")});
  }
}

TEST(GgufHostile, BigEndian) {
  GgufWriter w = Good();
  w.version = 3u << 24;
  ExpectRefused(w, kUnimplemented, {"offset 4", "big-endian"});
}

TEST(GgufHostile, TensorCountBeyondTheFile) {  // TALOS: counts that wrap the size of an allocation
  for (uint64_t count : {~0ull, 1ull << 63, 1ull << 61, (1ull << 60) + 1, 100'000ull}) {
    GgufWriter w = Good();
    w.tensor_count = count;
    ExpectRefused(w, kInvalid, {"offset 8", absl::StrCat("tensor count is ", count), "hold at most"});
  }
}

TEST(GgufHostile, KeyCountBeyondTheFile) {
  for (uint64_t count : {~0ull, 1ull << 63, 1ull << 61, (1ull << 60) + 1, 100'000ull}) {
    GgufWriter w = Good();
    w.key_count = count;
    ExpectRefused(w, kInvalid, {"offset 16", absl::StrCat("key count is ", count), "hold at most"});
  }
}

TEST(GgufHostile, CountsThatFitTheFileButAreNotThere) {
  GgufWriter w = Good();
  w.AddString("padding", std::string(1 << 20, '\0'));
  w.tensor_count = 20'000;
  ExpectRefused(w, kInvalid, {"name of a tensor", "the file ends here"});
  w.tensor_count = 0;
  w.key_count = 20'000;
  ExpectRefused(w, kInvalid, {"name of a key", "the file ends here"});
}

// Keys.

TEST(GgufHostile, KeyNameBeyondTheFileOrTooLong) {
  for (uint64_t size : {~0ull, 1ull << 63, 65'536ull}) {
    GgufWriter w;
    w.key_count = 1;
    ExpectRefused(w.Bytes() + GgufBytes(size) + "abcdefgh", kInvalid,
                  {"offset 24", "name of a key", absl::StrCat(size), "at most 65535"});
  }
  GgufWriter w;
  w.key_count = 1;
  ExpectRefused(w.Bytes() + GgufBytes(uint64_t(9)) + "abcdefgh", kInvalid, {"offset 24", "9, but 8 bytes are left"});
}

TEST(GgufHostile, EmptyKeyName) {  // llama.cpp PR 24263
  GgufWriter w;
  w.AddU32("", 1);
  ExpectRefused(w, kInvalid, {"offset 24", "name of a key is empty"});
}

TEST(GgufHostile, KeyTwice) {
  GgufWriter w = Good();
  w.AddU32("llama.block_count", 3);
  ExpectRefused(w, kInvalid, {"key 'llama.block_count' occurs twice"});
}

TEST(GgufHostile, KeyNamesAreEscapedInErrors) {
  GgufWriter w;
  w.AddRaw(std::string("\x1b[31m\n\0", 7) + std::string(1000, 'k'), 99, "");
  const absl::Status status = ParseStatus(w.Bytes());
  EXPECT_THAT(std::string(status.message()), HasSubstr("key '\\x1b[31m\\n\\x00kkk"));
  EXPECT_LT(status.message().size(), 300u);
}

TEST(GgufHostile, UnknownValueType) {
  for (uint32_t type : {13u, 255u, 0xffffffffu}) {
    GgufWriter w;
    w.AddRaw("k", type, GgufBytes(uint64_t(0)));
    ExpectRefused(w, kInvalid, {"offset 33", "key 'k': value type is ", absl::StrCat(type), "expected 0 to 12"});
  }
}

TEST(GgufHostile, ValueCutShort) {
  GgufWriter w;
  w.AddRaw("k", uint32_t(GgufValueType::kU64), "1234567");
  ExpectRefused(w, kInvalid, {"offset 37", "key 'k': u64 takes 8 bytes, but 7 are left"});
}

TEST(GgufHostile, BoolThatIsNeither) {
  GgufWriter w;
  w.AddRaw("k", uint32_t(GgufValueType::kBool), "\x02");
  ExpectRefused(w, kInvalid, {"offset 37", "key 'k': bool is 2; expected 0 or 1"});
}

TEST(GgufHostile, StringBeyondTheFileOrTooLong) {
  for (uint64_t size : {~0ull, 1ull << 63, (64ull << 20) + 1}) {
    GgufWriter w;
    w.AddRaw("k", uint32_t(GgufValueType::kString), GgufBytes(size) + "short");
    ExpectRefused(w, kInvalid, {"offset 37", "key 'k'", absl::StrCat("length is ", size), "at most 67108864"});
  }
  GgufWriter w;
  w.AddRaw("k", uint32_t(GgufValueType::kString), GgufBytes(uint64_t(6)) + "short");
  ExpectRefused(w, kInvalid, {"offset 37", "key 'k'", "length is 6, but 5 bytes are left"});
}

TEST(GgufHostile, ArrayCountBeyondTheFile) {  // gguf-py PR 27188, ollama 17042: 2^63 elements
  for (GgufValueType element : {GgufValueType::kU8, GgufValueType::kF32, GgufValueType::kString, GgufValueType::kU64}) {
    for (uint64_t count : {~0ull, 1ull << 63, (1ull << 61) + 1, 100'000'001ull}) {
      GgufWriter w;
      w.AddRaw("k", uint32_t(GgufValueType::kArray), GgufBytes(uint32_t(element)) + GgufBytes(count) + "12345678");
      ExpectRefused(w, kInvalid,
                    {"offset 41", "key 'k'", absl::StrCat("array of ", count), "at most 100000000 are allowed"});
    }
    GgufWriter w;
    w.AddRaw("k", uint32_t(GgufValueType::kArray),
             GgufBytes(uint32_t(element)) + GgufBytes(uint64_t(99'999'999)) + "12345678");
    ExpectRefused(w, kInvalid, {"offset 41", "key 'k'", "array of 99999999", "the 8 bytes left hold at most"});
  }
}

TEST(GgufHostile, StringInAnArrayBeyondTheFile) {
  GgufWriter w;
  w.AddRaw("k", uint32_t(GgufValueType::kArray),
           GgufBytes(uint32_t(GgufValueType::kString)) + GgufBytes(uint64_t(2)) + GgufString("ok") +
               GgufBytes(uint64_t(1) << 20));
  ExpectRefused(w, kInvalid, {"offset 59", "key 'k'", "length is 1048576, but 0 bytes are left"});
}

TEST(GgufHostile, ArrayOfArraysOrOfAnUnknownType) {
  GgufWriter w;
  w.AddRaw("k", uint32_t(GgufValueType::kArray),
           GgufBytes(uint32_t(GgufValueType::kArray)) + GgufBytes(uint64_t(1)) + GgufBytes(uint64_t(0)));
  ExpectRefused(w, kInvalid, {"offset 37", "key 'k'", "array of arrays"});
  GgufWriter u;
  u.AddRaw("k", uint32_t(GgufValueType::kArray), GgufBytes(uint32_t(13)) + GgufBytes(uint64_t(1)) + "12345678");
  ExpectRefused(u, kInvalid, {"offset 37", "key 'k'", "value type is 13"});
}

TEST(GgufHostile, SplitFiles) {
  GgufWriter w = Good();
  w.AddU16("split.count", 3);
  ExpectRefused(w, kUnimplemented, {"'split.count' is 3", "expected a whole one"});
  GgufWriter u = Good();
  u.AddString("split.count", "3");
  ExpectRefused(u, kInvalid, {"'split.count' is string; expected an integer"});
}

// What a reader of metadata may be fooled into.

TEST(GgufHostile, ScoresOfAnotherTypeAreNotReadAsFloats) {  // llama.cpp PR 26690
  GgufWriter w;
  w.AddRaw("tokenizer.ggml.scores", uint32_t(GgufValueType::kArray),
           GgufBytes(uint32_t(GgufValueType::kU8)) + GgufBytes(uint64_t(3)) + "abc");
  const std::string bytes = w.Bytes();
  const auto gguf = Gguf::Parse(BytesOf(bytes), "evil.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const auto scores = gguf->GetFloatArray("tokenizer.ggml.scores");
  EXPECT_EQ(scores.status().code(), kInvalid);
  EXPECT_THAT(std::string(scores.status().message()),
              HasSubstr("key 'tokenizer.ggml.scores' is an array of 3 u8; expected an array of f32"));
}

TEST(GgufHostile, ZeroHeadsAndHugeLayerCountsAreOutOfRange) {  // CVE-2024-8063
  GgufWriter w;
  w.AddU32("llama.attention.head_count", 0);
  w.AddU32("llama.block_count", 0xffffffff);
  const std::string bytes = w.Bytes();
  const auto gguf = Gguf::Parse(BytesOf(bytes), "evil.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  g_largest = 0;
  EXPECT_EQ(gguf->GetInt("llama.attention.head_count", 1, 65536).status().code(), kInvalid);
  EXPECT_EQ(gguf->GetIntPerLayer("llama.attention.head_count", 0xffffffff, 0, 65536).status().code(), kInvalid);
  EXPECT_LE(g_largest, kSlack);
}

// Alignment. CVE-2025-0317: zero divides.

TEST(GgufHostile, AlignmentThatIsNoPowerOfTwoOrOutOfRange) {
  for (uint32_t alignment : {0u, 1u, 4u, 3u, 24u, 33u, 1u << 21, 1u << 31, 0xffffffffu}) {
    GgufWriter w;
    w.AddU32("general.alignment", alignment);
    w.AddTensor("t", TensorType::kF32, {8}, Zeros(32));
    ExpectRefused(
        w, kInvalid,
        {"offset 53", absl::StrCat("key 'general.alignment' is ", alignment), "power of two from 8 to 1048576"});
  }
}

TEST(GgufHostile, AlignmentOfAnotherType) {
  GgufWriter w;
  w.AddU64("general.alignment", 32);
  ExpectRefused(w, kInvalid, {"offset 53", "key 'general.alignment' is u64; expected u32"});
  GgufWriter s;
  s.AddString("general.alignment", "");
  ExpectRefused(s, kInvalid, {"key 'general.alignment' is string; expected u32"});
}

// Tensor infos.

TEST(GgufHostile, TensorNamesEmptyTooLongOrTwice) {
  GgufWriter w;
  w.AddTensor("", TensorType::kF32, {8}, Zeros(32));
  ExpectRefused(w, kInvalid, {"offset 24", "name of a tensor is empty"});
  GgufWriter l;
  l.AddTensor(std::string(64, 'n'), TensorType::kF32, {8}, Zeros(32));
  ExpectRefused(l, kInvalid, {"offset 24", "name of a tensor", "length is 64; at most 63"});
  GgufWriter t;
  t.AddTensor("same", TensorType::kF32, {8}, Zeros(32));
  t.AddTensor("same", TensorType::kF32, {8}, Zeros(32));
  ExpectRefused(t, kInvalid, {"offset 60", "tensor 'same' occurs twice"});
}

TEST(GgufHostile, TooFewOrTooManyDimensions) {
  for (size_t dims : {0, 5, 1000}) {
    GgufWriter w;
    w.AddRawTensor("t", std::vector<uint64_t>(dims, 1), 0, 0, Zeros(32));
    ExpectRefused(w, kInvalid, {"offset 33", absl::StrCat("tensor 't' has ", dims, " dimensions; expected 1 to 4")});
  }
}

TEST(GgufHostile, ZeroDimension) {  // llama.cpp PR 24263
  GgufWriter w;
  w.AddRawTensor("t", {8, 0}, 0, 0, Zeros(32));
  ExpectRefused(w, kInvalid, {"offset 45", "tensor 't': dimension 1 is 0; expected at least 1"});
}

TEST(GgufHostile, NumberOfElementsOverflows) {
  const std::vector<std::vector<uint64_t>> shapes = {
      {1ull << 32, 1ull << 32},  // wraps to exactly 0
      {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16},
      {(1ull << 32) + 1, (1ull << 32) + 1},  // wraps to something small
      {~0ull},
      {1ull << 63},
      {2, 1ull << 62},
  };
  for (const auto& shape : shapes) {
    GgufWriter w;
    w.AddRawTensor("t", shape, 0, 0, Zeros(32));
    ExpectRefused(w, kInvalid, {"tensor 't': dimension", "the number of elements overflows"});
  }
}

TEST(GgufHostile, NumberOfBytesOverflows) {
  for (uint64_t dim : {1ull << 62, (1ull << 62) + 8, (1ull << 63) - 1}) {
    GgufWriter w;
    w.AddRawTensor("t", {dim}, 0, 0, Zeros(32));
    ExpectRefused(w, kInvalid, {"offset 24", "tensor 't': the size of ", "elements of F32 overflows"});
  }
}

TEST(GgufHostile, PaddedSizesWhoseSumWraps) {  // CVE-2025-53630
  // Sizes 2^63 and 2^63 - 32 and 64: their sum wraps to 32, and every offset agrees with the wrapped running sum.
  GgufWriter w;
  w.AddRawTensor("a", {1ull << 61}, 0, 0, Zeros(32));
  w.AddRawTensor("b", {(1ull << 61) - 8}, 0, 1ull << 63, {});
  w.AddRawTensor("c", {16}, 0, ~0ull - 31, {});
  ExpectRefused(w, kInvalid, {"tensor 'a': 9223372036854775808 bytes at data offset 0, but the data section has 32"});
  GgufWriter v;
  v.AddRawTensor("a", {(1ull << 42) + 1}, 0, 0, Zeros(32));
  ExpectRefused(v, kInvalid, {"tensor 'a': 17592186044420 bytes at data offset 0"});
}

TEST(GgufHostile, DataBeyondTheFile) {  // CVE-2026-7482
  struct Case {
    uint64_t dim, offset;
  };
  for (const Case& c : {Case{9, 0}, Case{8, 32}, Case{8, 1ull << 40}, Case{8, ~0ull - 31}, Case{1, 64}}) {
    GgufWriter w;
    w.AddRawTensor("good", {8}, 0, 0, Zeros(32));
    w.AddRawTensor("bad", {c.dim}, 0, c.offset, {});
    ExpectRefused(w, kInvalid,
                  {"offset 60", absl::StrCat("tensor 'bad': ", c.dim * 4, " bytes at data offset ", c.offset,
                                             ", but the data section has 32")});
  }
}

TEST(GgufHostile, NoDataSectionAtAll) {
  GgufWriter w;
  w.AddRawTensor("t", {8}, 0, 0, {});
  const std::string file = w.Bytes();
  ExpectRefused(file, kInvalid, {"tensor 't': 32 bytes at data offset 0, but the data section has 0"});
  ExpectRefused(file.substr(0, 57), kInvalid, {"offset 57", "expected tensor data from offset 64"});
}

TEST(GgufHostile, OffsetThatIsNotAligned) {
  GgufWriter w;
  w.SetAlignment(64);
  w.AddRawTensor("t", {8}, 0, 32, Zeros(128));
  ExpectRefused(w, kInvalid, {"tensor 't': data offset is 32; expected a multiple of 64"});
}

TEST(GgufHostile, TensorsThatOverlap) {
  for (uint64_t offset : {0, 32}) {
    GgufWriter w;
    w.AddRawTensor("a", {16}, 0, 0, Zeros(64));
    w.AddRawTensor("b", {8}, 0, offset, {});
    const std::string message(ParseStatus(w.Bytes()).message());
    EXPECT_THAT(message, HasSubstr("overlaps tensor"));
    EXPECT_THAT(message, HasSubstr("'a'"));
    EXPECT_THAT(message, HasSubstr("'b'"));
  }
}

TEST(GgufHostile, TensorTypesThatAreUnknownOrNotSupported) {
  for (uint32_t id : {31u, 38u, 99u, 0xffffffffu}) {
    GgufWriter w;
    w.AddRawTensor("t", {256}, id, 0, Zeros(256));
    ExpectRefused(w, kInvalid, {"offset 45", "tensor 't': type id ", absl::StrCat(id), "unknown", "Q4_1"});
  }
  GgufWriter w;
  w.AddRawTensor("t", {256}, 23, 0, Zeros(256));
  ExpectRefused(w, kUnimplemented, {"offset 45", "tensor 't': type IQ4_XS is not supported; expected one of F32 F16"});
}

TEST(GgufHostile, RowsThatAreNotWholeBlocks) {
  GgufWriter w;
  w.AddRawTensor("t", {576, 2}, GgufTensorTypeId(TensorType::kQ4_K), 0, Zeros(1024));
  ExpectRefused(w, kInvalid, {"offset 24", "tensor 't': rows of 576 elements; Q4_K needs a multiple of 256"});
  GgufWriter u;  // enough elements in all, but not per row
  u.AddRawTensor("t", {16, 2}, GgufTensorTypeId(TensorType::kQ8_0), 0, Zeros(64));
  ExpectRefused(u, kInvalid, {"tensor 't': rows of 16 elements; Q8_0 needs a multiple of 32"});
}

// Everything at once.

std::string FileWithEverything() {
  GgufWriter w = Good();
  w.SetAlignment(16);
  w.AddStrings("tokens", {"<s>", "a", ""});
  w.AddFloats("scores", {0, 1, 2});
  w.AddBool("flag", true);
  w.AddF64("eps", 1e-6);
  w.AddTensor("a", TensorType::kQ4_1, {2, 32}, Zeros(40));
  w.AddTensor("b", TensorType::kF32, {3}, Zeros(12));
  return w.Bytes();
}

TEST(GgufHostile, EveryPrefixOfAFileIsRefused) {
  const std::string file = FileWithEverything();
  ASSERT_TRUE(ParseStatus(file).ok());
  // The last four bytes are padding behind the last tensor, which need not be there.
  ASSERT_TRUE(ParseStatus(file.substr(0, file.size() - 4)).ok());
  for (size_t size = 0; size < file.size() - 4; ++size) {
    EXPECT_EQ(ParseStatus(file.substr(0, size)).code(), kInvalid) << size;
  }
}

TEST(GgufHostile, NoByteOfAFileCanBeSetToDoHarm) {
  const std::string file = FileWithEverything();
  for (size_t i = 0; i < file.size(); ++i) {
    for (uint8_t byte : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = file;
      changed[i] = char(byte);
      ParseStatus(changed).IgnoreError();  // checks the allocations
    }
  }
}

TEST(GgufHostile, OpeningCopiesNoStringArray) {
  GgufWriter w;
  w.AddStrings("tokenizer.ggml.tokens", std::vector<std::string>(100'000, "token"));
  const std::string file = w.Bytes();
  g_largest = g_total = 0;
  const auto gguf = Gguf::Parse(BytesOf(file), "many.gguf");
  EXPECT_LE(g_total, kSlack);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  g_largest = g_total = 0;
  const auto tokens = gguf->GetStringArray("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens->size(), 100'000u);
  EXPECT_LE(g_total, 2 * file.size());
}

}  // namespace
}  // namespace sluice
