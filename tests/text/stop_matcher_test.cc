#include "engine/text/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace sluice {
namespace {

using absl::string_view;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

StopMatcher Make(const Strings& stops, bool include = false) {
  absl::StatusOr<StopMatcher> matcher = StopMatcher::Create(stops, include);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *matcher;
}

struct Outcome {
  std::string text;
  int stop_index = -1;
  bool operator==(const Outcome&) const = default;
};

Outcome Feed(StopMatcher matcher, const Strings& pushes) {
  Outcome outcome;
  for (const std::string& push : pushes) {
    const StopMatcher::Result result = matcher.Push(push);
    outcome.text += result.text;
    if (result.stop_index >= 0) {
      EXPECT_EQ(outcome.stop_index, -1);
      outcome.stop_index = result.stop_index;
    }
  }
  outcome.text += matcher.Flush();
  return outcome;
}

// What the header promises, by trying every end and every stop.
Outcome Expected(const Strings& stops, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t s = 0; s < stops.size(); ++s) {
      const bool ends_here =
          stops[s].size() <= end && text.compare(end - stops[s].size(), stops[s].size(), stops[s]) == 0;
      if (ends_here && (best < 0 || stops[s].size() > stops[best].size())) best = static_cast<int>(s);
    }
    if (best >= 0) return {text.substr(0, include ? end : end - stops[best].size()), best};
  }
  return {text, -1};
}

TEST(StopMatcherTest, AStopStringMayBeginWhereNoneMayEnd) {
  StopMatcher m = Make({"END", "aa"});
  EXPECT_EQ(m.Push("xEND aaE", /*may_stop=*/false).text, "xEND aa");
  EXPECT_EQ(m.Push("N", /*may_stop=*/false).text, "");
  const StopMatcher::Result result = m.Push("Dy");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop_index, 0);
  StopMatcher overlapping = Make({"aa"});
  EXPECT_EQ(overlapping.Push("baa", /*may_stop=*/false).stop_index, -1);
  EXPECT_EQ(overlapping.Push("a").stop_index, 0);
  StopMatcher none = Make({"aa"});
  std::string text = none.Push("baa", /*may_stop=*/false).text;
  text += none.Push("b").text;
  text += none.Flush();
  EXPECT_EQ(text, "baab");
}

TEST(StopMatcherTest, TextIsHeldOnlyWhileItCanStillBecomeAStop) {
  StopMatcher m = Make({"END", "\n\n"});
  EXPECT_EQ(m.Push("Hello").text, "Hello");
  EXPECT_EQ(m.Push(" E").text, " ");
  EXPECT_EQ(m.Push("N").text, "");
  EXPECT_EQ(m.Push("E").text, "EN");
  EXPECT_EQ(m.Push("gg").text, "Egg");
  EXPECT_EQ(m.Push("\n").text, "");
  EXPECT_EQ(m.Push("x\n").text, "\nx");
  const StopMatcher::Result result = m.Push("\nmore");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop_index, 1);
  EXPECT_EQ(m.Flush(), "");
  EXPECT_EQ(m.Push("after").text, "");
}

TEST(StopMatcherTest, WhatIsStillHeldAtTheEndIsText) {
  StopMatcher m = Make({"</answer>"});
  EXPECT_EQ(m.Push("42</ans").text, "42");
  EXPECT_EQ(m.Flush(), "</ans");
  EXPECT_EQ(m.Flush(), "");
}

TEST(StopMatcherTest, EarliestThenLongestThenFirstListedStopWins) {
  EXPECT_EQ(Feed(Make({"abcd", "bc"}), {"xabcd"}), (Outcome{"xa", 1}));
  EXPECT_EQ(Feed(Make({"bc", "abc"}), {"xabc"}), (Outcome{"x", 1}));
  EXPECT_EQ(Feed(Make({"ab", "abc"}), {"xabc"}), (Outcome{"x", 0}));
  EXPECT_EQ(Feed(Make({"q", "ab", "ab"}), {"xab"}), (Outcome{"x", 1}));
}

TEST(StopMatcherTest, IncludedStopsAreSentAndNothingIsHeld) {
  StopMatcher m = Make({"END"}, /*include=*/true);
  EXPECT_EQ(m.Push("xE").text, "xE");
  EXPECT_EQ(m.Push("N").text, "N");
  const StopMatcher::Result result = m.Push("D more");
  EXPECT_EQ(result.text, "D");
  EXPECT_EQ(result.stop_index, 0);
  EXPECT_EQ(m.Push("x").text, "");
}

TEST(StopMatcherTest, WithoutStopsTextPasses) {
  EXPECT_EQ(Feed(StopMatcher(), {"a", "", "b"}), (Outcome{"ab", -1}));
  EXPECT_EQ(Feed(Make({}), {"a", "b"}), (Outcome{"ab", -1}));
}

TEST(StopMatcherTest, HeldTextEndsBetweenCharacters) {
  StopMatcher m = Make({"é!"});
  EXPECT_EQ(m.Push("aé").text, "a");
  EXPECT_EQ(m.Push("è").text, "éè");
}

TEST(StopMatcherTest, CopiesGoOnByThemselves) {
  StopMatcher a = Make({"xy"});
  a.Push("x");
  StopMatcher b = a;
  EXPECT_EQ(a.Push("y").stop_index, 0);
  EXPECT_EQ(b.Push("z").text, "xz");
}

TEST(StopMatcherTest, EmptyAndBrokenStopsAreRefused) {
  EXPECT_THAT(StopMatcher::Create({"a", ""}, false).status().message(), HasSubstr("stop[1]"));
  EXPECT_THAT(StopMatcher::Create({"a\xFF"}, false).status().message(), HasSubstr("stop[0]: byte 1"));
}

TEST(StopMatcherTest, TheOutcomeDoesNotDependOnThePushes) {
  std::mt19937 rng(3);
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&rng](size_t min, size_t max) {
      std::string text(min + rng() % (max - min + 1), 'a');
      for (char& c : text) c = static_cast<char>('a' + rng() % 2);
      return text;
    };
    Strings stops(1 + rng() % 4);
    for (std::string& stop : stops) stop = word(1, 6);
    const std::string text = word(0, 24);
    Strings pushes;
    for (size_t at = 0; at < text.size();) {
      pushes.push_back(text.substr(at, 1 + rng() % 5));
      at += pushes.back().size();
    }
    const bool include = round % 2 == 0;
    EXPECT_EQ(Feed(Make(stops, include), pushes), Expected(stops, text, include)) << text;
  }
}

TEST(StopMatcherTest, NoByteOfTheTextIsHeldWithoutNeed) {
  std::mt19937 rng(5);
  for (int round = 0; round < 5000; ++round) {
    Strings stops(1 + rng() % 3);
    for (std::string& stop : stops) {
      stop.resize(1 + rng() % 6, 'a');
      for (char& c : stop) c = static_cast<char>('a' + rng() % 2);
    }
    StopMatcher m = Make(stops);
    std::string text, sent;
    for (int i = 0; i < 12; ++i) {
      text.push_back(static_cast<char>('a' + rng() % 3));
      const StopMatcher::Result result = m.Push(string_view(text).substr(text.size() - 1));
      sent += result.text;
      if (result.stop_index >= 0) break;
      // The longest end of the text that begins a stop.
      size_t held = std::min<size_t>(6, text.size());
      const auto begins_a_stop = [&](const std::string& s) {
        return s.compare(0, held, text, text.size() - held, held) == 0;
      };
      while (held > 0 && std::none_of(stops.begin(), stops.end(), begins_a_stop)) --held;
      EXPECT_EQ(sent.size(), text.size() - held);
    }
  }
}

}  // namespace
}  // namespace sluice
