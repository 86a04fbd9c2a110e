#include "engine/text/merge_table.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/quote.h"

namespace sluice {

TokenIds IndexTokens(const TokenizerSpec& spec) {
  const std::vector<absl::string_view>& tokens = spec.tokens;
  absl::flat_hash_set<int32_t> foreign;
  for (const AddedTokenOptions& added : spec.added) {
    if (!added.in_model) foreign.insert(added.id);
  }
  TokenIds ids;
  ids.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    if (!tokens[i].empty() && !foreign.contains(id)) ids.try_emplace(tokens[i], id);
  }
  return ids;
}

absl::StatusOr<MergeTable> MergeTable::Create(const std::vector<MergeRule>& merges, const TokenIds& ids) {
  const auto find = [&ids](absl::string_view token) {
    const auto it = ids.find(token);
    return it == ids.end() ? -1 : it->second;
  };
  MergeTable table;
  table.merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const MergeRule& rule = merges[rank];
    joined.assign(rule.left.data(), rule.left.size());
    joined.append(rule.right.data(), rule.right.size());
    const int32_t left = find(rule.left), right = find(rule.right), merged = find(joined);
    if (rule.right.empty() || left < 0 || right < 0 || merged < 0) {
      const absl::string_view missing = left < 0 ? rule.left : right < 0 ? rule.right : absl::string_view(joined);
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer merges[", rank, "]: ", Quote(rule.left), " + ", Quote(rule.right), ": ",
                       rule.right.empty()
                           ? "found one part, expected two"
                           : absl::StrCat(Quote(missing), " is no token, expected both parts and their result to be")));
    }
    // A pair listed twice has its later rank, as in Hugging Face's.
    table.merges_[Key(left, right)] = {static_cast<uint32_t>(rank), merged};
  }
  return table;
}

}  // namespace sluice
