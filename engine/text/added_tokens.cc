#include "engine/text/added_tokens.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/text/utf8.h"

namespace sluice {
namespace {

using absl::string_view;

// Unicode White_Space.
bool IsSpace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// \w of UTS #18: Alphabetic, marks, decimal digits, connectors and the two joiners. Alphabetic beyond letters, marks
// and Nl are only the circled and squared Latin letters.
bool IsWord(string_view character) {
  static const Regex* const word = [] {
    absl::StatusOr<Regex> made = Regex::Create(
        {R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
         R"(\x{1F170}-\x{1F189}])",
         true});
    SLUICE_CHECK(made.ok());
    return new Regex(*std::move(made));
  }();
  std::vector<TextRange> matches;
  SLUICE_CHECK(Regex::Search(*word).FindAll(character, &matches).ok());
  return !matches.empty();
}

// Where the character before `end` begins. REQUIRES: end > 0.
size_t PreviousCharacter(string_view text, size_t end) {
  size_t begin = end - 1;
  while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

// Where the white space before `end` begins, not before `floor`.
size_t SpaceBegin(string_view text, size_t floor, size_t end) {
  while (end > floor) {
    const size_t begin = PreviousCharacter(text, end);
    if (!IsSpace(DecodeUtf8(text.substr(begin)))) break;
    end = begin;
  }
  return end;
}

size_t SpaceEnd(string_view text, size_t begin) {
  while (begin < text.size() && IsSpace(DecodeUtf8(text.substr(begin)))) begin += Utf8Length(text[begin]);
  return begin;
}

bool IsSingleWord(string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const size_t before = PreviousCharacter(text, begin);
    if (IsWord(text.substr(before, begin - before))) return false;
  }
  return end == text.size() || !IsWord(text.substr(end, Utf8Length(text[end])));
}

}  // namespace

void AddedTokens::Add(string_view text, int32_t id, bool is_control) {
  if (text.empty() || FindInvalidUtf8(text) != string_view::npos) return;
  const uint32_t node = trie_.Insert(text);
  ids_.resize(trie_.num_nodes(), -1);
  control_.resize(trie_.num_nodes(), false);
  if (ids_[node] < 0) {
    ids_[node] = id;
    control_[node] = is_control;
  }
  first_bytes_.set(static_cast<uint8_t>(text[0]));
}

AddedTokens::Match AddedTokens::Find(string_view text, size_t from) const {
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

// Finds the tokens of one text that count, from left to right.
class AddedTokens::Cutter {
 public:
  Cutter(const AddedTokens& tokens, string_view text, absl::Span<const TextRange> trusted)
      : tokens_(tokens), text_(text), trusted_(trusted) {}

  // The leftmost token at or after `from` that counts; id -1 if there is none. REQUIRES: `from` never descends.
  Match Next(size_t from) {
    for (size_t begin = from; begin < text_.size(); ++begin) {
      if (!tokens_.first_bytes_.test(static_cast<uint8_t>(text_[begin]))) continue;
      while (!trusted_.empty() && trusted_.front().end <= begin) trusted_.remove_prefix(1);
      FindAt(begin, text_.size());
      if (candidates_.empty()) continue;
      const Candidate longest = candidates_.back();
      if (longest.is_control && (trusted_.empty() || trusted_.front().begin >= longest.end)) {
        begin = longest.end - 1;  // nothing inside counts either
        continue;
      }
      for (; !candidates_.empty(); candidates_.pop_back()) {
        const Candidate& c = candidates_.back();
        const bool inside = !trusted_.empty() && trusted_.front().begin <= begin && c.end <= trusted_.front().end;
        if (inside || (!c.is_control && !BreaksControlToken(begin, c.end))) return {begin, c.end, c.id};
      }
    }
    return Match();
  }

 private:
  struct Candidate {
    size_t end;
    int32_t id;
    bool is_control;
  };

  // Sets candidates_ to the tokens that begin at `begin` and end by `limit`, shortest first.
  void FindAt(size_t begin, size_t limit) {
    candidates_.clear();
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = begin; i < limit; ++i) {
      node = tokens_.trie_.Child(node, text_[i]);
      if (node == ByteTrie::kNone) return;
      if (tokens_.ids_[node] >= 0) candidates_.push_back({i + 1, tokens_.ids_[node], tokens_.control_[node]});
    }
  }

  bool HasControlTokenAt(size_t begin, size_t limit) const {
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = begin; i < limit; ++i) {
      node = tokens_.trie_.Child(node, text_[i]);
      if (node == ByteTrie::kNone) return false;
      if (tokens_.ids_[node] >= 0 && tokens_.control_[node]) return true;
    }
    return false;
  }

  // Whether a token at [begin, end), partly in text that is not trusted, would take bytes of a control token that
  // begins inside of it in trusted text: what a message says would undo what a template writes.
  bool BreaksControlToken(size_t begin, size_t end) const {
    for (const TextRange& range : trusted_) {
      if (range.begin >= end) break;
      for (size_t i = std::max(range.begin, begin); i < std::min(range.end, end); ++i) {
        if (HasControlTokenAt(i, range.end)) return true;
      }
    }
    return false;
  }

  const AddedTokens& tokens_;
  const string_view text_;
  absl::Span<const TextRange> trusted_;  // those that end after where we are
  std::vector<Candidate> candidates_;
};

void AddedTokens::Cut(string_view text, absl::Span<const TextRange> trusted, std::vector<Match>* parts) const {
  size_t done = 0;       // parts cover text[0, done)
  size_t space_end = 0;  // of the white space that rstrip took last: a long run is walked once
  Cutter cutter(*this, text, trusted);
  size_t from = 0;
  for (Match m = cutter.Next(from); m.id >= 0; m = cutter.Next(from)) {
    from = m.end;
    if (const auto it = options_.find(m.id); it != options_.end()) {
      const AddedTokenOptions& options = it->second;
      if (options.single_word && !IsSingleWord(text, m.begin, m.end)) continue;
      if (options.lstrip) m.begin = std::max(SpaceBegin(text, done, m.begin), done);
      if (options.rstrip) m.end = space_end = m.end < space_end ? space_end : SpaceEnd(text, m.end);
    }
    if (done < m.begin) parts->push_back({done, m.begin, -1});
    parts->push_back(m);
    done = m.end;
  }
  if (done < text.size()) parts->push_back({done, text.size(), -1});
}

}  // namespace sluice
