#include "engine/ops/cuda/cuda_linear.h"

#include "engine/base/check.h"

namespace sluice {
namespace {

cuda::GemmArgs MakeGemm(const cuda::WeightMatrix& matrix, const GemmInput& x, int32_t num_rows) {
  cuda::GemmArgs gemm;
  gemm.m = num_rows;
  gemm.x = x.data;
  gemm.x_element = matrix.format == cuda::WeightFormat::kF32 ? cuda::Element::kF32 : cuda::Element::kBF16;
  gemm.x_stride = x.stride;
  gemm.w = matrix;
  return gemm;
}

// Each piece of `weights` into its columns of `out`.
void Multiply(CudaContext& context, const CudaLinear& weights, const GemmInput& x, const VectorWeights* bias,
              int32_t num_rows, cuda::Epilogue epilogue, float* out) {
  for (const CudaLinear::Piece& piece : weights.pieces()) {
    cuda::GemmArgs gemm = MakeGemm(piece.matrix, x, num_rows);
    gemm.bias = bias != nullptr ? DataOf(bias) + piece.first_row : nullptr;
    gemm.epilogue = epilogue;
    gemm.out = out + piece.first_row;
    gemm.out_element = cuda::Element::kF32;
    gemm.out_stride = weights.out_features();
    cuda::LaunchGemm(gemm, context.stream());
  }
}

}  // namespace

void MultiplyToF32(CudaContext& context, const LinearWeights* weights, const GemmInput& x, const VectorWeights* bias,
                   int32_t num_rows, float* out) {
  if (!context.status().ok()) return;
  Multiply(context, LinearOf(weights), x, bias, num_rows, cuda::Epilogue::kStore, out);
}

void MultiplyIntoResidual(CudaContext& context, const LinearWeights* weights, const GemmInput& in,
                          const VectorWeights* bias, const std::optional<NormArgs>& post_norm, float* x) {
  const CudaLinear& linear = LinearOf(weights);
  if (!post_norm.has_value()) {
    if (!context.status().ok()) return;
    Multiply(context, linear, in, bias, context.num_tokens(), cuda::Epilogue::kAccumulate, x);
    return;
  }
  float* wide = context.RowsF32(Scratch::kWide, linear.out_features());
  if (wide == nullptr) return;
  Multiply(context, linear, in, bias, context.num_tokens(), cuda::Epilogue::kStore, wide);
  cuda::AddNormedArgs add;
  add.num_rows = context.num_tokens();
  add.d = static_cast<int32_t>(linear.out_features());
  add.y = wide;
  add.has_norm = true;
  add.norm = ViewOf(*post_norm);
  add.x = x;
  cuda::LaunchAddNormed(add, context.stream());
}

GemmInput NormedInput(CudaContext& context, const Activations* x, const std::optional<NormArgs>& norm) {
  const int64_t d = x->cols();
  void* normed = context.Rows(Scratch::kNormed, d);
  if (normed == nullptr) return {};
  if (norm.has_value()) {
    cuda::NormArgs args;
    args.num_rows = context.num_tokens();
    args.d = static_cast<int32_t>(d);
    args.x = ResidualOf(x);
    args.norm = ViewOf(*norm);
    args.y = normed;
    args.y_element = context.element();
    cuda::LaunchNorm(args, context.stream());
  } else {
    cuda::LaunchConvert(ResidualOf(x), context.num_tokens() * d, normed, context.element(), context.stream());
  }
  return {normed, d};
}

GemmInput Hidden(CudaContext& context, const LinearWeights* weights, const GemmInput& h, const VectorWeights* bias,
                 const HiddenArgs& args) {
  const CudaLinear& linear = LinearOf(weights);
  SLUICE_CHECK(linear.pieces().size() == 1);
  const int64_t width = args.gated ? linear.out_features() / 2 : linear.out_features();
  void* hidden = context.Rows(Scratch::kHidden, width);
  if (hidden == nullptr) return {};
  cuda::GemmArgs gemm = MakeGemm(linear.matrix(), h, context.num_tokens());
  gemm.bias = DataOf(bias);
  gemm.epilogue = args.gated ? cuda::Epilogue::kGated : cuda::Epilogue::kStore;
  gemm.activate = !args.gated;
  gemm.activation = args.activation;
  gemm.alpha = args.alpha;
  gemm.limit = args.limit;
  gemm.out = hidden;
  gemm.out_element = context.element();
  gemm.out_stride = width;
  cuda::LaunchGemm(gemm, context.stream());
  return {hidden, width};
}

}  // namespace sluice
