// Models whose files have their tensors in other forms (engine/model/tensor_form.h).
#include <gtest/gtest.h>

#include "engine/model/decoder.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/model/formed_model.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_model.h"

namespace sluice::testing {
namespace {

using enum TensorRole;

std::vector<std::vector<float>> Logits(const ModelSpec& spec, const TensorNaming& naming,
                                       const std::vector<TensorView>& tensors) {
  std::unique_ptr<Ops> ops = NewReferenceOps();
  absl::StatusOr<ModelWeights> weights = LoadWeights(spec, naming, tensors, "toy", ops.get());
  EXPECT_TRUE(weights.ok()) << weights.status();
  if (!weights.ok()) return {};
  RunnerOptions options;
  options.num_blocks = 4;
  options.kv_dtype = KvDType::kF32;
  options.max_model_len = spec.max_position;
  options.max_num_seqs = 16;
  absl::StatusOr<std::unique_ptr<Runner>> runner = Runner::Create(std::move(ops), spec, *std::move(weights), options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  if (!runner.ok()) return {};
  return StepDriver(runner->get()).AllLogits({3, 1, 4, 1, 5, 9, 2, 6});
}

struct FormCase {
  const char* name;
  ModelSpec (*spec)();
  std::vector<TensorName> forms;
};

TensorForm Transposed(TensorForm form = {}) {
  form.transposed = true;
  return form;
}

const FormCase kFormCases[] = {
    {"QkvAndGateUpFused",
     BiasedSpec,
     {{kQ, "{layer}.qkv", kStackedRows},
      {kK, "{layer}.qkv", kStackedRows},
      {kV, "{layer}.qkv", kStackedRows},
      {kQBias, "{layer}.qkv_bias", kStackedRows},
      {kKBias, "{layer}.qkv_bias", kStackedRows},
      {kVBias, "{layer}.qkv_bias", kStackedRows},
      {kGate, "{layer}.gate_up", kStackedRows},
      {kUp, "{layer}.gate_up", kStackedRows},
      {kGateBias, "{layer}.gate_up_bias", kInterleavedRows},
      {kUpBias, "{layer}.gate_up_bias", kInterleavedRows}}},
    {"Conv1d",
     BiasedSpec,
     {{kQ, "{layer}.c_attn", Transposed(kStackedRows)},
      {kK, "{layer}.c_attn", Transposed(kStackedRows)},
      {kV, "{layer}.c_attn", Transposed(kStackedRows)},
      {kO, "{layer}.c_proj", Transposed()},
      {kDown, "{layer}.down", Transposed()}}},
    {"GateUpInterleaved",
     BiasedSpec,
     {{kGate, "{layer}.gate_up", kInterleavedRows}, {kUp, "{layer}.gate_up", kInterleavedRows}}},
    {"ATensorPerExpert",
     MoeSpec,
     {{kExpertGate, "{layer}.{expert}.gate"},
      {kExpertUp, "{layer}.{expert}.up"},
      {kExpertDown, "{layer}.{expert}.down"},
      {kExpertGateBias, "{layer}.{expert}.gate_bias"},
      {kExpertDownBias, "{layer}.{expert}.down_bias"}}},
    {"ExpertsFused",
     MoeSpec,
     {{kExpertGate, "{layer}.gate_up", kStackedRows},
      {kExpertUp, "{layer}.gate_up", kStackedRows},
      {kExpertGateBias, "{layer}.gate_up_bias", kStackedRows},
      {kExpertUpBias, "{layer}.gate_up_bias", kStackedRows}}},
    {"ExpertsFusedEach",
     MoeSpec,
     {{kExpertGate, "{layer}.{expert}.gate_up", kInterleavedRows},
      {kExpertUp, "{layer}.{expert}.gate_up", kInterleavedRows}}},
    {"ExpertsTransposedInterleaved",
     MoeSpec,
     {{kExpertGate, "{layer}.gate_up", Transposed(kInterleavedRows)},
      {kExpertUp, "{layer}.gate_up", Transposed(kInterleavedRows)},
      {kExpertDown, "{layer}.down", Transposed()},
      {kExpertGateBias, "{layer}.gate_up_bias", kInterleavedRows},
      {kExpertUpBias, "{layer}.gate_up_bias", kInterleavedRows}}},
    {"ExpertsTransposedHalves",
     MoeSpec,
     {{kExpertGate, "{layer}.gate_up", Transposed(kStackedRows)},
      {kExpertUp, "{layer}.gate_up", Transposed(kStackedRows)}}},
    {"ExpertsMerged", MoeSpec, {{kExpertDown, "{layer}.merged_down"}, {kExpertDownBias, "{layer}.merged_bias"}}},
    {"HeadsOfKeyAndValueMerged",
     MlaSpec,
     {{kKeyUp, "{layer}.merged_kv_b", kStackedRows}, {kValueUp, "{layer}.merged_kv_b", kStackedRows}}},
    {"HeadsOfKeysTransposed", MlaSpec, {{kKeyUp, "{layer}.k_b", Transposed()}, {kValueUp, "{layer}.v_b"}}},
};

class TensorFormsTest : public ::testing::TestWithParam<FormCase> {};

TEST_P(TensorFormsTest, GivesTheLogitsOfTheModelInPlainTensors) {
  const ToyModel model = MakeToyModel(GetParam().spec(), TensorType::kF32, 3);
  const FormedModel formed(model, GetParam().forms);
  const auto expected = Logits(model.spec, ToyTensorNames(), model.tensors);
  EXPECT_EQ(Logits(model.spec, formed.naming(), formed.tensors), expected);
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorFormsTest, ::testing::ValuesIn(kFormCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::testing
