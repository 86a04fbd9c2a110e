// Dependencies point one way (README, "The parts"): read from the includes themselves.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Include {
  std::string file;  // relative to the repository root
  int line;
  std::string target;  // as written
};

bool IsSource(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".h", ".cc", ".cu", ".cuh"};
  return kExtensions.contains(path.extension().string());
}

std::vector<Include> IncludesBelow(const std::string& folder) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  const fs::path root = SLUICE_SOURCE_DIR;
  std::vector<Include> includes;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    if (!entry.is_regular_file() || !IsSource(entry.path())) continue;
    std::ifstream in(entry.path());
    std::string text;
    for (int line = 1; std::getline(in, text); ++line) {
      std::smatch match;
      if (std::regex_search(text, match, kInclude)) {
        includes.push_back({fs::relative(entry.path(), root).string(), line, match[1]});
      }
    }
  }
  return includes;
}

bool StartsWith(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

std::string Where(const Include& include) {
  return include.file + ":" + std::to_string(include.line) + " includes " + include.target;
}

// engine/<room>/... -> room; files directly in engine/ -> "engine".
std::string EngineRoom(const std::string& path) {
  const std::string rest = path.substr(std::string("engine/").size());
  const size_t slash = rest.find('/');
  return slash == std::string::npos ? "engine" : rest.substr(0, slash);
}

TEST(IncludeRules, EngineKnowsNoNetworkAndNoMetricsLibrary) {
  for (const Include& include : IncludesBelow("engine")) {
    for (const char* prefix : {"grpc", "google/", "prometheus/", "boost/asio", "boost/beast", "server/", "client/",
                               "proto/", "sluice/v1/"}) {
      EXPECT_FALSE(StartsWith(include.target, prefix)) << Where(include);
    }
  }
}

TEST(IncludeRules, EngineRoomsDependOneWay) {
  // A room may include itself, and these. request.h and what it speaks of are shared with the facade by scheduler and runtime.
  const std::map<std::string, std::set<std::string>> allowed = {
      {"base", {}},
      {"io", {"base"}},
      {"text", {"base"}},
      {"ops", {"base"}},
      {"model", {"base", "io", "text", "ops"}},
      {"scheduler", {"base"}},
      {"runtime", {"base", "io", "text", "ops", "model", "scheduler"}},
      {"engine", {"base", "scheduler", "runtime", "model", "ops", "text", "io"}},
  };
  const std::set<std::string> of_the_facade = {"engine/request.h", "engine/error_reason.h", "engine/engine_options.h",
                                               "engine/token_constraint.h"};
  for (const Include& include : IncludesBelow("engine")) {
    if (!StartsWith(include.target, "engine/")) continue;
    const std::string from = EngineRoom(include.file), to = EngineRoom(include.target);
    ASSERT_TRUE(allowed.contains(from)) << include.file << " is in a room that this test does not know";
    if (from == to || allowed.at(from).contains(to)) continue;
    EXPECT_TRUE((from == "scheduler" || from == "runtime") && of_the_facade.contains(include.target)) << Where(include);
  }
}

TEST(IncludeRules, CudaSourcesIncludePlainDataOnly) {
  for (const Include& include : IncludesBelow("engine")) {
    const bool cuda = include.file.ends_with(".cu") || include.file.ends_with(".cuh");
    if (cuda)
      EXPECT_FALSE(StartsWith(include.target, "absl/") || StartsWith(include.target, "nlohmann/")) << Where(include);
  }
}

TEST(IncludeRules, ClientTalksProtoAndOnlyInspectReadsModels) {
  const std::set<std::string> rooms = {"model", "io", "base"};
  for (const Include& include : IncludesBelow("client")) {
    EXPECT_FALSE(StartsWith(include.target, "server/")) << Where(include);
    if (!StartsWith(include.target, "engine/")) continue;
    const bool inspect = fs::path(include.file).filename().string().find("inspect") != std::string::npos;
    // What both programs' command lines are made with.
    const bool flags = include.target == "engine/base/nearest_name.h" || include.target == "engine/base/wrap_text.h";
    EXPECT_TRUE(flags || (inspect && rooms.contains(EngineRoom(include.target)))) << Where(include);
  }
}

TEST(IncludeRules, ProtoKnowsNeitherServerNorClientNorEngine) {
  for (const Include& include : IncludesBelow("proto")) {
    for (const char* prefix : {"grpc", "server/", "client/", "engine/"}) {
      EXPECT_FALSE(StartsWith(include.target, prefix)) << Where(include);
    }
  }
}

TEST(IncludeRules, ServerDoesNotKnowTheClient) {
  for (const Include& include : IncludesBelow("server"))
    EXPECT_FALSE(StartsWith(include.target, "client/")) << Where(include);
}

// What `file` includes, directly or by way of files of ours; `seen` are the files that have been read.
void Collect(const std::map<std::string, std::vector<Include>>& by_file, const std::string& file,
             std::set<std::string>* seen, std::vector<Include>* found) {
  const auto includes = by_file.find(file);
  if (includes == by_file.end() || !seen->insert(file).second) return;
  for (const Include& include : includes->second) {
    found->push_back(include);
    Collect(by_file, include.target, seen, found);
  }
}

TEST(IncludeRules, CallsKnowNoTransport) {
  std::map<std::string, std::vector<Include>> by_file;
  for (const char* folder : {"server", "engine", "proto"}) {
    for (const Include& include : IncludesBelow(folder)) by_file[include.file].push_back(include);
  }
  std::set<std::string> seen;
  std::vector<Include> found;
  for (const auto& [file, includes] : by_file) {
    if (StartsWith(file, "server/calls/")) Collect(by_file, file, &seen, &found);
  }
  EXPECT_GT(seen.size(), 40u) << "the rule holds vacuously if nothing is read";
  for (const Include& include : found) {
    EXPECT_FALSE(StartsWith(include.target, "grpc") || include.target.ends_with(".grpc.pb.h") ||
                 StartsWith(include.target, "boost/"))
        << Where(include);
  }
}

TEST(IncludeRules, TheReaderSeesIncludes) {
  // The rules above hold vacuously if nothing is read.
  EXPECT_GT(IncludesBelow("engine").size(), 50u);
}

}  // namespace
