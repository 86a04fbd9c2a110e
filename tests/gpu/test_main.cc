// main of the tests on a GPU.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/cuda/test_device.h"
#include "tests/gpu/exit_codes.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  if (const auto device = sluice::cuda_testing::NewTestDevice(); !device.ok()) {
    std::cerr << device.status().message() << std::endl;
    return sluice::cuda_testing::kNoGpu;
  }
  return RUN_ALL_TESTS();
}
