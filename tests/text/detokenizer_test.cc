#include "engine/text/detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/text/tiny_vocabulary.h"

namespace sluice {
namespace {

using Ids = std::vector<int32_t>;

std::unique_ptr<const Tokenizer> Make(const TinyVocabulary& v) {
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(v.spec);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<std::string> Pushes(Detokenizer detokenizer, const Ids& ids) {
  std::vector<std::string> pushes;
  for (const int32_t id : ids) pushes.push_back(detokenizer.Push(id));
  pushes.push_back(detokenizer.Flush());
  return pushes;
}

TEST(DetokenizerTest, NeverHalfACharacter) {
  const TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", {"ð Ł"}, {"<|end|>"});
  const auto t = Make(v);
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Pushes(Detokenizer(t.get()), {'a', 256, 0x98, 0x80, 'b'}), (Strings{"a", "", "", "😀", "b", ""}));
  EXPECT_EQ(Pushes(Detokenizer(t.get()), {0xE4, 0xB8}), (Strings{"", "", "\uFFFD"}));
  EXPECT_EQ(Pushes(Detokenizer(t.get()), {0xE4, 'a', 0xFF, 0x80}), (Strings{"",
                                                                            "\uFFFD"
                                                                            "a",
                                                                            "\uFFFD", "\uFFFD", ""}));
  // A skipped token does not come between the bytes of a character; a visible one does.
  EXPECT_EQ(Pushes(Detokenizer(t.get(), true), {0xC3, 257, 0xA9}), (Strings{"", "", "é", ""}));
  EXPECT_EQ(Pushes(Detokenizer(t.get(), false), {0xC3, 257, 0xA9}), (Strings{"", "\uFFFD<|end|>", "\uFFFD", ""}));
}

TEST(DetokenizerTest, PushesTogetherAreTheDecodedTextForAnyIds) {
  const TinyVocabulary byte_level = TinyVocabulary::ByteLevel("gpt-2", {"ð Ł", "ĺ Ģ", "Ġ a"}, {"<|end|>"});
  const TinyVocabulary sentence_piece = TinyVocabulary::SentencePiece({"▁a", "▁", "é", "😀"});
  for (const TinyVocabulary* v : {&byte_level, &sentence_piece}) {
    const auto t = Make(*v);
    std::mt19937 rng(7);
    for (int round = 0; round < 2000; ++round) {
      Ids ids(rng() % 12);
      for (int32_t& id : ids) id = static_cast<int32_t>(rng() % (t->vocab_size() + 2)) - 1;
      const bool skip_special = round % 2 == 0;
      std::string text;
      for (const std::string& push : Pushes(Detokenizer(t.get(), skip_special), ids)) {
        EXPECT_EQ(FindInvalidUtf8(push), absl::string_view::npos);
        text += push;
      }
      EXPECT_EQ(text, t->Decode(ids, skip_special));
    }
  }
}

TEST(DetokenizerTest, AContinuationKeepsItsSpaceAndCompletesTheCharacterOfThePrompt) {
  const TinyVocabulary v = TinyVocabulary::SentencePiece({"▁a", "b"});
  const auto t = Make(v);
  const int32_t a = 259, b = 260, byte = 3;
  const auto continued = [&](const Ids& prompt, const Ids& ids) {
    Detokenizer detokenizer(t.get());
    detokenizer.Prime(prompt);
    std::string text;
    for (const std::string& push : Pushes(detokenizer, ids)) text += push;
    return text;
  };
  EXPECT_EQ(continued({}, {a}), "a");
  EXPECT_EQ(continued({1}, {a}), "a");  // after BOS the text still starts
  EXPECT_EQ(continued({1, b}, {a}), " a");
  EXPECT_EQ(continued({b, byte + 0xF0, byte + 0x9F}, {byte + 0x98, byte + 0x80}), "😀");
  EXPECT_EQ(continued({byte + 0xF0, byte + 0x9F, 1, byte + 0x98, 2}, {byte + 0x80}), "😀");
  EXPECT_EQ(continued({b, byte + 0xF0}, {b}),
            "\uFFFD"
            "b");
  EXPECT_EQ(continued({byte + 0x80, byte + 0x80, byte + 0x80, byte + 0x80}, {b}), "b");
}

TEST(DetokenizerTest, PrimingByTheWholePromptOrByItsTailIsTheSame) {
  const TinyVocabulary v = TinyVocabulary::SentencePiece({"▁a", "▁▁", "é"});
  const auto t = Make(v);
  std::mt19937 rng(11);
  for (int round = 0; round < 5000; ++round) {
    // Bytes of broken and whole characters, specials and pieces.
    constexpr int32_t kBytes[] = {0xF0, 0x9F, 0x98, 0x80, 0xE4, 0xB8, 0xAD, 0xC3, 0x20, 0x41};
    const auto draw = [&] {
      const uint32_t kind = rng() % 13;
      return kind < 10 ? 3 + kBytes[kind] : kind == 10 ? 1 : static_cast<int32_t>(259 + rng() % 3);
    };
    Ids prompt(rng() % 8), ids(rng() % 4);
    for (int32_t& id : prompt) id = draw();
    for (int32_t& id : ids) id = draw();
    Detokenizer primed(t.get()), pushed(t.get());
    primed.Prime(prompt);
    for (const int32_t id : prompt) pushed.Push(id);
    EXPECT_EQ(Pushes(primed, ids), Pushes(pushed, ids));
  }
}

}  // namespace
}  // namespace sluice
