// Tokens that are matched in text as a whole, before any splitting: control, unknown and user-defined ones.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/byte_trie.h"
#include "engine/text/regex.h"
#include "engine/text/tokenizer_spec.h"

namespace sluice {

// Of two classes: a control token is found only in text that is trusted, so that the words of a message cannot write
// it; any other is found everywhere. Immutable once filled; Find and Cut are thread-safe.
class AddedTokens {
 public:
  // An empty text and one that is not UTF-8 are ignored: no text has them inside. Of equal texts the first wins.
  void Add(absl::string_view text, int32_t id, bool is_control);
  // Says more of a token that was added.
  void SetOptions(const AddedTokenOptions& options) { options_[options.id] = options; }

  bool empty() const { return ids_.size() == 1; }

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;
  };

  // The leftmost match in `text` at or after `from`, the longest one there; id -1 if there is none. Takes no notice of
  // options and classes. Time: the distance walked times the longest added token at worst, usually the distance.
  Match Find(absl::string_view text, size_t from) const;

  // Appends the tokens in `text` and (with id -1) what lies between them, in order: leftmost, then longest, as in
  // Hugging Face's, which with encode_special_tokens is this with nothing trusted. A control token counts only inside
  // of one of the `trusted` ranges, which ascend and are disjoint; where it lies in other text it is ordinary text as a
  // whole. Any other token may cross the border of a range, unless it takes part of a control token inside. The white
  // space that lstrip and rstrip take may lie anywhere. REQUIRES: `text` is UTF-8.
  void Cut(absl::string_view text, absl::Span<const TextRange> trusted, std::vector<Match>* parts) const;

 private:
  class Cutter;

  ByteTrie trie_;
  std::vector<int32_t> ids_{-1};      // [node]: the token that ends there, or -1
  std::vector<bool> control_{false};  // [node]: whether that is a control token
  std::bitset<256> first_bytes_;
  absl::flat_hash_map<int32_t, AddedTokenOptions> options_;  // by id; of few tokens
};

}  // namespace sluice
