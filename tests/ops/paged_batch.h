// The flat arrays of a step over sequences that grow chunk by chunk in a paged cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/ops/ops.h"

namespace sluice {

// `count` further tokens of sequence `sequence`.
struct Chunk {
  int sequence, count;
};
using Schedule = std::vector<std::vector<Chunk>>;  // by step

// Lengths around pages, tiles and splits; several sequences in a step, some decoding, some in chunks, one with no row.
inline Schedule RaggedSchedule() {
  return {{{0, 15}, {1, 1}, {2, 64}, {3, 255}},
          {{0, 1}, {1, 1}, {2, 1}, {3, 1}},
          {{3, 1}, {1, 0}, {0, 1}},
          {{2, 40}, {0, 1}, {3, 30}, {1, 1}},
          {{4, 300}, {0, 5}},
          {{4, 1}, {0, 1}}};
}

class PagedBatch {
 public:
  static constexpr int kTokens = 64, kMaxPosition = 1200, kGroup = 1;

  // Blocks are drawn in an order of chance.
  PagedBatch(int block_size, int num_blocks, std::mt19937& rng) : block_size_(block_size) {
    free_blocks_.resize(static_cast<size_t>(num_blocks));
    std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
    std::shuffle(free_blocks_.begin(), free_blocks_.end(), rng);
  }

  // Forgets all sequences.
  void Reset() {
    for (auto& [sequence, table] : tables_) {
      for (int32_t block : table) {
        if (block >= 0) free_blocks_.push_back(block);
      }
    }
    lengths_.clear();
    tables_.clear();
  }

  // Blocks of positions before `position` are taken away from the table, as for a window layer. They are the next to be
  // handed out.
  void Forget(int sequence, int position) {
    for (int i = 0; i < position / block_size_; ++i) {
      const int32_t block = std::exchange(tables_[sequence][static_cast<size_t>(i)], -1);
      if (block >= 0) free_blocks_.push_back(block);
    }
  }

  // The next step. numerics_of(sequence): its RequestNumerics.
  template <class NumericsOf>
  void Make(const std::vector<Chunk>& step, NumericsOf&& numerics_of) {
    token_ids_.clear(), positions_.clear(), sequence_of_row_.clear(), slots_.clear();
    row_starts_ = {0}, context_lens_.clear(), logits_rows_.clear(), row_routes_.clear(), rope_classes_.clear();
    const size_t stride = static_cast<size_t>(kMaxPosition / block_size_ + 1);
    block_tables_.assign(stride * step.size(), -1);
    for (size_t s = 0; s < step.size(); ++s) {
      const auto [sequence, count] = step[s];
      int& length = lengths_[sequence];
      std::vector<int32_t>& table = tables_[sequence];
      const RequestNumerics numerics = numerics_of(sequence);
      for (int i = 0; i < count; ++i, ++length) {
        if (length % block_size_ == 0) {
          table.push_back(free_blocks_.back());
          free_blocks_.pop_back();
        }
        token_ids_.push_back(TokenOf(sequence, length));
        positions_.push_back(length);
        row_routes_.push_back(numerics.route(length));
        sequence_of_row_.push_back(sequence);
        slots_.push_back(table.back() * block_size_ + length % block_size_);
        logits_rows_.push_back(static_cast<int32_t>(logits_rows_.size()));
      }
      std::copy(table.begin(), table.end(), block_tables_.begin() + static_cast<int64_t>(s * stride));
      row_starts_.push_back(static_cast<int32_t>(token_ids_.size()));
      context_lens_.push_back(length);
      rope_classes_.push_back(numerics.rope_class);
    }
    groups_ = {KvGroupView{}, KvGroupView{slots_, block_tables_, static_cast<int32_t>(stride)}};
  }

  BatchView view() const {
    return {token_ids_, positions_, row_starts_, context_lens_, groups_, logits_rows_, row_routes_, rope_classes_};
  }
  size_t num_rows() const { return token_ids_.size(); }
  std::pair<int, int> key(size_t row) const { return {sequence_of_row_[row], positions_[row]}; }

 private:
  static int TokenOf(int sequence, int position) { return (position * 37 + sequence * 11 + position / 5) % kTokens; }

  const int block_size_;
  std::vector<int32_t> free_blocks_;
  std::map<int, int> lengths_;
  std::map<int, std::vector<int32_t>> tables_;

  std::vector<int32_t> token_ids_, positions_, sequence_of_row_, slots_, row_starts_, context_lens_, block_tables_,
      logits_rows_, rope_classes_;
  std::vector<RowRoute> row_routes_;
  std::vector<KvGroupView> groups_;
};

}  // namespace sluice
