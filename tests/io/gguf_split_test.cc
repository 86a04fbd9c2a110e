// GGUF models in several files.
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/io/gguf.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/gguf_writer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using enum absl::StatusCode;

class GgufSplitTest : public ::testing::Test {
 protected:
  GgufSplitTest() : folder_(fs::path(::testing::TempDir()) / absl::StrCat("sluice_split_", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~GgufSplitTest() override { fs::remove_all(folder_); }

  std::string Path(int part, int count = 3) {
    return (folder_ / absl::StrFormat("toy-%05d-of-%05d.gguf", part + 1, count)).string();
  }
  // A part with one tensor of one number, which is the part's.
  void Write(int part, const std::string& tensor, int says_part, int says_count) {
    GgufWriter w;
    if (part == 0) w.AddString("general.architecture", "llama");
    w.AddU16("split.no", uint16_t(says_part));
    w.AddU16("split.count", uint16_t(says_count));
    w.AddI32("split.tensors.count", 3);
    w.AddF32Tensor(tensor, {1}, {float(part)});
    w.WriteTo(Path(part));
  }
  void WriteAll() {
    Write(0, "a", 0, 3);
    Write(1, "b", 1, 3);
    Write(2, "c", 2, 3);
  }
  void ExpectRefused(absl::StatusCode code, const std::string& part) {
    const absl::Status status = Gguf::Open(Path(0)).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  const fs::path folder_;
};

TEST_F(GgufSplitTest, AllPartsAreOneModel) {
  WriteAll();
  std::vector<MappedFile> files;
  std::vector<TensorView> tensors;
  {
    absl::StatusOr<Gguf> gguf = Gguf::Open(Path(0));
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    EXPECT_EQ(*gguf->GetString("general.architecture"), "llama");
    ASSERT_EQ(gguf->tensors().size(), 3u);
    for (const TensorView& tensor : gguf->tensors()) EXPECT_EQ(gguf->FindTensor(tensor.name), &tensor);
    tensors.assign(gguf->tensors().begin(), gguf->tensors().end());
    files = (*std::move(gguf)).TakeFiles();
  }
  EXPECT_EQ(files.size(), 3u);
  for (int part = 0; part < 3; ++part) {
    float value;
    std::memcpy(&value, tensors[part].data.data(), sizeof(value));
    EXPECT_EQ(value, float(part));
    EXPECT_EQ(tensors[part].name, std::string(1, char('a' + part)));
  }
}

TEST_F(GgufSplitTest, PartsThatAreMissingOrNotWhatTheySay) {
  WriteAll();
  fs::remove(Path(2));
  ExpectRefused(kNotFound, "toy-00003-of-00003.gguf: cannot open");
  Write(2, "c", 1, 3);
  ExpectRefused(kInvalidArgument, "toy-00003-of-00003.gguf: offset");
  ExpectRefused(kInvalidArgument, "key 'split.no' is 1; expected 2 to 2");
  Write(2, "c", 2, 4);
  ExpectRefused(kInvalidArgument, "key 'split.count' is 4; expected 3 to 3");
  Write(2, "a", 2, 3);
  ExpectRefused(kInvalidArgument, "toy-00003-of-00003.gguf: tensor 'a' is in an earlier part of the model too");
  GgufWriter other;
  other.AddF32Tensor("c", {1}, {1});
  other.WriteTo(Path(2));
  ExpectRefused(kNotFound, "key 'split.no' is missing");
  GgufWriter two;
  two.AddU16("split.no", 2);
  two.AddU16("split.count", 3);
  two.AddF32Tensor("c", {1}, {1});
  two.AddF32Tensor("d", {1}, {1});
  two.WriteTo(Path(2));
  ExpectRefused(kInvalidArgument, "key 'split.tensors.count' is 3; expected 4 to 4");
}

TEST_F(GgufSplitTest, OnlyTheFirstPartUnderItsOwnNameOpensAll) {
  WriteAll();
  for (const std::string& path : {Path(1), (folder_ / "renamed.gguf").string()}) {
    if (!fs::exists(path)) fs::copy_file(Path(0), path);
    const absl::Status status = Gguf::Open(path).status();
    EXPECT_EQ(status.code(), kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected the first, called *-00001-of-00003.gguf"));
  }
  Write(0, "a", 1, 3);
  ExpectRefused(kInvalidArgument, "key 'split.no' is 1; expected 0 to 0");
  Write(0, "a", 0, 65535);
  ExpectRefused(kInvalidArgument, "expected the first, called *-00001-of-65535.gguf");
}

}  // namespace
}  // namespace sluice
