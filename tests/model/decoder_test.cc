// The forward pass over every kind of layer that it runs: against an independent one in doubles, and against itself.
#include "engine/model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "engine/model/rope.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/model/reference_forward.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

enum class Device { kReference, kCpuF32, kCpuInt16 };

std::unique_ptr<Ops> NewOps(Device device) {
  if (device == Device::kReference) return NewReferenceOps();
  CpuOpsOptions options;
  options.num_threads = 2;
  options.activations = device == Device::kCpuF32 ? ActivationType::kF32 : ActivationType::kInt16;
  absl::StatusOr<std::unique_ptr<Ops>> ops = NewCpuOps(options);
  EXPECT_TRUE(ops.ok()) << ops.status();
  return *std::move(ops);
}

std::unique_ptr<Runner> NewRunner(const ToyModel& model, Device device, KvDType kv_dtype = KvDType::kF32,
                                  int32_t mla_expand_from = INT32_MAX) {
  std::unique_ptr<Ops> ops = NewOps(device);
  absl::StatusOr<ModelWeights> weights = LoadWeights(model.spec, ToyTensorNames(), model.tensors, "toy", ops.get());
  EXPECT_TRUE(weights.ok()) << weights.status();
  RunnerOptions options;
  options.num_blocks = 64;
  options.kv_dtype = kv_dtype;
  options.max_model_len = model.spec.max_position;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 128;
  options.numerics.mla_expand_from = mla_expand_from;
  absl::StatusOr<std::unique_ptr<Runner>> runner =
      Runner::Create(std::move(ops), model.spec, *std::move(weights), options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return *std::move(runner);
}

std::vector<int32_t> RandomTokens(size_t n, int32_t vocab_size, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = int32_t(rng() % uint32_t(vocab_size));
  return tokens;
}

struct Case {
  const char* name;
  std::function<void(ModelSpec*)> change;
  TensorType type = TensorType::kF32;
  int32_t mla_expand_from = INT32_MAX;
};

void ForEachLayer(ModelSpec* spec, const std::function<void(LayerSpec&)>& change) {
  for (LayerSpec& layer : spec->layers) change(layer);
}
Gqa& Heads(LayerSpec& layer) { return std::get<Gqa>(layer.attention.kind); }
DenseFfn& Ffn(LayerSpec& layer) { return std::get<DenseFfn>(layer.ffn); }

// 8 experts, of which 2 are chosen.
MoeFfn& Moe(LayerSpec& layer) {
  if (!std::holds_alternative<MoeFfn>(layer.ffn)) {
    MoeFfn moe;
    moe.routing.num_experts = 8;
    moe.routing.num_experts_per_token = 2;
    moe.expert_intermediate_size = 48;
    layer.ffn = moe;
  }
  return std::get<MoeFfn>(layer.ffn);
}

Mla& Latent(LayerSpec& layer) {
  if (!std::holds_alternative<Mla>(layer.attention.kind)) {
    layer.attention.kind = Mla{.num_heads = 4,
                               .q_lora_rank = {},
                               .kv_lora_rank = 32,
                               .qk_nope_head_dim = 24,
                               .qk_rope_head_dim = 16,
                               .v_head_dim = 20};
    layer.attention.rope->layout = RopeLayout::kInterleaved;
  }
  return std::get<Mla>(layer.attention.kind);
}

void LatentEverywhere(ModelSpec* spec) {
  ForEachLayer(spec, [](LayerSpec& l) { Latent(l).q_lora_rank = 32; });
}

// As in DeepSeek-V3: sigmoid scores, a bias for the choice, the better half of the groups, a shared expert.
void GroupedMoe(LayerSpec& layer) {
  MoeFfn& moe = Moe(layer);
  moe.routing.num_experts = 16;
  moe.routing.num_experts_per_token = 3;
  moe.routing.score = MoeScore::kSigmoid;
  moe.routing.groups = MoeGroups{.num_groups = 4, .num_kept = 2, .score = MoeGroupScore::kTop2Sum};
  moe.routing.renormalize = true;
  moe.routing.renormalize_eps = 1e-20f;
  moe.routing.routed_scale = 2.5f;
  moe.selection_bias = true;
  moe.shared_intermediate_size = 32;
}

const Case kCases[] = {
    {"Plain", [](ModelSpec*) {}},
    {"Tied", [](ModelSpec* s) { s->tied_embeddings = true; }},
    {"Mha", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Heads(l).num_kv_heads = 4; }); }},
    {"Mqa", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Heads(l).num_kv_heads = 1; }); }},
    {"WideHeads",
     [](ModelSpec* s) {
       s->rope_tables[0] = MakeRopeTable(1e4, 32, {});
       ForEachLayer(s, [](LayerSpec& l) {
         Heads(l).head_dim = Heads(l).value_head_dim = 32;
         l.attention.rope->num_rotary = 32;
       });
     }},
    {"NarrowValues", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Heads(l).value_head_dim = 8; }); }},
    {"OddSizes",
     [](ModelSpec* s) {
       s->vocab_size = 97;
       s->d_model = 72;
       s->rope_tables[0] = MakeRopeTable(1e4, 24, {});
       ForEachLayer(s, [](LayerSpec& l) {
         Heads(l) = Gqa{.num_heads = 3, .num_kv_heads = 1, .head_dim = 24, .value_head_dim = 24, .qk_norm = {}};
         l.attention.rope->num_rotary = 24;
         Ffn(l).intermediate_size = 100;
       });
     }},
    {"Interleaved",
     [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { l.attention.rope->layout = RopeLayout::kInterleaved; }); }},
    {"PartialRope",
     [](ModelSpec* s) {
       s->rope_tables[0] = MakeRopeTable(1e4, 8, {});
       ForEachLayer(s, [](LayerSpec& l) { l.attention.rope->num_rotary = 8; });
     }},
    {"Yarn",
     [](ModelSpec* s) {
       YarnRope yarn;
       yarn.factor = 4;
       yarn.original_max_position = 32;
       s->rope_tables[0] = MakeRopeTable(1e4, 16, yarn);
     }},
    {"TwoRopeTablesAndNone",
     [](ModelSpec* s) {
       s->rope_tables.push_back(MakeRopeTable(100, 16, LinearRope{4}));
       s->layers[1].attention.rope->table = 1;
       s->layers[2].attention.rope.reset();
     }},
    {"Biases",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         l.attention.q_bias = l.attention.k_bias = l.attention.v_bias = l.attention.o_bias = true;
         Ffn(l).bias = true;
       });
     }},
    {"KeyBiasOnly", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { l.attention.k_bias = true; }); }},
    {"Window",
     [](ModelSpec* s) {
       s->layers[1].attention.mask = {MaskKind::kWindow, 7};
     }},
    {"Chunk",
     [](ModelSpec* s) {
       s->layers[1].attention.mask = {MaskKind::kChunk, 10};
     }},
    {"Sinks", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { l.attention.sinks = true; }); }},
    {"Softcaps",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) { l.attention.softcap = 0.5f; });
       s->final_softcap = 0.7f;
     }},
    {"ScalesAndTemperature",
     [](ModelSpec* s) {
       s->embedding_scale = 8;
       s->logit_scale = 0.3f;
       ForEachLayer(s, [](LayerSpec& l) { l.attention.query_temperature = QueryTemperature{8, 0.4f}; });
     }},
    {"QkNormPerHead",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) { Heads(l).qk_norm = {QkNormKind::kPerHead, NormParams{}, false}; });
     }},
    {"QkNormFullWidth",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) { Heads(l).qk_norm = {QkNormKind::kFullWidth, NormParams{}, false}; });
     }},
    {"QkNormL2AfterRope",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) { Heads(l).qk_norm = {QkNormKind::kL2PerHead, NormParams{}, true}; });
     }},
    {"FourNormsWithOffset",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         const NormParams norm{.kind = NormKind::kRms, .eps = 1e-6f, .weight_offset = 1};
         l.pre_attn = l.post_attn = l.pre_ffn = l.post_ffn = norm;
       });
     }},
    {"PostNormsOnly",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         l.post_attn = std::exchange(l.pre_attn, std::nullopt);
         l.post_ffn = std::exchange(l.pre_ffn, std::nullopt);
       });
     }},
    {"LayerNormsLearnedPositionsPlainGelu",
     [](ModelSpec* s) {
       s->position_embedding = PositionEmbedding::kLearned;
       s->final_norm.kind = NormKind::kLayer;
       s->tied_embeddings = true;
       ForEachLayer(s, [](LayerSpec& l) {
         l.pre_attn->kind = l.pre_ffn->kind = NormKind::kLayer;
         l.attention.rope.reset();
         Ffn(l).gated = false;
         Ffn(l).bias = true;
         Ffn(l).activation.kind = ActivationKind::kGeluTanh;
       });
     }},
    {"ClampedSwiglu",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         Ffn(l).activation = {ActivationKind::kSwigluOai, 1.702f, 0.3f};
         Ffn(l).bias = true;
       });
     }},
    {"GeluErf",
     [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Ffn(l).activation.kind = ActivationKind::kGeluErf; }); }},
    {"LongRope",
     [](ModelSpec* s) {
       LongRopeRule rule{.original_max_position = 20, .long_inv_freq = s->rope_tables[0].inv_freq};
       for (float& f : rule.long_inv_freq) f *= 0.3f;
       s->rope_tables[0].length_rule = rule;
     }},
    {"DynamicNtk",
     [](ModelSpec* s) {
       s->rope_tables[0].length_rule = DynamicNtkRule{.base = 1e4f, .factor = 4, .max_position = 20};
     }},
    {"Moe", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Moe(l); }); }},
    {"MoeInSomeLayers", [](ModelSpec* s) { Moe(s->layers[1]); }},
    {"MoeRenormalizedAndScaled",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         Moe(l).routing.renormalize = true;
         Moe(l).routing.renormalize_eps = 0.1f;
         Moe(l).routing.routed_scale = 3;
       });
     }},
    {"MoeSoftmaxOfTheChosenBiasesClampedSwiglu",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         Moe(l).routing.score = MoeScore::kSoftmaxTopK;
         Moe(l).router_bias = Moe(l).expert_bias = true;
         Moe(l).activation = {ActivationKind::kSwigluOai, 1.702f, 0.3f};
       });
     }},
    {"MoeBestGroupsByMaximum",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         Moe(l).routing.groups = MoeGroups{.num_groups = 4, .num_kept = 2, .score = MoeGroupScore::kMax};
         Moe(l).routing.routed_scale = 4;
         Moe(l).shared_intermediate_size = 40;
       });
     }},
    {"MoeSigmoidGroupsSelectionBiasShared", [](ModelSpec* s) { ForEachLayer(s, GroupedMoe); }},
    {"MoeWeightOnInputShared",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         Moe(l).routing.num_experts_per_token = 1;
         Moe(l).routing.score = MoeScore::kSigmoid;
         Moe(l).weight_on_input = true;
         Moe(l).shared_intermediate_size = 48;
       });
     }},
    {"MoePostNorm",
     [](ModelSpec* s) {
       ForEachLayer(s, [](LayerSpec& l) {
         Moe(l).shared_intermediate_size = 48;
         l.post_ffn = l.pre_ffn;
       });
     }},
    {"MoeMxfp4", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Moe(l).expert_intermediate_size = 64; }); },
     TensorType::kMXFP4},
    {"MoeQ8_0", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Moe(l).expert_intermediate_size = 64; }); },
     TensorType::kQ8_0},
    {"Mla", [](ModelSpec* s) { ForEachLayer(s, [](LayerSpec& l) { Latent(l); }); }},
    {"MlaQueryLatent", LatentEverywhere},
    {"MlaExpanded", LatentEverywhere, TensorType::kF32, 0},
    {"MlaExpandedForLongPrompts", LatentEverywhere, TensorType::kF32, 29},
    {"MlaBiases",
     [](ModelSpec* s) {
       LatentEverywhere(s);
       ForEachLayer(s, [](LayerSpec& l) { l.attention.q_bias = l.attention.k_bias = l.attention.o_bias = true; });
       Latent(s->layers[1]).q_lora_rank.reset();
     }},
    {"MlaHalfSplitYarn",
     [](ModelSpec* s) {
       YarnRope yarn;
       yarn.factor = 4;
       yarn.original_max_position = 32;
       s->rope_tables[0] = MakeRopeTable(1e4, 16, yarn);
       LatentEverywhere(s);
       ForEachLayer(s, [](LayerSpec& l) { l.attention.rope->layout = RopeLayout::kHalfSplit; });
     }},
    {"MlaLatentEpsilon",
     [](ModelSpec* s) {
       LatentEverywhere(s);
       ForEachLayer(s, [](LayerSpec& l) { Latent(l).latent_norm_eps = 0.1f; });
     }},
    {"MlaWindowAndGqa",
     [](ModelSpec* s) {
       Latent(s->layers[0]);
       Latent(s->layers[2]).q_lora_rank = 32;
       s->layers[2].attention.mask = {MaskKind::kWindow, 9};
     }},
    {"MlaQ8_0", LatentEverywhere, TensorType::kQ8_0},
    {"MlaGroupedMoe",
     [](ModelSpec* s) {
       LatentEverywhere(s);
       GroupedMoe(s->layers[1]);
       GroupedMoe(s->layers[2]);
     }},
    {"Q4_1", [](ModelSpec* s) { s->tied_embeddings = true; }, TensorType::kQ4_1},
    {"Q8_0", [](ModelSpec*) {}, TensorType::kQ8_0},
    {"Q5_0", [](ModelSpec*) {}, TensorType::kQ5_0},
    {"F16", [](ModelSpec*) {}, TensorType::kF16},
    {"BF16", [](ModelSpec*) {}, TensorType::kBF16},
};

ToyModel MakeModel(const Case& c, uint32_t seed) {
  ModelSpec spec = ToySpec();
  c.change(&spec);
  return MakeToyModel(spec, c.type, seed);
}

// A model in which no choice of an expert is so close that rounding could turn it: that is not a question of tolerance.
ToyModel MakeDecidedModel(const Case& c, uint32_t seed, const std::vector<int32_t>& tokens,
                          std::vector<std::vector<double>>* logits) {
  for (;; ++seed) {
    ToyModel model = MakeModel(c, seed);
    double margin;
    *logits = ReferenceLogits(model, tokens, &margin);
    if (margin >= 1e-4) return model;
  }
}

class DecoderTest : public ::testing::TestWithParam<Case> {};

// Largest difference relative to the largest |logit| of its row.
double WorstError(const std::vector<std::vector<float>>& ours, const std::vector<std::vector<double>>& theirs) {
  double worst = 0;
  for (size_t t = 0; t < theirs.size(); ++t) {
    double scale = 0;
    for (double v : theirs[t]) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < theirs[t].size(); ++i) {
      worst = std::max(worst, std::abs(double(ours[t][i]) - theirs[t][i]) / scale);
    }
  }
  return worst;
}

TEST_P(DecoderTest, LogitsAreThoseOfAnIndependentForwardPass) {
  const std::vector<int32_t> tokens = RandomTokens(41, 96, 11);
  std::vector<std::vector<double>> expected;
  const ToyModel model = MakeDecidedModel(GetParam(), 7, tokens, &expected);
  for (const auto& [device, tolerance] :
       {std::pair(Device::kReference, 1e-5), std::pair(Device::kCpuF32, 1e-5), std::pair(Device::kCpuInt16, 2e-3)}) {
    const std::unique_ptr<Runner> runner = NewRunner(model, device, KvDType::kF32, GetParam().mla_expand_from);
    EXPECT_LE(WorstError(StepDriver(runner.get()).AllLogits(tokens), expected), tolerance)
        << runner->ops().Description();
  }
}

// Or a case would prove nothing: with the same weights it computes something else than the plain model.
TEST_P(DecoderTest, TheCaseMatters) {
  if (std::string(GetParam().name) == "Plain") return;
  const ToyModel plain = MakeModel(kCases[0], 7), changed = MakeModel(GetParam(), 7);
  const std::vector<int32_t> tokens = RandomTokens(41, plain.spec.vocab_size, 11);
  const std::vector<std::vector<double>> logits = ReferenceLogits(changed, tokens);
  std::vector<std::vector<float>> rounded;
  for (const std::vector<double>& row : logits) rounded.emplace_back(row.begin(), row.end());
  EXPECT_GE(WorstError(rounded, ReferenceLogits(plain, tokens)), 1e-3);
}

// The tokens and log-probabilities of a sequence that had the device to itself, its prompt in one piece.
TestSequence Alone(Runner* runner, const std::vector<int32_t>& prompt, int32_t num_new) {
  StepDriver driver(runner, 1);
  TestSequence* sequence = driver.Add(prompt);
  driver.Generate(sequence, 1000, num_new);
  return *sequence;
}

void ExpectSame(const TestSequence& actual, const TestSequence& expected) {
  EXPECT_EQ(actual.tokens, expected.tokens);
  ASSERT_EQ(actual.logprobs.size(), expected.logprobs.size());
  for (size_t i = 0; i < actual.logprobs.size(); ++i) {
    EXPECT_EQ(actual.logprobs[i].chosen.logprob, expected.logprobs[i].chosen.logprob) << "token " << i;
  }
}

TEST_P(DecoderTest, ASequenceGetsTheSameBitsHoweverItIsComputed) {
  const ToyModel model = MakeModel(GetParam(), 8);
  const std::vector<int32_t> prompt = RandomTokens(29, model.spec.vocab_size, 12);
  for (const Device device : {Device::kReference, Device::kCpuF32, Device::kCpuInt16}) {
    const std::unique_ptr<Runner> runner = NewRunner(model, device, KvDType::kF16, GetParam().mla_expand_from);
    SCOPED_TRACE(runner->ops().Description());
    const TestSequence expected = Alone(runner.get(), prompt, 10);

    for (const int32_t chunk : {1, 5, 7}) {
      SCOPED_TRACE(chunk);
      StepDriver driver(runner.get(), 2);  // other blocks too
      TestSequence* sequence = driver.Add(prompt);
      driver.Generate(sequence, chunk, 10);
      ExpectSame(*sequence, expected);
    }
    {
      SCOPED_TRACE("computed again in the middle");
      StepDriver driver(runner.get(), 3);
      TestSequence* sequence = driver.Add(prompt);
      driver.Generate(sequence, 13, 4);
      driver.DropCache(sequence);
      driver.Generate(sequence, 17, 10);
      ExpectSame(*sequence, expected);
    }
    {
      SCOPED_TRACE("among strangers, in chunks");
      StepDriver driver(runner.get(), 4);
      std::vector<TestSequence*> strangers;
      for (uint32_t i = 0; i < 6; ++i) {
        strangers.push_back(driver.Add(RandomTokens(1 + 5 * i, model.spec.vocab_size, 100 + i)));
      }
      TestSequence* sequence = driver.Add(prompt);
      for (int step = 0; int32_t(sequence->tokens.size()) < sequence->num_prompt + 10; ++step) {
        std::vector<StepDriver::Part> parts;
        const auto add = [&](TestSequence* s, int32_t chunk) {
          parts.push_back({s, std::min(chunk, int32_t(s->tokens.size()) - s->num_computed)});
        };
        for (size_t i = 0; i < 3; ++i) add(strangers[i], 4);
        add(sequence, step % 2 == 0 ? 5 : 3);
        for (size_t i = 3; i < strangers.size(); ++i) add(strangers[i], 6);
        driver.Step(parts);
      }
      ExpectSame(*sequence, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DecoderTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::testing
