#include "engine/runtime/open_device.h"

#include "engine/runtime/backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(OpenDevice, AutoMeansTheFirstThatTheCpuCanDo) {
  DeviceOptions options;
  options.name = "cpu";
  ASSERT_TRUE(CheckDevice(options).ok());
  const absl::StatusOr<ServingDevice> device = OpenDevice(options, "BF16", 1);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_NE(device->ops, nullptr);
  EXPECT_EQ(device->name, "cpu");
  EXPECT_EQ(device->activations, "int16");
  EXPECT_EQ(device->kv_type, "f16");
  EXPECT_EQ(device->kv_dtype, KvDType::kF16);
  EXPECT_EQ(device->numerics, NumericsOptions());
}

TEST(OpenDevice, WhatIsAskedForIsWhatRuns) {
  DeviceOptions options{.name = "cpu", .activations = "f32", .kv_dtype = "bf16", .mla_expand_from = 50};
  const absl::StatusOr<ServingDevice> device = OpenDevice(options, "Q4_1", 1);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->activations, "f32");
  EXPECT_EQ(device->kv_type, "bf16");
  EXPECT_EQ(device->kv_dtype, KvDType::kBF16);
  EXPECT_EQ(device->numerics.mla_expand_from, 50);
}

TEST(OpenDevice, FlagsThatTheDeviceCannotFollowAreNamed) {
  const auto message = [](const DeviceOptions& options) { return std::string(CheckDevice(options).message()); };
  EXPECT_THAT(message({.name = "cpu", .activations = "bf16"}),
              HasSubstr("--activations: found 'bf16', expected auto, int16, int8 or f32 on the cpu device"));
  EXPECT_THAT(message({.name = "cpu", .kv_dtype = "fp8_e4m3"}), HasSubstr("--kv-dtype: found 'fp8_e4m3'"));
  EXPECT_THAT(message({.name = "cpu", .gemm_library_from = 32}), HasSubstr("--gemm-library-from: found '32'"));
  if (CudaBackend() == nullptr) {
    EXPECT_THAT(message({.name = "cuda"}), HasSubstr("this build has no CUDA engine"));
  }
  EXPECT_FALSE(OpenDevice({.name = "cpu", .activations = "bf16"}, "F32", 1).ok());
}

}  // namespace
}  // namespace sluice
