#include "engine/text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/text/pcre_syntax.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using absl::string_view;
using ::testing::HasSubstr;

std::vector<string_view> SplitBy(string_view name, string_view text) {
  const auto recipe = FindPreTokenizerRecipe(name);
  EXPECT_TRUE(recipe.ok()) << recipe.status();
  const auto pre_tokenizer = PreTokenizer::Create((*recipe)->patterns);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  std::vector<string_view> words;
  const absl::Status status = pre_tokenizer->Split(text, &words);
  EXPECT_TRUE(status.ok()) << status;
  return words;
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
    for (const string_view word : SplitBy(name, text)) {
      EXPECT_FALSE(word.empty());
      joined += std::string(word);
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

TEST(PreTokenizerTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto recipe = FindPreTokenizerRecipe("whatever");
  EXPECT_EQ(recipe.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(recipe.status().message(), HasSubstr("found \"whatever\""));
  EXPECT_THAT(recipe.status().message(), HasSubstr("gpt-2, smollm, llama-bpe"));
}

TEST(PreTokenizerTest, APatternThatDoesNotCompileIsAnErrorAndAnEmptyMatchIsNoWord) {
  EXPECT_EQ(PreTokenizer::Create({string_view("a(")}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto pre_tokenizer = PreTokenizer::Create({string_view("b*")});
  ASSERT_TRUE(pre_tokenizer.ok());
  std::vector<string_view> words;
  ASSERT_TRUE(pre_tokenizer->Split("aébbc", &words).ok());
  EXPECT_EQ(absl::StrJoin(words, "·"), "aé·bb·c");
}

TEST(PreTokenizerTest, BacktrackingWithoutEndIsAnErrorAndNotAHang) {
  const auto pre_tokenizer = PreTokenizer::Create({string_view("(a|aa)+$")});
  ASSERT_TRUE(pre_tokenizer.ok());
  std::vector<string_view> words;
  EXPECT_EQ(pre_tokenizer->Split(std::string(60, 'a') + "b", &words).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PcreSyntaxTest, PropertiesWithoutAListOfAdditionsAreRefused) {
  EXPECT_EQ(ToPcreSyntax(R"(\p{Han}+)").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToPcreSyntax(R"(\P{L})").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToPcreSyntax(R"([a\S])").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PcreSyntaxTest, EscapesThatMeanTheSameStay) {
  const auto pattern = ToPcreSyntax(R"([^\r\n\]]?\[(?!\x{41}))");
  ASSERT_TRUE(pattern.ok());
  EXPECT_EQ(*pattern, R"([^\r\n\]]?\[(?!\x{41}))");
}

}  // namespace
}  // namespace sluice
