#include "engine/model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

using ::testing::HasSubstr;

ConfigJson Config(absl::string_view text) {
  absl::StatusOr<ConfigJson> config = ConfigJson::Parse(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

TEST(RopeTest, BaseFormula) {
  const RopeTable table = MakeRopeTable(1e4, 8, {});
  ASSERT_EQ(table.inv_freq.size(), 4u);
  EXPECT_EQ(table.attention_factor, 1);
  EXPECT_FLOAT_EQ(table.inv_freq[0], 1);
  EXPECT_FLOAT_EQ(table.inv_freq[1], 0.1f);
  EXPECT_FLOAT_EQ(table.inv_freq[2], 0.01f);
  EXPECT_FLOAT_EQ(table.inv_freq[3], 0.001f);
}

TEST(RopeTest, LinearDividesEveryFrequency) {
  EXPECT_FLOAT_EQ(MakeRopeTable(1e4, 8, LinearRope{4}).inv_freq[1], 0.025f);
}

struct PairCounts {
  int kept = 0, blended = 0, scaled = 0;
};
PairCounts CountPairs(double base, int32_t num_rotary, const Llama3Rope& rope) {
  const RopeTable plain = MakeRopeTable(base, num_rotary, {}), table = MakeRopeTable(base, num_rotary, rope);
  PairCounts counts;
  for (size_t i = 0; i < plain.inv_freq.size(); ++i) {
    const float ratio = plain.inv_freq[i] / table.inv_freq[i];
    if (std::abs(ratio - 1) < 1e-5f) {
      ++counts.kept;
    } else if (std::abs(ratio / rope.factor - 1) < 1e-5f) {
      ++counts.scaled;
    } else {
      ++counts.blended;
    }
  }
  return counts;
}

TEST(RopeTest, Llama3KeepsBlendsAndScalesTheKnownNumberOfPairs) {
  PairCounts counts = CountPairs(5e5, 128, {8, 1, 4, 8192});  // Llama 3.1 8B
  EXPECT_EQ(counts.kept, 29);
  EXPECT_EQ(counts.blended, 6);
  EXPECT_EQ(counts.scaled, 29);
  counts = CountPairs(5e5, 64, {32, 1, 4, 8192});  // Llama 3.2 1B
  EXPECT_EQ(counts.kept, 15);
  EXPECT_EQ(counts.blended, 3);
  EXPECT_EQ(counts.scaled, 14);
}

TEST(RopeTest, Llama3WithEqualFactorsBlendsNothing) {
  const PairCounts counts = CountPairs(5e5, 128, {16, 1, 1, 8192});  // Llama 4 Scout
  EXPECT_EQ(counts.kept, 35);
  EXPECT_EQ(counts.blended, 0);
  EXPECT_EQ(counts.scaled, 29);
}

TEST(RopeTest, YarnRampsOfKnownModels) {
  YarnRope yarn;
  yarn.factor = 40;
  yarn.original_max_position = 4096;
  YarnRamp ramp = FindYarnRamp(1e4, 64, yarn);  // DeepSeek-V3
  EXPECT_EQ(ramp.low, 10);
  EXPECT_EQ(ramp.high, 23);
  yarn.truncate = false;
  ramp = FindYarnRamp(1e4, 64, yarn);
  EXPECT_NEAR(ramp.low, 10.472, 1e-3);
  EXPECT_NEAR(ramp.high, 22.513, 1e-3);
  ramp = FindYarnRamp(150000, 64, yarn);  // gpt-oss
  EXPECT_NEAR(ramp.low, 8.0928, 1e-4);
  EXPECT_NEAR(ramp.high, 17.3980, 1e-4);
  yarn.truncate = true;
  yarn.beta_fast = yarn.beta_slow = 1;
  ramp = FindYarnRamp(5e4, 64, yarn);  // Kimi K2
  EXPECT_EQ(ramp.low, 19);
  EXPECT_EQ(ramp.high, 20);
}

TEST(RopeTest, YarnKeepsShortWavelengthsAndDividesLongOnes) {
  YarnRope yarn;
  yarn.factor = 40;
  yarn.original_max_position = 4096;
  const RopeTable plain = MakeRopeTable(1e4, 64, {}), table = MakeRopeTable(1e4, 64, yarn);
  for (int i = 0; i <= 10; ++i) EXPECT_FLOAT_EQ(table.inv_freq[i], plain.inv_freq[i]) << i;
  for (int i = 11; i < 23; ++i) {
    EXPECT_LT(table.inv_freq[i], plain.inv_freq[i]) << i;
    EXPECT_GT(table.inv_freq[i], plain.inv_freq[i] / 40) << i;
  }
  for (int i = 23; i < 32; ++i) EXPECT_FLOAT_EQ(table.inv_freq[i], plain.inv_freq[i] / 40) << i;
}

TEST(RopeTest, YarnAttentionFactor) {
  YarnRope yarn;
  yarn.factor = 32;
  EXPECT_NEAR(MakeRopeTable(1e4, 64, yarn).attention_factor, 1.346574, 1e-6);  // gpt-oss
  yarn.mscale = yarn.mscale_all_dim = 0.707f;
  EXPECT_FLOAT_EQ(MakeRopeTable(1e4, 64, yarn).attention_factor, 1);
  yarn.mscale_all_dim = 1;
  EXPECT_NEAR(MakeRopeTable(1e4, 64, yarn).attention_factor, YarnMagnitude(32, double{0.707f}) / YarnMagnitude(32, 1),
              1e-6);
  yarn.attention_factor = 2;
  EXPECT_FLOAT_EQ(MakeRopeTable(1e4, 64, yarn).attention_factor, 2);
  EXPECT_EQ(YarnMagnitude(1, 5), 1);
}

TEST(RopeConfigTest, OldAndNewSpellingsSayTheSame) {
  for (const char* text :
       {R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
        R"({"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
        R"({"rope_theta": 500000, "rope_scaling": {"type": "x", "rope_type": "llama3", "factor": 8,
            "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"}) {
    const absl::StatusOr<RopeConfig> rope = ReadRopeConfig(Config(text), {.max_position = 131072});
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->theta, 500000);
    const Llama3Rope& llama3 = std::get<Llama3Rope>(rope->scaling);
    EXPECT_EQ(llama3.factor, 8);
    EXPECT_EQ(llama3.low_freq_factor, 1);
    EXPECT_EQ(llama3.high_freq_factor, 4);
    EXPECT_EQ(llama3.original_max_position, 8192);
  }
}

TEST(RopeConfigTest, AbsentAndNullScalingsAreNone) {
  for (const char* text : {R"({})", R"({"rope_scaling": null})", R"({"rope_parameters": {"rope_type": "default"}})"}) {
    const absl::StatusOr<RopeConfig> rope = ReadRopeConfig(Config(text), {.theta = 1234, .max_position = 2048});
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->theta, 1234);
    EXPECT_TRUE(std::holds_alternative<std::monostate>(rope->scaling));
  }
}

TEST(RopeConfigTest, OriginalContextComesFromTheTopTheInsideOrTheContext) {
  const auto original = [](absl::string_view text) {
    const absl::StatusOr<RopeConfig> rope = ReadRopeConfig(Config(text), {.max_position = 2048});
    EXPECT_TRUE(rope.ok()) << rope.status();
    return std::get<YarnRope>(rope->scaling).original_max_position;
  };
  EXPECT_EQ(original(R"({"rope_scaling": {"type": "yarn", "factor": 4}})"), 2048);
  EXPECT_EQ(original(R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512}})"),
            512);
  EXPECT_EQ(original(R"({"original_max_position_embeddings": 256,
                         "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512}})"),
            256);
}

// Numbers that transformers computes from the same configs.
TEST(RopeConfigTest, DynamicGrowsTheBaseBeyondTheContext) {
  const ConfigJson config = Config(R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  const absl::StatusOr<RopeConfig> rope = ReadRopeConfig(config, {.max_position = 32});
  ASSERT_TRUE(rope.ok()) << rope.status();
  const RopeTable table = MakeRopeTable(rope->theta, 32, rope->scaling);
  ASSERT_TRUE(table.depends_on_length());
  std::vector<float> inv_freq;
  SelectInvFreq(table, 32, &inv_freq);
  EXPECT_EQ(inv_freq, table.inv_freq);
  EXPECT_FLOAT_EQ(inv_freq[1], 0.562341332f);
  SelectInvFreq(table, 64, &inv_freq);
  EXPECT_NEAR(inv_freq[1], 0.522627115, 1e-7);
  EXPECT_NEAR(inv_freq[15], 5.92759789e-05, 1e-11);
  SelectInvFreq(table, 100, &inv_freq);
  EXPECT_NEAR(inv_freq[8], 0.0041296673, 1e-9);
}

TEST(RopeConfigTest, LongropeChangesItsListBeyondTheOriginalContext) {
  std::string shorter, longer;
  for (int i = 0; i < 16; ++i) {
    shorter += (i > 0 ? "," : "") + std::to_string(1 + 0.01 * i);
    longer += (i > 0 ? "," : "") + std::to_string(1 + 0.5 * i);
  }
  const ConfigJson config = Config(R"({"rope_scaling": {"type": "longrope", "short_factor": [)" + shorter +
                                   R"(], "long_factor": [)" + longer + R"(],
                                     "original_max_position_embeddings": 4096}})");
  const absl::StatusOr<RopeConfig> rope = ReadRopeConfig(config, {.max_position = 131072});
  ASSERT_TRUE(rope.ok()) << rope.status();
  const RopeTable table = MakeRopeTable(rope->theta, 32, rope->scaling);
  EXPECT_FLOAT_EQ(table.attention_factor, 1.1902380714f);
  std::vector<float> inv_freq;
  SelectInvFreq(table, 4096, &inv_freq);
  EXPECT_NEAR(inv_freq[1], 0.556773603, 1e-7);
  EXPECT_NEAR(inv_freq[15], 0.000154633002, 1e-10);
  SelectInvFreq(table, 4097, &inv_freq);
  EXPECT_NEAR(inv_freq[1], 0.374894202, 1e-7);
  EXPECT_NEAR(inv_freq[15], 2.09209338e-05, 1e-11);
  EXPECT_EQ(LongRopeMagnitude(1, 4096), 1);
  EXPECT_EQ(LongRopeMagnitude(0.5, 4096), 1);
}

TEST(RopeConfigTest, TablesAsTransformersComputesThem) {
  const struct {
    const char* config;
    int32_t num_rotary;
    double attention_factor, first, middle, last;  // pairs 1, num_rotary / 4 and the last
  } kCases[] = {
      {R"({"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", "factor": 4,
           "original_max_position_embeddings": 32768}})",
       128, 1.138629436, 0.805842221, 0.000602941145, 3.10234441e-07},
      {R"({"rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32, "truncate": false,
           "original_max_position_embeddings": 4096}})",
       64, 1.34657359, 0.689044297, 0.000456483918, 3.0235114e-07},
      {R"({"rope_parameters": {"rope_theta": 500000, "rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
           "high_freq_factor": 4, "original_max_position_embeddings": 8192}})",
       128, 1, 0.814617217, 0.000524846022, 3.06892588e-07},
      {R"({"rope_scaling": {"type": "linear", "factor": 4}})", 128, 1, 0.216491088, 0.00249999994, 2.88695483e-05},
  };
  for (const auto& one : kCases) {
    const absl::StatusOr<RopeConfig> rope = ReadRopeConfig(Config(one.config), {.max_position = 131072});
    ASSERT_TRUE(rope.ok()) << rope.status();
    const RopeTable table = MakeRopeTable(rope->theta, one.num_rotary, rope->scaling);
    EXPECT_NEAR(table.attention_factor, one.attention_factor, 1e-6);
    const std::vector<float>& f = table.inv_freq;
    EXPECT_NEAR(f[1], one.first, 1e-6 * one.first);
    EXPECT_NEAR(f[f.size() / 2], one.middle, 1e-6 * one.middle);
    EXPECT_NEAR(f.back(), one.last, 1e-6 * one.last);
  }
}

TEST(RopeConfigTest, AnOldStyleObjectWinsAndAnEmptyOneIsNone) {
  absl::StatusOr<RopeConfig> rope =
      ReadRopeConfig(Config(R"({"rope_theta": 50, "rope_scaling": {"type": "linear", "factor": 2},
                                "rope_parameters": {"rope_theta": 60, "rope_type": "default"}})"),
                     {.max_position = 2048});
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(std::get<LinearRope>(rope->scaling).factor, 2);
  EXPECT_EQ(rope->theta, 50);
  rope = ReadRopeConfig(Config(R"({"rope_scaling": {}, "rope_parameters": {"rope_theta": 60}})"), {.max_position = 9});
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->theta, 60);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(rope->scaling));
}

TEST(RopeConfigTest, PartOfAHeadRotatesAnEvenNumberOfDimensions) {
  ModelSpec spec;
  RopeConfig rope{.partial_rotary_factor = 0.4f, .scaling = {}};
  const absl::StatusOr<RopeSpec> added = AddRope("f", rope, 80, RopeLayout::kInterleaved, &spec);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->num_rotary, 32);
  EXPECT_EQ(added->table, 0);
  EXPECT_EQ(spec.rope_tables[0].inv_freq.size(), 16u);
  EXPECT_FALSE(AddRope("f", rope, 8, RopeLayout::kInterleaved, &spec).ok());  // 3
  EXPECT_FALSE(AddRope("f", rope, 2, RopeLayout::kInterleaved, &spec).ok());  // 0
  EXPECT_FALSE(AddRope("f", rope, INT32_MAX, RopeLayout::kInterleaved, &spec).ok());
  rope = {.scaling = DynamicRope{2, 32}};
  EXPECT_FALSE(AddRope("f", rope, 2, RopeLayout::kInterleaved, &spec).ok());  // divides by d - 2
  EXPECT_EQ(spec.rope_tables.size(), 1u);
}

// The table of ContextOf, row by row. The file says 24 tokens.
TEST(RopeContextTest, EachKindOfScalingHasItsContext) {
  const std::vector<float> ones(8, 1.0f);
  const struct {
    const char* name;
    RopeScaling scaling;
    int32_t usual, longest;
  } kCases[] = {
      {"none", {}, 24, 24},
      {"linear", LinearRope{.factor = 4}, 24, 96},
      {"linear from an original context", LinearRope{.factor = 4, .original_max_position = 6}, 24, 24},
      {"linear from a longer one", LinearRope{.factor = 4, .original_max_position = 10}, 24, 40},
      {"dynamic", DynamicRope{.factor = 2, .max_position = 24}, 24, 48},
      {"llama3", Llama3Rope{.factor = 8, .original_max_position = 24}, 24, 24},
      {"longrope", LongRope{ones, ones, 8}, 24, 24},
      {"longrope with a factor", LongRope{ones, ones, 8, 1, 4}, 24, 32},
      {"yarn not counted", YarnRope{.factor = 4, .original_max_position = 24}, 96, 96},
      {"yarn counted already", YarnRope{.factor = 4, .original_max_position = 6}, 24, 24},
      {"yarn that counts less", YarnRope{.factor = 2, .original_max_position = 6}, 24, 24},
      {"yarn of a broken factor", YarnRope{.factor = 2.5, .original_max_position = 23}, 57, 57},
      {"yarn beyond all", YarnRope{.factor = 1e30f, .original_max_position = 24}, kMaxPosition, kMaxPosition},
      {"linear of nearly nothing", LinearRope{.factor = 1e-30f}, 24, 24},
  };
  for (const auto& one : kCases) {
    const RopeContext context = ContextOf(one.scaling, 24);
    EXPECT_EQ(context.usual, one.usual) << one.name;
    EXPECT_EQ(context.longest, one.longest) << one.name;
  }
}

TEST(RopeContextTest, TheSpecGrowsWithItsTables) {
  ModelSpec spec;
  spec.max_position = 24;
  ASSERT_TRUE(AddRope("f", {}, 16, RopeLayout::kHalfSplit, &spec).ok());
  EXPECT_EQ(spec.max_position, 24);
  EXPECT_EQ(LongestContext(spec), 24);
  EXPECT_EQ(spec.rope_scaling_factor, 1);
  ASSERT_TRUE(
      AddRope("f", {.scaling = YarnRope{.factor = 4, .original_max_position = 24}}, 16, RopeLayout::kHalfSplit, &spec)
          .ok());
  EXPECT_EQ(spec.max_position, 96);
  EXPECT_EQ(LongestContext(spec), 96);
  EXPECT_EQ(spec.rope_scaling_factor, 4);
}

TEST(RopeConfigTest, WhatIsUnknownOrIncompleteIsAnErrorNamingTheKey) {
  const auto error = [](absl::string_view text) {
    return ReadRopeConfig(Config(text), {.max_position = 2048}).status();
  };
  absl::Status status = error(R"({"rope_scaling": {"rope_type": "spiral", "factor": 2}})");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("config.json: unknown rope_type 'spiral'"));
  EXPECT_THAT(std::string(error(R"({"rope_scaling": {"factor": 2}})").message()), HasSubstr("no 'rope_type'"));
  EXPECT_THAT(std::string(error(R"({"rope_scaling": {"type": "linear"}})").message()),
              HasSubstr("key 'rope_scaling.factor' is missing"));
  EXPECT_THAT(std::string(error(R"({"rope_scaling": {"type": "yarn"}})").message()),
              HasSubstr("key 'rope_scaling.factor' is missing"));
  EXPECT_THAT(std::string(error(R"({"rope_scaling": {"type": "llama3", "factor": 8}})").message()),
              HasSubstr("key 'rope_scaling.low_freq_factor' is missing"));
  EXPECT_THAT(std::string(error(R"({"rope_scaling": {"type": "linear", "factor": 0}})").message()),
              HasSubstr("expected a number above 0"));
  EXPECT_THAT(std::string(error(R"({"rope_scaling": "linear"})").message()), HasSubstr("expected an object"));
  EXPECT_THAT(std::string(error(R"({"rope_theta": 0.5})").message()), HasSubstr("'rope_theta' is 0.5"));
  EXPECT_THAT(std::string(error(R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": -1}})").message()),
              HasSubstr("beta_fast"));
}

}  // namespace
}  // namespace sluice
