// Folders of safetensors: one file or shards by an index, and the indices and links that are refused.
#include "engine/io/safetensors_folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/safetensors_writer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using enum absl::StatusCode;

constexpr char kIndex[] = "model.safetensors.index.json";

class SafetensorsFolderTest : public ::testing::Test {
 protected:
  SafetensorsFolderTest()
      : parent_(fs::path(::testing::TempDir()) /
                absl::StrCat("sluice_folder_", ::testing::UnitTest::GetInstance()->current_test_info()->name(), "_",
                             getpid())),
        folder_(parent_ / "model") {
    fs::remove_all(parent_);
    fs::create_directories(folder_);
  }
  ~SafetensorsFolderTest() override { fs::remove_all(parent_); }

  void Write(const fs::path& path, const std::string& bytes) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // A file of one-byte tensors.
  static std::string File(const std::vector<std::string>& tensors) {
    SafetensorsWriter writer;
    const std::vector<uint8_t> byte = {7};
    for (const std::string& name : tensors) writer.AddTensor(name, TensorType::kU8, {1}, byte);
    return writer.Bytes();
  }
  void Index(const std::string& weight_map) {
    Write(folder_ / kIndex, absl::StrCat(R"({"metadata":{"total_size":2},"weight_map":)", weight_map, "}"));
  }
  void TwoShards() {
    Write(folder_ / "one.safetensors", File({"a", "b"}));
    Write(folder_ / "two.safetensors", File({"c"}));
  }

  absl::StatusOr<std::vector<std::string>> Names() {
    absl::StatusOr<ModelFolder> folder = ModelFolder::Open(folder_.string());
    if (!folder.ok()) return folder.status();
    absl::StatusOr<std::vector<Safetensors>> files = OpenSafetensors(*folder, &warnings_);
    if (!files.ok()) return files.status();
    std::vector<std::string> names;
    for (const Safetensors& file : *files) {
      for (const TensorView& tensor : file.tensors()) names.push_back(tensor.name);
    }
    return names;
  }
  void ExpectRefused(absl::StatusCode code, const std::vector<std::string>& parts) {
    const absl::Status status = Names().status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  void ExpectNames(const std::vector<std::string>& names) {
    const absl::StatusOr<std::vector<std::string>> found = Names();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, names);
  }

  const fs::path parent_, folder_;
  std::vector<std::string> warnings_;
};

TEST_F(SafetensorsFolderTest, OneFile) {
  Write(folder_ / "model.safetensors", File({"x", "y"}));
  ExpectNames({"x", "y"});
}

TEST_F(SafetensorsFolderTest, ShardsByTheIndex) {
  TwoShards();
  Write(folder_ / "stray.safetensors", "not named, not read");
  Index(R"({"c":"two.safetensors","a":"one.safetensors","b":"one.safetensors"})");
  ExpectNames({"a", "b", "c"});
}

TEST_F(SafetensorsFolderTest, TheSingleFileWins) {
  TwoShards();
  Index(R"({"c":"two.safetensors"})");
  Write(folder_ / "model.safetensors", File({"x"}));
  ExpectNames({"x"});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0],
              HasSubstr("model.safetensors: is read, as in Hugging Face's libraries, and the 1 files that "
                        "model.safetensors.index.json names are not: 'two.safetensors'"));
  // An index of the single file says nothing else.
  warnings_.clear();
  Index(R"({"x":"model.safetensors"})");
  ExpectNames({"x"});
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SafetensorsFolderTest, RefusesABadSingleFileBesideShards) {
  TwoShards();
  Index(R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"})");
  Write(folder_ / "model.safetensors", "");
  ExpectRefused(kInvalidArgument, {"model.safetensors: is empty; without it the 2 files that "
                                   "model.safetensors.index.json names would be read"});
  Write(folder_ / "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n");
  ExpectRefused(kInvalidArgument, {"Git LFS pointer", "git lfs pull", "without it the 2 files"});
  Write(folder_ / "model.safetensors", File({"x"}).substr(0, 20));
  ExpectRefused(kInvalidArgument, {"model.safetensors: header length", "without it the 2 files"});
}

TEST_F(SafetensorsFolderTest, ShardsThatAreEmptyOrPointers) {
  TwoShards();
  Index(R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"})");
  Write(folder_ / "two.safetensors", "");
  ExpectRefused(kInvalidArgument, {"two.safetensors: is empty"});
  Write(folder_ / "two.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n");
  ExpectRefused(kInvalidArgument, {"two.safetensors: holds no data but a Git LFS pointer"});
  Index(R"({"a":"pytorch_model-00001-of-00002.bin"})");
  ExpectRefused(kInvalidArgument, {kIndex, "'pytorch_model-00001-of-00002.bin'; expected a file called *.safetensors"});
}

TEST_F(SafetensorsFolderTest, ShardsWithoutAnIndexAreNamed) {
  TwoShards();
  ExpectRefused(kNotFound, {"has neither", "which would say what is in its 'one.safetensors', 'two.safetensors'"});
}

TEST_F(SafetensorsFolderTest, MetadataOfAnyScalarsIsNotRead) {
  TwoShards();
  Write(
      folder_ / kIndex,
      R"({"weight_map":{"c":"two.safetensors"},"metadata":{"a":1,"b":-1,"c":1.5,"d":"x","e":null,"f":true,"g":1e300}})");
  ExpectNames({"c"});
}

TEST_F(SafetensorsFolderTest, NoWeightsAtAll) {
  ExpectRefused(kNotFound, {"model: has neither model.safetensors nor model.safetensors.index.json"});
  Write(folder_ / "pytorch_model.bin", "PK");
  ExpectRefused(kNotFound, {"pytorch_model.bin"});
}

TEST_F(SafetensorsFolderTest, AFolderThatIsNone) {
  EXPECT_EQ(ModelFolder::Open((parent_ / "absent").string()).status().code(), kNotFound);
  Write(parent_ / "file", "x");
  EXPECT_EQ(ModelFolder::Open((parent_ / "file").string()).status().code(), kInvalidArgument);
}

TEST_F(SafetensorsFolderTest, ShardsThatAreNotThereOrNotTrue) {
  TwoShards();
  Index(R"({"a":"one.safetensors","b":"one.safetensors","c":"three.safetensors"})");
  ExpectRefused(kNotFound, {kIndex, "tensor 'c' is said to be in 'three.safetensors'", "no such file"});
  Index(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})");
  ExpectRefused(kInvalidArgument, {"one.safetensors: holds tensor 'b'", "expects in 'two.safetensors'"});
  Index(R"({"a":"one.safetensors"})");
  ExpectRefused(kInvalidArgument, {"one.safetensors: holds tensor 'b'", "does not name"});
  Index(R"({"a":"one.safetensors","b":"one.safetensors","d":"one.safetensors"})");
  ExpectRefused(kInvalidArgument, {kIndex, "tensor 'd' is said to be in 'one.safetensors', which does not hold it"});
  Write(folder_ / "two.safetensors", File({"a", "c"}));  // one tensor in two shards
  Index(R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"})");
  ExpectRefused(kInvalidArgument, {"two.safetensors: holds tensor 'a'", "expects in 'one.safetensors'"});
  Write(folder_ / "two.safetensors", "short");
  Index(R"({"c":"two.safetensors"})");
  ExpectRefused(kInvalidArgument, {"two.safetensors: not a safetensors file"});
}

TEST_F(SafetensorsFolderTest, NamesThatLeaveTheFolder) {
  Write(parent_ / "x.safetensors", File({"a"}));
  Write(folder_ / "sub" / "x.safetensors", File({"a"}));
  for (const std::string& name :
       {std::string("../x.safetensors"), (parent_ / "x.safetensors").string(), std::string("sub/x.safetensors"),
        std::string("./x.safetensors"), std::string(".."), std::string("."), std::string(),
        std::string("..\\\\x.safetensors"), std::string("x\\u0000.safetensors")}) {
    Index(absl::StrCat(R"({"a":")", name, "\"}"));
    ExpectRefused(kInvalidArgument, {kIndex, "tensor 'a' is said to be in", "expected one without folders"});
  }
  Index(R"({"a":"config.json"})");
  Write(folder_ / "config.json", "{}");
  ExpectRefused(kInvalidArgument, {"expected a file called *.safetensors"});
  fs::create_directories(folder_ / "d.safetensors");
  Index(R"({"a":"d.safetensors"})");
  ExpectRefused(kInvalidArgument, {"d.safetensors: is a directory"});
}

TEST_F(SafetensorsFolderTest, LinksMustStayInside) {
  Write(parent_ / "out.safetensors", File({"a"}));
  Write(folder_ / "..data" / "in.safetensors", File({"a"}));
  const fs::path link = folder_ / "model.safetensors";
  for (const char* target : {"..data/in.safetensors", "../model/..data/in.safetensors"}) {
    fs::create_symlink(target, link);
    ExpectNames({"a"});
    fs::remove(link);
  }
  for (const std::string& target : {std::string("../out.safetensors"), (parent_ / "out.safetensors").string()}) {
    fs::create_symlink(target, link);
    ExpectRefused(kInvalidArgument, {"model.safetensors: is a link out of the folder"});
    fs::remove(link);
  }
  fs::create_symlink("gone", link);
  ExpectRefused(kNotFound, {"model.safetensors: is a link that leads nowhere"});
  fs::remove(link);
  fs::create_symlink("model.safetensors", link);
  ExpectRefused(kNotFound, {"model.safetensors: is a link that leads nowhere"});
  fs::remove(link);
  // A folder inside that is itself a link out.
  fs::create_directory_symlink("..", folder_ / "up");
  fs::create_symlink("up/out.safetensors", link);
  ExpectRefused(kInvalidArgument, {"is a link out of the folder"});
  fs::remove(link);
  fs::create_symlink("../out.safetensors", folder_ / kIndex);
  ExpectRefused(kInvalidArgument, {absl::StrCat(kIndex, ": is a link out of the folder")});
}

TEST_F(SafetensorsFolderTest, HuggingFacesCacheKeepsFilesBesideTheFolder) {
  const fs::path repository = parent_ / "models--x", folder = repository / "snapshots" / "0123";
  Write(repository / "blobs" / "cafe", File({"a"}));
  fs::create_directories(folder);
  const auto find = [&]() -> absl::Status {
    absl::StatusOr<ModelFolder> opened = ModelFolder::Open(folder.string());
    return opened.ok() ? opened->Find("model.safetensors").status() : opened.status();
  };
  fs::create_symlink("../../blobs/cafe", folder / "model.safetensors");
  EXPECT_TRUE(find().ok()) << find();
  // But not whatever a folder called blobs leads to, nor what else lies in the repository.
  Write(repository / "refs" / "main", File({"a"}));
  fs::remove(folder / "model.safetensors");
  fs::create_symlink("../../refs/main", folder / "model.safetensors");
  EXPECT_EQ(find().code(), kInvalidArgument);
  Write(parent_ / "elsewhere" / "cafe", File({"a"}));
  fs::remove_all(repository / "blobs");
  fs::create_directory_symlink("../elsewhere", repository / "blobs");
  fs::remove(folder / "model.safetensors");
  fs::create_symlink("../../blobs/cafe", folder / "model.safetensors");
  EXPECT_EQ(find().code(), kInvalidArgument);
}

TEST_F(SafetensorsFolderTest, IndicesThatAreNotWhatTheySeem) {
  TwoShards();
  const std::pair<const char*, const char*> kCases[] = {
      {"[]", "expected a JSON object"},
      {R"({"weight_map":{"c":"two.safetensors"})", "not valid JSON"},
      {"{}", "key 'weight_map' is missing"},
      {R"({"weight_map":[]})", "found a list, expected an object"},
      {R"({"weight_map":"two.safetensors"})", "expected an object"},
      {R"({"weight_map":{"c":2}})", "weight_map: tensor 'c': found 2, expected the name of a file"},
      {R"({"weight_map":{"c":null}})", "tensor 'c': found null"},
      {R"({"weight_map":{"c":["two.safetensors"]}})", "tensor 'c': found a list"},
      {R"({"weight_map":{"c":{"c":"two.safetensors"}}})", "tensor 'c': found an object"},
      {R"({"weight_map":{"c":"two.safetensors","c":"one.safetensors"}})", "weight_map: tensor 'c': occurs twice"},
      {R"({"weight_map":{},"weight_map":{"c":"two.safetensors"}})", "key 'weight_map' occurs twice"},
      {R"({"metadata":{},"metadata":{}})", "key 'metadata' occurs twice"},
      {R"({"metadata":{"a":{}}})", "found an object, expected a number or a string in metadata"},
      {R"({"metadata":{"a":[]}})", "found a list"},
      {R"({"metadata":1})", "found 1, expected an object"},
      {R"({"weights":{}})", "key 'weights' is not known"},
  };
  for (const auto& [text, problem] : kCases) {
    Write(folder_ / kIndex, text);
    ExpectRefused(kInvalidArgument, {kIndex, problem});
  }
}

}  // namespace
}  // namespace sluice
