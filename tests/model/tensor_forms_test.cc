// Reading the tensors of a model in every form that files have them in (engine/model/tensor_form.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/dequantize.h"
#include "engine/model/decoder.h"
#include "engine/model/tensors_by_role.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/model/step_driver.h"
#include "tests/model/toy_model.h"
#include "tests/ops/stored_tensor.h"

namespace sluice::testing {
namespace {

using enum TensorRole;
using ::testing::HasSubstr;

constexpr TensorForm kStackedRows{.rows = TensorRows::kStacked};
constexpr TensorForm kInterleavedRows{.rows = TensorRows::kInterleaved};

ModelSpec MoeSpec() {
  ModelSpec spec = ToySpec();
  for (size_t layer = 1; layer < spec.layers.size(); ++layer) {
    MoeFfn moe;
    moe.routing.num_experts = 4;
    moe.routing.num_experts_per_token = 2;
    moe.expert_intermediate_size = 48;
    moe.expert_bias = true;
    spec.layers[layer].ffn = moe;
  }
  return spec;
}

ModelSpec MlaSpec() {
  ModelSpec spec = ToySpec();
  for (LayerSpec& layer : spec.layers) {
    layer.attention.kind = Mla{.num_heads = 4,
                               .q_lora_rank = 24,
                               .kv_lora_rank = 32,
                               .qk_nope_head_dim = 8,
                               .qk_rope_head_dim = 16,
                               .v_head_dim = 12};
  }
  return spec;
}

ModelSpec BiasedSpec() {
  ModelSpec spec = ToySpec();
  for (LayerSpec& layer : spec.layers) {
    layer.attention.q_bias = layer.attention.k_bias = layer.attention.v_bias = true;
    std::get<DenseFfn>(layer.ffn).bias = true;
  }
  return spec;
}

// A model whose file has some roles in forms of their own; the others as MakeToyModel wrote them.
class FormedModel {
 public:
  FormedModel(const ToyModel& model, std::vector<TensorName> forms) : names_(std::move(forms)) {
    const size_t num_forms = names_.size();
    for (const ExpectedTensor& expected : ExpectedTensors(model.spec)) {
      shapes_[{expected.role, expected.layer}] = expected.shape;
    }
    for (size_t i = 0; i < num_forms; ++i) {
      bool first = true;
      for (size_t j = 0; j < i; ++j) first = first && names_[j].pattern != names_[i].pattern;
      for (int32_t layer = 0; first && layer < int32_t(model.spec.layers.size()); ++layer) {
        if (shapes_.contains({names_[i].role, layer})) Write(model, names_[i].pattern, layer);
      }
    }
    for (const TensorView& tensor : model.tensors) {
      bool formed = false;
      for (size_t i = 0; i < num_forms; ++i) {
        for (int32_t layer = 0; layer < int32_t(model.spec.layers.size()); ++layer) {
          formed = formed || tensor.name == *FindTensorName(ToyTensorNames(), names_[i].role, layer);
        }
      }
      if (!formed) tensors.push_back(tensor);
    }
    const absl::Span<const TensorName> toy = ToyTensorNames().names;
    names_.insert(names_.end(), toy.begin(), toy.end());
  }

  TensorNaming naming() const { return {.names = names_}; }

  std::vector<TensorView> tensors;

 private:
  static bool Leading(TensorRole role) {
    return role == kKeyUp || role == kValueUp || (role >= kExpertGate && role <= kExpertDownBias);
  }

  // The tensors of all roles of a pattern, straight from its definition.
  void Write(const ToyModel& model, absl::string_view pattern, int32_t layer) {
    struct Part {
      const std::vector<float>* values;
      int64_t rows;
    };
    std::vector<Part> parts;
    TensorForm form;
    int64_t count = 1, cols = 1, all_rows = 0;
    bool is_matrix = false, leading = false;
    for (const TensorName& name : names_) {
      if (name.pattern != pattern) continue;
      const std::vector<int64_t>& shape = shapes_.at({name.role, layer});
      form = name.form;
      leading = Leading(name.role);
      if (leading) count = shape[0];
      is_matrix = shape.size() == (leading ? 3u : 2u);
      if (is_matrix) cols = shape.back();
      parts.push_back({&model.values.at({name.role, layer}), shape[leading ? 1 : 0]});
      all_rows += parts.back().rows;
    }
    std::vector<float> all;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<std::vector<float>> rows;
      const auto row = [&](const Part& part, int64_t r) {
        const auto begin = part.values->begin() + (i * part.rows + r) * cols;
        rows.emplace_back(begin, begin + cols);
      };
      if (form.rows == TensorRows::kInterleaved) {
        for (int64_t r = 0; r < parts[0].rows; ++r) {
          for (const Part& part : parts) row(part, r);
        }
      } else {
        for (const Part& part : parts) {
          for (int64_t r = 0; r < part.rows; ++r) row(part, r);
        }
      }
      const bool transposed = form.transposed && is_matrix;
      for (int64_t a = 0; a < (transposed ? cols : all_rows); ++a) {
        for (int64_t b = 0; b < (transposed ? all_rows : cols); ++b) {
          all.push_back(transposed ? rows[size_t(b)][size_t(a)] : rows[size_t(a)][size_t(b)]);
        }
      }
    }
    std::vector<int64_t> shape{all_rows};
    if (is_matrix) shape = form.transposed ? std::vector{cols, all_rows} : std::vector{all_rows, cols};
    const bool each = absl::StrContains(pattern, "{expert}");
    const size_t per_tensor = all.size() / size_t(each ? count : 1);
    if (leading && !each) {
      if (absl::StrContains(pattern, "merged")) {
        shape[0] *= count;
      } else {
        shape.insert(shape.begin(), count);
      }
    }
    for (int64_t i = 0; i < (each ? count : 1); ++i) {
      bytes_.emplace_back(per_tensor * sizeof(float));
      std::memcpy(bytes_.back().data(), &all[size_t(i) * per_tensor], bytes_.back().size());
      tensors.push_back({ExpandTensorName(pattern, "", layer, each ? int32_t(i) : -1), TensorType::kF32, shape,
                         absl::MakeConstSpan(bytes_.back())});
    }
  }

  std::vector<TensorName> names_;
  std::map<std::pair<TensorRole, int32_t>, std::vector<int64_t>> shapes_;
  std::deque<std::vector<uint8_t>> bytes_;
};

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

TEST_P(TensorFormsTest, GivesTheLogitsOfTheSameModelInTensorsOfItsOwn) {
  const ToyModel model = MakeToyModel(GetParam().spec(), TensorType::kF32, 3);
  const FormedModel formed(model, GetParam().forms);
  const auto expected = Logits(model.spec, ToyTensorNames(), model.tensors);
  EXPECT_EQ(Logits(model.spec, formed.naming(), formed.tensors), expected);
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorFormsTest, ::testing::ValuesIn(kFormCases),
                         [](const auto& info) { return info.param.name; });

// ---- one tensor [rows, cols] as it is stored, two roles in it

std::vector<float> Decode(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  DequantizeRow(view.type, view.data.data(), view.num_elements(), values.data());
  return values;
}

StoredTensor Random(TensorType type, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 rng(seed);
  return RandomTensor(type, rows, cols, rng);
}

// A tensor as a file has it, with its companion where there is one.
struct Stored {
  StoredTensor tensor, companion;
  Stored(TensorType type, int64_t rows, int64_t cols, uint32_t seed)
      : tensor(Random(type, rows, cols, seed)),
        companion(type == TensorType::kF8E4M3
                      ? Random(TensorType::kF32, (rows + 127) / 128, (cols + 127) / 128, seed + 1)
                      : StoredTensor()) {}
  const TensorView* factors() const { return companion.bytes.empty() ? nullptr : &companion.view; }

  // Straight from models.md 1.6.
  std::vector<float> Values() const {
    std::vector<float> values = Decode(tensor.view);
    if (factors() == nullptr) return values;
    const std::vector<float> factors = Decode(companion.view);
    const int64_t cols = tensor.view.shape[1], factor_cols = companion.view.shape[1];
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t row = int64_t(i) / cols, col = int64_t(i) % cols;
      values[i] *= factors[size_t(row / 128 * factor_cols + col / 128)];
    }
    return values;
  }
};

TEST(StoredMatrixTest, ReadsEveryTypeInEveryForm) {
  for (TensorType type : WeightTypes()) {
    for (const bool transposed : {false, true}) {
      for (const bool interleaved : {false, true}) {
        SCOPED_TRACE(
            absl::StrCat(TensorTypeName(type), transposed ? " transposed" : "", interleaved ? " interleaved" : ""));
        const bool blocks = GetTensorTypeInfo(type).block_elems > 1;
        const int64_t rows = transposed && blocks ? 256 : 130, cols = !transposed && blocks ? 256 : 140;
        const Stored stored(type, transposed ? cols : rows, transposed ? rows : cols, 5);
        const std::vector<float> values = stored.Values();
        for (const int64_t role : {0, 1}) {
          StoredMatrix matrix;
          matrix.tensor = &stored.tensor.view;
          matrix.companion = stored.factors();
          matrix.transposed = transposed;
          matrix.slab_rows = rows;
          matrix.rows = rows / 2;
          matrix.cols = cols;
          matrix.first_row = interleaved ? role : role * (rows / 2);
          matrix.row_step = interleaved ? 2 : 1;
          const absl::StatusOr<ReadTensor> read = ReadMatrix(matrix);
          ASSERT_TRUE(read.ok()) << read.status();
          ASSERT_EQ(read->view.shape, (std::vector<int64_t>{rows / 2, cols}));
          const std::vector<float> got = Decode(read->view);
          for (int64_t r = 0; r < rows / 2; ++r) {
            const int64_t row = interleaved ? 2 * r + role : role * (rows / 2) + r;
            for (int64_t c = 0; c < cols; ++c) {
              ASSERT_EQ(got[size_t(r * cols + c)], values[size_t(transposed ? c * rows + row : row * cols + c)])
                  << "row " << r << ", column " << c;
            }
          }
          const bool copied = read->bytes != nullptr;
          EXPECT_EQ(copied, transposed || interleaved || type == TensorType::kF8E4M3);
          const bool widened = type == TensorType::kF8E4M3 || (transposed && blocks);
          EXPECT_EQ(read->view.type, widened ? TensorType::kF32 : type);
        }
      }
    }
  }
}

TEST(StoredMatrixTest, ReadsTheMatrixThatTheSlabSays) {
  const Stored stored(TensorType::kF16, 3 * 10, 8, 6);
  const std::vector<float> values = stored.Values();
  for (const bool transposed : {false, true}) {
    StoredMatrix matrix;
    matrix.tensor = &stored.tensor.view;
    matrix.transposed = transposed;
    matrix.slab = 2;
    matrix.slab_rows = transposed ? 8 : 10;
    matrix.rows = 3;
    matrix.first_row = 4;
    matrix.cols = transposed ? 10 : 8;
    const std::vector<float> got = Decode(ReadMatrix(matrix)->view);
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t c = 0; c < matrix.cols; ++c) {
        const int64_t row = 20 + (transposed ? c : 4 + r), col = transposed ? 4 + r : c;
        EXPECT_EQ(got[size_t(r * matrix.cols + c)], values[size_t(row * 8 + col)]);
      }
    }
  }
}

// ---- whole files

// The experts of a layer in MXFP4 as gpt-oss has them: rows of gate and up in turn.
struct Mxfp4Model {
  static constexpr int64_t kExperts = 3, kWidth = 32, kCols = 64;
  static ModelSpec Spec() {
    ModelSpec spec = ToySpec();
    spec.layers.resize(1);
    MoeFfn moe;
    moe.routing.num_experts = kExperts;
    moe.routing.num_experts_per_token = 1;
    moe.expert_intermediate_size = kWidth;
    spec.layers[0].ffn = moe;
    return spec;
  }

  explicit Mxfp4Model(uint32_t seed) : toy(MakeToyModel(Spec(), TensorType::kF32, seed)) {
    std::mt19937 rng(seed);
    blocks.resize(size_t(kExperts * 2 * kWidth * kCols / 2));
    scales.resize(size_t(kExperts * 2 * kWidth * kCols / 32));
    for (uint8_t& b : blocks) b = uint8_t(rng());
    for (uint8_t& s : scales) s = uint8_t(rng() % 255);
    scales[0] = 0;
    scales[1] = 1;
    names = {{kExpertGate, "{layer}.gate_up_blocks", form}, {kExpertUp, "{layer}.gate_up_blocks", form}};
    names.insert(names.end(), ToyTensorNames().names.begin(), ToyTensorNames().names.end());
    for (const TensorView& tensor : toy.tensors) {
      if (tensor.name == *FindTensorName(ToyTensorNames(), kExpertGate, 0)) continue;
      if (tensor.name == *FindTensorName(ToyTensorNames(), kExpertUp, 0)) continue;
      tensors.push_back(tensor);
    }
    tensors.push_back({"0.gate_up_blocks", TensorType::kU8, {kExperts, 2 * kWidth, kCols / 32, 16}, blocks});
    tensors.push_back({"0.gate_up_scales", TensorType::kU8, {kExperts, 2 * kWidth, kCols / 32}, scales});
  }

  absl::StatusOr<TensorsByRole> Match() const {
    return TensorsByRole::Match(toy.spec, {.names = names}, tensors, "file", {});
  }

  static constexpr TensorForm form{.rows = TensorRows::kInterleaved, .encoding = TensorEncoding::kMxfp4Blocks};
  ToyModel toy;
  std::vector<uint8_t> blocks, scales;
  std::vector<TensorName> names;
  std::vector<TensorView> tensors;
};

TEST(Mxfp4FormTest, IsRepackedToTheSameNumbers) {
  constexpr double kTable[] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6};
  const Mxfp4Model model(1);
  const absl::StatusOr<TensorsByRole> roles = model.Match();
  ASSERT_TRUE(roles.ok()) << roles.status();
  for (const auto& [role, odd] : {std::pair(kExpertGate, 0), std::pair(kExpertUp, 1)}) {
    const StoredRole& stored = *roles->Find(role, 0);
    ASSERT_EQ(stored.count(), model.kExperts);
    for (int64_t e = 0; e < model.kExperts; ++e) {
      const absl::StatusOr<ReadTensor> read = ReadMatrix(stored.Matrix(e));
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->view.type, TensorType::kMXFP4);
      const std::vector<float> got = Decode(read->view);
      for (int64_t i = 0; i < model.kWidth * model.kCols; ++i) {
        const int64_t row = (e * model.kWidth + i / model.kCols) * 2 + odd, col = i % model.kCols;
        const int64_t element = row * model.kCols + col;
        const uint8_t byte = model.blocks[size_t(element / 2)];
        const int nibble = element % 2 == 0 ? byte & 15 : byte >> 4;
        const int scale = model.scales[size_t(element / 32)];
        ASSERT_EQ(got[size_t(i)], float(std::ldexp(kTable[nibble], scale - 127))) << e << " " << i;
      }
    }
  }
}

std::string LoadError(const ModelSpec& spec, const TensorNaming& naming, const std::vector<TensorView>& tensors,
                      absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const std::unique_ptr<Ops> ops = NewReferenceOps();
  const absl::Status status = LoadWeights(spec, naming, tensors, "file", ops.get()).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(Mxfp4FormTest, RefusesWhatIsNoNumberAndWhatDoesNotFit) {
  {
    Mxfp4Model model(2);
    model.scales[70] = 255;
    EXPECT_THAT(LoadError(model.toy.spec, {.names = model.names}, model.tensors),
                ::testing::AllOf(HasSubstr("file: "), HasSubstr("'0.gate_up_scales'"), HasSubstr("255")));
  }
  {
    Mxfp4Model model(2);
    model.tensors.pop_back();
    EXPECT_THAT(LoadError(model.toy.spec, {.names = model.names}, model.tensors),
                ::testing::AllOf(HasSubstr("'0.gate_up_blocks'"), HasSubstr("'0.gate_up_scales'"),
                                 HasSubstr("[3, 64, 2]"), HasSubstr("missing")));
  }
  {
    Mxfp4Model model(2);
    model.tensors.back().shape = {3, 2, 64};
    EXPECT_THAT(LoadError(model.toy.spec, {.names = model.names}, model.tensors),
                ::testing::AllOf(HasSubstr("'0.gate_up_scales'"), HasSubstr("[3, 2, 64]"), HasSubstr("[3, 64, 2]")));
  }
  {
    Mxfp4Model model(2);
    (model.tensors.end() - 2)->shape = {3, 64, 4, 8};
    EXPECT_THAT(LoadError(model.toy.spec, {.names = model.names}, model.tensors),
                ::testing::AllOf(HasSubstr("[3, 64, 4, 8]"), HasSubstr("[3, 64, 2, 16]")));
  }
  {
    Mxfp4Model model(2);
    (model.tensors.end() - 2)->type = TensorType::kI8;
    EXPECT_THAT(LoadError(model.toy.spec, {.names = model.names}, model.tensors), HasSubstr("I8, expected U8"));
  }
}

// Two layers' gate of [130, 140] in fp8 with factors for blocks of 128.
struct Fp8Model {
  static ModelSpec Spec() {
    ModelSpec spec = ToySpec();
    spec.layers.resize(1);
    spec.d_model = 140;
    spec.layers[0].ffn = DenseFfn{.intermediate_size = 130};
    return spec;
  }

  explicit Fp8Model(uint32_t seed)
      : stored(TensorType::kF8E4M3, 130, 140, seed), toy(MakeToyModel(Spec(), TensorType::kF32, seed)) {
    name = *FindTensorName(ToyTensorNames(), kGate, 0);
    for (const TensorView& tensor : toy.tensors) {
      if (tensor.name != name) tensors.push_back(tensor);
    }
    tensors.push_back(stored.tensor.view);
    tensors.back().name = name;
    tensors.push_back(stored.companion.view);
    tensors.back().name = name + "_scale_inv";
  }
  Stored stored;
  ToyModel toy;
  std::string name;
  std::vector<TensorView> tensors;
};

TEST(Fp8FormTest, BecomesF32WithPartialBlocksAtTheEdges) {
  const Fp8Model model(4);
  const absl::StatusOr<TensorsByRole> roles =
      TensorsByRole::Match(model.toy.spec, ToyTensorNames(), model.tensors, "file", {});
  ASSERT_TRUE(roles.ok()) << roles.status();
  const absl::StatusOr<ReadTensor> read = ReadMatrix(roles->Find(kGate, 0)->Matrix(0));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->view.type, TensorType::kF32);
  EXPECT_EQ(Decode(read->view), model.stored.Values());
}

TEST(Fp8FormTest, NeedsItsFactors) {
  {
    Fp8Model model(4);
    model.tensors.pop_back();
    EXPECT_THAT(LoadError(model.toy.spec, ToyTensorNames(), model.tensors),
                ::testing::AllOf(HasSubstr(model.name + "_scale_inv'"), HasSubstr("[2, 2]"), HasSubstr("missing")));
  }
  {
    Fp8Model model(4);
    model.tensors.back().shape = {4, 1};
    EXPECT_THAT(LoadError(model.toy.spec, ToyTensorNames(), model.tensors),
                ::testing::AllOf(HasSubstr("[4, 1]"), HasSubstr("[2, 2]"), HasSubstr("[130, 140]")));
  }
  {
    Fp8Model model(4);
    model.tensors.back().type = TensorType::kI32;
    EXPECT_THAT(LoadError(model.toy.spec, ToyTensorNames(), model.tensors, absl::StatusCode::kUnimplemented),
                HasSubstr("I32"));
  }
  {  // factors of a matrix that has none are a tensor too many
    Fp8Model model(4);
    (model.tensors.end() - 2)->type = TensorType::kBF16;
    const std::vector<uint8_t> wide(130 * 140 * 2);
    (model.tensors.end() - 2)->data = wide;
    EXPECT_THAT(LoadError(model.toy.spec, ToyTensorNames(), model.tensors),
                ::testing::AllOf(HasSubstr(model.name + "_scale_inv'"), HasSubstr("not known")));
  }
}

// Heads' keys and values one below the other in a single fp8 matrix: blocks of factors run across heads.
TEST(Fp8FormTest, FactorsOfMergedHeadsCountRowsOfTheWholeTensor) {
  ModelSpec spec = MlaSpec();
  spec.layers.resize(1);
  Mla& mla = std::get<Mla>(spec.layers[0].attention.kind);
  mla.kv_lora_rank = 140;
  mla.qk_nope_head_dim = 40;
  mla.v_head_dim = 30;
  const ToyModel toy = MakeToyModel(spec, TensorType::kF32, 9);
  const Stored stored(TensorType::kF8E4M3, 4 * 70, 140, 10);
  std::vector<TensorName> names = {{kKeyUp, "{layer}.kv_b", kStackedRows}, {kValueUp, "{layer}.kv_b", kStackedRows}};
  names.insert(names.end(), ToyTensorNames().names.begin(), ToyTensorNames().names.end());
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : toy.tensors) {
    if (tensor.name != *FindTensorName(ToyTensorNames(), kKeyUp, 0) &&
        tensor.name != *FindTensorName(ToyTensorNames(), kValueUp, 0)) {
      tensors.push_back(tensor);
    }
  }
  tensors.push_back(stored.tensor.view);
  tensors.back().name = "0.kv_b";
  tensors.push_back(stored.companion.view);
  tensors.back().name = "0.kv_b_scale_inv";
  const absl::StatusOr<TensorsByRole> roles = TensorsByRole::Match(spec, {.names = names}, tensors, "file", {});
  ASSERT_TRUE(roles.ok()) << roles.status();
  const std::vector<float> values = stored.Values();
  for (int64_t head = 0; head < 4; ++head) {
    std::vector<float> got = Decode(ReadMatrix(roles->Find(kKeyUp, 0)->Matrix(head))->view);
    const std::vector<float> value = Decode(ReadMatrix(roles->Find(kValueUp, 0)->Matrix(head))->view);
    got.insert(got.end(), value.begin(), value.end());
    EXPECT_EQ(got, std::vector<float>(values.begin() + head * 70 * 140, values.begin() + (head + 1) * 70 * 140));
  }
}

TEST(TensorsByRoleTest, NamesWhatIsWrong) {
  const ToyModel model = MakeToyModel(MoeSpec(), TensorType::kF32, 3);
  const FormedModel formed(model, {{kExpertGate, "{layer}.{expert}.gate"},
                                   {kExpertUp, "{layer}.gate_up", kStackedRows},
                                   {kQ, "{layer}.qkv", kStackedRows},
                                   {kK, "{layer}.qkv", kStackedRows},
                                   {kV, "{layer}.qkv", kStackedRows}});
  const auto error = [&](const std::function<void(std::vector<TensorView>*)>& damage) {
    std::vector<TensorView> tensors = formed.tensors;
    damage(&tensors);
    return LoadError(model.spec, formed.naming(), tensors);
  };
  const auto find = [](std::vector<TensorView>* tensors, absl::string_view name) {
    return std::find_if(tensors->begin(), tensors->end(), [&](const TensorView& t) { return t.name == name; });
  };
  EXPECT_THAT(error([&](auto* t) { t->erase(find(t, "1.2.gate")); }),
              ::testing::AllOf(HasSubstr("file: tensor '1.2.gate' is missing"), HasSubstr("[48, 64]")));
  EXPECT_THAT(error([&](auto* t) {
                find(t, "1.2.gate")->shape = {64, 48};
              }),
              ::testing::AllOf(HasSubstr("'1.2.gate' has shape [64, 48], expected [48, 64]")));
  EXPECT_THAT(error([&](auto* t) {
                find(t, "1.gate_up")->shape = {2, 96, 64};
              }),
              HasSubstr("'1.gate_up' has shape [2, 96, 64], expected [4, 48, 64] or [192, 64]"));
  EXPECT_THAT(error([&](auto* t) {
                find(t, "0.qkv")->shape = {64, 128};
              }),
              HasSubstr("'0.qkv' has shape [64, 128], expected [128, 64]"));
  EXPECT_THAT(error([&](auto* t) { t->push_back(t->front()); }), HasSubstr("is there twice"));
  EXPECT_THAT(error([&](auto* t) {
                t->push_back(t->front());
                t->back().name = "1.4.gate";
              }),
              HasSubstr("'1.4.gate' of shape [48, 64]") /* one expert too many */);
  EXPECT_THAT(error([&](auto* t) { find(t, "0.qkv")->name = "0.q_k_v"; }),
              ::testing::AllOf(HasSubstr("'0.qkv' is missing"), HasSubstr("[64, 64]")));
}

TEST(TensorsByRoleTest, LeavesOutWhatTheNamingSays) {
  const ToyModel model = MakeToyModel(ToySpec(), TensorType::kF32, 3);
  std::vector<TensorView> tensors = model.tensors;
  tensors.push_back(tensors.front());
  tensors.back().name = "toy.3.extra";
  constexpr absl::string_view kIgnored[] = {"toy.{beyond}.*"};
  TensorNaming naming = ToyTensorNames();
  naming.ignored = kIgnored;
  EXPECT_TRUE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
  tensors.back().name = "toy.2.extra";
  EXPECT_FALSE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
}

TEST(TensorsByRoleTest, ThePrefixWithTheEmbeddingHoldsForAll) {
  const ToyModel model = MakeToyModel(ToySpec(), TensorType::kF32, 3);
  std::vector<std::string> patterns;
  for (const TensorName& name : ToyTensorNames().names) patterns.push_back(absl::StrCat("{model}", name.pattern));
  std::vector<TensorName> names;
  for (size_t i = 0; i < patterns.size(); ++i) names.push_back({ToyTensorNames().names[i].role, patterns[i]});
  constexpr absl::string_view kPrefixes[] = {"a.", "language_model.b.", ""};
  for (absl::string_view prefix : kPrefixes) {
    std::vector<TensorView> tensors = model.tensors;
    for (TensorView& tensor : tensors) tensor.name = absl::StrCat(prefix, tensor.name);
    const TensorNaming naming{.names = names, .prefixes = kPrefixes};
    EXPECT_TRUE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
    tensors[2].name = absl::StrCat("c.", tensors[2].name);
    EXPECT_FALSE(TensorsByRole::Match(model.spec, naming, tensors, "file", {}).ok());
  }
}

TEST(TensorsByRoleTest, TheFileDecidesWhetherTheHeadIsTheEmbedding) {
  const ToyModel model = MakeToyModel(ToySpec(), TensorType::kF32, 3);
  const auto is_head = [](const TensorView& t) { return t.name == *FindTensorName(ToyTensorNames(), kOutputHead, -1); };
  ModelSpec tied = model.spec;
  tied.tied_embeddings = true;
  const auto has_head = [](const ModelSpec& spec, const std::vector<TensorView>& tensors) {
    const std::unique_ptr<Ops> ops = NewReferenceOps();
    const absl::StatusOr<ModelWeights> weights = LoadWeights(spec, ToyTensorNames(), tensors, "file", ops.get());
    EXPECT_TRUE(weights.ok()) << weights.status();
    return weights.ok() && weights->head != nullptr;
  };
  std::vector<TensorView> tensors = model.tensors;
  EXPECT_TRUE(has_head(model.spec, tensors));
  EXPECT_TRUE(has_head(tied, tensors));
  std::find_if(tensors.begin(), tensors.end(), is_head)->data = tensors[0].data;
  ASSERT_EQ(tensors[0].name, *FindTensorName(ToyTensorNames(), kTokenEmbedding, -1));
  EXPECT_FALSE(has_head(tied, tensors));
  EXPECT_TRUE(has_head(model.spec, tensors));
  std::erase_if(tensors, is_head);
  EXPECT_FALSE(has_head(tied, tensors));
  EXPECT_FALSE(has_head(model.spec, tensors));
}

}  // namespace
}  // namespace sluice::testing
