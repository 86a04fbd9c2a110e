// Text of a file goes into an error through Quote (engine/base/quote.h), never between quotation marks that somebody
// typed: read from the sources themselves. What the errors look like, hostile_strings_test.cc of tests/model sees.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Places where a string literal opens a quotation that a value follows: `"key '", key` or `'%s'`.
std::vector<std::string> HandMadeQuotes(const std::string& source) {
  // A literal whose last character is a quotation mark, alone or after what stands before an opening one, then a comma
  // and something that is no literal.
  static const std::regex kOpened(R"re("(?:[^"\\\n]|\\.)*?[ (\[]?(?:'|\\")"\s*,\s*[A-Za-z_*(])re");
  static const std::regex kOpening(R"re((?:^"|[ (\[=])(?:'|\\")"\s*,)re");
  static const std::regex kFormat(R"re(['"]%[a-z]+['"])re");
  std::vector<std::string> found;
  for (std::sregex_iterator it(source.begin(), source.end(), kOpened), end; it != end; ++it) {
    if (std::regex_search(it->str(), kOpening)) found.push_back(it->str());
  }
  for (std::sregex_iterator it(source.begin(), source.end(), kFormat), end; it != end; ++it) {
    if (it->str()[0] == '\'') found.push_back(it->str());
  }
  return found;
}

TEST(QuotedText, ReadersOfFilesQuoteByOneFunction) {
  const fs::path root = SLUICE_SOURCE_DIR;
  int num_files = 0;
  for (const char* room : {"engine/base", "engine/io", "engine/model", "engine/runtime", "engine/text"}) {
    for (const auto& entry : fs::directory_iterator(root / room)) {
      if (entry.path().extension() != ".cc" || entry.path().filename() == "quote.cc") continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      ++num_files;
      for (const std::string& place : HandMadeQuotes(text.str())) {
        ADD_FAILURE() << fs::relative(entry.path(), root).string() << ": " << place << "... opens a quotation by hand";
      }
    }
  }
  EXPECT_GT(num_files, 60);
}

TEST(QuotedText, TheReaderSeesQuotationsMadeByHand) {
  for (const char* source :
       {R"x(StrCat(file, ": key '", key, "' is"))x", "StrCat(\"'\", name)", R"x(StrCat("is \"", v))x",
        "StrCat(\"one of '\",\n       name)", R"x(StrFormat("key '%s' is", k))x"}) {
    EXPECT_EQ(HandMadeQuotes(source).size(), 1u) << source;
  }
  for (const char* source : {R"x(StrCat("expected 'GGUF'", Quote(start)))x", R"x(StrCat("is ", Quote(v), "', x"))x",
                             R"x(StrCat("the model's", n))x", R"x(f("\"", "x"))x", R"x(case '"': )x"}) {
    EXPECT_EQ(HandMadeQuotes(source).size(), 0u) << source;
  }
}

}  // namespace
