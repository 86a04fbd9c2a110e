#include "engine/scheduler/output_lengths.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"

namespace sluice {
namespace {

constexpr int32_t kFinestBin = 16;
constexpr int32_t kBinsPerDoubling = 8;  // roughly: a bin is an eighth of its beginning
constexpr double kFading = 1 - 1.0 / 64;
constexpr double kPriorWeight = 1;
constexpr int32_t kPriorLength = 1024;

// The part of those at the beginning of a bin that the prior lets stop in it.
double PriorHazard(int32_t begin, int32_t end) {
  return 1 - double(std::max(begin, kPriorLength)) / double(std::max(end, kPriorLength));
}

}  // namespace

OutputLengths::OutputLengths(int32_t max_length) {
  SLUICE_CHECK(max_length >= 1);
  for (int64_t edge = 0;; edge += std::max<int64_t>(kFinestBin, edge / kBinsPerDoubling)) {
    edges_.push_back(int32_t(std::min<int64_t>(edge, INT32_MAX)));
    if (edge >= max_length) break;
  }
  reached_.assign(edges_.size() - 1, 0);
  stopped_.assign(edges_.size() - 1, 0);
}

void OutputLengths::AddReached(int32_t length, double weight, std::vector<double>* reached) const {
  for (size_t bin = 0; bin < reached->size() && edges_[bin] < length; ++bin) {
    const double part = double(length - edges_[bin]) / double(edges_[bin + 1] - edges_[bin]);
    (*reached)[bin] += weight * std::min(1.0, part);
  }
}

void OutputLengths::Record(int32_t length, bool stopped) {
  SLUICE_CHECK(length >= 0);
  for (double& reached : reached_) reached *= kFading;
  for (double& n : stopped_) n *= kFading;
  if (!stopped) return AddReached(length, 1, &reached_);
  // Whoever stopped in a bin had all of it before it.
  const auto end = std::lower_bound(edges_.begin() + 1, edges_.end() - 1, length);
  AddReached(*end, 1, &reached_);
  stopped_[size_t(end - edges_.begin()) - 1] += 1;
}

OutputLengths::Survival OutputLengths::Estimate(const std::vector<int32_t>& growing) const {
  std::vector<double> reached = reached_;
  for (int32_t length : growing) AddReached(length, 1, &reached);
  Survival survival;
  survival.edges_ = &edges_;
  survival.log_at_edge_.reserve(edges_.size());
  double log = 0;
  survival.log_at_edge_.push_back(log);
  for (size_t bin = 0; bin < reached.size(); ++bin) {
    const double prior = kPriorWeight * PriorHazard(edges_[bin], edges_[bin + 1]);
    // Below 1: nobody stops more often than being there, and the prior's output goes on.
    const double hazard = (stopped_[bin] + prior) / (std::max(reached[bin], stopped_[bin]) + kPriorWeight);
    log += std::log1p(-hazard);
    survival.log_at_edge_.push_back(log);
  }
  return survival;
}

double OutputLengths::Survival::LogOf(int32_t length) const {
  const std::vector<int32_t>& edges = *edges_;
  const auto end = std::upper_bound(edges.begin() + 1, edges.end() - 1, length);
  const size_t bin = size_t(end - edges.begin()) - 1;
  const double part = double(std::min(length, edges[bin + 1]) - edges[bin]) / double(edges[bin + 1] - edges[bin]);
  return log_at_edge_[bin] + part * (log_at_edge_[bin + 1] - log_at_edge_[bin]);
}

double OutputLengths::Survival::operator()(int32_t from, int32_t to) const {
  if (to <= from) return 1;
  return std::exp(LogOf(to) - LogOf(from));
}

}  // namespace sluice
