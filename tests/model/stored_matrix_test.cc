// Matrices in the types and forms that files have: in place, moved, repacked, with factors.
#include "engine/model/stored_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/dequantize.h"
#include "engine/model/tensors_by_role.h"
#include "engine/model/weights.h"
#include "engine/ops/reference/reference_ops.h"
#include "tests/model/find_tensor_name.h"
#include "tests/model/formed_model.h"
#include "tests/model/toy_model.h"
#include "tests/ops/stored_tensor.h"

namespace sluice::testing {
namespace {

using enum TensorRole;
using ::testing::HasSubstr;

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

  // Straight from the definition in tensor_form.h.
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

}  // namespace
}  // namespace sluice::testing
