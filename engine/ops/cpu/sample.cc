#include "engine/ops/cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/token_bitmask.h"

namespace sluice {
namespace {

constexpr int64_t kSegment = 8192;  // tokens that one chunk of work looks at
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

bool Adjusts(const SampleRow& row) {
  return !row.allowed_tokens.empty() || !row.masked_tokens.empty() || !row.logit_bias.empty() ||
         row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0;
}

// -inf for the tokens that are not in `allowed`.
void Mask(std::span<const uint32_t> allowed, int64_t vocab, float* logits) {
  for (int64_t first = 0; first < vocab; first += kTokensPerWord) {
    const uint32_t word = allowed[static_cast<size_t>(first / kTokensPerWord)];
    const int64_t n = std::min<int64_t>(kTokensPerWord, vocab - first);
    if (word == 0) {
      std::fill_n(logits + first, n, -kInf);
    } else if (~word != 0) {
      for (int64_t i = 0; i < n; ++i) {
        if ((word >> i & 1) == 0) logits[first + i] = -kInf;
      }
    }
  }
}

bool Before(const TokenValue& a, const TokenValue& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// The smallest float that is at least x.
float RoundUp(double x) {
  const float f = static_cast<float>(x);
  return double{f} < x ? std::nextafter(f, kInf) : f;
}

// Gathers the values of `x` that lie within some distance of `max`, wide enough that enough(threshold) holds or nothing
// above `min_value` is left out. Steps are coarse: what counts is that most of the vocabulary stays outside.
template <class Enough>
int64_t GatherLargest(const FloatKernels& floats, const TemperedLogits& x, float max, float min_value, TokenValue* out,
                      Enough enough) {
  for (float width : {2.0f, 5.0f, 10.0f, 20.0f, kInf}) {
    const float threshold = std::max(max - width, min_value);
    if (threshold > min_value && !enough(threshold)) continue;
    return floats.gather(x, threshold, 0, out);
  }
  return 0;
}

int64_t CountFrom(const FloatKernels& floats, const TemperedLogits& x, float threshold, TokenValue* scratch) {
  return floats.gather(x, threshold, 0, scratch);
}

// Sum of the weights of candidates[0, n).
uint64_t TotalWeight(const FloatKernels& floats, const TokenValue* candidates, int64_t n, float max) {
  constexpr int64_t kRun = 256;
  float values[kRun];
  uint64_t weights[kRun], total = 0;
  for (int64_t first = 0; first < n; first += kRun) {
    const int64_t count = std::min(kRun, n - first);
    for (int64_t i = 0; i < count; ++i) values[i] = candidates[first + i].value;
    floats.weigh(values, count, max, weights);
    for (int64_t i = 0; i < count; ++i) total += weights[i];
  }
  return total;
}

// The index of the candidate, in the order of Before, whose weight brings the sum to `needed`. Sorts no more than the
// leading part that it needs.
int64_t FindNucleus(const FloatKernels& floats, TokenValue* candidates, int64_t n, float max, uint64_t needed) {
  constexpr int64_t kRun = 128;
  float values[kRun];
  uint64_t weights[kRun], sum = 0;
  int64_t sorted = 0;
  for (int64_t first = 0; first < n; first += kRun) {
    const int64_t count = std::min(kRun, n - first);
    if (first + count > sorted) {
      const int64_t until = std::min(n, sorted * 4 + kRun);
      if (until < n) std::nth_element(candidates + sorted, candidates + until, candidates + n, Before);
      std::sort(candidates + sorted, candidates + until, Before);
      sorted = until;
    }
    for (int64_t i = 0; i < count; ++i) values[i] = candidates[first + i].value;
    floats.weigh(values, count, max, weights);
    for (int64_t i = 0; i < count; ++i) {
      sum += weights[i];
      if (sum >= needed) return first + i;
    }
  }
  return n - 1;
}

}  // namespace

absl::Status CpuSampler::Reserve(CpuContext& context, int32_t max_rows, int64_t vocab) {
  if (max_rows <= max_rows_ && vocab <= vocab_) return absl::OkStatus();
  max_rows_ = std::max(1, max_rows);
  vocab_ = vocab;
  num_segments_ = (vocab + kSegment - 1) / kSegment;
  jobs_.reserve(static_cast<size_t>(max_rows_));
  parts_.resize(static_cast<size_t>(max_rows_ * num_segments_));
  const size_t tokens = static_cast<size_t>(vocab), workers = static_cast<size_t>(context.num_threads());
  adjusted_ = context.arena.Allocate(static_cast<size_t>(max_rows_) * tokens * sizeof(float));
  counts_ = context.arena.Allocate(workers * tokens * sizeof(int32_t));
  candidates_ = context.arena.Allocate(workers * tokens * sizeof(TokenValue));
  if (adjusted_ == nullptr || counts_ == nullptr || candidates_ == nullptr) {
    return absl::ResourceExhaustedError("no memory for sampling");
  }
  return absl::OkStatus();
}

void CpuSampler::Sample(CpuContext& context, const LogitsView& logits, std::span<const SampleRow> rows,
                        std::span<SampleResult> results) {
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(max_rows_)) {
    jobs_.clear();
    for (size_t i = first; i < rows.size() && i < first + static_cast<size_t>(max_rows_); ++i) {
      const SampleRow& row = rows[i];
      Job job{};
      job.raw = job.logits = logits.row(row.logits_row);
      job.row = &row;
      job.result = &results[i];
      job.logprobs = row.num_logprobs ? &results[i].logprobs : nullptr;
      job.num_top = row.num_logprobs.value_or(0);
      job.draws = row.temperature > 0;
      job.filtered = job.draws && ((row.top_k > 0 && row.top_k < logits.vocab) || row.top_p < 1);
      jobs_.push_back(job);
    }
    Run(context, logits.vocab);
  }
}

void CpuSampler::Logprobs(CpuContext& context, const LogitsView& logits, std::span<const LogprobRow> rows,
                          std::span<TokenLogprobs> results) {
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(max_rows_)) {
    jobs_.clear();
    for (size_t i = first; i < rows.size() && i < first + static_cast<size_t>(max_rows_); ++i) {
      Job job{};
      job.raw = job.logits = logits.row(rows[i].logits_row);
      job.logprobs = &results[i];
      job.num_top = rows[i].num_top;
      job.token = rows[i].token;
      jobs_.push_back(job);
    }
    Run(context, logits.vocab);
  }
}

void CpuSampler::Run(CpuContext& context, int64_t vocab) {
  SLUICE_CHECK(vocab <= vocab_);
  num_segments_ = (vocab + kSegment - 1) / kSegment;
  const auto num_jobs = static_cast<uint32_t>(jobs_.size());
  bool adjusts = false, second_pass = false, finish = false;
  for (const Job& job : jobs_) {
    adjusts |= job.row != nullptr && Adjusts(*job.row);
    second_pass |= job.draws || job.logprobs != nullptr;
    finish |= job.filtered || job.logprobs != nullptr;
  }
  if (adjusts) {
    context.pool.ParallelFor(num_jobs, [&](uint32_t i, int worker) {
      Job& job = jobs_[i];
      if (job.row == nullptr || !Adjusts(*job.row)) return;
      float* adjusted = reinterpret_cast<float*>(adjusted_.get()) + int64_t{i} * vocab_;
      Adjust(job, adjusted, reinterpret_cast<int32_t*>(counts_.get()) + worker * vocab_, vocab);
      job.logits = adjusted;
    });
  }
  Scan(context, vocab);
  if (second_pass) Pass(context, vocab);
  const auto finish_job = [&](uint32_t i, int worker) {
    Finish(context, jobs_[i], vocab, reinterpret_cast<TokenValue*>(candidates_.get()) + worker * vocab_);
  };
  if (finish) return context.pool.ParallelFor(num_jobs, finish_job);
  for (uint32_t i = 0; i < num_jobs; ++i) finish_job(i, 0);
}

// Steps 2 to 6 of the rule.
void CpuSampler::Adjust(const Job& job, float* adjusted, int32_t* counts, int64_t vocab) const {
  const SampleRow& row = *job.row;
  std::copy_n(job.raw, vocab, adjusted);
  if (!row.allowed_tokens.empty()) Mask(row.allowed_tokens, vocab, adjusted);
  for (int32_t t : row.masked_tokens) adjusted[t] = -kInf;
  for (const LogitBias& b : row.logit_bias) adjusted[b.token] += b.bias;

  // counts: 1 for tokens of the prompt, plus 2 for each time a token is in the output. Cleared as they are used.
  const std::span<const int32_t> prompt = row.repetition_penalty != 1 ? row.prompt_tokens : std::span<const int32_t>();
  for (int32_t t : prompt) counts[t] = 1;
  for (int32_t t : row.output_tokens) counts[t] += 2;
  const auto penalise = [&](int32_t t) {
    if (counts[t] == 0) return;
    const int32_t in_output = counts[t] / 2;
    counts[t] = 0;
    float& l = adjusted[t];
    l = l > 0 ? l / row.repetition_penalty : l * row.repetition_penalty;
    if (in_output == 0) return;
    l -= row.frequency_penalty * static_cast<float>(in_output);
    l -= row.presence_penalty;
  };
  for (int32_t t : prompt) penalise(t);
  for (int32_t t : row.output_tokens) penalise(t);
}

// Largest values and bad ones.
void CpuSampler::Scan(CpuContext& context, int64_t vocab) {
  context.pool.ParallelFor(static_cast<uint32_t>(static_cast<int64_t>(jobs_.size()) * num_segments_),
                           [&](uint32_t chunk, int) {
                             const Job& job = jobs_[chunk / static_cast<uint32_t>(num_segments_)];
                             const int64_t first = int64_t{chunk} % num_segments_ * kSegment;
                             const int64_t n = std::min(kSegment, vocab - first);
                             Part& part = parts_[chunk];
                             part.raw = part.adjusted = context.floats.scan(job.raw + first, n);
                             if (job.logits != job.raw) part.adjusted = context.floats.scan(job.logits + first, n);
                           });
  for (size_t i = 0; i < jobs_.size(); ++i)
    MergeScan(context.floats, vocab, jobs_[i], &parts_[i * static_cast<size_t>(num_segments_)]);
}

void CpuSampler::MergeScan(const FloatKernels& floats, int64_t vocab, Job& job, const Part* parts) const {
  bool bad = false;
  int64_t top_segment = 0;
  job.raw_max = job.max = -kInf;
  for (int64_t s = 0; s < num_segments_; ++s) {
    bad |= parts[s].raw.bad || parts[s].adjusted.bad;
    job.raw_max = std::max(job.raw_max, parts[s].raw.max);
    if (parts[s].adjusted.max > job.max) {
      job.max = parts[s].adjusted.max;
      top_segment = s;
    }
  }
  job.usable = !bad && job.max > -kInf;
  if (job.row == nullptr || !job.usable) return;
  const float tempered_max = job.draws ? job.max / job.row->temperature : 0;
  if (!std::isfinite(tempered_max)) job.draws = job.filtered = false;
  if (!job.draws) {
    const int64_t first = top_segment * kSegment;
    job.token =
        static_cast<int32_t>(first + floats.find(job.logits + first, std::min(kSegment, vocab - first), job.max));
    return;
  }
  job.max = tempered_max;
  job.min_value = kLowest;
  if (job.row->min_p > 0) {
    job.min_value = std::max(kLowest, RoundUp(double{job.max} + std::log(double{job.row->min_p})));
  }
}

// Sums for log-probabilities and top_p; the draw itself where no cut is needed.
void CpuSampler::Pass(CpuContext& context, int64_t vocab) {
  const FloatKernels& floats = context.floats;
  context.pool.ParallelFor(
      static_cast<uint32_t>(static_cast<int64_t>(jobs_.size()) * num_segments_), [&](uint32_t chunk, int) {
        const Job& job = jobs_[chunk / static_cast<uint32_t>(num_segments_)];
        if (!job.usable) return;
        const int64_t first = int64_t{chunk} % num_segments_ * kSegment;
        const int64_t n = std::min(kSegment, vocab - first);
        Part& part = parts_[chunk];
        if (job.logprobs != nullptr) {
          part.raw_mass = floats.mass({job.raw + first, n, 1.0f}, job.raw_max, -kInf);
        }
        if (!job.draws) return;
        const SampleRow& row = *job.row;
        const TemperedLogits x{job.logits + first, n, row.temperature};
        if (!job.filtered) {
          part.best =
              floats.gumbel_max(x, job.min_value, static_cast<int32_t>(first), row.seed, row.position, GumbelFromBits);
        } else {
          part.mass = floats.mass(x, job.max, job.min_value);
        }
      });
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (jobs_[i].usable) MergePass(jobs_[i], &parts_[i * static_cast<size_t>(num_segments_)]);
  }
}

void CpuSampler::MergePass(Job& job, const Part* parts) const {
  TokenValue best{-kInf, job.token};
  for (int64_t s = 0; s < num_segments_; ++s) {
    if (job.logprobs != nullptr) job.raw_mass += parts[s].raw_mass;
    if (job.filtered) {
      job.mass += parts[s].mass;
    } else if (job.draws && parts[s].best.value > best.value) {
      best = parts[s].best;
    }
  }
  job.token = best.token;
}

void CpuSampler::Finish(const CpuContext& context, Job& job, int64_t vocab, TokenValue* candidates) const {
  const FloatKernels& floats = context.floats;
  if (job.usable && job.filtered) {
    const SampleRow& row = *job.row;
    const Cut cut = FindCut(floats, job, vocab, candidates);
    const int64_t tied = int64_t{cut.last_tied} + 1;  // tokens among which the cut's value itself survives
    const TokenValue low =
        floats.gumbel_max({job.logits, tied, row.temperature}, cut.value, 0, row.seed, row.position, GumbelFromBits);
    const TokenValue high =
        floats.gumbel_max({job.logits + tied, vocab - tied, row.temperature}, std::nextafter(cut.value, kInf),
                          static_cast<int32_t>(tied), row.seed, row.position, GumbelFromBits);
    job.token = high.value > low.value ? high.token : low.token;
  }
  if (job.result != nullptr) {
    job.result->token = job.token;
    job.result->finite = job.usable;
  }
  if (job.logprobs != nullptr) Report(floats, job, vocab, candidates);
}

// Step 7 of the rule. Which values survive min_p, top_k and top_p.
CpuSampler::Cut CpuSampler::FindCut(const FloatKernels& floats, const Job& job, int64_t vocab,
                                    TokenValue* candidates) const {
  const SampleRow& row = *job.row;
  const TemperedLogits x{job.logits, vocab, row.temperature};
  Cut cut{job.min_value, static_cast<int32_t>(vocab - 1)};
  int64_t n = -1;  // candidates found so far
  uint64_t total = job.mass;
  if (row.top_k > 0 && row.top_k < vocab) {
    n = GatherLargest(floats, x, job.max, job.min_value, candidates,
                      [&](float threshold) { return CountFrom(floats, x, threshold, candidates) >= row.top_k; });
    if (n >= row.top_k) {
      std::nth_element(candidates, candidates + row.top_k - 1, candidates + n, Before);
      cut.value = candidates[row.top_k - 1].value;
      n = std::partition(candidates, candidates + n, [&](const TokenValue& c) { return c.value >= cut.value; }) -
          candidates;
    }
    if (row.top_p < 1) total = TotalWeight(floats, candidates, n, job.max);
  }
  if (row.top_p >= 1) return cut;

  const double wanted = std::ceil(double{row.top_p} * static_cast<double>(total));
  const uint64_t needed = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, total);
  if (n < 0) {
    n = GatherLargest(floats, x, job.max, job.min_value, candidates,
                      [&](float threshold) { return floats.mass(x, job.max, threshold) >= needed; });
  }
  const TokenValue& last = candidates[FindNucleus(floats, candidates, n, job.max, needed)];
  return {last.value, last.token};
}

void CpuSampler::Report(const FloatKernels& floats, const Job& job, int64_t vocab, TokenValue* candidates) const {
  TokenLogprobs& out = *job.logprobs;
  out.top.clear();
  if (!job.usable) {
    out.chosen = {job.token, std::numeric_limits<float>::quiet_NaN()};
    out.rank = 0;
    return;
  }
  const double log_sum = double{job.raw_max} + std::log(static_cast<double>(job.raw_mass) * 0x1p-40);
  const auto entry = [&](int32_t token, float logit) {
    return TokenLogprob{token, static_cast<float>(double{logit} - log_sum)};
  };
  const float chosen = job.raw[job.token];
  out.chosen = entry(job.token, chosen);
  out.rank = 1 + static_cast<int32_t>(floats.count_above(job.raw, vocab, chosen));

  const int64_t num_top = std::min<int64_t>(job.num_top, vocab);
  if (num_top <= 0) return;
  const TemperedLogits x{job.raw, vocab, 1.0f};
  const int64_t n = GatherLargest(floats, x, job.raw_max, -kInf, candidates, [&](float threshold) {
    return CountFrom(floats, x, threshold, candidates) >= num_top;
  });
  if (num_top < n) std::nth_element(candidates, candidates + num_top, candidates + n, Before);
  std::sort(candidates, candidates + num_top, Before);
  out.top.reserve(static_cast<size_t>(num_top));
  for (int64_t i = 0; i < num_top; ++i) out.top.push_back(entry(candidates[i].token, candidates[i].value));
}

}  // namespace sluice
