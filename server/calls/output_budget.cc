#include "server/calls/output_budget.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice {

OutputBudget::Holding::~Holding() { budget_.Remove(this, bytes_); }
bool OutputBudget::Holding::Add(int64_t bytes) { return budget_.Add(this, bytes); }
void OutputBudget::Holding::Remove(int64_t bytes) { budget_.Remove(this, bytes); }

std::unique_ptr<OutputBudget::Holding> OutputBudget::Open(std::string peer, std::function<void()> cut) {
  return std::unique_ptr<Holding>(new Holding(this, std::move(peer), std::move(cut)));
}

int64_t OutputBudget::bytes() const {
  MutexLock lock(&mutex_);
  return total_bytes_;
}

int64_t OutputBudget::num_cut() const {
  MutexLock lock(&mutex_);
  return num_cut_;
}

void OutputBudget::Change(Holding* holding, int64_t bytes) {
  holding->bytes_ += bytes;
  total_bytes_ += bytes;
  Connection& connection = connections_[holding->peer_];
  connection.bytes += bytes;
  if (holding->bytes_ > 0) {
    connection.holdings.insert(holding);
    return;
  }
  connection.holdings.erase(holding);
  if (connection.holdings.empty()) connections_.erase(holding->peer_);
}

OutputBudget::Holding* OutputBudget::LargestOf(const Connection& connection) {
  return *std::max_element(connection.holdings.begin(), connection.holdings.end(),
                           [](const Holding* a, const Holding* b) { return a->bytes_ < b->bytes_; });
}

bool OutputBudget::Add(Holding* holding, int64_t bytes) {
  std::vector<std::shared_ptr<const std::function<void()>>> cuts;
  bool stays = false;
  {
    MutexLock lock(&mutex_);
    if (holding->is_cut_) return false;
    if (bytes <= 0) return true;
    Change(holding, bytes);
    while (!holding->is_cut_) {
      const Connection* over = &connections_[holding->peer_];
      if (over->bytes <= limits_.connection_bytes) {
        if (total_bytes_ <= limits_.total_bytes) break;
        over = &std::max_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
                  return a.second.bytes < b.second.bytes;
                })->second;
      }
      Holding* largest = LargestOf(*over);
      largest->is_cut_ = true;
      ++num_cut_;
      Change(largest, -largest->bytes_);
      if (largest != holding) cuts.push_back(largest->cut_);
    }
    stays = !holding->is_cut_;
  }
  for (const auto& cut : cuts) (*cut)();
  return stays;
}

void OutputBudget::Remove(Holding* holding, int64_t bytes) {
  MutexLock lock(&mutex_);
  bytes = std::min(bytes, holding->bytes_);
  if (bytes > 0) Change(holding, -bytes);
}

}  // namespace sluice
