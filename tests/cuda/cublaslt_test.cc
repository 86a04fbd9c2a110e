// What stands between the engine and cuBLASLt, without a GPU: which algorithm it takes of those that it is offered, and
// what it says where the library or the GPU is missing.
#include "engine/ops/cuda/cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cuda_on_cpu/emulated_cublaslt.h"
#include "tests/sanitized.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(CublasLt, SearchesOnceForAShapeAndLeavesNothingBehind) {
  const CublasLtCounts before = CublasLtCountsSoFar();
  {
    const std::unique_ptr<GemmLibrary> library = NewCublasLt(EmulatedCublasLt()).value();
    EXPECT_EQ(library->Description(), "cuBLASLt 13.0.2");
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(library->Prepare(64, 64).ok());
      ASSERT_TRUE(library->Prepare(64, 128).ok());
    }
    EXPECT_EQ(CublasLtCountsSoFar().searches, before.searches + 2);
    EXPECT_GT(CublasLtCountsSoFar().objects, before.objects);
  }
  EXPECT_EQ(CublasLtCountsSoFar().objects, before.objects);
}

// Of the algorithms that the emulation offers only the last keeps a row's bits.
TEST(CublasLt, RefusesAlgorithmsWhoseBitsDependOnTheBatch) {
  CublasLtApi api = EmulatedCublasLt();
  api.find_algorithms = [](cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                           cublasLtMatmulPreference_t preference, int, cublasLtMatmulHeuristicResult_t* results,
                           int* found) {
    return EmulatedCublasLt().find_algorithms(handle, product, a, b, c, d, preference, 4, results, found);
  };
  const absl::Status status = NewCublasLt(api).value()->Prepare(64, 128);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("[64, 128]"), HasSubstr("4 candidates")));
}

TEST(CublasLt, PassesOnWhatTheLibraryRefuses) {
  CublasLtApi api = EmulatedCublasLt();
  api.matmul = [](auto...) { return CUBLAS_STATUS_EXECUTION_FAILED; };
  const std::unique_ptr<GemmLibrary> library = NewCublasLt(api).value();
  ASSERT_TRUE(library->Prepare(8, 16).ok());
  alignas(16) uint16_t x[16] = {}, w[128] = {};
  alignas(16) float out[8] = {};
  const absl::Status status = library->Multiply(
      {.m = 1, .n = 8, .k = 16, .x = x, .x_stride = 16, .w = w, .out = out, .out_stride = 8}, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("cublasLtMatmul of [1, 16] and [8, 16] returned 13"));
}

TEST(CublasLt, SaysWhatIsMissing) {
  const absl::Status missing = LoadCublasLt("libcublasLt.so.0").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), testing::AllOf(HasSubstr("no libcublasLt.so.0 ("), HasSubstr("nvidia-cublas"),
                                                HasSubstr("LD_LIBRARY_PATH")));
  const absl::Status other = LoadCublasLt("libc.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(other.message(), "libc.so.6 has no function cublasLtGetVersion");

  CublasLtApi api = EmulatedCublasLt();
  api.create = [](cublasLtHandle_t*) { return CUBLAS_STATUS_NOT_INITIALIZED; };
  const absl::Status stopped = NewCublasLt(api).status();
  EXPECT_EQ(stopped.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(stopped.message(), HasSubstr("cublasLtCreate returned 1 (not initialized: no GPU, or no driver)"));
}

// The library itself, if it came with the header.
TEST(CublasLt, LoadsAndDoesNotStartWithoutADriver) {
  const std::string file = std::string(SLUICE_CUBLASLT_INCLUDE) + "/../lib/" + kCublasLtFile;
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "there is no " << file;
  if (kSanitized) GTEST_SKIP() << "cublasLtCreate leaks 184 bytes where it fails";
  const absl::StatusOr<CublasLtApi> api = LoadCublasLt(file.c_str());
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_GE(api->get_version(), 130000u);
  const auto library = NewCublasLt(*api);
  if (std::filesystem::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "there is an NVIDIA driver";
  EXPECT_EQ(library.status().code(), absl::StatusCode::kFailedPrecondition) << library.status();
}

}  // namespace
}  // namespace sluice
