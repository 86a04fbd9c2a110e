// Equal keys of a block mean equal bits of what it holds, on every device, and nothing in the key is there in vain.
#include "engine/scheduler/kv_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/rope.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

constexpr int32_t kBlockSize = 16, kNumBlocks = 5, kTokens = kBlockSize * kNumBlocks;

// Another member of BatchView does not compile here before somebody has said what it is: if the arithmetic of a row may
// depend on it, it belongs to RequestNumerics and to KvKey.
void NameEveryMember(const BatchView& batch) {
  const auto& [token_ids, positions,                                           // in the key: the tokens
               row_starts, context_lens, kv_groups, logits_rows, token_sources,  // of the batch: no bit may depend on them
               row_routes, rope_classes, adapters] = BatchView(batch);          // RequestNumerics
  static_cast<void>(std::tie(token_ids, positions, row_starts, context_lens, kv_groups, logits_rows, token_sources, row_routes,
                             rope_classes, adapters));
}

struct Case {
  const char* name;
  bool cpu;
  RopeScaling scaling;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class KvKeyTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    NameEveryMember({});
    ModelSpec spec = ToySpec();
    spec.rope_tables[0] = MakeRopeTable(1e4, 16, GetParam().scaling);
    for (LayerSpec& layer : spec.layers) {
      layer.attention.kind = Mla{.num_heads = 4,
                                 .q_lora_rank = 32,
                                 .kv_lora_rank = 32,
                                 .qk_nope_head_dim = 24,
                                 .qk_rope_head_dim = 16,
                                 .v_head_dim = 20};
      layer.attention.rope->layout = RopeLayout::kInterleaved;
    }
    const ToyModel model = MakeToyModel(spec, TensorType::kF32, 7);
    CpuOpsOptions cpu;
    cpu.num_threads = 2;
    std::unique_ptr<Ops> ops = GetParam().cpu ? NewCpuOps(cpu).value() : NewReferenceOps();
    absl::StatusOr<ModelWeights> weights = LoadWeights(spec, ToyTensorNames(), model.tensors, "toy", ops.get());
    ASSERT_TRUE(weights.ok()) << weights.status();
    RunnerOptions options;
    options.block_size = kBlockSize;
    options.num_blocks = 64;
    options.kv_dtype = KvDType::kF32;
    options.max_model_len = spec.max_position;
    options.numerics.mla_expand_from = 40;
    runner_ = Runner::Create(std::move(ops), spec, *std::move(weights), options).value();
    runner_->SetEngineOptions(&options_);
    driver_ = std::make_unique<StepDriver>(runner_.get());
  }

  // A block of a request, by what can be told from outside: a row behind it, always computed in the same way, that sees it
  // and the blocks before it.
  struct Block {
    KvKey key;
    std::vector<float> seen;
    std::string request;
  };

  KvKeyId IdOf(const KvKey& key) {
    const auto it = std::find(keys_.begin(), keys_.end(), key);
    if (it != keys_.end()) return KvKeyId(it - keys_.begin()) + 1;
    keys_.push_back(key);
    return keys_.size();
  }

  void Compute(const std::vector<int32_t>& tokens, int32_t prompt_len, int32_t max_tokens, int32_t chunk) {
    TestSequence* request = driver_->Add(tokens);
    request->num_prompt = prompt_len;
    request->max_tokens = max_tokens;
    while (request->num_computed < kTokens) {
      driver_->Step({{request, std::min(chunk, kTokens - request->num_computed)}});
    }
    const RequestNumerics numerics(options_.numerics, prompt_len, max_tokens);
    KvKeyId parent = 0;
    for (int32_t index = 0; index < kNumBlocks; ++index) {
      Block block{.key = KeyOfBlock(parent, tokens, index, kBlockSize, numerics, /*salt=*/0),
                  .seen = Look(*request, index + 1),
                  .request = absl::StrCat("prompt ", prompt_len, ", max_tokens ", max_tokens, ", block ", index)};
      parent = IdOf(block.key);
      blocks_.push_back(std::move(block));
    }
    driver_->DropCache(request);
  }

  std::vector<float> Look(const TestSequence& request, int32_t num_blocks) {
    std::vector<int32_t> tokens(request.tokens.begin(), request.tokens.begin() + num_blocks * kBlockSize);
    tokens.push_back(3);
    TestSequence* look = driver_->Add(std::move(tokens));
    look->num_prompt = 0;  // no route, the first class
    look->num_computed = num_blocks * kBlockSize;
    look->blocks[0].assign(request.blocks[0].begin(), request.blocks[0].begin() + num_blocks);
    driver_->Step({{look, 1}});
    std::vector<float> logits(size_t(runner_->spec().vocab_size));
    EXPECT_TRUE(runner_->ops().CopyLogits(0, logits).ok());
    look->blocks[0].erase(look->blocks[0].begin(), look->blocks[0].begin() + num_blocks);  // they are the request's
    driver_->DropCache(look);
    return logits;
  }

  // Whether there are two blocks whose keys differ but not after `forget`, and whose bits differ.
  bool Needs(const std::function<void(KvKey*)>& forget) {
    for (const Block& a : blocks_) {
      for (const Block& b : blocks_) {
        KvKey x = a.key, y = b.key;
        forget(&x), forget(&y);
        if (x == y && a.seen != b.seen) return true;
      }
    }
    return false;
  }

  std::unique_ptr<Runner> runner_;
  EngineOptions options_;
  std::unique_ptr<StepDriver> driver_;
  std::vector<KvKey> keys_;
  std::vector<Block> blocks_;
};

TEST_P(KvKeyTest, EqualKeysMeanEqualBitsAndEveryPartMatters) {
  std::vector<int32_t> tokens(kTokens);
  for (int32_t i = 0; i < kTokens; ++i) tokens[size_t(i)] = (i * 37 + i / 5) % 90;
  std::vector<int32_t> other = tokens;
  other[3] = 91;
  int32_t chunk = 3;
  for (const int32_t prompt_len : {10, 39, 40, 48, 57, 66, 80}) {
    for (const int32_t length : {80, 96, 97, 128, 130, 140}) {
      Compute(tokens, prompt_len, length - prompt_len, chunk);
      chunk = chunk % 17 + 5;
    }
    Compute(other, prompt_len, 80 - prompt_len, chunk);
  }
  int num_equal = 0;
  for (const Block& a : blocks_) {
    for (const Block& b : blocks_) {
      if (&a == &b || a.key != b.key) continue;
      ++num_equal;
      ASSERT_EQ(a.seen, b.seen) << a.request << " and " << b.request;
    }
  }
  EXPECT_GT(num_equal, 100);
  EXPECT_TRUE(Needs([](KvKey* k) { k->parent = 0; }));
  EXPECT_TRUE(Needs([](KvKey* k) { k->tokens = {}; }));
  EXPECT_TRUE(Needs([](KvKey* k) { k->routed = 0; k->num_routed = 0; }));
  EXPECT_TRUE(Needs([](KvKey* k) { k->num_routed = std::min(k->num_routed, 1); }));
  const bool by_length = runner_->spec().rope_tables[0].depends_on_length();
  EXPECT_EQ(Needs([](KvKey* k) { k->rope_class = 0; }), by_length);
}

LongRope Long() {
  LongRope rope;
  rope.short_factor.assign(8, 1.0f);
  rope.long_factor.assign(8, 1.5f);
  rope.original_max_position = 96;
  return rope;
}

INSTANTIATE_TEST_SUITE_P(Devices, KvKeyTest,
                         ::testing::Values(Case{"Reference", false, {}}, Case{"Cpu", true, {}},
                                           Case{"ReferenceLongRope", false, Long()}, Case{"CpuLongRope", true, Long()},
                                           Case{"CpuDynamicNtk", true, DynamicRope{.factor = 2, .max_position = 96}}),
                         [](const auto& info) { return info.param.name; });

TEST(NumericsTest, ClassesAreTheLeastLengthsWithTheSameFrequencies) {
  RopeTable plain = MakeRopeTable(1e4, 16, {});
  RopeTable longrope = MakeRopeTable(1e4, 16, Long());
  RopeTable dynamic = MakeRopeTable(1e4, 16, DynamicRope{.factor = 2, .max_position = 60});
  // And how many classes there are among lengths of 1 to 100.
  const std::vector<std::pair<std::vector<RopeTable>, size_t>> models = {
      {{plain}, 1}, {{longrope, plain}, 2}, {{dynamic}, 41}, {{longrope, dynamic}, 41}};
  for (const auto& [tables, num_classes] : models) {
    const RopeClasses classes = RopeClassesOf(tables);
    std::vector<int32_t> seen;
    for (int32_t length = 1; length <= 100; ++length) {
      const int32_t rope_class = classes.ClassOf(length);
      EXPECT_LE(rope_class, length);
      EXPECT_EQ(classes.ClassOf(rope_class), rope_class);
      for (const RopeTable& table : tables) {
        std::vector<float> by_length, by_class;
        SelectInvFreq(table, length, &by_length);
        SelectInvFreq(table, rope_class, &by_class);
        EXPECT_EQ(by_length, by_class) << length;
      }
      if (seen.empty() || seen.back() != rope_class) seen.push_back(rope_class);
    }
    EXPECT_EQ(seen.size(), num_classes) << "no more classes than there are frequencies";
  }
}

// No device here has two routes, but a GPU has.
TEST(KvKeyOfBlockTest, EachRouteKeepsRequestsApart) {
  const NumericsOptions options{.mla_expand_from = 20, .gemm_library_from = 40, .rope = {}};
  const std::vector<int32_t> tokens(16, 1);
  const auto key = [&](int32_t prompt_len) {
    return KeyOfBlock(0, tokens, 0, 16, RequestNumerics(options, prompt_len, 5), /*salt=*/0);
  };
  EXPECT_EQ(key(16), key(19));
  EXPECT_NE(key(19), key(20));
  EXPECT_EQ(key(20), key(39));
  EXPECT_NE(key(39), key(40));
}

TEST(KvKeyOfBlockTest, SaltAndAdapterKeepRequestsApart) {
  const std::vector<int32_t> tokens(8, 1);
  const RequestNumerics none;
  RequestNumerics adapted;
  adapted.adapter = 1;
  const KvKey key = KeyOfBlock(0, tokens, 0, 8, none, 5);
  EXPECT_EQ(key, KeyOfBlock(0, tokens, 0, 8, none, 5));
  EXPECT_NE(key, KeyOfBlock(0, tokens, 0, 8, none, 6));
  EXPECT_NE(key, KeyOfBlock(0, tokens, 0, 8, adapted, 5));
}

}  // namespace
}  // namespace sluice::testing
