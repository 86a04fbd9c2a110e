// Mixtures of experts: the routing rule by hand and against sorting; the reference against its own dense layers; the
// CPU against the reference, and against itself bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/base/cpu_info.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/moe_routing.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/ops/moe_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<ExpertChoice> Choose(const MoeRouting& routing, const std::vector<float>& logits,
                                 const std::vector<float>& bias = {}) {
  std::vector<double> scratch(RoutingScratch(routing), -7);
  std::vector<ExpertChoice> choices(static_cast<size_t>(routing.num_experts_per_token), ExpertChoice{-1, -7});
  ChooseExperts(routing, logits, bias.empty() ? nullptr : bias.data(), scratch, choices);
  return choices;
}

std::vector<int32_t> Experts(const MoeRouting& routing, const std::vector<float>& logits,
                             const std::vector<float>& bias = {}) {
  std::vector<int32_t> experts;
  for (const ExpertChoice& choice : Choose(routing, logits, bias)) experts.push_back(choice.expert);
  return experts;
}

MATCHER_P2(Picks, expert, weight, "") {
  return arg.expert == expert && std::abs(arg.weight - static_cast<float>(weight)) <= 1e-7f * std::abs(arg.weight);
}

float Ln(double x) { return static_cast<float>(std::log(x)); }

// ---------------------------------------------------------------- the rule, by hand

TEST(MoeRouting, SoftmaxOverAllExperts) {
  MoeRouting routing{4, 2, MoeScore::kSoftmaxAll};
  const std::vector<float> logits = {Ln(4), Ln(1), Ln(2), Ln(1)};
  EXPECT_THAT(Choose(routing, logits), ElementsAre(Picks(0, 0.5), Picks(2, 0.25)));
  routing.renormalize = true;
  EXPECT_THAT(Choose(routing, logits), ElementsAre(Picks(0, 2.0 / 3), Picks(2, 1.0 / 3)));
  routing.renormalize_eps = 0.25f;
  EXPECT_THAT(Choose(routing, logits), ElementsAre(Picks(0, 0.5), Picks(2, 0.25)));
  routing.routed_scale = 16;
  EXPECT_THAT(Choose(routing, logits), ElementsAre(Picks(0, 8), Picks(2, 4)));
}

TEST(MoeRouting, SoftmaxOverTheChosenLogits) {
  const MoeRouting routing{4, 2, MoeScore::kSoftmaxTopK};
  EXPECT_THAT(Choose(routing, {Ln(1), Ln(3), Ln(0.5), Ln(1.5)}), ElementsAre(Picks(1, 2.0 / 3), Picks(3, 1.0 / 3)));
  EXPECT_THAT(Choose(routing, {-2000, -1000, -1000, -2000}), ElementsAre(Picks(1, 0.5), Picks(2, 0.5)));
}

TEST(MoeRouting, Sigmoid) {
  MoeRouting routing{4, 2, MoeScore::kSigmoid};
  const std::vector<float> logits = {Ln(1), Ln(1.0 / 3), Ln(3), -1000};
  EXPECT_THAT(Choose(routing, logits), ElementsAre(Picks(0, 0.5), Picks(2, 0.75)));
  routing.renormalize = true;
  routing.renormalize_eps = 1e-20f;
  routing.routed_scale = 2.5f;
  EXPECT_THAT(Choose(routing, logits), ElementsAre(Picks(0, 1.0), Picks(2, 1.5)));
  EXPECT_THAT(Choose(routing, {-1000, -1000, -1000, -1000}), ElementsAre(Picks(0, 0), Picks(1, 0)));
}

TEST(MoeRouting, TheSelectionBiasChoosesButDoesNotWeigh) {
  const MoeRouting routing{4, 2, MoeScore::kSigmoid};
  EXPECT_THAT(Choose(routing, {Ln(1), Ln(1.0 / 3), Ln(3), Ln(1.0 / 4)}, {-1, 0.1f, -0.5f, 0.5f}),
              ElementsAre(Picks(1, 0.25), Picks(3, 0.2)));
}

TEST(MoeRouting, TiesGoToTheLowerIndex) {
  for (MoeScore score : {MoeScore::kSoftmaxAll, MoeScore::kSoftmaxTopK, MoeScore::kSigmoid}) {
    EXPECT_THAT(Experts({6, 3, score}, {1, 1, 1, 1, 1, 1}), ElementsAre(0, 1, 2));
    EXPECT_THAT(Experts({6, 3, score}, {0, 1, 0, 1, 2, 0}), ElementsAre(1, 3, 4));
    EXPECT_THAT(Experts({6, 3, score}, {0, 1, 2, 0, 1, 1}), ElementsAre(1, 2, 4));
    EXPECT_THAT(Experts({6, 3, score}, {0, 0.f, -0.f, 0, 1, 1}), ElementsAre(0, 4, 5));
    const MoeGroups groups{3, 2, MoeGroupScore::kMax};
    EXPECT_THAT(Experts({6, 3, score, groups}, {1, 1, 1, 1, 1, 1}), ElementsAre(0, 1, 2));
    EXPECT_THAT(Experts({6, 2, score, groups}, {0, 1, 2, 0, 1, 1}), ElementsAre(1, 2));
  }
}

TEST(MoeRouting, GroupsByTheirBestExpert) {
  const MoeRouting routing{6, 3, MoeScore::kSoftmaxTopK, MoeGroups{3, 2, MoeGroupScore::kMax}};
  // Groups {5, 0}, {4, 4}, {4.5, -9}: the second is out although it holds the third and fourth best.
  EXPECT_THAT(Experts(routing, {5, 0, 4, 4, 4.5f, -9}), ElementsAre(0, 1, 4));
}

TEST(MoeRouting, GroupsByTheSumOfTheirTwoBest) {
  const MoeRouting routing{8, 2, MoeScore::kSoftmaxTopK, MoeGroups{2, 1, MoeGroupScore::kTop2Sum}};
  EXPECT_THAT(Experts(routing, {9, 0, 0, 0, 5, 5, 0, 0}), ElementsAre(4, 5));
  EXPECT_THAT(Experts(routing, {9, 0, 0, 2, 5, 5, 0, 0}), ElementsAre(0, 3));
  EXPECT_THAT(Experts(routing, {9, 0, 0, 1, 5, 5, 9, 9}), ElementsAre(6, 7)) << "two only";
}

TEST(MoeRouting, NegativeBiasedScoresAreNoLessThanMaskedOnes) {
  const MoeRouting routing{6, 2, MoeScore::kSigmoid, MoeGroups{3, 1, MoeGroupScore::kTop2Sum}, true, 1e-20f, 1};
  const std::vector<float> logits = {0, 0, Ln(3), Ln(1.0 / 3), 0, 0};
  const std::vector<float> bias = {-4, -4, -3, -3, -5, -5};
  EXPECT_THAT(Choose(routing, logits, bias), ElementsAre(Picks(2, 0.75), Picks(3, 0.25)));
}

// ---------------------------------------------------------------- hostile logits

TEST(MoeRouting, NanIsChosenAndSeen) {
  for (MoeScore score : {MoeScore::kSoftmaxAll, MoeScore::kSoftmaxTopK, MoeScore::kSigmoid}) {
    for (const std::optional<MoeGroups>& groups :
         {std::optional<MoeGroups>(), std::optional(MoeGroups{2, 1, MoeGroupScore::kMax}),
          std::optional(MoeGroups{2, 1, MoeGroupScore::kTop2Sum})}) {
      const MoeRouting routing{4, 2, score, groups, true, 1e-20f};
      for (const ExpertChoice& choice : Choose(routing, {3, 2, 1, kNan})) EXPECT_TRUE(std::isnan(choice.weight));
      EXPECT_THAT(Experts(routing, {kNan, kNan, kNan, kNan}), ElementsAre(0, 1));
      EXPECT_THAT(Experts(routing, {-kInf, -kInf, -kInf, -kInf}), ElementsAre(0, 1));
      EXPECT_THAT(Experts(routing, {kInf, kInf, kInf, kInf}), ElementsAre(0, 1));
    }
  }
  EXPECT_THAT(Experts({4, 2, MoeScore::kSigmoid}, {3, 2, 1, kNan}), ElementsAre(0, 3));
  EXPECT_THAT(Choose({4, 2, MoeScore::kSigmoid}, {kInf, -kInf, 0, -kInf}), ElementsAre(Picks(0, 1), Picks(2, 0.5)));
  EXPECT_THAT(Experts({4, 2, MoeScore::kSoftmaxTopK}, {0, -kInf, -kInf, kInf}), ElementsAre(0, 3));
}

TEST(MoeRouting, AnyLogitsGiveDistinctAscendingExpertsOfTheKeptGroups) {
  std::mt19937 rng(5);
  const std::vector<float> values = {kNan, kInf, -kInf, 0, -0.f, 1, -1, 3e38f, -3e38f, 1e-45f};
  const auto random = [&](int n) {
    std::vector<float> out;
    for (int i = 0; i < n; ++i) out.push_back(values[rng() % values.size()]);
    return out;
  };
  for (int i = 0; i < 20000; ++i) {
    MoeRouting routing{12, 1 + static_cast<int>(rng() % 6), MoeScore(rng() % 3)};
    if (rng() % 2) routing.groups = MoeGroups{4, 2, MoeGroupScore(rng() % 2)};
    routing.renormalize = rng() % 2;
    const std::vector<float> logits = random(12), bias = rng() % 2 ? random(12) : std::vector<float>();
    const std::vector<int32_t> experts = Experts(routing, logits, bias);
    ASSERT_EQ(Experts(routing, logits, bias), experts);
    std::vector<bool> group(4);
    for (size_t c = 0; c < experts.size(); ++c) {
      ASSERT_TRUE(experts[c] >= 0 && experts[c] < 12 && (c == 0 || experts[c] > experts[c - 1]));
      group[static_cast<size_t>(experts[c] / 3)] = true;
    }
    ASSERT_LE(std::count(group.begin(), group.end(), true), routing.groups ? 2 : 4);
  }
}

// ---------------------------------------------------------------- the rule, by sorting

std::vector<ExpertChoice> ChooseBySorting(const MoeRouting& r, const std::vector<float>& logits,
                                          const std::vector<float>& bias) {
  const size_t n = logits.size();
  std::vector<double> s(logits.begin(), logits.end());
  double total = 0;
  for (double l : s) total += std::exp(l);
  for (double& v : s) {
    if (r.score == MoeScore::kSigmoid) v = 1 / (1 + std::exp(-v));
    if (r.score == MoeScore::kSoftmaxAll) v = std::exp(v) / total;
  }
  std::vector<double> c = s;
  for (size_t e = 0; e < n; ++e) c[e] += double{bias[e]};
  const auto descending = [](const std::vector<double>& values) {
    std::vector<int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
    });
    return order;
  };
  if (r.groups) {
    const size_t size = n / static_cast<size_t>(r.groups->num_groups);
    std::vector<double> group_scores;
    for (size_t g = 0; g < n; g += size) {
      std::vector<double> members(c.begin() + static_cast<int64_t>(g), c.begin() + static_cast<int64_t>(g + size));
      std::sort(members.rbegin(), members.rend());
      group_scores.push_back(members[0] + (r.groups->score == MoeGroupScore::kTop2Sum ? members[1] : 0));
    }
    const std::vector<int32_t> order = descending(group_scores);
    for (size_t i = static_cast<size_t>(r.groups->num_kept); i < order.size(); ++i) {
      for (size_t e = 0; e < size; ++e) c[static_cast<size_t>(order[i]) * size + e] = -INFINITY;
    }
  }
  std::vector<int32_t> order = descending(c);
  order.resize(static_cast<size_t>(r.num_experts_per_token));
  std::sort(order.begin(), order.end());
  double sum = 0;
  for (int32_t e : order) {
    double& score = s[static_cast<size_t>(e)];
    if (r.score == MoeScore::kSoftmaxTopK) score = std::exp(score);
    sum += score;
  }
  if (r.score == MoeScore::kSoftmaxTopK) {
    for (int32_t e : order) s[static_cast<size_t>(e)] /= sum;
    sum = 1;
  }
  std::vector<ExpertChoice> choices;
  for (int32_t e : order) {
    const double weight = s[static_cast<size_t>(e)] / (r.renormalize ? sum + double{r.renormalize_eps} : 1);
    choices.push_back({e, static_cast<float>(weight * double{r.routed_scale})});
  }
  return choices;
}

TEST(MoeRouting, EqualsSorting) {
  std::mt19937 rng(9);
  std::normal_distribution<float> normal(0, 2);
  for (int i = 0; i < 3000; ++i) {
    MoeRouting r{24, 1 + static_cast<int>(rng() % 6), MoeScore(rng() % 3)};
    if (rng() % 2) r.groups = MoeGroups{4, 1 + static_cast<int>(rng() % 4), MoeGroupScore(rng() % 2)};
    r.renormalize = rng() % 2, r.renormalize_eps = rng() % 2 ? 1e-20f : 0.1f, r.routed_scale = rng() % 2 ? 1 : 2.5f;
    std::vector<float> logits(24), bias(24);
    for (float& l : logits) l = rng() % 4 ? normal(rng) : 1.0f;
    if (rng() % 2) {
      for (float& b : bias) b = normal(rng) - 2;
    }
    const std::vector<ExpertChoice> want = ChooseBySorting(r, logits, bias), got = Choose(r, logits, bias);
    ASSERT_EQ(got.size(), want.size());
    for (size_t c = 0; c < got.size(); ++c) ASSERT_THAT(got[c], Picks(want[c].expert, want[c].weight)) << i;
  }
}

// ---------------------------------------------------------------- layers

using Rows = std::vector<std::vector<float>>;

std::vector<int32_t> Tokens(int first, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::unique_ptr<Ops> MakeCpuOps(int num_threads = 2, ActivationType activations = ActivationType::kF32,
                                std::optional<Isa> isa = {}) {
  return NewCpuOps({num_threads, isa, activations}).value();
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(double{got[i]} - double{want[i]});
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    largest = std::max(largest, std::abs(double{want[i]}));
  }
  ASSERT_LT(worst, tolerance * largest);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Row i of `got` is row `tokens[i]` of `want`.
void ExpectSameBits(const Rows& got, const std::vector<int32_t>& tokens, const Rows& want) {
  ASSERT_EQ(got.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_TRUE(SameBits(got[i], want[static_cast<size_t>(tokens[i])])) << "row " << i << ", token " << tokens[i];
  }
}

class EveryMixture : public testing::TestWithParam<MoeConfig> {};

TEST_P(EveryMixture, AgreesWithTheReferenceInF32) {
  auto reference = NewReferenceOps();
  auto cpu = MakeCpuOps();
  MoeHarness want(GetParam(), reference.get()), got(GetParam(), cpu.get());
  const std::vector<int32_t> tokens = Tokens(0, 40);
  const Rows expected = want.Run(tokens), rows = got.Run(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) ExpectClose(rows[i], expected[i], 1e-5);
}

TEST_P(EveryMixture, GivesTheSameBitsHoweverComputed) {
  auto ops = MakeCpuOps(1);
  MoeHarness harness(GetParam(), ops.get());
  const Rows want = harness.Run(Tokens(0, 700));  // more rows at an expert than go through its panels together
  const auto check = [&](MoeHarness& other, const std::vector<int32_t>& tokens) {
    ExpectSameBits(other.Run(tokens), tokens, want);
  };
  for (int i = 0; i < 40; ++i) check(harness, {i});
  for (int i = 0; i < 100; i += 5) check(harness, {i, i + 3, i, 699 - i});
  check(harness, {5, 4, 3, 2, 1, 0, 5, 5});
  for (int threads : {2, 3}) {
    auto more = MakeCpuOps(threads);
    MoeHarness other(GetParam(), more.get());
    check(other, Tokens(0, 700));
    check(other, Tokens(33, 50));
    for (int i = 0; i < 20; ++i) check(other, {i});
  }
  for (Isa isa : SupportedIsas()) {
    auto more = MakeCpuOps(2, ActivationType::kF32, isa);
    MoeHarness other(GetParam(), more.get());
    check(other, Tokens(100, 60));
    check(other, {7});
  }
}

// A step of the largest size after one of the smallest, and layers of other shapes between, leave nothing behind.
TEST_P(EveryMixture, SharesScratchWithOtherLayers) {
  auto ops = MakeCpuOps();
  MoeHarness harness(GetParam(), ops.get());
  const Rows want = harness.Run(Tokens(0, 30));
  for (const MoeConfig& config : MoeConfigs()) {
    MoeHarness(config, ops.get()).Run(Tokens(0, 100));
    ExpectSameBits(harness.Run({3, 1}), {3, 1}, want);
  }
}

// The reference against its own dense layers.
TEST_P(EveryMixture, IsTheWeightedSumOfItsExperts) {
  MoeConfig config = GetParam();
  config.pre_norm.reset(), config.post_norm.reset();
  config.router_bias = config.expert_bias = false;
  config.selection_bias.reset();
  config.shared_hidden = 0;
  auto ops = NewReferenceOps();
  MoeHarness harness(config, ops.get());
  for (int token = 0; token < 5; ++token) {
    std::vector<float> sum = harness.Input(token, 1);
    for (const ExpertChoice& choice : Choose(config.routing, harness.RouterLogits(token))) {
      const float scale = config.weight_on_input ? choice.weight : 1;
      const std::vector<float> in = harness.Input(token, scale), out = harness.RunDense(token, scale, choice.expert);
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += (out[i] - in[i]) * (config.weight_on_input ? 1 : choice.weight);
      }
    }
    ExpectClose(harness.Run({token})[0], sum, 1e-5);
  }
}

// One visited row that is not a number stays alone.
TEST_P(EveryMixture, HostileRowsHarmNobodyElse) {
  for (const auto& ops : {NewReferenceOps(), MakeCpuOps()}) {
    MoeHarness harness(GetParam(), ops.get());
    const Rows want = harness.Run(Tokens(0, 4));
    const int nan = MoeHarness::kNanToken, inf = MoeHarness::kInfToken, zero = MoeHarness::kZeroToken;
    for (int times = 0; times < 2; ++times) {
      const Rows got = harness.Run({nan, 0, inf, 1, zero, 2, inf, 3, nan});
      for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(got[2 * i + 1], want[i]));
      for (size_t i : {0, 2, 6, 8})
        EXPECT_TRUE(std::any_of(got[i].begin(), got[i].end(), [](float v) { return std::isnan(v); }));
      EXPECT_TRUE(std::all_of(got[4].begin(), got[4].end(), [](float v) { return std::isfinite(v); }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryMixture, testing::ValuesIn(MoeConfigs()),
                         [](const auto& info) { return info.param.name; });

TEST(CpuMoe, ASingleExpertIsADenseLayer) {
  MoeConfig config;
  config.routing = {1, 1, MoeScore::kSoftmaxAll};
  auto ops = MakeCpuOps();
  MoeHarness harness(config, ops.get());
  for (int token = 0; token < 8; ++token) {
    EXPECT_TRUE(SameBits(harness.Run({token})[0], harness.RunDense(token, 1, 0)));
  }
}

// 1e8 - 1e8 + 1 is 1 in this order only.
TEST(CpuMoe, SumsExpertsInAscendingOrder) {
  MoeConfig config;
  config.routing = {3, 3, MoeScore::kSigmoid, {}, false, 0, 2};  // a weight of 1 where all logits are 0
  config.expert_bias = true;
  auto ops = MakeCpuOps();
  MoeHarness harness(config, ops.get());
  std::vector<float> bias;
  for (float value : {1e8f, -1e8f, 1.0f}) bias.insert(bias.end(), static_cast<size_t>(config.d_model), value);
  harness.SetDownBias(bias);
  for (int expert = 0; expert < 3; ++expert) harness.FillExpert(expert, 0);
  EXPECT_THAT(harness.Run({MoeHarness::kZeroToken})[0], testing::Each(1.0f));
}

TEST(CpuMoe, ReadsOnlyTheChosenExperts) {
  MoeConfig config;
  config.selection_bias = 0;
  std::vector<float> bias(8);
  bias[1] = bias[6] = 100;
  for (const auto& ops : {NewReferenceOps(), MakeCpuOps()}) {
    MoeHarness harness(config, ops.get());
    harness.SetSelectionBias(bias);
    const Rows want = harness.Run(Tokens(0, 20));
    for (int expert : {0, 2, 3, 4, 5, 7}) harness.FillExpert(expert, kNan);
    ExpectSameBits(harness.Run(Tokens(0, 20)), Tokens(0, 20), want);
    harness.FillExpert(6, kNan);
    EXPECT_TRUE(std::isnan(harness.Run({0})[0][0]));
  }
}

struct MoePrecision {
  std::string name;
  TensorType weights, router, shared;
  ActivationType activations;
  double tolerance;
};

class EveryMoePrecision : public testing::TestWithParam<MoePrecision> {};

MoeConfig ConfigOf(const MoePrecision& p) {
  MoeConfig config;
  config.d_model = 256, config.hidden = 256, config.shared_hidden = 512;
  config.routing = {16, 4, MoeScore::kSigmoid, MoeGroups{4, 2, MoeGroupScore::kTop2Sum}, true, 1e-20f, 2.5f};
  config.selection_bias = -1;
  config.weights = p.weights, config.router_type = p.router, config.shared_type = p.shared;
  return config;
}

TEST_P(EveryMoePrecision, AgreesWithTheReference) {
  for (bool weight_on_input : {false, true}) {
    MoeConfig config = ConfigOf(GetParam());
    config.weight_on_input = weight_on_input;
    auto reference = NewReferenceOps();
    auto cpu = MakeCpuOps(2, GetParam().activations);
    MoeHarness want(config, reference.get()), got(config, cpu.get());
    const Rows expected = want.Run(Tokens(0, 16)), rows = got.Run(Tokens(0, 16));
    for (size_t i = 0; i < rows.size(); ++i) ExpectClose(rows[i], expected[i], GetParam().tolerance);
  }
}

TEST_P(EveryMoePrecision, GivesTheSameBitsOnEveryIsaAlone) {
  const MoeConfig config = ConfigOf(GetParam());
  auto ops = MakeCpuOps(2, GetParam().activations);
  const Rows want = MoeHarness(config, ops.get()).Run(Tokens(0, 40));
  for (Isa isa : SupportedIsas()) {
    auto other = MakeCpuOps(3, GetParam().activations, isa);
    MoeHarness harness(config, other.get());
    for (int i = 0; i < 4; ++i) ExpectSameBits(harness.Run({i}), {i}, want);
    ExpectSameBits(harness.Run(Tokens(3, 9)), Tokens(3, 9), want);
  }
}

constexpr TensorType kF32 = TensorType::kF32, kF16 = TensorType::kF16, kBF16 = TensorType::kBF16,
                     kQ8 = TensorType::kQ8_0, kQ4 = TensorType::kQ4_1, kQ4K = TensorType::kQ4_K,
                     kQ6K = TensorType::kQ6_K, kMx = TensorType::kMXFP4, kF8 = TensorType::kF8E4M3;
constexpr ActivationType kInt8 = ActivationType::kInt8, kInt16 = ActivationType::kInt16;

INSTANTIATE_TEST_SUITE_P(All, EveryMoePrecision,
                         testing::Values(MoePrecision{"f16", kF16, kF16, kF16, kInt16, 1e-5},
                                         MoePrecision{"bf16", kBF16, kBF16, kBF16, kInt16, 1e-5},
                                         MoePrecision{"fp8_experts", kF8, kBF16, kBF16, kInt16, 1e-5},
                                         MoePrecision{"mxfp4_experts", kMx, kF32, kMx, kInt16, 1e-3},
                                         MoePrecision{"mxfp4_experts_f32", kMx, kBF16, kQ8, ActivationType::kF32, 1e-5},
                                         MoePrecision{"mxfp4_experts_q8_shared_int8", kMx, kBF16, kQ8, kInt8, 6e-2},
                                         MoePrecision{"bf16_experts_q8_shared", kBF16, kBF16, kQ8, kInt16, 1e-3},
                                         MoePrecision{"q8_experts_f16_shared", kQ8, kF32, kF16, kInt16, 1e-3},
                                         MoePrecision{"q4_1_f32", kQ4, kF32, kQ4, ActivationType::kF32, 1e-5},
                                         MoePrecision{"q4_1_int16", kQ4, kF32, kQ4, kInt16, 2e-3},
                                         MoePrecision{"q4_1_int8", kQ4, kF32, kQ4, kInt8, 6e-2},
                                         MoePrecision{"q4_k_int16", kQ4K, kF32, kQ6K, kInt16, 2e-3},
                                         MoePrecision{"q6_k_int8", kQ6K, kF32, kQ8, kInt8, 6e-2}),
                         [](const auto& info) { return info.param.name; });

// ---------------------------------------------------------------- loading

TEST(LoadExperts, KnowsItsShape) {
  std::mt19937 rng(3);
  for (const auto& ops : {NewReferenceOps(), MakeCpuOps()}) {
    std::vector<StoredTensor> tensors;
    for (int i = 0; i < 6; ++i) tensors.push_back(RandomTensor(kF32, 48, 64, rng));
    std::vector<std::vector<TensorView>> experts;
    for (size_t e = 0; e < 3; ++e) experts.push_back({tensors[2 * e].view, tensors[2 * e + 1].view});
    const auto loaded = ops->LoadExperts(experts, LinearLayout::kGateUp).value();
    EXPECT_EQ(loaded->num_experts(), 3);
    EXPECT_EQ(loaded->out_features(), 96);
    EXPECT_EQ(loaded->in_features(), 64);
    EXPECT_EQ(loaded->resident_bytes(), 3 * 96 * 64 * 4);
  }
}

TEST(LoadExperts, ErrorsNameTheTensorAndWhatIsWrong) {
  std::mt19937 rng(3);
  const StoredTensor good = RandomTensor(kF32, 48, 64, rng), wide = RandomTensor(kF32, 48, 96, rng),
                     narrow = RandomTensor(kF16, 48, 64, rng);
  const auto named = [](const StoredTensor& tensor, const std::string& name) {
    TensorView view = tensor.view;
    view.name = name;
    return view;
  };
  using Experts = std::vector<std::vector<TensorView>>;
  for (const auto& ops : {NewReferenceOps(), MakeCpuOps()}) {
    const auto expect = [&](const Experts& experts, LinearLayout layout, const std::string& text) {
      const absl::Status status = ops->LoadExperts(experts, layout).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    };
    const TensorView a = named(good, "a");
    expect({}, LinearLayout::kStacked, "at least one expert");
    expect({{a}, {}}, LinearLayout::kStacked, "at least one tensor");
    expect({{a}, {a, a}}, LinearLayout::kStacked, "'a' is one of 2, but 'a' one of 1");
    expect({{a}, {named(wide, "b")}}, LinearLayout::kStacked, "'b' is F32 [48, 96], expected F32 [48, 64] as in 'a'");
    expect({{a}, {named(narrow, "c")}}, LinearLayout::kStacked, "'c' is F16 [48, 64], expected F32 [48, 64] as in 'a'");
    expect({{a}}, LinearLayout::kGateUp, "gate and up");
    TensorView cut = a;
    cut.data = cut.data.subspan(1);
    expect({{a}, {cut}}, LinearLayout::kStacked, "12287 bytes");
  }
}

}  // namespace
}  // namespace sluice
