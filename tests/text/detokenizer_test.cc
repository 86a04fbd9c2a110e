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

TEST(DetokenizerTest, AContinuationCompletesThePromptsCharacter) {
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

bool BeginsACharacter(const std::string& bytes) {
  for (const char* next : {"\x80", "\x90", "\xA0"}) {
    for (int more = 0; more < 3; ++more) {
      const std::string all = bytes + next + std::string(more, '\x80');
      if (FindInvalidUtf8(all) == absl::string_view::npos && Utf8Length(all[0]) == all.size()) return true;
    }
  }
  return false;
}

// The continuation in plain loops: each run of byte tokens is text or a U+FFFD for each of its bytes; of one that
// begins in the prompt, what the prompt had complete is not told again.
std::string Continuation(const Tokenizer& t, const Ids& prompt, const Ids& ids) {
  std::string text, run;
  size_t shown = 0;  // of the run
  const auto end_run = [&] {
    const bool is_text = FindInvalidUtf8(run) == absl::string_view::npos;
    for (size_t i = shown; i < run.size(); ++i) text += is_text ? run.substr(i, 1) : "\uFFFD";
    run.clear();
    shown = 0;
  };
  const auto take = [&](const Ids& tokens) {
    for (const int32_t id : tokens) {
      if (t.IsSpecial(id)) continue;
      if (!t.IsByteToken(id)) end_run();
      (t.IsByteToken(id) ? run : text) += std::string(t.TokenBytes(id));
    }
  };
  take(prompt);
  const bool begun = !text.empty() || !run.empty();
  text.clear();
  shown = run.size();
  for (size_t begin = 1; begin <= 3 && begin <= run.size(); ++begin) {
    const size_t at = run.size() - begin;
    if (FindInvalidUtf8(run.substr(0, at)) == absl::string_view::npos && BeginsACharacter(run.substr(at))) shown = at;
  }
  take(ids);
  end_run();
  return !begun && text.substr(0, 1) == " " ? text.substr(1) : text;
}

TEST(DetokenizerTest, APrimedDetokenizerTellsWhatThePromptHadNotComplete) {
  const TinyVocabulary v = TinyVocabulary::SentencePiece({"▁a", "▁▁", "é"});
  const auto t = Make(v);
  std::mt19937 rng(11);
  for (int round = 0; round < 20000; ++round) {
    // Bytes of broken and whole characters, specials and pieces.
    constexpr int32_t kBytes[] = {0xF0, 0x9F, 0x98, 0x80, 0xE4, 0xB8, 0xAD, 0xC3, 0x20, 0x41};
    const auto draw = [&] {
      const uint32_t kind = rng() % 13;
      return kind < 10 ? 3 + kBytes[kind] : kind == 10 ? 1 : static_cast<int32_t>(259 + rng() % 3);
    };
    Ids prompt(rng() % 8), ids(rng() % 5);
    for (int32_t& id : prompt) id = draw();
    for (int32_t& id : ids) id = draw();
    Detokenizer primed(t.get());
    primed.Prime(prompt);
    std::string text;
    for (const std::string& push : Pushes(primed, ids)) text += push;
    EXPECT_EQ(text, Continuation(*t, prompt, ids));
  }
}

TEST(DetokenizerTest, ByteTokenRunsBecomeTextAsAWhole) {
  const TinyVocabulary v = TinyVocabulary::SentencePiece({"▁a", "b"});
  const auto t = Make(v);
  using Strings = std::vector<std::string>;
  const int32_t b = 260, byte = 3;
  const auto of = [&](const std::string& bytes) {
    Ids ids;
    for (const char c : bytes) ids.push_back(byte + static_cast<uint8_t>(c));
    return ids;
  };
  const auto with = [](Ids ids, const Ids& more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  };
  EXPECT_EQ(Pushes(Detokenizer(t.get()), with(of("é"), {b})), (Strings{"", "", "éb", ""}));
  EXPECT_EQ(Pushes(Detokenizer(t.get()), of("é")), (Strings{"", "", "é"}));
  EXPECT_EQ(t->Decode(with(of("😀\xF0"), {b}), true), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDb");
  EXPECT_EQ(t->Decode(with({b}, of("\xF0\x9F\x98")), true), "b\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(t->Decode(with(of("\xFF"), with({b}, of("é"))), true), "\uFFFDbé");  // two runs
  EXPECT_EQ(t->Decode(with(of("\xC3"), with({1}, of("\xA9"))), true), "é");      // a token left out parts none
  EXPECT_EQ(t->Decode(with(of("\xC3"), with({1}, of("\xA9"))), false), "\uFFFD<s>\uFFFD");
}

}  // namespace
}  // namespace sluice
