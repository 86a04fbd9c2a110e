#include "engine/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/text/byte_trie.h"
#include "engine/text/utf8.h"

namespace sluice {

// Aho and Corasick, "Efficient String Matching: An Aid to Bibliographic Search", CACM 18(6), 1975. A node stands for
// the bytes on the way to it: the longest end of the text that begins a stop string.
struct StopMatcher::Automaton {
  struct Node {
    uint32_t depth = 0;    // bytes on the way to this node
    uint32_t failure = 0;  // the node of the longest proper end of those bytes that begins a stop string
    int stop = -1;         // the longest stop string that ends here
  };

  ByteTrie trie;
  std::vector<Node> nodes;
  std::vector<size_t> lengths;  // [stop]
  bool include_stop_text = false;

  uint32_t Next(uint32_t node, char byte) const {
    for (;;) {
      const uint32_t child = trie.Child(node, byte);
      if (child != ByteTrie::kNone) return child;
      if (node == ByteTrie::kRoot) return ByteTrie::kRoot;
      node = nodes[node].failure;
    }
  }
};

absl::StatusOr<StopMatcher> StopMatcher::Create(absl::Span<const std::string> stops, bool include_stop_text) {
  StopMatcher matcher;
  if (stops.empty()) return matcher;
  auto automaton = std::make_shared<Automaton>();
  automaton->include_stop_text = include_stop_text;
  automaton->nodes.resize(1);
  size_t longest = 0;
  for (size_t s = 0; s < stops.size(); ++s) {
    const std::string& stop = stops[s];
    if (stop.empty())
      return absl::InvalidArgumentError(absl::StrCat("stop[", s, "]: found an empty string, expected text"));
    if (const size_t bad = FindInvalidUtf8(stop); bad != absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("stop[", s, "]: byte ", bad, " is not UTF-8"));
    }
    const uint32_t end = automaton->trie.Insert(stop);
    automaton->nodes.resize(automaton->trie.num_nodes());
    if (automaton->nodes[end].stop < 0) automaton->nodes[end].stop = static_cast<int>(s);
    automaton->lengths.push_back(stop.size());
    longest = std::max(longest, stop.size());
  }

  // Failures by increasing depth: a node's failure is shallower than the node.
  std::vector<uint32_t> node_of_stop(stops.size(), ByteTrie::kRoot);
  for (size_t depth = 1; depth <= longest; ++depth) {
    for (size_t s = 0; s < stops.size(); ++s) {
      if (stops[s].size() < depth) continue;
      const char byte = stops[s][depth - 1];
      const uint32_t parent = node_of_stop[s];
      const uint32_t node = automaton->trie.Child(parent, byte);
      node_of_stop[s] = node;
      Automaton::Node& at = automaton->nodes[node];
      if (at.depth != 0) continue;  // a beginning shared with an earlier stop
      at.depth = static_cast<uint32_t>(depth);
      at.failure =
          parent == ByteTrie::kRoot ? ByteTrie::kRoot : automaton->Next(automaton->nodes[parent].failure, byte);
      if (at.stop < 0) at.stop = automaton->nodes[at.failure].stop;
    }
  }
  matcher.automaton_ = std::move(automaton);
  return matcher;
}

StopMatcher::Result StopMatcher::Push(absl::string_view text, bool may_stop) {
  Result result;
  if (matched_) return result;
  if (automaton_ == nullptr) {
    result.text.assign(text.data(), text.size());
    return result;
  }
  size_t scanned = 0;
  while (scanned < text.size() && result.stop_index < 0) {
    state_ = automaton_->Next(state_, text[scanned++]);
    if (may_stop) result.stop_index = automaton_->nodes[state_].stop;
  }
  result.text = std::exchange(held_, std::string());
  result.text.append(text.data(), scanned);
  if (automaton_->include_stop_text) {
    matched_ = result.stop_index >= 0;
    return result;
  }
  size_t keep = automaton_->nodes[state_].depth;
  if (result.stop_index >= 0) {
    matched_ = true;
    keep = automaton_->lengths[result.stop_index];
  }
  SLUICE_CHECK(keep <= result.text.size());
  if (!matched_) held_ = result.text.substr(result.text.size() - keep);
  result.text.resize(result.text.size() - keep);
  return result;
}

std::string StopMatcher::Flush() { return std::exchange(held_, std::string()); }

}  // namespace sluice
