#include "engine/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/text/tiny_vocabulary.h"

namespace sluice {
namespace {

using absl::string_view;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr int32_t kStart = 259, kEnd = 260;  // of Words()

TinyVocabulary Words() {
  return TinyVocabulary::ByteLevel("gpt-2", {"h i", "y o", "hi yo"}, {"<|start|>", "<|im_end|>"});
}

std::unique_ptr<const Tokenizer> Make(TokenizerSpec spec) {
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

template <typename Text>
Ids Encode(const Tokenizer& tokenizer, const Text& text, EncodeOptions options = {}) {
  const absl::StatusOr<Ids> ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *ids;
}

TEST(TokenizerTest, AddedTokensAreParsedOnlyWhenAskedFor) {
  const TinyVocabulary v = Words();
  const auto t = Make(v.spec);
  EXPECT_EQ(Encode(*t, "<|start|>hi<|im_end|>"), (Ids{kStart, 256, kEnd}));
  EXPECT_EQ(Encode(*t, "<|start|>", {.parse_special = false}), (Ids{'<', '|', 's', 't', 'a', 'r', 't', '|', '>'}));
}

TEST(TokenizerTest, AddedTokensMustLieWhollyInParsedSegments) {
  const TinyVocabulary v = Words();
  const auto t = Make(v.spec);
  const auto encode = [&](std::vector<TextSegment> segments) { return Encode(*t, absl::MakeConstSpan(segments)); };
  // Adjacent parsed segments count as one; a message between them parts them even when it is empty.
  EXPECT_EQ(encode({{"<|sta", true}, {"rt|>", true}}), (Ids{kStart}));
  EXPECT_EQ(encode({{"<|sta", true}, {"", false}, {"rt|>", true}}), encode({{"<|start|>", false}}));
  EXPECT_EQ(encode({{"<|sta", true}, {"", true}, {"rt|>", true}}), (Ids{kStart}));
  // The words of a message never become control tokens, not even with the template's help.
  EXPECT_EQ(encode({{"<|start|>", true}, {"<|im_end|>", false}, {"<|im_end|>", true}}),
            (Ids{kStart, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', kEnd}));
  EXPECT_EQ(encode({{"<|sta", false}, {"rt|>", true}}), encode({{"<|start|>", false}}));
  EXPECT_EQ(encode({{"<|sta", true}, {"rt|>", false}}), encode({{"<|start|>", false}}));
  // "hiyo" is one token wherever it is cut.
  EXPECT_EQ(encode({{"h", true}, {"iy", false}, {"o", true}}), (Ids{258}));
  EXPECT_EQ(encode({{"<|start|>h", true}, {"iy", false}, {"o<|im_end|>", true}}), (Ids{kStart, 258, kEnd}));
  EXPECT_EQ(encode({}), Ids{});
  const std::vector<TextSegment> segments{{"<|start|>", true}, {"hi", false}};
  EXPECT_EQ(Encode(*t, absl::MakeConstSpan(segments), {.parse_special = false}),
            Encode(*t, string_view("<|start|>hi"), {.parse_special = false}));
}

TEST(TokenizerTest, BosAndEosComeWhereTheModelWantsThem) {
  TinyVocabulary v = Words();
  v.spec.bos_id = kStart;
  v.spec.eos_id = kEnd;
  EXPECT_EQ(Encode(*Make(v.spec), "hi"), (Ids{256}));
  v.spec.add_bos = true;
  EXPECT_EQ(Encode(*Make(v.spec), "hi"), (Ids{kStart, 256}));
  EXPECT_EQ(Encode(*Make(v.spec), ""), (Ids{kStart}));
  EXPECT_EQ(Encode(*Make(v.spec), "<|start|>hi"), (Ids{kStart, kStart, 256}));
  EXPECT_EQ(Encode(*Make(v.spec), "<|start|>hi", {.add_special = false}), (Ids{kStart, 256}));
  v.spec.add_eos = true;
  EXPECT_EQ(Encode(*Make(v.spec), "hi", {.parse_special = false}), (Ids{kStart, 256, kEnd}));
}

TEST(TokenizerTest, EveryStretchOfSentencePieceTextGetsItsSpace) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"▁hi", "hi", "▁", "h", "i"});
  const auto t = Make(v.spec);
  const int32_t hi = 3 + 256, mark = hi + 2;
  EXPECT_EQ(Encode(*t, "<s>hi</s> hi"), (Ids{1, hi, 2, mark, hi}));
  EXPECT_EQ(Encode(*t, "</s>"), (Ids{2}));
  EXPECT_EQ(t->Decode(Encode(*t, "hi hi"), false), "hi hi");
  EXPECT_EQ(t->Decode(Encode(*t, "  hi"), false), "  hi");
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefusedWithTheOffset) {
  const TinyVocabulary v = Words();
  const auto t = Make(v.spec);
  const absl::Status status = t->Encode("hi\xFFyo").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("byte 2"));
  const std::vector<TextSegment> segments{{"abc", true}, {"d\xE4\xB8", false}};
  EXPECT_THAT(t->Encode(absl::MakeConstSpan(segments)).status().message(), HasSubstr("byte 4"));
}

TEST(TokenizerTest, DecodeReadsBytesAsUtf8AndSkipsSpecialTokensIfAsked) {
  const TinyVocabulary v = Words();
  const auto t = Make(v.spec);
  EXPECT_EQ(t->Decode({kStart, 258, ' ', 0xF0, 0x9F, 0x98, 0x80, kEnd}, false), "<|start|>hiyo 😀<|im_end|>");
  EXPECT_EQ(t->Decode({kStart, 258, ' ', 0xF0, 0x9F, 0x98, 0x80, kEnd}, true), "hiyo 😀");
  EXPECT_EQ(t->Decode({0xF0, 0x9F, 0x98, 'a', 0xED, 0xA0, 0x80, 0xE4}, true), "\uFFFDa\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(t->Decode({'a', -1, 261, INT32_MAX, INT32_MIN, 'b'}, true), "ab");
  EXPECT_EQ(t->Decode({}, true), "");
}

TEST(TokenizerTest, SentencePieceDecodingDropsOneSpaceAtTheVeryStart) {
  TinyVocabulary v = TinyVocabulary::SentencePiece({"▁a", "▁▁a", "b"});
  const int32_t a = 3 + 256, aa = a + 1, b = a + 2;
  auto t = Make(v.spec);
  EXPECT_EQ(t->Decode({a, a, b}, true), "a ab");
  EXPECT_EQ(t->Decode({aa}, true), " a");
  EXPECT_EQ(t->Decode({1, a}, true), "a");
  EXPECT_EQ(t->Decode({1, a}, false), "<s> a");
  EXPECT_EQ(t->Decode({3 + ' ', a}, true), " a");  // a byte token is a byte like any other
  EXPECT_EQ(t->Decode({b, a}, true), "b a");
  v.spec.add_space_prefix = false;
  t = Make(v.spec);
  EXPECT_EQ(t->Decode({a}, true), " a");
}

TEST(TokenizerTest, QuestionsAboutTokens) {
  TinyVocabulary v = Words();
  const int32_t user = v.Add("<tool>", TokenType::kUserDefined);
  v.spec.pad_id = 0;
  const auto t = Make(v.spec);
  EXPECT_EQ(t->vocab_size(), 262);
  EXPECT_EQ(t->TokenText(' '), "Ġ");
  EXPECT_EQ(t->TokenBytes(' '), " ");
  EXPECT_EQ(t->TokenBytes(0xE4), "\xE4");
  EXPECT_EQ(t->TokenText(-1), "");
  EXPECT_EQ(t->TokenBytes(262), "");
  EXPECT_TRUE(t->IsSpecial(kStart));
  EXPECT_FALSE(t->IsSpecial(user));
  EXPECT_FALSE(t->IsSpecial('a'));
  EXPECT_FALSE(t->IsSpecial(262));
  EXPECT_EQ(t->pad_id(), 0);
  EXPECT_EQ(t->bos_id(), std::nullopt);
  EXPECT_EQ(Encode(*t, "<tool>"), (Ids{user}));
  EXPECT_EQ(t->Decode({user}, true), "<tool>");
}

TEST(TokenizerTest, EndOfGenerationIsKnownByIdAndByText) {
  TinyVocabulary v = Words();
  v.Add("</s>", TokenType::kNormal);       // ordinary text that looks like one
  v.Add("</s>", TokenType::kUserDefined);  // HTML
  const int32_t eot = v.Add("<|eot_id|>", TokenType::kControl);
  const int32_t end = v.Add("<|end|>", TokenType::kControl);
  v.spec.eos_id = kStart;
  v.spec.eom_id = 7;
  EXPECT_THAT(Make(v.spec)->end_of_generation_ids(), ElementsAre(7, kStart, kEnd, eot, end));
  const int32_t ret = v.Add("<|return|>", TokenType::kControl);
  EXPECT_THAT(Make(v.spec)->end_of_generation_ids(), ElementsAre(7, kStart, kEnd, eot, ret));
}

TEST(TokenizerTest, SpecsThatCannotBeAreRefused) {
  const auto message = [](auto change) {
    TinyVocabulary v = Words();
    change(&v.spec);
    const absl::Status status = Tokenizer::Create(v.spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message([](TokenizerSpec* s) { s->tokens.clear(); }), HasSubstr("tokens: found none"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->types.pop_back(); }),
              HasSubstr("types: found 260, expected one for each of 261"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->types[3] = static_cast<TokenType>(9); }),
              HasSubstr("types[3]: found 9"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->eos_id = 261; }),
              HasSubstr("eos_id: found 261, expected an id below 261"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->unk_id = -2; }), HasSubstr("unk_id: found -2"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->add_bos = true; }), HasSubstr("add_bos"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->add_eos = true; }), HasSubstr("add_eos"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->pre = "default"; }), HasSubstr("smollm"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->pre = ""; }), HasSubstr("expected one of"));
  EXPECT_THAT(message([](TokenizerSpec* s) { s->merges.push_back({"q", "q"}); }), HasSubstr("merges[3]"));
}

TEST(TokenizerTest, ManyThreadsMayUseOneTokenizer) {
  const TinyVocabulary v = Words();
  const auto t = Make(v.spec);
  const std::string text = "<|start|>hi yo, hiyo 12 times\n<|im_end|>";
  const Ids expected = Encode(*t, text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        const absl::StatusOr<Ids> ids = t->Encode(text);
        ASSERT_TRUE(ids.ok());
        EXPECT_EQ(*ids, expected);
        EXPECT_EQ(t->Decode(*ids, false), text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerTest, TypesMayBeLeftOut) {
  TinyVocabulary v = Words();
  v.spec.types.clear();
  EXPECT_EQ(Encode(*Make(v.spec), "hi<|start|>").size(), 10u);
}

}  // namespace
}  // namespace sluice
