// What the sources of CUDA kernels may use (engine/ops/cuda/kernels/cuda_language.h), so that nvcc and the emulation of
// tests/cuda_on_cpu compile the very same text.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Line {
  std::string file;  // relative to the repository root
  int number;
  std::string code;  // without a // comment
};

std::vector<Line> LinesOf(const std::string& file) {
  std::vector<Line> lines;
  std::ifstream in(fs::path(SLUICE_SOURCE_DIR) / file);
  std::string text;
  for (int number = 1; std::getline(in, text); ++number)
    lines.push_back({file, number, text.substr(0, text.find("//"))});
  return lines;
}

std::string Where(const Line& line) { return line.file + ":" + std::to_string(line.number) + ": " + line.code; }

std::vector<std::string> FilesBelow(const std::string& folder, const std::set<std::string>& extensions) {
  const fs::path root = SLUICE_SOURCE_DIR;
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder))
    if (extensions.contains(entry.path().extension().string()))
      files.push_back(fs::relative(entry.path(), root).string());
  return files;
}

std::vector<std::string> KernelSources() {
  std::vector<std::string> files = FilesBelow("engine/ops/cuda/kernels", {".cu", ".cuh", ".h"});
  for (const std::string& file : FilesBelow("tests", {".cu", ".cuh"})) files.push_back(file);
  return files;
}

const char kLanguage[] = "engine/ops/cuda/kernels/cuda_language.h";
const char kPtx[] = "engine/ops/cuda/kernels/ptx.h";

TEST(KernelSources, UseTheLanguageThatBothCompilersHave) {
  struct Ban {
    std::regex pattern;
    const char* instead;
  };
  const Ban bans[] = {
      {std::regex(R"(\b__shared__\b)"), "SLUICE_SHARED, the one way to shared memory"},
      {std::regex(R"(<<<)"), "SLUICE_LAUNCH"},
      {std::regex(R"(\basm\b|\b__asm)"), "a wrapper in ptx.h"},
      {std::regex(R"(\b__activemask\b|\b__shfl(_up|_down|_xor)?\(|\b__ballot\()"),
       "a *_sync function with a known mask"},
      {std::regex(R"(\bcooperative_groups\b)"), "the functions of cuda_language.h"},
      {std::regex(R"(\b__CUDACC__\b|\b__CUDA_ARCH__\b)"), "one text for both compilers"},
      {std::regex(R"(\bprintf\()"), "a test"},
  };
  for (const std::string& file : KernelSources()) {
    if (file == kLanguage || file == kPtx || file == "tests/cuda_on_cpu/misuse_test.cu") continue;
    for (const Line& line : LinesOf(file))
      for (const Ban& ban : bans)
        EXPECT_FALSE(std::regex_search(line.code, ban.pattern)) << Where(line) << "\nuse " << ban.instead;
  }
}

// Everything that a .cu takes in, apart from the language itself: our headers, and of the standard library what is
// plain.
TEST(KernelSources, IncludePlainDataOnly) {
  const std::set<std::string> standard = {"algorithm", "array",  "cmath",    "cstddef", "cstdint",
                                          "cstring",   "limits", "optional", "span",    "type_traits"};
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<std::string> queue = FilesBelow("engine/ops/cuda/kernels", {".cu", ".cuh"});
  for (const std::string& file : FilesBelow("tests", {".cu", ".cuh"})) queue.push_back(file);
  std::set<std::string> seen(queue.begin(), queue.end());
  ASSERT_GT(queue.size(), 5u);
  while (!queue.empty()) {
    const std::string file = queue.back();
    queue.pop_back();
    for (const Line& line : LinesOf(file)) {
      std::smatch match;
      if (!std::regex_search(line.code, match, include)) continue;
      const std::string target = match[2];
      if (match[1] == "<") {
        EXPECT_TRUE(standard.contains(target)) << Where(line);
        continue;
      }
      if (target == kLanguage || target == kPtx || !seen.insert(target).second) continue;
      EXPECT_TRUE(fs::exists(fs::path(SLUICE_SOURCE_DIR) / target)) << Where(line);
      queue.push_back(target);
    }
  }
}

}  // namespace
