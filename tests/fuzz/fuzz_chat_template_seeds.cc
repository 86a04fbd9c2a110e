// Templates to start fuzzing from: the snippets of the golden file, one for each feature.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/text/chat_goldens.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const sluice::FeatureGoldens goldens = sluice::LoadFeatureGoldens();
  for (const sluice::FeatureCase& c : goldens.cases) {
    std::FILE* file = std::fopen(absl::StrCat(argv[1], "/", c.name).c_str(), "wb");
    if (file == nullptr) return 1;
    const std::string seed = absl::StrCat(c.source, "\x1E", " a B\n", "\x1E", goldens.inputs.kwargs_json);
    std::fwrite(seed.data(), 1, seed.size(), file);
    std::fclose(file);
  }
  return 0;
}
