#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/tensor_format.h"
#include "engine/ops/cuda/kernels/gemm_product.h"
#include "engine/ops/cuda/kernels/weight_packing.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/library.h"

namespace sluice::cuda_testing {
namespace {

using cuda::GemmKernel;

struct Shape {
  int32_t n, k;
};

int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Matrices of one shape that take turns, and rows to multiply them with.
class Product {
 public:
  Product(const Bench& bench, TensorType format, const Shape& shape, int32_t max_rows)
      : bench_(bench),
        format_(format),
        shape_(shape),
        bytes_(Aligned(cuda::PackedBytes(format, shape.n, shape.k, false))),
        turns_(OperandsInTurn(bench, bytes_)),
        arena_(bench.device),
        weights_(static_cast<std::byte*>(arena_.Random(turns_ * bytes_))),
        x_(arena_.Random(int64_t{max_rows} * shape.k * 2)),
        out_(arena_.Random(int64_t{max_rows} * shape.n * 4)) {}

  absl::Status Measure(const char* part, GemmKernel kernel, const char* kernel_name, int32_t rows) {
    SLUICE_RETURN_IF_ERROR(arena_.status());
    cuda::GemmArgs args;
    args.m = rows;
    args.x = x_;
    args.x_stride = shape_.k;
    args.w = {.format = format_, .n = shape_.n, .k = shape_.k};
    args.out = out_;
    args.out_stride = shape_.n;
    return Add(part, kernel_name, rows, [&](int64_t i) {
      args.w.data = weights_ + i % turns_ * bytes_;
      cuda::LaunchProduct(cuda::ToProduct(args), kernel, bench_.device->stream());
    });
  }

  // REQUIRES: library.Prepare(shape). Its matrix has rows one after the other, which are as good as any here.
  absl::Status Measure(GemmLibrary& library, int32_t rows) {
    SLUICE_RETURN_IF_ERROR(arena_.status());
    LibraryProduct product{.m = rows, .n = shape_.n, .k = shape_.k, .x = x_, .x_stride = shape_.k};
    product.out = static_cast<float*>(out_);
    product.out_stride = shape_.n;
    absl::Status status;
    SLUICE_RETURN_IF_ERROR(Add("gemm", "library", rows, [&](int64_t i) {
      product.w = weights_ + i % turns_ * bytes_;
      status.Update(library.Multiply(product, bench_.device->stream()));
    }));
    return status;
  }

 private:
  absl::Status Add(const char* part, const char* kernel, int32_t rows, absl::FunctionRef<void(int64_t)> enqueue) {
    const double bytes = static_cast<double>(bytes_) + 2.0 * rows * (shape_.n + shape_.k);
    const double flops = 2.0 * rows * shape_.n * shape_.k, floor = FloorSeconds(bytes, flops);
    SLUICE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(bench_, floor, enqueue));
    bench_.report->Add(
        {part,
         absl::StrCat(kernel, " ", TensorTypeName(format_), " ", shape_.n, " x ", shape_.k, ", ", rows, " rows"),
         seconds,
         floor,
         {{"n", shape_.n},
          {"k", shape_.k},
          {"rows", rows},
          {"TB/s", bytes / seconds / 1e12},
          {"TFLOP/s", flops / seconds / 1e12}}});
    return absl::OkStatus();
  }

  const Bench& bench_;
  const TensorType format_;
  const Shape shape_;
  const int64_t bytes_, turns_;
  Arena arena_;
  const std::byte* const weights_;
  const void* const x_;
  void* const out_;
};

// The library, if there is one that takes the shape.
GemmLibrary* Taking(const Shape& shape, GemmLibrary* library, Report* report) {
  if (library == nullptr) return nullptr;
  const absl::Status prepared = library->Prepare(shape.n, shape.k);
  if (prepared.ok()) return library;
  report->Note("gemm", absl::StrCat("without the library: ", prepared.message()));
  return nullptr;
}

}  // namespace

absl::Status BenchGemm(const Bench& bench) {
  // Llama-3-8B's q|k|v, output, gate|up, down and head; squares; V2-Lite's shared expert and first layer.
  std::vector<Shape> shapes = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}, {1024, 1024},
                               {2048, 2048}, {3072, 3072}, {5632, 2048},  {2048, 2816},  {21888, 2048}};
  std::vector<int32_t> few = {1, 4, 8, 16, 32, 64, 128}, many = {512, 2048, 8192};
  if (bench.tiny) shapes = {{64, 40}, {40, 72}}, few = {1, 20}, many = {70};
  const absl::StatusOr<std::unique_ptr<GemmLibrary>> library = NewTestLibrary();
  bench.report->Note("gemm", library.ok() ? absl::StrCat("library: ", (*library)->Description())
                                          : absl::StrCat("no library: ", library.status().message()));
  for (const Shape& shape : shapes) {
    const bool is_head = shape.n > 100000;  // of which a prompt needs one row
    GemmLibrary* const taking = Taking(shape, library.ok() ? library->get() : nullptr, bench.report);
    Product product(bench, TensorType::kBF16, shape, is_head ? few.back() : many.back());
    for (const int32_t rows : few) {
      if (rows <= 64) SLUICE_RETURN_IF_ERROR(product.Measure("gemm", GemmKernel::kSkinny, "skinny", rows));
      if (rows >= 16) SLUICE_RETURN_IF_ERROR(product.Measure("gemm", GemmKernel::kTiled, "tiled", rows));
      if (taking != nullptr) SLUICE_RETURN_IF_ERROR(product.Measure(*taking, rows));
    }
    if (is_head) continue;
    for (const int32_t rows : many) {
      SLUICE_RETURN_IF_ERROR(product.Measure("gemm", GemmKernel::kTiled, "tiled", rows));
      if (taking != nullptr && rows <= GemmLibrary::kMaxRows) {
        SLUICE_RETURN_IF_ERROR(product.Measure(*taking, rows));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status BenchFormats(const Bench& bench) {
  const Shape shape = bench.tiny ? Shape{40, 256} : Shape{28672, 4096};
  for (const TensorFormat& row : kTensorFormats) {
    if (!HasGpuForm(row.type) || row.type == TensorType::kF32) continue;
    Product product(bench, row.type, shape, 512);
    for (const int32_t rows : {1, 8, 16, 32, 64, 512}) {
      if (bench.tiny && rows > 8) break;
      SLUICE_RETURN_IF_ERROR(product.Measure("formats", GemmKernel::kFastest, "chosen", rows));
    }
  }
  return absl::OkStatus();
}

namespace {

// How many of `rows` rows, each of which visits `choices` different experts, come to each.
std::vector<int32_t> ExpertStarts(int32_t rows, int32_t choices, int32_t experts) {
  std::mt19937 random(1);
  std::vector<int32_t> counts(static_cast<size_t>(experts)), all(static_cast<size_t>(experts));
  for (int32_t e = 0; e < experts; ++e) all[static_cast<size_t>(e)] = e;
  for (int32_t row = 0; row < rows; ++row) {
    std::shuffle(all.begin(), all.end(), random);
    for (int32_t c = 0; c < choices; ++c) ++counts[static_cast<size_t>(all[static_cast<size_t>(c)])];
  }
  std::vector<int32_t> starts = {0};
  for (const int32_t count : counts) starts.push_back(starts.back() + count);
  return starts;
}

}  // namespace

// DeepSeek-V2-Lite's experts: 64 of 1408, 6 a row.
absl::Status BenchExperts(const Bench& bench) {
  const int32_t experts = bench.tiny ? 8 : 64, choices = bench.tiny ? 2 : 6;
  const Shape gate_up = bench.tiny ? Shape{48, 64} : Shape{2816, 2048},
              down = bench.tiny ? Shape{64, 24} : Shape{2048, 1408};
  for (const bool gated : {true, false}) {
    const Shape& shape = gated ? gate_up : down;
    const int64_t bytes = Aligned(cuda::PackedBytes(TensorType::kBF16, shape.n, shape.k, gated));
    for (const int32_t rows : {1, 8, 32, 128, 8192}) {
      if (bench.tiny && rows > 8) break;
      Arena arena(bench.device);
      const std::vector<int32_t> starts = ExpertStarts(rows, choices, experts);
      const int32_t places = starts.back(), columns = gated ? shape.n / 2 : shape.n;
      const int64_t visited =
          std::count_if(starts.begin() + 1, starts.end(), [&](const int32_t& end) { return end != *(&end - 1); });
      const int64_t turns = OperandsInTurn(bench, visited * bytes);
      const auto* weights = static_cast<const std::byte*>(arena.Random(turns * experts * bytes));
      cuda::GroupedGemmArgs args;
      args.each.m = places;
      args.each.x = arena.Random(int64_t{places} * shape.k * 2);
      args.each.x_stride = shape.k;
      args.each.w = {.format = TensorType::kBF16, .n = shape.n, .k = shape.k, .gated = gated};
      args.each.epilogue = gated ? cuda::Epilogue::kGated : cuda::Epilogue::kStore;
      args.each.out = arena.Random(int64_t{places} * columns * 4);
      args.each.out_element = gated ? cuda::Element::kBF16 : cuda::Element::kF32;
      args.each.out_stride = columns;
      args.num_experts = experts;
      args.w_expert_bytes = bytes;
      args.expert_starts = arena.Copy(starts);
      SLUICE_RETURN_IF_ERROR(arena.status());
      const double floor = FloorSeconds(static_cast<double>(visited * bytes) + 2.0 * places * (shape.k + columns),
                                        2.0 * places * shape.n * shape.k);
      for (const auto& [kernel, name] : {std::pair{GemmKernel::kSkinny, "skinny"}, {GemmKernel::kTiled, "tiled"}}) {
        if (kernel == GemmKernel::kSkinny && rows > 128) continue;
        SLUICE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(bench, floor, [&](int64_t i) {
                                  args.each.w.data = weights + i % turns * experts * bytes;
                                  cuda::LaunchProduct(cuda::ToProduct(args), kernel, bench.device->stream());
                                }));
        bench.report->Add(
            {"experts",
             absl::StrCat(name, gated ? " gate|up " : " down ", shape.n, " x ", shape.k, ", ", rows, " rows"),
             seconds,
             floor,
             {{"rows", rows}, {"experts", static_cast<double>(visited)}}});
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::cuda_testing
