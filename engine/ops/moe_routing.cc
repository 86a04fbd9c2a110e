#include "engine/ops/moe_routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"

namespace sluice {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A total order: NaN above everything, so that no comparison depends on the order of its operands.
bool IsAbove(double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

double Best(std::span<const double> values) {
  double best = values[0];
  for (double v : values) best = IsAbove(v, best) ? v : best;
  return best;
}

double SumOfTwoBest(std::span<const double> values) {
  double best = -kInf, second = -kInf;
  for (double v : values) {
    if (IsAbove(v, best)) {
      second = best;
      best = v;
    } else if (IsAbove(v, second)) {
      second = v;
    }
  }
  return best + second;
}

void Score(MoeScore kind, std::span<const float> logits, std::span<double> scores) {
  std::copy(logits.begin(), logits.end(), scores.begin());
  if (kind == MoeScore::kSigmoid) {
    for (double& s : scores) s = 1 / (1 + std::exp(-s));
  } else if (kind == MoeScore::kSoftmaxAll) {
    const double best = Best(scores);
    double sum = 0;
    for (double& s : scores) {
      s = std::exp(s - best);
      sum += s;
    }
    for (double& s : scores) s /= sum;
  }
}

// Whether fewer than `num_kept` groups come before group `group`: those above it, and equal ones with a lower index.
bool IsKept(std::span<const double> group_scores, size_t group, int num_kept) {
  int before = 0;
  for (size_t g = 0; g < group_scores.size(); ++g) {
    const bool is_above = IsAbove(group_scores[g], group_scores[group]);
    before += is_above || (g < group && !IsAbove(group_scores[group], group_scores[g]));
  }
  return before < num_kept;
}

// The largest scores so far, in descending order. Experts come with ascending index, so that equals keep that order.
class Leaders {
 public:
  Leaders(std::span<const double> scores, std::span<ExpertChoice> places) : scores_(scores), places_(places) {}

  void Offer(int32_t expert) {
    size_t place = count_;
    while (place > 0 && IsAbove(score(expert), score(places_[place - 1].expert))) --place;
    if (place == places_.size()) return;
    if (count_ < places_.size()) ++count_;
    std::copy_backward(places_.begin() + ptrdiff_t(place), places_.begin() + ptrdiff_t(count_) - 1,
                       places_.begin() + ptrdiff_t(count_));
    places_[place] = {expert, 0};
  }
  size_t count() const { return count_; }

 private:
  double score(int32_t expert) const { return scores_[static_cast<size_t>(expert)]; }

  const std::span<const double> scores_;
  const std::span<ExpertChoice> places_;
  size_t count_ = 0;
};

void ChooseBest(const MoeRouting& routing, std::span<const double> scores, std::span<double> group_scores,
                std::span<ExpertChoice> choices) {
  const size_t num_groups = group_scores.size(), per_group = scores.size() / num_groups;
  const MoeGroups groups = routing.groups.value_or(MoeGroups{});
  for (size_t g = 0; g < num_groups; ++g) {
    const std::span<const double> group = scores.subspan(g * per_group, per_group);
    group_scores[g] = groups.score == MoeGroupScore::kTop2Sum ? SumOfTwoBest(group) : Best(group);
  }
  Leaders leaders(scores, choices);
  for (size_t g = 0; g < num_groups; ++g) {
    if (!IsKept(group_scores, g, groups.num_kept)) continue;
    for (size_t e = g * per_group; e < (g + 1) * per_group; ++e) leaders.Offer(static_cast<int32_t>(e));
  }
  SLUICE_CHECK(leaders.count() == choices.size());
  std::sort(choices.begin(), choices.end(),
            [](const ExpertChoice& a, const ExpertChoice& b) { return a.expert < b.expert; });
}

// `scores` become the weights of the chosen experts.
void Weigh(const MoeRouting& routing, std::span<double> scores, std::span<ExpertChoice> choices) {
  const auto score = [&](const ExpertChoice& choice) -> double& { return scores[static_cast<size_t>(choice.expert)]; };
  const auto sum = [&] {
    double total = 0;
    for (const ExpertChoice& choice : choices) total += score(choice);
    return total;
  };
  if (routing.score == MoeScore::kSoftmaxTopK) {
    double best = score(choices[0]);
    for (const ExpertChoice& choice : choices) best = IsAbove(score(choice), best) ? score(choice) : best;
    for (const ExpertChoice& choice : choices) score(choice) = std::exp(score(choice) - best);
    const double total = sum();
    for (const ExpertChoice& choice : choices) score(choice) /= total;
  }
  const double divisor = routing.renormalize ? sum() + static_cast<double>(routing.renormalize_eps) : 1;
  for (ExpertChoice& choice : choices) {
    choice.weight = static_cast<float>(score(choice) / divisor * static_cast<double>(routing.routed_scale));
  }
}

}  // namespace

void ChooseExperts(const MoeRouting& routing, std::span<const float> logits, const float* selection_bias,
                   std::span<double> scratch, std::span<ExpertChoice> choices) {
  const size_t num_experts = static_cast<size_t>(routing.num_experts);
  const size_t num_groups = routing.groups ? static_cast<size_t>(routing.groups->num_groups) : 1;
  SLUICE_CHECK(logits.size() == num_experts && scratch.size() >= RoutingScratch(routing));
  SLUICE_CHECK(choices.size() == static_cast<size_t>(routing.num_experts_per_token) && !choices.empty());
  SLUICE_CHECK(num_groups >= 1 && num_experts % num_groups == 0);
  const std::span<double> scores = scratch.subspan(0, num_experts);
  const std::span<double> choice_scores = scratch.subspan(num_experts, num_experts);
  Score(routing.score, logits, scores);
  for (size_t e = 0; e < num_experts; ++e) {
    choice_scores[e] = scores[e] + (selection_bias != nullptr ? static_cast<double>(selection_bias[e]) : 0);
  }
  ChooseBest(routing, choice_scores, scratch.subspan(2 * num_experts, num_groups), choices);
  Weigh(routing, scores, choices);
}

}  // namespace sluice
