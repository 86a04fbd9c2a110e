#include "engine/ops/cuda/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status_macros.h"

namespace sluice {
namespace {

constexpr uint32_t kAlignment = 16;  // of all rows, bytes

bool IsAligned(const void* data, int64_t stride, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0 && stride * element_bytes % kAlignment == 0;
}

// The library counts by columns: what is [m, k] in rows is k x m to it. So out^T = (w^T)^T * x^T, where w^T is k x n,
// x^T k x m and out^T n x m.
class CublasLt : public GemmLibrary {
 public:
  explicit CublasLt(const CublasLtApi& api) : api_(api) {}
  ~CublasLt() override {
    if (preference_ != nullptr) api_.preference_destroy(preference_);
    for (cublasLtMatrixLayout_t layout : {w_, x_, out_}) {
      if (layout != nullptr) api_.layout_destroy(layout);
    }
    if (product_ != nullptr) api_.desc_destroy(product_);
    if (handle_ != nullptr) api_.destroy(handle_);
  }

  absl::Status Start() {
    const cublasStatus_t status = api_.create(&handle_);
    if (status != CUBLAS_STATUS_SUCCESS) {
      return absl::FailedPreconditionError(
          absl::StrCat(kCublasLtFile, " does not start: cublasLtCreate returned ", static_cast<int>(status),
                       status == CUBLAS_STATUS_NOT_INITIALIZED ? " (not initialized: no GPU, or no driver)" : ""));
    }
    const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint64_t no_workspace = 0;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    bool ok = Ok(api_.desc_create(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
              Ok(api_.desc_set(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed))) &&
              Ok(api_.layout_create(&w_, CUDA_R_16BF, 8, 8, 8)) && Ok(api_.layout_create(&x_, CUDA_R_16BF, 8, 8, 8)) &&
              Ok(api_.layout_create(&out_, CUDA_R_32F, 8, 8, 8)) && Ok(api_.preference_create(&preference_)) &&
              Prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, no_reduction) &&
              Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, no_workspace);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      ok = ok && Prefer(attribute, kAlignment);
    }
    return ok ? absl::OkStatus() : absl::InternalError("cuBLASLt does not take the description of a product");
  }

  std::string Description() const override {
    const size_t version = api_.get_version();  // major * 10000 + minor * 100 + patch
    return absl::StrCat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

  int64_t num_prepared() const override { return static_cast<int64_t>(algorithms_.size()); }

  absl::Status Prepare(int32_t n, int32_t k) override {
    SLUICE_CHECK(n > 0 && k > 0 && n % 8 == 0 && k % 8 == 0);
    if (algorithms_.contains({n, k})) return absl::OkStatus();
    constexpr int kMostCandidates = 32;
    std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> candidates = {};
    int num_candidates = 0;
    if (!SetShape({.m = kMaxRows, .n = n, .k = k, .x_stride = k, .out_stride = n}) ||
        !Ok(api_.find_algorithms(handle_, product_, w_, x_, out_, out_, preference_, kMostCandidates, candidates.data(),
                                 &num_candidates))) {
      num_candidates = 0;
    }
    // The fastest come first.
    for (int i = 0; i < num_candidates; ++i) {
      if (!KeepsBits(candidates[i]) || !TakesAllRows(candidates[i].algo)) continue;
      algorithms_.emplace(std::pair(n, k), candidates[i].algo);
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat(
        "cuBLASLt has no algorithm without split-K and workspace for a bf16 matrix of [", n, ", ", k, "] and 1 to ",
        kMaxRows, " rows (", num_candidates, " candidates); a product by it could depend on the batch"));
  }

  absl::Status Multiply(const LibraryProduct& product, cuda::Stream stream) override {
    const auto found = algorithms_.find({product.n, product.k});
    SLUICE_CHECK(found != algorithms_.end());
    SLUICE_CHECK(product.m > 0 && product.m <= kMaxRows);
    SLUICE_CHECK(IsAligned(product.x, product.x_stride, 2) && IsAligned(product.w, product.k, 2) &&
                 IsAligned(product.out, product.out_stride, 4));
    const float alpha = 1, beta = product.accumulate ? 1 : 0;
    if (!SetShape(product)) return absl::InternalError("cuBLASLt does not take the shape of a product");
    const cublasStatus_t status = api_.matmul(handle_, product_, &alpha, product.w, w_, product.x, x_, &beta,
                                              product.out, out_, product.out, out_, &found->second, nullptr, 0, stream);
    if (Ok(status)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cublasLtMatmul of [", product.m, ", ", product.k, "] and [", product.n,
                                            ", ", product.k, "] returned ", static_cast<int>(status)));
  }

 private:
  static bool Ok(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

  template <class T>
  bool Prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    return Ok(api_.preference_set(preference_, attribute, &value, sizeof(value)));
  }

  bool SetLayout(cublasLtMatrixLayout_t layout, int64_t rows, int64_t cols, int64_t stride) {
    const auto r = static_cast<uint64_t>(rows), c = static_cast<uint64_t>(cols);
    return Ok(api_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &r, sizeof(r))) &&
           Ok(api_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &c, sizeof(c))) &&
           Ok(api_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_LD, &stride, sizeof(stride)));
  }
  bool SetShape(const LibraryProduct& p) {
    return SetLayout(w_, p.k, p.n, p.k) && SetLayout(x_, p.k, p.m, p.x_stride) &&
           SetLayout(out_, p.n, p.m, p.out_stride);
  }

  template <class T>
  T Attribute(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, T otherwise) {
    T value = otherwise;
    size_t written = 0;
    const cublasStatus_t status = api_.algorithm_get(&algorithm, attribute, &value, sizeof(value), &written);
    return Ok(status) && written == sizeof(value) ? value : otherwise;
  }

  bool KeepsBits(const cublasLtMatmulHeuristicResult_t& candidate) {
    const auto scheme =
        Attribute<uint32_t>(candidate.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_MASK);
    const auto splits = Attribute<int32_t>(candidate.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, -1);  // 0 is 1
    return Ok(candidate.state) && candidate.workspaceSize == 0 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE &&
           (splits == 0 || splits == 1);
  }

  // Of the shape that is set.
  bool TakesAllRows(const cublasLtMatmulAlgo_t& algorithm) {
    for (uint64_t m = 1; m <= kMaxRows; ++m) {
      cublasLtMatmulHeuristicResult_t result = {};
      if (!Ok(api_.layout_set(x_, CUBLASLT_MATRIX_LAYOUT_COLS, &m, sizeof(m))) ||
          !Ok(api_.layout_set(out_, CUBLASLT_MATRIX_LAYOUT_COLS, &m, sizeof(m))) ||
          !Ok(api_.algorithm_check(handle_, product_, w_, x_, out_, out_, &algorithm, &result)) ||
          result.workspaceSize != 0) {
        return false;
      }
    }
    return true;
  }

  const CublasLtApi api_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, out_ = nullptr;  // set again for each product
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::map<std::pair<int32_t, int32_t>, cublasLtMatmulAlgo_t> algorithms_;  // by (n, k)
};

}  // namespace

absl::StatusOr<CublasLtApi> LoadCublasLt(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    return absl::NotFoundError(absl::StrCat(
        "no ", file, " (", error != nullptr ? error : "no reason given",
        "): it comes with the CUDA toolkit 13 or the PyPI package nvidia-cublas; LD_LIBRARY_PATH may name its folder"));
  }
  CublasLtApi api;
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
    if (*function == nullptr && missing.empty()) missing = name;
  };
  find("cublasLtGetVersion", &api.get_version);
  find("cublasLtCreate", &api.create);
  find("cublasLtDestroy", &api.destroy);
  find("cublasLtMatmulDescCreate", &api.desc_create);
  find("cublasLtMatmulDescSetAttribute", &api.desc_set);
  find("cublasLtMatmulDescDestroy", &api.desc_destroy);
  find("cublasLtMatrixLayoutCreate", &api.layout_create);
  find("cublasLtMatrixLayoutSetAttribute", &api.layout_set);
  find("cublasLtMatrixLayoutDestroy", &api.layout_destroy);
  find("cublasLtMatmulPreferenceCreate", &api.preference_create);
  find("cublasLtMatmulPreferenceSetAttribute", &api.preference_set);
  find("cublasLtMatmulPreferenceDestroy", &api.preference_destroy);
  find("cublasLtMatmulAlgoGetHeuristic", &api.find_algorithms);
  find("cublasLtMatmulAlgoConfigGetAttribute", &api.algorithm_get);
  find("cublasLtMatmulAlgoCheck", &api.algorithm_check);
  find("cublasLtMatmul", &api.matmul);
  if (missing.empty()) return api;
  dlclose(library);
  return absl::NotFoundError(absl::StrCat(file, " has no function ", missing));
}

absl::StatusOr<std::unique_ptr<GemmLibrary>> NewCublasLt(const CublasLtApi& api) {
  auto library = std::make_unique<CublasLt>(api);
  SLUICE_RETURN_IF_ERROR(library->Start());
  return library;
}

}  // namespace sluice
