// The noise that draws tokens, the same on every device.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/base/host_device.h"

namespace sluice {

// 32 random bits for (seed, position, token): a counter-based hash, so any device computes any token's noise by itself.
SLUICE_HOST_DEVICE inline uint32_t SampleBits(uint64_t seed, int64_t position, int32_t token) {
  // Two rounds of the splitmix64 finaliser (Steele, Lea, Flood 2014) over the three inputs.
  uint64_t x = seed + 0x9E3779B97F4A7C15u * (uint64_t(position) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  x += 0x9E3779B97F4A7C15u * (uint64_t(uint32_t(token)) + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return uint32_t((x ^ (x >> 31)) >> 32);
}

// -log(-log(u)) with u = (bits + 0.5) / 2^32: between -3.1 and 22.9, increasing in bits. The logarithms of two devices
// differ in the last bits of f64; once in some 10^8 values that moves the f32 result by one unit.
SLUICE_HOST_DEVICE inline float GumbelFromBits(uint32_t bits) {
  const double u = (double(bits) + 0.5) * 0x1p-32;
  return float(-std::log(-std::log(u)));
}

}  // namespace sluice
