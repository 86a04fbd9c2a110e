#include "engine/io/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() {
    std::string name = absl::StrCat(testing::TempDir(), "/mapped_XXXXXX");
    close(mkstemp(name.data()));
    path_ = name;
  }
  ~MappedFileTest() override { unlink(path_.c_str()); }

  void Write(const std::string& text) { std::ofstream(path_) << text; }

  std::string path_;
};

std::string TextOf(const MappedFile& file) { return std::string(file.bytes().begin(), file.bytes().end()); }

TEST_F(MappedFileTest, HoldsTheBytesOfTheFile) {
  Write("hello");
  const auto file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(TextOf(*file), "hello");
}

TEST_F(MappedFileTest, OutlivesItsNameAndMoves) {
  Write("hello");
  auto opened = MappedFile::Open(path_);
  ASSERT_TRUE(opened.ok());
  unlink(path_.c_str());
  const uint8_t* data = opened->bytes().data();
  MappedFile moved = *std::move(opened);
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes().data(), data);
  EXPECT_EQ(TextOf(assigned), "hello");
}

TEST_F(MappedFileTest, AMissingFileIsNotFoundByName) {
  const auto file = MappedFile::Open("/nonexistent/file");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/nonexistent/file: cannot open"));
}

TEST_F(MappedFileTest, ADirectoryIsRefused) {
  const auto file = MappedFile::Open("/tmp");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file.status().message(), "/tmp: is a directory; expected a file");
}

TEST_F(MappedFileTest, AnEmptyFileIsRefused) {
  const auto file = MappedFile::Open(path_);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file.status().message(), absl::StrCat(path_, ": is empty"));
}

TEST_F(MappedFileTest, APipeIsRefusedWithoutWaitingForItsWriter) {
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const auto file = MappedFile::Open(path_);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), AllOf(HasSubstr(path_), HasSubstr("not a regular file")));
}

// In a child, because root may read everything and must first become somebody else.
TEST_F(MappedFileTest, AFileThatMayNotBeReadIsPermissionDenied) {
  Write("secret");
  ASSERT_EQ(chmod(path_.c_str(), 0), 0);
  EXPECT_EXIT(
      {
        if (geteuid() == 0 && seteuid(65534) != 0) std::_Exit(2);
        const auto file = MappedFile::Open(path_);
        std::_Exit(absl::IsPermissionDenied(file.status()) &&
                           std::string(file.status().message()).find(path_) != std::string::npos
                       ? 0
                       : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice
