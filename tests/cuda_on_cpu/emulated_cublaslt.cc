#include "tests/cuda_on_cpu/emulated_cublaslt.h"

#include <algorithm>
#include <cstring>

#include "engine/base/float16.h"
#include "tests/cuda_on_cpu/launch.h"

namespace sluice {
namespace {

thread_local CublasLtCounts counts;

// What the opaque pointers point to.
struct Handle {};
struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};
struct Product {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t trans_a = CUBLAS_OP_N;
};
struct Preference {
  uint64_t max_workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments = 0;  // how many have been set
};

template <class T, class Opaque>
T* As(Opaque* opaque) {
  return reinterpret_cast<T*>(opaque);
}
template <class T, class Opaque>
cublasStatus_t Make(Opaque** opaque, const T& value) {
  ++counts.objects;
  *opaque = reinterpret_cast<Opaque*>(new T(value));
  return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Opaque>
cublasStatus_t Destroy(Opaque* opaque) {
  --counts.objects;
  delete As<T>(opaque);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t Set(T* to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// The algorithms, in the order in which the search offers them.
enum AlgorithmId : uint64_t { kSplitsK, kReducesInPlace, kNeedsWorkspace, kNotForFewColumns, kPlain, kNumAlgorithms };

int32_t SplitsOf(uint64_t id) { return id == kSplitsK ? 4 : 1; }
uint32_t ReductionOf(uint64_t id) {
  return id == kReducesInPlace ? CUBLASLT_REDUCTION_SCHEME_INPLACE : CUBLASLT_REDUCTION_SCHEME_NONE;
}
cublasStatus_t Check(uint64_t id, uint64_t cols, size_t* workspace) {
  *workspace = id == kNeedsWorkspace ? 1 << 20 : 0;
  return id < kNumAlgorithms && !(id == kNotForFewColumns && cols < 5) ? CUBLAS_STATUS_SUCCESS
                                                                       : CUBLAS_STATUS_NOT_SUPPORTED;
}

// As a caller counts: [n, k].
bool IsRefused(const Layout& a) { return a.cols == 64 && a.rows == 40; }

struct Operation {
  uint64_t algorithm;
  int64_t m, n, k;  // d is m x n; columns of a and b have k values
  const uint16_t* a;
  const uint16_t* b;
  float* d;
  int64_t lda, ldb, ldd;
  float alpha, beta;
};

// In another order than our kernels, so that a row that takes the wrong route shows it.
float Sum(const Operation& op, int64_t row, int64_t column, int64_t first, int64_t end) {
  float sum = 0;
  for (int64_t i = first; i < end; ++i) {
    sum += Bf16ToFloat(op.a[row * op.lda + i]) * Bf16ToFloat(op.b[column * op.ldb + i]);
  }
  return sum;
}

// d = alpha * a^T * b + beta * d, all by columns.
void ProductKernel(const Operation op) {
  const int64_t parts = op.algorithm == kPlain ? 1 : op.n % 7 + 2;
  for (int64_t column = 0; column < op.n; ++column) {
    for (int64_t row = 0; row < op.m; ++row) {
      float sum = 0;
      for (int64_t p = 0; p < parts; ++p) sum += Sum(op, row, column, p * op.k / parts, (p + 1) * op.k / parts);
      float& d = op.d[column * op.ldd + row];
      d = op.beta == 0 ? op.alpha * sum : op.alpha * sum + op.beta * d;
    }
  }
}

// The one kind of product that is emulated: a transposed and bf16, b bf16, c and d f32 and the same.
bool IsEmulated(const Product& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const auto holds = [](const Layout& x, cudaDataType type) {
    return x.type == type && x.ld >= static_cast<int64_t>(x.rows);
  };
  return p.compute == CUBLAS_COMPUTE_32F && p.scale == CUDA_R_32F && p.trans_a == CUBLAS_OP_T &&
         holds(a, CUDA_R_16BF) && holds(b, CUDA_R_16BF) && holds(d, CUDA_R_32F) && a.rows == b.rows &&
         a.cols == d.rows && b.cols == d.cols && std::memcmp(&c, &d, sizeof(c)) == 0;
}

cublasStatus_t SetLayout(cublasLtMatrixLayout_t opaque, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                         size_t bytes) {
  Layout* layout = As<Layout>(opaque);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return Set(&layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return Set(&layout->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return Set(&layout->ld, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t SetPreference(cublasLtMatmulPreference_t opaque, cublasLtMatmulPreferenceAttributes_t attribute,
                             const void* value, size_t bytes) {
  Preference* preference = As<Preference>(opaque);
  uint32_t alignment = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(&preference->max_workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(&preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      if (Set(&alignment, value, bytes) != CUBLAS_STATUS_SUCCESS || alignment != 16) return CUBLAS_STATUS_INVALID_VALUE;
      ++preference->alignments;
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

// Offers what the preference excludes, too: the caller is to look at what it gets.
cublasStatus_t Search(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                      cublasLtMatmulPreference_t opaque, int asked, cublasLtMatmulHeuristicResult_t* results,
                      int* found) {
  ++counts.searches;
  const Preference& preference = *As<Preference>(opaque);
  if (!IsEmulated(*As<Product>(product), *As<Layout>(a), *As<Layout>(b), *As<Layout>(c), *As<Layout>(d)) ||
      preference.max_workspace != 0 || preference.reductions != CUBLASLT_REDUCTION_SCHEME_NONE ||
      preference.alignments != 4) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *found = std::min<int>(asked, IsRefused(*As<Layout>(a)) ? kPlain : kNumAlgorithms);
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
    results[i].state = Check(results[i].algo.data[0], As<Layout>(d)->cols, &results[i].workspaceSize);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t GetAlgorithm(const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
                            void* value, size_t bytes, size_t* written) {
  const uint64_t id = algorithm->data[0];
  const int32_t splits = SplitsOf(id);
  const uint32_t reduction = ReductionOf(id);
  const bool of_splits = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM;
  if (bytes != 4 || !(of_splits || attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(value, of_splits ? static_cast<const void*>(&splits) : &reduction, 4);
  *written = 4;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Multiply(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                        cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                        const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                        cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                        size_t workspace_bytes, cudaStream_t stream) {
  ++counts.products;
  const Layout &la = *As<Layout>(a_layout), &lb = *As<Layout>(b_layout), &ld = *As<Layout>(d_layout);
  size_t needed = 0;
  if (c != d || workspace != nullptr || workspace_bytes != 0 || algorithm == nullptr ||
      !IsEmulated(*As<Product>(product), la, lb, *As<Layout>(c_layout), ld) ||
      Check(algorithm->data[0], ld.cols, &needed) != CUBLAS_STATUS_SUCCESS || needed > workspace_bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Operation op = {};
  op.algorithm = algorithm->data[0];
  op.m = static_cast<int64_t>(ld.rows), op.n = static_cast<int64_t>(ld.cols), op.k = static_cast<int64_t>(la.rows);
  op.a = static_cast<const uint16_t*>(a), op.b = static_cast<const uint16_t*>(b), op.d = static_cast<float*>(d);
  op.lda = la.ld, op.ldb = lb.ld, op.ldd = ld.ld;
  op.alpha = *static_cast<const float*>(alpha), op.beta = *static_cast<const float*>(beta);
  cuda_on_cpu::Launch(cuda_on_cpu::SourceLine::current(), ProductKernel, dim3(1), dim3(1), 0, stream, op);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

CublasLtApi EmulatedCublasLt() {
  CublasLtApi api;
  api.get_version = []() -> size_t { return 130002; };
  api.create = [](cublasLtHandle_t* handle) { return Make(handle, Handle()); };
  api.destroy = [](cublasLtHandle_t handle) { return Destroy<Handle>(handle); };
  api.desc_create = [](cublasLtMatmulDesc_t* product, cublasComputeType_t compute, cudaDataType_t scale) {
    return Make(product, Product{compute, scale});
  };
  api.desc_set = [](cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void* value,
                    size_t bytes) {
    if (attribute != CUBLASLT_MATMUL_DESC_TRANSA) return CUBLAS_STATUS_NOT_SUPPORTED;
    return Set(&As<Product>(product)->trans_a, value, bytes);
  };
  api.desc_destroy = [](cublasLtMatmulDesc_t product) { return Destroy<Product>(product); };
  api.layout_create = [](cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld) {
    return Make(layout, Layout{type, rows, cols, ld});
  };
  api.layout_set = SetLayout;
  api.layout_destroy = [](cublasLtMatrixLayout_t layout) { return Destroy<Layout>(layout); };
  api.preference_create = [](cublasLtMatmulPreference_t* preference) { return Make(preference, Preference()); };
  api.preference_set = SetPreference;
  api.preference_destroy = [](cublasLtMatmulPreference_t preference) { return Destroy<Preference>(preference); };
  api.find_algorithms = Search;
  api.algorithm_get = GetAlgorithm;
  api.algorithm_check = [](cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                           const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
    if (!IsEmulated(*As<Product>(product), *As<Layout>(a), *As<Layout>(b), *As<Layout>(c), *As<Layout>(d))) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    result->algo = *algorithm;
    return result->state = Check(algorithm->data[0], As<Layout>(d)->cols, &result->workspaceSize);
  };
  api.matmul = Multiply;
  return api;
}

CublasLtCounts CublasLtCountsSoFar() { return counts; }

}  // namespace sluice
