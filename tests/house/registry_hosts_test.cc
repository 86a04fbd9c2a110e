// Packages come through their registries' own clients (apt-get, pip, npm, go), which know where their registry is and take a
// mirror's address from the machine's configuration. A registry's address in the tree would go past that.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

// In two parts each, so that this file does not name what it looks for.
struct Host {
  const char* name;
  const char* domain;
};
constexpr Host kRegistryHosts[] = {
    {"npmjs", "org"}, {"npmjs", "com"}, {"yarnpkg", "com"}, {"npmmirror", "com"},
    {"pypi", "org"}, {"pypi.python", "org"}, {"pythonhosted", "org"}, {"anaconda", "org"}, {"download.pytorch", "org"},
    {"proxy.golang", "org"}, {"sum.golang", "org"}, {"goproxy", "io"}, {"goproxy", "cn"}, {"crates", "io"},
    {"deb.debian", "org"}, {"ftp.debian", "org"}, {"security.debian", "org"}, {"snapshot.debian", "org"},
    {"archive.ubuntu", "com"}, {"security.ubuntu", "com"}, {"apt.llvm", "org"}, {"deb.nodesource", "com"},
    {"maven", "org"}, {"maven.apache", "org"}, {"rubygems", "org"}, {"nuget", "org"}, {"packagist", "org"},
    {"developer.download.nvidia", "com"}, {"pypi.nvidia", "com"},
};

bool IsHostCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-'; }

// The registry hosts, or hosts below one, that a text names.
std::vector<std::string> RegistryHostsIn(std::string_view text) {
  std::vector<std::string> found;
  for (const Host& host : kRegistryHosts) {
    const std::string whole = std::string(host.name) + "." + host.domain;
    for (size_t at = text.find(whole); at != std::string_view::npos; at = text.find(whole, at + 1)) {
      const size_t end = at + whole.size();
      if (at > 0 && IsHostCharacter(text[at - 1])) continue;
      if (end < text.size() && IsHostCharacter(text[end])) continue;
      found.push_back(whole);
      break;
    }
  }
  return found;
}

// Everything of the tree but what git, builds and caches leave in it.
std::vector<fs::path> FilesOfTheTree() {
  static const std::set<std::string> kLeftOut = {".git", "build", ".cache", ".venv", "__pycache__"};
  std::vector<fs::path> files;
  for (auto at = fs::recursive_directory_iterator(SLUICE_SOURCE_DIR); at != fs::recursive_directory_iterator(); ++at) {
    if (kLeftOut.contains(at->path().filename().string())) {
      if (at->is_directory()) at.disable_recursion_pending();
      continue;
    }
    if (at->is_regular_file()) files.push_back(at->path());
  }
  return files;
}

TEST(RegistryHosts, NoneIsNamedAnywhereInTheTree) {
  const std::vector<fs::path> files = FilesOfTheTree();
  EXPECT_GT(files.size(), 1000u);  // or the rule below holds vacuously
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (const std::string& host : RegistryHostsIn(text))
      ADD_FAILURE() << fs::relative(file, SLUICE_SOURCE_DIR).string() << " names " << host
                    << "\nuse the registry's client, which knows its address";
  }
}

TEST(RegistryHosts, AreFoundWithinAddressesAndOnTheirOwn) {
  const std::string npm = std::string("npmjs") + ".org", debian = std::string("deb.debian") + ".org";
  EXPECT_EQ(RegistryHostsIn("curl https://registry." + npm + "/a/-/a-1.tgz").size(), 1u);
  EXPECT_EQ(RegistryHostsIn("deb http://" + debian + "/debian bookworm main").size(), 1u);
  EXPECT_EQ(RegistryHostsIn(npm).size(), 1u);
  EXPECT_EQ(RegistryHostsIn(npm + " and " + debian + ":80").size(), 2u);
}

TEST(RegistryHosts, WordsThatOnlyResembleOneAreNot) {
  const std::string name = "crates", jsr = "jsr";
  EXPECT_TRUE(RegistryHostsIn("my" + name + ".io").empty());
  EXPECT_TRUE(RegistryHostsIn(jsr + ".iov").empty());
  EXPECT_TRUE(RegistryHostsIn(name + ".into_iter()").empty());
  EXPECT_TRUE(RegistryHostsIn("registry.cc, pip, npm, github.com/a/b").empty());
}

}  // namespace
