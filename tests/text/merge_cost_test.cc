// Two megabytes without a word break: the work is counted, not timed, and the stack stays small.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/text/bpe.h"
#include "engine/text/sentencepiece_bpe.h"
#include "engine/text/tokenizer.h"
#include "tests/sanitized.h"
#include "tests/text/real_vocabulary.h"
#include "tests/text/tiny_vocabulary.h"

namespace sluice {
namespace {

using absl::string_view;
using Ids = std::vector<int32_t>;

constexpr size_t kBytes = kSanitized ? 256 << 10 : 2 << 20;

std::string Repeat(string_view unit) {
  std::string text;
  while (text.size() < kBytes) text.append(unit.data(), unit.size());
  return text;
}

// At most 3n candidates, each pushed with up to log2(3n) comparisons and popped with up to twice as many.
void ExpectNLogN(int64_t operations, size_t n) {
  EXPECT_LE(static_cast<double>(operations), 9.0 * static_cast<double>(n) * (std::log2(static_cast<double>(n)) + 2));
  EXPECT_GT(operations, static_cast<int64_t>(n) / 2);
}

template <typename Model>
void ExpectCheap(const Model& model, std::initializer_list<string_view> units) {
  for (const string_view unit : units) {
    const std::string text = Repeat(unit);
    MergeScratch scratch;
    Ids ids;
    model.Encode(text, &scratch, &ids);
    EXPECT_FALSE(ids.empty()) << unit;
    ExpectNLogN(scratch.operations, scratch.symbols.size());
  }
}

TEST(MergeCostTest, ByteLevelBpeIsNLogN) {
  // Merges that double: a, aa, aaaa, ... so that every level of merging runs over the whole text.
  const TinyVocabulary v = TinyVocabulary::ByteLevel(
      "gpt-2", {"a a", "aa aa", "aaaa aaaa", "aaaaaaaa aaaaaaaa", "a b", "ab ab", "Ġ Ġ", "ĠĠ ĠĠ", "Ã ©", "Ċ Ċ", "0 0"});
  const auto bpe = ByteLevelBpe::Create(v.spec);
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  ExpectCheap(*bpe, {"a", "aab", "é"});
}

TEST(MergeCostTest, SentencePieceBpeIsNLogN) {
  const TinyVocabulary v = TinyVocabulary::SentencePiece({"aa", "aaaa", "aaaaaaaa", "aaaaaaaaaaaaaaaa", "ab", "abab",
                                                          "▁▁", "▁▁▁▁", "éé", "00", "▁a", "a", "b", "é", "▁", "0"});
  const auto bpe = SentencePieceBpe::Create(v.spec);
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  ExpectCheap(*bpe, {"a", "aab", "é"});
}

TEST(MergeCostTest, MergingOneByOneFromTheLeftIsNLogNToo) {
  // aa+a, aaa+a, ...: each result is one longer, up to a long word, and every step changes the neighbour of the next.
  std::vector<std::string> merges;
  std::string left = "a";
  for (int i = 0; i < 200; ++i) {
    merges.push_back(left + " a");
    left += "a";
  }
  std::vector<string_view> views(merges.begin(), merges.end());
  const TinyVocabulary v = TinyVocabulary::ByteLevel("gpt-2", views);
  const auto bpe = ByteLevelBpe::Create(v.spec);
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  MergeScratch scratch;
  Ids ids;
  bpe->Encode(Repeat("a"), &scratch, &ids);
  ExpectNLogN(scratch.operations, scratch.symbols.size());
}

TEST(MergeCostTest, RealVocabulariesAreNLogN) {
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "ggml-vocab-llama-spm.gguf"}) {
    const absl::StatusOr<RealVocabulary> vocabulary = LoadRealVocabulary(name);
    if (absl::IsNotFound(vocabulary.status())) GTEST_SKIP() << vocabulary.status().message();
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    if (vocabulary->spec.model == TokenizerModel::kByteLevelBpe) {
      ExpectCheap(*ByteLevelBpe::Create(vocabulary->spec), {"a", " "});
    } else {
      ExpectCheap(*SentencePieceBpe::Create(vocabulary->spec), {"a", " "});
    }
  }
}

// Runs `work` on a thread whose stack has `bytes`.
void RunWithStack(size_t bytes, const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(MergeCostTest, AWholeEncodeNeedsNoDeepStack) {
  const TinyVocabulary byte_level = TinyVocabulary::ByteLevel("smollm", {"a a", "aa aa", "Ġ Ġ"}, {"<|end|>"});
  const TinyVocabulary sentence_piece = TinyVocabulary::SentencePiece({"aa", "a", "▁", "▁▁"});
  for (const TinyVocabulary* v : {&byte_level, &sentence_piece}) {
    const auto tokenizer = Tokenizer::Create(v->spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    RunWithStack(512 << 10, [&] {
      for (const string_view unit : {"a", " "}) {
        const std::string text = Repeat(unit);
        const absl::StatusOr<Ids> ids = (*tokenizer)->Encode(text);
        ASSERT_TRUE(ids.ok()) << ids.status();
        EXPECT_EQ((*tokenizer)->Decode(*ids, false), text);
      }
    });
  }
}

}  // namespace
}  // namespace sluice
