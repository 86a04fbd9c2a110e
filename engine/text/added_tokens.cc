#include "engine/text/added_tokens.h"

namespace sluice {

void AddedTokens::Add(absl::string_view text, int32_t id) {
  if (text.empty()) return;
  const uint32_t node = trie_.Insert(text);
  ids_.resize(trie_.num_nodes(), -1);
  if (ids_[node] < 0) ids_[node] = id;
  first_bytes_.set(static_cast<uint8_t>(text[0]));
}

AddedTokens::Match AddedTokens::Find(absl::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_.test(static_cast<uint8_t>(text[begin]))) continue;
    Match longest;
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = begin; i < text.size(); ++i) {
      node = trie_.Child(node, text[i]);
      if (node == ByteTrie::kNone) break;
      if (ids_[node] >= 0) longest = {begin, i + 1, ids_[node]};
    }
    if (longest.id >= 0) return longest;
  }
  return Match();
}

}  // namespace sluice
