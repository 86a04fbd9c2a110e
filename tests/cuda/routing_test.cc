// Choices of experts against ChooseExperts, the places they get, and their sum.
#include "engine/ops/cuda/kernels/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "engine/ops/moe_routing.h"
#include "tests/cuda/values.h"

namespace sluice::cuda_testing {
namespace {

using testing::ElementsAreArray;

struct Routed {
  std::vector<int32_t> choices, expert_starts, input_rows, row_places;
  std::vector<float> weights, place_weights;
};

Routed Route(const MoeRouting& routing, const std::vector<float>& logits, const std::vector<float>& bias,
             const std::vector<int32_t>& row_sequences) {
  const size_t rows = logits.size() / size_t(routing.num_experts), pairs = rows * size_t(routing.num_experts_per_token);
  DeviceArray<float> device_logits(logits), device_bias(bias), weights(pairs), place_weights(pairs);
  DeviceArray<int32_t> sequences(row_sequences), choices(pairs), starts(size_t(routing.num_experts + 1)),
      input_rows(pairs), row_places(pairs);
  cuda::LaunchRoute({.num_rows = int32_t(rows),
                     .logits = device_logits.data(),
                     .selection_bias = bias.empty() ? nullptr : device_bias.data(),
                     .row_sequences = row_sequences.empty() ? nullptr : sequences.data(),
                     .routing = routing,
                     .out = {choices.data(), weights.data(), starts.data(), input_rows.data(), place_weights.data(),
                             row_places.data()}},
                    nullptr);
  return {choices.Read(), starts.Read(), input_rows.Read(), row_places.Read(), weights.Read(), place_weights.Read()};
}

// Places sorted by expert, within an expert by row; each row finds its own.
void ExpectPlaces(const MoeRouting& routing, const Routed& got) {
  const size_t k = size_t(routing.num_experts_per_token);
  size_t place = 0;
  for (int32_t e = 0; e < routing.num_experts; ++e) {
    ASSERT_EQ(got.expert_starts[size_t(e)], int32_t(place));
    for (size_t i = 0; i < got.choices.size(); ++i) {
      if (got.choices[i] != e) continue;
      ASSERT_EQ(got.input_rows[place], int32_t(i / k));
      ASSERT_THAT(got.place_weights[place], testing::NanSensitiveFloatEq(got.weights[i]));
      ASSERT_EQ(got.row_places[i], int32_t(place));
      ++place;
    }
  }
  ASSERT_EQ(got.expert_starts.back(), int32_t(place));
  for (; place < got.input_rows.size(); ++place) ASSERT_EQ(got.input_rows[place], -1);  // never written
}

struct Case {
  const char* name;
  MoeRouting routing;
  bool bias;
};
const Case kCases[] = {
    {"mixtral", {8, 2, MoeScore::kSoftmaxTopK}, false},
    {"qwen3", {128, 8, MoeScore::kSoftmaxAll, {}, true}, false},
    {"deepseek-v2-lite", {64, 6, MoeScore::kSoftmaxAll, MoeGroups{1, 1, MoeGroupScore::kMax}}, false},
    {"deepseek-v2", {160, 6, MoeScore::kSoftmaxAll, MoeGroups{8, 3, MoeGroupScore::kMax}, false, 0, 16}, false},
    {"deepseek-v3", {256, 8, MoeScore::kSigmoid, MoeGroups{8, 4, MoeGroupScore::kTop2Sum}, true, 1e-20f, 2.5f}, true},
    {"llama4", {16, 1, MoeScore::kSigmoid}, false},
    {"gpt-oss", {32, 4, MoeScore::kSoftmaxTopK}, true},
    {"all", {5, 5, MoeScore::kSoftmaxAll, {}, true}, false},
    {"most", {1024, 32, MoeScore::kSigmoid, MoeGroups{64, 32, MoeGroupScore::kTop2Sum}, true}, true},
    {"groups of two", {40, 20, MoeScore::kSoftmaxTopK, MoeGroups{20, 10, MoeGroupScore::kTop2Sum}, true}, true},
};

void ExpectAsChooseExperts(const Case& c, const std::vector<float>& logits) {
  SCOPED_TRACE(c.name);
  const MoeRouting& r = c.routing;
  const size_t n = size_t(r.num_experts), k = size_t(r.num_experts_per_token), rows = logits.size() / n;
  const std::vector<float> bias = c.bias ? Normal(n, 4, 0.3f) : std::vector<float>();
  const Routed got = Route(r, logits, bias, {});
  std::vector<double> scratch(RoutingScratch(r));
  std::vector<ExpertChoice> want(k);
  for (size_t row = 0; row < rows; ++row) {
    ChooseExperts(r, {&logits[row * n], n}, c.bias ? bias.data() : nullptr, scratch, want);
    for (size_t i = 0; i < k; ++i) {
      ASSERT_EQ(got.choices[row * k + i], want[i].expert) << "row " << row;
      ASSERT_THAT(got.weights[row * k + i], testing::NanSensitiveFloatEq(want[i].weight)) << "row " << row;
    }
  }
  ExpectPlaces(r, got);
}

// Of the logits of some rows, fewer where there are many experts.
size_t Size(const Case& c) { return size_t(std::clamp(1000 / c.routing.num_experts, 3, 20) * c.routing.num_experts); }

TEST(Route, ChoosesAsChooseExperts) {
  for (const Case& c : kCases) {
    for (float spread : {1.0f, 20.0f}) ExpectAsChooseExperts(c, Normal(Size(c), 1, spread));
  }
}

TEST(Route, PartsTiesAsChooseExperts) {
  for (const Case& c : kCases) {
    std::vector<float> logits = Normal(Size(c), 2);
    for (float& l : logits) l = std::round(l * 2) / 2 * 1e-9f;  // whose softmax in f64 hardly differs
    ExpectAsChooseExperts(c, logits);
    for (float& l : logits) l = std::round(l * 1e9f);
    ExpectAsChooseExperts(c, logits);
    std::fill(logits.begin(), logits.end(), 1.0f);
    ExpectAsChooseExperts(c, logits);
  }
}

TEST(Route, SeesNanAndInfinityAsChooseExperts) {
  for (const Case& c : kCases) {
    std::vector<float> logits = Normal(Size(c), 3);
    std::mt19937 random(1);
    for (float& l : logits) {
      const uint32_t dice = uint32_t(random()) % 40;
      if (dice < 3) l = dice == 0 ? NAN : dice == 1 ? INFINITY : -INFINITY;
    }
    ExpectAsChooseExperts(c, logits);
  }
}

TEST(Route, PaddingRowsVisitNoExpert) {
  for (const Case& c : {kCases[0], kCases[4]}) {
    const size_t n = size_t(c.routing.num_experts), k = size_t(c.routing.num_experts_per_token);
    std::vector<float> logits = Normal(5 * n, 1), dense = logits;
    dense.resize(4 * n);
    std::copy_n(&logits[4 * n], n, &dense[2 * n]);
    dense.resize(3 * n);
    std::fill_n(&logits[2 * n], 2 * n, NAN);
    const Routed got = Route(c.routing, logits, {}, {0, 0, -1, -1, 1}), want = Route(c.routing, dense, {}, {});
    ExpectPlaces(c.routing, got);
    for (size_t i = 0; i < 5 * k; ++i) {
      const size_t row = i / k;
      if (row == 2 || row == 3) {
        EXPECT_EQ(got.choices[i], -1);
        EXPECT_EQ(got.row_places[i], -1);
        EXPECT_EQ(got.weights[i], 0);
      } else {
        const size_t other = row == 4 ? i - 2 * k : i;
        EXPECT_EQ(got.choices[i], want.choices[other]);
        EXPECT_EQ(got.weights[i], want.weights[other]);
      }
    }
    EXPECT_THAT(got.expert_starts, ElementsAreArray(want.expert_starts));
  }
}

TEST(Route, ManyRowsFillManyRoundsOfPlaces) {
  const Case& c = kCases[0];
  ExpectAsChooseExperts(c, Normal(1500 * 8, 6));
  // All to the same expert.
  std::vector<float> logits(size_t(300 * 8), 0);
  ExpectAsChooseExperts(c, logits);
}

// A row of what LaunchCombine promises, in the order of its additions.
std::vector<float> Combined(std::span<const int32_t> places, const float* weights, const std::vector<float>& y,
                            const float* shared, size_t d) {
  std::vector<float> sum(d, 0);
  for (size_t column = 0; column < d; ++column) {
    for (size_t c = 0; c < places.size(); ++c) {
      if (places[c] < 0) continue;
      sum[column] = std::fma(weights != nullptr ? weights[c] : 1, y[size_t(places[c]) * d + column], sum[column]);
    }
    if (shared != nullptr) sum[column] += shared[column];
  }
  return sum;
}

void ExpectCombines(size_t d, size_t k) {
  const size_t rows = 5, places = 11;
  std::vector<int32_t> row_places(rows * k);
  std::mt19937 random(2);
  for (int32_t& p : row_places) p = int32_t(random() % places);
  std::fill_n(row_places.begin() + std::ptrdiff_t(k), k, -1);
  row_places.back() = -1;
  const std::vector<float> y = Normal(places * d, 1), weights = Normal(rows * k, 2), shared = Normal(rows * d, 3);
  DeviceArray<float> device_y(y), device_weights(weights), device_shared(shared);
  DeviceArray<int32_t> device_places(row_places);
  for (bool has_weights : {true, false}) {
    for (bool has_shared : {true, false}) {
      DeviceArray<float> sum(rows * d);
      cuda::LaunchCombine({.num_rows = int32_t(rows),
                           .num_experts_per_token = int32_t(k),
                           .d = int32_t(d),
                           .y = device_y.data(),
                           .weights = has_weights ? device_weights.data() : nullptr,
                           .row_places = device_places.data(),
                           .shared = has_shared ? device_shared.data() : nullptr,
                           .sum = sum.data()},
                          nullptr);
      const std::vector<float> got = sum.Read();
      for (size_t row = 0; row < rows; ++row) {
        const std::vector<float> want =
            Combined(std::span(row_places).subspan(row * k, k), has_weights ? &weights[row * k] : nullptr, y,
                     has_shared ? &shared[row * d] : nullptr, d);
        EXPECT_EQ(std::memcmp(&got[row * d], want.data(), d * sizeof(float)), 0)
            << "row " << row << " of " << d << ", " << k << " choices";
      }
    }
  }
}

TEST(Combine, AddsWeightedPlacesThenTheSharedExpert) {
  for (size_t d : {1, 4, 6, 64, 515, 2048}) ExpectCombines(d, 3);
  // As many choices as are taken at once, one less and one more, up to the most.
  for (size_t k : {1, 2, 4, 5, 7, 8, 9, 12, 13, 32}) ExpectCombines(20, k);
}

}  // namespace
}  // namespace sluice::cuda_testing
