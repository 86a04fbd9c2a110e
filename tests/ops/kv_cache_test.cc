// How keys and values become the numbers that a cache holds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/cpu_info.h"
#include "engine/base/float16.h"
#include "engine/ops/cpu/float_kernels.h"
#include "engine/ops/reference/reference_math.h"

namespace sluice {
namespace {

TEST(KvCacheF16, NumbersBeyondF16BecomeTheLargestAndOthersStay) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  const std::vector<float> x = {0,      -0.0f, 1,      -1.0009765625f, 65504,    -65504, 65519, 65520,
                                -65520, 1e5f,  -1e30f, kMax,           -kMax,    kInf,   -kInf, NAN,
                                1e-8f,  5e-8f, -6e-5f, 0.1f,           65503.9f, 70000,  3};
  for (const Isa isa : SupportedIsas()) {
    std::vector<uint16_t> f16(x.size());
    GetFloatKernels(isa).to_cache_f16(x.data(), int64_t(x.size()), f16.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const float found = F16ToFloat(f16[i]), expected = reference::RoundTo(KvDType::kF16, x[i]);
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(found) && std::isnan(expected)) << IsaName(isa);
        continue;
      }
      EXPECT_EQ(found, expected) << x[i] << " on " << IsaName(isa);
      const float wanted = std::isinf(x[i])            ? x[i]
                           : std::abs(x[i]) > 65504.0f ? std::copysign(65504.0f, x[i])
                                                       : F16ToFloat(FloatToF16(x[i]));
      EXPECT_EQ(found, wanted) << x[i] << " on " << IsaName(isa);
    }
  }
}

}  // namespace
}  // namespace sluice
