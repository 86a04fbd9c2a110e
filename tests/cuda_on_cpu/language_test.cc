// Each piece of the language, run by a kernel and compared with what the CUDA and PTX manuals say of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/kernels_of_tests.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/test_array.h"

namespace sluice::cuda_testing {
namespace {

std::vector<int> Numbers(int num) {
  std::vector<int> numbers(static_cast<size_t>(num));
  for (int i = 0; i < num; ++i) numbers[static_cast<size_t>(i)] = i * 37 % 101 - 20;
  return numbers;
}

// ---------------------------------------------------------------- threads and blocks

TEST(Threads, KnowTheirPlace) {
  const Size3 grid{2, 3, 2}, block{5, 3, 4};
  const unsigned blocks = 12, threads = 60;
  Array<unsigned> places(12 * blocks * threads);
  LaunchPlaces(places.data(), grid, block, nullptr);
  for (unsigned b = 0; b < blocks; ++b) {
    for (unsigned t = 0; t < threads; ++t) {
      const std::array<unsigned, 12> want = {t % 5, t / 5 % 3, t / 15, b % 2,  b / 2 % 3, b / 6,
                                             5,     3,         4,      grid.x, grid.y,    grid.z};
      const unsigned* place = places.data() + 12 * (b * threads + t);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), place)) << "block " << b << " thread " << t;
    }
  }
}

std::vector<unsigned> Turns(cuda_on_cpu::ThreadOrder order, uint64_t seed) {
  cuda_on_cpu::SetThreadOrder(order, seed);
  Array<unsigned> turns(4 * 96), counter{0};
  LaunchTurns(turns.data(), counter.data(), 4, 96, nullptr);
  return {turns.begin(), turns.end()};
}

TEST(Threads, RunInTheOrderAskedFor) {
  std::thread([] {  // the order belongs to the host thread
    using enum cuda_on_cpu::ThreadOrder;
    const std::vector<unsigned> forward = Turns(kForward, 1), reverse = Turns(kReverse, 1), random = Turns(kRandom, 1);
    for (unsigned i = 0; i < forward.size(); ++i) {
      EXPECT_EQ(forward[i], i);
      EXPECT_EQ(reverse[i], forward.size() - 1 - i);
    }
    EXPECT_EQ(std::set(random.begin(), random.end()).size(), forward.size());
    EXPECT_NE(random, forward);
    EXPECT_NE(random, reverse);
    EXPECT_EQ(random, Turns(kRandom, 1));
    EXPECT_NE(random, Turns(kRandom, 2));
  })
      .join();
}

TEST(Threads, OfTwoHostThreadsRunAtOnce) {
  const auto work = [] {
    for (int repeat = 0; repeat < 20; ++repeat) {
      Array<int> values(512);
      for (int i = 0; i < 512; ++i) values[static_cast<size_t>(i)] = i;
      LaunchReverse(values.data(), 2, 3, nullptr);
      for (int i = 0; i < 512; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i / 256 * 256 + 255 - i % 256);
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST(Launch, EvaluatesItsArgumentsOnceAndCopiesThem) {
  Array<int> out(64);
  int evaluations = 0;
  LaunchFill(out.data(), 40, &evaluations, nullptr);
  EXPECT_EQ(evaluations, 1);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i < 40 ? 41 : -1) << i;
}

TEST(Launch, TakesTheLargestConfigurations) {
  LaunchNothing({70000, 1, 1}, {1, 1, 1}, 0, nullptr);
  LaunchNothing({1, 2, 3}, {1024, 1, 1}, 227 << 10, nullptr);
  LaunchNothing({1, 1, 1}, {2, 8, 64}, 0, nullptr);
}

TEST(Launch, IsCounted) {
  const cuda_on_cpu::Counts before = cuda_on_cpu::CountsSoFar();
  LaunchNothing({3, 2, 1}, {32, 1, 1}, 0, nullptr);
  const cuda_on_cpu::Counts after = cuda_on_cpu::CountsSoFar();
  EXPECT_EQ(after.launches, before.launches + 1);
  EXPECT_EQ(after.blocks, before.blocks + 6);
  EXPECT_GE(after.switches, before.switches + 6 * 32);
}

TEST(SharedMemory, IsNanWhenABlockStarts) {
  for (unsigned bytes : {1u, 100u, 4096u, 100000u}) {
    Array<unsigned> not_nan{0};
    LaunchSharedAtStart(not_nan.data(), 5, bytes, nullptr);
    EXPECT_EQ(not_nan[0], 0u) << bytes;
  }
}

TEST(DeviceMemory, IsAlignedNanAndOfAnySize) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{10000}}) {
    void* start = cuda_on_cpu::AllocateDevice(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % 256, 0u);
    auto* byte = static_cast<unsigned char*>(start);
    EXPECT_TRUE(std::all_of(byte, byte + bytes, [](unsigned char b) { return b == 0xff; }));
    std::fill(byte, byte + bytes, static_cast<unsigned char>(3));
    cuda_on_cpu::FillWithNan(start, bytes);
    EXPECT_TRUE(std::all_of(byte, byte + bytes, [](unsigned char b) { return b == 0xff; }));
    cuda_on_cpu::FreeDevice(start);
  }
  cuda_on_cpu::FreeDevice(nullptr);
}

// ---------------------------------------------------------------- barriers

TEST(Barriers, OrderABlock) {
  for (int rounds : {1, 2, 5}) {
    Array<int> values(3 * 256);
    for (int i = 0; i < 768; ++i) values[static_cast<size_t>(i)] = i;
    LaunchReverse(values.data(), 3, rounds, nullptr);
    for (int i = 0; i < 768; ++i) {
      const int want = rounds % 2 == 1 ? i / 256 * 256 + 255 - i % 256 : i;
      EXPECT_EQ(values[static_cast<size_t>(i)], want) << rounds;
    }
  }
}

TEST(Barriers, CountPredicates) {
  for (int threads : {1, 31, 32, 33, 200}) {
    for (int trues : {0, 1, threads / 2, threads}) {
      Array<int> predicates(static_cast<size_t>(threads)), out(static_cast<size_t>(5 * threads));
      for (int i = 0; i < threads; ++i) predicates[static_cast<size_t>(i)] = i < trues ? 8 : 0;
      LaunchBarrierVotes(out.data(), predicates.data(), threads, nullptr);
      const std::array<int, 5> want = {trues, trues == threads, trues > 0, 1, 0};
      for (int i = 0; i < threads; ++i) EXPECT_TRUE(std::equal(want.begin(), want.end(), out.data() + 5 * i));
    }
  }
}

TEST(Barriers, DoNotWaitForThreadsThatHaveExited) {
  for (int stay : {1, 17, 32, 33, 200, 256}) {
    Array<int> sum{0};
    LaunchEarlyExit(sum.data(), 256, stay, nullptr);
    EXPECT_EQ(sum[0], stay * (stay - 1) / 2);
  }
}

TEST(Barriers, WithNumbersHoldPartsOfABlock) {
  Array<int> out(128);
  LaunchNamedBarriers(out.data(), nullptr);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], (i % 64 + (i < 64 ? 3 : 7)) % 64);
}

// ---------------------------------------------------------------- warps

TEST(Warps, Shuffle) {
  Array<int> values(Numbers(64));
  for (int source : {0, 5, 31, 40}) {
    for (int delta : {0, 1, 3, 7, 8, 17, 31}) {
      Array<int> out(8 * 64);
      LaunchShuffles(out.data(), values.data(), source, delta, nullptr);
      for (int thread = 0; thread < 64; ++thread) {
        const int lane = thread % 32;
        std::vector<int> sources;
        for (int width : {32, 8}) {
          const int segment = lane / width * width;
          sources.push_back(segment + source % width);
          sources.push_back((lane ^ delta) < segment + width ? lane ^ delta : lane);
          sources.push_back(lane - delta >= segment ? lane - delta : lane);
          sources.push_back(lane + delta < segment + width ? lane + delta : lane);
        }
        for (size_t i = 0; i < 8; ++i) {
          const int want = values[static_cast<size_t>(thread - lane + sources[i])];
          EXPECT_EQ(out[static_cast<size_t>(8 * thread) + i], want)
              << "source " << source << " delta " << delta << " thread " << thread << " shuffle " << i;
        }
      }
    }
  }
}

TEST(Warps, ShuffleAnyType) {
  Array<double> values(32), out(32);
  for (size_t i = 0; i < 32; ++i) values[i] = 1.0 / static_cast<double>(i + 1);
  LaunchShufflesOf8Bytes(out.data(), values.data(), nullptr);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], values[i ^ 5]);
}

TEST(Warps, OperateByMask) {
  Array<int> values(Numbers(32)), out(32);
  LaunchHalfWarps(out.data(), values.data(), nullptr);
  int lower = 0, upper = 0;
  for (size_t i = 0; i < 16; ++i) {
    lower += values[i];
    upper += values[16 + i];
  }
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? lower : 16 * upper);
}

TEST(Warps, VoteReduceAndMatch) {
  for (unsigned mask : {0xffffffffu, 0x00010000u, 0xf0f0a5a5u}) {
    for (unsigned different : {1u, 3u, 200u}) {
      Array<unsigned> values(32), out(12 * 32);
      for (unsigned i = 0; i < 32; ++i) values[i] = i * 7 % different + (different == 200 ? 0 : 5);
      LaunchVotes(out.data(), values.data(), mask, nullptr);
      std::vector<unsigned> all;
      unsigned ballot = 0;
      for (unsigned i = 0; i < 32; ++i) {
        if (mask >> i & 1) all.push_back(values[i]);
        if (mask >> i & values[i] & 1) ballot |= 1u << i;
      }
      const auto fold = [&](auto combine) {
        unsigned total = all[0];
        for (size_t i = 1; i < all.size(); ++i) total = combine(total, all[i]);
        return total;
      };
      const unsigned smallest = *std::min_element(all.begin(), all.end());
      const unsigned largest = *std::max_element(all.begin(), all.end());
      for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned* got = out.data() + 12 * lane;
        if ((mask >> lane & 1) == 0) {
          EXPECT_EQ(got[0], 0xffffffffu);
          continue;
        }
        unsigned same = 0;
        for (unsigned i = 0; i < 32; ++i)
          if ((mask >> i & 1) && values[i] == values[lane]) same |= 1u << i;
        const std::array<unsigned, 12> want = {ballot,
                                               largest > 100,
                                               smallest > 0,
                                               fold([](unsigned a, unsigned b) { return a + b; }),
                                               smallest,
                                               largest,
                                               fold([](unsigned a, unsigned b) { return a & b; }),
                                               fold([](unsigned a, unsigned b) { return a | b; }),
                                               fold([](unsigned a, unsigned b) { return a ^ b; }),
                                               same,
                                               same == mask ? mask : 0,
                                               0u - largest};
        for (size_t i = 0; i < 12; ++i) EXPECT_EQ(got[i], want[i]) << "mask " << mask << " lane " << lane << " " << i;
      }
    }
  }
}

TEST(Warps, SyncWarpOrdersSharedMemory) {
  Array<int> out(32);
  LaunchSyncWarp(out.data(), nullptr);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], (i + 35) % 32);
}

TEST(Atomics, WorkAcrossBlocks) {
  constexpr int kThreads = 5 * 64;
  Array<int> out{0, 0, 0, 0, 0, -1, 0, 0, 0};
  Array<float> sum{0.0f};
  LaunchAtomics(out.data(), sum.data(), 5, nullptr);
  int exclusive = 0;
  for (int i = 0; i < kThreads; ++i) exclusive ^= i;
  const int total = kThreads * (kThreads - 1) / 2;
  const std::array<int, 9> want = {total,           -total,    1 - kThreads, kThreads - 1, 0x7fffffff,
                                   -0x7fffffff - 1, exclusive, kThreads - 1, kThreads % 7};
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(out[i], want[i]) << i;
  EXPECT_EQ(sum[0], static_cast<float>(kThreads));
}

TEST(Atomics, PublishWithFences) {
  Array<int> sum(1), partials(7 * 64), done{0};
  LaunchLastBlock(sum.data(), partials.data(), done.data(), 7, nullptr);
  EXPECT_EQ(sum[0], 7 * 63 * 32);
}

// ---------------------------------------------------------------- cp.async

TEST(AsyncCopies, ArriveAtTheirWait) {
  for (int stages : {2, 3, 4}) {
    for (int num_tiles : {1, 2, 5}) {
      for (int valid : {1, num_tiles * 128 - 3, num_tiles * 128}) {
        const auto words = static_cast<size_t>(num_tiles * 128 * 4);
        Array<uint32_t> in(words), out(words);
        for (size_t i = 0; i < words; ++i) in[i] = static_cast<uint32_t>(i * 2654435761u);
        LaunchPipeline(out.data(), in.data(), num_tiles, valid, stages, nullptr);
        for (int i = 0; i < num_tiles * 128; ++i) {
          const int from = i / 128 * 128 + 127 - i % 128;
          for (int word = 0; word < 4; ++word) {
            const uint32_t want = from < valid ? in[static_cast<size_t>(4 * from + word)] : 0;
            ASSERT_EQ(out[static_cast<size_t>(4 * i + word)], want) << stages << " " << num_tiles << " " << valid;
          }
        }
      }
    }
  }
}

TEST(AsyncCopies, AreNanBefore) {
  Array<uint32_t> in{1, 2, 3, 4}, out(8);
  LaunchReadTooEarly(out.data(), in.data(), nullptr);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(out[i], i < 4 ? 0xffffffffu : static_cast<uint32_t>(i - 3));
}

// ---------------------------------------------------------------- matrices

TEST(Matrices, LoadByTheManualsLayout) {
  Array<uint16_t> matrices(256);
  for (size_t i = 0; i < 256; ++i) matrices[i] = static_cast<uint16_t>(i * 259 + 7);
  Array<uint32_t> out(8 * 32);
  LaunchLoadMatrices(out.data(), matrices.data(), nullptr);
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 8; ++i) {
      const auto element = [&](size_t j) -> uint32_t {
        const size_t row = lane / 4, column = lane % 4 * 2 + j;
        return matrices[i % 4 * 64 + (i < 4 ? row * 8 + column : column * 8 + row)];
      };
      EXPECT_EQ(out[8 * lane + i], element(0) | element(1) << 16) << "lane " << lane << " register " << i;
    }
  }
}

float Bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float F16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

void ExpectProduct(bool f16, const std::vector<uint16_t>& a_bits, const std::vector<uint16_t>& b_bits) {
  Array<uint16_t> a(a_bits), b(b_bits);
  Array<float> d(16 * 8);
  std::vector<float> before(16 * 8);
  for (size_t i = 0; i < before.size(); ++i) d[i] = before[i] = static_cast<float>(i) - 60.0f;
  LaunchProduct(d.data(), a.data(), b.data(), f16, nullptr);
  const auto value = f16 ? F16 : Bf16;
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      double want = before[row * 8 + column], scale = std::abs(want);
      for (size_t k = 0; k < 16; ++k) {
        const double term = double{value(a[row * 16 + k])} * double{value(b[k * 8 + column])};
        want += term;
        scale += std::abs(term);
      }
      const double got = d[row * 8 + column];
      if (std::isfinite(want)) {
        EXPECT_NEAR(got, want, scale * 1e-6) << (f16 ? "f16 " : "bf16 ") << row << "," << column;
      } else {
        EXPECT_EQ(std::isnan(got), std::isnan(want));
        EXPECT_EQ(std::isinf(got), std::isinf(want));
      }
    }
  }
}

TEST(Matrices, MultiplyByTheManualsLayout) {
  std::mt19937 random(5);
  for (bool f16 : {false, true}) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<uint16_t> a(256), b(128);
      // Any finite numbers between about 2^-8 and 2^8.
      const auto draw = [&] {
        const uint32_t bits = random();
        const uint32_t sign = bits >> 31 << 15;
        return static_cast<uint16_t>(f16 ? sign | (7 + bits % 16) << 10 | (bits >> 8 & 1023)
                                         : sign | (119 + bits % 16) << 7 | (bits >> 8 & 127));
      };
      std::generate(a.begin(), a.end(), draw);
      std::generate(b.begin(), b.end(), draw);
      ExpectProduct(f16, a, b);
    }
  }
}

TEST(Matrices, MultiplySubnormalsInfinitiesAndNan) {
  for (bool f16 : {false, true}) {
    const uint16_t infinity = f16 ? 0x7c00 : 0x7f80, nan = f16 ? 0x7e00 : 0x7fc0, one = f16 ? 0x3c00 : 0x3f80;
    std::vector<uint16_t> a(256, 0), b(128, one);
    for (uint16_t k = 0; k < 16; ++k) a[k] = static_cast<uint16_t>(k * 61 + 1);  // row 0: subnormal in f16
    a[1 * 16 + 3] = infinity;
    a[2 * 16 + 9] = nan;
    a[3 * 16 + 15] = infinity;
    a[3 * 16 + 0] = static_cast<uint16_t>(infinity | 0x8000);
    a[4 * 16 + 7] = infinity;
    b[7 * 8 + 2] = 0;  // times infinity
    ExpectProduct(f16, a, b);
  }
}

TEST(Matrices, MultiplyByWmma) {
  std::mt19937 random(6);
  for (bool by_columns : {false, true}) {
    Array<uint16_t> a(256), b(256);
    for (auto* matrix : {&a, &b})
      for (uint16_t& element : *matrix) element = static_cast<uint16_t>((120 + random() % 10) << 7 | random() % 128);
    Array<float> d(256);
    LaunchWmma(d.data(), a.data(), b.data(), by_columns, nullptr);
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 16; ++column) {
        double want = 0;
        for (size_t k = 0; k < 16; ++k)
          want += double{Bf16(a[row * 16 + k])} * double{Bf16(b[by_columns ? column * 16 + k : k * 16 + column])};
        EXPECT_NEAR(d[by_columns ? column * 16 + row : row * 16 + column], want, std::abs(want) * 1e-6);
      }
    }
  }
}

// ---------------------------------------------------------------- functions of one thread

TEST(Intrinsics, GiveWhatTheDeviceGives) {
  Array<uint32_t> out(kNumIntrinsics);
  LaunchIntrinsics(out.data(), nullptr);
  const auto f = [](float x) { return std::bit_cast<uint32_t>(x); };
  const auto i = [](int x) { return static_cast<uint32_t>(x); };
  const std::array<uint32_t, kNumIntrinsics> want = {3,
                                                     3,
                                                     f(2.0f),
                                                     f(1.5f),
                                                     f(2.0f),
                                                     f(0.75f),
                                                     f(1.0f),
                                                     f(0.0f),
                                                     0x3f800000u,
                                                     f(2.0f),
                                                     2,
                                                     i(-2),
                                                     i(-3),
                                                     3,
                                                     i(0x7fffffff),
                                                     0,
                                                     0,
                                                     8,
                                                     31,
                                                     8,
                                                     0x80000000u,
                                                     3,
                                                     0x77553311u,
                                                     0x000000ffu,
                                                     3,
                                                     0x80000000u,
                                                     i(10 + 3 - 4 + 10 - 12),
                                                     0xeau,
                                                     f(8.0f),
                                                     f(0.0f),
                                                     0x4b004880u,
                                                     0x41604110u,
                                                     0x48004600u,
                                                     0x3f803f80u,
                                                     f(0x1p-24f),
                                                     f(1.0f),
                                                     f(0.0f),
                                                     3,
                                                     3};
  for (size_t n = 0; n < want.size(); ++n) EXPECT_EQ(out[n], want[n]) << n;
}

}  // namespace
}  // namespace sluice::cuda_testing
