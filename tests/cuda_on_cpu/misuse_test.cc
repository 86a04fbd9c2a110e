// What a kernel does wrong is said at once, with the place in its source.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/kernels_of_tests.h"

namespace sluice::cuda_testing {
namespace {

struct Case {
  const char* name;
  Misuse misuse;
  const char* report;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class MisuseTest : public testing::TestWithParam<Case> {};

TEST_P(MisuseTest, IsReported) {
  const auto run = [] {
    auto* memory = static_cast<uint32_t*>(cuda_on_cpu::AllocateDevice(64));
    LaunchMisuse(GetParam().misuse, memory, nullptr);
  };
  EXPECT_DEATH(run(), GetParam().report);
}

#define SLUICE_AT "at [^ ]*misuse_test.cu:[0-9]+"
INSTANTIATE_TEST_SUITE_P(
    All, MisuseTest,
    testing::Values(
        Case{"DifferentBarriers", Misuse::kDifferentBarriers,
             "threads of a block meet at different barriers: [^ ]*misuse_test.cu:[0-9]+ and " SLUICE_AT},
        Case{"BarrierNobodyElseReaches", Misuse::kBarrierNobodyElseReaches,
             "deadlock in block 0,0,0: no thread can go on\n  threads 0-31 wait for a barrier " SLUICE_AT
             "\n  threads 32-63 have exited"},
        Case{"BarrierOfOddNumber", Misuse::kBarrierOfOddNumber, "number of threads is not a multiple of 32 " SLUICE_AT},
        Case{"SharedStructTooLarge", Misuse::kSharedStructTooLarge,
             "the shared memory of the kernel is larger than its launch gave " SLUICE_AT},
        Case{"MaskWithoutCaller", Misuse::kMaskWithoutCaller, "mask leaves out the calling lane " SLUICE_AT},
        Case{
            "MaskWithExitedLane", Misuse::kMaskWithExitedLane,
            "(names a lane that has exited or never was|a lane exits while others of its mask wait for it) " SLUICE_AT},
        Case{
            "ExitWhileOthersWait", Misuse::kExitWhileOthersWait,
            "(names a lane that has exited or never was|a lane exits while others of its mask wait for it) " SLUICE_AT},
        Case{"DifferentWarpOperations", Misuse::kDifferentWarpOperations,
             "lanes of a warp meet in different warp operations: [^ ]*misuse_test.cu:[0-9]+ and " SLUICE_AT},
        Case{"DivergentShuffle", Misuse::kDivergentShuffle,
             "lanes of a warp meet in different warp operations: [^ ]*misuse_test.cu:[0-9]+ and " SLUICE_AT},
        Case{"ShuffleFromOutsideMask", Misuse::kShuffleFromOutsideMask,
             "a shuffle reads a lane outside its mask " SLUICE_AT},
        Case{"ShuffleWidth", Misuse::kShuffleWidth, "width is not a power of two up to 32 " SLUICE_AT},
        Case{"CopyMisaligned", Misuse::kCopyMisaligned, "cp.async is not aligned to its 16 bytes " SLUICE_AT},
        Case{"CopyNotToShared", Misuse::kCopyNotToShared, "not in the block's shared memory " SLUICE_AT},
        Case{"CopyNeverWaitedFor", Misuse::kCopyNeverWaitedFor, "exits without waiting for its cp.async " SLUICE_AT},
        Case{"CopyNeverCommitted", Misuse::kCopyNeverCommitted, "exits without waiting for its cp.async " SLUICE_AT},
        Case{"CopyDestinationWritten", Misuse::kCopyDestinationWritten,
             "destination of a cp.async was written before the wait for it " SLUICE_AT},
        Case{"CopySourceWritten", Misuse::kCopySourceWritten,
             "source of a cp.async changed before the wait for it " SLUICE_AT},
        Case{"MatrixRowMisaligned", Misuse::kMatrixRowMisaligned,
             "row of ldmatrix is not aligned to 16 bytes " SLUICE_AT ".*thread 9\\)"},
        Case{"MatrixRowNotShared", Misuse::kMatrixRowNotShared, "not in the block's shared memory " SLUICE_AT},
        Case{"WmmaMisaligned", Misuse::kWmmaMisaligned, "wmma tile is not aligned to 32 bytes " SLUICE_AT},
        Case{"WmmaStride", Misuse::kWmmaStride, "stride of a wmma tile is not a multiple of 16 bytes " SLUICE_AT},
        Case{"StreamingMisaligned", Misuse::kStreamingMisaligned,
             "load_streaming is not aligned to 16 bytes " SLUICE_AT},
        // Or AddressSanitizer says so, at the access itself.
        Case{"WritePastTheEnd", Misuse::kWritePastTheEnd,
             "device memory was written past the end of an allocation " SLUICE_AT "|AddressSanitizer"},
        Case{"WriteBeforeTheStart", Misuse::kWriteBeforeTheStart,
             "device memory was written before the start of an allocation " SLUICE_AT "|AddressSanitizer"},
        Case{"LaunchFromKernel", Misuse::kLaunchFromKernel, "a kernel launches a kernel " SLUICE_AT}),
    [](const auto& info) { return std::string(info.param.name); });

struct Limit {
  const char* name;
  Size3 grid, block;
  unsigned shared_bytes;
  const char* report;
};

void PrintTo(const Limit& limit, std::ostream* out) { *out << limit.name; }

class LimitTest : public testing::TestWithParam<Limit> {};

TEST_P(LimitTest, IsReported) {
  const Limit& limit = GetParam();
  EXPECT_DEATH(LaunchNothing(limit.grid, limit.block, limit.shared_bytes, nullptr), limit.report);
}

INSTANTIATE_TEST_SUITE_P(
    All, LimitTest,
    testing::Values(
        Limit{"NoThreads", {1, 1, 1}, {32, 0, 1}, 0, "a launch without threads " SLUICE_AT},
        Limit{"Threads", {1, 1, 1}, {33, 32, 1}, 0, "more than 1024 threads a block " SLUICE_AT},
        Limit{"ThreadsInZ", {1, 1, 1}, {1, 1, 65}, 0, "more than 64 threads in z " SLUICE_AT},
        Limit{"NoBlocks", {1, 0, 1}, {32, 1, 1}, 0, "a launch without blocks " SLUICE_AT},
        Limit{"BlocksInX", {0x80000000u, 1, 1}, {32, 1, 1}, 0, "too many blocks " SLUICE_AT},
        Limit{"BlocksInY", {1, 65536, 1}, {32, 1, 1}, 0, "too many blocks " SLUICE_AT},
        Limit{"BlocksInZ", {1, 1, 65536}, {32, 1, 1}, 0, "too many blocks " SLUICE_AT},
        Limit{"Shared", {1, 1, 1}, {32, 1, 1}, (227 << 10) + 1, "more than 227 KB of shared memory " SLUICE_AT}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DeviceMemoryDeathTest, KnowsWhatItGave) {
  auto* memory = static_cast<char*>(cuda_on_cpu::AllocateDevice(64));
  EXPECT_DEATH(cuda_on_cpu::FreeDevice(memory + 1), "FreeDevice of what AllocateDevice did not give");
  cuda_on_cpu::FreeDevice(memory);
}

TEST(OrderDeathTest, IsOneOfThree) {
  const auto run = [] {
    setenv("CUDA_ON_CPU_ORDER", "sideways", 1);
    std::thread([] { LaunchNothing({1, 1, 1}, {1, 1, 1}, 0, nullptr); }).join();  // reads it when it first launches
  };
  EXPECT_DEATH(run(), "CUDA_ON_CPU_ORDER is none of forward, reverse, random");
}

}  // namespace
}  // namespace sluice::cuda_testing
