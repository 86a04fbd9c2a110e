#include "engine/ops/reference/reference_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/base/token_bitmask.h"

namespace sluice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool IsUsable(std::span<const float> logits) {
  bool any_finite = false;
  for (float l : logits) {
    if (std::isnan(l) || l == kInf) return false;
    any_finite |= std::isfinite(l);
  }
  return any_finite;
}

// Token ids, largest logit first, ties by lower id.
std::vector<int32_t> Descending(std::span<const float> logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

// Steps 2 to 6 of the rule.
std::vector<float> Adjusted(std::span<const float> logits, const SampleRow& row) {
  std::vector<float> l(logits.begin(), logits.end());
  std::vector<bool> seen(l.size());
  std::vector<int> count(l.size());
  for (int32_t t : row.prompt_tokens) seen[t] = true;
  for (int32_t t : row.output_tokens) seen[t] = true, count[t]++;
  for (int32_t t = 0; t < int32_t(l.size()); t++) {
    if (!row.allowed_tokens.empty() && !HasToken(row.allowed_tokens, t)) l[t] = -kInf;
  }
  for (int32_t t : row.masked_tokens) l[t] = -kInf;
  for (const LogitBias& b : row.logit_bias) l[b.token] += b.bias;
  for (size_t t = 0; t < l.size(); t++) {
    if (seen[t]) l[t] = l[t] > 0 ? l[t] / row.repetition_penalty : l[t] * row.repetition_penalty;
    if (count[t] == 0) continue;
    l[t] -= row.frequency_penalty * float(count[t]);
    l[t] -= row.presence_penalty;
  }
  return l;
}

// Step 7 at a temperature above 0: the survivors of min_p, top_k and top_p, in the order of Descending.
std::vector<int32_t> Survivors(std::span<const float> l, const SampleRow& row) {
  std::vector<int32_t> ids = Descending(l);
  const float largest = l[ids[0]];
  const auto keep_first = [&](auto&& keep) {
    size_t n = 1;
    while (n < ids.size() && keep(n)) n++;
    ids.resize(n);
  };
  keep_first([&](size_t n) { return l[ids[n]] > -kInf; });
  if (row.min_p > 0) {
    keep_first([&](size_t n) { return double(l[ids[n]]) - double(largest) >= std::log(double(row.min_p)); });
  }
  if (row.top_k > 0) {
    keep_first([&](size_t n) { return int64_t(n) < row.top_k || l[ids[n]] == l[ids[row.top_k - 1]]; });
  }
  if (row.top_p < 1) {
    const auto weight = [&](int32_t id) { return std::exp(double(l[id]) - double(largest)); };
    double total = 0, mass = weight(ids[0]);
    for (int32_t id : ids) total += weight(id);
    keep_first([&](size_t n) {
      if (mass >= double(row.top_p) * total) return false;
      mass += weight(ids[n]);
      return true;
    });
  }
  return ids;
}

}  // namespace

TokenLogprobs ReferenceLogprobs(std::span<const float> logits, int32_t token, int32_t num_top) {
  const std::vector<int32_t> ids = Descending(logits);
  const double largest = logits[ids[0]];
  double sum = 0;
  for (float l : logits) sum += std::exp(double(l) - largest);
  const double log_sum_exp = largest + std::log(sum);
  const auto entry = [&](int32_t id) { return TokenLogprob{id, float(double(logits[id]) - log_sum_exp)}; };

  TokenLogprobs result;
  result.chosen = entry(token);
  result.rank = 1;
  for (float l : logits) result.rank += l > logits[token];
  for (int i = 0; i < num_top && i < int(ids.size()); i++) result.top.push_back(entry(ids[i]));
  return result;
}

SampleResult ReferenceSample(std::span<const float> logits, const SampleRow& row) {
  SampleResult result;
  std::vector<float> l = Adjusted(logits, row);
  result.finite = IsUsable(logits) && IsUsable(l);
  if (!result.finite) return result;
  const int32_t largest = Descending(l)[0];
  if (row.temperature == 0 || !std::isfinite(l[size_t(largest)] / row.temperature)) {
    result.token = largest;
  } else {
    for (float& v : l) v /= row.temperature;
    float best = -kInf;
    for (int32_t id : Survivors(l, row)) {
      const float noisy = l[id] + GumbelFromBits(SampleBits(row.seed, row.position, id));
      if (noisy > best || (noisy == best && id < result.token)) best = noisy, result.token = id;
    }
  }
  if (row.num_logprobs) result.logprobs = ReferenceLogprobs(logits, result.token, *row.num_logprobs);
  return result;
}

}  // namespace sluice
