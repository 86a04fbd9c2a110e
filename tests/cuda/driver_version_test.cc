#include "engine/ops/cuda/driver_version.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(DriverVersion, SaysWhatIsThereAndWhatIsNeeded) {
  EXPECT_EQ(DriverTooOld(12080, 13000), "the driver is for CUDA 12.8, expected 13.0: needs NVIDIA driver 580 or newer");
  EXPECT_EQ(DriverTooOld(0, 13020), "there is no driver, expected one for CUDA 13.2: needs NVIDIA driver 580 or newer");
  EXPECT_EQ(DriverTooOld(13000, 14010), "the driver is for CUDA 13.0, expected 14.1");
}

}  // namespace
}  // namespace sluice
