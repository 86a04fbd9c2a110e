// What a user is told about a path that is no model, before anything is read.
#include "engine/io/model_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ModelPath : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }

  std::string Make(const std::string& name) {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path.string();
  }
  std::string Path(const std::string& name) { return (root_ / name).string(); }

  const fs::path root_ = fs::path(testing::TempDir()) / (std::string("sluice_model_path_") +
                                                         testing::UnitTest::GetInstance()->current_test_info()->name());
};

std::string Told(const std::string& path) { return std::string(CheckModelPath(path).message()); }

TEST_F(ModelPath, FilesAndFoldersWithAConfigPass) {
  EXPECT_TRUE(CheckModelPath(Make("a.gguf")).ok());
  EXPECT_TRUE(CheckModelPath(Make("strange.bin")).ok()) << "its reader says what it is";
  Make("hf/config.json");
  EXPECT_TRUE(CheckModelPath(Path("hf")).ok());
  Make("hf/model.gguf");
  EXPECT_TRUE(CheckModelPath(Path("hf/")).ok());
}

TEST_F(ModelPath, ANameOfAModelIsToldToBeDownloaded) {
  const absl::Status status = CheckModelPath("meta-llama/Llama-3.1-8B-Instruct");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("meta-llama/Llama-3.1-8B-Instruct: there is no such file or folder"),
                    HasSubstr("hf download meta-llama/Llama-3.1-8B-Instruct --local-dir Llama-3.1-8B-Instruct")));
  EXPECT_THAT(Told("https://example.com/a.gguf"), HasSubstr("download it first"));
  EXPECT_THAT(Told("llama3:8b"),
              AllOf(HasSubstr("GGUF file or of a Hugging Face folder"), Not(HasSubstr("hf download"))));
  EXPECT_THAT(Told("/models/llama-3.gguf"), Not(HasSubstr("hf download")));
  EXPECT_THAT(Told("~/models/a.gguf"), HasSubstr("the shell"));
  EXPECT_THAT(Told(""), HasSubstr("empty path"));
}

TEST_F(ModelPath, AMistypedFileGetsTheNearestOne) {
  Make("SmolLM2.Q4_1.gguf");
  EXPECT_THAT(Told(Path("SmolLM2.Q4_0.gguf")), HasSubstr("did you mean 'SmolLM2.Q4_1.gguf'?"));
  EXPECT_THAT(Told(Path("SmolLM2.Q4_1.ggfu")), HasSubstr("did you mean 'SmolLM2.Q4_1.gguf'?"));
  EXPECT_THAT(Told(Path("other")), Not(HasSubstr("did you mean")));
}

TEST_F(ModelPath, AFolderOfGgufsNamesThem) {
  Make("many/b.Q8_0.gguf");
  Make("many/a.Q4_0.gguf");
  Make("many/mmproj-a.gguf");
  Make("many/README.md");
  const absl::Status status = CheckModelPath(Path("many"));
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), Path("many") +
                                  ": no config.json is in the folder; give one of the 2 GGUF files there: "
                                  "'a.Q4_0.gguf', 'b.Q8_0.gguf'");
  for (char c = 'c'; c < 'i'; ++c) Make(std::string("many/") + c + ".gguf");
  EXPECT_THAT(Told(Path("many")), AllOf(HasSubstr("one of the 8"), HasSubstr("'c.gguf', 'd.gguf'")));
}

TEST_F(ModelPath, AFolderWithOneGgufNamesIt) {
  Make("one/a.gguf");
  EXPECT_THAT(Told(Path("one")), HasSubstr("give the GGUF file there: 'a.gguf'"));
  Make("parts/m-00001-of-00002.gguf");
  Make("parts/m-00002-of-00002.gguf");
  EXPECT_THAT(Told(Path("parts")), HasSubstr("give the GGUF file there: 'm-00001-of-00002.gguf'"));
}

TEST_F(ModelPath, OtherFoldersSayWhatIsMissing) {
  fs::create_directories(root_ / "empty");
  EXPECT_THAT(Told(Path("empty")), HasSubstr("no config.json is in the folder, nor a GGUF file"));
  Make("models--a--b/snapshots/0123abc/config.json");
  EXPECT_THAT(Told(Path("models--a--b")), HasSubstr("'snapshots/0123abc'"));
}

}  // namespace
}  // namespace sluice
