#include "engine/base/nearest_name.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const std::vector<std::string> kNames = {"--model", "--max-tokens", "--min-tokens", "--top-p",
                                         "--top-k", "chat",         "cancel"};

TEST(NearestName, FindsOneEditOfEachKind) {
  EXPECT_EQ(NearestName("--mdel", kNames), "--model") << "one missing";
  EXPECT_EQ(NearestName("--modell", kNames), "--model") << "one more";
  EXPECT_EQ(NearestName("--modal", kNames), "--model") << "another";
  EXPECT_EQ(NearestName("--modle", kNames), "--model") << "two swapped";
  EXPECT_EQ(NearestName("caht", kNames), "chat");
  EXPECT_EQ(NearestName("--max_tokens", kNames), "--max-tokens");
}

TEST(NearestName, TakesTheNearestAndTheFirstOfEquals) {
  EXPECT_EQ(NearestName("--min-token", kNames), "--min-tokens");
  EXPECT_EQ(NearestName("--top-x", kNames), "--top-p");
  EXPECT_EQ(NearestName("chat", kNames), "chat");
}

TEST(NearestName, CompletesABeginning) {
  EXPECT_EQ(NearestName("--max", kNames), "--max-tokens");
  EXPECT_EQ(NearestName("canc", kNames), "cancel");
  EXPECT_EQ(NearestName("--", kNames), "");
}

TEST(NearestName, DoesNotGuessAnotherWord) {
  EXPECT_EQ(NearestName("dance", kNames), "");
  EXPECT_EQ(NearestName("x", kNames), "");
  EXPECT_EQ(NearestName("--x", {"--n"}), "");
  EXPECT_EQ(NearestName("--something-else", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName("chat", {}), "");
  EXPECT_EQ(NearestName(std::string(100'000, 'a'), kNames), "");
}

}  // namespace
}  // namespace sluice
