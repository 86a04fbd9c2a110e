// Weights that many threads pack piece by piece are those that one thread packs at once.
#include "engine/ops/cuda/weight_upload.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "engine/base/dequantize.h"
#include "engine/base/float16.h"
#include "engine/ops/cuda/cuda_weights.h"
#include "engine/ops/cuda/kernels/weight_packing.h"
#include "tests/cuda_on_cpu/emulated_device.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

std::vector<std::byte> Packed(TensorType format, int32_t n, int32_t k, bool gated,
                              const std::vector<std::vector<uint8_t>>& parts) {
  std::vector<std::byte> packed(static_cast<size_t>(cuda::PackedBytes(format, n, k, gated)));
  const std::vector<std::span<const uint8_t>> spans(parts.begin(), parts.end());
  cuda::PackWeights(format, n, k, gated, spans, packed);
  return packed;
}

std::vector<uint8_t> AsBf16(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  DequantizeRow(view.type, view.data.data(), view.num_elements(), values.data());
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(FloatToBf16(value));
  std::vector<uint8_t> bytes(bits.size() * 2);
  std::memcpy(bytes.data(), bits.data(), bytes.size());
  return bytes;
}

// Device memory of the emulation is the host's.
void ExpectBytes(const cuda::WeightMatrix& matrix, const std::vector<std::byte>& want) {
  EXPECT_EQ(std::memcmp(matrix.data, want.data(), want.size()), 0);
}

TEST(WeightLoader, PacksWithAnyNumberOfThreadsWhatOneWouldPack) {
  struct {
    TensorType type;
    TensorType format;
  } const cases[] = {{TensorType::kBF16, TensorType::kBF16}, {TensorType::kF16, TensorType::kF16},
                     {TensorType::kQ8_0, TensorType::kQ8_0}, {TensorType::kQ4_1, TensorType::kQ4_1},
                     {TensorType::kQ6_K, TensorType::kQ6_K}, {TensorType::kF32, TensorType::kBF16},
                     {TensorType::kQ5_1, TensorType::kBF16}};
  std::mt19937 rng(1);
  const auto device = NewEmulatedDevice();
  for (const int32_t num_threads : {1, 4}) {
    for (const auto& c : cases) {
      WeightLoader loader(device.get(), cuda::Element::kBF16, num_threads);
      const StoredTensor a = RandomTensor(c.type, 203, 512, rng), b = RandomTensor(c.type, 203, 512, rng);
      const auto linear = loader.Linear({{a.view, b.view}}, LinearLayout::kStacked).value();
      const auto gate_up = loader.Linear({{a.view, b.view}}, LinearLayout::kGateUp).value();
      const std::vector<std::vector<TensorView>> parts = {{b.view}, {a.view}};
      const auto experts = loader.Experts(parts, LinearLayout::kStacked).value();
      ASSERT_TRUE(loader.Finish().ok());

      const auto bytes = [&](const StoredTensor& t) {
        return c.format == TensorType::kBF16 ? AsBf16(t.view)
                                             : std::vector<uint8_t>(t.view.data.begin(), t.view.data.end());
      };
      ExpectBytes(linear->matrix(), Packed(c.format, 406, 512, false, {bytes(a), bytes(b)}));
      ExpectBytes(gate_up->matrix(), Packed(c.format, 406, 512, true, {bytes(a), bytes(b)}));
      cuda::WeightMatrix second = experts->first();
      second.data = static_cast<const std::byte*>(second.data) + experts->expert_bytes();
      ExpectBytes(experts->first(), Packed(c.format, 203, 512, false, {bytes(b)}));
      ExpectBytes(second, Packed(c.format, 203, 512, false, {bytes(a)}));
      const int64_t stored = static_cast<int64_t>(3 * (a.view.data.size() + b.view.data.size()));
      const int64_t resident = linear->resident_bytes() + gate_up->resident_bytes() + experts->resident_bytes();
      EXPECT_LE(3 * (loader.LeastBytes(a.view) + loader.LeastBytes(b.view)), resident);
      if (c.type == TensorType::kQ5_1) {
        EXPECT_GT(loader.widened_bytes(), stored);
      } else {
        EXPECT_EQ(loader.widened_bytes(), 0);
      }
    }
  }
}

TEST(WeightUpload, SendsManyPiecesWithoutWaitingForThemAll) {
  const auto device = NewEmulatedDevice();
  WeightUpload upload(device.get(), 3);
  // Parts of 5 MiB: three to a piece, seven pieces and a part; and parts that are larger than a piece.
  for (const auto& [num_parts, part_bytes] :
       {std::pair<int64_t, int64_t>{22, 5 << 20}, {3, 20 << 20}, {0, 7}, {1, 1}}) {
    DeviceBuffer to = DeviceBuffer::Create(device.get(), num_parts * part_bytes).value();
    std::atomic<int64_t> num_filled = 0;
    ASSERT_TRUE(upload
                    .Send(to.as<std::byte>(), num_parts, part_bytes,
                          [&, part_bytes = part_bytes](int64_t part, int worker, std::byte* out) {
                            EXPECT_LT(worker, 3);
                            std::memset(out, static_cast<int>(part + 1), static_cast<size_t>(part_bytes));
                            ++num_filled;
                          })
                    .ok());
    EXPECT_EQ(num_filled, num_parts);
    ASSERT_TRUE(upload.Finish().ok());
    for (int64_t part = 0; part < num_parts; ++part) {
      const auto* bytes = to.as<const uint8_t>() + part * part_bytes;
      EXPECT_EQ(bytes[0], part + 1);
      EXPECT_EQ(std::memcmp(bytes, bytes + 1, static_cast<size_t>(part_bytes - 1)), 0);
    }
  }
}

}  // namespace
}  // namespace sluice
