#include "engine/scheduler/output_mask.h"

#include <algorithm>
#include <functional>

#include "absl/algorithm/container.h"
#include "engine/base/token_bitmask.h"

namespace sluice {

OutputMask::OutputMask(const Request& request, const EngineOptions& options)
    : vocab_size_(options.vocab_size),
      num_words_(TokenBitmaskWords(options.vocab_size)),
      eos_token_ids_(request.constraint != nullptr ? options.eos_token_ids : std::vector<int32_t>()),
      stop_token_ids_(request.constraint != nullptr ? request.sampling.stop_token_ids : std::vector<int32_t>()),
      ignore_eos_(request.sampling.ignore_eos) {
  if (!request.sampling.allowed_token_ids.empty()) {
    fixed_.resize(size_t(num_words_));
    for (int32_t token : request.sampling.allowed_token_ids) SetToken(fixed_, token, true);
  }
  if (request.constraint != nullptr) constraint_ = request.constraint->Clone();
}

bool OutputMask::IsEnd(int32_t token) const { return absl::c_linear_search(eos_token_ids_, token); }

int32_t OutputMask::CountPossible(absl::Span<const int32_t> drafts) {
  int32_t count = 0;
  for (int32_t token : drafts) {
    if (IsEnd(token) || !constraint_->Advance(token)) break;
    ++count;
  }
  constraint_->Rollback(count);
  return count;
}

void OutputMask::Fill(absl::Span<const int32_t> drafts, absl::Span<uint32_t> words) {
  int32_t num_advanced = 0;
  for (size_t i = 0; i <= drafts.size(); ++i) {
    FillNext(std::span(words.data() + i * size_t(num_words_), size_t(num_words_)));
    if (i == drafts.size()) break;
    if (!constraint_->Advance(drafts[i])) {
      std::fill(words.begin() + ptrdiff_t(i + 1) * num_words_, words.end(), 0);
      break;
    }
    ++num_advanced;
  }
  constraint_->Rollback(num_advanced);
}

void OutputMask::FillNext(std::span<uint32_t> mask) {
  constraint_->FillMask(mask);
  const bool may_stop = constraint_->may_stop();
  for (int32_t token : eos_token_ids_) SetToken(mask, token, may_stop && !ignore_eos_);
  if (may_stop) {
    for (int32_t token : stop_token_ids_) SetToken(mask, token, true);
  }
  if (fixed_.empty()) return;
  std::transform(mask.begin(), mask.end(), fixed_.begin(), mask.begin(), std::bit_and<uint32_t>());
}

bool OutputMask::AllowsNothing(absl::Span<const int32_t> masked) {
  std::vector<uint32_t> mask(size_t(num_words_), 0);
  FillNext(mask);
  for (int32_t token : masked) SetToken(mask, token, false);
  for (int32_t token = vocab_size_; token < num_words_ * kTokensPerWord; ++token) SetToken(mask, token, false);
  return absl::c_all_of(mask, [](uint32_t word) { return word == 0; });
}

}  // namespace sluice
