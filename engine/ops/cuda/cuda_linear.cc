#include "engine/ops/cuda/cuda_linear.h"

#include <algorithm>
#include <cstddef>

#include "engine/base/check.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cuda/kernels/finish_product.h"
#include "engine/ops/cuda/kernels/unpack.h"

namespace sluice {
namespace {

cuda::GemmArgs MakeGemm(const cuda::WeightMatrix& matrix, const GemmInput& x, int32_t num_rows) {
  cuda::GemmArgs gemm;
  gemm.m = num_rows;
  gemm.x = x.data;
  gemm.x_element = matrix.format == TensorType::kF32 ? cuda::Element::kF32 : cuda::Element::kBF16;
  gemm.x_stride = x.stride;
  gemm.w = matrix;
  return gemm;
}

// The product of rows [first, first + count).
cuda::GemmArgs RowsOf(const cuda::GemmArgs& gemm, int32_t first, int32_t count) {
  const cuda::Element out = gemm.epilogue == cuda::Epilogue::kAccumulate ? cuda::Element::kF32 : gemm.out_element;
  cuda::GemmArgs rows = gemm;
  rows.m = count;
  rows.x = static_cast<const std::byte*>(gemm.x) + first * gemm.x_stride * cuda::ElementBytes(gemm.x_element);
  rows.out = static_cast<std::byte*>(gemm.out) + first * gemm.out_stride * cuda::ElementBytes(out);
  return rows;
}

// What a library writes may be the result itself, but for a bias.
bool IsDirect(const cuda::GemmArgs& gemm) {
  return gemm.epilogue == cuda::Epilogue::kAccumulate ||
         (gemm.epilogue == cuda::Epilogue::kStore && gemm.out_element == cuda::Element::kF32 && !gemm.activate);
}

// Memory that the library's products of a matrix take.
struct LibraryScratch {
  void* plain = nullptr;  // the weights
  float* wide = nullptr;  // [GemmLibrary::kMaxRows, n], where the product is not direct
};

absl::Status MultiplyByLibrary(CudaContext& context, const cuda::GemmArgs& gemm, const LibraryScratch& scratch) {
  const bool direct = IsDirect(gemm);
  LibraryProduct product;
  product.m = gemm.m, product.n = gemm.w.n, product.k = gemm.w.k;
  product.x = gemm.x, product.x_stride = gemm.x_stride;
  product.w = scratch.plain;
  product.out = direct ? static_cast<float*>(gemm.out) : scratch.wide;
  product.out_stride = direct ? gemm.out_stride : gemm.w.n;
  product.accumulate = gemm.epilogue == cuda::Epilogue::kAccumulate;
  SLUICE_RETURN_IF_ERROR(context.route.library()->Multiply(product, context.stream()));
  if (!direct || gemm.bias != nullptr) {
    cuda::LaunchFinishProduct(gemm, product.out, product.out_stride, context.stream());
  }
  return absl::OkStatus();
}

// Where there is a library: what it takes, whatever the rows.
bool MayTakeLibrary(const CudaContext& context, const cuda::GemmArgs& gemm) {
  return context.route.library() != nullptr && gemm.w.format != TensorType::kF32 && gemm.w.n % 8 == 0 &&
         gemm.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(gemm.out) % 16 == 0;
}

// The step's rows, each by its route.
void MultiplyTokens(CudaContext& context, const cuda::GemmArgs& gemm) {
  if (!MayTakeLibrary(context, gemm)) return cuda::LaunchGemm(gemm, context.stream());
  // Asked for in every step, so that Reserve has had all of it.
  const int64_t rows = std::min(context.max_tokens, GemmLibrary::kMaxRows);
  LibraryScratch scratch;
  scratch.plain = context.Get(Scratch::kPlainWeights, int64_t{gemm.w.n} * gemm.w.k * 2);
  if (!IsDirect(gemm)) scratch.wide = context.Get<float>(Scratch::kWideProduct, rows * gemm.w.n);
  context.Fail(context.route.library()->Prepare(gemm.w.n, gemm.w.k));
  if (!context.status().ok()) return;
  if (!context.route.uses_library()) return cuda::LaunchGemm(gemm, context.stream());

  cuda::LaunchUnpack(gemm.w, scratch.plain, context.stream());
  for (const RowRun& run : context.route.runs()) {
    if (!run.by_library) {
      cuda::LaunchGemm(RowsOf(gemm, run.first, run.count), context.stream());
      continue;
    }
    for (int32_t done = 0; done < run.count; done += GemmLibrary::kMaxRows) {
      const int32_t count = std::min(run.count - done, GemmLibrary::kMaxRows);
      context.Fail(MultiplyByLibrary(context, RowsOf(gemm, run.first + done, count), scratch));
    }
  }
}

// A product for each piece of `weights`, with its columns of `out`.
template <class Launch>
void ForPieces(const CudaLinear& weights, const GemmInput& x, const VectorWeights* bias, int32_t num_rows,
               cuda::Epilogue epilogue, float* out, const Launch& launch) {
  for (const CudaLinear::Piece& piece : weights.pieces()) {
    cuda::GemmArgs gemm = MakeGemm(piece.matrix, x, num_rows);
    gemm.bias = bias != nullptr ? DataOf(bias) + piece.first_row : nullptr;
    gemm.epilogue = epilogue;
    gemm.out = out + piece.first_row;
    gemm.out_element = cuda::Element::kF32;
    gemm.out_stride = weights.out_features();
    launch(gemm);
  }
}

void Multiply(CudaContext& context, const CudaLinear& weights, const GemmInput& x, const VectorWeights* bias,
              cuda::Epilogue epilogue, float* out) {
  ForPieces(weights, x, bias, context.num_tokens(), epilogue, out,
            [&](const cuda::GemmArgs& gemm) { MultiplyTokens(context, gemm); });
}

}  // namespace

void MultiplyToF32(CudaContext& context, const LinearWeights* weights, const GemmInput& x, const VectorWeights* bias,
                   float* out) {
  if (!context.status().ok()) return;
  Multiply(context, LinearOf(weights), x, bias, cuda::Epilogue::kStore, out);
}

void MultiplyPicked(CudaContext& context, const LinearWeights* weights, const GemmInput& x, int32_t num_rows,
                    float* out) {
  if (!context.status().ok()) return;
  ForPieces(LinearOf(weights), x, nullptr, num_rows, cuda::Epilogue::kStore, out,
            [&](const cuda::GemmArgs& gemm) { cuda::LaunchGemm(gemm, context.stream()); });
}

void MultiplyIntoResidual(CudaContext& context, const LinearWeights* weights, const GemmInput& in,
                          const VectorWeights* bias, const std::optional<NormArgs>& post_norm, float* x) {
  const CudaLinear& linear = LinearOf(weights);
  if (!post_norm.has_value()) {
    if (!context.status().ok()) return;
    Multiply(context, linear, in, bias, cuda::Epilogue::kAccumulate, x);
    return;
  }
  float* wide = context.RowsF32(Scratch::kWide, linear.out_features());
  if (wide == nullptr) return;
  Multiply(context, linear, in, bias, cuda::Epilogue::kStore, wide);
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
  MultiplyTokens(context, gemm);
  return {hidden, width};
}

}  // namespace sluice
