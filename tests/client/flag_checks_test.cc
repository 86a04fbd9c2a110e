#include "client/cli/flag_checks.h"

#include <gtest/gtest.h>

#include "client/cli/generate_options.h"

namespace sluice::cli {
namespace {

TEST(FlagChecks, WholeNumbersAreInRangeAndNothingElse) {
  const FlagCheck check = WholeNumber(-1, 20);
  for (const char* good : {"-1", "0", "20", "+7", "-0"}) EXPECT_EQ(check(good), "") << good;
  for (const char* bad : {"", "-2", "21", "1.5", "many", " 1", "1 ", "0x10", "1e1", "18446744073709551616", "--1"}) {
    EXPECT_EQ(check(bad), "found '" + std::string(bad) + "', expected a whole number from -1 to 20");
  }
  EXPECT_EQ(WholeNumber(0, UINT64_MAX)("18446744073709551615"), "");
  EXPECT_NE(WholeNumber(0, UINT64_MAX)("18446744073709551616"), "");
  EXPECT_NE(WholeNumber(0, UINT64_MAX)("-1"), "");
  EXPECT_NE(WholeNumber(1, 5)("0"), "");
}

TEST(FlagChecks, NumbersAreFiniteAndInRange) {
  const FlagCheck closed = Number(0, 2), open = NumberAbove(0, 1);
  for (const char* good : {"0", "2", "1e-3", ".5", "2.0"}) EXPECT_EQ(closed(good), "") << good;
  for (const char* bad : {"warm", "", "-0.1", "2.1", "nan", "inf", "1,5"}) {
    EXPECT_EQ(closed(bad), "found '" + std::string(bad) + "', expected a number from 0 to 2");
  }
  EXPECT_EQ(open("1"), "");
  EXPECT_EQ(open("0"), "found '0', expected a number above 0 and up to 1");
}

TEST(FlagChecks, WordsAreListed) {
  EXPECT_EQ(OneOf({"on", "off"})("on"), "");
  EXPECT_EQ(OneOf({"on", "off"})("maybe"), "found 'maybe', expected one of on, off");
}

TEST(FlagChecks, ControlCharactersAreShown) {
  EXPECT_EQ(OneOf({"on"})("\033[2J"), "found '^[[2J', expected one of on");
}

TEST(FlagChecks, LeadingZerosAreDecimal) {
  EXPECT_EQ(Decimal("010"), "10");
  EXPECT_EQ(Decimal("-007"), "-7");
  EXPECT_EQ(Decimal("+5"), "5");
  EXPECT_EQ(Decimal("000"), "0");
  EXPECT_EQ(Decimal("-0"), "0");
  for (const char* as_it_is : {"", "-", "0.5", "1e3", "x", "0x10"}) EXPECT_EQ(Decimal(as_it_is), as_it_is);
}

TEST(FlagChecks, EveryLimitOfTheServerIsKnownHere) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases = {{"max_tokens", "1", "0"},
                                                                                {"temperature", "2", "2.1"},
                                                                                {"top_p", "1", "0"},
                                                                                {"top_k", "-1", "-2"},
                                                                                {"min_p", "1", "1.1"},
                                                                                {"repetition_penalty", "1e-6", "0"},
                                                                                {"presence_penalty", "-2", "3"},
                                                                                {"frequency_penalty", "2", "-2.1"},
                                                                                {"n", "16", "17"},
                                                                                {"logprobs", "-1", "-2"},
                                                                                {"seed", "18446744073709551615", "-1"}};
  for (const auto& [name, good, bad] : cases) {
    EXPECT_EQ(NumberChecks().at(name)(good), "") << name;
    EXPECT_NE(NumberChecks().at(name)(bad), "") << name;
  }
}

}  // namespace
}  // namespace sluice::cli
