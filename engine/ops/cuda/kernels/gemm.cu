#include "engine/ops/cuda/kernels/gemm.h"
#include "engine/ops/cuda/kernels/gemm_product.h"
#include "engine/ops/cuda/kernels/weight_tiles.cuh"

namespace sluice::cuda {
namespace {

// The tiled kernel reads x and the weights the fewest times, but gives 128 rows of the matrix to one processor: with
// few blocks most of the processors would have nothing to do.
bool IsWorthTiles(const Product& product, int32_t tokens, bool is_scaled) {
  constexpr int64_t kManyBlocks = 96;
  if (tokens <= (is_scaled ? 16 : 32)) return false;
  const int64_t row_blocks = (RowTiles(product.gemm.w.n, product.gemm.w.gated) + 7) / 8;
  const int32_t places = tokens <= 64 || is_scaled ? 64 : 128;
  return (int64_t{product.gemm.m} + places - 1) / places * row_blocks * product.num_batches >= kManyBlocks;
}

}  // namespace

void LaunchProduct(const Product& product, GemmKernel kernel, Stream stream) {
  const GemmArgs& gemm = product.gemm;
  if (gemm.m == 0 || gemm.w.n == 0 || product.num_batches == 0) return;
  if (gemm.w.format == TensorType::kF32) return LaunchF32(product, stream);
  const int32_t tokens = product.num_experts == 0 ? gemm.m : gemm.m / product.num_experts + 1;  // of a matrix
  VisitFormat(TileFormats(), gemm.w.format, [&]<class F>(F) {
    if (kernel == GemmKernel::kTiled || (kernel == GemmKernel::kFastest && IsWorthTiles(product, tokens, F::kScaled))) {
      LaunchTiled<F>(product, tokens, stream);
    } else {
      LaunchSkinny<F>(product, tokens, stream);
    }
  });
}

Product ToProduct(const GemmArgs& args) { return {.gemm = args}; }

Product ToProduct(const BatchedGemmArgs& args) {
  return {.gemm = args.each,
          .num_batches = args.num_batches,
          .x_batch_stride = args.x_batch_stride,
          .out_batch_stride = args.out_batch_stride,
          .w_bytes = args.w_batch_bytes};
}

Product ToProduct(const GroupedGemmArgs& args) {
  return {.gemm = args.each,
          .w_bytes = args.w_expert_bytes,
          .num_experts = args.num_experts,
          .expert_starts = args.expert_starts,
          .input_rows = args.input_rows,
          .input_scale = args.input_scale};
}

void LaunchGemm(const GemmArgs& args, Stream stream) { LaunchProduct(ToProduct(args), GemmKernel::kFastest, stream); }

void LaunchBatchedGemm(const BatchedGemmArgs& args, Stream stream) {
  LaunchProduct(ToProduct(args), GemmKernel::kFastest, stream);
}

void LaunchGroupedGemm(const GroupedGemmArgs& args, Stream stream) {
  LaunchProduct(ToProduct(args), GemmKernel::kFastest, stream);
}

}  // namespace sluice::cuda
