#include "engine/text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/text/pcre_syntax.h"
#include "engine/text/recipes.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using absl::string_view;
using ::testing::HasSubstr;

std::vector<std::string> SplitBySteps(const std::vector<PreTokenizerStep>& steps, string_view text,
                                      bool at_start = true) {
  const auto pre_tokenizer = PreTokenizer::Create(steps);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  PreTokenizer::Words words;
  const absl::Status status = pre_tokenizer->Split(text, at_start, &words);
  EXPECT_TRUE(status.ok()) << status;
  return std::vector<std::string>(words.words.begin(), words.words.end());
}

std::vector<std::string> SplitBy(string_view name, string_view text) {
  const auto recipe = FindRecipe(name);
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  return SplitBySteps((*recipe)->pre_tokenizer, text);
}

std::string Split(string_view name, string_view text) { return absl::StrJoin(SplitBy(name, text), "·"); }

TEST(PreTokenizerTest, WordsKeepTheSpaceBeforeThem) {
  EXPECT_EQ(Split("gpt-2", ""), "");
  EXPECT_EQ(Split("gpt-2", "Hello world's  end\n\n x1y ..!"), "Hello· world·'s· · end·\n\n· x·1·y· ..!");
  EXPECT_EQ(Split("gpt-2", "I'M we'll"), "I·'·M· we·'ll");
  EXPECT_EQ(Split("gpt-2", "a 12345"), "a· 12345");
}

TEST(PreTokenizerTest, SmollmTakesEveryNumberByItselfAndEndsThePieceThere) {
  EXPECT_EQ(Split("smollm", "in 1984"), "in· ·1·9·8·4");
  EXPECT_EQ(Split("smollm", "a  1b"), "a·  ·1·b");  // the spaces before a digit are a piece, and so one word
  EXPECT_EQ(Split("smollm", "x²½Ⅷ٣〇"), "x·²·½·Ⅷ·٣·〇");
  EXPECT_EQ(Split("smollm", "三 一"), "三· 一");  // letters
}

TEST(PreTokenizerTest, Llama3TakesNumbersInThreesAndPunctuationWithNewlines) {
  EXPECT_EQ(Split("llama-bpe", "a 12345"), "a· ·123·45");
  EXPECT_EQ(Split("llama-bpe", "I'M!\n\nx \n y"), "I·'M·!\n\n·x· \n· y");
  EXPECT_EQ(Split("llama-bpe", "\tword"), "\tword");
}

TEST(PreTokenizerTest, SpaceIsWhiteSpaceOfUnicode) {
  EXPECT_EQ(Split("gpt-2", "a\u180Eb"), "a·\u180E·b");
  EXPECT_EQ(Split("gpt-2", "a \u180E"), "a· \u180E");  // U+180E takes the space as punctuation does
  EXPECT_EQ(Split("gpt-2", "a \u3000b"), "a· ·\u3000·b");
  EXPECT_EQ(Split("gpt-2", "a\u0085\u2028 b"), "a·\u0085\u2028· b");
  EXPECT_EQ(Split("gpt-2", "a\u200Bb"), "a·\u200B·b");
}

TEST(PreTokenizerTest, LettersAndNumbersAreThoseOfUnicode16) {
  EXPECT_EQ(Split("gpt-2", "a\U000105C0\U00013686\u1C89"), "a\U000105C0\U00013686\u1C89");  // 16.0, 15.0, 16.0
  EXPECT_EQ(Split("gpt-2", "a\U00010D40\U0001CCF01"), "a·\U00010D40\U0001CCF01");
  EXPECT_EQ(Split("gpt-2", "!\U00031350"), "!·\U00031350");
  EXPECT_EQ(Split("smollm", "\U00011DE0\U00016FF4"), "\U00011DE0·\U00016FF4");  // 17.0
  EXPECT_EQ(Split("gpt-2", "!\U00011DE0"), "!\U00011DE0");                      // unassigned until 17.0
}

TEST(PreTokenizerTest, WordsCoverTheTextWithoutGaps) {
  std::string text;
  for (char32_t c = 0; c < 0x3400; ++c) {
    AppendUtf8(c, &text);
    if (c % 7 == 0) text += " ";
  }
  for (const char* name : {"gpt-2", "smollm", "llama-bpe"}) {
    std::string joined;
    for (const std::string& word : SplitBy(name, text)) {
      EXPECT_FALSE(word.empty());
      joined += word;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(PreTokenizerTest, TwoMegabytesOfOneKindStayBelowTheMatchLimit) {
  for (const char* name : {"gpt-2", "smollm", "llama-bpe"}) {
    for (const string_view unit : {"a", " ", "\n", "\r\n", "0", "é", "😀", "\u0301", "'", "!", " \n"}) {
      std::string text;
      while (text.size() < 2'000'000) text += std::string(unit);
      EXPECT_FALSE(SplitBy(name, text).empty());
    }
  }
}

TEST(PreTokenizerTest, EveryFamilySplitsAsItsReferenceDoes) {
  EXPECT_EQ(Split("qwen2", "a 12345"), "a· ·1·2·3·4·5");
  EXPECT_EQ(Split("qwen35", "a e\u0301\u0302b"), "a· e\u0301\u0302b");
  EXPECT_EQ(Split("dbrx", "a 12345"), "a· ·123·45");
  EXPECT_EQ(Split("gpt-4o", "HelloWorld's HTMLParser 12345 a//\n"), "Hello·World's· HTMLParser· ·123·45· a·//\n");
  EXPECT_EQ(Split("tekken", "HelloWorld's 12"), "Hello·World·'s· ·1·2");
  EXPECT_EQ(Split("kimi-k2", "ab中文cd 中/\n"), "ab·中文·cd· ·中·/\n");
  EXPECT_EQ(Split("gpt-4o", "ab中文cd"), "ab中文cd");
  EXPECT_EQ(Split("deepseek-v3", "中文ab,cd 1234 \U0001FAE8!"), "中文·ab·,cd· ·123·4· \U0001FAE8!");
  EXPECT_EQ(Split("deepseek-llm", "ab c, 中12  \n"), "ab· c·,· ·中·12·  ·\n");
  EXPECT_EQ(Split("deepseek-llm", "a\u1F7D\u1FBE\u212Ab"), "a·\u1F7D\u1FBE\u212A·b");
  EXPECT_EQ(Split("deepseek-coder", "ab, 中12"), "ab·,· ·中·1·2");
}

TEST(PreTokenizerTest, WhatBecomesOfMatchesAndGaps) {
  const auto split = [](SplitBehavior behavior, bool invert, string_view text) {
    return absl::StrJoin(SplitBySteps({{.pattern = {"-", false}, .behavior = behavior, .invert = invert}}, text), "·");
  };
  EXPECT_EQ(split(SplitBehavior::kIsolated, false, "a--b-"), "a·-·-·b·-");
  EXPECT_EQ(split(SplitBehavior::kRemoved, false, "a--b-"), "a·b");
  EXPECT_EQ(split(SplitBehavior::kRemoved, true, "a--b-"), "-·-·-");
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious, false, "-a--b-"), "-·a-·-·b-");
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext, false, "-a--b-"), "-a·-·-b·-");
  EXPECT_EQ(split(SplitBehavior::kContiguous, false, "a--b-"), "a·--·b·-");
  EXPECT_EQ(split(SplitBehavior::kIsolated, false, ""), "");
}

TEST(PreTokenizerTest, MetaspaceMarksEveryPieceOrTheFirstOrNone) {
  const auto split = [](PrependScheme prepend, string_view text, bool at_start) {
    return absl::StrJoin(
        SplitBySteps({{.kind = PreTokenizerKind::kMetaspace, .mark = "▁", .prepend = prepend}}, text, at_start), "·");
  };
  EXPECT_EQ(split(PrependScheme::kAlways, "a b", false), "▁a▁b");
  EXPECT_EQ(split(PrependScheme::kAlways, " a", false), "▁a");
  EXPECT_EQ(split(PrependScheme::kAlways, "▁a", false), "▁a");
  EXPECT_EQ(split(PrependScheme::kFirst, "a", true), "▁a");
  EXPECT_EQ(split(PrependScheme::kFirst, "a", false), "a");
  EXPECT_EQ(split(PrependScheme::kNever, "a ", true), "a▁");
}

TEST(PreTokenizerTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto recipe = FindRecipe("whatever");
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(recipe.status().message(), HasSubstr("found 'whatever'"));
  EXPECT_THAT(recipe.status().message(), HasSubstr("smollm, llama-bpe"));
}

TEST(PreTokenizerTest, RefusesBadPatternsAndCutsAtEmptyMatches) {
  const std::vector<PreTokenizerStep> broken = {{.pattern = {"a(", true}}};
  EXPECT_EQ(PreTokenizer::Create(broken).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(absl::StrJoin(SplitBySteps({{.pattern = {"b*", true}}}, "aébbc"), "·"), "a·é·bb·c");
  EXPECT_EQ(absl::StrJoin(SplitBySteps({{.pattern = {R"((?=(\d{3})+(?!\d)))", true}}}, "a1234567"), "·"), "a1·234·567");
  EXPECT_EQ(absl::StrJoin(SplitBySteps({{.pattern = {R"(\s+$)", true}}}, "a \nb  "), "·"), "a· ·\nb·  ");
}

TEST(PreTokenizerTest, BacktrackingWithoutEndIsAnErrorAndNotAHang) {
  const std::vector<PreTokenizerStep> steps = {{.pattern = {"(a|aa)+$", true}}};
  const auto pre_tokenizer = PreTokenizer::Create(steps);
  ASSERT_TRUE(pre_tokenizer.ok());
  PreTokenizer::Words words;
  EXPECT_EQ(pre_tokenizer->Split(std::string(60, 'a') + "b", true, &words).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PcreSyntaxTest, WhatMeansSomethingElseOrIsUnknownIsRefused) {
  for (const char* pattern :
       {R"(\p{Greek}+)", R"([a\S])",   R"([\P{L}])", R"(\w+)",      R"(\bx)",     R"(\h)",      R"(\R)",
        R"(\K)",         R"((a)\1)",   R"(\pL)",     R"((?P<n>a))", R"((?<n>a))", R"((?R))",    R"((?1))",
        R"((?m:.))",     R"((*FAIL))", R"(a{,3})",   R"(a{3}+)",    R"(a{3}?)",   R"([a[bc]])", R"([[:alpha:]])",
        R"([a&&])",      R"([^a&&b])", R"([a)",      R"([])",       R"(a\)",      R"(\p{L)"}) {
    EXPECT_EQ(ToPcreSyntax(pattern).status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
}

TEST(PcreSyntaxTest, ACodePointIsNoQuantifier) { EXPECT_EQ(*ToPcreSyntax(R"(\x{41}+)"), R"(\x{41}+)"); }

TEST(PcreSyntaxTest, ClassesIntersect) {
  EXPECT_EQ(*ToPcreSyntax("[ab&&[^b]]+"), "(?:(?=[^b])[ab])+");
  EXPECT_EQ(*ToPcreSyntax("[a-z&&k-p&&[^m]]"), "(?:(?=[k-p])(?=[^m])[a-z])");
}

TEST(PcreSyntaxTest, EscapesThatMeanTheSameStay) {
  const auto pattern = ToPcreSyntax(R"([^\r\n\]]?\[(?!\x{41}))");
  ASSERT_TRUE(pattern.ok());
  EXPECT_EQ(*pattern, R"([^\r\n\]]?\[(?!\x{41}))");
}

}  // namespace
}  // namespace sluice
