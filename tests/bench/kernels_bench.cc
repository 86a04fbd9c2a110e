// Speed of the CPU kernels, packing and the worker pool.
//   kernels_bench [--threads N] [--type Q4_1] [dram] [cached] [pack] [pool]      default: all four
// "dram": weights beyond the last-level cache (GB/s is what decoding is bound by); "cached": 512 rows on weights that
// stay in cache (GOP/s is what prompts are bound by). One multiply-add is two operations. Medians; compare only numbers
// of one run.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/base/cpu_info.h"
#include "engine/base/float16.h"
#include "engine/ops/cpu/packed_codec.h"
#include "engine/ops/cpu/run_panel.h"
#include "tests/ops/stored_tensor.h"

namespace sluice {
namespace {

constexpr int64_t kDramBytes = 96'000'000;
constexpr ActivationType kActivationTypes[] = {ActivationType::kInt8, ActivationType::kInt16, ActivationType::kF32};
constexpr const char* kActivationNames[] = {"int8", "int16", "f32"};

double MedianSeconds(int repetitions, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
  return seconds[repetitions / 2];
}

struct Bench {
  ThreadPool pool;
  HugePageArena arena;
  std::mt19937 rng{1};
  std::set<std::string> types;

  explicit Bench(int threads) : pool(threads) {}

  bool Wanted(TensorType type) const { return types.empty() || types.count(TensorTypeName(type)) > 0; }

  // `n` rows, of which 32 are distinct.
  PackedLinear Weights(TensorType type, int64_t n, int64_t k) {
    const StoredTensor few = RandomTensor(type, 32, k, rng);
    std::vector<TensorView> parts(n / 32, few.view);
    return PackedLinear::Pack(parts, LinearLayout::kStacked, &pool, &arena).value();
  }

  std::vector<uint8_t> Activations(const LinearKernels& kernels, ActivationType type, int rows, int64_t k) {
    std::normal_distribution<float> normal;
    std::vector<float> x(rows * k);
    for (float& value : x) value = normal(rng);
    std::vector<uint8_t> out(rows * ActivationRowBytes(type, k));
    if (type == ActivationType::kF32) {
      std::memcpy(out.data(), x.data(), out.size());
    } else {
      for (int r = 0; r < rows; ++r) {
        kernels.quantize[static_cast<int>(type)](&x[r * k], k, &out[r * ActivationRowBytes(type, k)]);
      }
    }
    return out;
  }

  double Seconds(const LinearKernels& kernels, const PackedLinear& w, ActivationType type, int rows, int repetitions) {
    const std::vector<uint8_t> x = Activations(kernels, type, rows, w.k());
    std::vector<float> out(rows * w.num_panels() * kPanelRows);
    const ActivationRows input = {type, x.data(), ActivationRowBytes(type, w.k())};
    const int64_t width = w.num_panels() * kPanelRows;
    return MedianSeconds(repetitions, [&] {
      pool.ParallelFor(static_cast<uint32_t>(w.num_panels()), [&](uint32_t p, int) {
        RunPanel(kernels, w.panel(p), w.k(), input, rows, [&](int first, int count, const float* tile) {
          for (int r = 0; r < count; ++r) {
            std::memcpy(&out[(first + r) * width + p * kPanelRows], tile + r * kPanelRows, kPanelRows * sizeof(float));
          }
        });
      });
    });
  }

  void ReadProbe() {
    const std::shared_ptr<uint8_t> memory = arena.Allocate(kDramBytes);
    std::memset(memory.get(), 1, kDramBytes);
    std::vector<uint64_t> sums(pool.num_threads() * 8);
    const double seconds = MedianSeconds(7, [&] {
      pool.ParallelFor(kDramBytes / 64'000, [&](uint32_t chunk, int worker) {
        const uint64_t* p = reinterpret_cast<const uint64_t*>(memory.get() + chunk * 64'000);
        uint64_t sum = 0;
        for (int i = 0; i < 8'000; ++i) sum += p[i];
        sums[worker * 8] += sum;
      });
    });
    std::printf("plain read of %.0f MB: %.1f GB/s\n", kDramBytes / 1e6, kDramBytes / seconds / 1e9);
  }

  void Dram() {
    constexpr int64_t kIn = 768;
    const LinearKernels& kernels = GetLinearKernels(BestIsa());
    std::printf("\n%s, %.0f MB of weights, K = %ld, %d threads: GB/s of packed weights, GOP/s\n", IsaName(kernels.isa),
                kDramBytes / 1e6, long{kIn}, pool.num_threads());
    ReadProbe();
    for (TensorType type : WeightTypes()) {
      if (!Wanted(type)) continue;
      const int64_t panel = PanelBytes(*PackedTypeFor(type), kIn);
      const PackedLinear w = Weights(type, kDramBytes / panel * kPanelRows, kIn);
      for (ActivationType activation : kActivationTypes) {
        if (activation != ActivationType::kF32 && !w.quantized()) continue;
        std::printf("%-6s %-5s", TensorTypeName(type), kActivationNames[static_cast<int>(activation)]);
        for (int rows : {1, 2, 4, 8, 16, 32}) {
          const double seconds = Seconds(kernels, w, activation, rows, 7);
          std::printf("  |%3d: %5.1f %6.0f", rows, static_cast<double>(w.bytes()) / seconds / 1e9,
                      2e-9 * static_cast<double>(w.num_rows() * kIn * rows) / seconds);
        }
        std::printf("\n");
      }
    }
  }

  void Cached() {
    for (int64_t k : {768, 1536}) {
      std::printf("\nweights in cache (1,536 rows), K = %ld, 512 rows, %d threads: GOP/s\n", long{k},
                  pool.num_threads());
      for (TensorType type : WeightTypes()) {
        if (!Wanted(type)) continue;
        const PackedLinear w = Weights(type, 1536, k);
        for (ActivationType activation : kActivationTypes) {
          if (activation != ActivationType::kF32 && !w.quantized()) continue;
          std::printf("%-6s %-5s", TensorTypeName(type), kActivationNames[static_cast<int>(activation)]);
          for (Isa isa : SupportedIsas()) {
            const int rows = isa == Isa::kPortable ? 8 : 512;
            const double seconds = Seconds(GetLinearKernels(isa), w, activation, rows, isa == Isa::kPortable ? 1 : 9);
            std::printf("  %s %.0f", IsaName(isa), 2e-9 * 1536 * static_cast<double>(k * rows) / seconds);
          }
          std::printf("\n");
        }
      }
    }
  }

  void PackSpeed() {
    std::printf("\npacking 100 MB, %d threads\n", pool.num_threads());
    for (TensorType type : WeightTypes()) {
      if (!Wanted(type)) continue;
      const int64_t k = 768, n = 100'000'000 / TensorBytes(type, k) / 32 * 32;
      const StoredTensor tensor = RandomTensor(type, n, k, rng);
      const double seconds = MedianSeconds(3, [&] {
        HugePageArena fresh;
        (void)PackedLinear::Pack(std::span(&tensor.view, 1), LinearLayout::kStacked, &pool, &fresh).value();
      });
      std::printf("%-8s %6.1f ms\n", TensorTypeName(type), seconds * 1e3);
    }
  }
};

void PoolCost(int threads) {
  std::printf("\nregions of %d threads\n", threads);
  const auto burn = [](uint32_t, int) {
    for (int i = 0; i < 10'000; ++i) asm volatile("" ::: "memory");
  };
  for (int spin_us : {0, 5, 50, 1000}) {
    ThreadPool pool(threads, std::chrono::microseconds(spin_us));
    const double serial = MedianSeconds(5, [&] {
      for (int i = 0; i < 2000; ++i) burn(0, 0);
    });
    const double empty = MedianSeconds(9, [&] {
      for (int i = 0; i < 20'000; ++i) pool.ParallelFor(2, [](uint32_t, int) {});
    });
    const double full = MedianSeconds(9, [&] {
      for (int i = 0; i < 2000; ++i) pool.ParallelFor(8, burn);
    });
    std::printf("spin %4d us: empty region %.0f ns; 8 chunks of %.2f us in %.2f us (ideal %.2f)\n", spin_us,
                empty / 20'000 * 1e9, serial / 2000 * 1e6, full / 2000 * 1e6, serial / 2000 * 8 / threads * 1e6);
  }
}

int Main(int argc, char** argv) {
  int threads = DefaultThreadCount();
  std::set<std::string> modes, types;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--threads" && i + 1 < argc) {
      threads = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--type" && i + 1 < argc) {
      types.insert(argv[++i]);
    } else if (arg == "dram" || arg == "cached" || arg == "pack" || arg == "pool") {
      modes.insert(arg);
    } else {
      std::fprintf(stderr, "usage: kernels_bench [--threads N] [--type Q4_1]... [dram] [cached] [pack] [pool]\n");
      return 2;
    }
  }
  const auto wanted = [&](const char* mode) { return modes.empty() || modes.count(mode) > 0; };
  Bench bench(threads);
  bench.types = types;
  if (wanted("dram")) bench.Dram();
  if (wanted("cached")) bench.Cached();
  if (wanted("pack")) bench.PackSpeed();
  if (wanted("pool")) PoolCost(threads);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
