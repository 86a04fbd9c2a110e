// Bitmasks of a vocabulary (engine/base/token_bitmask.h) for tests of samplers.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/base/token_bitmask.h"

namespace sluice {

// All tokens, none, one, half of them, few, nearly all; the bits that the last word has over are set at random.
inline std::vector<std::vector<uint32_t>> Bitmasks(int32_t vocab_size, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto token = [&] { return int32_t(rng() % uint32_t(vocab_size)); };
  const size_t words = size_t(TokenBitmaskWords(vocab_size));
  std::vector<std::vector<uint32_t>> bitmasks;
  bitmasks.emplace_back(words, ~uint32_t{0});
  bitmasks.emplace_back(words, 0);
  SetToken(bitmasks.emplace_back(words, 0), token(), true);
  for (uint32_t& word : bitmasks.emplace_back(words, 0)) word = uint32_t(rng());
  for (int i = 0; i < 10; ++i) SetToken(i == 0 ? bitmasks.emplace_back(words, 0) : bitmasks.back(), token(), true);
  for (int i = 0; i < 10; ++i) SetToken(i == 0 ? bitmasks.emplace_back(words, ~0u) : bitmasks.back(), token(), false);
  for (std::vector<uint32_t>& bitmask : bitmasks) {
    for (int32_t t = vocab_size; t < int32_t(words) * kTokensPerWord; ++t) SetToken(bitmask, t, rng() % 2 == 0);
  }
  return bitmasks;
}

}  // namespace sluice
