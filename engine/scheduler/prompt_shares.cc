#include "engine/scheduler/prompt_shares.h"

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

constexpr int32_t kOldestPart = 4;  // one in so many rows is the oldest prompt's

}  // namespace

int32_t PromptRowsBesideDecodes(const EngineOptions& options) {
  if (options.max_prefill_tokens_beside_decodes > 0) return options.max_prefill_tokens_beside_decodes;
  return std::max(options.max_num_batched_tokens / 4, 64);
}

void DividePromptRows(absl::Span<Sequence* const> prompts, int32_t budget) {
  if (prompts.empty() || budget == 0) return;
  const auto take = [&budget](Sequence* s, int32_t limit) {
    const int32_t rows = std::min(s->num_remaining_tokens() - s->num_scheduled_tokens, std::min(limit, budget));
    s->num_scheduled_tokens += rows;
    budget -= rows;
  };
  take(prompts.front(), (budget + kOldestPart - 1) / kOldestPart);
  std::vector<Sequence*> order(prompts.begin(), prompts.end());
  std::stable_sort(order.begin(), order.end(), [](const Sequence* a, const Sequence* b) {
    return a->num_remaining_tokens() < b->num_remaining_tokens();
  });
  for (Sequence* s : order) take(s, budget);
}

}  // namespace sluice
