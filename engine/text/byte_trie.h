// A trie over byte strings, small enough for a handful of stop strings and fast enough for thousands of added tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Nodes are numbered in the order of their creation, the root is 0; a node's parent has a smaller number.
class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;

  // The node at the end of `key`.
  uint32_t Insert(absl::string_view key) {
    uint32_t node = kRoot;
    for (const char c : key) {
      const auto [it, inserted] = children_.try_emplace(Edge(node, c), num_nodes_);
      if (inserted) ++num_nodes_;
      node = it->second;
    }
    return node;
  }

  uint32_t Child(uint32_t node, char byte) const {
    const auto it = children_.find(Edge(node, byte));
    return it == children_.end() ? kNone : it->second;
  }

  uint32_t num_nodes() const { return num_nodes_; }

 private:
  static uint64_t Edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

  absl::flat_hash_map<uint64_t, uint32_t> children_;
  uint32_t num_nodes_ = 1;
};

}  // namespace sluice
