// The merge loop of byte-pair encoding, shared by every model: which pairs merge, and how early, is a function of the
// caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/base/check.h"

namespace sluice {

struct BpeSymbol {
  int32_t id = -1;     // the token, or -1 where the vocabulary has none
  uint32_t begin = 0;  // bytes of the piece [begin, end)
  uint32_t end = 0;
  int32_t prev = -1;  // neighbours still alive, -1 at the ends
  int32_t next = -1;
};

// The result of looking a pair up: lower ranks merge earlier. id -1: the pair does not merge.
struct BpeMerge {
  uint32_t rank = 0;
  int32_t id = -1;
};

// Memory that one Encode call reuses from word to word, and a count of the work done.
struct MergeScratch {
  struct Candidate {
    uint32_t rank;
    int32_t left;  // index of the left symbol
    int32_t merged_id;
    uint32_t left_end;   // where both symbols ended when the candidate was made: if either has grown since, the
    uint32_t right_end;  // candidate is stale
  };
  std::vector<BpeSymbol> symbols;
  std::vector<Candidate> heap;
  int64_t operations = 0;  // comparisons in the heap plus lookups of pairs, over all calls
};

// Merges the symbols of scratch->symbols, which are given adjacent and in order, until no pair merges: always the pair
// with the lowest rank, the leftmost of equals. Survivors stay in place; follow `next` from symbol 0, which always
// survives. `lookup(const BpeSymbol& left, const BpeSymbol& right)` returns a BpeMerge.
//
// Every merge leaves at most two new pairs behind, so for n symbols there are at most 3n candidates and O(n log n)
// steps. Pairs that a merge destroyed stay in the heap and are skipped when they come up.
template <typename Lookup>
void MergeSymbols(MergeScratch* scratch, const Lookup& lookup) {
  using Candidate = MergeScratch::Candidate;
  std::vector<BpeSymbol>& symbols = scratch->symbols;
  std::vector<Candidate>& heap = scratch->heap;
  int64_t operations = 0;

  const auto later = [&operations](const Candidate& a, const Candidate& b) {
    ++operations;
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto candidate_at = [&](int32_t left, Candidate* candidate) {
    const int32_t right = symbols[left].next;
    if (right < 0) return false;
    ++operations;
    const BpeMerge merge = lookup(symbols[left], symbols[right]);
    *candidate = {merge.rank, left, merge.id, symbols[left].end, symbols[right].end};
    return merge.id >= 0;
  };
  const auto push = [&](int32_t left) {
    Candidate candidate;
    if (!candidate_at(left, &candidate)) return;
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end(), later);
  };

  heap.clear();
  const int32_t count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].prev = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i + 1 < count; ++i) {
    Candidate candidate;
    if (candidate_at(i, &candidate)) heap.push_back(candidate);
  }
  std::make_heap(heap.begin(), heap.end(), later);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    BpeSymbol& left = symbols[top.left];
    // A symbol that was merged into its left neighbour has its end set to its begin, so it matches no candidate.
    if (left.end != top.left_end || left.next < 0 || symbols[left.next].end != top.right_end) continue;
    BpeSymbol& right = symbols[left.next];
    left.id = top.merged_id;
    left.end = right.end;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].prev = top.left;
    right.end = right.begin;
    push(top.left);
    if (left.prev >= 0) push(left.prev);
  }
  scratch->operations += operations;
}

}  // namespace sluice
