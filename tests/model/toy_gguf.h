// A small llama model as a GGUF file, with keys to change or leave out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/io/gguf_writer.h"

namespace sluice::testing {

struct ToyGguf {
  int32_t vocab_size = 96, d_model = 64, num_layers = 2, num_heads = 4, num_kv_heads = 2, head_dim = 16, ffn = 96;
  bool tied = true;
  bool tokenizer = true;                           // byte-level, 96 tokens, of which 1 starts and 2 ends a message
  std::vector<std::string> without_keys = {};      // left out
  std::vector<std::string> without_tensors = {};   // left out
  std::function<void(GgufWriter*)> add = nullptr;  // writes what replaces or joins them
};

std::string ToyGgufBytes(const ToyGguf& toy);

}  // namespace sluice::testing
