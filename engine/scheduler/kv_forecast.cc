#include "engine/scheduler/kv_forecast.h"

#include <algorithm>
#include <cmath>

#include "engine/scheduler/kv_blocks.h"
#include "engine/scheduler/prompt_shares.h"

namespace sluice {
namespace {

constexpr int32_t kPartOfTheWay = 8;
constexpr double kSpreads = 1.5;

// What `s` holds at most, whenever it ends.
int64_t MostBlocks(const Sequence& s, const EngineOptions& options) {
  const int64_t num_tokens = int64_t{s.num_prompt_tokens} + s.request.sampling.max_tokens - 1;
  return std::max(PeakBlocks(s.num_tokens(), options), DecodeBlocks(num_tokens, options));
}

}  // namespace

KvForecast::KvForecast(const EngineOptions& options) : options_(options) {
  for (int64_t moment = 0;; moment += std::max<int64_t>(options.block_size, moment / kPartOfTheWay)) {
    moments_.push_back(int32_t(std::min<int64_t>(moment, INT32_MAX)));
    if (moment >= options.max_model_len) break;
  }
}

int32_t KvForecast::PromptSteps(const Sequence& s) const {
  if (s.num_remaining_tokens() == 1) return 0;
  const int64_t rows = prompt_rows_ + s.num_remaining_tokens();
  const int32_t rows_of_step = std::min(PromptRowsBesideDecodes(options_), options_.max_num_batched_tokens);
  return int32_t(std::min<int64_t>((rows - 1) / rows_of_step, INT32_MAX / 2));
}

template <typename Visit>
void KvForecast::ForEachMoment(const Sequence& s, Visit visit) const {
  const SamplingParams& sampling = s.request.sampling;
  const int32_t left = sampling.max_tokens - s.num_output_tokens();
  const int32_t prompt_steps = PromptSteps(s);
  const bool can_stop = s.can_stop_early();
  const int32_t first_stop = std::max(s.num_output_tokens(), sampling.min_tokens);
  for (size_t i = 0; i + 1 < moments_.size(); ++i) {
    const int32_t drawn = std::max(0, moments_[i] - prompt_steps);
    if (drawn >= left) return;
    const int32_t longest = std::clamp(moments_[i + 1] - 1 - prompt_steps, 0, left - 1);
    int64_t blocks = DecodeBlocks(s.num_tokens() + longest, options_);
    if (moments_[i] < prompt_steps) blocks = std::max(blocks, PeakBlocks(s.num_tokens(), options_));
    const double alive = can_stop ? survival_(first_stop, s.num_output_tokens() + drawn) : 1.0;
    visit(i, Demand{alive * double(blocks), alive * (1 - alive) * double(blocks) * double(blocks)});
  }
}

void KvForecast::Begin(absl::Span<const std::unique_ptr<Sequence>> running, const OutputLengths& lengths) {
  lengths_ = &lengths;
  sequences_.clear();
  most_blocks_ = 0;
  num_foreseen_ = 0;
  for (const std::unique_ptr<Sequence>& s : running) Add(*s);
}

void KvForecast::Add(const Sequence& s) {
  sequences_.push_back(&s);
  most_blocks_ += MostBlocks(s, options_);
}

void KvForecast::LookAhead() {
  if (num_foreseen_ == 0) {
    std::vector<int32_t> growing;
    for (const Sequence* s : sequences_) {
      if (s->can_stop_early()) growing.push_back(s->num_output_tokens());
    }
    survival_ = lengths_->Estimate(growing);
    demand_.assign(moments_.size(), Demand());
    prompt_rows_ = 0;
  }
  for (; num_foreseen_ < sequences_.size(); ++num_foreseen_) {
    const Sequence& s = *sequences_[num_foreseen_];
    ForEachMoment(s, [&](size_t i, Demand demand) { demand_[i] += demand; });
    if (s.num_remaining_tokens() > 1) prompt_rows_ += s.num_remaining_tokens();
  }
}

bool KvForecast::Fits(const Sequence& s) {
  if (most_blocks_ + MostBlocks(s, options_) <= options_.num_blocks) return true;
  LookAhead();
  bool fits = true;
  ForEachMoment(s, [&](size_t i, Demand demand) {
    demand += demand_[i];
    fits &= demand.blocks + kSpreads * std::sqrt(demand.variance) <= double(options_.num_blocks);
  });
  return fits;
}

}  // namespace sluice
