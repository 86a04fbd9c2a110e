// Sampling on the CPU against the rule in plain code (reference_sample.h), and the rule against its own promises.
#include "engine/ops/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/base/cpu_info.h"
#include "engine/base/token_bitmask.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "engine/ops/reference/reference_sample.h"
#include "tests/ops/bitmasks.h"
#include "tests/ops/reserve_for.h"

namespace sluice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An Ops whose logits are given: row r of the "residual stream" is unit vector r, column r of the head holds the
// logits.
class GivenLogits {
 public:
  GivenLogits(Ops* ops, const std::vector<std::vector<float>>& rows) : ops_(ops) {
    const int64_t n = int64_t(rows.size()), vocab = int64_t(rows[0].size());
    std::vector<float> unit(size_t(n * n), 0), head(size_t(vocab * n)), ones(size_t(n), 1);
    for (int64_t r = 0; r < n; ++r) {
      unit[size_t(r * n + r)] = 1;
      for (int64_t t = 0; t < vocab; ++t) head[size_t(t * n + r)] = rows[size_t(r)][size_t(t)];
      token_ids_.push_back(int32_t(r)), positions_.push_back(int32_t(r)), logits_rows_.push_back(int32_t(r));
    }
    row_starts_ = {0, int32_t(n)}, context_lens_ = {int32_t(n)};
    unit_ = Load(unit, n, n), head_ = Load(head, vocab, n);
    norm_weight_ = ops->LoadVector(ones).value();
    x_ = ops->NewActivations(n, n, ActivationsUse::kResidual).value();
    EXPECT_TRUE(ReserveFor(ops, int32_t(n), int32_t(n), int32_t(vocab)).ok());
    ops->BeginStep({token_ids_, positions_, row_starts_, context_lens_, {}, logits_rows_});
    ops->Embed(*unit_, 1, x_.get());
    // mean(x^2) = 1/n, so with eps 0 the norm multiplies by sqrt(n): undone by the scale.
    ops->Logits(
        {x_.get(), {{NormKind::kRms, 0, 0}, norm_weight_.get(), nullptr}, head_.get(), 1 / std::sqrt(float(n)), {}});
    logits_.resize(size_t(n), std::vector<float>(size_t(vocab)));
    for (int64_t r = 0; r < n; ++r) EXPECT_TRUE(ops->CopyLogits(int32_t(r), logits_[size_t(r)]).ok());
  }
  const std::vector<float>& logits(int row) const { return logits_[size_t(row)]; }
  std::vector<SampleResult> Sample(const std::vector<SampleRow>& rows) {
    std::vector<SampleResult> results(rows.size());
    EXPECT_TRUE(ops_->Sample(rows, results).ok());
    return results;
  }
  SampleResult Sample(const SampleRow& row) { return Sample(std::vector<SampleRow>{row})[0]; }
  std::vector<TokenLogprobs> Logprobs(const std::vector<LogprobRow>& rows) {
    std::vector<TokenLogprobs> results(rows.size());
    EXPECT_TRUE(ops_->Logprobs(rows, results).ok());
    return results;
  }

 private:
  std::unique_ptr<LinearWeights> Load(const std::vector<float>& values, int64_t out, int64_t in) {
    const TensorView view{"given",
                          TensorType::kF32,
                          {out, in},
                          absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4)};
    return ops_->LoadLinear({&view, 1}, LinearLayout::kStacked).value();
  }

  Ops* const ops_;
  std::vector<int32_t> token_ids_, positions_, logits_rows_, row_starts_, context_lens_;
  std::unique_ptr<LinearWeights> unit_, head_;
  std::unique_ptr<VectorWeights> norm_weight_;
  std::unique_ptr<Activations> x_;
  std::vector<std::vector<float>> logits_;
};

std::unique_ptr<Ops> Cpu(int threads = 2, std::optional<Isa> isa = {}) {
  return NewCpuOps({threads, isa, ActivationType::kF32}).value();
}

std::vector<float> RandomLogits(int vocab, float spread, uint32_t seed, bool with_ties = false) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> l(static_cast<size_t>(vocab));
  for (float& v : l) v = with_ties ? std::round(normal(rng) * 2) / 2 : normal(rng);
  return l;
}

void ExpectSameReport(const TokenLogprobs& got, const TokenLogprobs& want) {
  EXPECT_EQ(got.chosen.token, want.chosen.token);
  EXPECT_NEAR(got.chosen.logprob, want.chosen.logprob, 3e-6f * (1 + std::abs(want.chosen.logprob)));
  EXPECT_EQ(got.rank, want.rank);
  ASSERT_EQ(got.top.size(), want.top.size());
  for (size_t i = 0; i < got.top.size(); ++i) {
    EXPECT_EQ(got.top[i].token, want.top[i].token);
    EXPECT_NEAR(got.top[i].logprob, want.top[i].logprob, 3e-6f * (1 + std::abs(want.top[i].logprob)));
  }
}

// Many rows with many combinations of rules.
struct Rows {
  std::vector<int32_t> prompt, output, masked;
  std::vector<std::vector<uint32_t>> bitmasks;
  std::vector<LogitBias> bias;
  std::vector<SampleRow> rows;
};
std::unique_ptr<Rows> ManyRows(int vocab, int num_logits, int count, uint32_t seed) {
  auto all = std::make_unique<Rows>();
  std::mt19937 rng(seed);
  const auto token = [&] { return static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab)); };
  for (int i = 0; i < 40; ++i) all->prompt.push_back(token());
  for (int i = 0; i < 60; ++i) all->output.push_back(i % 3 ? token() : all->prompt[static_cast<size_t>(i % 40)]);
  for (int i = 0; i < 20; ++i) all->masked.push_back(token());
  all->bitmasks = Bitmasks(vocab, seed);
  for (int i = 0; i < 20; ++i) all->bias.push_back({token(), static_cast<float>(rng() % 200) / 20 - 5});
  const auto pick = [&](std::initializer_list<float> values) { return values.begin()[rng() % values.size()]; };
  for (int i = 0; i < count; ++i) {
    SampleRow row;
    row.logits_row = i % num_logits;
    row.temperature = pick({0, 0.3f, 0.7f, 1, 1, 1.7f});
    row.min_p = pick({0, 0, 0.02f, 0.3f, 1});
    row.top_p = pick({1, 1, 0.95f, 0.6f, 0.1f, 0.999f});
    row.top_k = static_cast<int32_t>(pick({0, 0, 1, 3, 50, 400, 1e9f}));
    if (rng() % 3 == 0) {
      row.repetition_penalty = pick({1, 1.3f, 0.8f});
      row.frequency_penalty = pick({0, 0.5f, -0.3f});
      row.presence_penalty = pick({0, 0.7f});
      row.prompt_tokens = all->prompt, row.output_tokens = all->output;
    }
    if (rng() % 4 == 0) row.masked_tokens = all->masked;
    if (rng() % 4 == 0) row.logit_bias = all->bias;
    if (rng() % 3 == 0) row.allowed_tokens = all->bitmasks[rng() % all->bitmasks.size()];
    row.seed = rng(), row.position = static_cast<int64_t>(rng() % 5000);
    if (rng() % 3 == 0) row.num_logprobs = static_cast<int32_t>(pick({0, 1, 20, 300, 1e6f}));
    all->rows.push_back(row);
  }
  return all;
}

TEST(CpuSampling, AgreesWithTheRuleOnRandomRows) {
  for (const auto& [vocab, spread, ties] : std::vector<std::tuple<int, float, bool>>{{257, 1, false},
                                                                                     {20000, 3, false},
                                                                                     {9000, 8, false},
                                                                                     {3000, 2, true},
                                                                                     {20000, 0.01f, false},
                                                                                     {40, 1, true}}) {
    auto ops = Cpu();
    GivenLogits given(ops.get(), {RandomLogits(vocab, spread, 1, ties), RandomLogits(vocab, spread, 2, ties),
                                  RandomLogits(vocab, spread, 3, ties)});
    const auto many = ManyRows(vocab, 3, 150, 5);
    const std::vector<SampleResult> got = given.Sample(many->rows);
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "vocabulary " << vocab << ", row " << i);
      const SampleRow& row = many->rows[i];
      const SampleResult want = ReferenceSample(given.logits(row.logits_row), row);
      EXPECT_EQ(got[i].finite, want.finite);
      if (!want.finite) continue;  // masks may leave nothing
      EXPECT_EQ(got[i].token, want.token) << "temperature " << row.temperature << " min_p " << row.min_p << " top_p "
                                          << row.top_p << " top_k " << row.top_k;
      if (row.num_logprobs) ExpectSameReport(got[i].logprobs, want.logprobs);
    }
  }
}

TEST(CpuSampling, GivesTheSameBitsOnEveryIsaThreadCountAndBatch) {
  const std::vector<std::vector<float>> logits = {RandomLogits(9001, 2, 1), RandomLogits(9001, 4, 2)};
  const auto many = ManyRows(9001, 2, 60, 9);
  auto first = Cpu(1);
  const std::vector<SampleResult> want = GivenLogits(first.get(), logits).Sample(many->rows);
  for (Isa isa : SupportedIsas()) {
    auto ops = Cpu(3, isa);
    GivenLogits given(ops.get(), logits);
    const std::vector<SampleResult> together = given.Sample(many->rows);
    for (size_t i = 0; i < want.size(); ++i) {
      for (const SampleResult& got : {together[i], i < 8 ? given.Sample(many->rows[i]) : together[i]}) {
        EXPECT_EQ(got.finite, want[i].finite);
        if (!got.finite) continue;
        EXPECT_EQ(got.token, want[i].token);
        EXPECT_EQ(got.logprobs.chosen.logprob, want[i].logprobs.chosen.logprob);
        ASSERT_EQ(got.logprobs.top.size(), want[i].logprobs.top.size());
        for (size_t j = 0; j < got.logprobs.top.size(); ++j) {
          EXPECT_EQ(got.logprobs.top[j].logprob, want[i].logprobs.top[j].logprob);
        }
      }
    }
  }
}

TEST(CpuSampling, PromptLogprobsAgreeWithTheRule) {
  auto ops = Cpu();
  GivenLogits given(ops.get(), {RandomLogits(5000, 3, 1), RandomLogits(5000, 3, 2)});
  const std::vector<LogprobRow> rows = {{0, 17, 0}, {1, 4999, 5}, {0, 0, 5000}, {1, 3, 1}, {0, 2, 20}};
  const std::vector<TokenLogprobs> got = given.Logprobs(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    ExpectSameReport(got[i], ReferenceLogprobs(given.logits(rows[i].logits_row), rows[i].token, rows[i].num_top));
  }
}

TEST(CpuSampling, TakesTheLargestWhereQuotientsOverflow) {
  const std::vector<std::vector<float>> logits = {{1, 2, 3}, {-1, -2, -3}, {-1, 0, 1}, {-1, 0, -1}, {-9, -8, -8}};
  auto ops = Cpu();
  GivenLogits given(ops.get(), logits);
  for (const float temperature : {1e-45f, 1e-38f, 1e38f}) {
    for (const float top_p : {1.0f, 0.5f}) {
      for (const int32_t top_k : {0, 1, 2}) {
        for (const float min_p : {0.0f, 0.5f}) {
          for (int r = 0; r < int(logits.size()); ++r) {
            SampleRow row;
            row.logits_row = r, row.num_logprobs = 1;
            row.temperature = temperature, row.top_p = top_p, row.top_k = top_k, row.min_p = min_p;
            EXPECT_EQ(given.Sample(row).token, ReferenceSample(given.logits(r), row).token) << r << " " << temperature;
            if (temperature == 1e-45f) {
              EXPECT_EQ(given.Sample(row).token, std::vector<int>({2, 0, 2, 1, 1})[size_t(r)]);
            }
          }
        }
      }
    }
  }
}

TEST(CpuSampling, TellsNanInfinityAndNothingFinite) {
  const auto with = [](int at, float value) {
    std::vector<float> l = RandomLogits(9000, 1, 1);
    l[static_cast<size_t>(at)] = value;
    return l;
  };
  for (int threads : {1, 3}) {
    // The given logits pass through a dot product, which makes NaN of 0 * inf: one row at a time.
    const auto finite = [&](const std::vector<float>& l, SampleRow row) {
      auto ops = Cpu(threads);
      return GivenLogits(ops.get(), {l}).Sample(row).finite;
    };
    for (float temperature : {0.0f, 1.0f}) {
      SampleRow row;
      row.temperature = temperature;
      for (int at : {0, 8191, 8192, 8999}) {
        EXPECT_FALSE(finite(with(at, kNan), row));
        EXPECT_FALSE(finite(with(at, kInf), row));
        EXPECT_TRUE(finite(with(at, -kInf), row));
      }
      EXPECT_FALSE(finite(std::vector<float>(100, -kInf), row));
      const std::vector<int32_t> all = {0, 1, 2};
      row.masked_tokens = all;
      EXPECT_FALSE(finite(std::vector<float>(3, 1.0f), row));
      row.masked_tokens = {};
      const std::vector<uint32_t> nothing = {~7u};  // bits beyond the vocabulary mean nothing
      row.allowed_tokens = nothing;
      EXPECT_FALSE(finite(std::vector<float>(3, 1.0f), row));
      const std::vector<uint32_t> one = {2};
      row.allowed_tokens = one;
      EXPECT_FALSE(finite({1, kNan, 1}, row));
      EXPECT_FALSE(finite({kNan, 1, 1}, row)) << "a mask hides no NaN";
      row.allowed_tokens = {};
      const std::vector<LogitBias> infinite = {{1, kInf}};
      row.logit_bias = infinite;
      EXPECT_FALSE(finite(std::vector<float>(3, 1.0f), row));
    }
  }
}

// ---------------------------------------------------------------- the rule itself, on the CPU

class Rule : public testing::Test {
 protected:
  SampleResult Draw(const std::vector<float>& logits, const SampleRow& row) {
    return GivenLogits(ops_.get(), {logits}).Sample(row);
  }
  // Tokens that come up in `draws` draws at different positions.
  std::vector<int> Histogram(const std::vector<float>& logits, SampleRow row, int draws) {
    GivenLogits given(ops_.get(), {logits});
    std::vector<SampleRow> rows(static_cast<size_t>(draws), row);
    for (int i = 0; i < draws; ++i) rows[static_cast<size_t>(i)].position = i;
    std::vector<int> counts(logits.size());
    for (const SampleResult& r : given.Sample(rows)) counts[static_cast<size_t>(r.token)]++;
    return counts;
  }
  std::vector<int> Seen(const std::vector<float>& logits, const SampleRow& row) {
    std::vector<int> seen;
    const std::vector<int> counts = Histogram(logits, row, 4000);
    for (size_t t = 0; t < counts.size(); ++t) {
      if (counts[t] > 0) seen.push_back(static_cast<int>(t));
    }
    return seen;
  }

  std::unique_ptr<Ops> ops_ = Cpu();
};

TEST_F(Rule, GreedyTakesTheLowestIdOnTies) {
  SampleRow row;
  row.temperature = 0;
  EXPECT_EQ(Draw({1, 3, 3, 2}, row).token, 1);
  std::vector<float> long_tie(20000, 0);
  EXPECT_EQ(Draw(long_tie, row).token, 0);
  long_tie[17000] = long_tie[19000] = 1;
  EXPECT_EQ(Draw(long_tie, row).token, 17000);
}

TEST_F(Rule, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = {0.5f, -1, 2, 0, 1.2f, -3, 1.9f, 0.1f};
  for (float temperature : {0.6f, 1.0f, 1.8f}) {
    SampleRow row;
    row.temperature = temperature;
    row.seed = 42;
    constexpr int kDraws = 40000;
    const std::vector<int> counts = Histogram(logits, row, kDraws);
    double total = 0, chi_square = 0;
    for (float l : logits) total += std::exp(l / temperature);
    for (size_t t = 0; t < logits.size(); ++t) {
      const double expected = kDraws * std::exp(logits[t] / temperature) / total;
      chi_square += (counts[t] - expected) * (counts[t] - expected) / expected;
    }
    EXPECT_LT(chi_square, 24.3);  // 7 degrees of freedom, p = 0.001
  }
}

TEST_F(Rule, DrawsOfALargeVocabularyAreUniformWhereTheLogitsAre) {
  std::vector<float> logits(30000, -40);
  for (size_t t = 0; t < 16; ++t) logits[t * 1900] = 3;
  SampleRow row;
  row.seed = 1;
  const std::vector<int> counts = Histogram(logits, row, 3200);
  double chi_square = 0;
  for (size_t t = 0; t < 16; ++t) chi_square += std::pow(counts[t * 1900] - 200.0, 2) / 200;
  EXPECT_LT(chi_square, 37.7);  // 15 degrees of freedom, p = 0.001
}

TEST_F(Rule, TheDrawDependsOnSeedAndPositionOnly) {
  const std::vector<float> logits = RandomLogits(2000, 1, 3);
  SampleRow row;
  row.seed = 5, row.position = 9;
  const int32_t token = Draw(logits, row).token;
  GivenLogits crowd(ops_.get(), {RandomLogits(2000, 1, 8), logits});
  SampleRow stranger;
  stranger.seed = 6;
  row.logits_row = 1;
  EXPECT_EQ(crowd.Sample({stranger, row, stranger})[1].token, token);
  int changed_by_seed = 0, changed_by_position = 0;
  for (int i = 1; i <= 20; ++i) {
    SampleRow other = row;
    other.seed = row.seed + static_cast<uint64_t>(i);
    changed_by_seed += crowd.Sample(other).token != token;
    other = row;
    other.position = row.position + i;
    changed_by_position += crowd.Sample(other).token != token;
  }
  EXPECT_GT(changed_by_seed, 15);
  EXPECT_GT(changed_by_position, 15);
}

TEST_F(Rule, TopKKeepsTheLargestAndAllTiesAtTheLast) {
  SampleRow row;
  row.top_k = 2;
  EXPECT_THAT(Seen({1, 0.5f, 0.9f, 0.2f}, row), testing::ElementsAre(0, 2));
  EXPECT_THAT(Seen({1, 0.5f, 0.9f, 0.9f, 0.9f}, row), testing::ElementsAre(0, 2, 3, 4));
  row.top_k = 100;
  EXPECT_THAT(Seen({1, 0.5f}, row), testing::ElementsAre(0, 1));
}

TEST_F(Rule, TopPKeepsTheSmallestSetThatReachesTheMass) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  SampleRow row;
  row.top_p = 0.39f;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0));
  row.top_p = 0.41f;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0, 1));
  row.top_p = 0.89f;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0, 1, 2));
  row.top_p = 1e-9f;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0));
  // Equal values: lower ids first.
  row.top_p = 0.6f;
  EXPECT_THAT(Seen({0, 0, 0, 0}, row), testing::ElementsAre(0, 1, 2));
}

TEST_F(Rule, MinPDropsWhatIsFarBelowTheLargest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.26f), std::log(0.24f)};
  SampleRow row;
  row.min_p = 0.5f;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0, 1));
  row.min_p = 1;
  EXPECT_THAT(Seen({2, 2, 1.999f}, row), testing::ElementsAre(0, 1));
}

TEST_F(Rule, TemperatureComesBeforeMinP) {
  SampleRow row;
  row.min_p = 0.5f;
  row.temperature = 4;  // e^(-2 / 4) = 0.61
  EXPECT_THAT(Seen({2, 0}, row), testing::ElementsAre(0, 1));
}

TEST_F(Rule, MinPComesBeforeTopKComesBeforeTopP) {
  // After top_k = 2 the survivors have 0.53 and 0.47 of the mass: top_p = 0.5 keeps one. On all four it would keep two.
  SampleRow row;
  row.top_k = 2, row.top_p = 0.5f;
  EXPECT_THAT(Seen({std::log(0.32f), std::log(0.28f), std::log(0.2f), std::log(0.2f)}, row), testing::ElementsAre(0));
  // min_p leaves two of equal mass before top_p counts.
  row = {};
  row.min_p = 0.9f, row.top_p = 0.4f;
  EXPECT_THAT(Seen({std::log(0.3f), std::log(0.29f), std::log(0.21f), std::log(0.2f)}, row), testing::ElementsAre(0));
}

TEST_F(Rule, OnlyAllowedTokensAreDrawn) {
  const std::vector<float> logits = RandomLogits(75, 1, 4);
  std::vector<uint32_t> bitmask(3);
  for (int32_t token : {0, 31, 32, 40, 63, 64, 74}) SetToken(bitmask, token, true);
  SampleRow row;
  row.temperature = 1.9f;
  row.allowed_tokens = bitmask;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0, 31, 32, 40, 63, 64, 74));
  bitmask[2] |= ~uint32_t{0} << 11;  // tokens that there are not
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0, 31, 32, 40, 63, 64, 74));
  const std::vector<int32_t> masked = {31, 64, 5};
  const std::vector<LogitBias> bias = {{5, 100}, {40, -90}, {33, 50}};
  row.masked_tokens = masked, row.logit_bias = bias;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(0, 32, 63, 74)) << "no bias brings a token back";
}

TEST_F(Rule, FiltersCountAllowedTokensOnly) {
  // The largest that is allowed is token 2: what is above it counts neither for min_p and top_k nor for the mass of top_p.
  const std::vector<float> logits = {9, 8, std::log(0.5f), std::log(0.3f), std::log(0.2f), std::log(0.01f)};
  const std::vector<uint32_t> bitmask = {0b011100};
  SampleRow row;
  row.allowed_tokens = bitmask;
  row.top_k = 2;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(2, 3));
  row.top_k = 0, row.top_p = 0.6f;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(2, 3));
  row.top_p = 1, row.min_p = 0.5f;
  EXPECT_THAT(Seen(logits, row), testing::ElementsAre(2, 3));
  row = {};
  row.allowed_tokens = bitmask, row.temperature = 0;
  EXPECT_EQ(Draw(logits, row).token, 2);
}

TEST_F(Rule, ATokenThatStandsAloneIsTakenUnderEveryRule) {
  const std::vector<float> logits = RandomLogits(20001, 3, 5);
  for (int32_t token : {0, 31, 8191, 8192, 20000}) {
    std::vector<uint32_t> bitmask(size_t(TokenBitmaskWords(20001)));
    SetToken(bitmask, token, true);
    SampleRow row;
    row.allowed_tokens = bitmask, row.num_logprobs = 1;
    GivenLogits given(ops_.get(), {logits});
    const auto many = ManyRows(20001, 1, 20, 3);
    for (const SampleRow& likewise : many->rows) {
      static_cast<DrawParams&>(row) = likewise;
      const SampleResult result = given.Sample(row);
      EXPECT_TRUE(result.finite);
      EXPECT_EQ(result.token, token);
      EXPECT_EQ(result.logprobs.top[0].token, std::ranges::max_element(logits) - logits.begin()) << "reports are raw";
    }
  }
}

TEST_F(Rule, MaskThenBiasThenPenalties) {
  const std::vector<int32_t> zero = {0}, zero_zero = {0, 0}, one = {1};
  const std::vector<LogitBias> bias = {{0, 100}, {2, 1}};
  SampleRow row;
  row.temperature = 0;
  row.masked_tokens = zero, row.logit_bias = bias;
  EXPECT_EQ(Draw({5, 1, 0.5f}, row).token, 2);  // a mask stays one whatever the bias
  row = {};
  row.temperature = 0;
  row.repetition_penalty = 2, row.prompt_tokens = zero;
  EXPECT_EQ(Draw({3, 2, 0}, row).token, 1);  // positive: divided
  row.prompt_tokens = one;
  EXPECT_EQ(Draw({-3, -2, -3.5f}, row).token, 0);  // negative: multiplied
  row.prompt_tokens = {}, row.output_tokens = zero;
  EXPECT_EQ(Draw({3, 2, 0}, row).token, 1);  // the output counts as well
  row = {};
  row.temperature = 0;
  row.frequency_penalty = 0.6f, row.output_tokens = zero;
  EXPECT_EQ(Draw({3, 2, 0}, row).token, 0);
  row.output_tokens = zero_zero;
  EXPECT_EQ(Draw({3, 2, 0}, row).token, 1);  // for each time
  row.output_tokens = {}, row.prompt_tokens = zero_zero;
  EXPECT_EQ(Draw({3, 2, 0}, row).token, 0);  // of the output only
  row = {};
  row.temperature = 0;
  row.presence_penalty = 1.1f, row.output_tokens = zero_zero;
  EXPECT_EQ(Draw({3, 1.95f, 0}, row).token, 1);
  EXPECT_EQ(Draw({3, 1.85f, 0}, row).token, 0);  // once
  // Repetition acts on the biased logit, frequency after repetition: (2 + 2) / 2 - 0.5 = 1.5.
  const std::vector<LogitBias> two = {{0, 2}};
  row = {};
  row.temperature = 0;
  row.logit_bias = two, row.repetition_penalty = 2, row.frequency_penalty = 0.5f, row.output_tokens = zero;
  EXPECT_EQ(Draw({2, 1.55f}, row).token, 1);
  EXPECT_EQ(Draw({2, 1.45f}, row).token, 0);
}

TEST_F(Rule, ReportsAreOfTheRawLogits) {
  const std::vector<int32_t> masked = {0};
  SampleRow row;
  row.temperature = 0.5f, row.masked_tokens = masked, row.top_k = 1, row.num_logprobs = 2;
  const SampleResult result = Draw({2, 1, 0}, row);
  EXPECT_EQ(result.token, 1);
  EXPECT_EQ(result.logprobs.rank, 2);
  const double log_sum = std::log(std::exp(2.0) + std::exp(1.0) + 1);
  EXPECT_NEAR(result.logprobs.chosen.logprob, 1 - log_sum, 1e-6);
  ASSERT_EQ(result.logprobs.top.size(), 2);
  EXPECT_EQ(result.logprobs.top[0].token, 0);
  EXPECT_NEAR(result.logprobs.top[0].logprob, 2 - log_sum, 1e-6);
}

TEST_F(Rule, LogprobsSumToOne) {
  const std::vector<float> logits = RandomLogits(20000, 4, 1);
  SampleRow row;
  row.num_logprobs = 20000;
  double sum = 0;
  for (const TokenLogprob& t : Draw(logits, row).logprobs.top) sum += std::exp(double{t.logprob});
  EXPECT_NEAR(sum, 1, 1e-6);
}

}  // namespace
}  // namespace sluice
