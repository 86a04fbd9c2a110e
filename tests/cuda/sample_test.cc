// Drawn tokens against the rule in plain code (engine/ops/reference/reference_sample.h): every one must be the same.
#include "engine/ops/cuda/kernels/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "engine/ops/reference/reference_sample.h"
#include "tests/cuda/values.h"
#include "tests/ops/bitmasks.h"

namespace sluice::cuda_testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// SampleRows with their lists in one array.
class FlatRows {
 public:
  explicit FlatRows(const std::vector<SampleRow>& rows) {
    for (const SampleRow& row : rows) {
      cuda::SampleRowData data;
      static_cast<DrawParams&>(data) = row;
      data.logits_row = row.logits_row, data.position = row.position;
      data.allowed_begin = int32_t(bitmasks_.size());
      bitmasks_.insert(bitmasks_.end(), row.allowed_tokens.begin(), row.allowed_tokens.end());
      data.allowed_end = int32_t(bitmasks_.size());
      Append(row.prompt_tokens, &data.prompt_begin, &data.prompt_end);
      Append(row.output_tokens, &data.output_begin, &data.output_end);
      Append(row.masked_tokens, &data.masked_begin, &data.masked_end);
      std::vector<int32_t> tokens;
      floats_.resize(ints_.size());
      for (const LogitBias& bias : row.logit_bias) tokens.push_back(bias.token), floats_.push_back(bias.bias);
      Append(tokens, &data.bias_begin, &data.bias_end);
      rows_.push_back(data);
    }
  }
  const std::vector<cuda::SampleRowData>& rows() const { return rows_; }
  const std::vector<int32_t>& ints() const { return ints_; }
  const std::vector<float>& floats() const { return floats_; }
  const std::vector<uint32_t>& bitmasks() const { return bitmasks_; }

 private:
  void Append(std::span<const int32_t> tokens, int32_t* begin, int32_t* end) {
    *begin = int32_t(ints_.size());
    ints_.insert(ints_.end(), tokens.begin(), tokens.end());
    *end = int32_t(ints_.size());
  }
  std::vector<cuda::SampleRowData> rows_;
  std::vector<int32_t> ints_;
  std::vector<float> floats_;
  std::vector<uint32_t> bitmasks_;
};

using LogitsRows = std::vector<std::vector<float>>;

std::vector<float> Flat(const LogitsRows& logits) {
  std::vector<float> flat;
  for (const std::vector<float>& row : logits) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

std::vector<SampleResult> Sample(const LogitsRows& logits, const std::vector<SampleRow>& rows) {
  const FlatRows flat(rows);
  const size_t vocab = logits[0].size(), n = rows.size();
  DeviceArray<float> device_logits(Flat(logits)), floats(flat.floats()), scratch(n * vocab);
  DeviceArray<cuda::SampleRowData> device_rows(flat.rows());
  DeviceArray<uint32_t> bitmasks(flat.bitmasks());
  DeviceArray<int32_t> ints(flat.ints()), counts(std::vector<int32_t>(n * vocab, 0)), tokens(n), finite(n);
  DeviceArray<uint8_t> workspace(size_t(cuda::SampleWorkspaceBytes(int32_t(n), int32_t(vocab))));
  cuda::LaunchSample({.num_rows = int32_t(n),
                      .vocab_size = int32_t(vocab),
                      .logits = device_logits.data(),
                      .rows = device_rows.data(),
                      .ints = ints.data(),
                      .floats = floats.data(),
                      .bitmasks = bitmasks.data(),
                      .scratch = scratch.data(),
                      .counts = counts.data(),
                      .workspace = workspace.data(),
                      .tokens = tokens.data(),
                      .finite = finite.data()},
                     nullptr);
  EXPECT_THAT(device_logits.Read(), testing::Pointwise(testing::NanSensitiveFloatEq(), Flat(logits)));
  EXPECT_THAT(counts.Read(), testing::Each(0));
  const std::vector<int32_t> got = tokens.Read(), is_finite = finite.Read();
  std::vector<SampleResult> results(n);
  for (size_t i = 0; i < n; ++i) results[i].token = got[i], results[i].finite = is_finite[i] != 0;
  return results;
}

std::vector<float> RandomLogits(int vocab, float spread, uint32_t seed, bool with_ties = false) {
  std::vector<float> l = Normal(size_t(vocab), seed, spread);
  if (with_ties) {
    for (float& v : l) v = std::round(v * 2) / 2;  // -0 among them
  }
  return l;
}

// Many rows with many combinations of rules.
struct ManyRows {
  ManyRows(int vocab, int num_logits, int count, uint32_t seed) {
    std::mt19937 random(seed);
    const auto token = [&] { return int32_t(random() % uint32_t(vocab)); };
    for (int i = 0; i < 40; ++i) prompt.push_back(token());
    for (int i = 0; i < 60; ++i) output.push_back(i % 3 ? token() : prompt[size_t(i % 40)]);
    bitmasks = Bitmasks(vocab, seed);
    for (int i = 0; i < std::min(20, vocab / 4); ++i) masked.push_back(token());
    for (int32_t t = token() % 7; t < vocab && bias.size() < 20; t += 1 + vocab / 25) {
      bias.push_back({t, float(random() % 200) / 20 - 5});
    }
    const auto pick = [&](std::initializer_list<float> values) { return values.begin()[random() % values.size()]; };
    for (int i = 0; i < count; ++i) {
      SampleRow row;
      row.logits_row = i % num_logits;
      row.temperature = pick({0, 0.3f, 0.7f, 1, 1, 1.7f});
      row.min_p = pick({0, 0, 0, 0.02f, 0.3f, 1});
      row.top_p = pick({1, 1, 0.95f, 0.6f, 0.1f, 0.999f});
      row.top_k = int32_t(pick({0, 0, 1, 3, 50, 400, 1e9f}));
      if (random() % 3 == 0) {
        row.repetition_penalty = pick({1, 1.3f, 0.8f});
        row.frequency_penalty = pick({0, 0.5f, -0.3f});
        row.presence_penalty = pick({0, 0.7f});
        row.prompt_tokens = prompt, row.output_tokens = output;
      }
      if (random() % 4 == 0) row.masked_tokens = masked;
      if (random() % 4 == 0) row.logit_bias = bias;
      if (random() % 3 == 0) row.allowed_tokens = bitmasks[random() % bitmasks.size()];
      row.seed = uint64_t(random()) << 32 | random(), row.position = int64_t(random() % 5000);
      rows.push_back(row);
    }
  }
  std::vector<int32_t> prompt, output, masked;
  std::vector<std::vector<uint32_t>> bitmasks;
  std::vector<LogitBias> bias;
  std::vector<SampleRow> rows;
};

void ExpectTheRule(const LogitsRows& logits, const std::vector<SampleRow>& rows) {
  const std::vector<SampleResult> got = Sample(logits, rows);
  for (size_t i = 0; i < got.size(); ++i) {
    const SampleRow& row = rows[i];
    const SampleResult want = ReferenceSample(logits[size_t(row.logits_row)], row);
    EXPECT_EQ(got[i].finite, want.finite) << i;
    if (!want.finite) continue;  // masks may leave nothing
    EXPECT_EQ(got[i].token, want.token) << "row " << i << " temperature " << row.temperature << " min_p " << row.min_p
                                        << " top_p " << row.top_p << " top_k " << row.top_k;
  }
}

TEST(Sample, DrawsTheTokensOfTheRule) {
  struct Case {
    int vocab;
    float spread;
    bool ties;
    int rows;
  };
  for (const Case& c :
       {Case{1, 1, false, 10}, Case{2, 1, false, 100}, Case{5, 1, true, 100}, Case{40, 1, true, 150},
        Case{257, 1, false, 200}, Case{300, 6, false, 150}, Case{1000, 2, true, 100}, Case{3000, 3, false, 100}}) {
    SCOPED_TRACE(testing::Message() << "vocabulary " << c.vocab << " spread " << c.spread);
    ExpectTheRule({RandomLogits(c.vocab, c.spread, 1, c.ties), RandomLogits(c.vocab, c.spread, 2, c.ties),
                   RandomLogits(c.vocab, c.spread, 3, c.ties)},
                  ManyRows(c.vocab, 3, c.rows, uint32_t(c.vocab)).rows);
  }
}

TEST(Sample, DrawsAFewTokensUnderEveryKindOfRule) {
  ExpectTheRule({RandomLogits(70, 2, 1), RandomLogits(70, 2, 2, true)}, ManyRows(70, 2, 24, 3).rows);
}

TEST(Sample, DrawsTheTokensOfTheRuleFromManySegmentsAndLongTails) {
  // More survivors than a list holds; more than one segment; hardly any difference.
  for (const auto& [vocab, spread] : {std::pair{9001, 4.0f}, {17000, 0.01f}}) {
    ExpectTheRule({RandomLogits(vocab, spread, 1), RandomLogits(vocab, spread, 2)},
                  ManyRows(vocab, 2, 40, uint32_t(vocab)).rows);
  }
  // Nothing but ties.
  const LogitsRows flat = {std::vector<float>(5000, 1.5f)};
  SampleRow row;
  row.top_p = 0.7f;
  ExpectTheRule(flat, {row});
  row.top_k = 3;
  ExpectTheRule(flat, {row});
}

TEST(Sample, GreedyTakesTheLowestIdOnTies) {
  SampleRow row;
  row.temperature = 0;
  EXPECT_EQ(Sample({{1, 3, 3, 2}}, {row})[0].token, 1);
  EXPECT_EQ(Sample({{-0.0f, 0, 0}}, {row})[0].token, 0);
  std::vector<float> long_tie(20000, 0);
  EXPECT_EQ(Sample({long_tie}, {row})[0].token, 0);
  long_tie[17000] = long_tie[19000] = 1;
  EXPECT_EQ(Sample({long_tie}, {row})[0].token, 17000);
}

TEST(Sample, OnlyAllowedTokensAreDrawnWhereverTheirBitsAre) {
  // Of each token alone, in words whole and cut, of rows whose logits can and cannot be read by fours.
  for (const int32_t vocab : {1, 31, 32, 33, 66, 100}) {
    std::vector<std::vector<uint32_t>> bitmasks;
    std::vector<SampleRow> rows;
    for (int32_t token = 0; token < vocab; ++token) {
      SetToken(bitmasks.emplace_back(size_t(TokenBitmaskWords(vocab))), token, true);
    }
    for (int32_t token = 0; token < vocab; ++token) {
      SampleRow row;
      row.temperature = token % 2 == 0 ? 1 : 0;
      row.top_k = token % 3, row.top_p = token % 5 == 0 ? 0.5f : 1;
      row.allowed_tokens = bitmasks[size_t(token)];
      rows.push_back(row);
    }
    const std::vector<SampleResult> results = Sample({RandomLogits(vocab, 3, 1)}, rows);
    for (int32_t token = 0; token < vocab; ++token) {
      EXPECT_TRUE(results[size_t(token)].finite);
      EXPECT_EQ(results[size_t(token)].token, token) << "of " << vocab;
    }
  }
}

TEST(Sample, NothingBringsATokenBackThatIsNotAllowed) {
  const std::vector<int32_t> tokens = {4, 5, 6};
  const std::vector<LogitBias> bias = {{4, 100}, {5, 90}};
  const std::vector<uint32_t> bitmask = {0b1000010};
  SampleRow row;
  row.allowed_tokens = bitmask, row.logit_bias = bias;
  row.prompt_tokens = row.output_tokens = tokens;
  row.repetition_penalty = 0.5f, row.frequency_penalty = -2, row.presence_penalty = -2;
  for (const float temperature : {0.0f, 1.0f}) {
    row.temperature = temperature;
    EXPECT_EQ(Sample({std::vector<float>(9, 1.0f)}, {row})[0].token, 6);
  }
  // Tokens whose logits are -inf are not drawn for being allowed.
  row = {};
  row.allowed_tokens = bitmask;
  EXPECT_EQ(Sample({{1, -kInf, 1, 1, 1, 1, -9, 1, 1}}, {row})[0].token, 6);
  EXPECT_FALSE(Sample({{1, -kInf, 1, 1, 1, 1, -kInf, 1, 1}}, {row})[0].finite);
}

TEST(Sample, ARowDependsOnItselfOnly) {
  const LogitsRows logits = {RandomLogits(300, 2, 1), RandomLogits(300, 3, 2), RandomLogits(300, 1, 3)};
  const ManyRows many(300, 3, 20, 17);
  const std::vector<SampleResult> all = Sample(logits, many.rows);
  for (size_t count = 1; count <= 20; ++count) {
    const std::vector<SampleResult> part = Sample(logits, {many.rows.end() - ptrdiff_t(count), many.rows.end()});
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(part[i].token, all[20 - count + i].token);
  }
}

TEST(Sample, TellsNanInfinityAndNothingFinite) {
  for (float temperature : {0.0f, 1.0f}) {
    for (int32_t top_k : {0, 3}) {
      SampleRow row;
      row.temperature = temperature, row.top_k = top_k;
      LogitsRows logits;
      std::vector<SampleRow> rows;
      for (float bad : {kNan, kInf, -kInf}) {
        for (size_t at : {0, 8191, 8192, 8999}) {
          logits.push_back(RandomLogits(9000, 1, 1));
          logits.back()[at] = bad;
          row.logits_row = int32_t(rows.size());
          rows.push_back(row);
        }
      }
      ExpectTheRule(logits, rows);
      row.logits_row = 0;
      ExpectTheRule({std::vector<float>(100, -kInf)}, {row});
      const std::vector<uint32_t> nothing = {~7u}, all_but_one = {5};
      row.allowed_tokens = nothing;  // but tokens that there are not
      EXPECT_FALSE(Sample({{1, 1, 1}}, {row})[0].finite);
      row.allowed_tokens = all_but_one;  // hides a NaN, as below
      EXPECT_FALSE(Sample({{1, kNan, 1}}, {row})[0].finite);
      row.allowed_tokens = {};
      const std::vector<int32_t> all = {0, 1, 2, 2}, one = {1};
      row.masked_tokens = all;
      ExpectTheRule({{1, 1, 1}}, {row});
      row.masked_tokens = one;  // hides a NaN, but the row stays one that has it
      ExpectTheRule({{1, kNan, 1}}, {row});
      row.masked_tokens = {};
      const std::vector<LogitBias> infinite = {{1, kInf}};
      row.logit_bias = infinite;
      ExpectTheRule({{1, 1, 1}}, {row});
    }
  }
}

TEST(Sample, TakesTheLargestWhereQuotientsOverflow) {
  for (const float temperature : {1e-45f, 1e-38f, 1e38f}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{1, 2, 3}, {-1, -2, -3}, {-1, 0, 1}, {-1, 0, -1}, {-9, -8, -8}}) {
      for (const float top_p : {1.0f, 0.5f}) {
        for (const int32_t top_k : {0, 1, 2}) {
          for (const float min_p : {0.0f, 0.5f}) {
            SampleRow row;
            row.temperature = temperature, row.top_p = top_p, row.top_k = top_k, row.min_p = min_p;
            EXPECT_EQ(Sample({logits}, {row})[0].token, ReferenceSample(logits, row).token);
          }
        }
      }
    }
  }
}

TEST(FinishLogits, ScalesThenCaps) {
  for (int n : {1, 4, 1023, 1024, 3001}) {
    const std::vector<float> x = Normal(size_t(n), 1, 40);
    for (const auto& [scale, cap] : {std::pair{0.25f, 30.0f}, {1.0f, 15.0f}, {1.5f, 0.0f}, {1.0f, 0.0f}}) {
      DeviceArray<float> logits(x);
      cuda::LaunchFinishLogits(logits.data(), n, scale, cap, nullptr);
      std::vector<double> want;
      for (float l : x) {
        const double scaled = double(l) * double(scale);
        want.push_back(cap > 0 ? double(cap) * std::tanh(scaled / double(cap)) : scaled);
      }
      EXPECT_LE(RelativeError(logits.Read(), want), 3e-7);
    }
  }
}

// ---------------------------------------------------------------- log-probabilities

struct LogprobResults {
  std::vector<float> logprobs, top_logprobs;
  std::vector<int32_t> ranks, top_tokens;
};

LogprobResults Logprobs(const LogitsRows& logits, const std::vector<LogprobRow>& rows, int32_t max_top) {
  const size_t vocab = logits[0].size(), n = rows.size();
  std::vector<int32_t> logits_rows, tokens, num_top;
  for (const LogprobRow& row : rows) {
    logits_rows.push_back(row.logits_row), tokens.push_back(row.token), num_top.push_back(row.num_top);
  }
  DeviceArray<float> device_logits(Flat(logits)), logprobs(n), top_logprobs(n * size_t(max_top));
  DeviceArray<int32_t> device_rows(logits_rows), device_tokens(tokens), device_num_top(num_top), ranks(n),
      top_tokens(n * size_t(max_top));
  DeviceArray<uint8_t> workspace(size_t(cuda::LogprobWorkspaceBytes(int32_t(n), int32_t(vocab), max_top)));
  cuda::LaunchLogprobs({.num_rows = int32_t(n),
                        .vocab_size = int32_t(vocab),
                        .logits = device_logits.data(),
                        .logits_rows = device_rows.data(),
                        .tokens = device_tokens.data(),
                        .num_top = device_num_top.data(),
                        .max_top = max_top,
                        .workspace = workspace.data(),
                        .logprobs = logprobs.data(),
                        .ranks = ranks.data(),
                        .top_tokens = top_tokens.data(),
                        .top_logprobs = top_logprobs.data()},
                       nullptr);
  return {logprobs.Read(), top_logprobs.Read(), ranks.Read(), top_tokens.Read()};
}

void ExpectLogprob(float got, float want) {
  if (want == -kInf) {
    EXPECT_EQ(got, want);
  } else {
    EXPECT_NEAR(got, want, 2e-6f * (1 + std::abs(want)));
  }
}

void ExpectReports(const LogitsRows& logits, const std::vector<LogprobRow>& rows, int32_t max_top) {
  const LogprobResults got = Logprobs(logits, rows, max_top);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "row " << i << " top " << rows[i].num_top << " of " << logits[0].size());
    const TokenLogprobs want = ReferenceLogprobs(logits[size_t(rows[i].logits_row)], rows[i].token, rows[i].num_top);
    ExpectLogprob(got.logprobs[i], want.chosen.logprob);
    EXPECT_EQ(got.ranks[i], want.rank);
    for (size_t j = 0; j < size_t(max_top); ++j) {
      const size_t at = i * size_t(max_top) + j;
      if (j >= want.top.size()) {
        ASSERT_EQ(got.top_tokens[at], -1);  // never written
        continue;
      }
      ASSERT_EQ(got.top_tokens[at], want.top[j].token) << j;
      ExpectLogprob(got.top_logprobs[at], want.top[j].logprob);
    }
  }
}

TEST(Logprobs, AgreeWithTheRule) {
  for (bool ties : {false, true}) {
    for (int vocab : {1, 7, 512, 3000}) {
      LogitsRows logits = {RandomLogits(vocab, 3, 1, ties), RandomLogits(vocab, 1, 2, ties)};
      for (int i = 2; i < vocab; i += 9) logits[1][size_t(i)] = -kInf;
      std::vector<LogprobRow> rows;
      for (int32_t num_top : {0, 1, 5, 20, 500, 1024, 1025, 2000}) {
        rows.push_back({int32_t(rows.size() % 2), int32_t(rows.size() * 7) % vocab, std::min(num_top, vocab)});
      }
      ExpectReports(logits, rows, std::min(2000, vocab));
      ExpectReports(logits, {{0, 0, vocab}, {1, vocab / 2, vocab}, {0, vocab - 1, 3}}, vocab);
      ExpectReports(logits, {{0, 0, 1}}, 1);
    }
  }
}

TEST(Logprobs, OfLargeVocabulariesAndOfNothingButTies) {
  ExpectReports({RandomLogits(40000, 4, 1)}, {{0, 123, 20}}, 20);
  ExpectReports({std::vector<float>(5000, 2.5f)}, {{0, 4999, 2100}}, 2100);
}

TEST(Logprobs, LeaveRowsAloneThatWantNothing) {
  const LogprobResults got = Logprobs({RandomLogits(50, 1, 1)}, {{0, 3, -1}, {0, 4, 2}}, 2);
  EXPECT_TRUE(std::isnan(got.logprobs[0]));
  EXPECT_EQ(got.ranks[0], -1);
  EXPECT_EQ(got.top_tokens[0], -1);
  EXPECT_FALSE(std::isnan(got.logprobs[1]));
}

TEST(Logprobs, OfRowsThatAreNotFiniteAreNan) {
  for (float bad : {kNan, kInf}) {
    LogitsRows logits = {RandomLogits(50, 1, 1), RandomLogits(50, 1, 1), std::vector<float>(50, -kInf)};
    logits[1][20] = bad;
    const LogprobResults got = Logprobs(logits, {{0, 3, 2}, {1, 0, 2}, {2, 0, 2}}, 2);
    EXPECT_FALSE(std::isnan(got.logprobs[0]));
    for (size_t i : {1, 2}) {
      EXPECT_TRUE(std::isnan(got.logprobs[i]));
      EXPECT_EQ(got.ranks[i], 0);
      EXPECT_EQ(got.top_tokens[2 * i], -1);
      EXPECT_TRUE(std::isnan(got.top_logprobs[2 * i + 1]));
    }
  }
}

}  // namespace
}  // namespace sluice::cuda_testing
