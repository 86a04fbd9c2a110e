// Writes the made-up tokenizers of tests/goldens/tokenizer/reduced into the folder given: those that are short enough.
#include <cstdio>
#include <filesystem>

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  constexpr std::uintmax_t kMaxBytes = 8192;
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_hf_tokenizer_seeds FOLDER\n");
    return 2;
  }
  for (const fs::directory_entry& entry :
       fs::directory_iterator(SLUICE_SOURCE_DIR "/tests/goldens/tokenizer/reduced")) {
    if (entry.path().extension() != ".json" || entry.file_size() > kMaxBytes) continue;
    fs::copy_file(entry.path(), fs::path(argv[1]) / entry.path().filename(), fs::copy_options::overwrite_existing);
  }
  return 0;
}
