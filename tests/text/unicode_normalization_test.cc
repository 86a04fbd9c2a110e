// The whole of Unicode's NormalizationTest.txt, and Hugging Face `tokenizers` where that differs from it
// (tests/goldens/make_normalization.py).
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/text/normalizer.h"
#include "engine/text/utf8.h"
#include "tests/sanitized.h"
#include "tests/text/real_vocabulary.h"

namespace sluice {
namespace {

struct Form {
  const char* name;
  NormalizerKind kind;
  std::array<int, 5> expected;  // of each column the column that it becomes
};
constexpr Form kForms[] = {
    {"NFC", NormalizerKind::kNfc, {1, 1, 1, 3, 3}},
    {"NFD", NormalizerKind::kNfd, {2, 2, 2, 4, 4}},
    {"NFKC", NormalizerKind::kNfkc, {3, 3, 3, 3, 3}},
    {"NFKD", NormalizerKind::kNfkd, {4, 4, 4, 4, 4}},
};

struct Row {
  std::array<std::string, 5> columns;
  bool is_single;  // of part 1, which has every character by itself that any form changes
};

std::vector<Row> ReadRows() {
  std::vector<Row> rows;
  bool part1 = false;
  for (absl::string_view line : absl::StrSplit(ReadFile(CachedFile("unicode/NormalizationTest.txt")), '\n')) {
    line = line.substr(0, line.find('#'));
    if (line.empty()) continue;
    if (line[0] == '@') {
      part1 = line.substr(0, 6) == "@Part1";
      continue;
    }
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ';');
    EXPECT_GE(fields.size(), 5u);
    Row row;
    row.is_single = part1;
    for (size_t i = 0; i < 5; ++i) {
      for (const absl::string_view point : absl::StrSplit(fields[i], ' ', absl::SkipEmpty())) {
        uint32_t value = 0;
        EXPECT_TRUE(absl::SimpleHexAtoi(point, &value)) << point;
        AppendUtf8(value, &row.columns[i]);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::map<std::pair<std::string, std::string>, std::string> ReadExceptions() {
  std::map<std::pair<std::string, std::string>, std::string> exceptions;
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/normalization.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    exceptions[{entry[0], entry[1]}] = entry[2];
  }
  return exceptions;
}

std::string Normalize(const Normalizer& normalizer, std::string text) {
  std::string trusted;
  const absl::Status status = normalizer.Run(&text, &trusted);
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

class UnicodeNormalizationTest : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    rows_ = ReadRows();
    if (rows_.size() <= 1) GTEST_SKIP() << CachedFile("unicode/NormalizationTest.txt") << " is not there";
    ASSERT_GT(rows_.size(), 19'000u);
    const std::vector<NormalizerStep> steps = {{.kind = GetParam().kind}};
    absl::StatusOr<Normalizer> made = Normalizer::Create(steps);
    ASSERT_TRUE(made.ok()) << made.status();
    normalizer_ = *std::move(made);
  }

  std::vector<Row> rows_;
  Normalizer normalizer_ = *Normalizer::Create({});
};

TEST_P(UnicodeNormalizationTest, EveryRowIsAsUnicodeOrTheReferenceSays) {
  const auto exceptions = ReadExceptions();
  ASSERT_GT(exceptions.size(), 2'000u);
  for (const Row& row : rows_) {
    for (size_t i = 0; i < 5; ++i) {
      const std::string& text = row.columns[i];
      const auto exception = exceptions.find({GetParam().name, text});
      const std::string& expected =
          exception != exceptions.end() ? exception->second : row.columns[GetParam().expected[i]];
      EXPECT_EQ(Normalize(normalizer_, text), expected) << nlohmann::json(text).dump(-1, ' ', true);
    }
  }
}

TEST_P(UnicodeNormalizationTest, CharactersThatTheFileDoesNotNameStayAsTheyAre) {
  std::set<std::string> named;
  for (const Row& row : rows_) {
    if (row.is_single) named.insert(row.columns[0]);
  }
  std::string others;
  for (char32_t c = 1; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string character;
    AppendUtf8(c, &character);
    if (named.count(character) == 0) others += character + "\n";
  }
  EXPECT_TRUE(Normalize(normalizer_, others) == others);
}

// Unicode's file has a few combinations only. Here every character of it meets every one that joins anything, and the
// Hangul around those: composed and taken apart again it is what it was when it was taken apart at first.
TEST(UnicodeNormalizationPairsTest, ComposingTwoCharactersLosesNothing) {
  const std::vector<Row> rows = ReadRows();
  if (rows.size() <= 1) GTEST_SKIP() << CachedFile("unicode/NormalizationTest.txt") << " is not there";
  std::set<std::string> firsts, seconds;
  for (const Row& row : rows) {
    if (!row.is_single) continue;
    firsts.insert(row.columns[0]);
    std::string last;
    for (absl::string_view rest = row.columns[2]; !rest.empty(); rest.remove_prefix(last.size())) {
      last = std::string(rest.substr(0, Utf8Length(rest[0])));
      firsts.insert(last);
    }
    if (last != row.columns[2]) seconds.insert(last);
  }
  for (const auto& [begin, end] : {std::pair<char32_t, char32_t>{0x1160, 0x1178}, {0x11A6, 0x11C5}}) {
    for (char32_t c = begin; c < end; ++c) {
      std::string character;
      AppendUtf8(c, &character);
      seconds.insert(character);
    }
  }
  ASSERT_GT(firsts.size(), 13'000u);
  ASSERT_GT(seconds.size(), 100u);
  const auto normalizer = [](NormalizerKind kind) {
    const std::vector<NormalizerStep> steps = {{.kind = kind}};
    return *Normalizer::Create(steps);
  };
  const Normalizer compose = normalizer(NormalizerKind::kNfc), decompose = normalizer(NormalizerKind::kNfd);
  size_t i = 0;
  for (const std::string& second : seconds) {
    if (kSanitized && i++ % 8 != 0) continue;
    std::string text;
    for (const std::string& first : firsts) text += first + second + "\n";
    EXPECT_TRUE(Normalize(decompose, Normalize(compose, text)) == Normalize(decompose, text))
        << nlohmann::json(second).dump(-1, ' ', true);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, UnicodeNormalizationTest, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice
