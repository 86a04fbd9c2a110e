#include "engine/text/normalizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

std::string Normalize(NormalizerKind kind, std::string text) {
  const std::vector<NormalizerStep> steps = {{.kind = kind}};
  const auto normalizer = Normalizer::Create(steps);
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  std::string trusted;
  const absl::Status status = normalizer->Run(&text, &trusted);
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

TEST(NormalizerTest, FormsOfUnicode) {
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "ae\u0301b \u1112\u1161\u11ab \u212b"), "aéb 한 Å");
  EXPECT_EQ(Normalize(NormalizerKind::kNfd, "é한"), "e\u0301\u1112\u1161\u11ab");
  EXPECT_EQ(Normalize(NormalizerKind::kNfkc, "\ufb01½ e\u0301"), "fi1\u20442 é");
  EXPECT_EQ(Normalize(NormalizerKind::kNfkd, "\ufb01é"), "fie\u0301");
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "\u0958 \u0344"),
            "\u0915\u093c \u0308\u0301");  // excluded from composition
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, ""), "");
}

TEST(NormalizerTest, HangulJoinsItsConsonantsAndLosesNothing) {
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "\u1100\u1161"), "가");
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "\u1100\u1161\u11a8"), "각");
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "가\u11a8"), "각");
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "가\u11c2"), "갛");
  // U+11A7 is before the first trailing consonant, U+11C3 after the last, and a closed syllable takes no other.
  for (const char* apart :
       {"가\u11a7", "가\u11c3", "각\u11a8", "가\u11a7\u11a8", "가a\u11a8", "\u1113\u1161", "\u1100\u1176"}) {
    EXPECT_EQ(Normalize(NormalizerKind::kNfc, apart), apart);
    EXPECT_EQ(Normalize(NormalizerKind::kNfkc, apart), apart);
  }
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "\u1100\u1161\u11a7"), "가\u11a7");
}

TEST(NormalizerTest, MarksAreSortedByTheirClass) {
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "\u0307\u0323"), "\u0323\u0307");
}

TEST(NormalizerTest, CharactersAfterUnicode9StayWhereTheyAre) {
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "a\u07fd\u0301"), "a\u07fd\u0301");  // a mark of Unicode 11
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "\u0307\u07fd\u0323"), "\u0307\u07fd\u0323");
  EXPECT_EQ(Normalize(NormalizerKind::kNfc, "\U00011935\U00011930"),
            "\U00011935\U00011930");  // would join in Unicode 13
  EXPECT_EQ(Normalize(NormalizerKind::kNfkc, "\u32ff"), "\u32ff");
}

TEST(NormalizerTest, AMillionMarksInTheWorstOrderAreSortedAtOnce) {
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) text += "\u0345\u0334";  // classes 240 and 1
  const std::string sorted = Normalize(NormalizerKind::kNfc, text);
  EXPECT_EQ(sorted.size(), text.size());
  EXPECT_EQ(sorted.substr(0, 5), "a\u0334\u0334");
}

TEST(NormalizerTest, TrustFollowsTheText) {
  const std::vector<NormalizerStep> steps = {
      {.kind = NormalizerKind::kPrepend, .text = "▁"},
      {.kind = NormalizerKind::kReplace, .pattern = {" ", false}, .text = "▁"},
      {.kind = NormalizerKind::kNfc},
  };
  const auto normalizer = Normalizer::Create(steps);
  ASSERT_TRUE(normalizer.ok());
  std::string text = "a b e\u0301", trusted("\1\0\1\1\1\0\0", 7);  // the first space and the accent are the user's
  ASSERT_TRUE(normalizer->Run(&text, &trusted).ok());
  EXPECT_EQ(text, "▁a▁b▁é");
  EXPECT_EQ(trusted, std::string("\1\1\1\1\0\0\0\1\1\1\1\0\0", 13));
}

}  // namespace
}  // namespace sluice
