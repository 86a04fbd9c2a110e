// How long outputs get, learned from those that have ended: admission counts on what sequences will use, not on what
// they may use.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// The lengths are cut into bins, of 16 tokens at first, later of an eighth of where they begin. Of each bin is known
// how many outputs reached it and how many of these stopped in it of their own accord (an end or stop token, a client
// that left); an output that max_tokens cut short is evidence of the bins it passed and of nothing after them (the
// estimate of Kaplan and Meier). Old ends fade: the last 64 or so count.
//
// In every bin one more output is assumed to have been there, which of its own accord ends nowhere below 1024 tokens,
// and behind stops so often that each doubling of the length halves those that get there. Of an engine that has seen
// nothing end, that is the whole estimate: outputs take what max_tokens allows, if that is not absurdly much.
//
// Not thread-safe: owned by the engine thread.
class OutputLengths {
 public:
  explicit OutputLengths(int32_t max_length);  // REQUIRES: max_length >= 1

  // An output that could have stopped anywhere has ended with `length` tokens, of its own accord or (stopped = false)
  // because it had to. REQUIRES: 0 <= length
  void Record(int32_t length, bool stopped);

  // From ends so far and from the lengths of outputs that are still growing, which have passed their bins too: without
  // them the short ones, which end first, would be all that is known.
  class Survival {
   public:
    // The share of outputs of `from` tokens that get to have more than `to`. 1 if to <= from. REQUIRES: from >= 0
    double operator()(int32_t from, int32_t to) const;

   private:
    friend class OutputLengths;
    double LogOf(int32_t length) const;
    const std::vector<int32_t>* edges_ = nullptr;
    std::vector<double> log_at_edge_;  // natural logarithm of the share that gets over the edge
  };
  // Valid as long as this object.
  Survival Estimate(const std::vector<int32_t>& growing) const;

 private:
  void AddReached(int32_t length, double weight, std::vector<double>* reached) const;

  std::vector<int32_t> edges_;  // bin i holds lengths edges_[i] < length <= edges_[i + 1]; the last is >= max_length
  std::vector<double> reached_;  // outputs that got into or over the bin, one that ended in it by its part
  std::vector<double> stopped_;
};

}  // namespace sluice
