#include "engine/scheduler/kv_forecast.h"

#include <algorithm>
#include <cmath>

#include "engine/scheduler/kv_blocks.h"
#include "engine/scheduler/prompt_shares.h"

namespace sluice {
namespace {

constexpr int32_t kPartOfTheWay = 8;
constexpr double kSpreads = 1.5;

}  // namespace

KvForecast::KvForecast(const EngineOptions& options) : options_(options) {
  for (int64_t moment = 0;; moment += std::max<int64_t>(options.block_size, moment / kPartOfTheWay)) {
    moments_.push_back(int32_t(std::min<int64_t>(moment, INT32_MAX)));
    if (moment >= options.max_model_len) break;
  }
}

KvForecast::Load KvForecast::LoadOf(const Sequence& s) const {
  Load load{.sequence = &s, .num_remaining = s.num_remaining_tokens()};
  for (const BlockTable& table : s.block_tables) {
    if (table.rolls()) continue;
    const BlockTable::SharedPart shared = table.CountShared();
    load.num_shared += shared.num_blocks;
    load.part_of_shared += shared.part;
  }
  return load;
}

KvForecast::Load KvForecast::LoadOf(const Sequence& s, const PrefixHit& hit) const {
  return {.sequence = &s,
          .num_remaining = s.num_tokens() - hit.num_blocks * options_.block_size,
          .num_shared = hit.num_live};
}

double KvForecast::MostBlocks(const Load& load) const {
  const Sequence& s = *load.sequence;
  const int64_t num_tokens = int64_t{s.num_prompt_tokens} + s.request.sampling.max_tokens - 1;
  const int64_t blocks = std::max(PeakBlocks(s.num_tokens(), options_), DecodeBlocks(num_tokens, options_));
  return double(blocks - load.num_shared) + load.part_of_shared;
}

int32_t KvForecast::PromptSteps(const Load& load) const {
  if (load.num_remaining == 1) return 0;
  const int64_t rows = prompt_rows_ + load.num_remaining;
  const int32_t rows_of_step = std::min(PromptRowsBesideDecodes(options_), options_.max_num_batched_tokens);
  return int32_t(std::min<int64_t>((rows - 1) / rows_of_step, INT32_MAX / 2));
}

template <typename Visit>
void KvForecast::ForEachMoment(const Load& load, Visit visit) const {
  const Sequence& s = *load.sequence;
  const SamplingParams& sampling = s.request.sampling;
  const int32_t left = sampling.max_tokens - s.num_output_tokens();
  const int32_t prompt_steps = PromptSteps(load);
  const bool can_stop = s.can_stop_early();
  const int32_t first_stop = std::max(s.num_output_tokens(), sampling.min_tokens);
  for (size_t i = 0; i + 1 < moments_.size(); ++i) {
    const int32_t drawn = std::max(0, moments_[i] - prompt_steps);
    if (drawn >= left) return;
    const int32_t longest = std::clamp(moments_[i + 1] - 1 - prompt_steps, 0, left - 1);
    int64_t held = DecodeBlocks(s.num_tokens() + longest, options_);
    if (moments_[i] < prompt_steps) held = std::max(held, PeakBlocks(s.num_tokens(), options_));
    const auto blocks = double(held - load.num_shared);
    const double alive = can_stop ? survival_(first_stop, s.num_output_tokens() + drawn) : 1.0;
    visit(i, Demand{alive * blocks, alive * (1 - alive) * blocks * blocks});
  }
}

void KvForecast::Begin(absl::Span<const std::unique_ptr<Sequence>> running, const OutputLengths& lengths) {
  lengths_ = &lengths;
  loads_.clear();
  most_blocks_ = 0;
  num_foreseen_ = 0;
  for (const std::unique_ptr<Sequence>& s : running) {
    loads_.push_back(LoadOf(*s));
    most_blocks_ += MostBlocks(loads_.back());
  }
}

void KvForecast::Add(const Sequence& s, const PrefixHit& hit) {
  loads_.push_back(LoadOf(s, hit));
  most_blocks_ += MostBlocks(loads_.back());
}

void KvForecast::LookAhead() {
  if (num_foreseen_ == 0) {
    std::vector<int32_t> growing;
    for (const Load& load : loads_) {
      if (load.sequence->can_stop_early()) growing.push_back(load.sequence->num_output_tokens());
    }
    survival_ = lengths_->Estimate(growing);
    demand_.assign(moments_.size(), Demand());
    prompt_rows_ = 0;
    shared_blocks_ = 0;
    shared_until_ = 0;
  }
  for (; num_foreseen_ < loads_.size(); ++num_foreseen_) {
    const Load& load = loads_[num_foreseen_];
    ForEachMoment(load, [&](size_t i, Demand demand) { demand_[i] += demand; });
    if (load.num_shared > 0) {
      shared_blocks_ += load.part_of_shared;
      const int32_t left = load.sequence->request.sampling.max_tokens - load.sequence->num_output_tokens();
      shared_until_ = std::max(shared_until_, int64_t{PromptSteps(load)} + left);
    }
    if (load.num_remaining > 1) prompt_rows_ += load.num_remaining;
  }
}

bool KvForecast::Fits(const Sequence& s, const PrefixHit& hit) {
  const Load load = LoadOf(s, hit);
  if (most_blocks_ + MostBlocks(load) <= options_.num_blocks) return true;
  LookAhead();
  bool fits = true;
  ForEachMoment(load, [&](size_t i, Demand demand) {
    demand += demand_[i];
    demand.blocks += moments_[i] < shared_until_ ? shared_blocks_ : double(load.num_shared);
    fits &= demand.blocks + kSpreads * std::sqrt(demand.variance) <= double(options_.num_blocks);
  });
  return fits;
}

}  // namespace sluice
